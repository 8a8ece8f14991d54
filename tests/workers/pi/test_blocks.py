"""Blocks of a message: order, repetitions, resumes."""

from __future__ import annotations

from typing import Any

import pytest

from workers.pi.blocks import Blocks


class Pi:
    """The other end: makes blocks of events."""

    def __init__(self) -> None:
        self.blocks: list[list[Any]] = []

    def take(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            match event["op"]:
                case "start":
                    assert event["i"] == len(self.blocks)
                    assert not any(is_open for *_, is_open in self.blocks)
                    self.blocks.append([event["type"], "", True])
                case "delta":
                    assert self.blocks[event["i"]][2]
                    self.blocks[event["i"]][1] += event["text"]
                case "end":
                    self.blocks[event["i"]][2] = False

    def known(self) -> list[dict[str, Any]]:
        return [{"type": t, "chars": len(s.encode("utf-16-le")) // 2} for t, s, _ in self.blocks]

    def shown(self, blocks: Blocks) -> list[tuple[str, str]]:
        texts = blocks.texts()
        return [(t, texts.get(str(i), s)) for i, (t, s, _) in enumerate(self.blocks)]


def say(blocks: Blocks, pi: Pi, text: str, stream: int, kind: Any = "text", size: int = 3) -> None:
    for start in range(0, len(text), size):
        pi.take(blocks.model(kind, text[start : start + size], stream))


def test_a_change_of_kind_is_another_block() -> None:
    blocks, pi = Blocks(), Pi()
    say(blocks, pi, "hmm", 1, "thinking")
    say(blocks, pi, "hello", 1)
    pi.take(blocks.note("[grok x] #1\n"))
    say(blocks, pi, "bye", 2)
    pi.take(blocks.close())
    assert pi.shown(blocks) == [
        ("thinking", "hmm"),
        ("text", "hello"),
        ("thinking", "[grok x] #1\n"),
        ("text", "bye"),
    ]
    assert blocks.texts() == {}


def test_a_note_has_a_line_of_its_own() -> None:
    blocks, pi = Blocks(), Pi()
    say(blocks, pi, "hmm", 1, "thinking")
    pi.take(blocks.note("[grok x]\n"))
    pi.take(blocks.note("[grok y]\n"))
    assert pi.shown(blocks) == [("thinking", "hmm\n[grok x]\n[grok y]\n")]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_repetition_is_not_shown_twice(size: int) -> None:
    blocks, pi = Blocks(), Pi()
    say(blocks, pi, "so", 1, "thinking")
    say(blocks, pi, "hello wo", 1)
    for stream in (2, 3):
        blocks.broken()
        say(blocks, pi, "so", stream, "thinking", size)
        say(blocks, pi, "hello wor"[: 9 if stream == 2 else 100], stream, size=size)
    say(blocks, pi, "ld", 3)
    assert pi.shown(blocks) == [("thinking", "so"), ("text", "hello world")]


def test_the_last_words_of_a_broken_stream_may_come_late() -> None:
    blocks, pi = Blocks(), Pi()
    say(blocks, pi, "abcdef", 1)
    blocks.broken()
    say(blocks, pi, "ghi", 1)  # overtaken by the notice
    say(blocks, pi, "abcdef", 2)
    say(blocks, pi, "xyz", 1)  # later still: it comes again, or is not true any more
    say(blocks, pi, "ghijkl", 2)
    assert pi.shown(blocks) == [("text", "abcdefghijkl")]


def test_a_repetition_that_differs_is_put_right_at_the_end() -> None:
    blocks, pi = Blocks(), Pi()
    say(blocks, pi, "before. ", 1)
    say(blocks, pi, "the cat sat", 2)
    blocks.broken()
    say(blocks, pi, "the dog ran", 3)
    say(blocks, pi, " after", 4)
    assert pi.blocks[0][1].startswith("before. the cat sat"), "what was shown stays"
    assert pi.shown(blocks) == [("text", "before. the dog ran after")]


def test_a_repetition_that_is_shorter_is_put_right() -> None:
    blocks, pi = Blocks(), Pi()
    say(blocks, pi, "one two three", 1)
    blocks.broken()
    say(blocks, pi, "one two", 2)
    blocks.call_ended()
    assert pi.shown(blocks) == [("text", "one two")]


def test_the_next_call_may_begin_alike() -> None:
    blocks, pi = Blocks(), Pi()
    say(blocks, pi, "again", 1)
    say(blocks, pi, "again", 2)
    assert pi.shown(blocks) == [("text", "againagain")]


@pytest.mark.parametrize("at", range(12))
def test_somebody_who_comes_back_gets_the_rest(at: int) -> None:
    blocks, pi, events = Blocks(), Pi(), list[Any]()
    for kind, text in (
        ("thinking", "ab\U0001f600"),
        ("text", "c\U0001f600d"),
        ("thinking", "e"),
        ("text", "fg"),
    ):
        for letter in text:
            events += blocks.model(kind, letter, 1)  # type: ignore[arg-type]
    pi.take(events[:at])
    pi.take(blocks.missing(pi.known()))
    pi.take(blocks.close())
    assert [(t, s) for t, s, _ in pi.blocks] == [
        ("thinking", "ab\U0001f600"),
        ("text", "c\U0001f600d"),
        ("thinking", "e"),
        ("text", "fg"),
    ]
    assert not any(is_open for *_, is_open in pi.blocks)
