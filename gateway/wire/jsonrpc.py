"""JSON-RPC 2.0 messages, one a line, read and changed without printing them again.

A message that is parsed and printed again is another message: ``1.0`` becomes ``1.0`` or ``1``,
``2**70`` becomes a float, escapes change, of a key that stands twice one is lost.  So a message is
kept as the bytes that came, parsed beside them, and changed by *splicing*: one value is cut out and
other bytes are put in its place.

Two sides, two readers:

* `parse_client` reads what a client sent: strictly, whole, always.  What it accepts, Grok reads the
  same way; what Grok would drop without a word (JSON nested too deeply, a number beyond a double) is
  refused with an error that a person can act on.
* `parse_engine` reads what the engine wrote: its spelling is fixed (``jsonrpc`` first, then ``id``
  or ``method``, no spaces), so the start of a line tells what it is and a chunk of megabytes is not
  parsed.  A line that does not start in the known way is parsed whole, never guessed.

Grok prints ids again (``1e3`` comes back as ``1000.0``, ``"\\u00e9"`` as ``"é"``) and answers nothing
to an id that it cannot read (``1e400``, ``"\\ud800"``).  Whoever forwards a client's request puts an
id of its own in with `replace_id`, and the client's id back into the answer.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

import orjson

from gateway.wire.jsontext import (
    Reader,
    Span,
    depth,
    dump,
    members,
    repaired,
    set_member,
    shown,
    spans_in_bytes,
    splice,
    structure,
)
from gateway.wire.limits import SIZES

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "NULL_ID",
    "PARSE_ERROR",
    "BadMessage",
    "EngineLine",
    "Message",
    "Span",
    "dump",
    "error_bytes",
    "id_of_line",
    "members",
    "notification_bytes",
    "parse_client",
    "parse_engine",
    "replace_id",
    "request_bytes",
    "result_bytes",
    "set_member",
    "shown",
    "splice",
]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

NULL_ID = b"null"

_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


class BadMessage(Exception):  # noqa: N818 (what it is about, not that it is an error)
    """A client's message is refused.  ``id_raw`` is the id to answer with (``null`` if unknown)."""

    def __init__(self, code: int, text: str, id_raw: bytes = NULL_ID) -> None:
        super().__init__(text)
        self.code, self.text, self.id_raw = code, text, id_raw

    def answer(self) -> bytes:
        """The error response."""
        return error_bytes(self.id_raw, self.code, self.text)


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """A client's message.  ``data`` is one line without line end; its values are parsed beside it."""

    kind: Literal["request", "notification", "response"]
    data: bytes
    id_raw: bytes = b""  #: the id as the client spelled it; b"" of a notification
    method: str = ""  #: "" of a response
    params: Any = None  #: a dict, a list, or None when absent
    result: Any = None
    error: Any = None
    spans: Mapping[str, Span] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def raw(self, member: str) -> bytes:
        """The bytes of a top-level member's value, b"" if it is absent."""
        span = self.spans.get(member)
        return self.data[span.start : span.end] if span else b""

    def with_id(self, id_raw: bytes) -> bytes:
        """The line with another id.  Raises KeyError when it has none."""
        span = self.spans["id"]
        return self.data[: span.start] + id_raw + self.data[span.end :]

    def changed(self, **values: bytes) -> Message:
        """The message with the values of top-level members replaced, read again from the result.

        Reading again costs little (requests are rare) and makes what was screened what is sent.
        """
        edits = [(self.spans[name].start, self.spans[name].end, raw) for name, raw in values.items()]
        return parse_client(splice(self.data, edits))


