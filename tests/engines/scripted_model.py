"""A scripted OpenAI-compatible model endpoint on loopback, for tests with a real engine.

The newest user message that carries a script decides what the model says.  A script is a list of
steps, one for each model call of that turn (the calls are counted by the assistant messages that
follow the user message).  It is named or stands in the prompt itself::

    marker = model.script([{"tools": [{"name": "read_file", "args": {...}}]}, {"text": "done"}])
    prompt = f"please {marker}"                       # "[[script:5f0c…]]"
    prompt = '[[steps [{"text": "hello", "chunks": 4}] ]]'

Keys of a step, all optional:

=========== ======================================================================================
text, think answer and reasoning text; ``repeat`` n times, in ``chunks`` deltas
delay, hold seconds before every delta; seconds before the first byte
gate        name: wait until `release` is called, ``gate_after`` n text deltas (0: before the first byte)
tools       list of ``{name, args (object or raw string), id?}``; arguments in ``argchunks`` deltas
status      answer with this HTTP status and an error
drop        cut the connection after half of the text, ``linger`` seconds later (0: the reader may lose some)
finish      finish_reason; ``usage`` is merged over the usage numbers
times       a ``status`` or ``drop`` happens only for the first n calls of this step; ``then``: the step that
            is played afterwards instead of the same one without the fault
=========== ======================================================================================

A prompt without a script is answered by ``(no script)``, calls behind the last step by
``(end of script)``.  The engine's own calls (a session's title, the summary of a turn, a compaction)
are recognised, answered and recorded under their ``kind``.

Run by itself: ``python -m tests.engines.scripted_model --port 18080``; ``GET /calls`` lists what came.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import dataclasses
import json
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

from aiohttp import web

__all__ = ["Call", "ScriptedModel", "steps"]

MODEL_ID = "scripted-1"
#: Calls kept, and bytes of request bodies kept with them: a test may send prompts of many megabytes.
KEPT_CALLS = 5000
KEPT_BODY = 4 * 2**20
MAX_BODY = 256 * 2**20
Step = dict[str, Any]


def steps(*script: Step) -> str:
    """The prompt text that carries this script itself."""
    return f"[[steps {json.dumps(list(script))} ]]"


@dataclasses.dataclass
class Call:
    """One request as the model received it.  ``outcome``: open, ok, refused, dropped or client_gone."""

    number: int
    kind: str  #: turn; title, rename, summary, compaction: the engine's own calls
    body: dict[str, Any]
    headers: dict[str, str]
    step: int = 0
    received: float = dataclasses.field(default_factory=time.monotonic)
    outcome: str = "open"

    @property
    def text(self) -> str:
        """Every message of the request as one searchable text."""
        return "\n".join(f"{m.get('role')}: {_message_text(m)}" for m in self.body.get("messages", []))

    def tool_results(self) -> list[str]:
        """The texts of the tool messages, oldest first."""
        return [_message_text(m) for m in self.body.get("messages", []) if m.get("role") == "tool"]


class ScriptedModel:
    """The endpoint: a thread with its own loop, so that it goes on while a test blocks."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.calls_seen = 0
        self.own_answers = dict(_OWN_ANSWERS)  #: by kind, to the engine's own calls
        self._calls = collections.deque[Call](maxlen=KEPT_CALLS)
        self._scripts = dict[str, list[Step]]()
        self._faults = collections.Counter[tuple[str, int]]()
        self._gates = dict[str, asyncio.Event]()
        self._waiting = collections.Counter[str]()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scripted-model", daemon=True)
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None

    # -- life ------------------------------------------------------------------------------------
    def start(self) -> ScriptedModel:
        self._thread.start()
        if not self._started.wait(10):
            raise RuntimeError("the scripted model did not start within 10 s")
        if self._failure:
            raise RuntimeError("the scripted model did not start") from self._failure
        return self

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has already ended
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    @property
    def url(self) -> str:
        """The base URL for an engine's configuration."""
        return f"http://127.0.0.1:{self.port}/v1"

    # -- what a test says ------------------------------------------------------------------------
    def script(self, script: list[Step], key: str | None = None) -> str:
        """Register a script; returns the marker to put into a prompt."""
        key = key or secrets.token_hex(6)
        self._scripts[key] = script
        return f"[[script:{key}]]"

    def release(self, gate: str) -> None:
        """Let every call that waits at this gate go on, now and later."""
        self._loop.call_soon_threadsafe(lambda: self._gate(gate).set())

    # -- what a test reads -----------------------------------------------------------------------
    def calls(self, text: str = "", kind: str = "turn") -> list[Call]:
        """Calls of a kind ("" for all) whose messages contain ``text``, oldest first."""
        kept = list(self._calls)
        return [c for c in kept if kind in ("", c.kind) and (not text or text in c.text)]

    async def called(self, text: str, count: int = 1, timeout: float = 60) -> list[Call]:
        """Wait until at least ``count`` turn calls with this text have come."""
        async with asyncio.timeout(timeout):
            while len(found := self.calls(text)) < count:
                await asyncio.sleep(0.02)
        return found

    async def waiting(self, gate: str, count: int = 1, timeout: float = 60) -> None:
        """Wait until ``count`` calls stand at the gate."""
        async with asyncio.timeout(timeout):
            while self._waiting[gate] < count:
                await asyncio.sleep(0.01)

    # -- the endpoint ----------------------------------------------------------------------------
    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()
            self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/calls", self._list_calls)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, backlog=512)
        await site.start()
        self.port = runner.addresses[0][1]
        self._started.set()
        await self._stop.wait()
        for gate in self._gates.values():
            gate.set()
        await runner.cleanup()

    def _gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL_ID, "object": "model"}]})

    async def _list_calls(self, request: web.Request) -> web.Response:
        return web.json_response([dataclasses.asdict(call) for call in self._calls])

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        self.calls_seen += 1
        call = Call(self.calls_seen, _kind(body), body, dict(request.headers))
        key, step, call.step = self._pick(call)
        kept = call if len(raw) <= KEPT_BODY else dataclasses.replace(call, body=_shortened(body))
        self._calls.append(kept)
        faulty = self._faulty(key, call.step, step)
        if not faulty:
            step = step.get("then", step)
        try:
            kept.outcome = "open"
            answer = _Answer(request, body, call.number, step)
            if step.get("hold"):
                await asyncio.sleep(step["hold"])
            if "gate" in step and not step.get("gate_after"):
                await self._pass(step["gate"])
            if faulty and step.get("status"):
                kept.outcome = "refused"
                return answer.refusal()
            response = await answer.stream(self._pass, drop=faulty and bool(step.get("drop")))
            kept.outcome = "dropped" if faulty and step.get("drop") else "ok"
            return response
        except asyncio.CancelledError:
            kept.outcome = "client_gone"
            raise
        except ConnectionResetError:  # seen at a write before the handler is cancelled
            kept.outcome = "client_gone"
            return web.Response()

    async def _pass(self, gate: str) -> None:
        self._waiting[gate] += 1
        try:
            await self._gate(gate).wait()
        finally:
            self._waiting[gate] -= 1

    def _faulty(self, key: str, index: int, step: Step) -> bool:
        if not (step.get("status") or step.get("drop")):
            return False
        self._faults[key, index] += 1
        return self._faults[key, index] <= step.get("times", 1 << 30)

    def _pick(self, call: Call) -> tuple[str, Step, int]:
        """(key, step, index) for a call."""
        if call.kind in self.own_answers:
            return call.kind, self.own_answers[call.kind], 0
        messages = call.body.get("messages", [])
        for position in range(len(messages) - 1, -1, -1):
            if messages[position].get("role") != "user":
                continue
            found = self._script_in(_message_text(messages[position]))
            if found is None:
                continue
            key, script = found
            index = sum(m.get("role") == "assistant" for m in messages[position + 1 :])
            return key, script[index] if index < len(script) else {"text": "(end of script)"}, index
        return "", {"text": "(no script)"}, 0

    def _script_in(self, text: str) -> tuple[str, list[Step]] | None:
        start = max(text.rfind("[[script:"), text.rfind("[[steps "))
        if start < 0:
            return None
        if text.startswith("[[script:", start):
            key = text[start + 9 : text.find("]]", start)]
            script = self._scripts.get(key)
            return (key, script) if script is not None else (key, [{"text": f"(unknown script {key})"}])
        script, _ = json.JSONDecoder().raw_decode(text, start + len("[[steps "))
        return text[start : start + 200], script


