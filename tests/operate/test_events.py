"""supervisord's event protocol and the count of starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.operate.events import CrashBook, EventError, EventReader, StartBook, StateEvent
from gateway.wire.limits import SIZES
from gateway.wire.process import Identity

OWNER = Identity(7, 1.5)


def wire(kind: str, payload: str) -> bytes:
    head = (
        f"ver:3.0 server:grok-gateway serial:1 pool:watchdog poolserial:1 eventname:{kind} len:{len(payload)}"
    )
    return f"{head}\n{payload}".encode()


EVENTS = [
    (
        wire("PROCESS_STATE_STARTING", "processname:gateway groupname:gateway from_state:STOPPED tries:0"),
        StateEvent("gateway", "STARTING", "STOPPED"),
    ),
    (
        wire(
            "PROCESS_STATE_EXITED",
            "processname:worker_01 groupname:worker from_state:RUNNING expected:0 pid:9",
        ),
        StateEvent("worker:worker_01", "EXITED", "RUNNING"),
    ),
    (
        wire(
            "PROCESS_STATE_EXITED",
            "processname:gateway groupname:gateway from_state:RUNNING expected:1 pid:9",
        ),
        StateEvent("gateway", "EXITED", "RUNNING", own_error=True),
    ),
    (wire("TICK_5", "when:17"), None),
]


@pytest.mark.parametrize(("data", "event"), EVENTS)
def test_one_event(data: bytes, event: StateEvent | None) -> None:
    assert EventReader().feed(data) == [event]


@given(st.lists(st.sampled_from(EVENTS), max_size=5), st.integers(1, 300))
def test_pieces_of_any_size(events: list[tuple[bytes, StateEvent | None]], size: int) -> None:
    data = b"".join(wired for wired, _ in events)
    reader = EventReader()
    got = [e for start in range(0, len(data), size) for e in reader.feed(data[start : start + size])]
    assert got == [event for _, event in events]


@pytest.mark.parametrize("data", [b"hello\n", b"ver:3.0 len:x\n", b"\n"])
def test_not_the_protocol(data: bytes) -> None:
    with pytest.raises(EventError):
        EventReader().feed(data)


def crash(component: str = "gateway", **changes: Any) -> StateEvent:
    return StateEvent(component, "EXITED", "RUNNING", **({"own_error": True} | changes))


#: ([(seconds, event)], which of them is one too many)
LOOPS = [
    ([(n, crash()) for n in range(6)], [False, False, False, True, True, True]),
    ([(n, crash(own_error=False)) for n in range(6)], [False] * 6),  # killed
    ([(n, crash(own_error=False)) for n in range(SIZES.ends + 2)], [False] * SIZES.ends + [True] * 2),
    ([(n * 30, crash()) for n in range(6)], [False] * 6),  # seldom enough
    ([(n, crash(str(n))) for n in range(6)], [False] * 6),  # different programs
    ([(n, StateEvent("gateway", "BACKOFF", "STARTING")) for n in range(6)], [False] * 6),  # supervisord's
    ([(0, crash()), (1, crash()), (2, crash()), (70, crash()), (71, crash())], [False] * 5),
]


@pytest.mark.parametrize(("events", "verdicts"), LOOPS)
def test_crash_loops(events: list[tuple[float, StateEvent]], verdicts: list[bool]) -> None:
    book = CrashBook()
    assert [book.looping(now, event) for now, event in events] == verdicts


def starting(component: str) -> StateEvent:
    return StateEvent(component, "STARTING", "EXITED")


def test_restarts_are_starts_after_the_first(tmp_path: Path) -> None:
    book = StartBook(tmp_path / "restarts.json", OWNER)
    for name in ("gateway", "gateway", "watchdog", "gateway"):
        book.observe(starting(name))
    book.observe(StateEvent("gateway", "RUNNING", "STARTING"))
    assert book.restarts() == {"gateway": 2, "watchdog": 0}


def test_count_outlives_the_watchdog_but_not_the_supervisord(tmp_path: Path) -> None:
    file = tmp_path / "restarts.json"
    for _ in range(2):
        StartBook(file, OWNER).observe(starting("watchdog"))
    assert StartBook(file, OWNER).restarts() == {"watchdog": 1}
    assert StartBook(file, Identity(7, 2.5)).restarts() == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"supervisord": [7, 1.5], "starts": 3}'])
def test_damaged_file_counts_from_zero(tmp_path: Path, text: str) -> None:
    file = tmp_path / "restarts.json"
    file.write_text(text)
    assert StartBook(file, OWNER).restarts() == {}


def test_unwritable_file_does_not_stop_the_count(tmp_path: Path) -> None:
    book = StartBook(tmp_path / "no such folder" / "restarts.json", OWNER)
    for _ in range(3):
        book.observe(starting("gateway"))
    assert book.restarts() == {"gateway": 2}
