"""What a bridge keeps for the next leader."""

from __future__ import annotations

import json
from typing import Any

from harness.leader.memory import Memory

META = {"x.ai/hooks": {"pre_tool_use": [{"hookCallbackIds": ["h"]}]}, "yoloMode": True}


def says(memory: Memory, number: Any, method: str, **params: Any) -> None:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    memory.from_client(json.dumps(message).encode())


def hears(memory: Memory, number: Any, **outcome: Any) -> None:
    memory.from_leader(json.dumps({"jsonrpc": "2.0", "id": number, **outcome}, separators=(",", ":")))


def opened() -> Memory:
    memory = Memory()
    says(memory, 1, "initialize", protocolVersion=1, clientCapabilities={"x": 1})
    hears(memory, 1, result={})
    says(memory, "n", "session/new", cwd="/w", mcpServers=[{"name": "m"}], _meta=META)
    hears(memory, "n", result={"sessionId": "s1"})
    return memory


def test_a_session_comes_back_with_its_hooks() -> None:
    first, load = opened().replay()
    assert (first["method"], first["params"]["clientCapabilities"]) == ("initialize", {"x": 1})
    assert load["method"] == "session/load"
    assert load["params"] == {"sessionId": "s1", "cwd": "/w", "mcpServers": [{"name": "m"}], "_meta": META}


def test_only_what_succeeded_and_is_open_comes_back() -> None:
    memory = opened()
    says(memory, 2, "session/load", sessionId="s2", cwd="/v", mcpServers=[])
    hears(memory, 2, error={"code": -1, "message": "no"})
    says(memory, 3, "session/load", sessionId="s3", cwd="/v", mcpServers=[])
    hears(memory, 3, result={})
    says(memory, 4, "session/close", sessionId="s1")
    hears(memory, 4, result={})
    assert [m["params"].get("sessionId") for m in memory.replay()] == [None, "s3"]
    assert memory.reconnected()["params"] == {"sessionId": "s3"}


def test_every_open_request_gets_one_error() -> None:
    memory = opened()
    for number in (5, "5", None):
        says(memory, number, "session/prompt", sessionId="s1", prompt=[])
    hears(memory, "5", result={})
    memory.from_client(b'{"method":"session/cancel","params":{"sessionId":"s1"}}')
    memory.from_leader('{"jsonrpc":"2.0","id":5,"method":"_x.ai/hooks/run","params":{}}')
    assert [answer["id"] for answer in memory.lost()] == [5, None]
    assert memory.lost() == []


def test_what_is_no_message_is_passed_over() -> None:
    memory = Memory()
    deep = "[" * 100_000 + "]" * 100_000
    lines = (b"", b"x", b"[]", b'{"id":1}', b'{"id":1,"method":2}', b'{"id":1,"method":["x"]}', b"\xff")
    for line in (*lines, deep.encode(), b'{"id":[1],"method":"x"}'):
        memory.from_client(line)
    for payload in ("", "x", "[]", '{"id":{}}', deep):
        memory.from_leader(payload)
    assert memory.lost() == []
    assert memory.replay() == []
    assert memory.reconnected()["params"] == {}
