"""The screen: what a client's message becomes, and that no spelling of a refused one passes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import acp
from gateway.wire.jsonrpc import dump
from gateway.wire.limits import SIZES, Limits
from workers.screening import Screen, Verdict

MINE, THEIRS, FREE = "mine", "theirs", "free"
IDENTIFIER = "gateway-0123"


class Sessions:
    def attached(self, session_id: str) -> bool:
        return session_id == MINE

    def elsewhere(self, session_id: str) -> bool:
        return session_id == THEIRS

    def directory(self, path: str) -> bool:
        return path == "/work"


def receive(data: bytes, limits: Limits | None = None) -> Verdict:
    return Screen(IDENTIFIER, Sessions(), limits or Limits()).receive(data)


def request(method: str, params: Any = None, number: Any = 1) -> bytes:
    value = {"jsonrpc": "2.0", "id": number, "method": method}
    return dump(value if params is None else value | {"params": params})


def notification(method: str, params: Any) -> bytes:
    return dump({"jsonrpc": "2.0", "method": method, "params": params})


def error_of(verdict: Verdict) -> dict[str, Any]:
    assert verdict.action == "answer"
    return json.loads(verdict.answer)["error"]


def params_for(method: str, session_id: str) -> dict[str, Any]:
    """Parameters with which ``method`` passes when ``session_id`` is the sender's."""
    if method == "session/new":
        return {"cwd": "/work", "mcpServers": []}
    rule = acp.RULES[method]
    return {} if rule.session == "no" else {"sessionId": session_id}


def message_for(method: str, params: dict[str, Any]) -> bytes:
    return (request if acp.RULES[method].kind == "request" else notification)(method, params)


# -- the table -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", acp.RULES)
def test_what_is_on_the_list_passes_for_an_own_session(method: str) -> None:
    data = message_for(method, params_for(method, MINE))
    verdict = receive(data)
    rule = acp.RULES[method]
    assert verdict.action == ("consume" if rule.effect in ("initialize", "gate_ack") else "forward")
    assert verdict.rule is rule
    assert verdict.session_id == (None if rule.session == "no" else MINE)
    assert verdict.message is not None
    assert rule.seconds(Limits()) == (getattr(Limits(), rule.limit) if rule.limit else None)
    if rule.effect not in ("new", "load"):
        assert verdict.message.data == data  # byte for byte


@pytest.mark.parametrize("method", [m for m, rule in acp.RULES.items() if m != "session/new"])
@pytest.mark.parametrize(("session_id", "code"), [(THEIRS, -32056), ("unknown", -32602)])
def test_no_message_names_a_session_of_others(method: str, session_id: str, code: int) -> None:
    verdict = receive(message_for(method, params_for(method, MINE) | {"sessionId": session_id}))
    rule = acp.RULES[method]
    if rule.session in ("opens", "free") and session_id == "unknown":
        assert verdict.action == "forward"  # the engine says whether there is such a session
    elif rule.kind == "notification":
        assert verdict.action == "drop"
        assert verdict.reason in ("attached_elsewhere", "invalid_params")
    else:
        error = error_of(verdict)
        assert error["code"] == code
        assert session_id in error["message"]
        if code == -32056:
            assert error["data"] == {
                "reason": "attached_elsewhere",
                "retryable": True,
                "sessionId": THEIRS,
            }


@pytest.mark.parametrize(
    "session",
    [
        "",
        "./mine",
        "mine/.",
        "../x",
        "mine\x00",
        "mine ",
        "MİNE",
        None,
        7,
        ["mine"],
        "x" * (SIZES.session_id + 1),
    ],
)
@pytest.mark.parametrize("method", ["session/load", "session/prompt", "_x.ai/session/delete"])
def test_a_session_has_one_spelling(session: Any, method: str) -> None:
    assert error_of(receive(request(method, {"sessionId": session})))["code"] == -32602


