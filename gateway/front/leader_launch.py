"""How the engine is started: the command, its GROK_HOME, and what people are told about both.

Decided at the first start and at planned restarts only: a newer binary on disk changes nothing before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from gateway.engine import EngineKind, bridge_arguments, is_elf, kind_of, resolve
from gateway.engine_home import (
    OWN_MODEL_HOW,
    OWN_MODEL_NOTE,
    bridge_environment,
    leader_environment,
    offline_note,
)
from gateway.front.binary import pin, pin_running
from gateway.front.leader_process import Leader
from gateway.paths import Paths
from gateway.settings import Settings

__all__ = ["Launch"]


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """What every leader and every bridge of one generation runs."""

    command: tuple[str, ...]  #: the executable, or interpreter and script
    link: bool  #: it is a pinned copy: bridges run hard links of it
    home: Path | None  #: GROK_HOME, None for the engine's default
    offline: bool  #: the offline model answers
    version: str
    source: str  #: where the engine came from, for people
    note: str  #: which model answers, for people

    @classmethod
    def new(cls, settings: Settings, paths: Paths, environ: Mapping[str, str]) -> Launch:
        """Choose and pin the engine.  Blocks.  Raises EngineError and BinaryError."""
        engine = resolve(settings, paths, environ)
        command = (str(pin(engine.binary, paths.binaries)),) if engine.native else engine.command
        return cls(
            command,
            engine.native,
            engine.home,
            engine.offline,
            engine.version,
            engine.why,
            engine.note,
        )

    @classmethod
    def running(cls, leader: Leader, paths: Paths) -> Launch:
        """What a running leader was started with.  Blocks.  Raises BinaryError."""
        pid, command = leader.identity.pid, leader.command
        native = len(command) == 1 and is_elf(Path(f"/proc/{pid}/exe"))
        if native:
            command = (str(pin_running(pid, paths.binaries)),)
        home = Path(leader.home) if leader.home else None
        offline = home == paths.offline_home
        how = OWN_MODEL_HOW if kind_of(command) == "harness" else "run `grok login`"
        note = offline_note(how) if offline else OWN_MODEL_NOTE
        return cls(command, native, home, offline, "", f"the running leader, pid {pid}", note)

    @property
    def engine(self) -> EngineKind:
        """Which engine it is."""
        return kind_of(self.command)

    def bridge(self, paths: Paths) -> tuple[str, ...]:
        """The whole argv of a bridge."""
        return (*self.command, *bridge_arguments(paths.leader_socket))

    def leader_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the leader.  Raises EngineError for a broken grok configuration."""
        return leader_environment(self.home, self.offline, environ)

    def bridge_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of a bridge."""
        return bridge_environment(self.home, environ)
