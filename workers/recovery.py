"""What a new bridge does for the sessions of the one it replaces.

Sans-I/O.  `Recovery` lives from the first line of the new bridge until every session is loaded.  It
hides the replay of each session/load from a client that has seen it all, and decides what became of the
prompts whose response can never come:

========================================= ====================================================
the replay says how the turn ended        answered with that
its turn still runs, or waits behind one  rejoined: answered when a notification tells of its end
neither                                   lost: the engine never got it, or the leader that had it died
========================================= ====================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from workers.requests import Request, RequestBook, Step
from workers.sessions import Session, SessionBook, TurnEnd

__all__ = ["Outcome", "Recovery", "ended", "prompt_with_rules", "result_of"]

#: Stop reasons of ACP; what else Grok calls the end of a turn is an error to the client.
_STOP_REASONS = frozenset({"cancelled", "end_turn", "max_tokens", "max_turn_requests", "refusal"})


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """A prompt that is answered without a response of the engine; ``end`` None: it is lost."""

    request: Request
    end: TurnEnd | None


class Recovery:
    """Loading again every session of a connection.

    ``cause``: what was lost; ``lost_turns``: by session, the prompt id of the turn that ended with the
    leader.
    """

    def __init__(
        self,
        sessions: SessionBook,
        requests: RequestBook,
        cause: Literal["bridge", "leader"],
        lost_turns: Mapping[str, str],
    ) -> None:
        self._sessions, self._requests, self._cause = sessions, requests, cause
        self._lost_turns = lost_turns
        self._loading = set[str]()
        self._ends = dict[str, TurnEnd]()
        self.report = list[dict[str, Any]]()  #: one entry for each session, for the client

    def start(self, session: Session) -> dict[str, Any]:
        """Parameters of the session/load to send now; from here on the session's lines are hidden."""
        self._loading.add(session.session_id)
        return session.load_params()

    def hides(self, session_id: str) -> bool:
        """Whether a notification belongs to a replay.  Live updates wait in the leader till its end."""
        return session_id in self._loading

    def turn_ended(self, end: TurnEnd) -> None:
        """The replay tells of the end of a turn."""
        self._ends[end.prompt_id] = end

    def loaded(self, session: Session, result: Any, now: float) -> list[Outcome]:
        """The session is loaded; ``result`` of the answer.  Returns the prompts to answer now."""
        meta = result.get("_meta") if isinstance(result, dict) else None
        running = meta.get("x.ai/runningPromptId") if isinstance(meta, dict) else None
        running = running if isinstance(running, str) and running else None
        self._loading.discard(session.session_id)
        had_background = bool(session.background) and running is None
        self._sessions.loaded(session, running, now)
        if had_background:
            session.background = 0
        outcomes = list[Outcome]()
        for request in self._requests.without_answer(session.session_id, Step.ADRIFT):
            end = self._ends.get(request.prompt_id or "")
            if end is None and running is not None:
                if request.prompt_id is None and not self._knows(session, running):
                    request.prompt_id = running
                self._requests.found(request)
            else:
                outcomes.append(Outcome(request, end))
        self._note(session, {"backgroundLost": had_background} if self._cause == "bridge" else {})
        return outcomes

    def failed(self, session: Session, reason: str) -> list[Outcome]:
        """The session could not be loaded; its prompts are lost."""
        self._loading.discard(session.session_id)
        self._note(session, {"error": reason})
        adrift = self._requests.without_answer(session.session_id, Step.ADRIFT)
        return [Outcome(request, self._ends.get(request.prompt_id or "")) for request in adrift]

    def _knows(self, session: Session, prompt_id: str) -> bool:
        return any(r.prompt_id == prompt_id for r in self._requests.prompts(session.session_id))

    def _note(self, session: Session, more: Mapping[str, Any]) -> None:
        entry: dict[str, Any] = {
            "sessionId": session.session_id,
            "rulesReapplied": session.rules_due and "error" not in more,
        }
        if prompt_id := self._lost_turns.get(session.session_id):
            entry["lostPromptId"] = prompt_id
        self.report.append({**entry, **more})


def ended(session: Session, requests: RequestBook, end: TurnEnd) -> list[Outcome]:
    """A turn ended: the rejoined prompts that this answers.

    When nothing runs or waits any more, a prompt that rejoined and was never seen is lost.
    """
    rejoined = requests.without_answer(end.session_id, Step.REJOINED)
    outcomes = [Outcome(r, end) for r in rejoined if r.prompt_id == end.prompt_id]
    if not session.busy:
        outcomes += [Outcome(r, None) for r in rejoined if r.prompt_id != end.prompt_id]
    return outcomes


def result_of(end: TurnEnd) -> dict[str, Any] | None:
    """The result of a session/prompt from the end of its turn; None when the turn failed."""
    if end.stop_reason not in _STOP_REASONS:
        return None
    meta: dict[str, Any] = {"sessionId": end.session_id, "promptId": end.prompt_id}
    if end.usage is not None:
        meta["usage"] = end.usage
    return {"stopReason": end.stop_reason, "_meta": meta}


def prompt_with_rules(params: Mapping[str, Any], rules: str) -> dict[str, Any] | None:
    """The parameters of a prompt with the rules in front; None for a slash command, which would no
    longer be one (the rules wait for the next prompt)."""
    blocks = params.get("prompt")
    blocks = blocks if isinstance(blocks, list) else []
    first = blocks[0] if blocks else None
    if isinstance(first, dict) and str(first.get("text", "")).lstrip().startswith("/"):
        return None
    text = f"<human_rules>\n{rules}\n</human_rules>\n"
    return {**params, "prompt": [{"type": "text", "text": text}, *blocks]}
