"""Bytes through a non-blocking descriptor: `Reader` and `Writer`, for sockets and pipes alike.

asyncio's transports do the same, but hide what the gateway must decide itself: which bytes may
overtake others (a pong must not wait behind megabytes of data), whether a peer that accepts nothing
makes progress at all, and what stays in memory.  With the same code on sockets and pipes both loops
behave alike, and a burst of small messages costs one system call instead of one each.
"""

from __future__ import annotations

import asyncio
import collections
import os
from collections.abc import Callable

from gateway.wire.limits import SIZES

__all__ = ["Reader", "Writer"]

# Shared by all readers of the process.  os.read would allocate SIZES.read and give most of it back
# each time, which maps and unmaps memory at every small read.
_buffer = memoryview(bytearray(SIZES.read))


class _Delivery:
    """Writes made while a `Reader` delivers go out together when it has finished."""

    def __init__(self) -> None:
        self.running = False
        self.writers: list[Writer] = []

    def run(self, deliver: Callable[[bytes], None], data: bytes) -> None:
        if self.running:
            deliver(data)
            return
        self.running = True
        try:
            deliver(data)
        finally:
            self.running = False
            writers, self.writers = self.writers, []
            for writer in writers:
                writer.flush()


_delivery = _Delivery()


class Reader:
    """Reads a descriptor of somebody else whenever it has bytes, at most ``SIZES.read`` at a time.

    ``on_end(error)`` comes once, at the end of the stream (None) or when reading fails.  One read in
    each turn of the loop: a fast stream leaves the others their share.
    """

    def __init__(
        self, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[OSError | None], None]
    ) -> None:
        self._fd = fd
        self._on_data = on_data
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self.reading = False
        self.resume()

    def resume(self) -> None:
        """Go on reading."""
        if not self.reading and not self._ended:
            self.reading = True
            self._loop.add_reader(self._fd, self._read)

    def pause(self) -> None:
        """Read nothing more until `resume`; a part already read may still be in delivery."""
        if self.reading:
            self.reading = False
            self._loop.remove_reader(self._fd)

    def close(self) -> None:
        """Stop for good, without ``on_end``.  The descriptor stays open."""
        self.pause()
        self._ended = True

    def drain(self) -> None:
        """Read what is there now, paused or not.

        After its writer's death a pipe holds at most its capacity, so this is bounded.
        """
        while not self._ended and self._read():
            pass

    def _read(self) -> bool:
        try:
            count = os.readv(self._fd, (_buffer,))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self.close()
            self._on_end(error)
            return False
        if count:
            _delivery.run(self._on_data, _buffer[:count].tobytes())
            return True
        self.close()
        self._on_end(None)
        return False


