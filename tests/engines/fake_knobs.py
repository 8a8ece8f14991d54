"""What the roles of the fake engine share: its knobs, and how to die."""

from __future__ import annotations

import json
import os
import signal
import sys
import time


class Knobs:
    """The knobs of one role, fresh at every look."""

    def __init__(self, path, role):
        self.path, self._role, self._seen, self._values = path, role, None, {}

    def __getitem__(self, name):
        try:
            stamp = os.stat(self.path).st_mtime_ns
            if stamp != self._seen:
                with open(self.path, encoding="utf-8") as file:
                    self._values = json.load(file)
                self._seen = stamp
        except OSError:
            pass
        return self._values.get(self._role, {}).get(name) if self._role else self._values.get(name)

    def at_start(self):
        if self["ignore_term"]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self["stderr"]:
            sys.stderr.write(self["stderr"])
            sys.stderr.flush()
        for _ in range(self["children"] or 0):
            _stubborn_child(bool(self["children_setsid"]))
        time.sleep(self["start_delay"] or 0)
        if ending := self["exit_at_once"]:
            sys.stderr.write(ending.get("stderr", ""))
            sys.stderr.flush()
            os._exit(ending.get("code", 1))

    def swallows(self, method):
        """Apply die_on, delay and hang_on; True when the message must go no further."""
        if method in (self["die_on"] or {}):
            die(self["die_on"][method])
        time.sleep((self["delay"] or {}).get(method, 0))
        return method in (self["hang_on"] or [])


def die(how):
    if how == "KILL":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(how)


def _stubborn_child(own_session):
    """A child and a grandchild that ignore TERM and hold the inherited pipes open."""
    if os.fork() == 0:
        if own_session:
            os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.fork()
        while True:
            time.sleep(60)


def parse(line):
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