@pytest.mark.parametrize(
    "params", [{"session_id": MINE}, {"sessionId": MINE, "session_id": THEIRS}, {"session_id": THEIRS}]
)
@pytest.mark.parametrize("method", ["session/prompt", "session/list", "session/new", "_x.ai/session/info"])
def test_the_other_name_of_the_session_is_refused(params: dict[str, Any], method: str) -> None:
    error = error_of(receive(request(method, params_for(method, MINE) | params)))
    assert error["code"] == -32602
    assert "session_id" in error["message"]


def test_a_missing_session_is_said() -> None:
    for method, rule in acp.RULES.items():
        if rule.session in ("must", "opens", "free") and rule.kind == "request":
            assert error_of(receive(request(method, {})))["code"] == -32602
            assert error_of(receive(request(method)))["code"] == -32602
    assert receive(request("_x.ai/session/info", {})).action == "forward"


@pytest.mark.parametrize("params", [[], [MINE], [{"sessionId": MINE}]])
def test_positional_parameters_are_refused(params: list[Any]) -> None:
    assert error_of(receive(request("session/prompt", params)))["code"] == -32602


def test_the_kind_must_fit() -> None:
    assert error_of(receive(request("session/cancel", {"sessionId": MINE})))["code"] == -32600
    assert error_of(receive(request("pi/gate-ack", {"id": "1.1"})))["code"] == -32600
    assert receive(notification("session/prompt", {"sessionId": MINE})).action == "drop"
    assert receive(notification("session/new", {"cwd": "/work"})).action == "drop"


def test_bad_messages_are_answered() -> None:
    for data, code in [
        (b"x", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', -32600),
    ]:
        verdict = receive(data)
        assert error_of(verdict)["code"] == code
        assert json.loads(verdict.answer)["id"] is None
        assert verdict.reason in ("parse_error", "invalid_request")


# -- refused methods -------------------------------------------------------------------------------

REFUSED = [
    "x.ai/auth/info",
    "x.ai/auth/getBearerToken",
    "x.ai/auth/logout",
    "x.ai/getApiKey",
    "x.ai/setApiKey",
    "x.ai/fs/write_file",
    "x.ai/fs/read_file",
    "x.ai/terminal/create",
    "x.ai/terminal/pty/input",
    "x.ai/mcp/upsert",
    "x.ai/mcp/call",
    "x.ai/hooks/action",
    "x.ai/internal/evict_sessions",
    "x.ai/permissions/reset",
    "x.ai/yolo_mode_changed",
    "x.ai/session/update_mcp_servers",
    "x.ai/rewind/execute",
    "x.ai/git/commit",
    "x.ai/debug/anything",
    "x.ai/session/setup",
]


@pytest.mark.parametrize("method", REFUSED)
def test_what_is_not_on_the_list_is_refused_by_name(method: str) -> None:
    error = error_of(receive(request("_" + method, {"sessionId": MINE})))
    assert error["code"] == -32055
    assert error["data"] == {"reason": "refused_method", "retryable": False}
    assert method in error["message"]
    verdict = receive(notification("_" + method, {"sessionId": MINE}))
    assert (verdict.action, verdict.reason) == ("drop", "refused_method")


@pytest.mark.parametrize(
    "method", ["logout", "session/fork", "fs/write_text_file", "nonsense", "", "$/cancel"]
)
def test_other_methods_do_not_exist(method: str) -> None:
    assert error_of(receive(request(method, {"sessionId": MINE})))["code"] == -32601


def test_a_long_method_is_cut_in_the_answer() -> None:
    verdict = receive(request("_" + "m" * 10_000, {}))
    assert len(verdict.answer) < 500


@st.composite
def spellings(draw: st.DrawFn, methods: list[str]) -> tuple[str, bytes]:
    """A method of ``methods`` and a message that Grok, or a looser reader, may take for it."""
    name = draw(st.sampled_from(methods))
    outer = draw(st.sampled_from(["", "_", "__", "___", " ", "_ "])) + name
    if draw(st.booleans()):
        outer += draw(st.sampled_from(["/", " ", "\x00", "?", "#"]))
    if draw(st.booleans()):
        outer = outer.swapcase()
    escaped = "".join(f"\\u{ord(c):04x}" if draw(st.booleans()) else json.dumps(c)[1:-1] for c in outer)
    params: dict[str, Any] = {"sessionId": MINE}
    for _ in range(draw(st.integers(0, 2))):
        params = {"method": draw(st.sampled_from([name, "_" + name, outer])), "params": params}
    wrapper = draw(
        st.sampled_from([escaped, *(("_x.ai/session/info", "session/prompt") if len(params) > 1 else ())])
    )
    members = [b'"jsonrpc":"2.0"', b'"method":"%b"' % wrapper.encode(), b'"params":' + dump(params)]
    if draw(st.booleans()):
        members.append(b'"id":1')
    if draw(st.booleans()):
        members.append(
            draw(st.sampled_from([b'"method":"session/list"', b'"params":{}', b'"x":{"method":"y"}']))
        )
    return name, b"{%b}" % b",".join(draw(st.permutations(members)))


@given(spellings(REFUSED))
def test_no_spelling_of_a_refused_method_passes(sample: tuple[str, bytes]) -> None:
    verdict = receive(sample[1])
    if verdict.action == "forward":  # only a parameter of a method that may be used
        assert verdict.message is not None
        assert verdict.message.method in ("session/prompt",)
        assert verdict.rule is acp.RULES["session/prompt"]
    else:
        assert verdict.action in ("answer", "drop")


@given(spellings(["x.ai/session/info", "x.ai/task/kill"]))
def test_what_passes_has_the_one_spelling(sample: tuple[str, bytes]) -> None:
    verdict = receive(sample[1])
    if verdict.action == "forward":
        assert verdict.message is not None
        sent = json.loads(verdict.message.data)
        assert sent["method"] == verdict.message.method
        assert acp.RULES[sent["method"]] is verdict.rule
        if sent["method"].startswith("_"):
            assert sent["params"] == {"sessionId": MINE}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("x.ai/session/info", {"sessionId": MINE}),
        ("__x.ai/session/info", {"sessionId": MINE}),
        ("_x.ai/session/info", {"method": "x.ai/session/info", "params": {"sessionId": MINE}}),
        ("x.ai/session/info", {"method": "_x.ai/session/info", "params": {"sessionId": MINE}}),
    ],
)
def test_unusual_spellings_are_sent_in_the_usual_one(method: str, params: dict[str, Any]) -> None:
    verdict = receive(request(method, params, "é"))
    assert verdict.message is not None
    assert verdict.message.data == request("_x.ai/session/info", {"sessionId": MINE}, "é")


