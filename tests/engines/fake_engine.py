"""A fault-injecting engine with grok's argv grammar and its leader and bridge behaviour.

``agent leader`` owns the lock and the socket, the sessions and the turns; ``agent --leader stdio``
is a bridge: one client on its stdin and stdout.  Misbehaviour is asked for in a JSON file of
*knobs*, read again whenever it changes, since the gateway passes no environment of its own on::

    {"version": "grok 1.0.41 (fake)", "leader": {…}, "bridge": {…}}

Knobs of both: ``exit_at_once {code, stderr}``, ``ignore_term``, ``die_on {method: exit code or "KILL"}``,
``hang_on [method]`` (swallowed, never answered), ``delay {method: seconds}``, ``stderr`` (text at start),
``start_delay`` (seconds), ``children`` (processes that ignore TERM; ``children_setsid`` in sessions of
their own).
Leader: ``mute`` (binds, never answers), ``load`` (normal, none, null, late, missing: how session/load
replays), ``ignore_cancel`` (seconds).
Bridge: ``ignore_eof``, ``lose_first`` (n lines of the client), ``die_after`` (n lines to the client),
``noise [text]`` (written verbatim before every line), ``pieces`` (bytes of one write), ``crlf``.

A prompt is obeyed when it holds ``[[do [actions] ]]``, else echoed; see `fake_leader._Turn`.
Only cheap modules are imported: a bridge starts in some 30 ms.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time

from fake_knobs import Knobs, die, parse

FRAME_LIMIT = 64 * 2**20
#: Seconds that a bridge tries to reach a lost leader before it exits with 0, like grok's.
RECONNECT = 15.0


def bridge(path, knobs):
    knobs.at_start()
    try:
        leader = _connect(path)
    except OSError:
        sys.stderr.write("Error: Failed to spawn leader: No such file or directory (os error 2)\n")
        os._exit(1)
    link = _Link(path, knobs, leader)
    threading.Thread(target=link.from_leader, daemon=True).start()
    for line in sys.stdin.buffer:
        link.to_leader(line)
    while knobs["ignore_eof"]:
        time.sleep(0.1)
    os._exit(0)


class _Link:
    def __init__(self, path, knobs, leader):
        self.path, self.knobs, self.leader, self.sent = path, knobs, leader, 0
        self.lost = 0

    def to_leader(self, line):
        if len(line) + line.count(b'"') + line.count(b"\\") > FRAME_LIMIT:
            while True:  # like grok: no answer, no error, nothing afterwards
                time.sleep(60)
        if self.lost < (self.knobs["lose_first"] or 0):
            self.lost += 1
            return
        message = parse(line)
        if message is None or self.knobs.swallows(message.get("method")):
            return
        with contextlib.suppress(OSError):  # in flight when the leader dies: never answered
            self.leader.sendall(line if line.endswith(b"\n") else line + b"\n")

    def from_leader(self):
        while True:
            for line in self.leader.makefile("rb"):
                self.to_client(line)
            deadline = time.monotonic() + RECONNECT
            while True:
                try:
                    self.leader = _connect(self.path)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        os._exit(0)
                    time.sleep(0.2)
            self.to_client(b'{"jsonrpc":"2.0","method":"x.ai/leader_reconnected","params":{}}\n')

    def to_client(self, line):
        knobs = self.knobs
        for noise in knobs["noise"] or []:
            os.write(1, noise.encode("utf-8", "surrogateescape"))
        if knobs["crlf"]:
            line = line[:-1] + b"\r\n"
        size = knobs["pieces"] or len(line)
        try:
            for start in range(0, len(line), size):
                view = memoryview(line)[start : start + size]
                while view:
                    view = view[os.write(1, view) :]
        except OSError:
            os._exit(0)
        self.sent += 1
        if knobs["die_after"] and self.sent >= knobs["die_after"]:
            die("KILL")


def _connect(path):
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock


def main(knobs_path, argv):
    """Entry of the executable that `tests.engines.fake.write_fake_engine` writes."""
    if "--version" in argv:
        print(Knobs(knobs_path, None)["version"] or "grok 1.0.41 (fake)")
        return
    path = argv[argv.index("--leader-socket") + 1]
    if "stdio" in argv:
        bridge(path, Knobs(knobs_path, "bridge"))
    else:
        from fake_leader import leader  # a bridge starts without it

        leader(path, Knobs(knobs_path, "leader"))
