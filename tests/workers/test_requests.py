"""Open requests: exactly one answer each, in any interleaving."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from gateway.wire.limits import LIMITS
from workers.requests import DuplicateId, Request, RequestBook, Step, TooManyRequests

IDS = [b"1", b"1.0", b'"1"', b"-0", b"1e2", b'"\\u0061"', b'"a"']


def opened(
    book: RequestBook, id_raw: bytes, method: str = "session/list", limit: float | None = 30.0
) -> Request:
    params = {"_meta": {"promptId": None}}
    return book.open(id_raw, method, params, session_id="s", limit=limit, now=0.0)


def test_ids_are_compared_by_their_bytes() -> None:
    book = RequestBook("p")
    for id_raw in IDS:
        opened(book, id_raw)
    for id_raw in IDS:
        with pytest.raises(DuplicateId):
            opened(book, id_raw)


def test_an_id_is_free_again_after_its_answer() -> None:
    book = RequestBook("p")
    first = opened(book, b"1")
    assert book.settle(first)
    second = opened(book, b"1")
    assert second.key != first.key
    assert book.find(first.key) is None
    assert book.find(second.key) is second


def test_the_number_of_open_requests_is_bounded() -> None:
    book = RequestBook("p", capacity=2)
    opened(book, b"1")
    opened(book, b"2")
    with pytest.raises(TooManyRequests):
        opened(book, b"3")


def test_a_prompt_waits_for_a_bridge_only_so_long_and_then_runs_without_limit() -> None:
    book = RequestBook("p")
    prompt = opened(book, b"1", "session/prompt", None)
    assert prompt.deadline == LIMITS.initialize
    book.written(prompt)
    assert prompt.deadline == math.inf


def test_a_cancelled_prompt_is_given_up_after_a_while_but_not_the_one_behind_it() -> None:
    book = RequestBook("p")
    running, waiting = (opened(book, id_raw, "session/prompt", None) for id_raw in (b"1", b"2"))
    book.written(running)
    book.written(waiting)
    assert book.name_prompts("s", ["turn-1"]) == [running]
    book.cancelled("s", "turn-1", now=10.0)
    assert running.deadline == 10.0 + LIMITS.cancel_settle
    assert waiting.deadline == math.inf


def test_prompt_ids_are_paired_in_order_and_only_once() -> None:
    book = RequestBook("p")
    prompts = [opened(book, b"%d" % n, "session/prompt", None) for n in range(3)]
    for prompt in prompts[:2]:
        book.written(prompt)
    book.name_prompts("s", ["a"])
    book.name_prompts("s", ["a", "b", "of another client"])
    assert [p.prompt_id for p in prompts] == ["a", "b", None]


def test_what_no_bridge_had_survives_the_loss_of_a_bridge() -> None:
    book = RequestBook("p")
    held, sent, prompt = opened(book, b"1"), opened(book, b"2"), opened(book, b"3", "session/prompt", None)
    book.written(sent)
    book.written(prompt)
    assert book.lose_bridge(5.0) == [sent]
    assert (held.step, prompt.step) == (Step.HELD, Step.ADRIFT)
    assert book.taken() == [sent, prompt]
    book.found(prompt)
    assert prompt.step is Step.REJOINED


@settings(max_examples=100, stateful_step_count=40)
class OneAnswer(RuleBasedStateMachine):
    """Whatever happens in whatever order, each request gets one answer and none gets two."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.book, self.now, self.asked = RequestBook("p", capacity=8), 0.0, 0
        self.answers = dict[int, int]()  # by identity of the request
        self.all = list[Request]()

    def answer(self, request: Request) -> None:
        if self.book.settle(request):
            self.answers[id(request)] = self.answers.get(id(request), 0) + 1

    @rule(target=requests, id_raw=st.sampled_from(IDS), prompt=st.booleans())
    def ask(self, id_raw: bytes, prompt: bool) -> Request | None:
        method, limit = ("session/prompt", None) if prompt else ("session/list", 30.0)
        taken = any(r.id_raw == id_raw for r in self.book)
        try:
            request = self.book.open(id_raw, method, {}, session_id="s", limit=limit, now=self.now)
        except DuplicateId:
            assert taken
            return None
        except TooManyRequests:
            assert len(self.book) == 8
            return None
        assert not taken
        self.all.append(request)
        return request

    @rule(request=requests)
    def write(self, request: Request | None) -> None:
        if request is not None and request.step is Step.HELD:
            self.book.written(request)

    @rule(request=consumes(requests))
    def engine_answers(self, request: Request | None) -> None:
        """An answer of the bridge that had it; perhaps the second, perhaps too late."""
        if request is not None and request.step in (Step.SENT, Step.DONE):
            found = self.book.find(request.key)
            assert (found is request) == (request.step is Step.SENT)
            if found is not None:
                self.answer(found)

    @rule()
    def bridge_dies(self) -> None:
        for request in self.book.lose_bridge(self.now):
            self.answer(request)

    @rule(found=st.booleans())
    def bridge_is_back(self, found: bool) -> None:
        for request in self.book.without_answer("s", Step.ADRIFT):
            if found:
                self.book.found(request)
            else:
                self.answer(request)

    @rule()
    def turn_ends_behind_another_bridge(self) -> None:
        for request in self.book.without_answer("s", Step.REJOINED):
            self.answer(request)

    @rule()
    def leader_dies(self) -> None:
        for request in self.book.taken():
            self.answer(request)
        assert all(r.step is Step.HELD for r in self.book)

    @rule()
    def cancel(self) -> None:
        self.book.cancelled("s", None, self.now)

    @rule(seconds=st.sampled_from([0.0, 1.0, 6.0, 31.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for request in self.book.expired(self.now):
            self.answer(request)
        assert self.book.next_deadline() > self.now

    @invariant()
    def open_or_answered_once(self) -> None:
        for request in self.all:
            answers = self.answers.get(id(request), 0)
            is_open = self.book.find(request.key) is request
            assert (answers, request.step is Step.DONE) == ((0, False) if is_open else (1, True))

    def teardown(self) -> None:
        for request in self.book:  # the client closes
            self.answer(request)
        assert all(self.answers.get(id(request)) == 1 for request in self.all)
        assert len(self.book) == 0


TestOneAnswer = OneAnswer.TestCase
