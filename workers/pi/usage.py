"""Token counts of a Grok turn as Pi wants them: the context of the last model call, never the sum.

Pi compares ``input + cacheRead`` and ``totalTokens`` with the model's window and compacts its own
transcript above it.  A Grok turn is many model calls; their sum says nothing about the window.  All
zero is as bad: Pi then guesses from the length of texts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

__all__ = ["Totals", "Usage"]

#: ``costUsdTicks`` of one US dollar.
_TICKS = 1e10


@dataclasses.dataclass(slots=True)
class Totals:
    """Sums over the turns of a session, for people."""

    turns: int = 0
    calls: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    cost: float = 0.0

    def add(self, whole: Mapping[str, Any]) -> None:
        """``whole``: Grok's usage of one turn."""
        self.turns += 1
        self.calls += _count(whole, "modelCalls")
        self.input += _count(whole, "inputTokens")
        self.output += _count(whole, "outputTokens")
        self.cached += _count(whole, "cachedReadTokens")
        self.cost += _count(whole, "costUsdTicks") / _TICKS


@dataclasses.dataclass(slots=True)
class Usage:
    """What is known of the tokens of one turn; each source is better than those before it."""

    context: int = 0  #: ``totalTokens`` of the newest update
    last: Mapping[str, Any] = dataclasses.field(default_factory=dict)  #: of the last model call
    whole: Mapping[str, Any] = dataclasses.field(default_factory=dict)  #: of the turn

    def update(self, meta: Mapping[str, Any]) -> None:
        """``_meta`` of an update."""
        if tokens := _count(meta, "totalTokens"):
            self.context = tokens

    def call_ended(self, update: Mapping[str, Any]) -> None:
        """A ``response_completed``."""
        usage = update.get("usage")
        if isinstance(usage, Mapping):
            read = _count(usage, "cache_read_input_tokens")
            written = _count(usage, "cache_creation_input_tokens")
            self.last = {  # here, and only here, the input is without what was cached
                "inputTokens": _count(usage, "input_tokens") + read + written,
                "outputTokens": _count(usage, "output_tokens"),
                "cachedReadTokens": read,
                "cacheCreationTokens": written,
            }

    def turn_ended(self, update: Mapping[str, Any]) -> None:
        """A ``turn_completed``."""
        usage = update.get("usage")
        if isinstance(usage, Mapping):
            self.whole = usage

    def answered(self, meta: Mapping[str, Any]) -> None:
        """``_meta`` of the prompt's answer: its own token counts are the last call's."""
        if _count(meta, "inputTokens"):
            self.last = {**meta, "cacheCreationTokens": _count(self.last, "cacheCreationTokens")}
        if isinstance(meta.get("usage"), Mapping):
            self.whole = meta["usage"]

    def for_pi(self, window: int) -> dict[str, Any]:
        """Pi's ``Usage``.  ``window``: of the model, in tokens; 0 if unknown."""
        last = self.last or (self.whole if _count(self.whole, "modelCalls") <= 1 else {})
        read = _count(last, "cachedReadTokens")
        written = _count(last, "cacheCreationTokens")
        output = _count(last, "outputTokens")
        total = _count(last, "totalTokens") or _count(last, "inputTokens") + output or self.context
        given = _count(last, "inputTokens") or max(0, total - output)
        total = max(1, total)
        if window > 0:
            total, given = min(total, window), min(given, window)
        cost = _count(self.whole, "costUsdTicks") / _TICKS
        read = min(read, given)
        return {
            "input": max(0, given - read - written),
            "output": output,
            "cacheRead": read,
            "cacheWrite": min(written, given - read),
            "totalTokens": total,
            "cost": {"input": cost, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": cost},
        }


def _count(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else 0
