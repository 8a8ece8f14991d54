"""The WebSocket of one client: `websockets`' Sans-I/O server protocol on a socket that was handed over.

The protocol decides what frames mean; `workers.flow` moves bytes, `workers.liveness` watches the
clocks.  What is decided here:

* One text message is one `bytes`.  Its UTF-8 is checked once, on the whole message.
* Outgoing messages get a hand-built header (the library's costs as much as all the rest).  One above
  ``SIZES.fragment`` is fragmented, so that pings, pongs and a close pass between its parts.
* Pings, pongs and the answer to a close overtake queued messages.  `WebSocket.close` waits for them,
  unless it is told not to.
* Compression is never accepted: on loopback it costs three times the work it saves.
* Reading goes on while closing, and what arrives is discarded: closing a socket with unread bytes
  resets the connection, and the peer would lose our closing frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import math
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol

from gateway.wire.limits import LIMITS, SIZES, Limits, Sizes
from workers.flow import Reader, Writer
from workers.liveness import Liveness

__all__ = ["WebSocket", "warn_without_speedups"]

log = logging.getLogger(__name__)

# The library logs whole frames at DEBUG, and frames hold prompts.
_library_log = logging.getLogger(f"{__name__}.protocol")
_library_log.setLevel(logging.WARNING)

#: A control frame holds 125 bytes, two of them are the close code.
_REASON_MAX = 123


def warn_without_speedups() -> None:
    """Log it if the library's C extension is missing: 1 MiB messages then cost four times the work."""
    if importlib.util.find_spec("websockets.speedups") is None:
        log.warning("websockets is installed without its C extension: large messages will be slow")


