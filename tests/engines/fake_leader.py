"""The leader of the fake engine: lock, socket, clients, sessions and turns (see `fake_engine`)."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import socket
import sys
import threading
import time

from fake_knobs import die, parse

#: Seconds that grok waits for a hook which gives no timeout of its own.
HOOK_TIMEOUT = 30.0


def leader(path, knobs):
    knobs.at_start()
    lock = os.open(os.path.splitext(path)[0] + ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.stderr.write(f"Error: Another leader already holds the lock at {path}\n")
        os._exit(1)
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(256)
    state = _State(knobs, os.path.join(os.path.dirname(knobs.path), "sessions"))
    while True:
        sock, _ = listener.accept()
        if not knobs["mute"]:
            threading.Thread(target=_Client(sock, state).run, daemon=True).start()


class _State:
    def __init__(self, knobs, folder):
        self.knobs, self.folder, self.lock, self.next_id = knobs, folder, threading.RLock(), 0
        self.clients, self.sessions, self.asked = set(), {}, {}
        os.makedirs(folder, exist_ok=True)

    def add(self, session, client):
        session.subscribers.append(client)
        with self.lock:
            self.sessions[session.sid] = session
        threading.Thread(target=_turns, args=(session, self), daemon=True).start()
        return session

    def revived(self, sid, params):
        """A session of an earlier leader, from its file; None if there is none."""
        file = os.path.join(self.folder, os.path.basename(sid or "-"))
        if not os.path.exists(file):
            return None
        with open(file, encoding="utf-8") as lines:
            history = [json.loads(line) for line in lines]
        return _Session(sid, params, file, history)


class _Session:
    def __init__(self, sid, params, file, history=()):
        self.sid, self.cwd, self.history, self.subscribers = sid, params.get("cwd"), list(history), []
        self.turn, self.queue, self.serial, self.file = None, queue.Queue(), 0, file
        self.hooks, self.yolo = {}, False
        self.configure(params)
        self.record(None)

    def record(self, update):
        text = json.dumps(update)
        with open(self.file, "a", encoding="utf-8") as file:
            if update and len(text) < 65536:  # the history of a test is about order, not about size
                self.history.append(update)
                file.write(text + "\n")

    def configure(self, params):
        meta = params.get("_meta") or {}
        self.hooks = meta.get("x.ai/hooks", self.hooks)
        self.yolo = self.yolo or bool(meta.get("yoloMode"))


class _Client:
    """One bridge at the leader."""

    def __init__(self, sock, state):
        self.sock, self.state, self.out = sock, state, queue.SimpleQueue()

    def run(self):
        threading.Thread(target=self._write, daemon=True).start()
        with self.state.lock:
            self.state.clients.add(self)
        try:
            for line in self.sock.makefile("rb"):
                message = parse(line)
                if message:
                    self._received(message)
        except OSError:
            pass
        with self.state.lock:
            self.state.clients.discard(self)
            for session in self.state.sessions.values():
                if self in session.subscribers:
                    session.subscribers.remove(self)

    def send(self, message):
        # Spelled like grok's lines: no spaces, jsonrpc first.
        self.out.put(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")

    def _write(self):
        try:
            while True:
                self.sock.sendall(self.out.get())
        except OSError:
            pass

    def _received(self, message):
        method, params, number = message.get("method"), message.get("params") or {}, message.get("id")
        if method is None:
            waiting = self.state.asked.pop(number, None) if isinstance(number, int) else None
            if waiting:
                waiting.put(message)
            return
        if self.state.knobs.swallows(method):
            return
        session = self.state.sessions.get(params.get("sessionId"))
        if session and self not in session.subscribers:
            session.subscribers.append(self)
        handler = _METHODS.get(method)
        if handler:
            handler(self, number, params, session)
        elif number is not None:
            self.send({"id": number, "error": {"code": -32601, "message": "Method not found"}})

    # handlers: (number, params, session)
    def initialize(self, number, params, session):
        capabilities = {"loadSession": True, "promptCapabilities": {"embeddedContext": True}}
        result = {"protocolVersion": 1, "agentCapabilities": capabilities, "authMethods": []}
        self.send(
            {"id": number, "result": {**result, "_meta": {"grokShell": True, "agentVersion": "1.0.41"}}}
        )

    def new(self, number, params, session):
        if not str(params.get("cwd", "")).startswith("/"):
            error = {"code": -32602, "message": f"Path is not absolute: {params.get('cwd')}"}
            return self.send({"id": number, "error": error})
        sid = (params.get("_meta") or {}).get("sessionId") or "fake-" + os.urandom(8).hex()
        self.state.add(_Session(sid, params, os.path.join(self.state.folder, os.path.basename(sid))), self)
        return self.send({"id": number, "result": {"sessionId": sid, "models": {}}})

    def load(self, number, params, session):
        mode = self.state.knobs["load"] or "normal"
        if session is None and (session := self.state.revived(params.get("sessionId"), params)):
            self.state.add(session, self)
        if session is None or mode == "missing":
            error = {"code": -32603, "message": "Path not found.", "data": {"code": "FS_NOT_FOUND"}}
            return self.send({"id": number, "error": error})
        session.configure(params)
        answer = {"id": number, "result": None if mode == "null" else {"models": {}}}
        if mode == "late":
            self.send(answer)
        if mode != "none":
            for update in list(session.history):
                body = {"sessionId": session.sid, "update": update, "_meta": {"isReplay": True}}
                self.send({"method": "session/update", "params": body})
        return None if mode == "late" else self.send(answer)

    def list_sessions(self, number, params, session):
        rows = [{"sessionId": s.sid, "cwd": s.cwd} for s in self.state.sessions.values()]
        self.send({"id": number, "result": {"sessions": rows}})

    def close(self, number, params, session):
        self.state.sessions.pop(params.get("sessionId"), None)
        if session and session.turn:
            session.turn.cancelled.set()
        self.send({"id": number, "result": {"_meta": {"x.ai/closeOutcome": "closed"}}})

    def prompt(self, number, params, session):
        if session is None:
            error = {"code": -32602, "message": "unknown session id"}
            return self.send({"id": number, "error": error})
        return session.queue.put(_Turn(self, number, params, session, self.state))

    def cancel(self, number, params, session):
        time.sleep(self.state.knobs["ignore_cancel"] or 0)
        if session and session.turn:
            session.turn.cancelled.set()

    def done(self, number, params, session):
        self.send({"id": number, "result": {}})


_METHODS = {
    "initialize": _Client.initialize,
    "authenticate": _Client.done,
    "session/new": _Client.new,
    "session/load": _Client.load,
    "session/list": _Client.list_sessions,
    "session/close": _Client.close,
    "session/prompt": _Client.prompt,
    "session/cancel": _Client.cancel,
    "session/set_mode": _Client.done,
    "session/set_model": _Client.done,
}


def _turns(session, state):
    """One turn after the other, in the order of the prompts."""
    while session.sid in state.sessions:
        try:
            session.turn = session.queue.get(timeout=1)
        except queue.Empty:
            continue
        session.turn.run()
        session.turn = None


class _CancelledError(Exception):
    """The turn was cancelled while it waited."""


class _Turn:
    """Plays the actions of a prompt: ``say {text, chunks, delay}``, ``bytes`` n (one chunk), ``updates`` n,
    ``sleep`` s, ``wait`` path (until the file exists), ``tool`` name {marker: file created when it runs,
    permission: true}, ``ask`` method (any reverse request, its answer is said), ``raw`` line
    or ``raw_file`` path (sent as it is), ``error`` object, ``die`` code."""

    def __init__(self, client, number, params, session, state):
        self.client, self.number, self.params = client, number, params
        self.session, self.state, self.cancelled = session, state, threading.Event()

    def run(self):
        text = "".join(block.get("text", "") for block in self.params.get("prompt", []))
        start = text.find("[[do ")
        actions = json.JSONDecoder().raw_decode(text, start + 5)[0] if start >= 0 else [{"say": text}]
        try:
            for action in actions:
                if "error" in action:
                    return self.client.send({"id": self.number, "error": action["error"]})
                self._act(action)
        except _CancelledError:
            return self._end("cancelled")
        return self._end("end_turn")

    def _end(self, reason):
        meta = {"promptId": (self.params.get("_meta") or {}).get("promptId")}
        done = {"sessionUpdate": "turn_completed", "prompt_id": meta["promptId"], "stop_reason": reason}
        self._notify("_x.ai/session_notification", {"update": done})
        self.client.send({"id": self.number, "result": {"stopReason": reason, "_meta": meta}})

    def _act(self, action):
        if "say" in action:
            text, count = action["say"], action.get("chunks", 1)
            size = max(1, -(-len(text) // count))
            for start in range(0, len(text), size):
                self._pause(action.get("delay", 0))
                self._chunk(text[start : start + size])
        elif "bytes" in action:
            self._chunk("x" * action["bytes"])
        elif "updates" in action:
            for n in range(action["updates"]):
                self._chunk(f"{n} ")
        elif "sleep" in action:
            self._pause(action["sleep"])
        elif "wait" in action:
            while not os.path.exists(action["wait"]):
                self._pause(0.02)
        elif "tool" in action:
            self._tool(action)
        elif "ask" in action:
            answer = self._ask(action["ask"], action.get("params", {}), action.get("timeout"))
            self._chunk(json.dumps(answer))
        elif "raw" in action:
            self.client.out.put(action["raw"].encode("utf-8", "surrogatepass") + b"\n")
        elif "raw_file" in action:
            with open(action["raw_file"], "rb") as file:
                self.client.out.put(file.read() + b"\n")
        elif "die" in action:
            die(action["die"])

    def _tool(self, action):
        call = {"toolCallId": "call-" + os.urandom(4).hex(), "title": action["tool"]}
        self._update({"sessionUpdate": "tool_call", **call, "rawInput": {}})
        for hook in self.session.hooks.get("pre_tool_use", []):
            for callback in hook.get("hookCallbackIds", []):
                event = {"hookCallbackId": callback, "hookEventName": "pre_tool_use"}
                event |= {"toolName": action["tool"], "toolUseId": call["toolCallId"], "toolInput": {}}
                timeout = min(600, hook.get("timeout", HOOK_TIMEOUT))
                answer = self._ask("_x.ai/hooks/run", event, timeout)  # None: fail open, like grok
                if ((answer or {}).get("result") or {}).get("decision") in ("deny", "block"):
                    return self._update({"sessionUpdate": "tool_call_update", **call, "status": "failed"})
        if action.get("permission") and not self.session.yolo:
            options = [
                {"optionId": kind.replace("_", "-"), "kind": kind} for kind in ("allow_once", "reject_once")
            ]
            answer = self._ask("session/request_permission", {"toolCall": call, "options": options}, None)
            outcome = ((answer or {}).get("result") or {}).get("outcome") or {}
            if outcome.get("optionId") != "allow-once":
                self._update({"sessionUpdate": "tool_call_update", **call, "status": "failed"})
                raise _CancelledError
        if action.get("marker"):
            with open(action["marker"], "x", encoding="utf-8"):
                pass
        return self._update({"sessionUpdate": "tool_call_update", **call, "status": "completed"})

    def _ask(self, method, params, timeout):
        """A reverse request to the driver, the first subscriber; None after ``timeout`` seconds."""
        waiting = queue.SimpleQueue()
        with self.state.lock:
            number, self.state.next_id = self.state.next_id, self.state.next_id + 1
        self.state.asked[number] = waiting
        driver = next(iter(self.session.subscribers), None)
        if driver:
            driver.send({"id": number, "method": method, "params": {"sessionId": self.session.sid, **params}})
        deadline = None if timeout is None else time.monotonic() + timeout
        while deadline is None or time.monotonic() < deadline:
            try:
                return waiting.get(timeout=0.02)
            except queue.Empty:
                self._pause(0)
        return None

    def _pause(self, seconds):
        if self.cancelled.wait(seconds):
            raise _CancelledError

    def _chunk(self, text):
        content = {"type": "text", "text": text}
        self._update({"sessionUpdate": "agent_message_chunk", "content": content})

    def _update(self, update):
        self.session.record(update)
        self._notify("session/update", {"update": update})

    def _notify(self, method, params):
        self.session.serial += 1
        meta = {"eventId": f"{self.session.sid}-{self.session.serial}"}
        body = {"sessionId": self.session.sid, **params, "_meta": meta}
        for client in list(self.session.subscribers):
            client.send({"method": method, "params": body})
