"""Todo list, plan mode and questions: what is kept, what is asked, how answers are told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from harness.outcome import FaultKind, ToolFault, ToolOutput
from harness.registry.contract import Resources
from harness.tools.ask import METHOD, Ask
from harness.tools.plan_mode import EnterPlanMode, ExitPlanMode, PlanMode
from harness.tools.todo import TodoList, TodoWrite
from tests.harness.tools.conftest import Workbench, make_workbench
from tests.harness.workspace.conftest import MemoryTree

TODO, ASK, ENTER, EXIT = TodoWrite(), Ask(), EnterPlanMode(), ExitPlanMode()


@pytest.fixture
def desk(memory: MemoryTree) -> Workbench:
    return make_workbench(memory)


class Client:
    """Answers as it is told, and remembers what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((method, params))
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is ...:
            await asyncio.Event().wait()
        return cast(dict[str, Any], self.answer)


class TestTodo:
    async def write(self, desk: Workbench, todos: list[dict[str, Any]], **more: Any) -> ToolOutput:
        return await desk.call(TODO, {"todos": todos, **more})

    async def test_merges_by_id(self, desk: Workbench) -> None:
        await self.write(
            desk, [{"id": "1", "content": "first", "status": "in_progress"}, {"id": "2", "content": "second"}]
        )
        output = await self.write(desk, [{"id": "1", "status": "completed"}, {"id": "3"}])
        assert output.prompt == "- [completed] 1: first\n- [pending] 2: second\n- [pending] 3: 3\n"
        updated = output.fields["TodosUpdated"]
        assert updated["summary_for_prompt"] == output.prompt
        assert updated["todos"][0] == {"content": "first", "priority": "medium", "status": "completed"}
        assert list(updated["state"]["todos"]) == ["1", "2", "3"]

    async def test_empty_content_changes_nothing(self, desk: Workbench) -> None:
        await self.write(desk, [{"id": "1", "content": "first"}])
        output = await self.write(desk, [{"id": "1", "content": "", "status": "cancelled"}])
        assert output.prompt == "- [cancelled] 1: first\n"

    async def test_replaces(self, desk: Workbench) -> None:
        await self.write(desk, [{"id": "1", "content": "first"}])
        assert (await self.write(desk, [{"id": "n", "content": "new"}], merge=False)).prompt == (
            "- [pending] n: new\n"
        )
        assert (await self.write(desk, [], merge=False)).fields["TodosUpdated"]["todos"] == []

    async def test_forgotten_merge_does_not_lose_the_texts(self, desk: Workbench) -> None:
        await self.write(desk, [{"id": "1", "content": "first"}, {"id": "2", "content": "second"}])
        output = await self.write(desk, [{"id": "2", "status": "completed"}], merge=False)
        assert output.prompt == "- [pending] 1: first\n- [completed] 2: second\n"

    async def test_an_id_twice_changes_nothing(self, desk: Workbench) -> None:
        await self.write(desk, [{"id": "1", "content": "first"}])
        output = await self.write(
            desk, [{"id": "a", "content": "x"}, {"id": "a", "content": "y"}], merge=False
        )
        assert output.is_error
        assert output.fields == {"DuplicateId": output.prompt}
        assert list(desk.resources.get(TodoList).items) == ["1"]

    async def test_survives(self, desk: Workbench) -> None:
        await self.write(desk, [{"id": "1", "content": "first", "status": "in_progress"}])
        saved = desk.resources.state()
        again = Resources()
        again.restore(saved)
        assert again.get(TodoList).items == desk.resources.get(TodoList).items

    @pytest.mark.parametrize("state", [None, [], {"a": 1}, {"a": {"status": "x"}}, {"a": {}}])
    def test_what_was_saved_wrongly_is_left_out(self, state: Any) -> None:
        todos = TodoList()
        todos.restore(state)
        assert todos.items == {}

    def test_what_a_client_is_shown_of_the_call(self) -> None:
        assert TODO.spec.shown is not None
        shown = TODO.spec.shown({"merge": True, "todos": [{"id": "1", "status": "pending"}]})
        assert shown["todos"] == [{"id": "1", "content": None, "status": "pending"}]