def parse_client(data: bytes) -> Message:
    """Read one message of a client.  Raises BadMessage.

    Line ends between tokens become spaces (in the engine's direction a message is one line); a lone
    surrogate becomes U+FFFD, as in every encoder of UTF-8, since Grok drops such a line unread.
    """
    # Line ends inside strings are no JSON, so the strict parse below still refuses them: they are
    # only replaced once it has succeeded.
    reader, spans = _read_client(data)
    line = data.translate(_LINE_ENDS) if b"\n" in data or b"\r" in data else data
    values = {name: span.value for name, span in spans.items()}
    id_raw = NULL_ID
    is_response = "method" not in values and ("result" in values or "error" in values)
    if "id" in spans and not is_response and not reader.id_twice:
        id_raw = _request_id(line, spans["id"])

    def refuse(text: str) -> NoReturn:
        raise BadMessage(INVALID_REQUEST, f"Invalid Request: {text}", id_raw)

    if reader.problem:
        refuse(reader.problem)
    if depth(values) > SIZES.depth:
        refuse(f"nested deeper than {SIZES.depth} levels")
    if values.get("jsonrpc") != "2.0":
        refuse('"jsonrpc" must be "2.0"')
    sound = repaired(line, None if is_response else spans.get("id"))
    if sound is not line:
        return parse_client(sound)
    if is_response:
        return _response(line, values, spans, refuse)
    if not isinstance(values.get("method"), str):
        refuse('"method" must be a string')
    if "result" in values or "error" in values:
        refuse("both a method and a result or error")
    if "params" in values and not isinstance(values["params"], (dict, list)):
        refuse('"params" must be an object or an array')
    return Message(
        "request" if "id" in values else "notification",
        line,
        id_raw if "id" in values else b"",
        values["method"],
        values.get("params"),
        spans=spans,
    )


