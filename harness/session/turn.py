"""One turn: from a user's text to its end, as a state machine without I/O.

Rounds of model calls.  A round that answers with tool calls makes a *batch*: its calls are prepared one
after the other (parsed, then admitted by the gate), and what is admitted then runs, all at once except
that calls on one path, of which one changes it, keep their order.  The rules between calls:

* a call that cannot be parsed, or that a policy or a hook denies, fails alone; the model hears of it;
* after a call that the user rejected, or cancelled at its prompt, no further call is prepared, what was
  admitted before still runs, and the turn ends;
* a rejection that came with a message likewise, but the turn goes on with that message;
* leaving plan mode comes last, whatever its place in the model's list: it asks the user about a plan
  that calls beside it may still be writing.

The driver (`harness.session.actor`) does what each `Step` says and reports back with the method of the
same name in the past tense.  Reports that come after a cancel change nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from harness.model.errors import Failure, ModelError
from harness.model.openai import Answer, ModelCall
from harness.session.conversation import Conversation, Interruption, user_query

__all__ = ["AskModel", "AskStop", "End", "Prepare", "Prepared", "Run", "Step", "Turn", "Wait", "lanes"]

StopReason = Literal["end_turn", "refusal", "cancelled", "error", "rate_limit"]
Fate = Literal["run", "failed", "rejected", "cancelled", "followup"]

#: Rounds that stop hooks may add to a turn.
_MOST_CONTINUATIONS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class AskModel:
    """Call the model with the conversation; report `Turn.answered` or `Turn.failed`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prepare:
    """Parse and admit this call; report `Turn.prepared`."""

    call: ModelCall


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Run these calls: lanes beside each other, within a lane in order; report `Turn.ran` for each."""

    lanes: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class AskStop:
    """The model is done: ask whether the turn may end; report `Turn.stop_asked`."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until another report comes."""


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """The turn is over.  ``category`` and the rest tell why it was cancelled."""

    reason: StopReason
    category: str = ""
    trigger: str = ""
    tool: str = ""
    detail: str = ""
    error: ModelError | None = None


Step = AskModel | Prepare | Run | AskStop | Wait | End


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """What preparing a call came to.

    ``run``: admitted; ``path`` is what it works on, ``changes`` whether it may change that.  Otherwise
    ``text`` is the result for the model, and ``followup`` what the user said with a rejection.
    """

    fate: Fate
    text: str = ""
    path: str = ""
    changes: bool = False
    detail: str = ""
    followup: str = ""


def lanes(calls: Sequence[tuple[str, str, bool]]) -> tuple[tuple[str, ...], ...]:
    """Calls (id, path, changes) that must keep their order, together; all others alone."""
    changed = {path for _, path, changes in calls if path and changes}
    together = dict[str, list[str]]()
    for call_id, path, _ in calls:
        together.setdefault(path if path in changed else f"\0{call_id}", []).append(call_id)
    return tuple(tuple(ids) for ids in together.values())


