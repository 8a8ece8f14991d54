"""The files of a session: torn lines, bounds, other processes, lists."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.limits import SIZES
from harness.session.appendfile import AppendFile, dump
from harness.session.history import Entry
from harness.session.journal import Journal
from harness.session.store import Store
from harness.session.updates import Updates
from harness.session.usage import TurnUsage

SESSION = "0190aaaa-0000-7000-8000-000000000000"
CWD = "/some/where"


def opened(tmp_path: Path) -> tuple[Store, Journal]:
    store = Store(tmp_path)
    journal = store.create(SESSION, CWD)
    journal.note()
    return store, journal


async def reopened(store: Store) -> Journal:
    found = store.find(SESSION, CWD)
    assert found is not None
    return store.open(found)


def texts(entries: list[Entry]) -> list[str]:
    updates = (kept["params"]["update"] for kept in entries)
    return [u["content"]["text"] if "content" in u else u["sessionUpdate"] for u in updates]


@given(st.lists(st.text(max_size=30), max_size=5), st.binary(max_size=40))
@settings(max_examples=30, deadline=None)
def test_a_torn_line_is_taken_away(tmp_path_factory: Any, values: list[str], torn: bytes) -> None:
    path = tmp_path_factory.mktemp("torn") / "file.jsonl"
    file = AppendFile(path)
    file.append(*(dump([value]) for value in values))
    file.close()
    with path.open("ab") as raw:
        raw.write(torn.replace(b"\n", b" "))
    file = AppendFile(path)
    file.append(dump(["next"]))
    assert file.values() == [[value] for value in [*values, "next"]]
    file.close()


async def test_a_text_is_there_while_it_is_written_and_afterwards(tmp_path: Path) -> None:
    store, journal = opened(tmp_path)
    updates = Updates(SESSION)
    for text in ("a", "b", "c"):
        journal.record(updates.message(text))
    assert texts(await journal.entries()) == ["abc"]
    journal.record(updates.thought("d"))
    journal.record(updates.turn_completed("p", "end_turn", TurnUsage(), {}, {}))
    assert texts(await journal.entries()) == ["abc", "d", "turn_completed"]
    journal.close()
    journal = await reopened(store)
    journal.restore()
    assert texts(await journal.entries()) == ["abc", "d", "turn_completed"]
    journal.close()


@pytest.mark.parametrize("settled", [False, True])
async def test_a_text_that_a_process_left_is_taken_up_once(tmp_path: Path, settled: bool) -> None:
    store, journal = opened(tmp_path)
    updates = Updates(SESSION)
    for text in ("a", "b", "c"):
        journal.record(updates.message(text))
    running = (journal.folder / "running_text.jsonl").read_bytes()
    journal.close()  # settles it
    if not settled:
        (journal.folder / "updates.jsonl").write_bytes(b"")
    (journal.folder / "running_text.jsonl").write_bytes(running + b'[{"eventId": "torn')
    journal = await reopened(store)
    saved = journal.restore()
    assert texts(await journal.entries()) == ["abc"]
    assert saved.first_event > 2
    journal.close()


async def test_an_interrupted_turn_is_told_once(tmp_path: Path) -> None:
    store, journal = opened(tmp_path)
    updates = Updates(SESSION)
    journal.began("p1")
    journal.record(updates.user_message("go", "m", 0, hidden=False))
    journal.message({"role": "user", "content": "go"})
    journal.record(updates.tool_call("call_1", "run", {}, None))
    (journal.folder / "terminal").mkdir()
    (journal.folder / "terminal/call_1.log").write_text("printed so far\n")
    journal.close()
    for _ in range(2):
        journal = await reopened(store)
        saved = journal.restore()
        found = [kept["params"]["update"] for kept in await journal.entries()]
        assert [u.get("status") for u in found] == [None, None, "failed", None]
        assert "printed so far" in found[2]["content"][0]["content"]["text"]
        assert (found[3]["prompt_id"], found[3]["stop_reason"]) == ("p1", "interrupted")
        assert [m["role"] for m in saved.messages] == ["user", "user"]
        journal.close()


async def test_one_process_at_a_time(tmp_path: Path) -> None:
    store, journal = opened(tmp_path)
    found = store.find(SESSION, CWD)
    assert found is not None
    with pytest.raises(BlockingIOError):
        store.open(found)
    journal.close()
    store.open(found).close()


async def test_nobody_else_may_read(tmp_path: Path) -> None:
    _, journal = opened(tmp_path)
    journal.record(Updates(SESSION).mode("plan"))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in journal.folder.iterdir()}
    assert modes == {0o600}
    parents = (journal.folder, journal.folder.parent, journal.folder.parent.parent)
    assert {stat.S_IMODE(path.stat().st_mode) for path in parents} == {0o700}
    journal.close()


async def test_old_turns_go_and_no_line_is_beyond_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SIZES, "session_history", 20_000)
    monkeypatch.setattr(SIZES, "session_line", 4_000)
    monkeypatch.setattr(SIZES, "session_at_once", 1_000)
    store, journal = opened(tmp_path)
    updates = Updates(SESSION)
    for index in range(40):
        journal.began(f"p{index}")
        journal.record(updates.user_message(f"prompt {index}", "m", index, hidden=False))
        journal.record(updates.message("x" * (50_000 if index == 38 else 1_000)))
        journal.record(updates.turn_completed(f"p{index}", "end_turn", TurnUsage(), {}, {}))
    found = texts(await journal.entries())
    assert found[0].startswith("prompt ")
    assert "prompt 39" in found
    assert "prompt 0" not in found
    assert (journal.folder / "updates.jsonl").stat().st_size < 30_000
    journal.close()
    journal = await reopened(store)
    assert journal.restore().turns == 40
    journal.close()


async def test_a_full_disk_costs_the_history_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, journal = opened(tmp_path)
    updates = Updates(SESSION)
    journal.record(updates.mode("plan"))

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.write", full)
        journal.record(updates.mode("default"))
        journal.message({"role": "user", "content": "x"})
    journal.record(updates.mode("plan"))
    assert len(await journal.entries()) == 2
    journal.close()


async def test_a_replaced_conversation(tmp_path: Path) -> None:
    store, journal = opened(tmp_path)
    for text in ("a", "b"):
        journal.message({"role": "user", "content": text})
    journal.replaced([{"role": "user", "content": "short"}])
    journal.message({"role": "user", "content": "next"})
    journal.close()
    journal = await reopened(store)
    assert [m["content"] for m in journal.restore().messages] == ["short", "next"]
    journal.close()


def test_lists_and_names(tmp_path: Path) -> None:
    store = Store(tmp_path)
    long = "/" + "/".join(["ö" * 60] * 6)
    for cwd in (CWD, long):
        journal = store.create(SESSION, cwd)
        journal.record(Updates(SESSION).mode("plan"))
        journal.note(title=f"in {cwd}")
        journal.close()
    assert {s.title for s in store.all()} == {f"in {CWD}", f"in {long}"}
    assert [s.cwd for s in store.all(long)] == [long]
    assert (store.folder(long, SESSION).parent / ".cwd").read_text() == long
    for wrong in ("../..", "", SESSION.upper(), "x"):
        assert store.find(wrong, CWD) is None
        store.delete(wrong, CWD)
    store.delete(SESSION, CWD)
    assert [s.cwd for s in store.all()] == [long]
    store.delete(SESSION)
    assert store.all() == []


def test_a_summary_that_cannot_be_read_is_no_session(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = store.folder(CWD, SESSION)
    folder.mkdir(parents=True)
    for content in ("", "[]", '{"info": 1}', json.dumps({"info": {"id": SESSION, "cwd": "/other"}})):
        (folder / "summary.json").write_text(content)
        assert store.find(SESSION, CWD) is None
