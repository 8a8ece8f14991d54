"""A conversation that grows too long for the model is replaced by a summary that the model writes itself.

Kept are the opening, which every load makes anew, the user's newest text, so that a turn under way goes on
with what it was asked, and the summary.  As long as the model has not written a usable one the conversation
stays as it is, in memory and on disk.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.limits import SIZES
from harness.model.errors import Failure, ModelError
from harness.model.openai import request_body
from harness.model.retry import persist
from harness.session.conversation import QUERY
from harness.session.updates import Update

if TYPE_CHECKING:
    from harness.session.driver import SessionParts, SessionState

__all__ = ["Compaction", "newest_query", "summary_in"]

_REQUEST = """\
Write a handover of this conversation for an assistant that takes over now. It will read your text and the \
user's newest message, and nothing else. Put the handover between <summary> and </summary>, and call no tools.

Under a heading each, and with "none" where there is nothing:
1. What the user wants: every request in their words, with limits, wishes and corrections.
2. What was found out and decided, and why.
3. Files that were read or changed: full paths, what matters in each, the code that was written.
4. Commands that were run, what failed, and what solved it.
5. What is still to be done, of that which the user asked for.
6. What you were doing last, exactly enough to go on from there; background tasks that still run.

If the conversation begins with such a handover, take over what still holds. Be complete, but brief: point \
to files where their text can be read again.{focus}"""
_FOCUS = "\n\nThe user asks to keep this above all: {focus}"
_SUMMARY = (
    "<conversation_summary>\nThe conversation up to here was replaced by this handover of it:\n\n{summary}\n"
    "</conversation_summary>"
)
_BLOCK = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL)


def summary_in(text: str) -> str:
    """The summary of an answer; "" for one that is no use."""
    found = _BLOCK.search(text)
    summary = (found[1] if found else text).strip()
    return summary if len(summary) >= SIZES.summary_least else ""


def newest_query(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The newest message that a user typed, if there is one."""
    typed = (m for m in reversed(messages) if m["role"] == "user" and QUERY in str(m["content"]))
    return [dict(message) for message in typed][:1]


class Compaction:
    """Of one session's conversation, on behalf of the turn ``prompt_id``."""

    def __init__(
        self, prompt_id: str, parts: SessionParts, state: SessionState, publish: Callable[[Update], None]
    ) -> None:
        self._prompt_id, self._parts, self._state, self._publish = prompt_id, parts, state, publish
        self._made = 0

    @property
    def due(self) -> bool:
        """Whether the window is so full that the next call should not wait for an error."""
        used, endpoint = self._state.tokens(), self._state.endpoint
        return used * 100 >= endpoint.context_window * endpoint.compact_at and self.possible

    @property
    def possible(self) -> bool:
        """A conversation that does not get shorter is not summarised for ever."""
        return self._made < SIZES.compactions and len(self._state.conversation.body) > 1

    async def by_itself(self) -> bool:
        """Make room in the middle of a turn; False when that failed: the conversation is as it was."""
        state = self._state
        used, window = state.tokens(), state.endpoint.context_window
        percent = used * 100 // window
        self._made += 1
        fields = {"tokens_used": used, "context_window": window, "percentage": percent}
        self._tell("started", **fields, reason=f"{percent}% of the context window are used")
        began = time.monotonic()
        try:
            before, after = await self._replace("auto", "")
        except ModelError as error:
            self._tell("failed", error=error.message)
            return False
        elapsed = round((time.monotonic() - began) * 1000)
        fields = {"tokens_before": before, "tokens_after": after, "elapsed_ms": elapsed}
        self._tell("completed", **fields, summary_preview=None)
        return True

    async def by_command(self, focus: str) -> None:
        """Raises ModelError; then nothing has changed."""
        before, after = await self._replace("manual", focus)
        self._tell("completed", tokens_before=before, tokens_after=after, summary_preview=None)

    async def _replace(self, source: str, focus: str) -> tuple[int, int]:
        """Tokens before and after."""
        state, hooks = self._state, self._parts.hooks
        before = state.tokens()
        hooks.tell("pre_compact", {"source": source}, "")
        summary = await self._summary(focus)
        message = {"role": "user", "content": _SUMMARY.format(summary=summary)}
        state.conversation.replace([*newest_query(state.conversation.body), message])
        state.recount()
        self._parts.bridge.skills.forget_announced()
        hooks.tell("post_compact", {"source": source}, "")
        return before, state.tokens()

    async def _summary(self, focus: str) -> str:
        state = self._state
        request = _REQUEST.format(focus=_FOCUS.format(focus=focus) if focus else "")
        messages = [*state.conversation.messages, {"role": "user", "content": request}]
        # With the tools, so that a server's cache of the conversation serves this call, too.
        body = request_body(state.endpoint, messages, self._parts.bridge.definitions(), state.effort)
        headers = {"x-grok-conv-id": self._parts.id, "x-grok-req-id": self._prompt_id}
        # Somebody waits for it: no more tries than for a poor one.
        endpoint = dataclasses.replace(state.endpoint, max_retries=SIZES.summary_tries - 1)
        for _ in range(SIZES.summary_tries):
            answer = await persist(
                self._parts.model,
                endpoint,
                body,
                lambda piece: None,
                lambda trying: self._publish(state.updates.retrying(trying)),
                headers=headers,
            )
            if summary := summary_in(answer.text):
                return summary
        raise ModelError(Failure.COMPACTION, "the model wrote no usable summary; nothing was compacted")

    def _tell(self, what: str, **fields: Any) -> None:
        self._publish(self._state.updates.notification(f"auto_compact_{what}", fields, meta=True))