class _Answer:
    """Plays one step as the answer to one request."""

    def __init__(self, request: web.Request, body: dict[str, Any], number: int, step: Step) -> None:
        self.request, self.body, self.step = request, body, step
        self.text = (step.get("text") or "") * step.get("repeat", 1)
        self.think = step.get("think") or ""
        self.tools = [_tool_call(tool) for tool in step.get("tools") or []]
        self.finish = step.get("finish") or ("tool_calls" if self.tools else "stop")
        self.head = {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": body.get("model", MODEL_ID),
        }

    def refusal(self) -> web.Response:
        status = self.step["status"]
        error = {"message": self.step.get("text", "scripted failure"), "type": "server_error", "code": status}
        return web.json_response({"error": error}, status=status)

    def usage(self) -> dict[str, Any]:
        prompt = sum(len(_message_text(m)) for m in self.body.get("messages", [])) // 4 + 1
        answer = (len(self.text) + len(self.think)) // 4 + 1
        return {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": prompt + answer,
            "prompt_tokens_details": {"cached_tokens": prompt // 2},
            "completion_tokens_details": {"reasoning_tokens": len(self.think) // 4},
            **(self.step.get("usage") or {}),
        }

    async def stream(self, pass_gate: Any, drop: bool) -> web.StreamResponse:
        if not self.body.get("stream"):
            return web.json_response(self._whole())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(self.request)
        sent = 0
        gate_after = self.step.get("gate_after", 0)
        text_deltas = max(1, min(self.step.get("chunks", 1), len(self.text)))
        for delta in self._deltas():
            if self.step.get("delay"):
                await asyncio.sleep(self.step["delay"])
            await self._event(response, [{"index": 0, "delta": delta, "finish_reason": None}])
            if "content" not in delta:
                continue
            sent += 1
            if gate_after and sent == gate_after:
                await pass_gate(self.step["gate"])
            if drop and sent * 2 >= text_deltas and self.request.transport:
                await asyncio.sleep(self.step.get("linger", 0))
                self.request.transport.abort()
                return response
        await self._event(response, [{"index": 0, "delta": {}, "finish_reason": self.finish}])
        await self._event(response, [], usage=self.usage())
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _deltas(self) -> Iterator[dict[str, Any]]:
        yield {"role": "assistant"}
        chunks = self.step.get("chunks", 1)
        for piece in _pieces(self.think, chunks):
            yield {"reasoning_content": piece}
        for piece in _pieces(self.text, chunks):
            yield {"content": piece}
        for index, tool in enumerate(self.tools):
            function = {"name": tool["function"]["name"], "arguments": ""}
            yield {"tool_calls": [{**tool, "index": index, "function": function}]}
            for piece in _pieces(tool["function"]["arguments"], self.step.get("argchunks", 1)):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}

    async def _event(self, response: web.StreamResponse, choices: list[Any], **more: Any) -> None:
        event = json.dumps({**self.head, "choices": choices, **more})
        await response.write(b"data: " + event.encode() + b"\n\n")

    def _whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.think:
            message["reasoning_content"] = self.think
        if self.tools:
            message["tool_calls"] = self.tools
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return {**self.head, "object": "chat.completion", "choices": [choice], "usage": self.usage()}


def _message_text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or [] if isinstance(part, dict))


