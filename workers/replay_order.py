"""The replay of a load comes before its answer, whatever the engine does.

Grok replays a session and then answers the ``session/load``.  Of bridges that connect while the machine is
busy one in a hundred is served in another order for good: its loads are answered at once, and up to 130 ms
later the replay goes to every subscriber of the session (without the leader's stamp), mixed with live lines.
Whoever judges by the replay when the answer comes would take a turn that has ended for one that was lost,
and would look for the gap in a text where there is none.

Sans-I/O.  An answer without a replay is kept back with the live lines of its session, until the replay has
passed: what Grok says behind every load shows that.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from gateway.wire import acp
from gateway.wire.jsonrpc import EngineLine

__all__ = ["ReplayOrder", "wants_no_replay"]

#: Live updates that every load brings about, behind its replay.
_NEWS = frozenset({"background_tasks", "available_commands_update", "model_changed"})


def wants_no_replay(params: Any) -> bool:
    """Whether the parameters of a ``session/load`` ask for what is behind a cursor only: often nothing."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and "cursor" in meta


@dataclasses.dataclass(slots=True)
class _Load:
    session_id: str
    replayed: bool = False
    event: int = 0  #: the newest of the replay
    kept: list[EngineLine] = dataclasses.field(default_factory=list)  #: the answer, and what came behind it


class ReplayOrder:
    """Of one bridge."""

    def __init__(self) -> None:
        self._loads = dict[bytes, _Load]()  # by the key of the request

    def expect(self, key: bytes, session_id: str) -> None:
        """A ``session/load`` is about to be written whose session has something to replay."""
        self._loads[key] = _Load(session_id)

    def keeps(self, key: bytes) -> bool:
        """Whether the answer has come and waits for its replay; `release` it in a moment."""
        return bool(self._loads[key].kept) if key in self._loads else False

    def sort(self, line: EngineLine) -> list[EngineLine]:
        """The lines that are to be dealt with now, after ``line`` has come."""
        if not self._loads:
            return [line]
        if line.kind == "response":
            return self._answered(line)
        for key, load in self._loads.items():
            if load.session_id == line.session:
                if line.kind == "notification" and line.is_replay:
                    load.replayed, load.event = True, max(load.event, _event(line))
                elif load.kept and load.replayed and line.update in _NEWS:
                    return [*self.release(key), line]
                elif load.kept:
                    load.kept.append(line)
                    return []
        return [line]

    def release(self, key: bytes) -> list[EngineLine]:
        """What was kept back, in order; nothing is kept for this request any more."""
        load = self._loads.pop(key, None)
        if load is None:
            return []
        # A chunk that the replay has, too, came before it; in the usual order the leader leaves it out.
        return [line for line in load.kept if line.update not in acp.CHUNKS or _event(line) > load.event]

    def _answered(self, line: EngineLine) -> list[EngineLine]:
        load = self._loads.get(line.id_raw)
        if load is None:
            return [line]
        if load.replayed or "error" in line.body:
            del self._loads[line.id_raw]
            return [line]
        load.kept.append(line)
        return []


def _event(line: EngineLine) -> int:
    return acp.event_number(line.params.get("_meta")) or 0
