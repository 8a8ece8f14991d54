"""``python -m harness … agent stdio|leader``: the embedded engine as a program.

Each form imports only what it needs: a bridge must be there within a tenth of a second.
"""

from __future__ import annotations

import os
import sys

from gateway import __version__
from harness.arguments import parse_arguments


def main() -> int:
    """Exit code 0 after an orderly end, 1 when it cannot start, 2 for a wrong command line."""
    arguments = parse_arguments(sys.argv[1:], __version__)
    if arguments.cwd is not None:
        os.chdir(arguments.cwd)
    if arguments.leader and arguments.mode == "stdio":
        from harness import bridge

        wishes = {"yolo_mode": arguments.always_approve, "default_model": arguments.model}
        return bridge.run(arguments.leader_socket, wishes)
    _log_to_stderr()
    if arguments.mode == "leader":
        from harness.leader import program

        return program.run(arguments)
    from harness import stdio

    return stdio.run(arguments)


def _log_to_stderr() -> None:
    import logging

    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


if __name__ == "__main__":
    sys.exit(main())
