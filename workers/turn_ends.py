"""The answer to a prompt stays behind the text of its turn.

Grok answers a prompt after the last line of its turn, but with twenty turns at a time it was seen to send
the answer first in one turn of a hundred: text and ``turn_completed`` came up to a second behind.  A client
that takes the answer for the end shows a cut text.  So an answer waits until the end of its turn has passed
(commands such as ``/compact`` have one, too), for ``LIMITS.late_text`` at most: a line can be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.wire.jsonrpc import EngineLine
from workers.ledger import Ledger
from workers.requests import Request, Step
from workers.sessions import TurnEnd

__all__ = ["TurnEnds"]


class TurnEnds:
    """Of one connection.  ``answer(request, line)`` is called when nothing is to come before it any more."""

    def __init__(self, ledger: Ledger, answer: Callable[[Request, EngineLine], None]) -> None:
        self._ledger, self._answer = ledger, answer
        self._loop = asyncio.get_running_loop()
        self._early = dict[str, tuple[Request, EngineLine]]()  # by prompt id

    def holds(self, request: Request, line: EngineLine) -> bool:
        """Whether the answer comes before the end of its turn; it is given later then."""
        session = self._ledger.sessions.get(request.session_id)
        prompt_id = _prompt_id(line.body) or request.prompt_id
        if not request.is_prompt or session is None or prompt_id is None or prompt_id in session.ended:
            return False
        if "error" in line.body and session.running != prompt_id:
            return False  # it never ran
        request.seen = True
        self._ledger.counters["early_answers"] += 1
        self._early[prompt_id] = request, line
        self._loop.call_later(self._ledger.limits.late_text, self._release, prompt_id)
        return True

    def passed(self, end: TurnEnd) -> None:
        """The end of a turn has gone to the client."""
        self._release(end.prompt_id)

    def bridge_lost(self) -> None:
        """What the lost bridge has not brought is found by the next one."""
        self._early.clear()

    def _release(self, prompt_id: str) -> None:
        request, line = self._early.pop(prompt_id, (None, None))
        if request is not None and line is not None and request.step is Step.SENT:
            self._answer(request, line)


def _prompt_id(body: dict[str, Any]) -> str | None:
    result = body.get("result")
    meta = result.get("_meta") if isinstance(result, dict) else None
    found = meta.get("promptId") if isinstance(meta, dict) else None
    return found if isinstance(found, str) else None
