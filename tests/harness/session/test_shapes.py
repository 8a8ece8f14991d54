"""What clients are told, in its exact shapes; prompts as they are read; the queue."""

from __future__ import annotations

from typing import Any

import pytest

from harness.model.errors import Failure, ModelError
from harness.model.openai import Answer, CallPart, Usage
from harness.outcome import ToolOutput
from harness.registry.contract import ToolKind
from harness.session import endings
from harness.session.presentation import view_call, view_result
from harness.session.prompt import Prompt, read_prompt
from harness.session.queue import PromptQueue, Queued
from harness.session.turn import End
from harness.session.updates import Updates
from harness.session.usage import TurnUsage


def updates() -> Updates:
    made = Updates("S", clock=lambda: 5.0)
    made.total_tokens = 7
    return made


def test_chunks_are_counted_within_a_model_call_and_events_in_all() -> None:
    made = updates()
    made.turn_started("p")
    first, second = made.message("a"), made.thought("b")
    made.stream_started()
    third = made.message("c")
    assert first.params == {
        "sessionId": "S",
        "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a"}},
        "_meta": {
            "totalTokens": 7,
            "eventId": "S-0",
            "agentTimestampMs": 5000,
            "promptId": "p",
            "streamStartMs": 5000,
            "turnStartMs": 5000,
            "updateType": "AgentMessageChunk",
            "chunkId": 1,
        },
    }
    assert [u.params["_meta"]["chunkId"] for u in (first, second, third)] == [1, 2, 1]
    assert [u.event for u in (first, second, third)] == [0, 1, 2]


def test_what_passes_has_no_meta() -> None:
    made = updates()
    told = [
        made.call_delta(CallPart(0, "c", "read", "")),
        made.pending("c", "permission"),
        made.resolved("c"),
        made.response_completed(Usage(10, 5, 4, 1)),
        made.tool_call_progress("c", [], {}),
        made.model_changed("m", None),
        made.plan([], at_end=True),
    ]
    assert all("_meta" not in u.params and u.event is None for u in told)
    assert told[0].params["update"] == {
        "sessionUpdate": "tool_call_delta_chunk",
        "tool_call_id": "c",
        "tool_index": 0,
        "name": "read",
        "arguments_delta": "",
    }
    assert "tool_call_id" not in made.call_delta(CallPart(0, None, None, "{")).params["update"]
    assert told[3].params["update"]["usage"]["input_tokens"] == 6  # what was cached is told apart


def test_usage_sums_calls_and_keeps_the_last() -> None:
    usage = TurnUsage()
    usage.add("m", Answer(usage=Usage(10, 2, 3, 1), seconds=0.5))
    usage.add("n", Answer(usage=Usage(20, 4, 0, 0), seconds=0.25))
    report = usage.report()
    assert (report["inputTokens"], report["totalTokens"], report["modelCalls"]) == (30, 36, 2)
    assert (report["apiDurationMs"], report["numTurns"]) == (750, 2)
    assert report["modelUsage"]["n"]["inputTokens"] == 20
    assert usage.last == Usage(20, 4, 0, 0)
    assert TurnUsage().report()["numTurns"] == 0


@pytest.mark.parametrize(
    ("kind", "arguments", "title", "path"),
    [
        (ToolKind.EXECUTE, {"command": "ls"}, "Execute `ls`", ""),
        (ToolKind.READ, {"target_file": "f", "offset": 2}, "Read `f`", "f"),
        (ToolKind.EDIT, {"file_path": "f", "old_string": "a", "new_string": "b"}, "Edit `f`", "f"),
        (ToolKind.WRITE, {"file_path": "f", "content": "x"}, "Write `f`", "f"),
        (ToolKind.LIST_DIR, {"target_directory": "."}, "List `.`", "."),
        (ToolKind.SEARCH, {"pattern": "x"}, "x", ""),
        (ToolKind.BACKGROUND_TASK, {"task_ids": ["t"]}, "Get task output: t", ""),
        (ToolKind.BACKGROUND_TASK, {"task_ids": ["t", "u"]}, "Get task output: 2 tasks", ""),
        (ToolKind.ASK_USER, {"questions": [{"question": "Why?"}]}, "Ask: Why?", ""),
        (ToolKind.ASK_USER, {"questions": []}, "Ask 0 questions", ""),
        (ToolKind.OTHER, {}, "some_tool", ""),
    ],
)
def test_cards_of_calls(kind: ToolKind, arguments: dict[str, Any], title: str, path: str) -> None:
    view = view_call(kind, "some_tool", arguments)
    assert (view.title, view.path) == (title, path)
    assert view.locations == (
        [] if not path else [{"path": path, **({"line": 2} if "offset" in arguments else {})}]
    )


