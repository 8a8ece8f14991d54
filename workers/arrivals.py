"""What the engine may never have got, although its bridge is there: prompts, answers, cancels.

Grok's leader reads the length and the body of a message apart; when it has something to send to that bridge
in between, it may drop the message, mostly with the connection (`workers.bridge`), now and then without a
sign: with ten clients that prompt at a time one prompt in forty was lost so.

* A prompt is answered by signs at once: it runs, or waits in the queue.  One without a sign is sent once
  more when the engine, asked behind it, says that its session is idle.  When the signs end, too, the end of
  the turn was lost: the next bridge finds it in the replay.
* A request that may be repeated is, after a silence.
* An answer to a question of the engine is repeated: Grok takes the first and ignores the others.
* A cancel is repeated while the same prompt runs.
* A load that is followed by silence is sent once more.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Callable
from typing import Any

from gateway.wire.insist import insist
from gateway.wire.limits import SIZES
from workers.guard import Gate
from workers.ledger import Ledger
from workers.link import CallError, EngineError, Link, Loss
from workers.requests import Request, Step
from workers.sessions import Session

__all__ = ["Arrivals"]

_SESSIONS = "_x.ai/sessions/list"


class Arrivals:
    """Of one connection.  ``again(request)`` sends a lost prompt once more."""

    def __init__(self, ledger: Ledger, link: Link, again: Callable[[Request], None]) -> None:
        self._ledger, self._link, self._again = ledger, link, again
        self._loop = asyncio.get_running_loop()
        self._looks = set[asyncio.Task[None]]()
        self._heard = dict[str, float]()
        self._suspects = weakref.WeakSet[Request]()

    def close(self) -> None:
        for look in self._looks:
            look.cancel()

    # -- prompts and cancels -------------------------------------------------------------------

    def prompted(self, request: Request) -> None:
        """A prompt was written."""
        self._later(self._look_for, request)

    def requested(self, request: Request, repeat: Callable[[], None]) -> None:
        """A request that may be repeated was written: it is, after each silence, as long as it is open."""
        pause = self._ledger.limits.first_repeat
        if isinstance(request.params, dict) and request.params.get("mcpServers"):
            pause = self._ledger.limits.request  # they are started first
        self._repeat_after(pause, request, repeat)

    def _repeat_after(self, pause: float, request: Request, repeat: Callable[[], None]) -> None:
        asked, pid = self._loop.time(), self._link.pid

        def look() -> None:
            if request.step is not Step.SENT or self._link.pid != pid:
                return  # answered, or another bridge has it
            if self._heard.get(request.session_id or "-", -math.inf) < asked:
                self._ledger.counters["requests_repeated"] += 1
                repeat()
            self._repeat_after(2 * pause, request, repeat)

        self._loop.call_later(pause, look)

    def doubted(self, request: Request) -> None:
        """Nothing tells of a prompt that the last bridge had got."""
        self._later(self._look_for_lost, request)

    def cancelled(self, session: Session) -> None:
        """The client's cancel was written."""
        if session.running is not None:
            self._later(self._still_runs, session, session.running)

    def _later(self, look: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_later(self._ledger.limits.first_request, look, *arguments)

    def _still_runs(self, session: Session, running: str) -> None:
        if session.running == running and session.busy and self._link.up:
            self._link.notify("session/cancel", {"sessionId": session.session_id})

    def _look_for(self, request: Request) -> None:
        if request.step is not Step.SENT:
            return  # answered, or left to the next bridge
        if request.seen and self._silence(request) < self._ledger.limits.probe_interval:
            self._loop.call_later(self._ledger.limits.probe_interval, self._look_for, request)
        else:
            self._look(request, Step.SENT)

    def _look_for_lost(self, request: Request) -> None:
        if request.step is Step.REJOINED:
            self._look(request, Step.REJOINED)

    def _look(self, request: Request, step: Step) -> None:
        if self._link.up:
            look = self._loop.create_task(self._ask_for(request, step))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)
        elif step is Step.REJOINED:
            self._later(self._look_for_lost, request)

    def _silence(self, request: Request) -> float:
        """Seconds since anything was heard of its session."""
        return self._loop.time() - self._heard.get(request.session_id or "", -math.inf)

    async def _ask_for(self, request: Request, step: Step) -> None:
        """Whether the engine works at a prompt that gives no sign."""
        try:
            # A prompt of 40 MiB occupies the leader for 7 s.
            listed = await self._link.call(_SESSIONS, {}, self._ledger.limits.request)
        except EngineError:
            return  # it lives, and cannot tell
        except CallError as error:
            self._link.give_up(Loss("bridge", str(error), hung_up=True))
            return
        if request.step is not step:
            return
        look_again = self._look_for if step is Step.SENT else self._look_for_lost
        if not _idle(listed, request.session_id):  # at work, or behind a turn
            limits = self._ledger.limits
            pause = limits.probe_interval if request.seen else limits.first_request
            self._loop.call_later(pause, look_again, request)
        elif not request.seen and not request.resent:
            self._ledger.counters["prompts_sent_again"] += 1
            self._again(request)
        elif request in self._suspects:
            self._link.give_up(Loss("bridge", "the end of a turn was lost", hung_up=True))
        else:  # it may have ended just now
            self._suspects.add(request)
            self._later(look_again, request)

    # -- answers -------------------------------------------------------------------------------

    def answered(self, gate: Gate, line: bytes) -> None:
        """A gate of the engine was answered with ``line``."""
        pid = self._link.pid

        def repeat() -> None:
            used_again = self._ledger.guard.asks(gate.id_raw)
            if self._link.pid == pid and not used_again:
                self._link.send(line)

        for times in (1, 4):
            self._loop.call_later(times * self._ledger.limits.answer_again, repeat)

    # -- loads ---------------------------------------------------------------------------------

    def heard(self, session_id: str) -> None:
        """A line of a session came."""
        self._heard[session_id] = self._loop.time()
        if len(self._heard) > 2 * SIZES.sessions:  # those of closed sessions
            self._heard = {known: at for known, at in self._heard.items() if known in self._ledger.sessions}

    async def load(self, session_id: str, params: Any, then: Callable[[Any], None], *, replays: bool) -> None:
        """A ``session/load`` of our own, once more after each silence; ``then(result)`` for the first answer.

        ``replays``: there is something to replay.  Raises CallError.
        """
        name = session_id if replays else ""
        limits, answered = self._ledger.limits, False

        def first(result: Any) -> None:
            nonlocal answered
            if not answered:
                answered = True
                then(result)

        await insist(
            lambda: self._link.call("session/load", params, limits.session_open, first, replays=name),
            limits.first_request,
            silent=lambda since: self._heard.get(session_id, -math.inf) < since,
        )


def _idle(listed: Any, session_id: str | None) -> bool:
    inner = listed.get("result") if isinstance(listed, dict) else None
    sessions = (inner if isinstance(inner, dict) else {}).get("sessions")
    return any(
        isinstance(one, dict) and one.get("sessionId") == session_id and one.get("activity") == "idle"
        for one in (sessions if isinstance(sessions, list) else ())
    )
