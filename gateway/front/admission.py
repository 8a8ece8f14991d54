"""Admission: the bytes of a new connection in, one decision out.  No I/O.

`Admission` collects a request head and parses it strictly; what follows the blank line is kept and
handed over, never looked at.  The decision depends on the bytes alone, not on how they were cut:
the head is judged at its blank line, a byte that no head may hold at that byte, the size at the limit.

The checks run in the order of ``_STRANGER`` and ``_CALLER``, the first refusal counts.  What lies
outside the bytes (the secret, the roster of workers) is asked through `Gate`, so that the whole order
is tested with a table.
Texts never repeat what the client sent: a head may hold a secret or a token in the wrong place.

Whether the WebSocket headers are right (``Sec-WebSocket-Key`` and so on) is the worker's to say.
"""

from __future__ import annotations

import dataclasses
import hmac
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Literal

from gateway.wire.handoff import SocketKind
from gateway.wire.limits import LIMITS, SIZES

__all__ = [
    "Admission",
    "Decision",
    "Gate",
    "HandOver",
    "Page",
    "Refuse",
    "Serve",
    "no_worker",
    "unknown_connection",
]

Page = Literal["healthz", "readyz", "status", "metrics"]


@dataclasses.dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with ``status`` and close.  ``text`` says what happened and what to do."""

    status: int
    text: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Serve:
    """Answer from the front itself."""

    page: Page


@dataclasses.dataclass(frozen=True, slots=True)
class HandOver:
    """Give the socket to a worker.  ``token`` (of ``/mcp/<token>``) names the worker, it is never logged."""

    kind: SocketKind
    conn: str = ""  #: connection id to resume, "" for a new connection
    received: int = 0  #: server frames that the resuming client has read
    token: str = dataclasses.field(default="", repr=False)


Decision = Refuse | Serve | HandOver


@dataclasses.dataclass(frozen=True, slots=True)
class Gate:
    """What the checks ask about the world at the moment of the request."""

    port: int
    secret: Callable[[], str]  #: read anew at each use; "" admits nobody
    known: Callable[[str], bool]  #: may this connection id be resumed?
    owned: Callable[[str], bool]  #: does a connection own this MCP token?
    ready: Callable[[str], bool]  #: does a worker take this connection id ("": a new connection)?


@dataclasses.dataclass(frozen=True, slots=True)
class _Route:
    """What a path leads to: a worker (``kind``) or a page of the front."""

    kind: SocketKind | None = None
    page: Page | None = None
    method: bytes = b"GET"
    secret: bool = False
    token: str = ""

    @property
    def upgrade(self) -> bool:
        return self.kind in ("ws", "pi")


_ROUTES = {
    b"/ws": _Route(kind="ws", secret=True),
    b"/pi": _Route(kind="pi", secret=True),
    b"/healthz": _Route(page="healthz"),
    b"/readyz": _Route(page="readyz"),
    b"/status": _Route(page="status", secret=True),
    b"/metrics": _Route(page="metrics", secret=True),
}
_MCP_PATH = re.compile(rb"/mcp/([A-Za-z0-9_-]{1,128})")


def _route(path: bytes) -> _Route | None:
    if match := _MCP_PATH.fullmatch(path):
        return _Route(kind="mcp", method=b"POST", token=match[1].decode())
    return _ROUTES.get(path)


@dataclasses.dataclass(frozen=True, slots=True)
class _Head:
    method: bytes
    route: _Route | None
    fields: Mapping[bytes, tuple[bytes, ...]]  #: by lower-case name
    conn: str
    received: int

    def one(self, name: bytes) -> bytes:
        return self.fields.get(name, (b"",))[0]

    def elements(self, name: bytes) -> set[bytes]:
        """Elements of a comma-separated field, lower case."""
        values = b",".join(self.fields.get(name, ()))
        return {element.strip(b" \t").lower() for element in values.split(b",")}


class Admission:
    """One connection: `feed` until it returns a decision; then ``consumed`` are all bytes so far."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._decision: Decision | None = None
        self._clean = 0  #: bytes in which no blank line ends and no forbidden byte lies
        self.consumed = bytearray()

    def feed(self, data: bytes) -> Decision | None:
        """Take what the client sent; None means that the head is not complete."""
        self.consumed += data
        if self._decision is None:
            self._decision = self._judge()
        return self._decision

    def end(self) -> Decision:
        """The client sends nothing any more (it has closed, or its half of the connection)."""
        self._decision = self._decision or _malformed("it ended before its blank line")
        return self._decision

    def expire(self) -> Decision:
        """The head has taken longer than ``LIMITS.head``."""
        self._decision = self._decision or Refuse(
            408, f"The request head was not complete after {LIMITS.head:g} s. Send it at once."
        )
        return self._decision

    def _judge(self) -> Decision | None:
        end = self.consumed.find(b"\r\n\r\n", max(0, self._clean - 3), SIZES.head)
        # The region reaches one byte into the blank line: a CR in front of it is a bare one.
        region = end + 1 if end >= 0 else min(len(self.consumed), SIZES.head)
        if _FORBIDDEN.search(self.consumed, max(0, self._clean - 1), region):
            return _malformed("it holds a control character, a bare CR or a bare LF")
        self._clean = region
        if end >= 0:
            head = _parse(bytes(self.consumed[:end]))
            return head if isinstance(head, Refuse) else _check(head, self._gate)
        return _head_too_large() if region == SIZES.head else None


