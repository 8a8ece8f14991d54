"""The book of tasks: states, waiters, and ends that are told once."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from harness.limits import LIMITS, SIZES
from harness.workspace.terminal.book import (
    Ending,
    Snapshot,
    Task,
    TaskBook,
    TaskKind,
    TaskStatus,
    iso_time,
)


def task(task_id: str = "t", **changes: object) -> Task:
    made = Task(task_id, f"call-{task_id}", "make", "/", 100.0, 10.0, owner="s", backgrounded=True)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def shot(**changes: object) -> Snapshot:
    fields: dict[str, object] = {
        "task_id": "t",
        "call_id": "c",
        "command": "make",
        "display": None,
        "cwd": "/",
        "kind": TaskKind.BASH,
        "owner": "s",
        "description": "build",
        "started": 1577836817.5,
        "finished": 1577836819.25,
        "duration": 1.75,
        "output": "x",
        "output_file": "/log",
        "truncated": False,
        "total_bytes": 1,
        "exit_code": 0,
        "signal": None,
        "pid": 1,
        "block_waited": False,
        "explicitly_killed": False,
        "kill_delivered": False,
        "backgrounded": True,
    }
    return Snapshot(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"finished": None, "exit_code": None}, TaskStatus.RUNNING),
        ({}, TaskStatus.COMPLETED),
        ({"exit_code": 4}, TaskStatus.FAILED),
        ({"exit_code": None, "signal": "signal 9"}, TaskStatus.FAILED),
        ({"exit_code": None, "signal": "timeout"}, TaskStatus.TIMED_OUT),
        ({"exit_code": None, "signal": "max_runtime"}, TaskStatus.TIMED_OUT),
        ({"exit_code": None, "signal": "cancelled"}, TaskStatus.CANCELLED),
        ({"exit_code": None, "signal": "killed", "explicitly_killed": True}, TaskStatus.CANCELLED),
        ({"exit_code": None, "signal": "output_limit"}, TaskStatus.FAILED),
    ],
)
def test_status(changes: dict[str, object], status: TaskStatus) -> None:
    assert shot(**changes).status is status


@pytest.mark.parametrize(
    ("waited", "killed", "delivered", "wakes"),
    [
        (False, False, False, True),
        (True, False, False, False),
        (False, True, False, True),
        (False, True, True, False),
    ],
)
def test_what_wakes(waited: bool, killed: bool, delivered: bool, wakes: bool) -> None:
    made = shot(block_waited=waited, explicitly_killed=killed, kill_delivered=delivered)
    assert made.will_wake is wakes


def test_wire_forms() -> None:
    assert shot().wire() == {
        "task_id": "t",
        "command": "make",
        "cwd": "/",
        "start_time": {"secs_since_epoch": 1577836817, "nanos_since_epoch": 500000000},
        "end_time": {"secs_since_epoch": 1577836819, "nanos_since_epoch": 250000000},
        "output": "x",
        "output_file": "/log",
        "truncated": False,
        "output_total_bytes": 1,
        "exit_code": 0,
        "signal": None,
        "completed": True,
        "kind": "bash",
        "block_waited": False,
        "explicitly_killed": False,
        "kill_result_delivered": False,
        "owner_session_id": "s",
        "description": "build",
        "is_backgrounded": True,
    }
    assert shot(display="[monitor] x").wire()["display_command"] == "[monitor] x"
    listed = shot(exit_code=None, signal="killed", explicitly_killed=True).listing()
    assert (listed["status"], listed["signal"]) == ("failed", "killed")
    assert "exit_code" not in listed
    running = shot(finished=None, exit_code=None).listing()
    assert running["status"] == "running"
    assert "ended_at" not in running
    assert iso_time(1577836817.9) == "2020-01-01T00:00:17Z"


def test_a_foreground_task_leaves_and_a_moved_one_stays() -> None:
    book = TaskBook()
    book.add(task("a", backgrounded=False))
    book.add(task("b", backgrounded=False))
    assert [t.id for t in book.foreground("s")] == ["a", "b"]
    assert book.foreground("other") == []
    assert book.move("b")
    assert not book.move("b")
    assert not book.move("nobody")
    book.end("a", Ending(0), 11, 101)
    book.end("b", Ending(0), 12, 102)
    assert book.known_ids("s") == ["b"]
    assert [t.id for t in book.untold("s")] == ["b"]
    assert not book.move("b")


def test_an_id_is_given_once() -> None:
    book = TaskBook()
    book.add(task())
    with pytest.raises(ValueError, match="already"):
        book.add(task())


def test_the_first_end_counts_and_the_clock_may_go_back() -> None:
    book = TaskBook()
    book.add(task())
    ended = book.end("t", Ending(0), 11, 50.0)
    assert ended is not None
    assert ended.finished == 100.0
    assert book.end("t", Ending(1), 12, 200.0) is None
    assert ended.ending == Ending(0)
    assert ended.duration(99) == 1.0


def test_a_waiter_makes_an_end_no_news_and_a_lost_one_news_again() -> None:
    book = TaskBook()
    for name in "abc":
        book.add(task(name))
    book.wait("abc")
    book.end("a", Ending(0), 11, 101)
    book.stop_waiting("abc")
    by = {t.id: t for t in book.tasks("s")}
    assert by["a"].block_waited
    assert not by["b"].block_waited, "nobody waits any longer: its end wakes"
    book.unanswered("abc")
    assert not by["a"].block_waited, "who waited was cancelled before it could tell"


def test_two_waiters() -> None:
    book = TaskBook()
    book.add(task())
    book.wait(["t"])
    book.wait(["t"])
    book.stop_waiting(["t"])
    one = book.get("t")
    assert one is not None
    assert one.block_waited
    book.stop_waiting(["t"])
    assert not one.block_waited


@pytest.mark.parametrize(
    ("waits", "delivered", "told"), [(0, False, True), (1, False, False), (0, True, False)]
)
def test_who_is_told_of_a_kill(waits: int, delivered: bool, told: bool) -> None:
    book = TaskBook()
    book.add(task())
    for _ in range(waits):
        book.wait(["t"])
    book.killed("t", delivered=delivered)
    book.end("t", Ending(None, "killed"), 11, 101)
    assert [t.id for t in book.untold("s")] == (["t"] if told else [])


def test_a_second_kill_does_not_make_news_of_the_first() -> None:
    book = TaskBook()
    book.add(task())
    book.killed("t", delivered=True)
    book.killed("t", delivered=False)
    book.end("t", Ending(None, "killed"), 11, 101)
    assert book.untold("s") == []


def test_reserved_for_a_wake_that_may_be_dropped() -> None:
    book = TaskBook()
    book.add(task())
    book.end("t", Ending(0), 11, 101)
    book.reserve(["t"])
    assert book.untold("s") == []
    book.release(["t"])
    assert [t.id for t in book.untold("s")] == ["t"]
    assert book.tell(["t", "t"]) == ["t"]
    book.release(["t"])
    assert book.untold("s") == []
    assert book.told() == {"t"}


def test_owners() -> None:
    book = TaskBook()
    book.add(task("mine"))
    book.add(task("child", owner="sub"))
    book.add(task("nobody", owner=None))
    assert book.known_ids("s") == ["mine", "nobody"]
    assert book.known_ids() == ["mine", "child", "nobody"]
    book.end("child", Ending(0), 11, 101)
    assert book.adopt("sub", "s") == [], "an ended one stays with its owner"
    book.add(task("later", owner="sub"))
    assert [t.id for t in book.adopt("sub", "s")] == ["later"]
    assert book.known_ids("s") == ["mine", "nobody", "later"]


def test_forgetting() -> None:
    book = TaskBook()
    for number in range(SIZES.tombstones + 5):
        book.add(task(f"t{number}"))
        book.end(f"t{number}", Ending(0), 11, 101)
    assert book.due(11 + LIMITS.task_kept - 1) == []
    due = book.due(11 + LIMITS.task_kept)
    assert len(due) == SIZES.tombstones + 5
    book.tell(["t0", "t9"])
    for one in due:
        book.bury(one, dataclasses.replace(shot(), task_id=one.id, total_bytes=3, output="abc"))
    assert book.get("t9") is None
    assert book.tombstone("t0") is None, "the oldest is gone altogether"
    kept = book.tombstone("t9")
    assert kept is not None
    assert (kept.output, kept.truncated, kept.total_bytes) == ("", True, 3)
    assert len(book.known_ids("s")) == SIZES.tombstones
    assert book.told() == {"t9"}, "what is gone needs no mark"


class Tellings(RuleBasedStateMachine):
    """Whatever waits, reserves, tells and cancels: an end is told once, and never lost."""

    def __init__(self) -> None:
        super().__init__()
        self.book = TaskBook()
        self.count = 0
        self.waits = list[list[str]]()
        self.told = list[str]()

    def ids(self) -> list[str]:
        return [t.id for t in self.book.tasks()]

    @rule()
    def begin(self) -> None:
        self.count += 1
        self.book.add(task(f"t{self.count}"))

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if running := [t.id for t in self.book.tasks() if t.ending is None]:
            self.book.end(data.draw(st.sampled_from(running)), Ending(0), 11, 101)

    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        if ids := self.ids():
            chosen = data.draw(st.lists(st.sampled_from(ids), unique=True, min_size=1))
            waited = [i for i in chosen if (t := self.book.get(i)) is not None and t.ending is None]
            self.book.wait(waited)
            self.waits.append(waited)

    @rule(cancelled=st.booleans())
    def wait_over(self, cancelled: bool) -> None:
        if self.waits:
            ids = self.waits.pop()
            self.book.stop_waiting(ids)
            if cancelled:
                self.book.unanswered(ids)
            else:
                ended = [i for i in ids if (t := self.book.get(i)) is not None and t.ending is not None]
                self.told += self.book.tell(ended)

    @rule()
    def remind(self) -> None:
        self.told += self.book.tell([t.id for t in self.book.untold()])

    @rule(dropped=st.booleans())
    def wake(self, dropped: bool) -> None:
        ids = [t.id for t in self.book.untold()]
        self.book.reserve(ids)
        assert self.book.untold() == []
        if dropped:
            self.book.release(ids)
        else:
            self.told += self.book.tell(ids)

    @invariant()
    def once(self) -> None:
        assert len(self.told) == len(set(self.told))

    @invariant()
    def none_lost(self) -> None:
        ended = {t.id for t in self.book.tasks() if t.ending is not None}
        assert ended == set(self.told) | {t.id for t in self.book.untold()}

    @invariant()
    def waiters_are_those_that_wait(self) -> None:
        for one in self.book.tasks():
            assert one.waiters == sum(one.id in ids for ids in self.waits)


Tellings.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTellings = Tellings.TestCase