@pytest.mark.parametrize(
    "params",
    [
        {"method": "x.ai/session/info", "params": {"sessionId": THEIRS}},
        {"method": "x.ai/session/info", "params": {"sessionId": MINE}, "sessionId": THEIRS},
        {"method": "x.ai/getApiKey", "params": {"sessionId": MINE}},
        {"method": "x.ai/session/info"},
        {"method": 7, "params": {}},
        {"method": "x.ai/session/info", "params": {"method": "x.ai/getApiKey", "params": {}}},
        {"method": "x.ai/session/info", "params": "text"},
    ],
)
def test_wrapped_parameters_hide_nothing(params: dict[str, Any]) -> None:
    assert receive(request("_x.ai/session/info", params)).action == "answer"


# -- responses -------------------------------------------------------------------------------------


def test_responses_pass_unless_they_name_a_session_of_others() -> None:
    data = b'{"jsonrpc":"2.0","id":"1.7","result":{"outcome":{"outcome":"cancelled"}}}'
    verdict = receive(data)
    assert (verdict.action, verdict.rule) == ("forward", None)
    assert verdict.message is not None
    assert verdict.message.data == data
    for result in ({"sessionId": THEIRS}, {"sessionId": "unknown"}, {"session_id": MINE}):
        assert receive(dump({"jsonrpc": "2.0", "id": "1.7", "result": result})).action == "drop"
    assert receive(dump({"jsonrpc": "2.0", "id": "1.7", "result": {"sessionId": MINE}})).action == "forward"
    assert (
        receive(dump({"jsonrpc": "2.0", "id": "1.7", "error": {"code": 1, "message": ""}})).action
        == "forward"
    )