class WebSocket:
    """One client's connection.

    Callbacks, all on the loop and none after ``on_closed``:

    * ``on_open()``: the 101 answer is on its way; ``request`` holds the client's request.
    * ``on_text(data)``: one message, valid UTF-8.  Not called, and not counted in ``received``, once
      `close` was called.
    * ``on_pause()`` / ``on_resume()``: more than ``SIZES.write_high`` bytes wait for the client / a
      quarter of that.  `send_text` never refuses; a source that ignores them fills the memory.
    * ``on_closed(code, reason)``: once, also when the handshake failed.  The peer's code, else the one
      we sent, else 1006; ``reason`` is why we gave up, else it belongs to the code.
    """

    def __init__(
        self,
        *,
        on_open: Callable[[], None],
        on_text: Callable[[bytes], None],
        on_closed: Callable[[int, str], None],
        on_pause: Callable[[], None] = lambda: None,
        on_resume: Callable[[], None] = lambda: None,
        limits: Limits = LIMITS,
        sizes: Sizes = SIZES,
    ) -> None:
        self._on_open, self._on_text, self._on_closed = on_open, on_text, on_closed
        self._on_pause, self._on_resume = on_pause, on_resume
        self._limits, self._sizes = limits, sizes
        self._protocol = ServerProtocol(max_size=sizes.frame, logger=_library_log)
        self._loop = asyncio.get_running_loop()
        self._liveness = Liveness(self._loop.time(), limits)
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # when the timer fires
        self._message = bytearray()  # the fragments so far of one message
        self._opened = False
        self._closing = False  # messages are of no interest any more
        self._gave_up = ""  # why, for `on_closed`
        self._gone = False
        self.request: Request | None = None
        self.received = 0  #: text messages delivered
        self.sent = 0  #: text messages accepted by `send_text`

    # -- for the owner -------------------------------------------------------------------------

    async def adopt(
        self, sock: socket.socket, head: bytes, extra_headers: Mapping[str, str] | None = None
    ) -> None:
        """Take over a connected socket and the bytes already read from it; answer the handshake.

        ``extra_headers`` are added to a 101 answer.  A bad handshake is answered (400, 405, 426, …)
        and ends in ``on_closed`` without ``on_open``.
        """
        self._socket = sock
        self._extra_headers = extra_headers or {}
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # a Unix socket has neither
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, self._sizes.unsent)
        fd = sock.fileno()
        self._writer = Writer(fd, self._write_failed, self._on_pause, self._on_resume, self._arm)
        self._reader = Reader(fd, self._data, self._ended)
        self._bound(self._limits.head)
        if head:
            self._data(head)

    @property
    def open(self) -> bool:
        """Whether messages can be sent."""
        return self._protocol.state is State.OPEN and not self._gone

    @property
    def waiting(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._writer.size

    def send_text(self, data: bytes) -> bool:
        """Queue one message (UTF-8); False, and nothing happens, when the connection is not open."""
        if not self.open:
            return False
        size = len(data)
        if size < 126:
            self._writer.write(b"\x81%c%b" % (size, data))
        elif size < 1 << 16:
            self._writer.write(b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), data))
        else:
            self._writer.write(*_fragments(data, self._sizes.fragment))
        self.sent += 1
        return True

    def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "", *, flush: bool = True) -> None:
        """Close in order: messages already queued (unless not ``flush``), our frame, the peer's frame.

        ``reason`` is cut to 123 bytes.  Bounded by ``write`` for the messages and ``close`` for the
        peer's frame; then the socket is reset.
        """
        if self._gone or self._closing:
            return
        if not self._opened:
            self.abort("closed before the handshake was done")
            return
        if not flush:
            self._writer.clear()
        self._protocol.send_close(code, reason.encode()[:_REASON_MAX].decode(errors="ignore"))
        self._writer.write(*self._protocol.data_to_send())
        self._begin_closing()
        self._bound(self._limits.write)
        self._writer.when_flushed(lambda: self._bound(self._limits.close))

    def abort(self, reason: str = "") -> None:
        """Reset the connection now, dropping what is queued here and in the kernel."""
        if self._gone:
            return
        self._gave_up = reason
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._end()

    def pause_reading(self) -> None:
        """Read no further; the messages of the part already read are still delivered."""
        if not self._gone and not self._closing:
            self._reader.pause()
            self._liveness.deafen()

    def resume_reading(self) -> None:
        """Go on reading."""
        if not self._gone and not self._reader.reading:
            self._reader.resume()
            self._liveness.listen(self._loop.time())
            self._arm()

    # -- incoming ------------------------------------------------------------------------------

    def _data(self, data: bytes) -> None:
        if self._liveness.heard(self._loop.time()):
            self._arm()
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._frame(event)
            elif isinstance(event, Request):
                self._handshake(event)
            if self._gone:
                return
        self._send_protocol_data()

    def _handshake(self, request: Request) -> None:
        self.request = request
        response = self._protocol.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._gave_up = f"handshake refused: {response.status_code} {response.reason_phrase}"
            self._protocol.send_response(response)
            return
        response.headers.update(self._extra_headers)
        self._protocol.send_response(response)
        self._send_protocol_data()
        self._opened = True
        self._liveness.bound(math.inf)
        self._liveness.listen(self._loop.time())
        self._arm()
        self._guarded(self._on_open)

    def _frame(self, frame: Frame) -> None:
        if self._closing:
            return
        if frame.opcode is Opcode.TEXT and frame.fin:
            self._text(bytes(frame.data))
        elif frame.opcode is Opcode.BINARY:
            self._fail(CloseCode.UNSUPPORTED_DATA, "binary messages are not accepted, send text")
        elif frame.opcode is Opcode.TEXT or frame.opcode is Opcode.CONT:
            self._message += frame.data
            if frame.fin:
                message, self._message = bytes(self._message), bytearray()
                self._text(message)

    def _text(self, data: bytes) -> None:
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError as error:
                self._fail(CloseCode.INVALID_DATA, f"not UTF-8: {error.reason} at byte {error.start}")
                return
        self.received += 1
        self._guarded(self._on_text, data)

    def _ended(self, error: OSError | None) -> None:
        if error is not None:
            self._gave_up = self._gave_up or f"the client's socket failed: {error.strerror}"
            self._end()
            return
        self._protocol.receive_eof()
        self._send_protocol_data()
        self._writer.when_flushed(self._end)

    # -- outgoing ------------------------------------------------------------------------------

    def _send_protocol_data(self) -> None:
        """Send what the protocol wants sent: answers, pings and pongs, closing frames."""
        data = self._protocol.data_to_send()
        if not data:
            return
        if self._opened and not self._closing and self._protocol.state is not State.OPEN:
            self._writer.clear()  # the peer's close or an error: no message may follow our frame
            self._begin_closing()
        if self.request is None:
            if data == [SEND_EOF]:  # the library gives up in silence on what it cannot read
                data.insert(0, self._protocol.reject(400, "This is not a valid HTTP request.\n").serialize())
            status_line, _, _ = data[0].partition(b"\r\n")
            self._gave_up = f"handshake refused: {status_line.decode()}"
        for part in data:
            if part:
                self._writer.urgent(part)
            else:  # SEND_EOF
                self._bound(self._limits.close)
                self._writer.when_flushed(self._half_close)

    def _begin_closing(self) -> None:
        self._closing = True
        self._liveness.deafen()
        self._reader.resume()  # else the peer's closing frame is never seen

    def _fail(self, code: int, reason: str) -> None:
        self._protocol.fail(code, reason)
        self._send_protocol_data()

    def _half_close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._bound(self._limits.close)

    def _write_failed(self, error: OSError) -> None:
        if self._gone:
            return
        # A client that sent its last words and exited resets the connection: they are still there.
        self._reader.drain()
        self._ended(error)

    def _guarded(self, callback: Callable[..., None], *args: bytes) -> None:
        try:
            callback(*args)
        except Exception:
            log.exception("a callback of the WebSocket failed, closing it")
            self.close(CloseCode.INTERNAL_ERROR, "internal error", flush=False)

    # -- clocks --------------------------------------------------------------------------------

    def _bound(self, seconds: float) -> None:
        """The present phase of the connection ends within ``seconds``, or by force."""
        self._liveness.bound(self._loop.time() + seconds)
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the next moment at which something may be due."""
        if self._gone:
            return
        self._liveness.blocked(self._writer.progress if self._writer.blocked else None)
        due = self._liveness.next_check()
        if due < self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._due = due
            self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._due, self._timer = math.inf, None
        self._liveness.blocked(self._writer.progress if self._writer.blocked else None)
        now = self._loop.time()
        match self._liveness.check(now):
            case "ping":
                self._protocol.send_ping(b"")
                self._send_protocol_data()
                self._liveness.pinged(now)
            case "silent":
                self.abort(f"no sign of life for {self._limits.ping_timeout:g} s after a ping")
            case "stalled":
                self.abort(f"the client read nothing for {self._limits.write:g} s")
            case "overdue":
                self.abort("the client did not finish in time" if self._opened else "handshake timed out")
        self._arm()

    def _end(self) -> None:
        if self._gone:
            return
        self._gone = True
        if self._timer is not None:
            self._timer.cancel()
        self._reader.close()
        self._writer.close()
        self._socket.close()
        close = self._protocol.close_rcvd or self._protocol.close_sent
        code = int(close.code) if close is not None else int(CloseCode.ABNORMAL_CLOSURE)
        reason = self._gave_up or (close.reason if close is not None else "")
        try:
            self._on_closed(code, reason)
        except Exception:
            log.exception("on_closed of a WebSocket failed")


def _fragments(data: bytes, size: int) -> Iterator[bytes | memoryview]:
    """Headers and payloads of a long text message, without copying it."""
    view = memoryview(data)
    opcode = Opcode.TEXT
    for start in range(0, len(data), size):
        part = view[start : start + size]
        final = 0x80 if start + size >= len(data) else 0
        yield struct.pack("!BBQ", final | opcode, 127, len(part))
        yield part
        opcode = Opcode.CONT
