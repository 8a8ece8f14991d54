"""``python -m harness … agent stdio``: the embedded engine as a program."""

from __future__ import annotations

import logging
import os
import sys

from gateway import __version__
from harness.arguments import parse_arguments


def main() -> int:
    """Exit code 0 after an orderly end, 1 when it cannot start, 2 for a wrong command line."""
    arguments = parse_arguments(sys.argv[1:], __version__)
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if arguments.cwd is not None:
        os.chdir(arguments.cwd)
    if arguments.mode == "leader" or arguments.leader:
        sys.stderr.write("Error: this engine has no leader yet; run `agent --no-leader stdio`\n")
        return 1
    from harness.stdio import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