def _tool_call(tool: Step) -> dict[str, Any]:
    arguments = tool.get("args", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": tool["name"], "arguments": text}
    return {"id": tool.get("id") or f"call_{secrets.token_hex(8)}", "type": "function", "function": function}


def _pieces(text: str, count: int) -> list[str]:
    """``text`` in at most ``count`` parts of nearly equal length; none for an empty text."""
    if not text:
        return []
    size = -(-len(text) // max(1, min(count, len(text))))
    return [text[i : i + size] for i in range(0, len(text), size)]


def _shortened(body: dict[str, Any]) -> dict[str, Any]:
    """The same request with long texts cut in the middle, for the record."""
    messages = []
    for message in body.get("messages", []):
        text = _message_text(message)
        messages.append({**message, "content": text if len(text) < 20000 else text[:9000] + text[-9000:]})
    return {**body, "messages": messages}


#: The engine's own calls: how their last message begins, what they are, what they get.
_OWN_CALLS = (
    ("<system-reminder>Write an ultra-short dashboard line", "summary"),
    ("<system-reminder>Generate a session title", "rename"),
    ("Your task is to produce a faithful, concise summary", "compaction"),
    ("Write a handover of this conversation", "compaction"),  # the embedded engine
)
_OWN_ANSWERS: dict[str, Step] = {
    "title": {"tools": [{"name": "session_title", "args": {"title": "A test"}}]},
    "rename": {"text": "A test of several turns"},
    "summary": {"text": "One turn of a test."},
    "compaction": {"text": "Summary of the conversation so far, in enough words to be kept. " * 40},
}


def _kind(body: dict[str, Any]) -> str:
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("function", {}).get("name") == "session_title":
        return "title"
    messages = body.get("messages") or [{}]
    last = _message_text(messages[-1])
    return next((kind for opening, kind in _OWN_CALLS if last.startswith(opening)), "turn")


def main() -> None:
    parser = argparse.ArgumentParser(description="scripted model endpoint on 127.0.0.1")
    parser.add_argument("--port", type=int, default=18080)
    model = ScriptedModel(parser.parse_args().port).start()
    print(model.url, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
    model.stop()


if __name__ == "__main__":
    main()
