"""Nothing is shown twice, whatever the later streams say; when there is another try."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.limits import LIMITS, SIZES
from harness.model.endpoints import Endpoint
from harness.model.errors import Failure, ModelError
from harness.model.openai import Answer, CallPart, ModelCall, Piece, Text, Thought
from harness.model.retry import Resumption, Seam, Trying, persist, plan

ENDPOINT = Endpoint("m", "m", "M", "http://127.0.0.1/v1/chat/completions")
BROKEN = ModelError(Failure.HTTP, "broke", transient=True)
words = st.text(st.sampled_from("ab \n"), max_size=30)

#: A busy machine is no reason to fail.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(c % (len(text) + 1) for c in cuts)})
    return [text[a:b] for a, b in itertools.pairwise(places)]


def shown(*streams: list[str]) -> str:
    seam, told = Seam(), ""
    for stream in streams:
        seam.begin()
        for piece in stream:
            told += seam.feed(piece)
    return told


@patient
@given(
    words,
    st.lists(st.integers(0, 30), max_size=4),
    st.lists(st.lists(st.integers(0, 30), max_size=4), max_size=4),
)
def test_the_same_text_again_is_shown_once(whole: str, cuts: list[int], more: list[list[int]]) -> None:
    """Any number of broken tries, each cut elsewhere, then the whole."""
    broken = [pieces(whole[: sum(c)], c) for c in more]
    assert shown(*broken, pieces(whole, cuts)) == whole


@patient
@given(words, words, st.lists(st.integers(0, 30), max_size=4))
def test_another_text_goes_on_where_it_parts(first: str, second: str, cuts: list[int]) -> None:
    told = shown([first], pieces(second, cuts))
    assert told.startswith(first)
    rest = told[len(first) :]
    if first.startswith(second):
        assert rest == ""
    elif second.startswith(first):
        assert first + rest == second
    else:
        new = rest.removeprefix("\n") if not first.endswith("\n") else rest
        assert second.endswith(new)
        unshown = second[: len(second) - len(new)]
        assert first.startswith(unshown)  # what is left out was seen
        again = second[len(unshown) :]
        common = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
        assert not any(c.isspace() for c in second[len(unshown) : common])  # at most a part of one word
        assert again == new


def test_the_word_in_which_they_part_is_readable() -> None:
    assert shown(["The whole tex"], ["The wh", "ole thing", " is"]) == "The whole tex\nthing is"


def test_a_third_stream_is_compared_with_the_second() -> None:
    assert shown(["one two"], ["one three fo"], ["one three four"]) == "one two\nthree four"


def test_a_call_keeps_the_id_it_was_shown_with() -> None:
    seen = Resumption()
    seen.begin()
    told = [seen.show(CallPart(0, "first", "read", '{"a'))]
    seen.begin()
    told += [seen.show(p) for p in (CallPart(0, "second", "read", ""), CallPart(0, None, None, '{"a":1}'))]
    assert told == [CallPart(0, "first", "read", '{"a'), None, CallPart(0, None, None, '":1}')]
    answer = seen.settle(Answer(calls=(ModelCall("second", "read", '{"a":1}'),)))
    assert answer.calls[0].id == "first"


def test_arguments_that_part_are_not_mixed() -> None:
    seen = Resumption()
    seen.begin()
    seen.show(CallPart(0, "first", "read", '{"a'))
    seen.begin()
    assert seen.show(CallPart(0, "second", "read", '{"b')) is None
    assert seen.show(CallPart(0, None, None, '":1}')) is None


def test_another_call_is_shown_as_one() -> None:
    seen = Resumption()
    seen.begin()
    seen.show(CallPart(0, "first", "read", '{"a'))
    seen.begin()
    part = CallPart(0, "second", "list", "{}")
    assert seen.show(part) == part
    assert seen.settle(Answer(calls=(ModelCall("second", "list", "{}"),))).calls[0].id == "second"


@pytest.mark.parametrize(
    ("error", "attempt", "again"),
    [
        (BROKEN, 1, True),
        (BROKEN, SIZES.model_retries, True),
        (BROKEN, SIZES.model_retries + 1, False),
        (ModelError(Failure.AUTH, "no"), 1, False),
        (ModelError(Failure.RATE_LIMITED, "slow", transient=True), 1, True),
        (ModelError(Failure.RATE_LIMITED, "slow", transient=True), 2, False),
        (ModelError(Failure.RATE_LIMITED, "slow", transient=True, retry_after=9999), 1, False),
    ],
)
def test_whether_there_is_another_try(error: ModelError, attempt: int, again: bool) -> None:
    assert (plan(error, attempt, ENDPOINT, 0) is not None) is again


def test_pauses_double_up_to_the_longest() -> None:
    delays = [trying.delay for n in range(1, 7) if (trying := plan(BROKEN, n, ENDPOINT, 0))]
    assert delays == [2, 4, 8, 16, 30, 30]
    with_chance = plan(BROKEN, 1, ENDPOINT, 1)
    assert with_chance is not None
    assert with_chance.delay == LIMITS.retry_first * (1 + SIZES.jitter_percent / 100)


def test_a_server_that_names_a_pause_gets_it() -> None:
    trying = plan(ModelError(Failure.API, "busy", transient=True, retry_after=7), 1, ENDPOINT, 0)
    assert trying is not None
    assert trying.delay == 7


class Tries:
    """A model that plays one list of pieces a try; a list without an answer breaks off."""

    def __init__(self, *tries: tuple[list[Piece], Answer | ModelError]) -> None:
        self.tries = list(tries)

    async def answer(
        self,
        endpoint: Endpoint,
        body: Mapping[str, Any],
        show: Callable[[Piece], None],
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        stream, end = self.tries.pop(0)
        for piece in stream:
            show(piece)
        if isinstance(end, ModelError):
            raise end
        return end


async def test_persist_shows_once_and_keeps_the_whole_answer() -> None:
    told = list[Piece]()
    tries = list[Trying]()
    waits = list[float]()

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    model = Tries(
        ([Thought("hm"), Text("The wh")], BROKEN),
        ([Thought("hm"), Text("The ")], BROKEN),
        ([Thought("hmm"), Text("The whole")], Answer("The whole", "hmm")),
    )
    answer = await persist(model, ENDPOINT, {}, told.append, tries.append, wait=wait)
    assert answer.text == "The whole"
    assert "".join(p.text for p in told if isinstance(p, Text)) == "The whole"
    assert "".join(p.text for p in told if isinstance(p, Thought)) == "hmm"
    assert [t.attempt for t in tries] == [1, 2]
    assert len(waits) == 2


async def test_persist_raises_the_last_failure() -> None:
    model = Tries(([], ModelError(Failure.AUTH, "no")))
    with pytest.raises(ModelError, match="no"):
        await persist(model, ENDPOINT, {}, lambda _: None, lambda _: None)
