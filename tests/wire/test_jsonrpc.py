"""Messages: strict reading, exact splicing, and lines of the engine told by their start."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import BadMessage, parse_client, parse_engine, replace_id
from gateway.wire.limits import SIZES

IDS = [
    b"0",
    b"-0",
    b"-7",
    b"1.0",
    b"1e3",
    b"1e400",
    b"1180591620717411303424",
    b"18446744073709551616",
    b'""',
    b'"text"',
    b'"1|2"',
    b'"\\u00e9\\/\\n"',
    '"é😀"'.encode(),
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\\\ud800"',
]


def refused(data: bytes) -> tuple[int, bytes]:
    with pytest.raises(BadMessage) as caught:
        parse_client(data)
    answer = json.loads(caught.value.answer())
    assert answer["error"] == {"code": caught.value.code, "message": caught.value.text}
    return caught.value.code, caught.value.id_raw


# -- what clients send -----------------------------------------------------------------------------


@pytest.mark.parametrize("raw", IDS)
def test_an_id_is_kept_and_echoed_byte_for_byte(raw: bytes) -> None:
    for template in (
        b'{"jsonrpc":"2.0","id":%b,"method":"m"}',
        b'{ "method" : "m", "id" : %b , "jsonrpc":"2.0"}',
        '{"é":"ü","jsonrpc":"2.0","method":"é","id":%b}'.encode(),
    ):
        message = parse_client(template % raw)
        assert message.kind == "request"
        assert message.id_raw == raw
        assert b'"id":' + raw + b"," in jsonrpc.error_bytes(message.id_raw, 1, "x")
        assert replace_id(template % raw, b'"gw-1"') == template % b'"gw-1"'


@pytest.mark.parametrize(
    "raw", [b"null", b"true", b"false", b"[]", b"{}", b"[1]", b'"' + b"x" * SIZES.id + b'"']
)
def test_an_id_of_another_kind_is_refused_with_null(raw: bytes) -> None:
    assert refused(b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % raw) == (-32600, b"null")


@pytest.mark.parametrize(
    ("data", "code", "id_raw"),
    [
        (b"", -32700, b"null"),
        (b" \n", -32700, b"null"),
        (b"ping", -32700, b"null"),
        (b"{", -32700, b"null"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m"', -32700, b"null"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m",}', -32700, b"null"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m"} {}', -32700, b"null"),
        (b'{"jsonrpc":"2.0","id":1 "method":"m"}', -32700, b"null"),
        (b'{"jsonrpc" "2.0"}', -32700, b"null"),
        (b'{jsonrpc:"2.0"}', -32700, b"null"),
        (b'{"jsonrpc":"2.0","id":01,"method":"m"}', -32700, b"null"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":NaN}}', -32700, b"null"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":-Infinity}}', -32700, b"null"),
        (b'{"jsonrpc":"2.0","id":1,"method":"a\nb"}', -32700, b"null"),
        (b'{"jsonrpc":"2.0","id":1,"method":"\\x"}', -32700, b"null"),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, b"null"),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}', -32700, b"null"),
        (b"[]", -32600, b"null"),
        (b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', -32600, b"null"),
        (b'"m"', -32600, b"null"),
        (b"7", -32600, b"null"),
        (b"null", -32600, b"null"),
        (b"{}", -32600, b"null"),
        (b'{"id":1,"method":"m"}', -32600, b"1"),
        (b'{"jsonrpc":2.0,"id":1,"method":"m"}', -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1}', -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":null}', -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":null}', -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}', -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","result":1}', -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","error":{}}', -32600, b"1"),
        # the id of a response is the engine's: an error never carries it
        (b'{"jsonrpc":"2.0","id":"1.2","result":1,"error":{}}', -32600, b"null"),
        (b'{"jsonrpc":"2.0","id":"1.2","result":1,"params":{}}', -32600, b"null"),
        (b'{"jsonrpc":"2.0","id":"1.2","error":"text"}', -32600, b"null"),
        (b'{"jsonrpc":"2.0","result":1}', -32600, b"null"),
        (b'{"jsonrpc":"2.0","id":null,"result":1}', -32600, b"null"),
        (b'{"jsonrpc":"2.0","id":1.5,"result":1}', -32600, b"null"),
        # two readers may take different ones
        (b'{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}', -32600, b"null"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","method":"n"}', -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","m\\u0065thod":"n"}', -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":{}}', -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"sessI":"a","sess\\u0049":"b"}}', -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"x":[{"a":1,"a":1}]}}}', -32600, b"1"),
        # what Grok would drop without a word
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1e999}}', -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":%b}}' % (b"9" * 400), -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % (b"[" * 127 + b"]" * 127), -32600, b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % (b"[" * 9999 + b"]" * 9999), -32600, b"1"),
        (b"[" * 100_000, -32600, b"null"),
        (b"[%b1]" % (b"1," * (SIZES.structure + 1)), -32600, b"null"),
    ],
)  # fmt: skip
def test_what_is_refused(data: bytes, code: int, id_raw: bytes) -> None:
    assert refused(data) == (code, id_raw)


def test_the_deepest_message_that_grok_reads_passes() -> None:
    raw = b"[" * 126 + b"]" * 126
    assert parse_client(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % raw).kind == "request"


def test_much_text_is_not_much_structure() -> None:
    text = json.dumps("a, [b]: {c}\\ " * 200_000).encode()
    assert parse_client(b'{"jsonrpc":"2.0","method":"m","params":[%b]}' % text).kind == "notification"


@pytest.mark.parametrize("key", [b'"1.2"', b"7"])
def test_responses(key: bytes) -> None:
    message = parse_client(b'{"jsonrpc":"2.0","id":%b,"result":null}' % key)
    assert (message.kind, message.id_raw, message.method, message.result) == ("response", key, "", None)
    message = parse_client(b'{"jsonrpc":"2.0","error":{"code":1},"id":%b}' % key)
    assert (message.kind, message.id_raw, message.error) == ("response", key, {"code": 1})


def test_a_message_becomes_one_line() -> None:
    data = b'\n{"jsonrpc":"2.0",\r\n\t"method":"m","params":{"a":"\\n"}}\r\n'
    message = parse_client(data)
    assert message.data == b' {"jsonrpc":"2.0",  \t"method":"m","params":{"a":"\\n"}}  '
    assert message.raw("params") == b'{"a":"\\n"}'


def test_without_need_nothing_is_changed() -> None:
    data = b'{"jsonrpc" : "2.0", "method":"\\u006d","params":{"n":1180591620717411303424,"f":1.50}}'
    message = parse_client(data)
    assert message.data is data
    assert message.method == "m"


@pytest.mark.parametrize(
    ("raw", "fixed"),
    [
        (b"\\ud800", b"\\ufffd"),
        (b"\\uDFFF", b"\\ufffd"),
        (b"\\ud83d\\ude00", b"\\ud83d\\ude00"),
        (b"\\ud83d\\ud83d\\ude00", b"\\ufffd\\ud83d\\ude00"),
        (b"\\ud83d\\ude00\\ude00", b"\\ud83d\\ude00\\ufffd"),
        (b"\\ude00\\ud83d", b"\\ufffd\\ufffd"),
        (b"\\\\ud800", b"\\\\ud800"),
        (b"\\\\\\ud800\\n", b"\\\\\\ufffd\\n"),
        (b"\\ud83d\\\\ude00", b"\\ufffd\\\\ude00"),
        ("\\ud800é\\udc00".encode(), "\\ufffdé\\ufffd".encode()),
    ],
)
def test_a_lone_surrogate_becomes_the_replacement_character(raw: bytes, fixed: bytes) -> None:
    for template in (
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"m","params":{"%b":["%b"]}}',
        b'{"params":{"%b":["%b"]},"method":"m","jsonrpc":"2.0","id":"\\ud800"}',
    ):
        message = parse_client(template % (raw, raw))
        assert message.data == template % (fixed, fixed)
        assert message.id_raw == b'"\\ud800"'
        assert message.params == json.loads(b'{"%b":["%b"]}' % (fixed, fixed))
    response = parse_client(b'{"jsonrpc":"2.0","id":"1.2","result":"%b"}' % raw)
    assert response.result == json.loads(b'"%b"' % fixed)


# -- properties ------------------------------------------------------------------------------------

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
raw_ids = (
    st.sampled_from(IDS) | st.integers().map(lambda n: b"%d" % n) | st.text(max_size=20).map(jsonrpc.dump)
)


def spelled(value: Any, style: int) -> bytes:
    """JSON in one of several spellings, all of them legal."""
    ascii_only, indent = bool(style & 1), (None, 1)[style >> 1 & 1]
    separators = (" , ", " : ") if style & 4 else None
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    return text.encode("utf-8", "surrogatepass")


@given(
    values,
    raw_ids,
    st.text(),
    st.integers(0, 7),
    st.permutations(["jsonrpc", "id", "method", "params", "more"]),
)
def test_splicing_is_exact(value: Any, raw: bytes, method: str, style: int, order: list[str]) -> None:
    members = {
        "jsonrpc": b'"2.0"',
        "id": raw,
        "method": spelled(method, style),
        "params": spelled({"value": value}, style),
        "more": spelled(value, style),
    }
    line = b"{%b}" % b" ,".join(spelled(name, 0) + b": " + members[name] for name in order)
    message = parse_client(line)
    assert message.id_raw == raw
    assert message.method == method
    assert message.params == {"value": value}
    assert message.raw("params").split() == members["params"].split()  # white space may have changed
    changed = message.changed(method=b'"other"', params=b"[1]")
    assert (changed.method, changed.params, changed.id_raw) == ("other", [1], raw)
    replaced = replace_id(message.data, b'"gw-7"')
    assert jsonrpc.id_of_line(replaced) == b'"gw-7"'
    assert json.loads(replaced) == json.loads(message.data) | {"id": "gw-7"}
    assert replace_id(replaced, raw) == message.data


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_input_escapes_the_two_outcomes(data: bytes) -> None:
    try:
        message = parse_client(data)
    except BadMessage as refusal:
        code = json.loads(refusal.answer())["error"]["code"]
    else:
        assert json.loads(message.data)["jsonrpc"] == "2.0"
        code = -32600
    assert code in (-32700, -32600)
    assert parse_engine(data).kind in ("request", "notification", "response", "noise")


pairs = st.lists(st.tuples(st.sampled_from(["a", "b", "sessionId"]), values), min_size=1, max_size=5)


@given(pairs, st.integers(0, 3))
def test_a_member_that_stands_twice_is_always_seen(members: list[tuple[str, Any]], depth: int) -> None:
    raw = b"{%b}" % b",".join(jsonrpc.dump(name) + b":" + jsonrpc.dump(value) for name, value in members)
    for _ in range(depth):
        raw = b'{"in":[%b]}' % raw
    data = b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % raw
    if len({name for name, _ in members}) == len(members):
        parse_client(data)
    else:
        assert refused(data) == (-32600, b"1")


@given(values, st.text(), values, st.integers(0, 7))
def test_setting_a_member_changes_no_other(value: Any, name: str, new: Any, style: int) -> None:
    for base in ({}, {"a": value, "é": value}, {"a": value, name: 1, "z": [value]}):
        changed = jsonrpc.set_member(spelled(base, style), name, jsonrpc.dump(new))
        assert json.loads(changed) == base | {name: new}


# -- lines of the engine ---------------------------------------------------------------------------

S = "01a22d07-e18e-73b0-9b74-1a0b7296be23"


def test_a_chunk_is_told_by_its_start_and_not_parsed() -> None:
    data = (
        b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%b","update":{"sessionUpdate":'
        b'"agent_message_chunk","content":{"type":"text","text":"%b"}}}}' % (S.encode(), b"x" * 2**20)
    )
    line = parse_engine(data)
    assert (line.kind, line.method, line.session, line.update) == (
        "notification",
        "session/update",
        S,
        "agent_message_chunk",
    )
    assert "body" not in vars(line)
    assert not line.is_replay
    assert "body" not in vars(line)
    assert line.params["update"]["content"]["text"] == "x" * 2**20


def test_a_request_with_the_start_of_a_notification_is_seen() -> None:
    """No engine writes this; if one did, a hook would not slip by as a notification."""
    start = b'{"jsonrpc":"2.0","method":"_x.ai/hooks/run","params":{"sessionId":"s"}'
    assert parse_engine(start + b',"id":0}').kind == "request"
    assert parse_engine(start + b',"id":"x"}').kind == "request"
    assert parse_engine(start + b"}").kind == "notification"


V = b'{"jsonrpc":"2.0",'
HOOK, ASK, LOST = "_x.ai/hooks/run", "session/request_permission", "x.ai/leader_reconnected"


@pytest.mark.parametrize(
    ("data", "kind", "id_raw", "method", "session", "update"),
    [
        (
            V + b'"id":0,"method":"_x.ai/hooks/run","params":{"sessionId":"s"}}',
            "request",
            b"0",
            HOOK,
            "s",
            "",
        ),
        (b'{"id":3,"method":"session/request_permission"}', "request", b"3", ASK, "", ""),
        (V + b'"id":"gw-1-2","result":{}}', "response", b'"gw-1-2"', "", "", ""),
        (V + b'"id":"a\\"b","error":{"code":1}}', "response", b'"a\\"b"', "", "", ""),
        (V + b'"result":null,"id":1e3}', "response", b"1e3", "", "", ""),
        (V + b'"method":"x.ai/leader_reconnected","params":{}}', "notification", b"", LOST, "", ""),
        (
            V + b'"method":"x.ai/leader_reconnected","params":{"sessionId":"s"}}',
            *("notification", b"", LOST, "s", ""),
        ),
        (
            V + b'"method":"_x.ai/sessions/changed","params":{"upserted":[],"removed":["s"]}}',
            *("notification", b"", "_x.ai/sessions/changed", "", ""),
        ),
        (
            V + b'"method":"n","params":{"update":{"sessionUpdate":"turn_completed"},"sessionId":"s"}}',
            *("notification", b"", "n", "s", "turn_completed"),
        ),
        (b'{"method":"m","params":[1]}', "notification", b"", "m", "", ""),
        (b'{"method":"m","params":{"a":"\\ud800"}}', "notification", b"", "m", "", ""),
        (V + b'"id":7}', "noise", b"", "", "", ""),
        (b"{}", "noise", b"", "", "", ""),
        (b"[1]", "noise", b"", "", "", ""),
        (b'"str"', "noise", b"", "", "", ""),
        (b"", "noise", b"", "", "", ""),
        (b"\x1b[31mERROR\x1b[0m", "noise", b"", "", "", ""),
        (V + b'"id":1,"result":{"a":', "noise", b"", "", "", ""),
        (b"[" * 100_000, "noise", b"", "", "", ""),
    ],
)
def test_engine_lines(data: bytes, kind: str, id_raw: bytes, method: str, session: str, update: str) -> None:
    line = parse_engine(data)
    assert (line.kind, line.id_raw, line.method) == (kind, id_raw, method)
    assert (line.session, line.update) == (session, update)
    assert line.data is data


LOOK_ALIKES = [
    '{"jsonrpc":"2.0","id":0,"method":"_x.ai/hooks/run","params":{}}',
    '"isReplay":true',
    '"method":"session/request_permission"',
    '","id":1,"method":"_x.ai/hooks/run',
]


@given(st.sampled_from(LOOK_ALIKES), st.sampled_from(["text", "isReplay", "method", "id"]))
def test_text_that_looks_like_a_message_is_text(text: str, key: str) -> None:
    data = jsonrpc.notification_bytes(
        "session/update",
        {
            "sessionId": S,
            "update": {"sessionUpdate": "agent_message_chunk", "content": {key: text, "a": {key: True}}},
        },
    )
    line = parse_engine(data)
    assert (line.kind, line.id_raw, line.method) == ("notification", b"", "session/update")
    assert not line.is_replay


def test_replay_is_told_by_the_meta_of_the_params() -> None:
    update = {"sessionUpdate": "agent_message_chunk"}
    params = {"sessionId": S, "update": update, "_meta": {"isReplay": True}}
    assert parse_engine(jsonrpc.notification_bytes("session/update", params)).is_replay


@given(st.text(), values, st.sampled_from(IDS))
def test_own_messages_are_read_back(text: str, value: Any, raw: bytes) -> None:
    params = {"value": value}
    request = parse_client(jsonrpc.request_bytes(raw, text, jsonrpc.dump(params)))
    assert (request.kind, request.id_raw, request.method, request.params) == ("request", raw, text, params)
    note = parse_client(jsonrpc.notification_bytes(text, params))
    assert (note.kind, note.method, note.params) == ("notification", text, params)
    result = parse_engine(jsonrpc.result_bytes(raw, jsonrpc.dump(value)))
    assert (result.kind, result.id_raw, result.body["result"]) == ("response", raw, value)
    error = parse_engine(jsonrpc.error_bytes(raw, -1, text, params))
    assert error.id_raw == raw
    assert error.body["error"] == {"code": -1, "message": text, "data": params}


def test_an_id_that_is_not_there() -> None:
    assert jsonrpc.id_of_line(b'{"jsonrpc":"2.0","method":"m","params":{"id":1}}') is None
    assert jsonrpc.id_of_line(b"noise") is None
    with pytest.raises(ValueError, match="no id"):
        replace_id(b'{"jsonrpc":"2.0","method":"m"}', b"1")
