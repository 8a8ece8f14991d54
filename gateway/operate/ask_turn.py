"""The conversation of ``ask``: initialize, a new session, one prompt, and what the engine asks meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from gateway import __version__
from gateway.operate.ask_dialog import Dialog, dialog_for
from gateway.operate.ask_link import Link
from gateway.operate.ask_terminal import Terminal
from gateway.operate.turn_view import Piece, TurnView, one_line
from gateway.wire import acp
from gateway.wire.limits import LIMITS

__all__ = ["Turn", "TurnError", "ending"]

Message = Mapping[str, Any]

_INITIALIZE = {
    "protocolVersion": 1,
    "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
    "clientInfo": {"name": "ask", "version": __version__},
}


class TurnError(Exception):
    """The turn cannot be had; the text says why."""


@dataclasses.dataclass(eq=False, slots=True)
class _Asked:
    """A request of the engine that waits for a person."""

    id: Any
    dialog: Dialog
    gone: asyncio.Event = dataclasses.field(
        default_factory=asyncio.Event
    )  #: answered, or needs no answer now


class Turn:
    """One turn on ``link`` (open) at ``terminal``; ``engine``: the name of who runs it.

    What changes here: our requests without an answer, the engine's requests that wait for a person,
    and whether the turn was cancelled.  All of it on one loop.
    """

    def __init__(self, link: Link, terminal: Terminal, engine: str) -> None:
        self._link, self._terminal, self._engine = link, terminal, engine
        self._view = TurnView(shared=terminal.shared)
        self._numbers = 0
        self._answers = dict[int, asyncio.Future[Message]]()
        self._asked = dict[bytes, _Asked]()  # by the JSON text of the id
        self._waiting = asyncio.Queue[_Asked]()
        self._typing: _Asked | None = None  # what a line would answer that was typed now
        self._session: str | None = None
        self._cancelled = False
        self._refused: str | None = None
        link.on_loss = lambda text: self._show(self._view.note(f"{text}; reconnecting"))

    async def run(self, text: str, folder: Path, model: str | None) -> str | None:
        """Hold the conversation: None when the turn ended by itself, else the reason why not.

        Raises LinkError and TurnError.
        """
        loop = asyncio.get_running_loop()
        conversation = loop.create_task(self._converse(text, folder, model))
        helpers = [loop.create_task(self._read()), loop.create_task(self._ask_person())]
        loop.add_signal_handler(signal.SIGINT, self._interrupted, conversation)
        loop.add_signal_handler(signal.SIGTERM, conversation.cancel)
        try:
            await asyncio.wait((conversation, *helpers), return_when=asyncio.FIRST_COMPLETED)
            for helper in helpers:
                if helper.done():
                    helper.result()
            return await conversation
        except asyncio.CancelledError:
            raise TurnError("left before the turn had ended") from None
        finally:
            tasks = (conversation, *helpers)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._show(self._view.finish())

    # -- our requests --

    async def _converse(self, text: str, folder: Path, model: str | None) -> str | None:
        started = time.monotonic()
        hello = await self._request("initialize", _INITIALIZE, LIMITS.initialize)
        opened = await self._request(
            "session/new", {"cwd": str(folder), "mcpServers": []}, LIMITS.session_open
        )
        session = self._session = self._view.session = str(opened.get("sessionId"))
        if model is not None:
            _check_model(model, opened)
            chosen = {"sessionId": session, "modelId": model}
            await self._request("session/set_model", chosen, LIMITS.set_option)
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
        result = await self._request("session/prompt", prompt, None)
        self._show(self._view.note(_footer(self._engine, hello, result, time.monotonic() - started)))
        return "the turn was cancelled" if self._cancelled else ending(result, self._refused)

    async def _request(self, method: str, params: Message, seconds: float | None) -> Message:
        """The result.  ``seconds`` to wait for it; the gateway itself answers within them, so more is a
        lost answer.  Raises TurnError for an error or none in time."""
        self._numbers += 1
        number = self._numbers
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._link.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            async with asyncio.timeout(seconds and seconds + LIMITS.control):
                answer = await future
        except TimeoutError:
            raise TurnError(f"{method}: no answer within {seconds:g} s") from None
        finally:
            del self._answers[number]
        if "error" in answer:
            raise TurnError(f"{method}: {_error_text(answer['error'])}")
        result = answer.get("result")
        return result if isinstance(result, dict) else {}

    # -- what comes --

    async def _read(self) -> None:
        async for message in self._link.messages():
            if "method" not in message:
                future = self._answers.get(message.get("id") or 0)
                if future is not None and not future.done():
                    future.set_result(message)
            elif "id" in message:
                await self._request_came(message)
            else:
                self._notified(message)

    def _notified(self, message: Message) -> None:
        params = message.get("params")
        update = params.get("update") if isinstance(params, dict) else None
        if isinstance(update, dict) and update.get("sessionUpdate") == "interaction_resolved":
            call = str(update.get("tool_call_id"))
            for asked in [a for a in self._asked.values() if a.dialog.call == call]:
                self._withdraw(asked)
        elif message["method"] == acp.GATE_CLOSED and isinstance(params, dict):
            self._closed(params)
        self._show(self._view.notification(message))

    async def _request_came(self, message: Message) -> None:
        number = message["id"]
        key = orjson.dumps(number)
        dialog = dialog_for(str(message["method"]), message.get("params") or {})
        if dialog is None:
            error = {"code": -32601, "message": "Method not found"}
            await self._link.send({"jsonrpc": "2.0", "id": number, "error": error})
        elif self._cancelled or not self._terminal.interactive:
            await self._answer(number, dialog.refusal())
            if not self._cancelled:
                self._refused = dialog.subject
                note = f"refused, since there is no terminal to ask at: {dialog.subject}"
                self._show(self._view.note(note))
        else:
            if key not in self._asked:
                asked = self._asked[key] = _Asked(number, dialog)
                self._waiting.put_nowait(asked)
            # A person sits here: the guard may wait as long as for a dialog.  It is told so again when it
            # asks again, as it does after a lost socket.
            ack = {"id": number, "dialog": True}
            await self._link.send({"jsonrpc": "2.0", "method": acp.GATE_ACK, "params": ack})

    def _closed(self, params: Message) -> None:
        """The gateway has settled a question itself."""
        asked = self._asked.get(orjson.dumps(params.get("id")))
        if asked is not None:
            self._refused = asked.dialog.subject
            self._withdraw(asked)
            self._show(self._view.note(f"no longer asked: {one_line(str(params.get('reason')))}"))

    async def _answer(self, number: Any, result: Message) -> None:
        await self._link.send({"jsonrpc": "2.0", "id": number, "result": result})

    # -- dialogs --

    async def _ask_person(self) -> None:
        """Ask what waits, one dialog at a time."""
        while True:
            asked = await self._waiting.get()
            if not asked.gone.is_set():
                await self._ask(asked)

    async def _ask(self, asked: _Asked) -> None:
        answer: Message | None = None
        while answer is None:
            self._show(self._view.finish())
            self._terminal.ask(asked.dialog.lines())
            self._typing = asked
            typed = asyncio.ensure_future(self._terminal.line())
            gone = asyncio.ensure_future(asked.gone.wait())
            await asyncio.wait((typed, gone), return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if asked.gone.is_set():
                typed.cancel()
                return
            self._typing = None
            line = typed.result()
            answer = asked.dialog.refusal() if line is None else asked.dialog.typed(line)
        self._withdraw(asked)
        if answer == asked.dialog.refusal():
            self._refused = asked.dialog.subject
        await self._answer(asked.id, answer)

    def _withdraw(self, asked: _Asked) -> None:
        if asked is self._typing:  # the cursor stands behind the question
            self._typing = None
            self._show([Piece("note", "\n")])
        asked.gone.set()
        self._asked.pop(orjson.dumps(asked.id), None)

    # -- Ctrl-C --

    def _interrupted(self, conversation: asyncio.Task[Any]) -> None:
        """The first one cancels the turn, the next one leaves; before the prompt there is no turn."""
        if self._cancelled or self._session is None:
            conversation.cancel()
            return
        self._cancelled = True
        self._show(self._view.note("cancelling; Ctrl-C again leaves at once"))
        loop = asyncio.get_running_loop()
        loop.create_task(self._cancel()).add_done_callback(lambda task: task.exception())
        loop.call_later(LIMITS.cancel_settle + LIMITS.control, conversation.cancel)

    async def _cancel(self) -> None:
        params = {"sessionId": self._session}
        await self._link.send({"jsonrpc": "2.0", "method": "session/cancel", "params": params})
        for asked in list(self._asked.values()):
            self._withdraw(asked)
            await self._answer(asked.id, asked.dialog.refusal())

    def _show(self, pieces: list[Piece]) -> None:
        self._terminal.show(pieces)


def ending(result: Message, refused: str | None) -> str | None:
    """None for a turn that ended by itself, else why it did not (``refused``: what was not allowed)."""
    category = _table(result, "_meta").get("cancellationCategory")
    match result.get("stopReason"):
        case "end_turn":
            return None
        case "cancelled" if category in ("PermissionRejected", "PermissionCancelled"):
            return f"the turn ended because this was not allowed: {refused or 'a tool'}"
        case "cancelled":
            return "the turn was cancelled"
        case "refusal":
            return "the model refused"
        case "max_tokens" | "max_turn_requests" as limit:
            return f"the turn was cut off ({limit})"
    return f"the turn ended with stop reason {result.get('stopReason')!r}"


def _check_model(model: str, opened: Message) -> None:
    listed = _table(opened, "models").get("availableModels")
    names = [str(m.get("modelId")) for m in listed or () if isinstance(m, dict)]
    if names and model not in names:
        raise TurnError(f"--model {model}: the engine offers {', '.join(names)}")


def _error_text(error: Any) -> str:
    """Message and the useful part of the data of a JSON-RPC error, on one line."""
    if not isinstance(error, dict):
        return "an error without a text"
    data = error.get("data")
    fields = data if isinstance(data, dict) else {"message": data}
    message, detail = str(error.get("message")), fields.get("message")
    if isinstance(detail, str) and detail not in message:
        message = f"{message}: {detail}"
    return one_line(f"{message}; try again" if fields.get("retryable") else message, 500)


def _footer(engine: str, hello: Message, result: Message, seconds: float) -> str:
    """Who answered, at what cost."""
    version = _table(hello, "_meta").get("agentVersion")
    told = [f"{engine} {version}" if version else engine]
    meta = _table(result, "_meta")
    if model := meta.get("modelId"):
        told.append(f"model {model}")
    usage = _table(meta, "usage")
    if usage.get("totalTokens"):
        told.append(f"{usage.get('inputTokens')} tokens in, {usage.get('outputTokens')} out")
    return one_line(" · ".join([*told, f"{seconds:.1f} s"]))


def _table(message: Message, key: str) -> Message:
    """An object within a message; an empty one where there is none."""
    value = message.get(key)
    return value if isinstance(value, dict) else {}
