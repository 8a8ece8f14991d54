"""The tables of ACP: consistent in themselves, and as docs/protocol.md prints them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gateway.wire import acp
from gateway.wire.acp import CloseCode, ErrorCode
from gateway.wire.limits import Limits

PROTOCOL = (Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("x.ai/a", "_x.ai/a"),
        ("_x.ai/a", "_x.ai/a"),
        ("___x.ai/a/x.ai/b", "_x.ai/a/x.ai/b"),
        ("session/new", "session/new"),
        ("X.ai/a", "X.ai/a"),
        (" x.ai/a", " x.ai/a"),
        ("x-ai/a", "x-ai/a"),
        ("", ""),
    ],
)
def test_an_extension_has_one_spelling(name: str, canonical: str) -> None:
    assert acp.canonical_method(name) == canonical
    assert acp.canonical_method(canonical) == canonical


def test_the_list_is_written_in_that_spelling() -> None:
    for method, rule in acp.RULES.items():
        assert acp.canonical_method(method) == method
        assert rule.limit is None or rule.limit in Limits.__dataclass_fields__
        assert rule.kind == "request" or rule.limit is None
    assert [m for m, rule in acp.RULES.items() if rule.kind == "request" and rule.limit is None] == [
        "session/prompt"
    ]
    assert not acp.GUARDED & acp.RULES.keys()


def test_the_constant_initialize_offers_nothing() -> None:
    capabilities = acp.INITIALIZE["clientCapabilities"]
    assert capabilities == {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}


@pytest.mark.parametrize("code", ErrorCode)
def test_gateway_errors_say_reason_and_hope(code: ErrorCode) -> None:
    error = json.loads(acp.gateway_error(b"1e400", code, "text", "s").replace(b"1e400", b"1"))["error"]
    assert error["code"] == code
    assert error["data"] == {
        "reason": code.name.lower(),
        "retryable": error["data"]["retryable"],
        "sessionId": "s",
    }
    assert error["data"]["retryable"] is (code not in (ErrorCode.TOO_LARGE, ErrorCode.REFUSED_METHOD))
    assert "sessionId" not in json.loads(acp.gateway_error(b"1", code, "text"))["error"]["data"]


def test_the_documentation_prints_the_tables() -> None:
    printed = re.search(r"```json\n(.*?)```", PROTOCOL, re.DOTALL)
    assert printed is not None
    assert json.loads(printed[1]) == acp.INITIALIZE
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| (\w+) \| (.+) \|$", PROTOCOL, re.MULTILINE)
    limits = Limits()
    assert rows == [
        (method, rule.kind, rule.session, f"{seconds:g} s" if (seconds := rule.seconds(limits)) else "none")
        for method, rule in acp.RULES.items()
    ]
    for code in ErrorCode:
        assert f"| {code.value} | `{code.name.lower()}` |" in PROTOCOL
    for close in CloseCode:
        assert f"| {close.value} | " in PROTOCOL
