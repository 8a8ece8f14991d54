"""An MCP server as a process, for tests: ``python process_server.py LOG [words]``.

LOG gets a JSON line for its start and for each message.  Words make it worse than it should be: ``deaf`` ends
by KILL only, with a child that is no better (``deaf-alone``: without one); ``noisy`` prints what is no
message and fills its error output; ``dead`` ends before the handshake; ``endless`` answers calls with a line
of two megabytes.  The tool ``die`` ends it in the middle of the call, once for each log.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

LOG, WORDS = sys.argv[1], sys.argv[2:]
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "die")]


def log(value: Any) -> None:
    with open(LOG, "a") as file:
        file.write(json.dumps(value) + "\n")


def died_before() -> bool:
    with open(LOG) as file:
        return any(json.loads(line).get("dies") for line in file)


def result(message: dict[str, Any]) -> dict[str, Any]:
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        info = {"name": "process", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if params["name"] == "die" and not died_before():
        log({"dies": True})
        sys.stderr.write(f"fell over, {os.environ.get('KEY')}\n")
        sys.stderr.flush()
        os._exit(3)
    text = "x" * 2_000_000 if "endless" in WORDS else f"echo {params['arguments'].get('text')}"
    return {"content": [{"type": "text", "text": text}]}


def main() -> None:
    child = 0
    if "dead" in WORDS:
        sys.exit("no licence")
    deaf = bool({"deaf", "deaf-alone"} & set(WORDS))
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "deaf" in WORDS:
        ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-S", "-c", ignore]).pid
    log({"pid": os.getpid(), "child": child, "env": dict(os.environ), "cwd": os.getcwd()})
    if "noisy" in WORDS:
        sys.stderr.write("complaint " * 100_000)
        sys.stderr.flush()
        print("Welcome!\n[1, 2\n", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        log(message)
        if "id" in message and "method" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result(message)}), flush=True)
    while deaf:
        time.sleep(600)


main()
