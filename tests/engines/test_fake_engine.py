"""The fake engine itself: what other tests rely on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.fake import FakeEngine, do


class Pair:
    """A leader and bridges of one fake engine, spoken to with blocking pipes."""

    def __init__(self, folder: Path, **knobs: Any) -> None:
        self.engine = FakeEngine(folder, **knobs)
        self.socket = folder / "leader.sock"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *role: str) -> subprocess.Popen[bytes]:
        argv = [str(self.engine.path), "--permission-mode", "default", "agent", *role]
        process = subprocess.Popen(
            [*argv, "--leader-socket", str(self.socket)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.processes.append(process)
        return process

    def leader(self) -> subprocess.Popen[bytes]:
        process = self.start("leader", "--no-exit-on-disconnect")
        deadline = time.monotonic() + 10
        while not self.socket.exists():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return process

    def bridge(self) -> subprocess.Popen[bytes]:
        return self.start("--leader", "stdio")

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()


@pytest.fixture
def pair(short_tmp: Path) -> Iterator[Pair]:
    made = Pair(short_tmp)
    yield made
    made.close()


def say(bridge: subprocess.Popen[bytes], **message: Any) -> None:
    bridge.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    bridge.stdin.flush()


def until(bridge: subprocess.Popen[bytes], **wanted: Any) -> list[dict[str, Any]]:
    """Messages up to the first that has these fields (included)."""
    seen = []
    while True:
        line = bridge.stdout.readline()
        assert line, f"the bridge ended after {seen}"
        seen.append(json.loads(line))
        if all(seen[-1].get(key) == value for key, value in wanted.items()):
            return seen


def new_session(bridge: subprocess.Popen[bytes], cwd: Path, **meta: Any) -> str:
    say(bridge, id="n", method="session/new", params={"cwd": str(cwd), "mcpServers": [], "_meta": meta})
    return until(bridge, id="n")[-1]["result"]["sessionId"]


def prompt(bridge: subprocess.Popen[bytes], sid: str, text: str, number: int = 7) -> None:
    blocks = [{"type": "text", "text": text}]
    say(bridge, id=number, method="session/prompt", params={"sessionId": sid, "prompt": blocks})


def test_turn_with_denied_and_allowed_tool(pair: Pair, tmp_path: Path) -> None:
    pair.leader()
    bridge = pair.bridge()
    hooks = {"pre_tool_use": [{"hookCallbackIds": ["h"], "timeout": 20}]}
    sid = new_session(bridge, tmp_path, **{"x.ai/hooks": hooks})
    for decision in ("deny", "allow"):
        marker = tmp_path / decision
        prompt(bridge, sid, do({"tool": "write", "marker": str(marker)}))
        hook = until(bridge, method="_x.ai/hooks/run")[-1]
        say(bridge, id=hook["id"], result={"decision": decision})
        assert until(bridge, id=7)[-1]["result"]["stopReason"] == "end_turn"
        assert marker.exists() == (decision == "allow")


def test_unanswered_hook_fails_open(pair: Pair, tmp_path: Path) -> None:
    pair.leader()
    bridge = pair.bridge()
    hooks = {"pre_tool_use": [{"hookCallbackIds": ["h"], "timeout": 0.2}]}
    sid = new_session(bridge, tmp_path, **{"x.ai/hooks": hooks})
    prompt(bridge, sid, do({"tool": "write", "marker": str(tmp_path / "ran")}))
    until(bridge, id=7)
    assert (tmp_path / "ran").exists()


def test_load_replays_and_cancel_ends(pair: Pair, tmp_path: Path) -> None:
    pair.leader()
    first, second = pair.bridge(), pair.bridge()
    sid = new_session(first, tmp_path)
    prompt(first, sid, do({"say": "hello", "chunks": 2}, {"sleep": 60}))
    until(first, method="session/update")
    say(second, id=1, method="session/load", params={"sessionId": sid, "cwd": str(tmp_path)})
    assert until(second, id=1)[0]["params"]["_meta"]["isReplay"] is True
    say(second, method="session/cancel", params={"sessionId": sid})
    assert until(first, id=7)[-1]["result"]["stopReason"] == "cancelled"


def test_sessions_outlive_their_leader(pair: Pair, tmp_path: Path) -> None:
    first = pair.leader()
    bridge = pair.bridge()
    sid = new_session(bridge, tmp_path)
    prompt(bridge, sid, "kept")
    until(bridge, id=7)
    first.kill()
    first.wait()
    pair.socket.unlink()
    pair.leader()
    second = pair.bridge()
    say(second, id=1, method="session/load", params={"sessionId": sid, "cwd": str(tmp_path)})
    assert "kept" in str(until(second, id=1)[0])


def test_second_leader_refuses(pair: Pair) -> None:
    pair.leader()
    second = pair.start("leader")
    assert second.wait(10) == 1
    assert b"Another leader already holds the lock" in second.stderr.read()


def test_bridge_without_a_leader_exits(pair: Pair) -> None:
    bridge = pair.bridge()
    assert bridge.wait(10) == 1
    assert b"Failed to spawn leader" in bridge.stderr.read()


def test_noise_pieces_and_line_ends(pair: Pair) -> None:
    pair.leader()
    pair.engine.set(bridge={"noise": ["banner\n", '"str"\n'], "pieces": 1, "crlf": True})
    bridge = pair.bridge()
    say(bridge, id=1, method="initialize", params={})
    assert [bridge.stdout.readline() for _ in range(2)] == [b"banner\n", b'"str"\n']
    assert bridge.stdout.readline().endswith(b"\r\n")


def test_dies_and_hangs_on_a_method(pair: Pair, tmp_path: Path) -> None:
    pair.leader()
    pair.engine.set(bridge={"die_on": {"session/new": 5}, "hang_on": ["session/list"]})
    bridge = pair.bridge()
    say(bridge, id=1, method="session/list", params={})
    say(bridge, id=2, method="initialize", params={})
    assert until(bridge, id=2)[0]["id"] == 2
    say(bridge, id=3, method="session/new", params={"cwd": str(tmp_path)})
    assert bridge.wait(10) == 5


def test_ignores_eof_and_term_and_leaves_children(pair: Pair) -> None:
    pair.leader()
    pair.engine.set(bridge={"ignore_eof": True, "ignore_term": True, "children": 1})
    bridge = pair.bridge()
    say(bridge, id=1, method="initialize", params={})
    until(bridge, id=1)
    bridge.stdin.close()
    bridge.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        bridge.wait(0.3)
    family = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _names(pid, pair.socket)]
    assert len(family) == 4  # leader, bridge, child and grandchild
    for pid in family:
        os.kill(pid, signal.SIGKILL)


def test_exits_at_once_and_lies_about_its_version(pair: Pair) -> None:
    pair.engine.set(version="grok 9.9.9", leader={"exit_at_once": {"code": 3, "stderr": "no licence"}})
    leader = pair.start("leader")
    assert leader.wait(10) == 3
    assert leader.stderr.read() == b"no licence"
    assert subprocess.check_output([pair.engine.path, "--version"]) == b"grok 9.9.9\n"


def _names(pid: int, socket: Path) -> bool:
    try:
        return str(socket).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
