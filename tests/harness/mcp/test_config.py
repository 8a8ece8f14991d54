"""Entries of ``mcpServers``: what is no server, what is kept secret, how long each may take."""

from __future__ import annotations

from typing import Any

import pytest

from harness.limits import LIMITS, SIZES
from harness.mcp.config import HttpServer, StdioServer, Times, Unusable, read_servers
from tests.harness.mcp.conftest import server_of

HTTP = {"type": "http", "name": "a", "url": "http://127.0.0.1:1/x"}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (5, "no object with a name"),
        ({"type": "http", "url": "http://x"}, "no object with a name"),
        ({"name": "a"}, "no command"),
        ({"name": "a", "command": "x\0y"}, "no command"),
        ({"name": "a", "command": "x", "args": "text"}, "args"),
        ({"name": "a", "command": "x", "args": [1]}, "args"),
        ({"name": "a", "command": "x", "env": [{"name": "K"}]}, "env"),
        ({"name": "a", "command": "x", "env": [{"name": "A=B", "value": ""}]}, "env"),
        ({"name": "a", "type": "carrier-pigeon"}, "type"),
        ({**HTTP, "url": "file:///etc/passwd"}, "url"),
        ({**HTTP, "url": "http://"}, "url"),
        ({**HTTP, "url": "http://x:99999"}, "url"),
        ({**HTTP, "url": "http://[::1"}, "url"),
        ({**HTTP, "url": 5}, "url"),
        ({**HTTP, "headers": [{"name": "bad name", "value": ""}]}, "headers"),
        ({**HTTP, "headers": [{"name": "X", "value": "a\r\nHost: evil"}]}, "headers"),
        ({**HTTP, "headers": [{"name": "X", "value": 5}]}, "headers"),
    ],
)
def test_entries_that_are_no_server(entry: Any, why: str) -> None:
    (found,) = read_servers([entry], {}, "s")
    assert isinstance(found, Unusable)
    assert why in found.why


def test_the_first_of_a_name_counts_and_there_are_only_so_many() -> None:
    found = read_servers([HTTP, HTTP], {}, "s")
    assert [type(one) for one in found] == [HttpServer, Unusable]
    many = read_servers([{**HTTP, "name": f"a{i}"} for i in range(SIZES.mcp_servers + 1)], {}, "s")
    assert [i for i, one in enumerate(many) if isinstance(one, Unusable)] == [SIZES.mcp_servers]


def test_an_older_transport_is_tried_with_the_newer_one() -> None:
    assert isinstance(server_of({**HTTP, "type": "sse"}), HttpServer)


def test_a_header_may_name_the_session() -> None:
    pairs = [{"name": "X-S", "value": "{{session_id}} ${session_id}"}]
    server = server_of({**HTTP, "headers": pairs})
    assert isinstance(server, HttpServer)
    assert server.headers[0][1].reveal() == "session-1 session-1"


def test_nothing_of_a_server_shows_its_secrets() -> None:
    address = "https://user:word-of-passing@host:8443/mcp/0123456789abcdef?key=fedcba9876543210"
    http = server_of({**HTTP, "url": address, "headers": [{"name": "X", "value": "Bearer hunter2"}]})
    stdio = server_of({
        "name": "a", "command": "run", "args": ["--key=0123456789abcdef"], "env": {"K": "hunter2"},
    })  # fmt: skip
    shown = f"{http} {stdio} {http.place} {stdio.place}"
    hidden = ("hunter2", "0123456789abcdef", "fedcba", "word-of-passing")
    assert not [secret for secret in hidden if secret in shown]
    assert http.place == "https://host:8443"
    assert {"Bearer hunter2", "hunter2", "0123456789abcdef", "fedcba9876543210"} <= set(http.secrets())
    assert "word-of-passing" in http.secrets()
    assert not any(secret and secret in "https://host:8443" for secret in http.secrets())
    assert {"--key=0123456789abcdef", "hunter2"} <= set(stdio.secrets())


def test_a_process_gets_little_of_the_engines_environment() -> None:
    server = server_of({"name": "a", "command": "run", "env": [{"name": "KEY", "value": "v"}]})
    assert isinstance(server, StdioServer)
    environ = {"PATH": "/bin", "HOME": "/h", "XAI_API_KEY": "k", "GROK_LEADER_SOCKET": "/l"}
    assert server.environment(environ, "s") == {
        "PATH": "/bin", "HOME": "/h", "GROK_SESSION_ID": "s", "KEY": "v", "GROK_LEADER_SOCKET": "/l",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wishes", "startup", "call", "slow"),
    [
        (None, LIMITS.mcp_startup, LIMITS.mcp_call, LIMITS.mcp_call),
        ({"startupTimeoutMs": 500, "toolTimeoutMs": 21_600_000}, 0.5, 21_600, 21_600),
        ({"toolTimeoutMs": 1000, "toolTimeoutsMs": {"slow": 9000}}, LIMITS.mcp_startup, 1, 9),
        (
            {"startupTimeoutMs": -1, "toolTimeoutMs": True},
            LIMITS.mcp_startup,
            LIMITS.mcp_call,
            LIMITS.mcp_call,
        ),
        (
            {"toolTimeoutMs": 1e15, "toolTimeoutsMs": 5},
            LIMITS.mcp_startup,
            LIMITS.mcp_longest,
            LIMITS.mcp_longest,
        ),
    ],
)
def test_times(wishes: Any, startup: float, call: float, slow: float) -> None:
    times = Times.of(wishes)
    assert (times.startup, times.of_call("x"), times.of_call("slow")) == (startup, call, slow)
