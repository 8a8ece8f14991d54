"""The order of a planned hand-over, against a connection and a successor of the test's own."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gateway.wire.control import ControlError, Packet
from gateway.wire.handoff import Succession
from gateway.wire.limits import LIMITS, SIZES
from gateway.wire.questions import GateKind
from workers.departure import MOVES, Departure, Event, Step, business
from workers.guard import Gate, Guard
from workers.requests import RequestBook
from workers.sessions import Event as Moved
from workers.sessions import SessionBook

QUICK = dataclasses.replace(
    LIMITS, drain=0.2, drain_all=0.1, drain_look=0.001, reconnect=0.001, rejoin=0.01, restarted=0.05
)


class Holding:
    def __init__(self, log: list[str]) -> None:
        self.disturbed, self._log = False, log

    def begin(self, sessions: Any) -> None:
        self._log.append("hold")

    async def release(self) -> None:
        self.disturbed = False
        self._log.append("release")


class Proxy:
    """As much of a proxy as a departure looks at: books are real, the bridge is not."""

    def __init__(self, log: list[str]) -> None:
        self.ledger, self.link, self.holding = self, self, Holding(log)
        self.up = True
        self.guard, self.requests, self.sessions = Guard(acks=False), RequestBook("t"), SessionBook()


class Connection:
    def __init__(self) -> None:
        self.log = list[str]()
        self.id, self.proxy, self.lent_waits = "c" * 32, Proxy(self.log), False
        self.heard = True

    def session(self, name: str, *, busy: bool = False) -> None:
        session = self.proxy.sessions.attach(name, {"cwd": "/"}, 0.0)
        if busy:
            session.running = "p"
            session.move(Moved.TURN, 0.0)

    def ask(self, kind: GateKind = GateKind.PRE_HOOK) -> Gate:
        gate = Gate(b"1", "g.1", kind, "s", {}, 0.0)
        self.proxy.guard.open(gate, 0.0)
        return gate

    def listen(self, on: bool) -> None:
        self.heard = on

    def refuse_what_is_open(self, why: str) -> None:
        self.log.append("refuse")
        self.proxy.guard.close_hooks(why)

    async def close_bridge(self) -> None:
        self.log.append("close")

    async def left(self) -> None:
        self.log.append("left")


class Successor:
    """Answers as told, "done" when nothing is."""

    def __init__(self, connection: Connection, *answers: str) -> None:
        self._connection, self._answers, self.words = connection, list(answers), list[Succession]()

    async def __call__(self, word: Succession) -> Packet:
        self.words.append(word)
        self._connection.log.append(word.step)
        op = self._answers.pop(0) if self._answers else "done"
        if op == "no front":
            raise ControlError("there is no front")
        return Packet(op, {"reason": "as the test says"})


async def depart(connection: Connection, *answers: str) -> tuple[Step, list[Succession]]:
    successor = Successor(connection, *answers)
    departure = Departure(connection, successor, QUICK)  # type: ignore[arg-type]
    return await departure.run(), successor.words


def test_every_step_has_an_end() -> None:
    """From each step that is not the last one, some way leads to one that is."""
    ends = {Step.GIVEN, Step.LEFT, Step.STOPPING}
    reach = set(ends)
    for _ in Step:
        reach |= {step for (step, _), after in MOVES.items() if after in reach}
    assert reach == set(Step)
    assert not ends & {step for step, _ in MOVES}


async def test_sessions_at_rest_first_then_those_at_work() -> None:
    connection = Connection()
    connection.session("idle")
    connection.session("busy", busy=True)
    step, words = await depart(connection)
    assert step is Step.GIVEN
    assert connection.log == ["load", "hold", "load", "close", "take", "left"]
    assert [list(word.sessions) for word in words] == [["idle"], ["busy"], []]
    assert words[-1].running == ["busy"]


async def test_an_open_hook_is_waited_for_and_its_client_is_heard() -> None:
    connection = Connection()
    gate = connection.ask()
    successor = Successor(connection)
    departure = Departure(connection, successor, QUICK)  # type: ignore[arg-type]

    async def answer(word: Succession) -> Packet:
        packet = await successor(word)
        if word.step == "load" and gate in connection.proxy.guard:
            assert not connection.log.count("close")
            connection.proxy.guard.answered(b"1", 0.0)
        return packet

    departure._tell = answer
    assert await departure.run() is Step.GIVEN
    assert "refuse" not in connection.log


async def test_a_hook_that_nobody_answers_is_refused_when_the_time_is_over() -> None:
    connection = Connection()
    connection.ask()
    step, _ = await depart(connection)
    assert step is Step.GIVEN
    assert connection.log.index("refuse") < connection.log.index("close")


async def test_an_open_permission_does_not_block() -> None:
    connection = Connection()
    connection.ask(GateKind.PERMISSION)
    step, _ = await depart(connection)
    assert step is Step.GIVEN
    assert "refuse" not in connection.log
    assert len(connection.proxy.guard) == 1


async def test_what_comes_while_lines_are_held_is_dealt_with_first() -> None:
    connection = Connection()
    successor = Successor(connection)

    async def tell(word: Succession) -> Packet:
        if connection.log.count("hold") == 1 and "release" not in connection.log:
            connection.proxy.holding.disturbed = True
        return await successor(word)

    assert await Departure(connection, tell, QUICK).run() is Step.GIVEN  # type: ignore[arg-type]
    assert connection.log == ["load", "hold", "load", "release", "hold", "load", "close", "take", "left"]


async def test_a_turn_that_starts_while_lines_are_held_is_loaded_as_one_at_work() -> None:
    connection = Connection()
    connection.session("s")
    successor = Successor(connection)

    async def tell(word: Succession) -> Packet:
        if connection.log.count("hold") == 1 and "release" not in connection.log:
            session = connection.proxy.sessions.get("s")
            assert session is not None
            session.running = "p"
            session.move(Moved.TURN, 0.0)
        return await successor(word)

    assert await Departure(connection, tell, QUICK).run() is Step.GIVEN  # type: ignore[arg-type]
    assert successor.words[-1].running == ["s"]
    assert list(successor.words[-2].sessions) == ["s"]


async def test_another_successor_is_tried_then_the_journal_must_do() -> None:
    connection = Connection()
    step, words = await depart(connection, "failed")
    assert (step, len(words)) == (Step.GIVEN, 4)
    connection = Connection()
    step, words = await depart(connection, *["failed"] * SIZES.hand_overs)
    assert step is Step.LEFT
    assert connection.log == [*["load"] * SIZES.hand_overs, "refuse", "close", "left"]


async def test_a_take_that_fails_leaves_the_journal() -> None:
    connection = Connection()
    step, _ = await depart(connection, "done", "done", "failed")
    assert step is Step.LEFT
    assert connection.log[-3:] == ["close", "take", "left"]


async def test_without_a_front_the_journal_must_do() -> None:
    step, _ = await depart(Connection(), *["no front"] * SIZES.hand_overs)
    assert step is Step.LEFT


async def test_with_nobody_else_the_gateway_stops() -> None:
    connection = Connection()
    step, _ = await depart(connection, *["nobody"] * 1000)
    assert step is Step.STOPPING
    assert "close" not in connection.log
    assert "left" not in connection.log


@pytest.mark.parametrize("word", ["nobody", "later"])
async def test_a_worker_that_is_just_back_is_waited_for(word: str) -> None:
    step, _ = await depart(Connection(), word)
    assert step is Step.GIVEN


async def test_a_worker_that_does_not_come_back_is_not_waited_for_for_ever() -> None:
    step, _ = await depart(Connection(), *["later"] * 10_000)
    assert step is Step.LEFT


@pytest.mark.parametrize("what", ["hook", "post hook", "lent call", "bridge", "request", "prompt"])
def test_business(what: str) -> None:
    connection = Connection()
    connection.session("s", busy=True)
    assert business(connection) == ""  # type: ignore[arg-type]
    if what == "hook":
        connection.ask()
    elif what == "post hook":
        connection.ask(GateKind.HOOK)
    elif what == "lent call":
        connection.lent_waits = True
    elif what == "bridge":
        connection.proxy.up = False
    else:
        method = "session/prompt" if what == "prompt" else "session/list"
        book = connection.proxy.requests
        book.written(book.open(b"1", method, {}, session_id="s", limit=None, now=0.0))
    assert business(connection) != ""  # type: ignore[arg-type]


def test_a_prompt_whose_turn_runs_or_waits_is_no_business() -> None:
    connection = Connection()
    connection.session("s", busy=True)
    book = connection.proxy.requests
    params = {"_meta": {"promptId": "p"}}
    book.written(book.open(b"1", "session/prompt", params, session_id="s", limit=None, now=0.0))
    assert business(connection) == ""  # type: ignore[arg-type]
    assert MOVES[Step.WAITING, Event.DONE] is Step.HOLDING
