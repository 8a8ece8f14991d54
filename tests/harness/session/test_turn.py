"""The rules between the calls of a batch, and every way in which a turn ends."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.model.errors import Failure, ModelError
from harness.model.openai import Answer, ModelCall
from harness.session.conversation import Conversation
from harness.session.turn import (
    AskModel,
    AskStop,
    End,
    Fate,
    Prepare,
    Prepared,
    Run,
    Step,
    Turn,
    Wait,
    lanes,
)

RUN = Prepared("run")

#: A busy machine is no reason to fail.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def calls(*names: str) -> Answer:
    made = tuple(ModelCall(f"c{i}", name, "{}") for i, name in enumerate(names))
    return Answer(calls=made, finish="tool_calls")


def turn(answer: Answer | None = None) -> tuple[Turn, Conversation, Step]:
    """A turn that has begun, and has got its first answer."""
    conversation = Conversation([])
    made = Turn(conversation, lambda name: name == "exit_plan_mode")
    step: Step = made.begin("hello")
    assert step == AskModel()
    if answer is not None:
        step = made.answered(answer)
    return made, conversation, step


def results(conversation: Conversation) -> dict[str, str]:
    return {m["tool_call_id"]: m["content"] for m in conversation.body if m["role"] == "tool"}


def whole(conversation: Conversation) -> bool:
    """Whether every call has exactly one result behind it, as servers demand."""
    asked = [c["id"] for m in conversation.body for c in m.get("tool_calls", ())]
    answered = [m["tool_call_id"] for m in conversation.body if m["role"] == "tool"]
    return sorted(asked) == sorted(answered)


def test_text_ends_the_turn_unless_a_stop_hook_objects() -> None:
    made, conversation, step = turn(Answer("done"))
    assert step == AskStop("done")
    assert made.stop_asked(["not yet"]) == AskModel()
    assert conversation.body[-1] == {"role": "user", "content": "not yet"}
    assert made.answered(Answer("now")) == AskStop("now")
    assert made.stop_asked() == End("end_turn")


def test_stop_hooks_cannot_keep_a_turn_for_ever() -> None:
    made, _, step = turn(Answer("done"))
    rounds = 0
    while not isinstance(step, End):
        step = made.stop_asked(["again"])
        if isinstance(step, AskModel):
            rounds += 1
            step = made.answered(Answer("done"))
    assert (rounds, step.reason) == (8, "end_turn")


def test_calls_are_prepared_one_after_the_other_and_then_run_together() -> None:
    made, conversation, step = turn(calls("a", "b"))
    assert step == Prepare(ModelCall("c0", "a", "{}"))
    assert made.prepared("c0", RUN) == Prepare(ModelCall("c1", "b", "{}"))
    assert made.prepared("c1", RUN) == Run((("c0",), ("c1",)))
    assert made.ran("c1", "second") == Wait()
    assert made.ran("c0", "first", ["from a hook"]) == AskModel()
    assert [m["content"] for m in conversation.body[-3:]] == ["second", "first", "from a hook"]


def test_a_call_that_cannot_be_parsed_fails_alone() -> None:
    made, conversation, _ = turn(calls("a", "b"))
    made.prepared("c0", Prepared("failed", "no such tool"))
    assert made.prepared("c1", RUN) == Run((("c1",),))
    assert made.ran("c1", "fine") == AskModel()
    assert results(conversation) == {"c0": "no such tool", "c1": "fine"}


def test_nothing_to_run_goes_on() -> None:
    made, _, _ = turn(calls("a"))
    assert made.prepared("c0", Prepared("failed", "denied by a policy")) == AskModel()


def test_a_rejection_ends_the_turn_after_what_was_admitted_has_run() -> None:
    made, conversation, _ = turn(calls("a", "b", "c"))
    made.prepared("c0", RUN)
    assert made.prepared("c1", Prepared("rejected", "rejected", detail="because")) == Run((("c0",),))
    assert made.ran("c0", "fine") == End("cancelled", "PermissionRejected", "", "b", "because")
    assert "rejected by the user" in results(conversation)["c2"]
    assert whole(conversation)


def test_a_cancelled_prompt_ends_the_turn_at_once_when_nothing_runs() -> None:
    made, conversation, _ = turn(calls("a", "b"))
    assert made.prepared("c0", Prepared("cancelled", "no")) == End("cancelled", "PermissionCancelled")
    assert whole(conversation)


def test_a_rejection_with_a_message_goes_on_with_it() -> None:
    made, conversation, _ = turn(calls("a", "b"))
    assert made.prepared("c0", Prepared("followup", "no", followup="do it so")) == AskModel()
    assert conversation.body[-1] == {"role": "user", "content": "do it so"}
    assert whole(conversation)


def test_leaving_plan_mode_comes_last() -> None:
    _, _, step = turn(calls("exit_plan_mode", "write"))
    assert step == Prepare(ModelCall("c1", "write", "{}"))


def test_a_plan_without_an_answer_ends_the_turn() -> None:
    made, _, _ = turn(calls("exit_plan_mode"))
    made.prepared("c0", RUN)
    assert made.ran("c0", "nobody answered", ends=True) == End("cancelled", "PermissionCancelled")


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (Answer("I must not", finish="content_filter"), "refusal"),
        (Answer("half of it", finish="length"), "error"),
    ],
)
def test_ends_that_the_model_makes(answer: Answer, end: str) -> None:
    made, conversation, step = turn(answer)
    assert isinstance(step, End)
    assert step.reason == end
    kept = any(m["role"] == "assistant" for m in conversation.body)
    assert kept == (end == "refusal")  # half an answer is not kept
    assert made.ended == step


def test_whole_calls_run_although_the_text_was_cut_off() -> None:
    _, _, step = turn(Answer(calls=calls("a").calls, finish="length"))
    assert isinstance(step, Prepare)


@pytest.mark.parametrize(("kind", "reason"), [(Failure.AUTH, "error"), (Failure.RATE_LIMITED, "rate_limit")])
def test_a_model_that_failed_for_good(kind: Failure, reason: str) -> None:
    made, _, _ = turn()
    error = ModelError(kind, "no")
    assert made.failed(error) == End(reason, error=error)  # type: ignore[arg-type]


def test_interjections_come_with_the_next_results_or_make_another_round() -> None:
    made, conversation, _ = turn(calls("a"))
    made.prepared("c0", RUN)
    made.interject("wait")
    assert made.ran("c0", "fine") == AskModel()
    assert "<user_query>\nwait\n</user_query>" in conversation.body[-1]["content"]
    made.interject("and this")
    assert made.answered(Answer("text")) == AskModel()
    assert made.waiting_texts == ()


def test_cancel_in_a_stream_leaves_nothing_of_the_answer() -> None:
    made, conversation, _ = turn()
    assert made.cancel() == End("cancelled", "MidTurnAbort")
    assert not made.stopped_in_tools
    assert [m["role"] for m in conversation.body] == ["user"]
    assert made.answered(Answer("late")) == made.ended  # what comes later changes nothing
    assert [m["role"] for m in conversation.body] == ["user"]


def test_cancel_in_tools_gives_every_call_a_result() -> None:
    made, conversation, _ = turn(calls("a", "b", "c"))
    made.prepared("c0", RUN)
    made.prepared("c1", RUN)
    made.prepared("c2", RUN)
    made.ran("c1", "fine")
    made.cancel("send_now")
    assert made.stopped_in_tools
    assert whole(conversation)
    assert results(conversation)["c1"] == "fine"
    assert made.ran("c0", "late") == made.ended
    assert "late" not in results(conversation).values()


@patient
@given(st.lists(st.tuples(st.sampled_from(["", "x", "y"]), st.booleans()), max_size=8))
def test_lanes_keep_the_order_of_calls_on_one_changed_path(made: list[tuple[str, bool]]) -> None:
    batch = [(f"c{i}", path, changes) for i, (path, changes) in enumerate(made)]
    found = lanes(batch)
    assert sorted(c for lane in found for c in lane) == sorted(c for c, _, _ in batch)
    changed = {path for _, path, changes in batch if path and changes}
    for lane in found:
        paths = {path for call_id, path, _ in batch if call_id in lane}
        assert len(lane) == 1 or (len(paths) == 1 and paths <= changed)
        assert list(lane) == sorted(lane, key=lambda c: int(c[1:]))
    for path in changed:
        assert sum(any(p == path for c, p, _ in batch if c in lane) for lane in found) == 1


@patient
@given(st.data())
def test_whatever_happens_the_conversation_stays_acceptable(data: st.DataObject) -> None:
    made, conversation, _ = turn()
    step: Step = AskModel()
    waiting: list[str] = []
    for round_ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.integers(0, 9)) == 0:
            step = made.cancel()
        if isinstance(step, End):
            break
        if isinstance(step, AskModel):
            names = data.draw(st.lists(st.sampled_from(["a", "exit_plan_mode"]), max_size=3))
            given_calls = tuple(ModelCall(f"{round_}-{i}", n, "{}") for i, n in enumerate(names))
            finish = data.draw(st.sampled_from(["stop", "length", "content_filter"]))
            step = made.answered(Answer("text", calls=given_calls, finish=finish))
        elif isinstance(step, Prepare):
            fate: Fate = data.draw(st.sampled_from(["run", "failed", "rejected", "cancelled", "followup"]))
            step = made.prepared(step.call.id, Prepared(fate, "text", followup="more"))
        elif isinstance(step, Run):
            waiting = [c for lane in step.lanes for c in lane]
            step = Wait()
        elif isinstance(step, Wait):
            step = made.ran(waiting.pop(), "result")
        else:
            step = made.stop_asked(data.draw(st.lists(st.just("go on"), max_size=1)))
        if isinstance(step, (AskModel, AskStop, End)):
            assert whole(conversation)
    if not isinstance(step, End):
        made.cancel()
    assert whole(conversation)
