"""``agent --leader stdio``: lines of one client to the leader and back.

It relays lines and keeps what `harness.leader.memory` needs to go on behind another leader.  ``poll`` and
nothing larger: a client waits for its first answer until this process is there, and asyncio alone takes as
long to import as all else that it does.

* Each side is read only while what waits for the other side is within bounds.
* The end of stdin is the end of the client: what it has written goes out first, within a second.
* A leader that is not there is started; one that is lost is looked for, and started when it stays away.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time

from harness.leader.frames import FrameError, FrameReader, acp, frame
from harness.leader.lines import LineReader
from harness.leader.memory import Memory
from harness.leader.place import leader_place
from harness.limits import LIMITS, SIZES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["run"]

_IN, _OUT = 0, 1


class _LeaderLost(Exception):  # noqa: N818 (an event, not an error)
    """The connection has ended."""


class _ClientGone(Exception):  # noqa: N818
    """The client reads no more, or has said all."""


def run(socket_option: str | None, capabilities: dict[str, Any]) -> int:
    """Relay until the client ends; the exit code.  ``capabilities``: defaults of this client's sessions."""
    bridge = _Bridge(leader_place(socket_option), capabilities)
    try:
        bridge.connect()
    except OSError as error:
        sys.stderr.write(f"Error: no leader at {bridge.path}: {error.strerror or error}\n")
        return 1
    code = 0
    try:
        while code == 0:
            try:
                bridge.relay()
            except _LeaderLost:
                code = 0 if bridge.reconnect() else 1
    except _ClientGone:
        pass
    bridge.finish()
    return code


