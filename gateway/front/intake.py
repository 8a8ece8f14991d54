"""The intake: accept, read the head, hand the socket over or answer it.

The shell around `gateway.front.admission`.  The head is consumed, not peeked at: a socket closed with
unread bytes is reset, and its client may never see why it was refused.  After an answer the rest of
the request is read away for the same reason.  A socket handed over leaves nothing here.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from gateway.front.admission import (
    Admission,
    Decision,
    Gate,
    HandOver,
    Page,
    Refuse,
    Serve,
    no_worker,
    unknown_connection,
)
from gateway.front.web import Response, refusal
from gateway.wire.limits import LIMITS, SIZES

__all__ = ["Intake"]

log = logging.getLogger("front.intake")

#: The client went away between the kernel's handshake and accept: the next one may be there.
_GONE = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EINTR})


class Intake:
    """All connections that are not (yet) a worker's.

    ``offer(decision, consumed, fd)`` sends a socket to a worker and says whether one took it;
    ``hold(conn)``: None, or until when a resume must wait; ``page`` makes the answer of the front's own
    pages.  At most ``SIZES.pending_heads`` connections are here at a time, more wait in the backlog.
    ``counters`` counts by what became of them.
    """

    def __init__(
        self,
        listener: socket.socket,
        gate: Gate,
        offer: Callable[[HandOver, bytes, int], bool],
        page: Callable[[Page], Awaitable[Response]],
        hold: Callable[[str], asyncio.Future[None] | None] = lambda conn: None,
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._gate = gate
        self._offer = offer
        self._hold = hold
        self._page = page
        self._loop = asyncio.get_running_loop()
        self._open = False
        self._pause: asyncio.TimerHandle | None = None
        self._reading = set[_Arrival]()
        self._answering = set[asyncio.Task[None]]()
        self._quiet = asyncio.Event()  # no head has been left to read (looked at while closing)
        self.counters = collections.Counter[str]()

    def open(self) -> None:
        """Begin to accept."""
        self._open = True
        self._update_listening()

    def stop(self) -> None:
        """Accept no more; new connections wait in the backlog."""
        self._open = False
        self._update_listening()

    async def close(self) -> None:
        """Stop; what is here has ``LIMITS.stop_decision`` to be settled, then it is told to come again."""
        self.stop()
        self._quiet.clear()
        if self._reading:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LIMITS.stop_decision):
                    await self._quiet.wait()
        for arrival in tuple(self._reading):
            arrival.settle(no_worker())
        if self._answering:
            await asyncio.wait(self._answering, timeout=LIMITS.stop_decision)
        for task in tuple(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    def _update_listening(self) -> None:
        room = len(self._reading) + len(self._answering) < SIZES.pending_heads
        if self._open and room and self._pause is None:
            self._loop.add_reader(self._listener.fileno(), self._accept)
        else:
            self._loop.remove_reader(self._listener.fileno())

    def _accept(self) -> None:
        while len(self._reading) + len(self._answering) < SIZES.pending_heads:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _GONE:  # no descriptor or memory left, most likely
                    log.error("cannot accept a connection: %s; again in %g s", error, LIMITS.accept_pause)
                    self._pause = self._loop.call_later(LIMITS.accept_pause, self._resume)
                    break
                continue
            sock.setblocking(False)
            with contextlib.suppress(OSError):  # the client is gone already: reading will tell
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.counters["accepted"] += 1
            self._reading.add(_Arrival(sock, Admission(self._gate), self._settle))
        self._update_listening()

    def _resume(self) -> None:
        self._pause = None
        self._update_listening()

    def _settle(self, arrival: _Arrival, decision: Decision | None) -> None:
        """The arrival has stopped reading; its socket is ours.  None: the client is gone."""
        self._reading.discard(arrival)
        if not self._reading:
            self._quiet.set()
        match decision:
            case None:
                self.counters["gone"] += 1
                arrival.sock.close()
            case HandOver() if (free := self._hold(decision.conn)) is not None:
                self.counters["held"] += 1
                self._later(self._held(arrival.sock, decision, bytes(arrival.consumed), free))
            case HandOver():
                self._hand_over(arrival.sock, decision, bytes(arrival.consumed))
            case _:
                self._answer(arrival.sock, decision)
        self._update_listening()

    def _hand_over(self, sock: socket.socket, decision: HandOver, consumed: bytes) -> None:
        if self._offer(decision, consumed, sock.fileno()):
            self.counters[f"handed_{decision.kind}"] += 1
            sock.close()
        else:
            self._answer(sock, no_worker())

    async def _held(
        self, sock: socket.socket, decision: HandOver, consumed: bytes, free: asyncio.Future[None]
    ) -> None:
        """Hand it over once the connection is free; told to come again after ``LIMITS.resume_hold``."""
        try:
            async with asyncio.timeout(LIMITS.resume_hold):
                await free
        except TimeoutError:
            self._answer(sock, no_worker())
        except BaseException:
            sock.close()
            raise
        else:
            if self._gate.known(decision.conn):
                self._hand_over(sock, decision, consumed)
            else:
                self._answer(sock, unknown_connection())

    def _answer(self, sock: socket.socket, decision: Refuse | Serve) -> None:
        if isinstance(decision, Refuse):
            self.counters[f"refused_{decision.status}"] += 1
            log.info("refused: %d %s", decision.status, decision.text)
        self._later(self._respond(sock, decision))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._answering.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._update_listening()
        if not task.cancelled() and (error := task.exception()):
            log.error("an answer failed", exc_info=error)

    async def _respond(self, sock: socket.socket, decision: Refuse | Serve) -> None:
        with sock:
            response = refusal(decision) if isinstance(decision, Refuse) else await self._page(decision.page)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(LIMITS.write):
                    await self._loop.sock_sendall(sock, response.encode())
                sock.shutdown(socket.SHUT_WR)
                await _read_away(self._loop, sock)


async def _read_away(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    """Read to the end of what the client sends, bounded by ``LIMITS.close`` and ``SIZES.linger``."""
    left = SIZES.linger
    async with asyncio.timeout(LIMITS.close):
        while left > 0 and (data := await loop.sock_recv(sock, SIZES.read)):
            left -= len(data)


class _Arrival:
    """One accepted socket whose head is being read.

    ``on_settled(arrival, decision)`` is called once, when this no longer watches the socket.
    """

    def __init__(
        self,
        sock: socket.socket,
        admission: Admission,
        on_settled: Callable[[_Arrival, Decision | None], None],
    ) -> None:
        self.sock = sock
        self._admission = admission
        self._on_settled = on_settled
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LIMITS.head, lambda: self.settle(admission.expire()))
        self._loop.add_reader(sock.fileno(), self._readable)

    @property
    def consumed(self) -> bytearray:
        return self._admission.consumed

    def settle(self, decision: Decision | None) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self.sock.fileno())
        self._on_settled(self, decision)

    def _readable(self) -> None:
        try:
            data = self.sock.recv(SIZES.head)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.settle(None)
            return
        decision = self._admission.feed(data) if data else self._admission.end()
        if decision is not None:
            self.settle(decision)