def test_a_status_of_its_own_is_no_failure_of_a_command() -> None:
    output = ToolOutput("Bash", {"output": [104, 105], "exit_code": 3}, "exit: 3\nhi", is_error=True)
    view = view_result(output)
    assert not view.failed
    assert view.content is not None
    assert view.content[0]["content"]["text"] == "hi"


@pytest.mark.parametrize(
    ("output", "failed", "text"),
    [
        (ToolOutput("ReadFile", {"FileNotFound": "gone"}, "gone", is_error=True), True, "gone"),
        (
            ToolOutput("SearchReplace", {"NoMatchesFound": {"message": "none"}}, "p", is_error=True),
            True,
            "none",
        ),
        (ToolOutput("GrepSearch", {"match_count": 2}, "p"), False, "found 2 matches"),
        (ToolOutput("Other", {"a": 1, "b": 2}, "for the model"), False, "for the model"),
        (ToolOutput("", {"failure": "unknown_tool"}, "no such tool", is_error=True), True, "unknown_tool"),
    ],
)
def test_cards_of_results(output: ToolOutput, failed: bool, text: str) -> None:
    view = view_result(output)
    assert view.failed is failed
    assert view.content is not None
    assert view.content[0]["content"]["text"] == text


def test_prompts() -> None:
    prompt = read_prompt(
        [
            {"type": "text", "text": "first"},
            {"type": "resource_link", "uri": "file:///tmp/a%20b.txt", "name": "a b.txt"},
            {"type": "resource", "resource": {"uri": "file:///tmp/y.txt", "text": "inner"}},
            {"type": "image", "data": "", "mimeType": "image/png"},
            {"type": "text", "text": "second"},
        ]
    )
    assert prompt.shown == "first\n\nsecond"
    assert prompt.query == "first @/tmp/a b.txt second"
    assert '<file_contents path="/tmp/y.txt">\ninner\n</file_contents>' in prompt.attached
    assert "file:///tmp/a%20b.txt" in prompt.attached
    assert len(prompt.dropped) == 1
    assert read_prompt([]) == Prompt("", "")


def test_the_queue() -> None:
    queue = PromptQueue()
    for name in "abc":
        queue.add(Queued(name, Prompt(name, name)))
    queue.add(Queued("wake", Prompt("w", "w"), autonomous=True))
    queue.add(Queued("now", Prompt("n", "n")), first=True)
    assert [e["id"] for e in queue.entries()] == ["now", "a", "b", "c"]  # nobody asked for the wake
    assert not queue.edit("a", "x", version=1)
    assert queue.edit("a", "x", version=0)
    assert queue.entries()[1] == {"id": "a", "version": 1, "kind": "prompt", "text": "x", "position": 1}
    assert queue.remove("a", version=0) is None
    queue.reorder(["c", "b"])
    assert [q.id for q in queue] == ["c", "b", "now", "a", "wake"]
    assert queue.take() is not None
    assert len(queue.clear()) == 4
    assert queue.take() is None


def test_errors_as_clients_read_them() -> None:
    def error(kind: Failure, **more: Any) -> Any:
        end = End("error", error=ModelError(kind, "text", **more))
        return endings.answer("S", "p", end, TurnUsage(), TurnUsage(), 1, "m").error

    assert error(Failure.AUTH, status=401) == (-32603, "Internal error", "text")
    assert error(Failure.API, status=404) == (
        -32603,
        "Internal error",
        {"message": "text", "http_status": 404},
    )
    assert error(Failure.TRUNCATED)[2] == {"message": "text", "error_kind": "max_tokens_truncation"}
    assert error(Failure.RATE_LIMITED, status=429) == (-32003, "Rate limited", "text")


def test_titles() -> None:
    assert endings.title("one\ntwo  three") == "one two three"
    assert endings.title(" ".join("abcdefghijklm")) == "a b c d e f g h i j"
