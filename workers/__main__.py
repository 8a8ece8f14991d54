"""``python -m workers --name worker_00``: one worker of the instance that the environment names."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

import uvloop

from gateway.paths import PathError, Paths
from gateway.settings import SettingError, Settings
from workers.websocket import warn_without_speedups
from workers.worker import Worker


def main() -> int:
    """Exit code: 0 after an orderly end, 1 when it could not start."""
    parser = argparse.ArgumentParser(prog="python -m workers", description="A worker of Grok Gateway.")
    parser.add_argument("--name", required=True, help="worker_NN, as supervisord calls it")
    name = parser.parse_args().name
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )
    try:
        paths = Paths.from_environment()
        paths.create()
        settings = Settings.load(paths)
    except (PathError, SettingError) as error:
        logging.getLogger(__name__).error("%s", error)
        return 1
    warn_without_speedups()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(name, paths, settings))
    return 0


async def _serve(name: str, paths: Paths, settings: Settings) -> None:
    await Worker(name, paths, settings.port, settings.limits()).run()


if __name__ == "__main__":
    sys.exit(main())