# -- parsing -------------------------------------------------------------------------------------

_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r[^\n]|(?<!\r)\n")
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") (/[!-\"$-~]*) (HTTP/[0-9]\.[0-9])")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([^\r\n]*?)[ \t]*")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_CONNECTION_ID = re.compile(rb"[0-9a-f]{32}")

_RESUME_ID = b"grok-gateway-connection"
_RESUME_COUNT = b"grok-gateway-received"

_HOST = re.compile(rb"([^:\[\]]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]+))?")

#: Two values of one of these would be read differently by two readers.
_SINGLE = (b"host", b"authorization", b"content-length", b"transfer-encoding", _RESUME_ID, _RESUME_COUNT)


def _malformed(reason: str) -> Refuse:
    return Refuse(400, f"The request is malformed: {reason}.")


def _head_too_large() -> Refuse:
    return Refuse(
        431,
        f"The request head is too large: at most {SIZES.head} bytes, {SIZES.head_fields} fields and "
        f"{SIZES.head_line} bytes in a line are accepted. Send fewer or shorter headers.",
    )


def _parse(head: bytes) -> _Head | Refuse:
    request_line, *lines = head.split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(request_line)
    if match is None:
        return _malformed("its first line is not 'METHOD /path HTTP/1.1'")
    method, target, version = match.groups()
    if version != b"HTTP/1.1":
        return _malformed("only HTTP/1.1 is spoken here")
    fields = dict[bytes, tuple[bytes, ...]]()
    for line in lines:
        if (field := _FIELD.fullmatch(line)) is None:
            return _malformed("a header line is not 'Name: value' (folded lines are not accepted)")
        name = field[1].lower()
        fields[name] = (*fields.get(name, ()), field[2])
    if reason := _framing_fault(method, fields) or _resume_fault(fields):
        return _malformed(reason)
    if len(lines) > SIZES.head_fields or max(map(len, (request_line, *lines))) + 2 > SIZES.head_line:
        return _head_too_large()
    conn = fields.get(_RESUME_ID, (b"",))[0].decode("ascii")
    received = int(fields.get(_RESUME_COUNT, (b"0",))[0])
    return _Head(method, _route(target.partition(b"?")[0]), fields, conn, received)


def _framing_fault(method: bytes, fields: Mapping[bytes, tuple[bytes, ...]]) -> str:
    """Why the message could be read in two ways; "" if it cannot."""
    for name in _SINGLE:
        if len(fields.get(name, ())) > 1:
            return f"it has more than one {name.decode().title()} header"
    if b"host" not in fields:
        return "it has no Host header"
    length, coding = fields.get(b"content-length"), fields.get(b"transfer-encoding")
    if length and coding:
        return "it has both Content-Length and Transfer-Encoding"
    if length and not _DIGITS.fullmatch(length[0]):
        return "its Content-Length is not a number"
    if coding and coding[0].lower() != b"chunked":
        return "its Transfer-Encoding is not 'chunked'"
    if method == b"GET" and (coding or (length and length[0] != b"0")):
        return "a GET request has no body here"
    return ""


def _resume_fault(fields: Mapping[bytes, tuple[bytes, ...]]) -> str:
    conn, count = fields.get(_RESUME_ID), fields.get(_RESUME_COUNT)
    if (conn is None) != (count is None):
        return "Grok-Gateway-Connection and Grok-Gateway-Received are sent together"
    if conn and not _CONNECTION_ID.fullmatch(conn[0]):
        return "Grok-Gateway-Connection is not 32 lower-case hex digits"
    if count and not _DIGITS.fullmatch(count[0]):
        return "Grok-Gateway-Received is not a number"
    return ""


