"""A recording's normal form: what two plays of a scenario must have in common, after the one list of rules.

Ids that an engine invents are numbered in the order in which they appear: an id in the wrong place is found.
The play's own folder is written ``<root>``, its model's address ``<model>``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from tests.fidelity.normaliser import (
    ASYNCHRONOUS,
    DISTINCT,
    FOREIGN_CALLS,
    FOREIGN_PHASES,
    OPENING,
    REPEATED,
    TOOLS,
    Rule,
    Treatment,
    treatment,
)
from tests.fidelity.texts import data_of

__all__ = ["Form", "Normaliser", "first_query", "kinds"]

Message = dict[str, Any]
Form = dict[str, list[Any]]

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER = re.compile(r"\d+")
_DROPPED = object()
_QUERY = "<user_query>"


def kinds(lines: list[Message]) -> Iterator[tuple[str, Message]]:
    """(kind, message) of what the engine sent."""
    asked = {}
    for line in lines:
        message = line["message"]
        if line["way"] == ">":
            if "method" in message and "id" in message:
                asked[message["id"]] = message["method"]
            continue
        if "method" in message:
            params = message.get("params")
            update = params.get("update") if isinstance(params, dict) else None
            kind = message["method"]
            if isinstance(update, dict) and "sessionUpdate" in update:
                kind = f"{kind}/{update['sessionUpdate']}"
            yield kind, message
        else:
            what = "error" if "error" in message else "result"
            yield f"{what} {asked.get(message.get('id'), '?')}", message


class Normaliser:
    """Of one recording (as JSON)."""

    def __init__(
        self,
        recording: Message,
        rules: tuple[Rule, ...] = (),
        distinct: tuple[str, ...] = (),
        opening: bool = False,
    ) -> None:
        self.opening = opening  # whether the opening is compared
        self.recording, self.rules, self.distinct = recording, rules, {*DISTINCT, *distinct}
        root = recording["root"]
        self.words = frozenset(recording["words"])
        self._roots = (root, quote(root, safe=""))
        self._places = [(place, "<root>") for place in self._roots] + [(recording["url"], "<model>")]
        self._ids = {own: own for own in recording["ids"]}

    def form(self) -> Form:
        """The whole: one list of normal messages for each order that is kept."""
        out: Form = {}
        self._of_client(self.recording["lines"], "", out)
        for number, lines in enumerate(self.recording["others"], 2):
            self._of_client(lines, f"client {number}: ", out)
        before: dict[str, list[Message]] = {}
        for call in self.recording["calls"]:
            kind = f"model {call['kind']}"
            if kind in FOREIGN_CALLS:
                continue
            out.setdefault(kind, []).append({"kind": kind, **self.call(kind, call, before.get(kind, []))})
            before[kind] = call["body"].get("messages", [])
        rest = {"kind": "afterwards", "files": self.recording["files"], "facts": self.recording["facts"]}
        rest |= {"processes left": len(self.recording["left"]), "exit": self.recording["exit"]}
        rest |= {"noise": len(self.recording["noise"]), "failure": self.recording["failure"].split("\n")[0]}
        out["afterwards"] = [self._value("afterwards", (), rest)]
        return out

    def _of_client(self, lines: list[Message], prefix: str, out: Form) -> None:
        out[f"{prefix}turn"] = []
        running: dict[str, Message] = {}  # the last progress of each call
        for kind, message in kinds(lines):
            if kind in OPENING and not self.opening:
                continue
            if kind == "_x.ai/session/setup" and message["params"].get("phase") in FOREIGN_PHASES:
                continue
            normal = {"kind": kind, **self.message(kind, message)}
            call = _progress_of(kind, message)
            if call:
                running[call] = normal
                continue
            done = _result_of(kind, message)
            if done in running:
                out.setdefault(f"{prefix}progress {done}", []).append(running.pop(done))
            channel = prefix + (kind if kind in ASYNCHRONOUS or kind in self.distinct else "turn")
            if kind not in self.distinct or normal not in out.get(channel, ()):
                out.setdefault(channel, []).append(normal)
        for call, normal in running.items():
            out.setdefault(f"{prefix}progress {call}", []).append(normal)

    def message(self, kind: str, message: Message) -> Message:
        normal: Message = self._value(kind, (), message)
        return normal

    def call(self, kind: str, call: Message, before: list[Message]) -> Message:
        """A request at the model's endpoint; of messages that the call before had too, their number only."""
        body = dict(call["body"])
        messages = body.get("messages", [])
        start = first_query(messages)
        opening = " ".join(str(m.get("content")) for m in messages[:start])
        known = next((i for i, (m, old) in enumerate(zip(messages, before, strict=False)) if m != old), None)
        same = min(len(messages), len(before)) if known is None else known
        body["messages"] = messages[max(start, same) :]
        body["messages as before"] = max(0, same - start)
        tools = [t for t in body.pop("tools", []) if t["function"]["name"] in TOOLS or kind != "model turn"]
        if not self.opening:
            tools = []
        body["tools"] = {tool["function"]["name"]: tool for tool in tools}
        body["order of tools"] = [*body["tools"]]
        normal: Message = self._value(kind, (), {"outcome": call["outcome"], "body": body})
        key = {name.lower(): value for name, value in call["headers"].items()}.get("authorization")
        # The engine's own instructions: where it works must be among them, the rest is its business.
        normal |= {"authorization": key, "workspace named": f"{self._roots[0]}/work" in opening}
        return normal

    # -- values --------------------------------------------------------------------------------
    def _value(self, kind: str, path: tuple[str, ...], value: Any) -> Any:
        rule = treatment(kind, path, self.rules) if path else None
        if rule is not None:
            if isinstance(value, list) and _is_bytes(path, value):
                value = bytes(value).decode("utf-8", "backslashreplace")
            return self._treated(kind, path, value, rule)
        return self._plain(kind, path, value)

    def _treated(self, kind: str, path: tuple[str, ...], value: Any, rule: Rule) -> Any:
        match rule.treatment:
            case Treatment.DROPPED:
                return _DROPPED
            case Treatment.TYPED:
                return f"<{type(value).__name__}>" if value is not None else None
            case Treatment.WORDED if isinstance(value, str):
                return data_of(self._text(value), self.words)
            case Treatment.FLOOD if isinstance(value, str):
                lines = {_NUMBER.sub("#", line) for line in self._text(value).splitlines()}
                parts = (part for line in lines for part in data_of(line, self.words)["data"])
                return sorted({str(part) for part in parts})
            case Treatment.CONFIGURED if isinstance(value, list):
                value = [entry for entry in value if "scripted" in json.dumps(entry) or str(entry) in TOOLS]
            case Treatment.UNORDERED if isinstance(value, list):
                value = sorted(value, key=lambda entry: str(entry.get("command")))
        return self._plain(kind, path, value)

    def _plain(self, kind: str, path: tuple[str, ...], value: Any) -> Any:
        if isinstance(value, dict):
            fields = ((self._text(k), self._value(kind, (*path, k), v)) for k, v in value.items())
            return {key: normal for key, normal in fields if normal is not _DROPPED}
        if isinstance(value, list):
            if _is_bytes(path, value):
                return {"bytes": self._text(bytes(value).decode("utf-8", "backslashreplace"))}
            entries = (self._value(kind, (*path, str(i)), v) for i, v in enumerate(value))
            return [normal for normal in entries if normal is not _DROPPED]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for place, name in self._places:
            if place in text:
                text = text.replace(place, name)
        if len(text) < 8:
            return text
        text = _UUID.sub(lambda m: self._id(m.group()), text)
        for known in self._prefixes:
            text = text.replace(known, "<id>")
        return text

    @property
    def _prefixes(self) -> set[str]:
        return {full[:8] for full, name in self._ids.items() if full != name}

    def _id(self, full: str) -> str:
        return self._ids.setdefault(full, f"<id {len(self._ids)}>")


def first_query(messages: list[Message]) -> int:
    """Where the engine's own opening (instructions, surroundings) ends and the user's first words stand."""
    asks = (m.get("role") != "system" and _QUERY in str(m.get("content")) for m in messages)
    return next((place for place, found in enumerate(asks) if found), 0)


def _is_bytes(path: tuple[str, ...], value: list[Any]) -> bool:
    return path[-1] in ("output", "stdout", "stderr") and all(isinstance(v, int) for v in value)


def _progress_of(kind: str, message: Message) -> str:
    if kind not in REPEATED:
        return ""
    update = message["params"]["update"]
    return (
        str(update["toolCallId"])
        if update.get("status") == "in_progress" and "_meta" not in message["params"]
        else ""
    )


def _result_of(kind: str, message: Message) -> str:
    if kind not in REPEATED:
        return ""
    update = message["params"]["update"]
    return str(update["toolCallId"]) if update.get("status") in ("completed", "failed") else ""
