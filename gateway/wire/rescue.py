"""A rescue: the turns of sessions whose client can no longer be asked are ended.

It is carried out over a *throwaway* bridge: whoever names a session to Grok becomes its subscriber and may
become the one that is asked before its tools run, for good, until it exits.  So the bridge has initialized
before, is of no other use, and has **exited** before anybody attaches the sessions again.

* ``session/cancel`` first: the fastest way to void an open hook.  It ends the running turn only; what
  waits in the queue starts.
* ``session/close`` for what still works after that: it ends the queue as well, but its answer can take long
  or never come, and the session has to be loaded from disk afterwards.
* The truth is ``_x.ai/sessions/list``, asked until nothing of the sessions is at work in two looks: between
  two prompts of a queue a session is idle for a moment.

Meanwhile everything that the engine asks is answered so that nothing runs.  `Rescue` decides, `RescueRun`
is the asyncio shell for any kind of bridge.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import enum
import secrets
from collections.abc import Callable, Collection
from typing import Any

from gateway.wire.acp import QUEUE_CHANGED
from gateway.wire.jsonrpc import EngineLine, dump, notification_bytes, parse_engine, request_bytes
from gateway.wire.limits import LIMITS, SIZES, Limits
from gateway.wire.questions import GateKind, closed_answer, gate_kind

__all__ = ["Refused", "Rescue", "RescueRun", "State"]

#: Activities of a session in which nothing of it runs or waits.
_RESTING = frozenset({"idle", "dormant"})


class State(enum.Enum):
    ENDING = "ending"  #: something may run
    CONFIRMING = "confirming"  #: one look has found nothing
    IDLE = "idle"  #: nothing runs and nothing waits
    GIVEN_UP = "given up"  #: the time is over


class _Event(enum.Enum):
    BUSY = "something is at work"
    QUIET = "a look found nothing at work"
    TIME_UP = "the time is over"


#: (state, event) → state.  What is not here changes nothing.
_MOVES = {
    (State.ENDING, _Event.QUIET): State.CONFIRMING,
    (State.ENDING, _Event.TIME_UP): State.GIVEN_UP,
    (State.CONFIRMING, _Event.BUSY): State.ENDING,
    (State.CONFIRMING, _Event.QUIET): State.IDLE,
    (State.CONFIRMING, _Event.TIME_UP): State.GIVEN_UP,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """Something that the engine asked during a rescue; names only."""

    session_id: str
    kind: GateKind
    event: str  #: of a hook
    tool: str
    tool_use_id: str


class Rescue:
    """One rescue.  Sans-I/O: every method returns the lines to write to the bridge, in order.

    ``sessions`` have a turn and are cancelled at once; ``suspects`` only if they are at work.  ``reason`` is
    told to the model that asked for a tool.  Times are seconds of any monotonic clock.
    """

    def __init__(
        self,
        sessions: Collection[str],
        suspects: Collection[str] = (),
        *,
        reason: str,
        limits: Limits = LIMITS,
    ) -> None:
        self._turns = tuple(dict.fromkeys(sessions))
        self._all = frozenset(sessions) | frozenset(suspects)
        self._reason, self._limits = reason, limits
        self._name = secrets.token_hex(8)
        self._numbers = 0
        self._look = b""  # id of the look under way
        self._deadline = 0.0
        self._pause_over: float | None = None
        self._seen_busy = set[str]()
        self._closed = set[str]()
        self.ended = set[str]()  #: sessions that were cancelled or closed
        self.refused = collections.deque[Refused](maxlen=SIZES.open_gates)
        self.state = State.ENDING

    @property
    def over(self) -> bool:
        return self.state in (State.IDLE, State.GIVEN_UP)

    @property
    def next_wake(self) -> float:
        """When `wake` is due."""
        return self._deadline if self._pause_over is None else min(self._pause_over, self._deadline)

    def start(self, now: float) -> list[bytes]:
        """The bridge has initialized."""
        self._deadline = now + self._limits.rescue
        return [*(self._cancel(session) for session in self._turns), self._ask()]

    def receive(self, line: EngineLine, now: float) -> list[bytes]:
        """A line of the bridge."""
        if line.kind == "request":
            return [self._refuse(line)]
        if line.kind == "response" and line.id_raw == self._look and not self.over:
            return self._looked(line, now)
        if line.method == QUEUE_CHANGED and line.session in self._all and _queue_goes_on(line.params):
            # To cancel the next prompt would only start the one behind it.
            self._move(_Event.BUSY)
            return self._close(line.session)
        return []

    def wake(self, now: float) -> list[bytes]:
        """`next_wake` has come."""
        if self.over:
            return []
        if now >= self._deadline:
            left = self._seen_busy.union(self._turns) if self.state is State.ENDING else ()
            self._move(_Event.TIME_UP)
            return [line for session in sorted(left) for line in self._end(session)]
        if self._pause_over is not None and now >= self._pause_over:
            self._pause_over = None
            return [self._ask()]
        return []

    def _looked(self, line: EngineLine, now: float) -> list[bytes]:
        self._look = b""
        self._pause_over = now + self._limits.rescue_pause
        rows = _rows(line.body)
        if rows is None:  # an error: the next look may do better
            self._move(_Event.BUSY)
            return []
        busy = {
            row["sessionId"]
            for row in rows
            if row.get("sessionId") in self._all and row.get("activity") not in _RESTING
        }
        self._move(_Event.BUSY if busy else _Event.QUIET)
        # A turn that was just cancelled may need a moment; what is at work in two looks is closed.
        lines = [
            out
            for session in sorted(busy)
            if session in self._seen_busy or session not in self.ended
            for out in self._end(session)
        ]
        self._seen_busy = busy
        return lines

    def _end(self, session: str) -> list[bytes]:
        return [self._cancel(session), *self._close(session)]

    def _cancel(self, session: str) -> bytes:
        self.ended.add(session)
        return notification_bytes("session/cancel", {"sessionId": session})

    def _close(self, session: str) -> list[bytes]:
        if session in self._closed:
            return []
        self._closed.add(session)
        self.ended.add(session)
        return [self._request("session/close", {"sessionId": session})[1]]

    def _ask(self) -> bytes:
        self._look, line = self._request("_x.ai/sessions/list", {})
        return line

    def _request(self, method: str, params: dict[str, Any]) -> tuple[bytes, bytes]:
        self._numbers += 1
        key = b'"gw-%b-%d"' % (self._name.encode(), self._numbers)
        return key, request_bytes(key, method, dump(params))

    def _refuse(self, line: EngineLine) -> bytes:
        params = line.params
        kind = gate_kind(line.method, params)
        call = params.get("toolCall")
        names = {**(call if isinstance(call, dict) else {}), **params}
        self.refused.append(
            Refused(
                line.session,
                kind,
                str(params.get("hookEventName", "")),
                str(params.get("toolName", "")),
                str(names.get("toolUseId", names.get("toolCallId", ""))),
            )
        )
        return closed_answer(line.id_raw, kind, params, self._reason)

    def _move(self, event: _Event) -> None:
        self.state = _MOVES.get((self.state, event), self.state)


def _queue_goes_on(params: dict[str, Any]) -> bool:
    return bool(params.get("runningPromptId") or params.get("entries"))


def _rows(body: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The sessions in the answer of a look, which is wrapped twice; None if it is none."""
    result = body.get("result")
    inner = result.get("result") if isinstance(result, dict) else None
    rows = inner.get("sessions") if isinstance(inner, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else None


class RescueRun:
    """Carries out a `Rescue` on the running loop; ``write`` sends a line to the initialized bridge."""

    def __init__(self, rescue: Rescue, write: Callable[[bytes], None]) -> None:
        self._rescue, self._write = rescue, write
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._bridge_lost = False

    def line(self, data: bytes) -> None:
        """The bridge wrote a line."""
        self._send(self._rescue.receive(parse_engine(data), self._loop.time()))
        self._news.set()

    def lost(self) -> None:
        """The bridge has ended too early."""
        self._bridge_lost = True
        self._news.set()

    async def run(self) -> bool:
        """Return when the rescue is over, ``LIMITS.rescue`` at most: whether nothing is at work any more.

        The caller ends the bridge then.
        """
        self._send(self._rescue.start(self._loop.time()))
        while not self._rescue.over and not self._bridge_lost:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._rescue.next_wake):
                    await self._news.wait()
            self._send(self._rescue.wake(self._loop.time()))
        return self._rescue.state is State.IDLE

    def _send(self, lines: list[bytes]) -> None:
        for line in lines:
            self._write(line)