class Turn:
    """``is_last``: whether a tool of this name is prepared after all others of its batch.

    ``taken`` is told what the model gets of what the user said meanwhile, and how it was typed.
    """

    def __init__(
        self,
        conversation: Conversation,
        is_last: Callable[[str], bool] = lambda _: False,
        taken: Callable[[str, str], None] = lambda _text, _shown: None,
    ) -> None:
        self._conversation = conversation
        self._is_last = is_last
        self._taken = taken
        self._batch: list[ModelCall] = []
        self._admitted: list[tuple[str, str, bool]] = []
        self._running: set[str] = set()
        self._stopped: tuple[ModelCall, Prepared] | None = None
        self._interjections: list[str] = []
        self._after_results: list[str] = []
        self._unanswered = False
        self._continuations = 0
        self.ended: End | None = None
        self.rounds = 0

    # -- reports -------------------------------------------------------------------------------------
    def begin(self, text: str, images: Sequence[str] = ()) -> Step:
        """The turn starts with this message (`user_query` is the caller's)."""
        self._conversation.add_user(text, images)
        return self._round()

    def answered(self, answer: Answer) -> Step:
        """The model's answer came whole."""
        if self.ended:
            return self.ended
        if answer.finish == "length" and not answer.calls:
            # Half an answer taken for a whole one would mislead the model in every later turn.
            return self._end(
                End("error", error=ModelError(Failure.TRUNCATED, "the answer was cut off at max_tokens"))
            )
        if answer.finish == "content_filter":
            self._conversation.add_answer(dataclasses.replace(answer, calls=()))
            return self._end(End("refusal"))
        self._conversation.add_answer(answer)
        if answer.calls:
            self._batch = sorted(answer.calls, key=lambda call: self._is_last(call.name))
            return Prepare(self._batch[0])
        if self._take_interjections():
            return self._round()
        return AskStop(answer.text)

    def over(self, end: End) -> End:
        """A turn without a model ends, unless it was cancelled before."""
        return self.ended or self._end(end)

    def failed(self, error: ModelError) -> Step:
        """The model call failed for good."""
        if self.ended:
            return self.ended
        reason: StopReason = "rate_limit" if error.kind is Failure.RATE_LIMITED else "error"
        return self._end(End(reason, error=error))

    def prepared(self, call_id: str, prepared: Prepared) -> Step:
        """The call that `Prepare` named was parsed and admitted, or was not."""
        if self.ended:
            return self.ended
        call = self._batch.pop(0)
        assert call.id == call_id, "calls are prepared in order"
        if prepared.fate == "run":
            self._admitted.append((call.id, prepared.path, prepared.changes))
        else:
            self._conversation.add_result(call.id, prepared.text)
        if prepared.fate in ("rejected", "cancelled", "followup"):
            self._stopped = (call, prepared)
            self._drop_rest(prepared.fate)
        if self._batch:
            return Prepare(self._batch[0])
        if not self._admitted:
            return self._batch_done()
        self._running = {call_id for call_id, _, _ in self._admitted}
        return Run(lanes(self._admitted))

    def ran(self, call_id: str, text: str, messages: Sequence[str] = (), *, ends: bool = False) -> Step:
        """A call has its result; ``messages`` are what hooks want the model to hear after the batch.

        ``ends``: it asked the user something on which the turn hangs, and got no answer.
        """
        if self.ended:
            return self.ended
        self._conversation.add_result(call_id, text)
        self._after_results += messages
        self._running.discard(call_id)
        self._unanswered = self._unanswered or ends
        return Wait() if self._running else self._batch_done()

    def stop_asked(self, continue_with: Sequence[str] = ()) -> Step:
        """The stop hooks answered; with a text they ask for another round."""
        if self.ended:
            return self.ended
        if continue_with and self._continuations < _MOST_CONTINUATIONS:
            self._continuations += 1
            for text in continue_with:
                self._conversation.add_user(text)
            return self._round()
        if self._take_interjections():  # came while the hooks were asked
            return self._round()
        return self._end(End("end_turn"))

    def interject(self, text: str) -> None:
        """The user says something meanwhile: the model gets it at the next place where a message fits."""
        self._interjections.append(text)

    def cancel(self, trigger: str = "") -> End:
        """The turn ends now; calls without a result get one that says so."""
        if self.ended:
            return self.ended
        return self._end(End("cancelled", "MidTurnAbort", trigger))

    # -- what the driver may ask -----------------------------------------------------------------------
    @property
    def waiting_texts(self) -> tuple[str, ...]:
        """Interjections that the model has not got."""
        return tuple(self._interjections)

    @property
    def stopped_in_tools(self) -> bool:
        """Whether the turn was cancelled with calls open: the next prompt then says so to the model."""
        cancelled = self.ended is not None and self.ended.category == "MidTurnAbort"
        return cancelled and bool(self._batch or self._running)

    # -- rules -----------------------------------------------------------------------------------------
    def _round(self) -> AskModel:
        self.rounds += 1
        self._admitted.clear()
        return AskModel()

    def _drop_rest(self, fate: Fate) -> None:
        why = {
            "rejected": "an earlier call was rejected by the user",
            "cancelled": "the user cancelled an earlier call",
            "followup": "the user answered an earlier call with a message",
        }[fate]
        for call in self._batch:
            self._conversation.add_result(call.id, f"The tool `{call.name}` was not run: {why}.")
        self._batch.clear()

    def _batch_done(self) -> Step:
        for text in self._after_results:
            self._conversation.add_user(text)
        self._after_results.clear()
        if self._unanswered:
            return self._end(End("cancelled", "PermissionCancelled"))
        stopped, self._stopped = self._stopped, None
        if stopped is not None:
            call, prepared = stopped
            if prepared.fate == "rejected":
                return self._end(End("cancelled", "PermissionRejected", "", call.name, prepared.detail))
            if prepared.fate == "cancelled":
                return self._end(End("cancelled", "PermissionCancelled"))
            self._conversation.add_user(prepared.followup)
        self._take_interjections()
        return self._round()

    def _take_interjections(self) -> bool:
        texts, self._interjections = self._interjections, []
        for text in texts:
            query = user_query(text, Interruption.WHILE_WORKING)
            self._conversation.add_user(query)
            self._taken(query, text)
        return bool(texts)

    def _end(self, end: End) -> End:
        for call_id, name in tuple(self._conversation.open_calls.items()):
            text = f"The turn was stopped by the user; the tool `{name}` has no result."
            self._conversation.add_result(call_id, text)
        if end.category == "MidTurnAbort":  # said before the user stopped everything: to be known, not done
            self._take_interjections()
        self.ended = end
        return end