class _Bridge:
    def __init__(self, path: str, capabilities: dict[str, Any]) -> None:
        self.path, self._capabilities = path, capabilities
        self._memory = Memory()
        self._lines = LineReader(SIZES.frame)
        self._to_client = bytearray()
        self._to_leader = bytearray()
        self._client_done = False
        self._awaited: str | None = None  # our own request at the leader
        for number in (_IN, _OUT):
            with contextlib.suppress(OSError):  # a file is always ready
                os.set_blocking(number, False)

    # -- the leader ----------------------------------------------------------------------------
    def connect(self) -> None:
        """Reach the leader, after starting it where nobody listens.  Raises OSError."""
        self._reader = FrameReader()
        try:
            self._socket = _connected(self.path)
        except (FileNotFoundError, ConnectionRefusedError):
            self._start_leader()
            self._socket = self._started()
        about = {"client_type": " ".join(sys.argv), "mode": "stdio", "capabilities": self._capabilities}
        self._socket.sendall(frame({"type": "register", **about}))
        self._socket.setblocking(False)

    def _start_leader(self) -> None:
        import subprocess  # most bridges start no leader

        argv = [sys.executable, "-P", "-m", "harness", "agent", "leader", "--no-exit-on-disconnect"]
        log_file = os.path.join(os.path.dirname(self.path), "leader.log")  # noqa: PTH118, PTH120
        with open(log_file, "wb") as log:  # noqa: PTH123
            subprocess.Popen(
                [*argv, "--leader-socket", self.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def _started(self) -> socket.socket:
        until = time.monotonic() + LIMITS.leader_spawn
        while True:
            try:
                return _connected(self.path)
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > until:
                    raise
                time.sleep(LIMITS.leader_poll)

    def reconnect(self) -> bool:
        """Find or start another leader and bring it to where the lost one was.

        False: there is none.  What was open is answered with an error either way.
        """
        lost = self._memory.lost()
        back = self._found_again()
        if back:
            # First that there was a loss: a client that knows what to do then asks again by itself.
            self._tell(self._memory.reconnected())
        else:
            sys.stderr.write(f"Error: the leader at {self.path} is lost, and no other one can be reached\n")
        for message in lost:
            self._tell(message)
        return back

    def _found_again(self) -> bool:
        self._hang_up()
        pause = LIMITS.reconnect_first
        for attempt in range(SIZES.reconnect_tries):
            if attempt:
                time.sleep(pause)
                pause = min(2 * pause, LIMITS.reconnect_last)
            try:
                self.connect()
                self._replay()
            except (OSError, _LeaderLost):
                self._hang_up()
            else:
                return True
        return False

    def _hang_up(self) -> None:
        """End a connection with all that belongs to it: half a frame would spoil the next one."""
        self._socket.close()
        self._to_leader.clear()
        self._awaited = None

    def _replay(self) -> None:
        """Initialize and load again, one after the other; what the client has not asked is not answered."""
        for request in self._memory.replay():
            self._to_leader += acp(json.dumps(request))
            self._awaited = request["id"]
            until = time.monotonic() + LIMITS.replay
            while self._awaited is not None:
                if time.monotonic() > until:
                    raise _LeaderLost
                self._turn(reading=False)

    # -- the relay -----------------------------------------------------------------------------
    def relay(self) -> None:
        """Until a side ends.  Raises _LeaderLost or _ClientGone."""
        while True:
            if self._client_done and not self._to_leader:
                raise _ClientGone
            self._turn()

    def finish(self) -> None:
        """A side has ended: what waits for either still goes out, as far as it is taken."""
        until = time.monotonic() + LIMITS.bridge_flush
        while (self._to_client or self._to_leader) and (left := until - time.monotonic()) > 0:
            poll = select.poll()
            if self._to_client:
                poll.register(_OUT, select.POLLOUT)
            if self._to_leader:
                poll.register(self._socket.fileno(), select.POLLOUT)
            for number, _ in poll.poll(left * 1000):
                try:
                    self._to_stdout() if number == _OUT else self._to_socket()
                except _ClientGone:
                    self._to_client.clear()
                except _LeaderLost:
                    self._to_leader.clear()
        self._socket.close()

    def _turn(self, *, reading: bool = True) -> None:
        """Wait for something and do what it allows, for ``LIMITS.relay_look`` at most."""
        poll = select.poll()
        leader = self._socket.fileno()
        if reading and not self._client_done and len(self._to_leader) < SIZES.relay_waiting:
            poll.register(_IN, select.POLLIN)
        if self._to_client:
            poll.register(_OUT, select.POLLOUT)
        listening = select.POLLIN if len(self._to_client) < SIZES.relay_waiting else 0
        poll.register(leader, listening | (select.POLLOUT if self._to_leader else 0))
        for number, event in poll.poll(LIMITS.relay_look * 1000):
            if number == _IN:
                self._from_client()
            elif number == _OUT:
                self._to_stdout()
            elif event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._from_leader()
            elif event & select.POLLOUT:
                self._to_socket()

    def _from_client(self) -> None:
        data = os.read(_IN, SIZES.relay_chunk)
        if not data:
            self._client_done = True
            return
        for line in self._lines.feed(data):
            if line is None:
                self._refuse(f"a line of more than {SIZES.frame} bytes")
            else:
                self._take(line)

    def _take(self, line: bytes) -> None:
        """One line of the client."""
        if not line.strip():
            return
        try:
            data = acp(line.decode("utf-8", "surrogateescape"))
        except FrameError as error:
            self._refuse(str(error))
            return
        self._memory.from_client(line)
        self._to_leader += data

    def _refuse(self, why: str) -> None:
        error = {"code": -32600, "message": f"Invalid Request: {why}"}
        self._tell({"jsonrpc": "2.0", "id": None, "error": error})

    def _from_leader(self) -> None:
        try:
            data = self._socket.recv(SIZES.relay_chunk)
            messages = self._reader.feed(data) if data else None
        except BlockingIOError:
            return
        except (OSError, FrameError):
            messages = None
        if messages is None:
            raise _LeaderLost
        for message in messages:
            if message["type"] == "acp":
                number = self._memory.from_leader(message["payload"])
                if self._awaited is not None and number == self._awaited:
                    self._awaited = None  # the client has not asked
                    continue
                self._to_client += message["payload"].encode("utf-8", "surrogatepass") + b"\n"
            elif message["type"] == "shutdown":
                raise _LeaderLost

    def _to_socket(self) -> None:
        try:
            del self._to_leader[: self._socket.send(self._to_leader)]
        except BlockingIOError:
            return
        except OSError:
            raise _LeaderLost from None

    def _to_stdout(self) -> None:
        try:
            del self._to_client[: os.write(_OUT, self._to_client)]
        except BlockingIOError:
            return
        except OSError:
            raise _ClientGone from None

    def _tell(self, message: dict[str, Any]) -> None:
        self._to_client += json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _connected(path: str) -> socket.socket:
    """A connection to whoever listens there.  Raises OSError."""
    found = socket.socket(socket.AF_UNIX)
    found.settimeout(LIMITS.leader_connect)
    try:
        found.connect(path)
    except OSError:
        found.close()
        raise
    return found
