"""Turns that Grok starts by itself: a background task has ended, a monitor has seen a line.

With Pi idle on that session its extension wakes Pi, which asks for the turn; otherwise it is told as an
entry.
"""

from __future__ import annotations

import asyncio
from typing import Any

from workers.pi.drawing import turn_lines
from workers.pi.peer import Peer
from workers.pi.turn import Turn

__all__ = ["Autonomy"]

#: How Grok names such turns, and what has happened.
_REASONS = {
    "task-completed-": "a background task has ended",
    "notifications-": "something that it watches has happened",
    "interject-fallback-": "it was spoken to while idle",
}


class Autonomy:
    """Wakes Pi; one for a Pi process."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._woken = dict[str, asyncio.Future[bool]]()  # by prompt id, until the turn has ended

    async def wake(self, session: str, stream: Turn) -> None:
        """Ask the extension to make Pi listen, if somebody is there to see it."""
        future = self._woken[stream.prompt_id] = asyncio.get_running_loop().create_future()
        text = f"Grok goes on: {_reason(stream)}."
        started = False
        try:
            params = {"session": session, "id": stream.prompt_id, "text": text}
            answer = await self._peer.request("wake", params) if self._peer.ui else None
            started = bool(answer and answer.get("started"))
        finally:
            future.set_result(started)

    async def settled(self, stream: Turn) -> None:
        """Return when Pi has asked for the turn, or will not."""
        future = self._woken.get(stream.prompt_id)
        if future is not None:
            if await future:
                await asyncio.sleep(self._peer.limits.ack)  # its call is on the way
            self._woken.pop(stream.prompt_id, None)

    @staticmethod
    def entry(stream: Turn) -> dict[str, Any]:
        """Data of the ``grok-turn`` entry of a turn that nobody listened to."""
        tools, text, reason = [call.entry() for call in stream.tools], stream.blocks.text, _reason(stream)
        lines = turn_lines(reason, tools, text)
        return {"id": stream.prompt_id, "text": text, "tools": tools, "reason": reason, "lines": lines}


def _reason(stream: Turn) -> str:
    found = (text for prefix, text in _REASONS.items() if stream.prompt_id.startswith(prefix))
    return next(found, "it had something to do")
