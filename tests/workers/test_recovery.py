"""What becomes of prompts and sessions when a bridge is replaced."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from workers.recovery import Outcome, Recovery, ended, prompt_with_rules, result_of
from workers.requests import Request, RequestBook, Step
from workers.sessions import Session, SessionBook, State, TurnEnd

RUNNING = "x.ai/runningPromptId"


class Lost:
    """A connection whose bridge has just died with these prompts sent."""

    def __init__(self, *prompt_ids: str | None, meta: dict[str, Any] | None = None) -> None:
        self.sessions, self.requests = SessionBook(), RequestBook("p")
        self.session: Session = self.sessions.attach("s", {"cwd": "/w", "_meta": meta or {}}, 0.0)
        self.prompts = list[Request]()
        for number, prompt_id in enumerate(prompt_ids):
            request = self.requests.open(
                b"%d" % number, "session/prompt", {}, session_id="s", limit=None, now=0.0
            )
            request.prompt_id = prompt_id
            self.requests.written(request)
            self.prompts.append(request)
        self.requests.lose_bridge(1.0)
        self.sessions.bridge_lost(1.0)

    def recovery(self, cause: Literal["bridge", "leader"] = "bridge", **lost_turns: str) -> Recovery:
        return Recovery(self.sessions, self.requests, cause, lost_turns)


def end(prompt_id: str, reason: str = "end_turn", usage: Any = None) -> TurnEnd:
    return TurnEnd("s", prompt_id, reason, usage)


def loaded(running: str | None = None) -> dict[str, Any]:
    return {"models": {}, "_meta": {RUNNING: running} if running else {}}


def test_a_prompt_whose_turn_ended_meanwhile_is_answered_from_the_replay() -> None:
    lost = Lost("p1")
    recovery = lost.recovery()
    recovery.start(lost.session)
    recovery.turn_ended(end("p0"))
    recovery.turn_ended(end("p1"))
    assert recovery.loaded(lost.session, loaded(), 2.0) == [Outcome(lost.prompts[0], end("p1"))]
    assert lost.session.state is State.IDLE


def test_a_prompt_whose_turn_runs_on_waits_for_its_end() -> None:
    lost = Lost("p1", "p2")
    recovery = lost.recovery()
    recovery.start(lost.session)
    assert recovery.loaded(lost.session, loaded("p1"), 2.0) == []
    assert [p.step for p in lost.prompts] == [Step.REJOINED, Step.REJOINED]
    assert lost.session.state is State.WORKING
    lost.sessions.observe("_x.ai/queue/changed", {"sessionId": "s", "entries": [{"id": "p2"}]}, 3.0)
    assert ended(lost.session, lost.requests, end("p1")) == [Outcome(lost.prompts[0], end("p1"))]


def test_a_prompt_that_never_reached_the_engine_is_lost_once_nothing_runs() -> None:
    lost = Lost("p1", None)
    recovery = lost.recovery()
    recovery.start(lost.session)
    recovery.loaded(lost.session, loaded("p1"), 2.0)
    params = {"sessionId": "s", "update": {"sessionUpdate": "turn_completed", "prompt_id": "p1"}}
    lost.sessions.observe("_x.ai/session_notification", params, 3.0)
    assert ended(lost.session, lost.requests, end("p1")) == [
        Outcome(lost.prompts[0], end("p1")),
        Outcome(lost.prompts[1], None),
    ]


def test_a_prompt_without_an_id_is_the_turn_that_runs() -> None:
    lost = Lost(None)
    recovery = lost.recovery()
    recovery.start(lost.session)
    recovery.loaded(lost.session, loaded("made-up-by-grok"), 2.0)
    assert lost.prompts[0].prompt_id == "made-up-by-grok"
    assert lost.prompts[0].step is Step.REJOINED


def test_a_prompt_of_which_there_is_no_trace_is_lost() -> None:
    lost = Lost("p1")
    recovery = lost.recovery()
    recovery.start(lost.session)
    assert recovery.loaded(lost.session, loaded(), 2.0) == [Outcome(lost.prompts[0], None)]


@pytest.mark.parametrize("result", [None, [], {"_meta": None}, {"_meta": {RUNNING: 7}}])
def test_a_load_may_answer_anything(result: Any) -> None:
    lost = Lost()
    recovery = lost.recovery()
    recovery.start(lost.session)
    assert recovery.loaded(lost.session, result, 2.0) == []
    assert lost.session.state is State.IDLE


def test_the_replay_is_hidden_from_the_first_request_to_the_answer() -> None:
    lost = Lost()
    recovery = lost.recovery()
    assert not recovery.hides("s")
    recovery.start(lost.session)
    assert recovery.hides("s")
    assert not recovery.hides("another")
    recovery.loaded(lost.session, loaded(), 2.0)
    assert not recovery.hides("s")


def test_a_session_that_cannot_be_loaded_is_reported_and_its_prompts_are_lost() -> None:
    lost = Lost("p1", meta={"rules": "r"})
    recovery = lost.recovery("leader", s="p1")
    recovery.start(lost.session)
    assert recovery.failed(lost.session, "Path not found.") == [Outcome(lost.prompts[0], None)]
    assert recovery.report == [
        {"sessionId": "s", "rulesReapplied": False, "lostPromptId": "p1", "error": "Path not found."}
    ]


def test_the_client_is_told_of_rules_and_background_work() -> None:
    lost = Lost(meta={"rules": "r"})
    lost.session.background = 1
    recovery = lost.recovery()
    recovery.start(lost.session)
    recovery.loaded(lost.session, loaded(), 2.0)
    assert recovery.report == [{"sessionId": "s", "rulesReapplied": True, "backgroundLost": True}]


# -- texts -------------------------------------------------------------------------------------


def test_the_result_of_a_turn_from_its_end() -> None:
    assert result_of(end("p1", "cancelled", {"totalTokens": 3})) == {
        "stopReason": "cancelled",
        "_meta": {"sessionId": "s", "promptId": "p1", "usage": {"totalTokens": 3}},
    }


def test_what_is_no_stop_reason_of_the_protocol_is_an_error() -> None:
    assert result_of(end("p1", "error")) is None


def test_rules_go_in_front_of_a_prompt() -> None:
    block = {"type": "text", "text": "do it"}
    changed = prompt_with_rules({"sessionId": "s", "prompt": [block]}, "be kind")
    assert changed is not None
    assert changed["prompt"][1:] == [block]
    assert "be kind" in changed["prompt"][0]["text"]


def test_a_slash_command_stays_one() -> None:
    assert prompt_with_rules({"prompt": [{"type": "text", "text": " /compact"}]}, "r") is None


@pytest.mark.parametrize("prompt", [None, [], [7], [{"type": "image"}]])
def test_rules_go_in_front_of_odd_prompts_too(prompt: Any) -> None:
    changed = prompt_with_rules({"prompt": prompt}, "r")
    assert changed is not None
    assert changed["prompt"][1:] == (prompt or [])
