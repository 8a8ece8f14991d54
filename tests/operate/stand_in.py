"""A component that only does what supervision sees: ``stand_in.py -m gateway.front`` and so on.

It answers ``ping`` and ``status`` on its control socket, ends when its supervisord dies and, as the
front, has a "leader": a process in a session of its own that outlives a restart.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

from gateway.operate.remains import find
from gateway.paths import Paths
from gateway.wire.control import Packet, Server
from gateway.wire.process import Exit, Identity


def leader_of(paths: Paths) -> Identity | None:
    return next((one.identity for one in find(paths) if one.name == "leader"), None)


class StandIn:
    def __init__(self, paths: Paths, name: str) -> None:
        self.paths, self.name = paths, name
        self.leader: Identity | None = None
        self.stop = asyncio.Event()
        self.orphaned = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        supervisord = Identity.of(os.getppid())
        assert supervisord
        watch = Exit(supervisord, self.supervisord_died)
        loop.add_signal_handler(signal.SIGTERM, self.stop.set)
        if self.name == "gateway":
            self.leader = leader_of(self.paths) or self.start_leader()
            loop.add_signal_handler(signal.SIGHUP, self.exec_again)
            path = self.paths.front_socket
        else:
            path = self.paths.worker_socket(self.name)
        server = Server(path, self.on_packet)
        await self.stop.wait()
        watch.cancel()
        server.close()
        if self.leader and (self.orphaned or not self.other_workers()):
            self.leader.end()

    def supervisord_died(self) -> None:
        self.orphaned = True
        self.stop.set()

    def start_leader(self) -> Identity:
        argv = [sys.executable, "-c", "import time; time.sleep(600)", "agent", "leader"]
        process = subprocess.Popen(
            [*argv, "--leader-socket", str(self.paths.leader_socket)], start_new_session=True
        )
        identity = Identity.of(process.pid)
        assert identity
        return identity

    def exec_again(self) -> None:
        os.execv(sys.executable, [sys.executable, *sys.argv])

    def other_workers(self) -> bool:
        time.sleep(0.2)
        return any(one.name == "worker" for one in find(self.paths))

    def on_packet(self, channel: object, packet: Packet) -> None:
        if packet.op == "ping":
            channel.answer(packet, "pong", state="ready")
        elif packet.op == "restart":
            self.leader.end()
            self.leader = self.start_leader()
            channel.answer(packet, "done")
        elif self.name == "gateway":
            leader = {"state": "ready", "pid": self.leader.pid, "adopted": False, "uptime_s": 1}
            channel.answer(packet, "status", engine="stand-in", endpoint="ws://127.0.0.1:1/ws", leader=leader)
        else:
            channel.answer(packet, "status", name=self.name, state="ready", clients=[{"id": self.name}])


def main() -> None:
    paths = Paths.from_environment()
    module = sys.argv[sys.argv.index("-m") + 1]
    name = {"gateway.front": "gateway", "workers": sys.argv[-1]}.get(module, module)
    asyncio.run(StandIn(paths, name).run())


if __name__ == "__main__":
    main()
