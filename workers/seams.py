"""The seams of one connection: text of turns that go on behind another bridge, whole and in order.

`workers.seam` decides; here are its loads, their order and their bounds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable

from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import EngineLine
from gateway.wire.limits import SIZES
from workers.engine_lines import EngineLines
from workers.ledger import Ledger
from workers.link import CallError, Link, Loss
from workers.seam import Seam

__all__ = ["Seams"]

log = logging.getLogger(__name__)


class Seams:
    """By session.  ``frames``: what the client has been sent, oldest first."""

    def __init__(
        self, ledger: Ledger, link: Link, lines: EngineLines, frames: Iterable[tuple[int, bytes]]
    ) -> None:
        self._ledger, self._link, self._lines, self._frames = ledger, link, lines, frames
        self._seams = dict[str, Seam]()
        self._standing = set[str]()
        self._ours = set[str]()  # sessions whose replays the client has not asked for
        self._mending = dict[str, asyncio.Task[None]]()

    def begin(self, session_id: str, *, stands: bool = False) -> Seam:
        """From now on the session's lines are held.  ``stands``: until `mend`, whatever they are."""
        self.end(session_id)
        seam = self._seams[session_id] = Seam(session_id, (frame for _, frame in self._frames))
        if stands:
            self._standing.add(session_id)
        return seam

    def get(self, session_id: str) -> Seam | None:
        return self._seams.get(session_id)

    def end(self, session_id: str) -> None:
        """There is none any more: what it holds is dropped."""
        self._seams.pop(session_id, None)
        self._standing.discard(session_id)
        task = self._mending.pop(session_id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def takes(self, line: EngineLine) -> bool:
        """Whether a notification belongs to a replay or is held back here."""
        seam = self._seams.get(line.session)
        if seam is None:
            # Some engines replay only after they have answered.
            return line.session in self._ours and line.is_replay
        if line.is_replay:
            seam.replay(line.data)
        else:
            seam.hold(line.data)
            if line.session not in self._standing:
                self._advance(line.session, seam)
        return True

    def hide_replays(self, session_id: str) -> None:
        """The client has not asked for a replay of this session: we load it, or its bridge may by itself."""
        self._ours.add(session_id)

    def show_replays(self, session_id: str) -> None:
        """The client loads a session by itself and wants its replay."""
        self._ours.discard(session_id)

    async def mend(self, session_ids: Collection[str]) -> None:
        """Load these again whether there is a hole or not: somebody else's load may have made one.

        Returns when they are whole; a fast stream is not waited for.
        """
        for session_id in session_ids:
            if (seam := self._seams.get(session_id)) is not None:
                seam.state = "hole"
                self._start_mending(session_id, seam)
        mending = [self._mending[s] for s in session_ids if s in self._mending]
        if mending:
            await asyncio.wait(mending, timeout=self._ledger.limits.seam_pause_last)

    def clear(self) -> None:
        """The bridge is lost, and what was held with it."""
        for task in self._mending.values():
            task.cancel()
        self._mending.clear()
        self._seams.clear()
        self._standing.clear()
        self._ours.clear()

    def _advance(self, session_id: str, seam: Seam) -> None:
        frames = seam.advance()
        if seam.state == "settled":
            self.end(session_id)
        self._pass(frames)
        if seam.state == "hole":
            self._start_mending(session_id, seam)

    def _start_mending(self, session_id: str, seam: Seam) -> None:
        if session_id not in self._mending:
            task = asyncio.get_running_loop().create_task(self._mend(session_id, seam))
            self._mending[session_id] = task

    async def _mend(self, session_id: str, seam: Seam) -> None:
        """Load the session again, until no chunk is lost at the end of a load.

        Each replay shows what was missing, so the text goes on in any case; how soon the stream can be
        followed again depends on how fast it is.  A load behind its end is never followed by a gap.
        """
        limits, pause = self._ledger.limits, self._ledger.limits.seam_pause
        in_vain = 0
        try:
            while self._seams.get(session_id) is seam and seam.state == "hole":
                in_vain = 0 if await self._load(session_id, seam) else in_vain + 1
                if in_vain == SIZES.loads_in_vain:
                    self._link.give_up(Loss("bridge", "its loads close no gap", hung_up=True))
                    return
                if seam.state == "hole":
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, limits.seam_pause_last)
        except CallError as error:
            log.warning("session %s: the gap in its text stays: %s", session_id, error)
        finally:
            if self._mending.get(session_id) is asyncio.current_task():
                del self._mending[session_id]
        if self._seams.get(session_id) is seam and (seam.state != "waiting" or not self._busy(session_id)):
            self.end(session_id)
            self._pass(seam.give_up())

    async def _load(self, session_id: str, seam: Seam) -> bool:
        """Whether that brought anything."""
        session = self._ledger.sessions.get(session_id)
        if session is None:
            raise CallError("the session is closed")

        brought = False

        def loaded(result: object) -> None:
            nonlocal brought
            if self._seams.get(session_id) is seam:
                # Not before: a gap within the lines held looks like none as long as the first one fits.
                self._standing.discard(session_id)
                frames = seam.load_finished()
                brought = bool(frames)
                self._pass(frames)

        seam.load_started()
        self.hide_replays(session_id)
        await self._link.call(
            "session/load", session.load_params(), self._ledger.limits.seam, loaded, replays=session_id
        )
        return brought

    def _busy(self, session_id: str) -> bool:
        session = self._ledger.sessions.get(session_id)
        return session is not None and session.busy

    def _pass(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self._lines.notification(jsonrpc.parse_engine(frame))
