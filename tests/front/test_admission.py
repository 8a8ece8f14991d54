"""The order and the exact conditions of admission, byte for byte."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.server import ServerProtocol

from gateway.front.admission import Admission, Decision, Gate, HandOver, Refuse, Serve
from gateway.wire.limits import SIZES

PORT = 2419
SECRET = "5e" * 32
CONN = "0123456789abcdef" * 2
TOKEN = "t0ken_-A"

GATE = Gate(
    port=PORT,
    secret=lambda: SECRET,
    known=lambda conn: conn == CONN,
    owned=lambda token: token == TOKEN,
    ready=lambda conn: True,
)
NOBODY_READY = dataclasses.replace(GATE, ready=lambda conn: False)

HOST = f"Host: 127.0.0.1:{PORT}"
BEARER = f"Authorization: Bearer {SECRET}"
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket"
WEBSOCKET = f"{UPGRADE}\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13"


def head(line: str, *fields: str) -> bytes:
    return "\r\n".join([line, *fields, "", ""]).encode("latin-1")


def decide(data: bytes, gate: Gate = GATE) -> Decision | None:
    return Admission(gate).feed(data)


def status(data: bytes, gate: Gate = GATE) -> int:
    """Of the refusal; 0 for an admitted request."""
    decision = decide(data, gate)
    assert decision is not None, "the head is complete"
    return decision.status if isinstance(decision, Refuse) else 0


ADMITTED = head("GET /ws HTTP/1.1", HOST, BEARER, WEBSOCKET)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (ADMITTED, HandOver("ws")),
        (head("GET /ws?x=%20 HTTP/1.1", HOST, BEARER, UPGRADE), HandOver("ws")),
        (head("GET /pi HTTP/1.1", HOST, BEARER, UPGRADE), HandOver("pi")),
        (
            head(
                "GET /ws HTTP/1.1",
                HOST,
                BEARER,
                UPGRADE,
                f"Grok-Gateway-Connection: {CONN}",
                "Grok-Gateway-Received: 17",
            ),
            HandOver("ws", CONN, 17),
        ),
        (
            head(f"POST /mcp/{TOKEN} HTTP/1.1", HOST, "Content-Length: 12"),
            HandOver("mcp", token=TOKEN),
        ),
        (
            head(f"POST /mcp/{TOKEN} HTTP/1.1", HOST, "Transfer-Encoding: chunked"),
            HandOver("mcp", token=TOKEN),
        ),
        (head("GET /healthz HTTP/1.1", HOST), Serve("healthz")),
        (head("GET /readyz HTTP/1.1", HOST), Serve("readyz")),
        (head("GET /status HTTP/1.1", HOST, BEARER), Serve("status")),
        (head("GET /metrics HTTP/1.1", HOST, BEARER), Serve("metrics")),
        (head("GET /healthz HTTP/1.1", HOST, "Content-Length: 0"), Serve("healthz")),
        (head("GET /healthz HTTP/1.1", HOST, "X-Latin: \xe9\t!"), Serve("healthz")),
    ],
)
def test_admitted(data: bytes, expected: Decision) -> None:
    assert decide(data) == expected


# Each row has everything wrong from its own fault on, so that only the order can explain the answer.
WRONG_HOST, WRONG_ORIGIN = "Host: evil.example:2419", "Origin: http://127.0.0.1:2419"
UNKNOWN = ("Grok-Gateway-Connection: " + "f" * 32, "Grok-Gateway-Received: 0")
ORDER = [
    (400, head("GET /nothing HTTP/1.1", WRONG_HOST, WRONG_ORIGIN, "no colon", *UNKNOWN)),
    (431, head("GET /nothing HTTP/1.1", WRONG_HOST, WRONG_ORIGIN, "X: " + "x" * SIZES.head, *UNKNOWN)),
    (421, head("GET /nothing HTTP/1.1", WRONG_HOST, WRONG_ORIGIN, *UNKNOWN)),
    (403, head("GET /nothing HTTP/1.1", HOST, WRONG_ORIGIN, *UNKNOWN)),
    (404, head("GET /nothing HTTP/1.1", HOST, *UNKNOWN)),
    (405, head("POST /ws HTTP/1.1", HOST, *UNKNOWN)),
    (401, head("GET /ws HTTP/1.1", HOST, *UNKNOWN)),
    (426, head("GET /ws HTTP/1.1", HOST, BEARER, *UNKNOWN)),
    (410, head("GET /ws HTTP/1.1", HOST, BEARER, UPGRADE, *UNKNOWN)),
    (503, head("GET /ws HTTP/1.1", HOST, BEARER, UPGRADE)),
]


@pytest.mark.parametrize(("expected", "data"), ORDER, ids=[str(row[0]) for row in ORDER])
def test_order_of_refusals(expected: int, data: bytes) -> None:
    assert status(data, NOBODY_READY) == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "GET",
        "GET /ws",
        "GET  /ws HTTP/1.1",
        " GET /ws HTTP/1.1",
        "GET /ws HTTP/1.1 ",
        "GET\t/ws\tHTTP/1.1",
        "GET ws HTTP/1.1",
        "GET /w s HTTP/1.1",
        "GET /ws#x HTTP/1.1",
        "GET /\xe9 HTTP/1.1",
        f"GET http://127.0.0.1:{PORT}/ws HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        f"CONNECT 127.0.0.1:{PORT} HTTP/1.1",
        "GET /ws HTTP/1.0",
        "GET /ws HTTP/2.0",
        "PRI * HTTP/2.0",
        "GET /ws http/1.1",
        "G(T /ws HTTP/1.1",
    ],
)
def test_bad_request_line(line: str) -> None:
    assert status(head(line, HOST, BEARER, UPGRADE)) == 400


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ("Authorization: x",),
        (HOST, HOST),
        (HOST, "host: localhost"),
        (HOST, BEARER, BEARER),
        (HOST, "X: a", " folded"),
        (HOST, "X: a", "\tfolded"),
        (" " + HOST,),
        (HOST, "Name : value"),
        (HOST, "Na me: value"),
        (HOST, ": value"),
        (HOST, "no colon"),
        (HOST, "N\xe4me: value"),
        (HOST, "Content-Length: 1"),
        (HOST, "Content-Length: 00"),
        (HOST, "Content-Length: 0", "Content-Length: 0"),
        (HOST, "Transfer-Encoding: chunked"),
        (HOST, f"Grok-Gateway-Connection: {CONN}"),
        (HOST, "Grok-Gateway-Received: 1"),
        (HOST, f"Grok-Gateway-Connection: {CONN.upper()}", "Grok-Gateway-Received: 1"),
        (HOST, f"Grok-Gateway-Connection: {CONN}0", "Grok-Gateway-Received: 1"),
        (HOST, f"Grok-Gateway-Connection: ../{CONN[3:]}", "Grok-Gateway-Received: 1"),
        (HOST, f"Grok-Gateway-Connection: {CONN}", "Grok-Gateway-Received: -1"),
        (HOST, f"Grok-Gateway-Connection: {CONN}", "Grok-Gateway-Received: 1e3"),
        (HOST, f"Grok-Gateway-Connection: {CONN}", "Grok-Gateway-Received:"),
        (HOST, f"Grok-Gateway-Connection: {CONN}", "Grok-Gateway-Received: " + "9" * 19),
        (HOST, f"Grok-Gateway-Connection: {CONN}", "Grok-Gateway-Received: \xb2"),
        (
            HOST,
            f"Grok-Gateway-Connection: {CONN}",
            "Grok-Gateway-Received: 1",
            f"Grok-Gateway-Connection: {CONN}",
        ),
    ],
)
def test_bad_fields(fields: tuple[str, ...]) -> None:
    assert status(head("GET /ws HTTP/1.1", *fields)) == 400


@pytest.mark.parametrize(
    "fields",
    [
        ("Content-Length: 3", "Transfer-Encoding: chunked"),
        ("Content-Length: 3", "Content-Length: 3"),
        ("Content-Length: +3",),
        ("Content-Length: 3, 3",),
        ("Content-Length: " + "9" * 19,),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: gzip, chunked",),
    ],
)
def test_ambiguous_body_of_a_lent_call(fields: tuple[str, ...]) -> None:
    assert status(head(f"POST /mcp/{TOKEN} HTTP/1.1", HOST, *fields)) == 400


@pytest.mark.parametrize("byte", [b"\0", b"\x01", b"\x0b", b"\x1b", b"\x7f", b"\r", b"\n"])
@pytest.mark.parametrize(
    "line", [b"GET /%sws HTTP/1.1\r\n", b"X: %svalue\r\n", b"X: value%s\r\n", b"X%s: value\r\n", b"%s"]
)
def test_a_forbidden_byte_is_refused_before_the_head_ends(byte: bytes, line: bytes) -> None:
    start = b"" if line.startswith(b"GET") else b"GET /ws HTTP/1.1\r\n"
    early = start + line % byte
    assert status(early + b"A") == 400
    assert status(early + b"Host: 127.0.0.1:2419\r\n\r\n") == 400


@pytest.mark.parametrize(
    "text", ["GET /ws HTTP/1.1\n\n", "\x16\x03\x01\x02", "GET /ws HTTP/1.1\r\nHost: x\n\r\n"]
)
def test_not_http_is_refused_at_once(text: str) -> None:
    assert status(text.encode("latin-1")) == 400


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (f"127.0.0.1:{PORT}", 0),
        (f"127.0.0.2:{PORT}", 0),
        (f"127.255.255.254:{PORT}", 0),
        (f"[::1]:{PORT}", 0),
        (f"[0:0:0:0:0:0:0:1]:{PORT}", 0),
        (f"localhost:{PORT}", 0),
        (f"LocalHost:{PORT}", 0),
        (f"localhost.:{PORT}", 421),
        (f"localhost.evil.example:{PORT}", 421),
        (f"127.0.0.1.evil.example:{PORT}", 421),
        (f"evil.example:{PORT}", 421),
        (f"127.0.0.1.:{PORT}", 421),
        (f"127.1:{PORT}", 421),
        (f"127.000.000.001:{PORT}", 421),
        (f"2130706433:{PORT}", 421),
        (f"0x7f000001:{PORT}", 421),
        (f"0.0.0.0:{PORT}", 421),
        (f"192.168.0.1:{PORT}", 421),
        (f"[::]:{PORT}", 421),
        (f"[::ffff:127.0.0.1]:{PORT}", 421),
        (f"[::1%lo]:{PORT}", 421),
        (f"::1:{PORT}", 421),
        (f"[::1:{PORT}", 421),
        (f"[127.0.0.1]:{PORT}", 421),
        ("127.0.0.1", 421),
        ("[::1]", 421),
        ("localhost", 421),
        ("localhost:", 421),
        ("127.0.0.1:2418", 421),
        (f"127.0.0.1:0{PORT}", 421),
        (f"127.0.0.1:{PORT}, evil.example", 421),
        (f"user@127.0.0.1:{PORT}", 421),
        (f"127.0.0.1:{PORT}/", 421),
        (f"127.0.0.\xb9:{PORT}", 421),
        ("", 421),
        (":2419", 421),
    ],
)
def test_host(host: str, expected: int) -> None:
    assert status(head("GET /healthz HTTP/1.1", f"Host: {host}")) == expected


def test_host_without_port_means_port_80() -> None:
    gate = dataclasses.replace(GATE, port=80)
    assert status(head("GET /healthz HTTP/1.1", "Host: 127.0.0.1"), gate) == 0
    assert status(head("GET /healthz HTTP/1.1", "Host: [::1]"), gate) == 0


@pytest.mark.parametrize("origin", ["null", "", f"http://127.0.0.1:{PORT}", "https://evil.example"])
def test_any_origin_is_refused_with_the_right_secret_too(origin: str) -> None:
    assert status(head("GET /ws HTTP/1.1", HOST, BEARER, UPGRADE, f"Origin: {origin}")) == 403
    assert status(head("GET /healthz HTTP/1.1", HOST, f"ORIGIN:{origin}")) == 403


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/ws/",
        "//ws",
        "/WS",
        "/%77s",
        "/./ws",
        "/mcp",
        "/mcp/",
        f"/mcp/{TOKEN}/",
        f"/mcp/x{TOKEN}",
        "/?/ws",
    ],
)
def test_unknown_path(path: str) -> None:
    assert status(head(f"GET {path} HTTP/1.1", HOST, BEARER)) == 404


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("POST /ws", "GET"),
        ("HEAD /healthz", "GET"),
        ("DELETE /status", "GET"),
        (f"GET /mcp/{TOKEN}", "POST"),
        (f"OPTIONS /mcp/{TOKEN}", "POST"),
        ("get /healthz", "GET"),
    ],
)
def test_other_methods(line: str, allowed: str) -> None:
    decision = decide(head(f"{line} HTTP/1.1", HOST))
    assert isinstance(decision, Refuse)
    assert (decision.status, decision.headers) == (405, (("Allow", allowed),))


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (f"Authorization: Bearer {SECRET}", 0),
        (f"authorization:bearer   {SECRET}  ", 0),
        (f"Authorization: BEARER {SECRET}", 0),
        (f"Authorization: Basic {SECRET}", 401),
        (f"Authorization: {SECRET}", 401),
        (f"Authorization: Bearer{SECRET}", 401),
        (f"Authorization: Bearer {SECRET[:-1]}", 401),
        (f"Authorization: Bearer {SECRET}0", 401),
        (f"Authorization: Bearer {SECRET.upper()}", 401),
        ("Authorization: Bearer \xe9", 401),
        ("Authorization: Bearer ", 401),
        ("Authorization:", 401),
        (f"Cookie: secret={SECRET}", 401),
    ],
)
@pytest.mark.parametrize("path", ["/ws", "/pi", "/status", "/metrics"])
def test_secret(path: str, field: str, expected: int) -> None:
    assert status(head(f"GET {path} HTTP/1.1", HOST, UPGRADE, field)) == expected


def test_secret_in_the_url_is_not_looked_at() -> None:
    assert status(head(f"GET /ws?secret={SECRET} HTTP/1.1", HOST, UPGRADE)) == 401


def test_secret_is_read_again_at_each_use() -> None:
    current = [SECRET]
    gate = dataclasses.replace(GATE, secret=lambda: current[0])
    assert status(ADMITTED, gate) == 0
    current[0] = "0" * 64
    assert status(ADMITTED, gate) == 401


def test_an_empty_secret_admits_nobody() -> None:
    gate = dataclasses.replace(GATE, secret=lambda: "")
    for value in ("", "Bearer", "Bearer ", "Bearer  "):
        assert status(head("GET /status HTTP/1.1", HOST, f"Authorization: {value}"), gate) == 401


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (("Connection: keep-alive, Upgrade", "Upgrade: WebSocket"), 0),
        (("Connection: keep-alive", "Connection: upgrade", "Upgrade: h2c, websocket"), 0),
        (("Connection: keep-alive", "Upgrade: websocket"), 426),
        (("Connection: Upgrade", "Upgrade: h2c"), 426),
        (("Connection: Upgrade",), 426),
        ((), 426),
    ],
)
def test_upgrade(fields: tuple[str, ...], expected: int) -> None:
    assert status(head("GET /ws HTTP/1.1", HOST, BEARER, *fields)) == expected


def test_no_worker_says_when_to_come_back_and_pages_still_answer() -> None:
    decision = decide(ADMITTED, NOBODY_READY)
    assert isinstance(decision, Refuse)
    assert (decision.status, dict(decision.headers)) == (503, {"Retry-After": "1"})
    for path in ("/healthz", "/readyz", "/status"):
        assert isinstance(decide(head(f"GET {path} HTTP/1.1", HOST, BEARER), NOBODY_READY), Serve)
    # A lent call goes to its owner, whether or not that one takes new connections.
    assert status(head(f"POST /mcp/{TOKEN} HTTP/1.1", HOST), NOBODY_READY) == 0


def test_what_follows_the_head_is_kept_for_the_worker() -> None:
    admission = Admission(GATE)
    assert admission.feed(ADMITTED + b"\x81\x85\0\0\0\0hello\n") == HandOver("ws")
    assert bytes(admission.consumed) == ADMITTED + b"\x81\x85\0\0\0\0hello\n"


def filled(size: int) -> bytes:
    """A right request of exactly ``size`` bytes."""
    fields = [HOST, BEARER, WEBSOCKET, "A: " + "a" * 8000]
    start = head("GET /ws HTTP/1.1", *fields, "B: ")
    return head("GET /ws HTTP/1.1", *fields, "B: " + "b" * (size - len(start)))


def test_size_of_the_head() -> None:
    assert status(filled(SIZES.head)) == 0
    assert status(filled(SIZES.head + 1)) == 431
    assert status(b"x" * SIZES.head) == 431
    assert decide(b"x" * (SIZES.head - 1)) is None
    many = [f"X{number}: y" for number in range(SIZES.head_fields - 1)]
    assert status(head("GET /healthz HTTP/1.1", HOST, *many)) == 0
    assert status(head("GET /healthz HTTP/1.1", HOST, *many, "Y: y")) == 431
    assert status(head("GET /healthz HTTP/1.1", HOST, "X: " + "x" * (SIZES.head_line - 5))) == 0
    assert status(head("GET /healthz HTTP/1.1", HOST, "X: " + "x" * (SIZES.head_line - 4))) == 431


def test_half_close_and_slow_head() -> None:
    for part in (b"", b"GET /ws", ADMITTED[:-1]):
        admission = Admission(GATE)
        assert admission.feed(part) is None
        assert admission.end() == admission.end()
        assert admission.end().status == 400  # type: ignore[union-attr]
        admission = Admission(GATE)
        admission.feed(part)
        assert admission.expire().status == 408  # type: ignore[union-attr]
    admission = Admission(GATE)
    admission.feed(ADMITTED)
    assert admission.end() == admission.expire() == admission.feed(b"\0") == HandOver("ws")


def test_no_text_repeats_what_the_client_sent() -> None:
    spied = "5ecre7"
    requests = [
        head(f"GET /{spied} HTTP/1.1", HOST),
        head(f"GET {spied} HTTP/1.1", HOST),
        head(f"POST /mcp/{spied} HTTP/1.1", HOST),
        head("GET /ws HTTP/1.1", f"Host: {spied}"),
        head("GET /ws HTTP/1.1", HOST, f"Origin: {spied}"),
        head("GET /ws HTTP/1.1", HOST, f"Authorization: Bearer {spied}"),
        head("GET /ws HTTP/1.1", HOST, f"{spied}"),
        head("GET /ws HTTP/1.1", HOST, f"Grok-Gateway-Connection: {spied}", "Grok-Gateway-Received: 0"),
    ]
    for request in requests:
        decision = decide(request)
        assert isinstance(decision, Refuse)
        assert spied not in repr(decision)
    assert TOKEN not in repr(decide(head(f"POST /mcp/{TOKEN} HTTP/1.1", HOST)))


# -- properties ----------------------------------------------------------------------------------

_PIECES = [
    b"GET /ws HTTP/1.1\r\n",
    b"POST /mcp/t0ken_-A HTTP/1.1\r\n",
    b"GET /healthz HTTP/1.1\r\n",
    HOST.encode() + b"\r\n",
    BEARER.encode() + b"\r\n",
    WEBSOCKET.encode() + b"\r\n",
    b"Content-Length: 0\r\n",
    b"Grok-Gateway-Connection: " + CONN.encode() + b"\r\nGrok-Gateway-Received: 3\r\n",
    b"X: \xff\r\n",
    b"\r\n",
    b"\r",
    b"\n",
    b" ",
    b"\0",
    b":",
    b"A: " + b"a" * 8000 + b"\r\n",
]
requests = st.lists(st.sampled_from(_PIECES) | st.binary(max_size=8), max_size=14).map(b"".join) | st.binary()


@given(requests, st.lists(st.integers(0, 20_000), max_size=12))
@example(b"GET /ws HTTP/1.1\r\r\n\r\n", [17])
@example(b"GET /ws HTTP/1.1\r\n\r\n", [17, 18, 19])
@example(b"x" * (SIZES.head - 1) + b"\r\0", [SIZES.head])
@example(b"x" * (SIZES.head - 2) + b"\r\n\r\n", [SIZES.head, SIZES.head + 1])
@example(ADMITTED + b"\0", [len(ADMITTED)])
def test_the_cut_of_the_bytes_does_not_matter(data: bytes, cuts: list[int]) -> None:
    whole = decide(data)
    admission, decisions = Admission(GATE), []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        decisions.append(admission.feed(data[start:end]))
    assert decisions[-1] == whole
    assert set(map(repr, decisions)) <= {repr(None), repr(whole)}, "a decision is final"
    assert bytes(admission.consumed) == data


@given(requests)
def test_byte_by_byte_gives_the_same_decision(data: bytes) -> None:
    admission = Admission(GATE)
    for position in range(len(data)):
        admission.feed(data[position : position + 1])
    assert admission.feed(b"") == decide(data)


@given(st.lists(st.sampled_from(_PIECES[3:9]) | st.just(b"X-A: b\r\n"), max_size=130))
def test_the_worker_can_read_every_head_that_is_admitted(fields: list[bytes]) -> None:
    """Otherwise a client would see its socket close without a word."""
    data = b"GET /ws HTTP/1.1\r\n" + b"".join(fields) + b"\r\n"
    if not isinstance(decide(data), HandOver):
        return
    protocol = ServerProtocol()
    protocol.receive_data(data)
    assert protocol.events_received(), protocol.handshake_exc


@pytest.mark.parametrize("size", [SIZES.head, SIZES.head - 1])
def test_the_worker_can_read_the_largest_head(size: int) -> None:
    line = "C: " + "c" * (SIZES.head_line - 5)
    for data in (filled(size), head("GET /ws HTTP/1.1", HOST, BEARER, WEBSOCKET, line)):
        assert decide(data) == HandOver("ws")
        protocol = ServerProtocol()
        protocol.receive_data(data)
        assert protocol.events_received(), protocol.handshake_exc
