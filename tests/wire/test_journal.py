"""Journals: what is replayed is what was said, whatever byte the file ends at."""

from __future__ import annotations

import copy
import os
import resource
import secrets
import signal
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.paths import Paths
from gateway.wire import journal as module
from gateway.wire.journal import (
    Journal,
    JournalError,
    forget,
    journal_path,
    read_journal,
    read_journals,
    sweep,
)
from gateway.wire.leases import Leases
from gateway.wire.limits import Sizes
from gateway.wire.records import (
    Attached,
    ConnectionRecord,
    Counted,
    Detached,
    GateClosed,
    GateOpened,
    Introduced,
    Opened,
    OptionSet,
    Owned,
    Record,
    RequestClosed,
    RequestOpened,
    Rescued,
    TokenAdded,
    TokenRemoved,
)

ID = "0" * 31 + "1"
OWNED = Owned("worker_00", 123, 1.5)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "c", tmp_path / "s", tmp_path / "r")
    paths.create()
    return paths


texts = st.text(max_size=12) | st.just("\ud800")
names = st.sampled_from(["a", "b", "c"])
objects = st.dictionaries(texts, st.none() | st.integers() | texts | st.lists(texts, max_size=2), max_size=3)
records = st.one_of(
    st.builds(Owned, names, st.integers(1, 2**31), st.floats(0, 1e10)),
    st.builds(Introduced, objects),
    st.builds(Attached, names, objects),
    st.builds(OptionSet, names, names, st.dictionaries(st.sampled_from(["configId", "value"]), names)),
    st.builds(Detached, names),
    st.builds(GateOpened, names, texts, names, texts, texts, st.floats(0, 1e10), st.floats(0, 1e10)),
    st.builds(GateClosed, names),
    st.builds(RequestOpened, names, texts, texts, names, texts),
    st.builds(RequestClosed, names),
    st.builds(Rescued, st.lists(names, max_size=3), names),
    st.builds(TokenAdded, names, names),
    st.builds(TokenRemoved, names),
    st.builds(Counted, st.integers(0, 2**60), st.integers(0, 2**60)),
)


def states(said: list[Record]) -> list[ConnectionRecord]:
    """The state after each record, the one before the first included."""
    state, result = ConnectionRecord(), [ConnectionRecord()]
    for record in said:
        record.apply(state)
        result.append(copy.deepcopy(state))
    return result


@given(st.lists(records, max_size=40))
def test_a_record_is_read_back_as_it_was(said: list[Record]) -> None:
    for record in said:
        assert Record.decode(record.encode()) == record
        assert record.encode().count(b"\n") == 1


@given(st.lists(records, max_size=60))
def test_a_snapshot_makes_the_same_state(said: list[Record]) -> None:
    state = states([Opened(ID, "pi", True), *said])[-1]
    assert states(state.snapshot())[-1] == state


EVERYTHING: list[Record] = [
    Opened(ID, "pi", True),
    OWNED,
    Introduced({"name": "é", "version": "1"}),
    Attached("s", {"cwd": "/w", "mcpServers": [], "_meta": {"rules": "\n\ud800", "n": 2**70}}),
    OptionSet("s", "session/set_mode", {"modeId": "plan"}),
    Attached("t", {"cwd": "/v"}),
    RequestOpened("gw-1-1", "1e400", "session/prompt", "s", "p"),
    GateOpened("1.7", "_x.ai/hooks/run", "s", "pre_tool_use", "call_1", 1.5, 586.5),
    TokenAdded("0f" * 16, "s"),
    Counted(4, 9),
    GateClosed("1.7"),
    RequestClosed("gw-1-1"),
    TokenRemoved("0f" * 16),
    Detached("s"),
    Counted(6, 8),
]


def check_cut(data: bytes, after: list[ConnectionRecord], path: Path) -> None:
    path.write_bytes(data)
    whole = data.count(b"\n")
    assert read_journal(path) == (after[whole] if whole else None)


def test_cut_at_every_byte_it_tells_a_prefix(tmp_path: Path) -> None:
    path, after = tmp_path / f"{ID}.jsonl", states(EVERYTHING)
    data = b"".join(record.encode() for record in EVERYTHING)
    for size in range(len(data) + 1):
        check_cut(data[:size], after, path)
    with path.open("ab") as file:  # nothing after a damaged line counts
        file.write(b'{"record":"Owned"}\n{"record":"Detached","session_id":"t"}\n')
    assert read_journal(path) == after[-1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(records, max_size=12), size=st.integers(0, 2000))
def test_cut_anywhere_any_journal_tells_a_prefix(said: list[Record], size: int, tmp_path: Path) -> None:
    said = [Opened(ID), *said]
    data = b"".join(record.encode() for record in said)[:size]
    check_cut(data, states(said), tmp_path / f"{ID}.jsonl")


def test_the_file_is_private_and_says_what_was_appended(paths: Paths) -> None:
    journal = Journal.create(paths, Opened(ID, "ws", True), OWNED)
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    journal.append(Attached("s", {"cwd": "/w", "_meta": {"rules": "é"}}), Counted(3))
    journal.append(GateOpened("1.7", "_x.ai/hooks/run", "s", "pre_tool_use", "t", 1.0, 2.0))
    assert read_journal(journal.path) == journal.state
    assert read_journals(paths) == [journal.state]
    assert journal.state.received == 3
    assert list(journal.state.gates) == ["1.7"]
    with pytest.raises(JournalError, match=ID):
        Journal.create(paths, Opened(ID), OWNED)
    journal.remove()
    assert not journal.path.exists()
    assert read_journal(journal.path) is None


