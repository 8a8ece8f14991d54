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
from workers.link import CallError, Link
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
        self._mending = set[asyncio.Task[None]]()

    def begin(self, session_id: str, *, stands: bool = False) -> Seam:
        """From now on the session's lines are held.  ``stands``: until `mend`, whatever they are."""
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

    def takes(self, line: EngineLine) -> bool:
        """Whether a notification belongs to a replay or is held back here."""
        seam = self._seams.get(line.session)
        if seam is None:
            return False
        if line.is_replay:
            seam.replay(line.data)
        else:
            seam.hold(line.data)
            if line.session not in self._standing:
                self._advance(line.session, seam)
        return True

    async def mend(self, session_ids: Collection[str]) -> None:
        """Load these again whether there is a hole or not: somebody else's load may have made one."""
        seams = {s: seam for s in session_ids if (seam := self._seams.get(s)) is not None}
        for session_id, seam in seams.items():
            seam.state = "hole"
            self._standing.discard(session_id)
        await asyncio.gather(*(self._mend(*pair) for pair in seams.items()))

    def clear(self) -> None:
        """The bridge is lost, and what was held with it."""
        for task in tuple(self._mending):
            task.cancel()
        self._seams.clear()
        self._standing.clear()

    def _advance(self, session_id: str, seam: Seam) -> None:
        was_hole = seam.state == "hole"
        frames = seam.advance()
        if seam.state == "settled":
            self.end(session_id)
        self._pass(frames)
        if seam.state == "hole" and not was_hole:
            task = asyncio.get_running_loop().create_task(self._mend(session_id, seam))
            self._mending.add(task)
            task.add_done_callback(self._mending.discard)

    async def _mend(self, session_id: str, seam: Seam) -> None:
        """Load the session again: the next replay holds what was missing.  Bounded, then given up."""
        session = self._ledger.sessions.get(session_id)
        try:
            async with asyncio.timeout(self._ledger.limits.seam):
                for _ in range(SIZES.seam_loads):
                    if session is None or seam.state != "hole":
                        break
                    seam.load_started()
                    params = session.load_params()
                    await self._link.call(
                        "session/load",
                        params,
                        self._ledger.limits.seam,
                        lambda result: self._pass(seam.load_finished()),
                    )
        except (CallError, TimeoutError) as error:
            log.warning("session %s: the gap in its text stays: %s", session_id, error)
        if self._seams.get(session_id) is seam and (seam.state != "waiting" or not self._busy(session_id)):
            self.end(session_id)
            self._pass(seam.give_up())

    def _busy(self, session_id: str) -> bool:
        session = self._ledger.sessions.get(session_id)
        return session is not None and session.busy

    def _pass(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self._lines.notification(jsonrpc.parse_engine(frame))
