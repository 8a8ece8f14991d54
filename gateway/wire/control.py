"""Control channel: what the processes of one instance say to each other.

A channel is an ``AF_UNIX``/``SOCK_SEQPACKET`` connection: the kernel keeps message boundaries, so
one packet is one message and a file descriptor travels in the same message as the words about it.
A packet is one JSON object, then optionally LF and raw bytes (a consumed request head, a state)::

    {"op":"socket","kind":"ws","conn":"…"}\nGET /ws HTTP/1.1\r\n…      + one descriptor

``op`` says what it is.  A request carries ``id``; its answer carries ``re`` with the same value.
An empty packet never exists: ``recv`` of nothing without descriptors is the end of the channel.

`Packet` is pure; `Channel` and `Server` are the asyncio shells around it, `ask` the blocking one
for the command line.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from gateway.wire.limits import LIMITS, SIZES

__all__ = ["Channel", "ControlError", "Packet", "Server", "ask", "connect"]


class ControlError(Exception):
    """Nobody answers at a control socket, or the answer is not understood."""


@dataclasses.dataclass(frozen=True, slots=True)
class Packet:
    """One message.  ``fields`` is JSON-ready; ``payload`` are raw bytes; ``fds`` are owned by the holder."""

    op: str
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    payload: bytes = b""
    fds: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """The bytes of the packet.  Raises ControlError when they exceed ``SIZES.packet``."""
        head = orjson.dumps({"op": self.op, **self.fields})
        data = head + b"\n" + self.payload if self.payload else head
        if len(data) > SIZES.packet:
            raise ControlError(
                f"control packet {self.op!r} has {len(data)} bytes, at most {SIZES.packet} fit"
            )
        return data

    @classmethod
    def decode(cls, data: bytes, fds: tuple[int, ...] = ()) -> Packet:
        """Raises ControlError for anything but an object with a string ``op``."""
        head, _, payload = data.partition(b"\n")
        try:
            fields = orjson.loads(head)
        except orjson.JSONDecodeError as error:
            raise ControlError(f"control packet is not JSON: {error}") from error
        if not isinstance(fields, dict) or not isinstance(fields.get("op"), str):
            raise ControlError("control packet has no 'op'")
        return cls(fields.pop("op"), fields, payload, fds)

    def close_fds(self) -> None:
        """Close descriptors that nobody took over."""
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)


class Channel:
    """One end of a control channel on a running loop.

    ``on_packet(channel, packet)`` is called for each packet (an exception in it closes the channel),
    ``on_closed(channel)`` once.  Packets that the peer does not take wait in a bounded queue; a full
    queue closes the channel, since a peer that reads nothing is hung or gone.

    A peer that ends leaves its last packets behind, sockets of clients among them.  They are read
    before the channel closes, whatever is noticed first: a failed send, or the ECONNRESET that the
    kernel reports once, ahead of the packets, when the peer had not read everything itself.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_packet: Callable[[Channel, Packet], None],
        on_closed: Callable[[Channel], None] = lambda channel: None,
    ) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * SIZES.packet)
        self._socket = sock
        self._on_packet = on_packet
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._waiting = collections.deque[Packet]()
        self._answers = dict[int, asyncio.Future[Packet]]()
        self._numbers = 0
        self._peer_gone = False
        self.closed = False
        self._loop.add_reader(sock.fileno(), self._readable)

    def send_now(self, packet: Packet) -> bool:
        """Send without queueing; False if the peer's buffer is full or the channel is closed.

        For a hand-off: the caller keeps the descriptors and tries another worker.
        """
        if self.closed or self._peer_gone or self._waiting:
            return False
        try:
            socket.send_fds(self._socket, [packet.encode()], list(packet.fds))
        except BlockingIOError:
            return False
        except ConnectionError:
            self._peer_gone = True
            return False
        except OSError:
            self.close()
            return False
        return True

    def send(self, packet: Packet) -> None:
        """Send, waiting in the queue if need be (descriptors: `send_now`)."""
        if self.send_now(packet) or self.closed or self._peer_gone:
            return
        if len(self._waiting) >= SIZES.channel_queue:
            self.close()
            return
        if not self._waiting:
            self._loop.add_writer(self._socket.fileno(), self._writable)
        self._waiting.append(packet)

    async def request(self, packet: Packet, timeout: float = LIMITS.control) -> Packet:
        """Send with a fresh ``id`` and wait for the packet whose ``re`` is that id.

        ``timeout`` in seconds.  Raises ControlError when the channel closes or nobody answers.
        """
        self._numbers += 1
        number = self._numbers
        answer: asyncio.Future[Packet] = self._loop.create_future()
        self._answers[number] = answer
        try:
            self.send(dataclasses.replace(packet, fields={**packet.fields, "id": number}))
            if self.closed or self._peer_gone:
                raise ControlError(f"{packet.op}: the control channel is closed")
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise ControlError(f"{packet.op}: no answer within {timeout:g} s") from None
        finally:
            self._answers.pop(number, None)

    def answer(self, request: Packet, op: str, payload: bytes = b"", **fields: Any) -> None:
        """Answer a request packet."""
        self.send(Packet(op, {**fields, "re": request.fields.get("id")}, payload))

    def close(self) -> None:
        """Close now; pending requests fail, ``on_closed`` is called."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._waiting.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ControlError("the control channel closed"))
        self._on_closed(self)

    def _readable(self) -> None:
        for _ in range(64):  # fairness: other descriptors of the loop get their turn
            if self.closed:
                return
            try:
                data, fds, _, _ = socket.recv_fds(self._socket, SIZES.packet, 4)
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionResetError:
                continue
            except OSError:
                self.close()
                return
            if not data and not fds:
                self.close()
                return
            self._received(data, tuple(fds))

    def _received(self, data: bytes, fds: tuple[int, ...]) -> None:
        packet = Packet("", fds=fds)
        try:
            packet = Packet.decode(data, fds)
            answer = self._answers.get(packet.fields.get("re") or 0)
            if answer is None:
                self._on_packet(self, packet)
            elif not answer.done():
                answer.set_result(packet)
        except BaseException:
            packet.close_fds()
            self.close()
            raise

    def _writable(self) -> None:
        while self._waiting and not self.closed:
            try:
                self._socket.send(self._waiting[0].encode())
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                self._peer_gone = True
                self._waiting.clear()
                break
            except OSError:
                self.close()
                return
            self._waiting.popleft()
        if not self.closed:
            self._loop.remove_writer(self._socket.fileno())


class Server:
    """Listens at ``path`` (0600) and makes a `Channel` of each connection."""

    def __init__(
        self,
        path: Path,
        on_packet: Callable[[Channel, Packet], None],
        on_opened: Callable[[Channel], None] = lambda channel: None,
        on_closed: Callable[[Channel], None] = lambda channel: None,
    ) -> None:
        self._path = path
        self._on_packet, self._on_opened, self._on_closed = on_packet, on_opened, on_closed
        self._loop = asyncio.get_running_loop()
        self.channels = set[Channel]()
        # A stale file is in the way of bind.  Unlinking is safe: every owner of a control socket
        # holds its own single-instance lock (the front's flock, supervisord's one process per name).
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mask = os.umask(0o177)
        try:
            self._socket.bind(str(path))
        finally:
            os.umask(mask)
        self._socket.listen(64)
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Stop listening, close every channel, remove the socket file.  Again: nothing."""
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._path.unlink(missing_ok=True)
        for channel in tuple(self.channels):
            channel.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._socket.accept()
        except OSError:
            return
        channel = Channel(sock, self._on_packet, self._gone)
        self.channels.add(channel)
        self._on_opened(channel)

    def _gone(self, channel: Channel) -> None:
        self.channels.discard(channel)
        self._on_closed(channel)


