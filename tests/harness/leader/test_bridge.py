"""A bridge between a client and a leader that are both the test's own."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import bridge
from harness.leader.frames import FrameReader, acp
from harness.limits import EngineLimits, EngineSizes

Message = dict[str, Any]

#: More than a socket and a pipe hold together.
MUCH = "x" * (3 << 20)


class Small(EngineSizes):
    reconnect_tries = 3
    frame = 2 * len(MUCH)


class Short(EngineLimits):
    leader_spawn = 0.01
    reconnect_first = 0.01
    reconnect_last = 0.02
    bridge_flush = 10.0


class Connection:
    """One connection of the bridge, at the leader."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(30)
        self.socket, self._reader, self._waiting = connected, FrameReader(), list[Message]()
        assert self._next()["type"] == "register"

    def _next(self) -> Message:
        while not self._waiting:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._waiting += self._reader.feed(data)
        return self._waiting.pop(0)

    def hears(self) -> Message:
        return dict(json.loads(self._next()["payload"]))

    def says(self, **message: Any) -> None:
        self.socket.sendall(acp(json.dumps({"jsonrpc": "2.0", **message})))


class Stage:
    """The bridge in a thread, its stdin and stdout, and who listens at its socket."""

    def __init__(self, path: Path, stdin: int, stdout: int) -> None:
        self.stdin, self._lines = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.settimeout(30)
        self.listener.bind(str(path))
        self.listener.listen()
        self.code: int | None = None
        self._thread = threading.Thread(target=self._run, args=[str(path)], daemon=True)
        self._thread.start()

    def _run(self, path: str) -> None:
        self.code = bridge.run(path, {})
        os.close(bridge._OUT)

    def leader(self) -> Connection:
        return Connection(self.listener.accept()[0])

    def writes(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def says(self, **message: Any) -> None:
        self.writes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def hears(self) -> Message:
        return dict(json.loads(self._lines.readline()))

    def ended(self) -> int | None:
        """Behind the end of its output."""
        assert self._lines.readline() == b""
        self._thread.join(30)
        return self.code

    def close(self) -> None:
        for held in (self.stdin, self._lines, self.listener):
            with contextlib.suppress(OSError):
                held.close()
        self._thread.join(30)


@pytest.fixture
def stage(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    for name, value in (("_IN", stdin), ("_OUT", stdout), ("SIZES", Small()), ("LIMITS", Short())):
        monkeypatch.setattr(bridge, name, value)
    monkeypatch.setattr(bridge._Bridge, "_start_leader", lambda _: None)
    made = Stage(short_tmp / "s", to_stdin, from_stdout)
    yield made
    made.close()
    os.close(stdin)


def opened(stage: Stage, **meta: Any) -> Connection:
    """A client with one session."""
    leader = stage.leader()
    stage.says(id=1, method="initialize", params={})
    stage.says(id=2, method="session/new", params={"cwd": "/w", "mcpServers": [], "_meta": meta})
    for result in ({}, {"sessionId": "s"}):
        leader.says(id=leader.hears()["id"], result=result)
        assert stage.hears()["result"] == result
    return leader


def test_the_rest_of_a_line_that_is_too_long_is_not_a_line(stage: Stage) -> None:
    leader = stage.leader()
    inner = b'{"jsonrpc":"2.0","id":1,"method":"never said"}'
    stage.writes(b"x" * (Small.frame + 1))
    assert stage.hears()["error"]["code"] == -32600
    stage.writes(inner + b"\n")
    stage.says(id=2, method="said")
    assert leader.hears()["method"] == "said"
    leader.says(id=2, result={})
    assert stage.hears()["id"] == 2, "one error for one line"


def test_a_replay_that_was_cut_off_leaves_nothing_for_the_next_one(stage: Stage) -> None:
    first = opened(stage, much=MUCH)
    stage.says(id=3, method="session/prompt", params={"sessionId": "s"})
    assert first.hears()["id"] == 3
    first.socket.close()
    second = stage.leader()
    second.says(id=second.hears()["id"], result={})
    second.socket.recv(1000)  # of the load
    second.socket.close()
    third = stage.leader()
    for method in ("initialize", "session/load"):
        request = third.hears()
        assert request["method"] == method
        third.says(id=request["id"], result={})
    assert request["params"]["_meta"] == {"much": MUCH}
    assert stage.hears()["method"] == "x.ai/leader_reconnected"
    lost = stage.hears()
    assert (lost["id"], lost["error"]["code"]) == (3, -32603)
    stage.says(id=4, method="y")
    assert third.hears()["id"] == 4
    stage.stdin.close()
    assert stage.ended() == 0


def test_who_finds_no_leader_any_more_tells_its_client(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = opened(stage)
    for number in (3, "four"):
        stage.says(id=number, method="session/prompt", params={"sessionId": "s"})
        leader.hears()
    stage.listener.close()
    leader.socket.close()
    answers = [stage.hears() for _ in range(2)]
    assert [(a["id"], a["error"]["code"]) for a in answers] == [(3, -32603), ("four", -32603)]
    assert stage.ended() == 1
    assert "no other one can be reached" in capsys.readouterr().err


def test_what_waits_for_a_client_that_has_said_all_still_goes_out(stage: Stage) -> None:
    leader = opened(stage)
    leader.says(id=9, result=MUCH)
    begun = stage._lines.peek(1)  # the message has come whole, and does not fit into the pipe
    assert begun
    stage.stdin.close()
    assert stage.hears()["result"] == MUCH
    assert stage.ended() == 0


def test_a_deep_line_does_not_end_it(stage: Stage) -> None:
    leader = opened(stage)
    depth = 100_000
    line = b'{"jsonrpc":"2.0","id":3,"method":"x","params":' + b"[" * depth + b"]" * depth + b"}"
    stage.writes(line + b"\n")
    assert leader._next()["payload"] == line.decode(), "the leader's to judge"
    leader.says(id=None, error={"code": -32700, "message": "Parse error"})
    assert stage.hears()["error"]["code"] == -32700