@pytest.mark.parametrize("connection", ["", "x", "../" + "0" * 29, "0" * 33, "A" * 32])
def test_a_connection_id_is_no_path(paths: Paths, connection: str) -> None:
    with pytest.raises(ValueError, match="hex"):
        journal_path(paths, connection)


def test_the_next_owner_goes_on_after_a_torn_line(paths: Paths) -> None:
    journal = Journal.create(paths, Opened(ID), OWNED)
    journal.append(Attached("s", {"cwd": "/w"}))
    journal.close()
    with journal.path.open("ab") as file:
        file.write(GateOpened("1.1", "m", "s").encode()[:-1])
    adopted = Journal.adopt(paths, ID, Owned("worker_01", 9, 2.5))
    adopted.append(Counted(1, 1))
    state = read_journal(adopted.path)
    assert state == adopted.state
    assert state is not None
    assert (state.worker, state.pid, state.gates, state.received) == ("worker_01", 9, {}, 1)
    assert list(state.sessions) == ["s"]
    adopted.close()


def test_nothing_to_adopt(paths: Paths) -> None:
    with pytest.raises(JournalError):
        Journal.adopt(paths, ID, OWNED)
    journal_path(paths, ID).write_bytes(b"garbage\n")
    with pytest.raises(JournalError):
        Journal.adopt(paths, ID, OWNED)
    assert journal_path(paths, ID).read_bytes() == b"garbage\n"


def test_a_record_of_a_newer_version_is_passed_over(paths: Paths) -> None:
    journal = Journal.create(paths, Opened(ID), OWNED)
    journal.close()
    with journal.path.open("ab") as file:
        file.write(b'{"record":"Invented","x":1}\n{"record":"Counted","received":2,"lost":3}\n')
    state = read_journal(journal.path)
    assert state is not None
    assert state.received == 2


def test_a_long_journal_is_replaced_by_its_state(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIZES", Sizes(journal=4096))
    journal = Journal.create(paths, Opened(ID), OWNED)
    journal.append(Attached("s", {"cwd": "/w", "_meta": {"rules": "r" * 500}}))
    sizes = set[int]()
    for number in range(2000):
        journal.append(GateOpened(f"1.{number}", "m", "s"), Counted(number))
        journal.append(GateClosed(f"1.{number}"))
        sizes.add(journal.path.stat().st_size)
        assert journal.path.stat().st_size == journal._size
    assert max(sizes) < 4096 + 500
    assert read_journal(journal.path) == journal.state
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert [path.name for path in paths.journals.iterdir()] == [f"{ID}.jsonl"]
    journal.close()


def test_a_state_above_the_bound_is_not_rewritten_each_time(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SIZES", Sizes(journal=1000))
    journal = Journal.create(paths, Opened(ID), OWNED)
    journal.append(Attached("s", {"rules": "r" * 5000}))
    files = set[int]()
    for number in range(100):
        journal.append(Counted(number))
        files.add(journal.path.stat().st_ino)
    assert len(files) <= 2
    assert read_journal(journal.path) == journal.state
    journal.close()


def test_killed_while_writing_it_tells_a_prefix(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that also compacts all the time, killed at a random moment, many times."""
    monkeypatch.setattr(module, "SIZES", Sizes(journal=600))
    for _ in range(20):
        child = os.fork()
        if child == 0:
            journal = Journal.create(paths, Opened(ID), OWNED)
            for number in range(10**9):
                journal.append(GateOpened("1.1", "m", "s"), Counted(number))
                journal.append(GateClosed("1.1"))
        while (state := read_journal(journal_path(paths, ID))) is None or state.received < 20:
            pass
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        state = read_journal(journal_path(paths, ID))
        assert state is not None
        assert state.received >= 20
        adopted = Journal.adopt(paths, ID, OWNED)
        adopted.append(Counted(5))
        assert read_journal(adopted.path) == adopted.state
        adopted.remove()
        assert sweep(paths, lambda state: False) == []  # only a half written file beside it, if any
        assert not list(paths.journals.iterdir())


def test_a_full_disk_loses_only_what_was_refused(paths: Paths) -> None:
    journal = Journal.create(paths, Opened(ID), OWNED)
    size = journal.path.stat().st_size
    before = copy.deepcopy(journal.state)
    # Past the limit a write is cut short or fails, as on a full disk.
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        for room in (0, 10):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, limit[1]))
            with pytest.raises(JournalError, match=ID):
                journal.append(Attached("s", {"cwd": "/w"}))
            assert journal.state == before
            assert journal.path.stat().st_size == size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    journal.append(Detached("s"), Counted(1))
    assert read_journal(journal.path) == journal.state
    journal.close()


def test_sweeping_keeps_the_living(paths: Paths) -> None:
    ids = [secrets.token_hex(16) for _ in range(4)]
    for number, connection in enumerate(ids):
        Journal.create(paths, Opened(connection), Owned("worker_00", number, 0.0)).close()
        assert Leases(paths).take(f"s{number}", connection) is None
    (paths.journals / "stray.new").write_bytes(b"x")
    journal_path(paths, "f" * 32).write_bytes(b"not a journal\n")
    assert len(read_journals(paths)) == 4
    forget(paths, ids[3])
    assert Leases(paths).holder("s3") is None
    removed = sweep(paths, lambda state: state.pid == 1)
    assert {state.connection for state in removed} == {ids[0], ids[2]}
    assert [state.connection for state in read_journals(paths)] == [ids[1]]
    assert len(list(paths.journals.iterdir())) == 1
    assert [Leases(paths).holder(f"s{n}") for n in range(4)] == [None, ids[1], None, None]
