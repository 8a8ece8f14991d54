"""Recordings for people: one line a message, the bulk that repeats left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fidelity.play import Recording

__all__ = ["write_readable"]


def write_readable(recording: Recording, folder: Path) -> None:
    """Write ``folder/NN-name.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [
        ("scenario", recording.scenario),
        ("root", recording.root),
        ("failure", recording.failure),
        ("exit", recording.exit),
        ("left", recording.left),
        ("facts", recording.facts),
        ("noise", recording.noise),
        ("client", [_line(line) for line in recording.lines]),
        *((f"client {n}", [_line(line) for line in lines]) for n, lines in enumerate(recording.others, 2)),
        ("model", [_call(number, call, recording) for number, call in enumerate(recording.calls)]),
        ("files", recording.files),
    ]
    body = ",\n".join(f"{json.dumps(name)}: {_lines(value)}" for name, value in parts)
    (folder / f"{recording.scenario}.json").write_text(f"{{\n{body}\n}}\n", "utf-8")


def _lines(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f" {_lines(v)}" for v in value) + "\n]"
    if isinstance(value, dict) and "messages" in value:
        return "{" + ", ".join(f"{json.dumps(k)}: {_lines(v)}" for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _line(line: dict[str, Any]) -> dict[str, Any]:
    message = json.loads(json.dumps(line["message"]))
    message.pop("jsonrpc", None)
    update = message.get("params", {}).get("update", {})
    if update.get("sessionUpdate") == "available_commands_update":
        update["availableCommands"] = [command["name"] for command in update["availableCommands"]]
    result = message.get("result")
    if isinstance(result, dict):
        for state in (result.get("models"), result.get("_meta", {}).get("modelState")):
            _shorten_models(state)
    raw = update.get("rawOutput") if isinstance(update, dict) else None
    if isinstance(raw, dict):
        for key in ("output", "stdout"):
            if isinstance(raw.get(key), list):
                raw[key] = f"<{len(raw[key])} byte values>"
    return {"at": line["at"], "way": line["way"], **_cut(message)}


def _shorten_models(state: Any) -> None:
    if isinstance(state, dict) and isinstance(state.get("availableModels"), list):
        models = state["availableModels"]
        state["availableModels"] = [m if "scripted" in m["modelId"] else m["modelId"] for m in models]


def _call(number: int, call: dict[str, Any], recording: Recording) -> dict[str, Any]:
    body = dict(call["body"])
    messages, tools = body.pop("messages"), body.pop("tools", [])
    shown = []
    for message in messages:
        if message["role"] == "system" and not recording.scenario.startswith("01"):
            message = {**message, "content": "…"}
        shown.append(_cut(message, 3000))
    known = recording.calls[number - 1]["body"]["messages"] if number else []
    same = 0
    while same < min(len(known), len(messages)) and known[same] == messages[same]:
        same += 1
    if same > 2:
        shown[:same] = [{"as before": same}]
    names = " ".join(tool["function"]["name"] for tool in tools)
    return {"kind": call["kind"], "outcome": call["outcome"], **body, "tools": names, "messages": shown}


def _cut(value: Any, size: int = 6000) -> Any:
    if isinstance(value, dict):
        return {key: _cut(v, size) for key, v in value.items()}
    if isinstance(value, list):
        return [_cut(v, size) for v in value]
    if isinstance(value, str) and len(value) > size:
        return f"{value[: size // 2]} …[{len(value)} characters]… {value[-size // 2 :]}"
    return value