def connect(
    path: Path,
    on_packet: Callable[[Channel, Packet], None],
    on_closed: Callable[[Channel], None] = lambda channel: None,
) -> Channel:
    """Connect to a control socket on the running loop.  Raises OSError when nobody listens."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.setblocking(False)  # a full backlog answers EAGAIN at once instead of blocking the loop
        sock.connect(str(path))
    except OSError:
        sock.close()
        raise
    return Channel(sock, on_packet, on_closed)


def ask(path: Path, packet: Packet, timeout: float = LIMITS.control) -> Packet:
    """Blocking question and answer, for the command line.  ``timeout`` in seconds.

    Raises ControlError when nobody listens, nobody answers in time or the answer is not understood.
    The answer may carry descriptors; they belong to the caller.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(timeout)
        try:
            sock.connect(str(path))
            request = dataclasses.replace(packet, fields={**packet.fields, "id": 1})
            socket.send_fds(sock, [request.encode()], list(packet.fds))
            while True:
                data, fds, _, _ = socket.recv_fds(sock, SIZES.packet, 4)
                if not data:
                    raise ControlError(f"{path.name}: closed without an answer")
                answer = Packet.decode(data, tuple(fds))
                if answer.fields.get("re") == 1:
                    return answer
                answer.close_fds()
        except TimeoutError:
            raise ControlError(f"{path.name}: no answer within {timeout:g} s") from None
        except OSError as error:
            raise ControlError(f"{path.name}: {error.strerror or error}") from error
