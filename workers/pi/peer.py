"""The extension as the provider speaks to it: requests with answers, notices, and dialogs with their clocks.

The extension comes and goes with its socket.  A request that was open then is never answered; a dialog is
asked again when the extension is back, and counts as unanswered when it stays away.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.wire.limits import LIMITS, Limits
from workers.pi import protocol
from workers.pi.dialogs import Dialog, Dialogs, Stage
from workers.pi.protocol import Incoming

__all__ = ["UNAVAILABLE", "Peer"]

#: Nobody could be asked.
UNAVAILABLE: Mapping[str, Any] = {"unavailable": True}


class Peer:
    """``send`` takes a frame; it drops it when there is no socket."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._requests = dict[str, asyncio.Future[Mapping[str, Any] | None]]()
        self._dialogs = Dialogs()
        self._answers = dict[Dialog, asyncio.Future[Mapping[str, Any]]]()
        self._asked = dict[str, Dialog]()  # by request id
        self._timer: asyncio.TimerHandle | None = None
        self._present = asyncio.Event()
        self.limits: Limits = LIMITS
        self.ui = False  #: dialogs can be answered
        self.mode = ""  #: Pi's

    @property
    def here(self) -> bool:
        """The extension has introduced itself on a living socket."""
        return self._present.is_set()

    def arrived(self, *, ui: bool, mode: str, asks: Iterable[str] = ()) -> None:
        """The extension has said hello.  ``asks``: dialogs that it still has on screen."""
        self.ui, self.mode = ui, mode
        self._present.set()
        self._dialogs.here(True)
        self._pump()
        # What asked for them may be with another worker by now, and takes a while to ask again.
        self._loop.call_later(2 * self.limits.ack, self._withdraw, tuple(asks))

    def _withdraw(self, asks: Iterable[str]) -> None:
        """Dialogs that nobody has asked for again go."""
        wanted = {dialog.ask for dialog in self._answers}
        for ask in asks:
            if ask not in wanted:
                self.notify("ui/close", {"ask": ask, "why": "nobody asks any more"})

    def left(self) -> None:
        """Its socket is gone."""
        self._present.clear()
        self._dialogs.here(False)
        self._asked.clear()
        requests, self._requests = self._requests, {}
        for future in requests.values():
            if not future.done():
                future.set_result(None)
        self._arm(lambda: self._give_up(tuple(self._answers)))

    async def present(self) -> bool:
        """Wait for the extension as long as an acknowledgement may take."""
        try:
            async with asyncio.timeout(self.limits.ack):
                await self._present.wait()
        except TimeoutError:
            return False
        return True

    # -- calls ---------------------------------------------------------------------------------

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        if self.here:
            self._send(protocol.notification_bytes(method, params))

    def request(self, method: str, params: Mapping[str, Any]) -> asyncio.Future[Mapping[str, Any] | None]:
        """The answer's result; None when the socket is lost first or the answer is an error.

        Sent at once: what is said afterwards comes after it.
        """
        future: asyncio.Future[Mapping[str, Any] | None] = self._loop.create_future()
        if self.here:
            key = f"w{next(self._numbers)}"
            self._requests[key] = future
            self._send(protocol.request(key, method, params))
        else:
            future.set_result(None)
        return future

    def answered(self, answer: Incoming) -> None:
        """A response of the extension."""
        key = str(answer.id)
        if (dialog := self._asked.pop(key, None)) is not None:
            self._settle(dialog, answer.result if isinstance(answer.result, dict) else UNAVAILABLE)
        elif (future := self._requests.pop(key, None)) is not None and not future.done():
            future.set_result(answer.result if isinstance(answer.result, dict) else None)

    # -- dialogs -------------------------------------------------------------------------------

    async def ask(
        self, session: str, ask: str, kind: str, args: Mapping[str, Any], seconds: float
    ) -> Mapping[str, Any]:
        """Ask the person at Pi: the protocol's answer to ``ui/ask``, `UNAVAILABLE` when time is up."""
        if not await self.present() or not self.ui:
            return UNAVAILABLE
        dialog = Dialog(ask, session, kind, args)
        future: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()
        self._answers[dialog] = future
        self._dialogs.add(dialog)
        self._pump()
        why = "the question is settled"
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            why = f"no answer within {seconds:g} s"
            return UNAVAILABLE
        finally:
            del self._answers[dialog]
            if self._dialogs.end(dialog):
                self.notify("ui/close", {"ask": ask, "why": why})
            self._pump()

    def shown(self, ask: str) -> None:
        """``ui/shown``."""
        if self._dialogs.shown(ask) is not None and self._timer is not None:
            self._timer.cancel()

    def _pump(self) -> None:
        """Send the dialog that is due."""
        dialog = self._dialogs.due()
        if dialog is None:
            return
        key = f"w{next(self._numbers)}"
        self._asked[key] = dialog
        self._send(protocol.request(key, "ui/ask", dialog.params()))
        self._arm(lambda: self._give_up((dialog,) if dialog.stage is Stage.SENT else ()))

    def _arm(self, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self.limits.ack, then)

    def _give_up(self, dialogs: tuple[Dialog, ...]) -> None:
        for dialog in dialogs:
            if not self.here or dialog.stage is Stage.SENT:
                self._settle(dialog, UNAVAILABLE)

    def _settle(self, dialog: Dialog, answer: Mapping[str, Any]) -> None:
        future = self._answers.get(dialog)
        if future is not None and not future.done():
            future.set_result(answer)
