"""Words of a hand-over between two workers, over real channels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.front.handovers import HandOvers
from gateway.wire import control
from gateway.wire.control import Channel, Packet, Server
from gateway.wire.handoff import Succession

CONN = "c" * 32


class Workers:
    """Two workers as the front sees them: ``heard`` is what each was told, ``answers`` what it says."""

    def __init__(self, folder: Path) -> None:
        self.heard, self.answers = list[tuple[str, str]](), dict[str, Packet | None]()
        self.servers = list[Server]()
        self.channels = dict[str, Channel]()
        self.successor: str | None = "b"
        self.stopping = False
        self.hand_overs = HandOvers(lambda: self.successor, lambda: self.stopping, self.channels)
        self.tasks = set[asyncio.Task[None]]()
        for name in ("a", "b"):
            self.servers.append(Server(folder / name, self.worker(name)))
            self.channels[name] = control.connect(folder / name, self.front(name))

    def worker(self, name: str):  # type: ignore[no-untyped-def]
        def told(channel: Channel, packet: Packet) -> None:
            self.heard.append((name, packet.fields["step"]))
            answer = self.answers.get(packet.fields["step"], Packet("done"))
            if answer is not None and packet.fields.get("id") is not None:
                channel.answer(packet, answer.op, **dict(answer.fields))

        return told

    def front(self, name: str):  # type: ignore[no-untyped-def]
        def said(channel: Channel, packet: Packet) -> None:
            task = asyncio.create_task(self.hand_overs.pass_on(name, channel, packet))
            self.tasks.add(task)

        return said

    async def say(self, step: str) -> Packet:
        """A word of worker ``a``; the answer that it gets."""
        while not self.servers[0].channels:
            await asyncio.sleep(0.01)
        (channel,) = self.servers[0].channels
        return await channel.request(Packet("handover", Succession(CONN, step).to_fields()))  # type: ignore[arg-type]

    async def until_heard(self, name: str, step: str) -> None:
        async with asyncio.timeout(5):
            while (name, step) not in self.heard:
                await asyncio.sleep(0.01)


@pytest.fixture
async def workers(short_tmp: Path) -> Iterator[Workers]:  # type: ignore[misc]
    workers = Workers(short_tmp)
    yield workers
    for channel in workers.channels.values():
        channel.close()
    for server in workers.servers:
        server.close()


async def test_words_go_to_the_successor_and_answers_back(workers: Workers) -> None:
    assert (await workers.say("load")).op == "done"
    workers.successor = None  # chosen once
    assert (await workers.say("load")).op == "done"
    assert (await workers.say("take")).op == "done"
    assert workers.heard[:3] == [("b", "load"), ("b", "load"), ("b", "take")]


async def test_a_failure_is_told_and_another_successor_chosen_next(workers: Workers) -> None:
    workers.answers["load"] = Packet("failed", {"reason": "no bridge"})
    answer = await workers.say("load")
    assert (answer.op, answer.fields["reason"]) == ("failed", "no bridge")
    await workers.until_heard("b", "drop")
    workers.successor = None
    assert (await workers.say("load")).op == "later"


@pytest.mark.parametrize(("stopping", "word"), [(True, "nobody"), (False, "later")])
async def test_with_no_worker_ready_it_depends_on_whether_all_go(
    workers: Workers, stopping: bool, word: str
) -> None:
    workers.successor, workers.stopping = None, stopping
    assert (await workers.say("load")).op == word
    assert workers.heard == []


async def test_the_successor_forgets_what_a_lost_worker_was_about_to_give(workers: Workers) -> None:
    await workers.say("load")
    workers.hand_overs.left("a")
    await workers.until_heard("b", "drop")


async def test_a_successor_that_is_lost_meanwhile_has_failed(workers: Workers) -> None:
    workers.answers["load"] = None
    answer = asyncio.create_task(workers.say("load"))
    await workers.until_heard("b", "load")
    workers.channels.pop("b").close()
    workers.hand_overs.left("b")
    assert (await answer).op == "failed"
