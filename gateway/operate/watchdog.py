"""The watchdog: ``python -m gateway.operate.watchdog``, an event listener of supervisord.

- It keeps a duplicate of the front's listening socket, so that connections wait while the front
  restarts instead of being refused (`Escrow`).
- It probes the front and the workers and kills the one that hangs; supervisord starts it again.  KILL,
  because a stopped process takes no TERM, and a hung one had its time.  The leader is probed by the
  front, which owns it.
- It tries a program again that supervisord gave up on (FATAL), and gives one a rest that fails again
  and again without becoming FATAL.
- It feeds systemd, but only while supervisord does its work.  The front must not do that: a hung
  front would then cost the whole service, WebSockets of all workers included.
- When supervisord dies it waits for the others to end themselves, then ends what is left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gateway.operate import remains
from gateway.operate.events import READY, RESULT, CrashBook, EventReader, StartBook, StateEvent
from gateway.operate.notify import Notifier
from gateway.operate.probe import ProbeBook
from gateway.operate.supervisor import Component, Supervisor, SupervisorError
from gateway.paths import PathError, Paths
from gateway.wire.control import Channel, ControlError, Packet, Server, connect
from gateway.wire.limits import LIMITS
from gateway.wire.process import Exit, Identity

__all__ = ["Escrow", "Watchdog", "main"]

log = logging.getLogger("watchdog")
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Escrow:
    """A duplicate of the listening socket and the port that it listens on."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._port = 0

    def keep(self, port: int, fd: int) -> None:
        """Take over ``fd``, in place of the one kept so far."""
        self.release()
        self._fd, self._port = fd, port

    def get(self, port: int) -> int | None:
        """The descriptor if it listens on ``port``; it stays here."""
        return self._fd if port == self._port else None

    def release(self) -> None:
        """Close it: from now on connections are refused unless the front listens."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._port = None, 0


class Watchdog:
    """The process; needs a running loop."""

    def __init__(self, paths: Paths, notifier: Notifier) -> None:
        self._paths = paths
        self._notifier = notifier
        self._supervisor = Supervisor(paths)
        self._supervisord = Identity.of(os.getppid())
        self._book = ProbeBook()
        self._starts = StartBook(paths.restarts, self._supervisord or Identity(0, 0))
        self._crashes = CrashBook()
        self._looping = set[str]()  #: to be stopped as soon as supervisord has started them again
        self._escrow = Escrow()
        self._reader = EventReader()
        self._stop = asyncio.Event()
        self._orphaned = False
        self._retries = dict[str, asyncio.TimerHandle]()

    async def run(self) -> None:
        """Watch until TERM or until supervisord has died."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        loop.add_signal_handler(signal.SIGINT, self._stop.set)
        watch = Exit(self._supervisord, self._supervisord_died) if self._supervisord else None
        server = Server(self._paths.watchdog_socket, self._on_packet)
        self._listen_to_events()
        log.info("watching over supervisord (pid %d) and its programs", os.getppid())
        tasks = [asyncio.create_task(work) for work in (self._rounds(), self._feed(), self._announce())]
        await self._stop.wait()
        self._notifier.send(STOPPING=1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.close()
        self._escrow.release()
        if watch:
            watch.cancel()
        await asyncio.to_thread(self._end_what_is_left)

    # -- the end ---------------------------------------------------------------------------------
    def _supervisord_died(self) -> None:
        if self._orphaned:
            return
        self._orphaned = True
        # Standard error was a pipe to supervisord: from now on nobody reads it.
        logging.basicConfig(filename=self._paths.log("watchdog"), format=_LOG_FORMAT, force=True)
        log.error("supervisord died: waiting for the others to end, the leader last")
        self._stop.set()

    def _end_what_is_left(self) -> None:
        """After supervisord's death, and at the end of its shutdown (it stops the watchdog last)."""
        if not self._orphaned and not self._supervisor.shutting_down():
            return  # only the watchdog is restarted
        if self._orphaned:
            remains.wait_gone([one.identity for one in remains.find(self._paths)], LIMITS.supervisor_gone)
        ours = [one for one in remains.find(self._paths) if one.name != "supervisord"]
        if ours:
            log.warning("still there, ended now: %s", ", ".join(map(str, ours)))
        left = remains.end(one for one in ours if one.name not in remains.ENGINE)
        left += remains.end(one for one in ours if one.name in remains.ENGINE)
        left += remains.end_engine(self._paths)
        if left:
            log.error("could not be ended: %s", ", ".join(map(str, left)))

    # -- what others ask -------------------------------------------------------------------------
    def _on_packet(self, channel: Channel, packet: Packet) -> None:
        port = packet.fields.get("port")
        if packet.op == "keep" and isinstance(port, int) and len(packet.fds) == 1:
            self._escrow.keep(port, packet.fds[0])
            channel.answer(packet, "kept")
            return
        packet.close_fds()
        if packet.op == "take" and isinstance(port, int):
            self._give(channel, packet, port)
        elif packet.op == "release":
            self._escrow.release()
            channel.answer(packet, "released")
        elif packet.op == "ping":
            channel.answer(packet, "pong", state="ready")
        elif packet.op == "status":
            channel.answer(packet, "status", hung=self._book.hung(), restarts=self._starts.restarts())
        else:
            channel.answer(packet, "failed", reason=f"the watchdog does not know {packet.op!r}")

    def _give(self, channel: Channel, request: Packet, port: int) -> None:
        fd = self._escrow.get(port)
        if fd is None:
            channel.answer(request, "none")
            return
        fields = {"port": port, "re": request.fields.get("id")}
        if not channel.send_now(Packet("listener", fields, fds=(fd,))):
            channel.close()

    # -- what supervisord tells ------------------------------------------------------------------
    def _listen_to_events(self) -> None:
        if "SUPERVISOR_PROCESS_NAME" not in os.environ:
            return  # started by hand: nobody sends events
        os.set_blocking(sys.stdin.fileno(), False)
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._events_readable)
        os.write(sys.stdout.fileno(), READY)

    def _events_readable(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 65536)
        except BlockingIOError:
            return
        if not data:  # also when it died before its pidfd could be opened
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._supervisord_died()
            return
        for event in self._reader.feed(data):
            if event is not None:
                self._on_event(event)
            os.write(sys.stdout.fileno(), RESULT + READY)

    def _on_event(self, event: StateEvent) -> None:
        self._starts.observe(event)
        name = event.component
        if event.state == "FATAL":
            log.error("%s is FATAL (see its log); next try in %g s", name, LIMITS.fatal_rest)
            self._give_it_a_rest(name)
        elif self._crashes.looping(asyncio.get_running_loop().time(), event):
            log.error("%s fails again and again (see its log); next try in %g s", name, LIMITS.fatal_rest)
            self._looping.add(name)
        elif event.state == "STOPPED":
            self._looping.discard(name)
        elif event.state == "STARTING" and name in self._looping:  # a stop before this has no effect
            self._looping.remove(name)
            self._give_it_a_rest(name)
            self._tell(self._supervisor.stop, name)
        elif event.state == "STARTING" and name in self._retries:  # an operator was faster
            self._retries.pop(name).cancel()

    def _give_it_a_rest(self, name: str) -> None:
        if name == "gateway":
            self._escrow.release()  # refused at once is better than waiting for nobody
        if name in self._retries:
            self._retries.pop(name).cancel()
        self._retries[name] = asyncio.get_running_loop().call_later(LIMITS.fatal_rest, self._retry, name)

    def _retry(self, name: str) -> None:
        del self._retries[name]
        log.info("%s: started again after a rest", name)
        self._tell(self._supervisor.start, name)

    def _tell(self, what: Callable[[str], None], name: str) -> None:
        """Tell supervisord without waiting for it on the loop."""

        def tell() -> None:
            try:
                what(name)
            except SupervisorError as error:
                log.warning("%s: %s", name, error)

        asyncio.get_running_loop().run_in_executor(None, tell)

    # -- probes ----------------------------------------------------------------------------------
    async def _rounds(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            try:
                components = await asyncio.to_thread(self._supervisor.components)
            except SupervisorError as error:
                log.warning("%s", error)
            else:
                await self._round(components)
            await asyncio.sleep(max(0.0, begun + LIMITS.probe_interval - loop.time()))

    async def _round(self, components: list[Component]) -> None:
        sockets = {c.name: path for c in components if c.alive and (path := self._socket_of(c))}
        pids = {c.name: c.pid for c in components}
        alive = {name: known for name in sockets if (known := Identity.of(pids[name]))}
        self._book.present(asyncio.get_running_loop().time(), alive)
        await asyncio.gather(*(self._probe(name, known, sockets[name]) for name, known in alive.items()))
        self._remember_fatal(components)
        self._notifier.send(STATUS=_summary(components, self._book.hung()))

    def _remember_fatal(self, components: list[Component]) -> None:
        """FATAL programs whose event went to an earlier watchdog."""
        for component in components:
            if component.state == "FATAL" and component.name not in self._retries:
                self._give_it_a_rest(component.name)

    def _socket_of(self, component: Component) -> Path | None:
        if component.name == "gateway":
            return self._paths.front_socket
        if component.name.startswith("worker:"):
            return self._paths.worker_socket(component.log_name)
        return None

    async def _probe(self, name: str, identity: Identity, path: Path) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LIMITS.probe_timeout
        if await _ping(path):
            self._book.answered(loop.time(), name, identity)
            return
        await asyncio.sleep(deadline - loop.time())  # refused at once counts no more than silence
        if self._book.missed(loop.time(), name, identity):
            log.error("%s (pid %d) hangs: %s; killed", name, identity.pid, self._book.hung()[name])
            identity.signal(signal.SIGKILL)

    # -- systemd ---------------------------------------------------------------------------------
    async def _announce(self) -> None:
        """READY once the front answers; until then systemd shows the service as starting."""
        while self._notifier.active:
            if await _ping(self._paths.front_socket):
                self._notifier.send(READY=1)
                log.info("the front answers: told systemd that the service is ready")
                return
            await asyncio.sleep(LIMITS.reconnect)

    async def _feed(self) -> None:
        while self._notifier.active:
            if await asyncio.to_thread(self._supervisor.answers):
                self._notifier.send(WATCHDOG=1)
            else:
                log.warning("supervisord does not answer: systemd is not fed")
            await asyncio.sleep(self._notifier.interval)


async def _ping(path: Path) -> bool:
    """Ask on a new connection, since that proves that accept works, too."""
    try:
        channel = connect(path, lambda channel, packet: packet.close_fds())
    except OSError:
        return False
    try:
        return (await channel.request(Packet("ping"), LIMITS.probe_timeout)).op == "pong"
    except ControlError:
        return False
    finally:
        channel.close()


def _summary(components: Sequence[Component], hung: Mapping[str, str]) -> str:
    """One line for ``systemctl status``."""
    wanted = [c for c in components if c.ever_started]
    running = [c for c in wanted if c.state == "RUNNING" and c.name not in hung]
    others = [f"{c.name} {'HUNG' if c.name in hung else c.state}" for c in wanted if c not in running]
    return ", ".join([f"{len(running)} of {len(wanted)} components running", *others])


def main() -> int:
    """Exit code 0 after an orderly stop, 1 when the instance's folders cannot be used."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=_LOG_FORMAT)
    try:
        paths = Paths.from_environment()
        paths.create()
    except PathError as error:
        log.error("%s", error)
        return 1
    asyncio.run(_run(paths))
    return 0


async def _run(paths: Paths) -> None:
    await Watchdog(paths, Notifier()).run()


if __name__ == "__main__":
    sys.exit(main())