# -- size ------------------------------------------------------------------------------------------


def sized(text: bytes, head: bytes = b'{"jsonrpc":"2.0","id":1,"method":"session/prompt",') -> bytes:
    return head + b'"params":{"sessionId":"mine","prompt":["%b"]}}' % text


def test_the_size_rule_counts_what_grok_will_count() -> None:
    plain = sized(b"")
    doubled = plain.count(b'"') + plain.count(b"\\")
    fits = SIZES.grok_line - len(plain) - doubled
    assert receive(sized(b"x" * fits)).action == "forward"
    error = error_of(receive(sized(b"x" * (fits + 1))))
    assert error["code"] == -32054
    assert error["data"]["reason"] == "too_large"
    quotes = b'\\"' * (fits // 4)
    assert receive(sized(quotes)).action == "forward"
    assert error_of(receive(sized(quotes + b'\\"')))["code"] == -32054
    too_large = b'{"jsonrpc":"2.0","id":"1.7","result":["%b"]}' % (b"x" * SIZES.grok_line)
    verdict = receive(too_large)
    assert (verdict.action, verdict.reason) == ("drop", "too_large")


# -- parameters of sessions ------------------------------------------------------------------------


@pytest.mark.parametrize("cwd", [None, 7, "", "work", "./work", "/gone"])
def test_a_new_session_needs_a_folder(cwd: Any) -> None:
    error = error_of(receive(request("session/new", {"cwd": cwd, "mcpServers": []})))
    assert error["code"] == -32602
    assert "cwd" in error["message"]


UUID = "01a22d07-e18e-73b0-9b74-1a0b7296be23"


def test_a_chosen_session_id_is_an_attachment() -> None:
    class Lent(Sessions):
        def elsewhere(self, session_id: str) -> bool:
            return session_id == UUID

    data = request("session/new", {"cwd": "/work", "mcpServers": [], "_meta": {"sessionId": UUID}})
    assert receive(data).session_id == UUID
    verdict = Screen(IDENTIFIER, Lent(), Limits()).receive(data)
    assert error_of(verdict)["code"] == -32056
    for bad in (UUID.upper(), "{" + UUID + "}", UUID.replace("-", ""), "mine", 7, "urn:uuid:" + UUID):
        params = {"cwd": "/work", "mcpServers": [], "_meta": {"sessionId": bad}}
        assert error_of(receive(request("session/new", params)))["code"] == -32602


def test_a_load_carries_our_identifier() -> None:
    verdict = receive(request("session/load", {"sessionId": MINE, "cwd": "/gone", "_meta": {"rules": "r"}}))
    assert verdict.message is not None
    assert verdict.message.params["_meta"] == {"rules": "r", "clientIdentifier": IDENTIFIER}


def test_a_prompt_cannot_claim_another_identifier() -> None:
    params = {"sessionId": MINE, "prompt": [], "_meta": {"promptId": "p", "clientIdentifier": "other"}}
    verdict = receive(request("session/prompt", params))
    assert verdict.message is not None
    assert verdict.message.params["_meta"] == {"promptId": "p", "clientIdentifier": IDENTIFIER}
    del params["_meta"]["clientIdentifier"]  # type: ignore[attr-defined]
    data = request("session/prompt", params)
    verdict = receive(data)
    assert verdict.message is not None
    assert verdict.message.data == data


@pytest.mark.parametrize("meta", [[], "x", 7, True])
def test_meta_must_be_an_object(meta: Any) -> None:
    error = error_of(receive(request("session/new", {"cwd": "/work", "mcpServers": [], "_meta": meta})))
    assert error["code"] == -32602


def test_hooks_that_grok_would_skip_are_refused() -> None:
    for hooks in (None, {"pre_tool_use": [{"matcher": "(", "hookCallbackIds": ["pre"]}]}):
        params = {"sessionId": MINE, "_meta": {"x.ai/hooks": hooks}}
        error = error_of(receive(request("session/load", params)))
        assert error["code"] == -32602
        assert "x.ai/hooks" in error["message"]