def question(text: str, *labels: str, **more: Any) -> dict[str, Any]:
    options = [{"label": label, "description": f"about {label}"} for label in labels or ("Red", "Blue")]
    return {"question": text, "options": options, **more}


class TestAsk:
    async def ask(self, desk: Workbench, answer: Any, *questions: dict[str, Any], **params: Any) -> str:
        desk.client = Client(answer)
        output = await desk.call(ASK, {"questions": list(questions or [question("Colour?")])}, **params)
        assert output.fields["UserAnswered"]["message"] == output.prompt
        assert not output.is_error
        return output.prompt

    async def test_what_is_sent(self, desk: Workbench) -> None:
        desk.resources.get(PlanMode).active = True
        await self.ask(desk, {"outcome": "cancelled"}, question("Many?", "A", "B", multi_select=True))
        ((method, params),) = cast(Client, desk.client).asked
        assert method == METHOD
        assert params == {
            "sessionId": "session-1",
            "toolCallId": "call-1",
            "questions": [
                {
                    "question": "Many?",
                    "options": [
                        {"label": "A", "description": "about A"},
                        {"label": "B", "description": "about B"},
                    ],
                    "multiSelect": True,
                }
            ],
            "mode": "plan",
        }

    async def test_answers_in_the_order_of_the_questions(self, desk: Workbench) -> None:
        text = await self.ask(
            desk,
            {
                "outcome": "accepted",
                "answers": {"Second?": "Other", "First?": ["A", "B"]},
                "annotations": {"Second?": {"notes": "mine"}, "First?": {"preview": "a sketch"}},
            },
            question("First?", "A", "B", multi_select=True),
            question("Second?"),
        )
        assert text.index('"First?" = "A, B"') < text.index('"Second?" = "Other"')
        assert "mine" in text
        assert "a sketch" in text

    @pytest.mark.parametrize("outcome", ["chat_about_this", "skip_interview"])
    async def test_partial_answers(self, desk: Workbench, outcome: str) -> None:
        answer = {"outcome": outcome, "partial_answers": {"A?": "Red"}}
        text = await self.ask(desk, answer, question("A?"), question("B?"))
        assert '- "A?"\n  Red\n- "B?"\n  (no answer)' in text
        assert '"A?"\n  (no' in await self.ask(desk, {"outcome": outcome}, question("A?"))

    async def test_no_answer_in_time_is_told_like_a_cancelled_one(self, desk: Workbench) -> None:
        cancelled = await self.ask(desk, {"outcome": "cancelled"})
        assert await self.ask(desk, ..., timeout_secs=0.05) == cancelled

    async def test_nobody_there(self, desk: Workbench) -> None:
        output = await desk.call(ASK, {"questions": [question("Colour?")]})
        assert "judgment" in output.prompt

    async def test_no_question(self, desk: Workbench) -> None:
        output = await desk.call(ASK, {"questions": []})
        assert output.fields["QuestionsSent"]["question_count"] == 0

    async def test_the_same_question_twice(self, desk: Workbench) -> None:
        with pytest.raises(ToolFault) as caught:
            await self.ask(desk, {}, question("A?"), question("A?"))
        assert caught.value.kind is FaultKind.INVALID_ARGUMENTS

    @pytest.mark.parametrize(
        "answer",
        [
            {},
            {"bogus": 1},
            {"outcome": {"outcome": "accepted"}},
            {"outcome": "accepted", "answers": {"Colour?": [1]}},
            {"outcome": "accepted", "answers": ["Red"]},
            {"outcome": "chat_about_this", "partial_answers": {"Colour?": ["Red"]}},
            RuntimeError("connection lost"),
        ],
    )
    async def test_an_answer_that_cannot_be_read_is_a_fault(self, desk: Workbench, answer: Any) -> None:
        with pytest.raises(ToolFault) as caught:
            await self.ask(desk, answer)
        assert caught.value.kind is FaultKind.EXECUTION

    async def test_a_cancelled_turn_asks_no_longer(self, desk: Workbench) -> None:
        asking = asyncio.ensure_future(self.ask(desk, ...))
        await asyncio.sleep(0)
        desk.cancelled.set()
        with pytest.raises(ToolFault) as caught:
            await asking
        assert caught.value.kind is FaultKind.CANCELLED


