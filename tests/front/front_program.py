"""The real front with a stand-in for the leader's keeper: ``python -m tests.front.front_program``."""

from __future__ import annotations

import sys
from collections.abc import Callable

from gateway.front.start import main
from gateway.paths import Paths
from gateway.settings import Settings
from gateway.wire.handoff import LeaderInfo
from tests.front.stand_ins import StandInKeeper


def make_keeper(paths: Paths, settings: Settings, on_change: Callable[[LeaderInfo], None]) -> StandInKeeper:
    return StandInKeeper(on_change, paths.state / "keeper.log")


if __name__ == "__main__":
    sys.exit(main(make_keeper))