# -- checks --------------------------------------------------------------------------------------


def no_worker() -> Refuse:
    """503: also for a socket that no worker took."""
    seconds = round(LIMITS.retry_after)
    return Refuse(
        503,
        f"No worker is ready. Try again in {seconds} s; `grok-gateway status` shows what is missing.",
        (("Retry-After", str(seconds)),),
    )


def unknown_connection() -> Refuse:
    """410: also for one that was let go while its resume was held."""
    return Refuse(
        410,
        "This connection is unknown or has expired. Connect again without Grok-Gateway-Connection and "
        "Grok-Gateway-Received, and load the sessions that you need.",
    )


def _check_host(head: _Head, gate: Gate) -> Refuse | None:
    """A page that rebinds its name to 127.0.0.1 sends its own name here; a literal cannot be rebound."""
    host = _HOST.fullmatch(head.one(b"host"))
    if host and (host[2] or b"80").decode() == str(gate.port) and _is_loopback(host[1].decode("latin-1")):
        return None
    return Refuse(
        421,
        "This service answers only on this machine: the Host header must be 127.0.0.1, [::1] or localhost "
        f"with port {gate.port}.",
    )


def _is_loopback(name: str) -> bool:
    try:
        if name.startswith("["):
            return ipaddress.IPv6Address(name[1:-1]) == ipaddress.IPv6Address("::1")
        return name.lower() == "localhost" or ipaddress.IPv4Address(name).is_loopback
    except ValueError:
        return False


def _check_origin(head: _Head, gate: Gate) -> Refuse | None:
    if b"origin" not in head.fields:
        return None
    return Refuse(403, "Requests with an Origin header come from web pages, and none may use this service.")


def _check_path(head: _Head, gate: Gate) -> Refuse | None:
    route = head.route
    if route is None or (route.token and not gate.owned(route.token)):
        return Refuse(404, "Nothing is here. Clients connect to /ws (ACP over WebSocket) or /pi.")
    if head.method != route.method:
        method = route.method.decode()
        return Refuse(405, f"Only {method} is possible here.", (("Allow", method),))
    return None


def _check_secret(head: _Head, route: _Route, gate: Gate) -> Refuse | None:
    if not route.secret:
        return None
    scheme, _, given = head.one(b"authorization").partition(b" ")
    secret = gate.secret().encode()
    same = hmac.compare_digest(given.strip(b" "), secret)
    if same and secret and scheme.lower() == b"bearer":
        return None
    return Refuse(
        401,
        "Send the header 'Authorization: Bearer <secret>'. The secret is in the file 'secret' of the "
        "gateway's config folder.",
        (("WWW-Authenticate", "Bearer"),),
    )


def _check_upgrade(head: _Head, route: _Route, gate: Gate) -> Refuse | None:
    if not route.upgrade:
        return None
    if b"upgrade" in head.elements(b"connection") and b"websocket" in head.elements(b"upgrade"):
        return None
    return Refuse(
        426, "Only WebSocket is spoken here: connect with a WebSocket client.", (("Upgrade", "websocket"),)
    )


def _check_resume(head: _Head, route: _Route, gate: Gate) -> Refuse | None:
    if not route.upgrade or not head.conn or gate.known(head.conn):
        return None
    return unknown_connection()


def _check_worker(head: _Head, route: _Route, gate: Gate) -> Refuse | None:
    return no_worker() if route.upgrade and not gate.ready(head.conn) else None


#: The order of refusals is part of the protocol: what a stranger may learn comes first.
_STRANGER = (_check_host, _check_origin, _check_path)
_CALLER = (_check_secret, _check_upgrade, _check_resume, _check_worker)


def _check(head: _Head, gate: Gate) -> Decision:
    for stranger_check in _STRANGER:
        if refusal := stranger_check(head, gate):
            return refusal
    route = head.route
    assert route is not None, "_check_path refuses it"
    for check in _CALLER:
        if refusal := check(head, route, gate):
            return refusal
    if route.page:
        return Serve(route.page)
    assert route.kind is not None, "a route without a page leads to a worker"
    return HandOver(route.kind, head.conn, head.received, route.token)
