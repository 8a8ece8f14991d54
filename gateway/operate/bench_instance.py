"""A gateway to be measured: folder, port and leader of its own, offline model, nothing of the user's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.engine import Engine, bridge_arguments, kind_of
from gateway.engine_home import KEYS, bridge_environment
from gateway.operate.bench_agents import BareBridge, GatewayClient, PipedAgent
from gateway.paths import Paths
from gateway.secret import read_secret
from gateway.wire.control import Packet, ask
from gateway.wire.limits import LIMITS

__all__ = ["BenchError", "Instance"]


class BenchError(Exception):
    """The instance to be measured does not work; the text says why."""


class Instance:
    """A gateway in ``home``; ``with`` starts and stops it.

    ``grok``: grok's binary, whatever engine is measured; ``pi``: a command.  Neither need be there.
    """

    def __init__(self, home: Path, engine: Engine, grok: Path | None = None, pi: str = "pi") -> None:
        self.grok, self.pi = grok, pi
        self.port = _free_port()
        own = {"GROK_GATEWAY_HOME": str(home / "gg"), "GROK_GATEWAY_PORT": str(self.port)}
        # An empty GROK_HOME and no key: the offline model answers, whoever measures.
        own |= {"GROK_GATEWAY_ENGINE": engine.kind, "GROK_HOME": str(home / "none")}
        if engine.kind == "grok":
            own["GROK_GATEWAY_GROK"] = str(engine.binary)
        # Grok runs a login shell for each session: what a user's profile does is not the gateway's cost.
        own["HOME"] = str(home)
        # Nor may every start compile the program anew.
        left_out = {*KEYS, "PYTHONDONTWRITEBYTECODE"}
        kept = {
            k: v for k, v in os.environ.items() if k not in left_out and not k.startswith("GROK_GATEWAY_")
        }
        self.environ = {**kept, **own}
        self.paths = Paths.from_environment(self.environ)
        self.work = home / "work"
        self.work.mkdir()
        self.up_seconds = 0.0

    def __enter__(self) -> Instance:
        started = time.perf_counter()
        self.command("up")
        self.up_seconds = time.perf_counter() - started
        return self

    def __exit__(self, *_: object) -> None:
        self.command("down")

    def command(self, *words: str) -> None:
        """Run a command of this instance.  Raises BenchError with what it said."""
        argv = [sys.executable, "-m", "gateway.operate.cli", *words]
        run = subprocess.run(argv, env=self.environ, capture_output=True, text=True, timeout=LIMITS.ready * 2)
        if run.returncode:
            raise BenchError(f"grok-gateway {' '.join(words)}: {run.stderr.strip() or run.stdout.strip()}")

    def client(self) -> GatewayClient:
        return GatewayClient(self.port, read_secret(self.paths.secret))

    def bare(self) -> PipedAgent:
        argv, env = self.bridge()
        grok = kind_of(self.status()["leader"]["command"]) == "grok"
        return BareBridge(argv, env) if grok else PipedAgent(argv, env)

    def bridge(self) -> tuple[list[str], Mapping[str, str]]:
        """Arguments and environment of a bridge to this instance's leader."""
        argv = [*self.status()["leader"]["command"], *bridge_arguments(self.paths.leader_socket)]
        return argv, bridge_environment(self.paths.offline_home, self.environ)

    def model_port(self) -> int:
        """Where the offline model listens.  Raises OSError."""
        return int(self.paths.offline_port.read_text("ascii"))

    def status(self) -> Mapping[str, Any]:
        """The front's status.  Raises ControlError."""
        return ask(self.paths.front_socket, Packet("status")).fields


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port