class TestPlanMode:
    async def test_enter_makes_an_empty_plan(self, bench: Workbench) -> None:
        output = await bench.call(ENTER, {})
        place = f"{bench.tree.root}/.grok/plan.md"
        entered = output.fields["Entered"]
        assert entered["plan_file_path"] == place
        assert entered["plan_file_seed"] == "empty"
        assert entered["tool_hints"]["exit_plan"] == "exit_plan_mode"
        assert bench.tree.get(".grok/plan.md") == b""
        assert bench.resources.get(PlanMode).active
        assert [note.kind for note in bench.told] == ["plan_mode_entered"]
        for name in (place, "ask_user_question", "exit_plan_mode"):
            assert name in output.prompt

    async def test_enter_leaves_a_plan_as_it_is(self, bench: Workbench) -> None:
        bench.resources.get(PlanMode).path = f"{bench.tree.root}/own.md"
        bench.tree.put("own.md", "kept\n")
        output = await bench.call(ENTER, {})
        assert output.fields["Entered"]["plan_file_seed"] == "non_empty"
        assert bench.tree.get("own.md") == b"kept\n"

    async def test_enter_where_no_file_can_be_made(self, bench: Workbench) -> None:
        bench.tree.put(".grok", "a file")
        output = await bench.call(ENTER, {})
        assert output.fields["Entered"]["plan_file_seed"].startswith("missing")
        assert not output.is_error

    @pytest.mark.parametrize("content", ["", "My plan\n"])
    async def test_approved(self, bench: Workbench, content: str) -> None:
        await bench.call(ENTER, {})
        bench.tree.put(".grok/plan.md", content)
        bench.client = Client({"outcome": "approved"})
        output = await bench.call(EXIT, {})
        ((method, params),) = bench.client.asked
        assert method == "_x.ai/exit_plan_mode"
        assert params["planContent"] == (content or None)
        assert list(output.fields) == ["PlanReady" if content else "EmptyPlan"]
        assert content in output.prompt
        assert not bench.resources.get(PlanMode).active
        assert bench.told[-1].kind == "plan_mode_exited"

    @pytest.mark.parametrize(
        ("reply", "content", "expected"),
        [
            ({"outcome": "revise", "feedback": "add tests"}, "plan", "add tests"),
            ({"outcome": "whatever"}, "plan", "Ask what"),
            ({}, "plan", "Ask what"),
            ({"outcome": "revise", "feedback": "add tests"}, "", "ask what they would like"),
        ],
    )
    async def test_not_approved(
        self, bench: Workbench, reply: dict[str, Any], content: str, expected: str
    ) -> None:
        await bench.call(ENTER, {})
        bench.tree.put(".grok/plan.md", content)
        bench.client = Client(reply)
        output = await bench.call(EXIT, {})
        assert expected in output.prompt
        assert output.raw() is None
        assert bench.resources.get(PlanMode).active
        assert bench.told[-1].kind == "plan_mode_entered"

    async def test_abandoned(self, bench: Workbench) -> None:
        await bench.call(ENTER, {})
        bench.client = Client({"outcome": "abandoned"})
        output = await bench.call(EXIT, {})
        assert "exit_plan_mode" in output.prompt
        assert not bench.resources.get(PlanMode).active

    async def test_with_nobody_to_ask_the_plan_holds(self, bench: Workbench) -> None:
        assert list((await bench.call(EXIT, {})).fields) == ["EmptyPlan"]

    def test_survives(self) -> None:
        plan = PlanMode()
        plan.restore({"active": True})
        assert plan.active
        plan.restore(plan.state())
        assert plan.active
        plan.restore(None)
        assert not plan.active
