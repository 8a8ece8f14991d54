"""Tokens and time that turns and sessions have used, in the shape that clients read."""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.model.openai import Answer, Usage

__all__ = ["TurnUsage"]


@dataclasses.dataclass
class TurnUsage:
    """Sums over model calls, in all and for each model; ``last`` is the latest call's."""

    calls: int = 0
    last: Usage | None = None
    model: str = ""  #: the latest call's
    _models: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    def add(self, model: str, answer: Answer) -> None:
        """A model call has been answered."""
        usage = answer.usage
        self.calls += 1
        self.last, self.model = usage, model
        more = (usage.input, usage.output, usage.cached, usage.reasoning, 1, round(answer.seconds * 1000))
        sums = self._models.setdefault(model, [0] * len(more))
        self._models[model] = [a + b for a, b in zip(sums, more, strict=True)]

    def merge(self, other: TurnUsage) -> None:
        self.calls += other.calls
        self.last, self.model = other.last or self.last, other.model or self.model
        for model, more in other._models.items():
            sums = self._models.setdefault(model, [0] * len(more))
            self._models[model] = [a + b for a, b in zip(sums, more, strict=True)]

    def report(self) -> dict[str, Any]:
        """All of it."""
        totals = [sum(column) for column in zip(*self._models.values(), strict=True)] or [0] * 6
        report = _row(totals)
        if self._models:
            report["modelUsage"] = {model: _row(sums) for model, sums in self._models.items()}
        return report | {"numTurns": self.calls}


def _row(sums: list[int]) -> dict[str, Any]:
    tokens_in, tokens_out, cached, reasoning, calls, milliseconds = sums
    return {
        "inputTokens": tokens_in,
        "outputTokens": tokens_out,
        "totalTokens": tokens_in + tokens_out,
        "cachedReadTokens": cached,
        "cacheCreationTokens": 0,
        "reasoningTokens": reasoning,
        "modelCalls": calls,
        "apiDurationMs": milliseconds,
    }
