"""A model call that is made again until it succeeds, without showing anything twice.

A stream may break in the middle, when a client has already seen half of the answer.  The next try
begins from the start, and often says the same; sometimes it does not.  `Seam` compares what comes with
what was shown: as long as they agree nothing is shown, behind the end everything is, and where they part
the new text goes on at the word in which they do, on a line of its own.  What the conversation keeps is
always the one answer that came whole.

`plan` decides whether and when there is another try; `persist` is the loop around both.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from harness.limits import LIMITS, SIZES
from harness.model.client import pause
from harness.model.errors import Failure, ModelError
from harness.model.openai import Answer, CallPart, Piece, Text

if TYPE_CHECKING:
    from harness.model.endpoints import Endpoint

__all__ = ["Resumption", "Seam", "Trying", "persist", "plan"]


@dataclasses.dataclass(frozen=True, slots=True)
class Trying:
    """Another try is to be made: the ``attempt``-th after the first, in ``delay`` seconds."""

    attempt: int
    most: int
    delay: float
    error: ModelError


def plan(error: ModelError, attempt: int, endpoint: Endpoint, chance: float) -> Trying | None:
    """The try after the one that failed with ``error``; None when there is none.

    ``attempt`` counts from 1 and ``chance`` is a number between 0 and 1.
    """
    most = endpoint.max_retries
    if not error.transient or attempt > most:
        return None
    if error.kind is Failure.RATE_LIMITED and attempt >= endpoint.rate_limit_tries:
        return None
    delay = min(LIMITS.retry_last, LIMITS.retry_first * 2 ** min(attempt - 1, 16))
    delay *= 1 + chance * SIZES.jitter_percent / 100
    if error.retry_after is not None:
        if error.retry_after > LIMITS.retry_after_most:
            return None
        delay = max(delay, error.retry_after)
    return Trying(attempt, most, delay, error)


# -- what is shown ---------------------------------------------------------------------------------


class Seam:
    """One text that streams in, perhaps several times; `feed` gives what of a piece is still unseen.

    ``goes_on``: a text that parts from what was shown is shown from there.  Arguments of a call are not:
    half of one JSON object and half of another tell nothing, and the whole call follows.
    """

    def __init__(self, *, goes_on: bool = True) -> None:
        self._goes_on = goes_on
        self._reference = ""  # the stream with whose text the shown one ends
        self._own = ""  # this stream's text
        self._comparing = False
        self._silent = False

    def begin(self) -> None:
        """A new stream starts."""
        if not self._comparing:
            self._reference = self._own
        self._own = ""
        self._comparing = bool(self._reference)

    def feed(self, piece: str) -> str:
        self._own += piece
        if self._silent:
            return ""
        if not self._comparing:
            return piece
        if self._reference.startswith(self._own):
            return ""
        self._comparing = False
        common = _common(self._reference, self._own)
        if len(common) == len(self._reference):
            return self._own[len(common) :]
        if not self._goes_on:
            self._silent = True
            return ""
        word = len(common)
        while word and not common[word - 1].isspace():
            word -= 1
        line_end = "" if self._reference.endswith("\n") else "\n"
        return line_end + self._own[word:]


def _common(one: str, other: str) -> str:
    """The beginning that two texts share, found by halving: it is asked for once, of long texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return one[:low]


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """A call as it was first shown."""

    id: str
    name: str
    arguments: Seam


class Resumption:
    """What a client has seen of an answer, over all tries of the call."""

    def __init__(self) -> None:
        self._text, self._thought = Seam(), Seam()
        self._calls: dict[int, _Call] = {}
        self._first_ids: dict[str, str] = {}

    def begin(self) -> None:
        """A try starts."""
        self._text.begin()
        self._thought.begin()
        for call in self._calls.values():
            call.arguments.begin()
        self._first_ids.clear()

    def show(self, piece: Piece) -> Piece | None:
        """What of the piece the client has not seen."""
        if isinstance(piece, CallPart):
            return self._call(piece)
        seam = self._text if isinstance(piece, Text) else self._thought
        text = seam.feed(piece.text)
        return type(piece)(text) if text else None

    def settle(self, answer: Answer) -> Answer:
        """The answer with its calls under the ids that they were shown with."""
        calls = (dataclasses.replace(call, id=self._first_ids.get(call.id, call.id)) for call in answer.calls)
        return dataclasses.replace(answer, calls=tuple(calls))

    def _call(self, part: CallPart) -> CallPart | None:
        known = self._calls.get(part.index)
        if part.id is not None and part.name is not None:
            if known is None or known.name != part.name:
                self._calls[part.index] = known = _Call(part.id, part.name, Seam(goes_on=False))
                known.arguments.feed(part.arguments)
                return part
            self._first_ids[part.id] = known.id
        if known is None:
            return None
        text = known.arguments.feed(part.arguments)
        return CallPart(part.index, None, None, text) if text else None


# -- the loop --------------------------------------------------------------------------------------


class Model(Protocol):
    """One try of a model call (`harness.model.client.ChatClient`)."""

    async def answer(
        self,
        endpoint: Endpoint,
        body: Mapping[str, Any],
        show: Callable[[Piece], None],
        headers: Mapping[str, str] | None = None,
    ) -> Answer: ...


async def persist(
    model: Model,
    endpoint: Endpoint,
    body: Mapping[str, Any],
    show: Callable[[Piece], None],
    trying: Callable[[Trying], None],
    *,
    headers: Mapping[str, str] | None = None,
    wait: Callable[[float], Awaitable[None]] = pause,
) -> Answer:
    """The answer, after as many tries as it takes.  Raises the ModelError of the last one."""
    seen = Resumption()

    def unseen(piece: Piece) -> None:
        if (rest := seen.show(piece)) is not None:
            show(rest)

    attempt = 0
    while True:
        seen.begin()
        try:
            return seen.settle(await model.answer(endpoint, body, unseen, headers))
        except ModelError as error:
            attempt += 1
            chance = random.random()  # noqa: S311 - spreads clients, hides nothing
            if (again := plan(error, attempt, endpoint, chance)) is None:
                error.attempts = attempt - 1
                raise
        trying(again)
        await wait(again.delay)