def _read_client(data: bytes) -> tuple[Reader, dict[str, Span]]:
    """The top-level members with spans in bytes, perhaps with a problem noted.

    Raises BadMessage without an id.
    """
    if len(data) > SIZES.structure and structure(data) > SIZES.structure:
        raise BadMessage(INVALID_REQUEST, f"Invalid Request: more than {SIZES.structure} values")
    spans = dict[str, Span]()
    try:
        text = data.decode("utf-8")
        reader = Reader(text)
        start = reader.blank(0)
        if text[start : start + 1] == "{":
            end = reader.object(start, spans)
        else:
            value, end = reader.value(start)
        if reader.blank(end) != len(text):
            raise json.JSONDecodeError("Extra data", text, end)
    except UnicodeDecodeError as error:
        raise BadMessage(PARSE_ERROR, f"Parse error: not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise BadMessage(PARSE_ERROR, f"Parse error: {error.msg} at character {error.pos}") from None
    except RecursionError:
        reader.problem = f"nested deeper than {SIZES.depth} levels"
        return reader, spans_in_bytes(text, spans)
    if text[start : start + 1] != "{":
        what = "batches are not supported" if isinstance(value, list) else "not a JSON object"
        raise BadMessage(INVALID_REQUEST, f"Invalid Request: {what}")
    return reader, spans if text.isascii() else spans_in_bytes(text, spans)


def _request_id(line: bytes, span: Span) -> bytes:
    if isinstance(span.value, bool) or not isinstance(span.value, (str, int, float)):
        raise BadMessage(INVALID_REQUEST, 'Invalid Request: "id" must be a string or a number')
    if span.end - span.start > SIZES.id:
        raise BadMessage(INVALID_REQUEST, f'Invalid Request: "id" has more than {SIZES.id} bytes')
    return line[span.start : span.end]


def _response(line: bytes, values: dict[str, Any], spans: dict[str, Span], refuse: Any) -> Message:
    # A response is never answered with its own id: that id belongs to the engine's requests.
    if "result" in values and "error" in values:
        refuse("both a result and an error")
    if "params" in values:
        refuse("a response has no params")
    if isinstance(values.get("id"), bool) or not isinstance(values.get("id"), (str, int)):
        refuse("a response needs the id of its request")
    if "error" in values and not isinstance(values["error"], dict):
        refuse('"error" must be an object')
    span = spans["id"]
    return Message(
        "response",
        line,
        line[span.start : span.end],
        result=values.get("result"),
        error=values.get("error"),
        spans=spans,
    )


# -- lines of the engine ------------------------------------------------------------------------------

_ENGINE_ID = re.compile(
    rb'\{"jsonrpc":"2\.0","id":(-?\d+|"(?:[^"\\]|\\.)*+"|null)(,"method":"|,"result":|,"error":)'
)
_ENGINE_NOTIFICATION = re.compile(
    rb'\{"jsonrpc":"2\.0","method":"([^"\\]+)","params":\{"sessionId":"([^"\\]+)"'
    rb'(?:,"update":\{"sessionUpdate":"([^"\\]+)")?'
)


@dataclasses.dataclass(frozen=True)
class EngineLine:
    """One line of the engine: what its start tells, the rest parsed only when `body` is asked for."""

    kind: Literal["request", "notification", "response", "noise"]  #: noise: no JSON object, for the log
    data: bytes
    id_raw: bytes = b""
    method: str = ""
    session: str = ""  #: ``params.sessionId``, "" if there is none
    update: str = ""  #: ``params.update.sessionUpdate``, "" if there is none

    @functools.cached_property
    def body(self) -> dict[str, Any]:
        """The whole message, parsed."""
        value = _load(self.data)
        return value if isinstance(value, dict) else {}

    @property
    def params(self) -> dict[str, Any]:
        """``params`` of the message, {} if they are no object."""
        value = self.body.get("params")
        return value if isinstance(value, dict) else {}

    @property
    def is_replay(self) -> bool:
        """Whether the line repeats history for a ``session/load``."""
        if b'"isReplay"' not in self.data:  # a quote inside a string is escaped: no false "no"
            return False
        meta = self.params.get("_meta")
        return isinstance(meta, dict) and meta.get("isReplay") is True


def parse_engine(line: bytes) -> EngineLine:
    """Read one line of the engine; never raises.

    Only notifications of a session are told by their start alone.  The end is looked at too: after
    the closing brace of ``params`` comes the message's own, so no ``id`` can follow.
    """
    match = _ENGINE_NOTIFICATION.match(line)
    if match and line.endswith(b"}}"):
        method, session, update = match.groups(b"")
        return EngineLine("notification", line, b"", method.decode(), session.decode(), update.decode())
    body = _load(line)
    if not isinstance(body, dict):
        return EngineLine("noise", line)
    id_raw = id_of_line(line) or b""
    method_name, params = body.get("method"), body.get("params")
    if isinstance(method_name, str):
        params = params if isinstance(params, dict) else {}
        update_object = params.get("update")
        found = EngineLine(
            "request" if id_raw else "notification",
            line,
            id_raw,
            method_name,
            _text(params.get("sessionId")),
            _text(update_object.get("sessionUpdate")) if isinstance(update_object, dict) else "",
        )
    elif id_raw and ("result" in body or "error" in body):
        found = EngineLine("response", line, id_raw)
    else:
        return EngineLine("noise", line)
    found.__dict__["body"] = body  # parsed already
    return found


def _load(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    try:  # orjson refuses lone surrogates and deep nesting, which must not stop a line
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def id_of_line(line: bytes) -> bytes | None:
    """The bytes of the top-level ``id``; None when there is none or the line is no JSON object."""
    if match := _ENGINE_ID.match(line):
        return match[1]
    try:
        span = members(line).get("id")
    except (ValueError, RecursionError):
        return None
    return line[span.start : span.end] if span else None


def replace_id(line: bytes, id_raw: bytes) -> bytes:
    """``line`` with its top-level ``id`` replaced.  Raises ValueError when it has none."""
    if match := _ENGINE_ID.match(line):
        return line[: match.start(1)] + id_raw + line[match.end(1) :]
    span = members(line).get("id")
    if span is None:
        raise ValueError("the message has no id")
    return line[: span.start] + id_raw + line[span.end :]


# -- messages of our own ------------------------------------------------------------------------------


def error_bytes(id_raw: bytes, code: int, message: str, data: Mapping[str, Any] | None = None) -> bytes:
    """An error response."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = dict(data)
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_raw, dump(error))


def result_bytes(id_raw: bytes, result_raw: bytes) -> bytes:
    """A response with a result that is JSON already."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_raw, result_raw)


def request_bytes(id_raw: bytes, method: str, params_raw: bytes) -> bytes:
    """A request with params that are JSON already."""
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (id_raw, dump(method), params_raw)


def notification_bytes(method: str, params: Mapping[str, Any]) -> bytes:
    """A notification."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (dump(method), dump(dict(params)))
