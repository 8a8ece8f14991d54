"""Which lines of the engine matter to a turn of Pi."""

from __future__ import annotations

from gateway.wire.jsonrpc import EngineLine

__all__ = ["is_kept", "makes_turn", "turn_key"]

_UPDATES = frozenset(
    {
        "agent_message_chunk",
        "agent_thought_chunk",
        "auto_compact_completed",
        "response_completed",
        "retry_state",
        "subagent_finished",
        "subagent_spawned",
        "tool_call",
        "tool_call_update",
        "turn_completed",
    }
)


def turn_key(turn: str) -> str:
    """Id of the engine request that carries a turn's prompt."""
    return f"turn:{turn}"


def makes_turn(line: EngineLine) -> bool:
    """Whether an update changes what Pi is shown."""
    # A running command tells all its output so far, ten times a second.
    repeats = b'"status":"in_progress"' in line.data and b'"rawInput"' not in line.data
    return line.update in _UPDATES and not (line.update == "tool_call_update" and repeats)


def is_kept(line: EngineLine) -> bool:
    """Whether another worker needs the line, to make a turn again or to ask nothing twice."""
    if line.kind == "response":
        return line.id_raw.startswith(b'"turn:')
    return line.kind == "request" or (makes_turn(line) and not line.is_replay)
