"""Which worker gets which socket: the pure roster."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.front.roster import Roster
from gateway.wire.handoff import WorkerHello, WorkerState
from gateway.wire.limits import LIMITS

NAMES = ["worker_00", "worker_01", "worker_02"]


def hello(name: str, state: WorkerState = "ready", sockets: int = 0, capacity: int = 10) -> WorkerHello:
    return WorkerHello(name, 4711, state, sockets, capacity)


def roster(*hellos: WorkerHello, journals: tuple[str, ...] = ()) -> Roster:
    result = Roster(NAMES, journals.__contains__)
    for one in hellos:
        result.joining(one.name)
        result.joined(one.name, one)
    return result


def test_least_loaded_first() -> None:
    book = roster(hello("worker_00", sockets=5), hello("worker_01", sockets=2), hello("worker_02", sockets=3))
    assert book.candidates() == ["worker_01", "worker_02", "worker_00"]


def test_a_burst_is_spread_before_the_workers_have_counted() -> None:
    book = roster(*(hello(name) for name in NAMES))
    for _ in range(9):
        book.offered(book.candidates()[0])
    assert [seat.load for seat in book.seats] == [3, 3, 3]
    book.load("worker_01", "ready", 1)
    assert book.candidates()[0] == "worker_01"


def test_offers_that_the_worker_never_counts_do_not_fill_it() -> None:
    now = 100.0
    book = Roster(NAMES, lambda conn: False, clock=lambda: now)
    book.joined("worker_00", hello("worker_00", capacity=2))
    for _ in range(2):
        book.offered("worker_00")
    assert not book.ready
    now += LIMITS.offer
    assert book.ready


@pytest.mark.parametrize("state", ["starting", "draining"])
def test_only_ready_workers_get_new_connections(state: WorkerState) -> None:
    book = roster(hello("worker_00", state), hello("worker_01", sockets=9))
    assert book.candidates() == ["worker_01"]
    book.load("worker_01", state, 0)
    assert book.candidates() == []
    assert not book.ready


def test_full_and_gone_workers_are_skipped() -> None:
    book = roster(hello("worker_00", sockets=10), hello("worker_01"), hello("worker_02"))
    book.left("worker_01")
    assert book.candidates() == ["worker_02"]
    book.left("worker_02")
    assert not book.ready


def test_a_worker_that_has_not_introduced_itself_gets_nothing() -> None:
    book = roster()
    book.joining("worker_00")
    assert book.candidates() == []


def test_a_resumed_connection_goes_to_its_owner_and_nobody_else() -> None:
    book = roster(hello("worker_00"), hello("worker_01", sockets=10), journals=("c1",))
    book.owns("worker_01", ["c1"], [])
    assert book.known("c1")
    assert book.candidates("c1") == ["worker_01"], "also when it is full"


@pytest.mark.parametrize("end", ["left", "joining"])
def test_without_its_owner_the_journal_decides(end: str) -> None:
    book = roster(hello("worker_00"), hello("worker_01"), journals=("c1",))
    book.owns("worker_01", ["c1", "c2"], [])
    getattr(book, end)("worker_01")
    assert book.known("c1")
    assert book.candidates("c1") == ["worker_00"]
    assert not book.known("c2")


def test_a_draining_worker_keeps_a_connection_until_another_one_claims_it() -> None:
    book = roster(hello("worker_00"), hello("worker_01"), journals=("c1",))
    book.owns("worker_01", ["c1"], [])
    book.load("worker_01", "draining", 1)
    assert book.candidates("c1") == ["worker_01"], "two workers would drive its sessions"
    book.owns("worker_00", ["c1"], [])
    book.disowns("worker_01", ["c1"], [])
    assert book.candidates("c1") == ["worker_00"]


def test_a_disowned_connection_is_unknown() -> None:
    book = roster(hello("worker_00"))
    book.owns("worker_00", ["c1"], ["t1"])
    book.disowns("worker_00", ["c1", "never"], ["t1"])
    assert not book.known("c1")
    assert not book.owned("t1")


def test_the_last_claim_counts() -> None:
    book = roster(hello("worker_00"), hello("worker_01"))
    book.owns("worker_00", ["c1"], ["t1"])
    book.owns("worker_01", ["c1"], ["t1"])
    book.disowns("worker_00", ["c1"], ["t1"])
    book.joining("worker_00")
    assert book.candidates("c1") == ["worker_01"]
    assert book.candidates(token="t1") == ["worker_01"]


def test_a_lent_call_goes_to_its_owner_in_any_state_but_gone() -> None:
    book = roster(hello("worker_00"), hello("worker_01", sockets=10))
    book.owns("worker_01", [], ["t1"])
    assert book.candidates(token="t1") == ["worker_01"]
    book.load("worker_01", "draining", 10)
    assert book.candidates(token="t1") == ["worker_01"]
    book.left("worker_01")
    assert book.owned("t1"), "come again, not unknown"
    assert book.candidates(token="t1") == []
    assert book.candidates(token="t2") == []


def test_stopping_is_when_every_worker_was_told_to_go() -> None:
    book = roster(*(hello(name, "draining") for name in ("worker_01", "worker_02")), hello("worker_00"))
    assert not book.stopping
    book.left("worker_01")
    book.left("worker_00")
    assert not book.stopping, "a lost worker is started again"
    book.joined("worker_00", hello("worker_00"))
    book.load("worker_00", "draining", 0)
    assert book.stopping
    book.joining("worker_01")
    assert not book.stopping


def test_leaving_is_when_every_worker_drains_or_is_gone() -> None:
    book = roster(hello("worker_00"), hello("worker_01", "draining"))
    assert not book.leaving
    book.load("worker_00", "draining", 0)
    assert book.leaving
    book.joining("worker_02")
    assert not book.leaving, "one that starts will stay"


class RosterMachine(RuleBasedStateMachine):
    """Whatever the workers say in whatever order, nothing is offered to a worker that cannot take it."""

    names = st.sampled_from(NAMES)
    ids = st.lists(st.sampled_from("abcdef"), max_size=3)

    def __init__(self) -> None:
        super().__init__()
        self.book = Roster(NAMES, lambda conn: conn in "abc")

    @rule(name=names)
    def joining(self, name: str) -> None:
        self.book.joining(name)

    @rule(name=names, state=st.sampled_from(["starting", "ready", "draining"]), sockets=st.integers(0, 3))
    def joined(self, name: str, state: WorkerState, sockets: int) -> None:
        self.book.joined(name, hello(name, state, sockets, capacity=3))

    @rule(name=names)
    def left(self, name: str) -> None:
        self.book.left(name)

    @rule(name=names, connections=ids, tokens=ids, lost=st.booleans())
    def claims(self, name: str, connections: list[str], tokens: list[str], lost: bool) -> None:
        (self.book.disowns if lost else self.book.owns)(name, connections, tokens)

    @invariant()
    def offers_fit(self) -> None:
        seats = {seat.name: seat for seat in self.book.seats}
        for name in self.book.candidates():
            assert seats[name].state == "ready"
            assert seats[name].sockets < seats[name].capacity
        assert self.book.ready == bool(self.book.candidates())
        for key in "abcdef":
            for name in self.book.candidates(conn=key):
                assert seats[name].state != "gone"
            assert len(self.book.candidates(token=key)) <= 1
            for name in self.book.candidates(token=key):
                assert self.book.owned(key)
                assert seats[name].state != "gone"
            assert self.book.known(key) or key not in "abc"


TestRosterMachine = RosterMachine.TestCase