class Writer:
    """Writes to a descriptor of somebody else, queueing what the kernel does not take.

    What is written while a `Reader` delivers goes out in one system call afterwards, anything else at
    once.  Above ``high`` waiting bytes ``on_pause`` is called, and
    ``on_resume`` once a quarter of that is left.  ``on_blocked`` is called when the kernel begins to
    refuse bytes: the time to start a clock.  ``on_error(error)`` comes once; nothing is written then.

    A queued ``bytes`` object begins a frame; a ``memoryview`` is the rest of the frame before it, and
    an `urgent` frame never goes in front of one.
    """

    def __init__(
        self,
        fd: int,
        on_error: Callable[[OSError], None],
        on_pause: Callable[[], None] = lambda: None,
        on_resume: Callable[[], None] = lambda: None,
        on_blocked: Callable[[], None] = lambda: None,
        *,
        high: int = SIZES.write_high,
    ) -> None:
        self._fd, self._high = fd, high
        self._on_error, self._on_blocked = on_error, on_blocked
        self._on_pause, self._on_resume = on_pause, on_resume
        self._loop = asyncio.get_running_loop()
        self._queue = collections.deque[bytes | memoryview]()
        self._urgent = collections.deque[bytes](maxlen=SIZES.control_frames)
        self._due = False  # a flush is coming
        self._then: Callable[[], None] | None = None
        self._paused = False
        self._closed = False
        self.size = 0  #: bytes waiting, urgent frames not counted
        self.blocked = False  #: the kernel takes nothing more; it will say when it does
        self.progress = 0.0  #: loop time when it began to block, or last took something since

    def write(self, *buffers: bytes | memoryview) -> None:
        """Queue one frame (see the class about the types of its buffers)."""
        if self._closed:
            return
        self._queue.extend(buffers)
        self.size += sum(map(len, buffers))
        if not self._due:
            self._wake()
        if self.size > self._high:
            self._press()

    def urgent(self, frame: bytes) -> None:
        """Send a small frame in front of all that is queued; too many waiting: the oldest is dropped."""
        if not self._closed:
            self._urgent.append(frame)
            self._wake()

    def clear(self) -> None:
        """Forget what is queued, except the rest of a frame that has begun."""
        kept = list[bytes | memoryview]()
        while self._queue and type(self._queue[0]) is memoryview:
            kept.append(self._queue.popleft())
        self._queue.clear()
        self._queue.extend(kept)
        self._urgent.clear()
        self.size = sum(map(len, kept))

    def when_flushed(self, then: Callable[[], None]) -> None:
        """Call ``then`` once nothing waits any more, perhaps at once.  A later call replaces it."""
        self._then = then
        self._flushed()

    def close(self) -> None:
        """Forget everything and stop.  The descriptor stays open."""
        self._closed = True
        self._queue.clear()
        self._urgent.clear()
        self.size = 0
        self._then = None
        if self.blocked:
            self._unblock()

    def flush(self) -> None:
        """Write one batch now, as far as the kernel takes it."""
        self._due = False
        if self.blocked:
            return
        self._write()
        if (self._queue or self._urgent) and not self.blocked and not self._closed:
            self._due = True
            self._loop.call_soon(self.flush)  # the others get their turn first

    def _wake(self) -> None:
        if self._due or self.blocked:
            return
        if _delivery.running:
            self._due = True
            _delivery.writers.append(self)
        else:
            self.flush()

    def _write(self) -> None:
        batch, total, urgent = self._batch()
        if not batch:
            if self.blocked:  # all was cleared
                self._unblock()
            return
        try:
            count = os.writev(self._fd, batch)
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError as error:
            self.close()
            self._loop.call_soon(self._on_error, error)  # not inside the caller's write()
            return
        if count < total:
            self._put_back(batch, urgent, count)
            self._block()
        elif self.blocked and not self._queue:
            self._unblock()
        if count and self.blocked:
            self.progress = self._loop.time()
        if self._paused or self.size > self._high:
            self._press()
        if self._then is not None:
            self._flushed()

    def _press(self) -> None:
        """Tell the source to pause or to go on."""
        if not self._paused and self.size > self._high:
            self._paused = True
            self._on_pause()
        elif self._paused and self.size <= self._high // 4:
            self._paused = False
            self._on_resume()

    def _batch(self) -> tuple[list[bytes | memoryview], int, range]:
        """Take the buffers of one system call from the queues: (buffers, their bytes, the urgent ones)."""
        queue = self._queue
        if not self._urgent and self.size <= SIZES.write_high and len(queue) <= SIZES.write_batch:
            batch, total = list(queue), self.size  # nearly always all of it
            queue.clear()
            self.size = 0
            return batch, total, range(0)
        batch = []
        while queue and type(queue[0]) is memoryview:
            batch.append(queue.popleft())
        size = sum(map(len, batch))
        total = size + sum(map(len, self._urgent))
        urgent = range(len(batch), len(batch) + len(self._urgent))
        batch += self._urgent
        self._urgent.clear()
        while queue and size < SIZES.write_high and len(batch) < SIZES.write_batch:
            buffer = queue.popleft()
            batch.append(buffer)
            size += len(buffer)
            total += len(buffer)
        self.size -= size
        return batch, total, urgent

    def _put_back(self, batch: list[bytes | memoryview], urgent: range, count: int) -> None:
        """Queue again what is left of a batch of which ``count`` bytes were written."""
        index = 0
        while count >= len(batch[index]):
            count -= len(batch[index])
            index += 1
        rest = list[bytes | memoryview]()
        if count:
            rest.append(memoryview(batch[index])[count:])
            index += 1
        for number in range(index, len(batch)):
            if number not in urgent:
                rest.append(batch[number])
        self.size += sum(map(len, rest))
        self._queue.extendleft(reversed(rest))
        self._urgent.extendleft(bytes(batch[number]) for number in reversed(urgent) if number >= index)

    def _block(self) -> None:
        if not self.blocked:
            self.blocked = True
            self.progress = self._loop.time()
            self._loop.add_writer(self._fd, self._write)
            self._on_blocked()

    def _unblock(self) -> None:
        self.blocked = False
        self._loop.remove_writer(self._fd)

    def _flushed(self) -> None:
        if self._then is not None and not self._queue and not self._urgent:
            then, self._then = self._then, None
            then()
