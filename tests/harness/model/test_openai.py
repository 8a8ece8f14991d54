"""Streams cut anywhere, servers with habits of their own, answers put together."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.limits import SIZES
from harness.model.errors import Failure, ModelError
from harness.model.openai import Answer, Assembler, CallPart, EventStream, Piece, Text, Thought, Usage


def delta(finish: str | None = None, **fields: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}).encode()


def call(
    index: int | None, arguments: Any, id_: str | None = None, name: str | None = None
) -> dict[str, Any]:
    part: dict[str, Any] = {"function": {"arguments": arguments} | ({"name": name} if name else {})}
    return part | ({"index": index} if index is not None else {}) | ({"id": id_} if id_ else {})


def assembled(*events: bytes) -> tuple[list[Piece], Answer]:
    assembler = Assembler()
    pieces = [piece for event in events for piece in assembler.event(event)]
    return pieces, assembler.answer()


#: A busy machine is no reason to fail.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@patient
@given(
    st.lists(st.text("ab :é☃", min_size=1), max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_events_do_not_depend_on_the_reads(texts: list[str], end: str, data: st.DataObject) -> None:
    stream = "".join(f": a comment{end}event: message{end}data: {text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    events = EventStream()
    found = list[bytes]()
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += events.feed(stream[start:stop])
    found += events.finish()
    assert found == [text.encode() for text in texts]


def test_lines_of_data_belong_together_and_the_last_end_may_be_missing() -> None:
    events = EventStream()
    assert events.feed(b"data: a\ndata:b\n\ndata: c") == [b"a\nb"]
    assert events.finish() == [b"c"]


def test_an_endless_event_is_an_error() -> None:
    events = EventStream()
    events.feed(b"x" * SIZES.model_event)
    with pytest.raises(ModelError):
        events.feed(b"x")


def test_text_thought_and_usage() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    pieces, answer = assembled(
        delta(role="assistant", content=""),
        delta(reasoning_content="hm"),
        delta(reasoning="m"),
        delta(content="Hel"),
        delta(content="lo"),
        delta("stop"),
        json.dumps({"choices": [], "usage": usage}).encode(),
        b"[DONE]",
    )
    assert pieces == [Thought("hm"), Thought("m"), Text("Hel"), Text("lo")]
    assert answer == Answer("Hello", "hmm", (), "stop", Usage(10, 5, 4, 2))


def test_two_calls_in_pieces() -> None:
    pieces, answer = assembled(
        delta(tool_calls=[call(0, "", "a", "read")]),
        delta(tool_calls=[call(0, '{"x"')]),
        delta(tool_calls=[call(1, "{}", "b", "list")]),
        delta(tool_calls=[call(0, ":1}")]),
        delta("tool_calls"),
    )
    assert pieces[0] == CallPart(0, "a", "read", "")
    assert [(c.id, c.name, c.arguments) for c in answer.calls] == [
        ("a", "read", '{"x":1}'),
        ("b", "list", "{}"),
    ]


@pytest.mark.parametrize(
    "parts",
    [
        [call(0, "{}", "a", "read"), call(0, "{}", "b", "list")],  # the index stands still
        [call(None, "{}", "a", "read"), call(None, "{}", "b", "list")],  # there is none
        [call(None, "{}", None, "read"), call(None, "{}", None, "list")],  # nor an id
        [call(0, {}, "a", "read"), call(1, {}, "b", "list")],  # arguments as an object
    ],
)
def test_habits_of_servers(parts: list[dict[str, Any]]) -> None:
    _, answer = assembled(*(delta(tool_calls=[part]) for part in parts), delta("tool_calls"))
    assert [(c.name, c.arguments) for c in answer.calls] == [("read", "{}"), ("list", "{}")]
    assert len({c.id for c in answer.calls}) == 2
    assert all(c.id for c in answer.calls)


def test_parts_without_an_index_go_on_with_the_last_call() -> None:
    _, answer = assembled(
        delta(tool_calls=[call(None, '{"a', "x", "read")]), delta(tool_calls=[call(None, '":1}')]), b"[DONE]"
    )
    assert [c.arguments for c in answer.calls] == ['{"a":1}']
    assert answer.finish == "tool_calls"


def test_a_whole_answer_in_one_object() -> None:
    message = {"role": "assistant", "content": "hi", "tool_calls": [call(None, "{}", "a", "read")]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    _, answer = assembled(json.dumps(body).encode())
    assert (answer.text, answer.calls[0].name, answer.finish) == ("hi", "read", "tool_calls")


def failure(*events: bytes) -> ModelError:
    with pytest.raises(ModelError) as caught:
        assembled(*events)
    return caught.value


def test_a_stream_without_an_end_broke_off() -> None:
    error = failure(delta(content="half"))
    assert (error.kind, error.transient) == (Failure.HTTP, True)


def test_an_empty_answer_may_be_asked_for_again() -> None:
    error = failure(delta(content=" "), delta("stop"), b"[DONE]")
    assert (error.kind, error.transient) == (Failure.EMPTY, True)


@pytest.mark.parametrize("finish", ["content_filter", "length"])
def test_an_empty_answer_with_a_reason_is_one(finish: str) -> None:
    _, answer = assembled(delta(finish))
    assert answer.finish == finish


@pytest.mark.parametrize(
    ("error", "transient", "kind"),
    [
        ({"message": "overloaded", "code": 503}, True, Failure.API),
        ({"message": "bad", "code": 400}, False, Failure.API),
        ({"message": "slow down", "code": 429}, True, Failure.RATE_LIMITED),
        ("gone", True, Failure.API),
    ],
)
def test_a_failure_reported_in_the_stream(error: Any, transient: bool, kind: Failure) -> None:
    found = failure(delta(content="x"), json.dumps({"error": error}).encode())
    assert (found.transient, found.kind) == (transient, kind)


@patient
@given(st.binary())
def test_no_event_crashes_the_assembler(data: bytes) -> None:
    with contextlib.suppress(ModelError):
        Assembler().event(data)


@patient
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "delta",
                        "tool_calls",
                        "function",
                        "index",
                        "usage",
                        "content",
                        "arguments",
                        "name",
                    ]
                ),
                x,
            )
        ),
    )
)
def test_no_json_crashes_the_assembler(value: Any) -> None:
    with contextlib.suppress(ModelError):
        Assembler().event(json.dumps(value).encode())
