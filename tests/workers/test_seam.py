"""The seam against a model of what the real grok does at a load in the middle of a stream."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.seam import Seam

SESSION = "01a22d0b-0000-7000-8000-000000000001"


@dataclasses.dataclass
class Turn:
    """Everything one turn emits, in order, and what a load at any moment replays of it."""

    events: list[dict[str, Any]]

    @classmethod
    def random(cls, rng: random.Random, prompt: str, first_event: int = 1) -> Turn:
        events, event, call_number = [], first_event, 0

        def emit(update: dict[str, Any], **meta: Any) -> None:
            nonlocal event
            event += rng.randint(2, 3)  # a load's own news fits between, see `Lab.happen`
            events.append({"update": update, "_meta": {"eventId": f"{SESSION}-{event}", **meta}})

        for call in range(rng.randint(1, 3)):
            stream, chunk = {"promptId": prompt, "streamStartMs": first_event * 1000 + call}, 0
            for kind in rng.choices(("agent_thought_chunk", "agent_message_chunk"), k=rng.randint(1, 2)):
                for _ in range(rng.randint(1, 12)):
                    chunk += 1
                    content = {"type": "text", "text": rng.choice(("a", "ab", "aba", "b", "é\ud83d", "ab\n"))}
                    emit({"sessionUpdate": kind, "content": content}, **stream, chunkId=chunk)
            tools = [f"call-{prompt}-{call_number + n}" for n in range(rng.randint(0, 2))]
            call_number += len(tools)
            for tool in tools:
                emit({"sessionUpdate": "tool_call", "toolCallId": tool}, **stream)
            rng.shuffle(tools)
            for tool in tools:
                emit(
                    {"sessionUpdate": "tool_call_update", "toolCallId": tool, "status": "completed"}, **stream
                )
        emit({"sessionUpdate": "turn_completed", "prompt_id": prompt})
        return cls(events)

    def live(self, index: int) -> bytes:
        event = self.events[index]
        kind = event["update"]["sessionUpdate"]
        method = "_x.ai/session_notification" if kind == "turn_completed" else "session/update"
        return line(method, event["update"], event["_meta"])

    def replay(self, upto: int, rng: random.Random) -> list[bytes]:
        """Merged chunks (cut at random places, as earlier loads cut them), collapsed tool calls."""
        out: list[dict[str, Any]] = []
        for event in self.events[:upto]:
            update, kind = event["update"], event["update"]["sessionUpdate"]
            last = out[-1] if out else None
            if (
                last
                and kind.endswith("_chunk")
                and last["update"]["sessionUpdate"] == kind
                and last["_meta"].get("streamStartMs") == event["_meta"]["streamStartMs"]
                and rng.random() < 0.9
            ):
                text = last["update"]["content"]["text"] + update["content"]["text"]
                out[-1] = {
                    "update": {**update, "content": {"type": "text", "text": text}},
                    "_meta": event["_meta"],
                }
            elif kind == "tool_call_update":
                at = next(
                    i for i, e in enumerate(out) if e["update"].get("toolCallId") == update["toolCallId"]
                )
                merged = {**out[at]["update"], **update, "sessionUpdate": "tool_call"}
                out[at] = {"update": merged, "_meta": event["_meta"]}
            else:
                out.append(event)
        marks = {"isReplay": True, "x.ai/leaderClientId": 7}
        return [
            line(
                "_x.ai/session/update"
                if e["update"]["sessionUpdate"] == "turn_completed"
                else "session/update",
                e["update"],
                {**e["_meta"], **marks},
            )
            for e in out
        ]


def line(method: str, update: dict[str, Any], meta: dict[str, Any]) -> bytes:
    params = {"sessionId": SESSION, "update": update, "_meta": meta}
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


def news_after(event: dict[str, Any]) -> bytes:
    """What each load brings about; the real grok says it behind chunks that the load has lost."""
    number = int(event["_meta"]["eventId"].rpartition("-")[2]) + 1
    update = {"sessionUpdate": "available_commands_update", "availableCommands": []}
    return line("session/update", update, {"eventId": f"{SESSION}-{number}"})


def what_the_client_sees(frames: list[bytes]) -> tuple[list[tuple[str, str]], dict[str, Any], int]:
    """(text runs in order, final state of each tool call, completed turns)."""
    runs: list[tuple[str, str]] = []
    tools: dict[str, Any] = {}
    completed = 0
    for frame in frames:
        message = json.loads(frame)
        update, kind = message["params"]["update"], message["params"]["update"]["sessionUpdate"]
        assert "isReplay" not in message["params"]["_meta"]
        if kind == "available_commands_update":
            continue
        if kind.endswith("_chunk"):
            text = update["content"]["text"]
            assert text
            if runs and runs[-1][0] == kind:
                runs[-1] = (kind, runs[-1][1] + text)
            else:
                runs.append((kind, text))
        elif kind == "tool_call":
            assert update["toolCallId"] not in tools, "a call was announced twice"
            tools[update["toolCallId"]] = update.get("status")
            runs.append((kind, ""))
        elif kind == "tool_call_update":
            assert update["toolCallId"] in tools, "an update of a call that was never announced"
            tools[update["toolCallId"]] = update.get("status")
        else:
            assert message["method"] == "_x.ai/session_notification"
            completed += 1
    return [run for run in runs if run[1]], tools, completed


class Lab:
    """A turn that goes on while bridges come and go."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        earlier = Turn.random(self.rng, "p0")
        turn = Turn.random(self.rng, "p1", first_event=500)
        self.earlier = len(earlier.events)
        self.turn = Turn(earlier.events + turn.events)
        self.client: list[bytes] = [self.turn.live(i) for i in range(self.earlier)]
        self.now = self.earlier
        self.dropping = 0

    def happen(self, most: int) -> list[bytes]:
        """Up to ``most`` events pass; the lines a subscriber gets."""
        lines = []
        for _ in range(self.rng.randint(0, most)):
            if self.now == len(self.turn.events):
                break
            chunk = self.turn.events[self.now]["update"]["sessionUpdate"].endswith("_chunk")
            if self.dropping and chunk:
                self.dropping -= 1
                if self.rng.random() < 0.5:
                    lines.append(news_after(self.turn.events[self.now]))
            else:
                self.dropping = 0  # it strikes chunks that are under way at the load, no later ones
                lines.append(self.turn.live(self.now))
            self.now += 1
        return lines

    def load(self) -> list[bytes]:
        replay = self.turn.replay(self.now, self.rng)
        self.dropping = self.rng.choice((0, 0, 1, 2))
        return replay

    def finish(self, forget: int = 0) -> None:
        """Lose the bridge, attach another, load until settled, then let the turn end."""
        seam = Seam(SESSION, self.client[forget:])
        loads = 0
        attached = False
        while seam.state != "settled":
            if not attached or seam.state == "hole":
                seam.load_started()
                for replayed in self.load():
                    seam.replay(replayed)
                if attached:  # events of the load's time, held by the attached bridge
                    for held in self.happen(2):
                        seam.hold(held)
                self.client += seam.load_finished()
                attached = True
                loads += 1
                assert loads < 200
            for held in self.happen(4):
                seam.hold(held)
            self.client += seam.advance()
            if self.now == len(self.turn.events) and seam.state == "waiting":
                break  # the turn had ended before the first load
        self.dropping = 0
        while self.now < len(self.turn.events):
            self.client += self.happen(5)


@given(st.integers(0, 10**9))
@settings(max_examples=200, deadline=None)
def test_the_client_sees_the_whole_turn_once_and_in_order(seed: int) -> None:
    lab = Lab(seed)
    lab.client += lab.happen(30)
    lab.happen(3)  # emitted while nobody was attached
    lab.dropping = 0
    lab.finish()
    expected = what_the_client_sees([lab.turn.live(i) for i in range(len(lab.turn.events))])
    assert what_the_client_sees(lab.client) == expected


@given(st.integers(0, 10**9))
@settings(max_examples=200, deadline=None)
def test_two_losses_in_one_turn(seed: int) -> None:
    lab = Lab(seed)
    lab.client += lab.happen(8)
    for _ in range(2):
        lab.happen(2)  # nobody is attached
        seam = Seam(SESSION, lab.client)
        seam.load_started()
        for replayed in lab.load():
            seam.replay(replayed)
        lab.client += seam.load_finished()
        for held in lab.happen(4):
            seam.hold(held)
        lab.client += seam.advance()  # what is still held is lost with this bridge
    lab.finish()
    expected = what_the_client_sees([lab.turn.live(i) for i in range(len(lab.turn.events))])
    assert what_the_client_sees(lab.client) == expected


def chunk(number: int, text: str, *, replay: bool = False) -> bytes:
    meta = {"eventId": f"{SESSION}-{100 + number}", "promptId": "p", "streamStartMs": 1, "chunkId": number}
    if replay:
        meta["isReplay"] = True
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return line("session/update", update, meta)


def text_of(frames: list[bytes]) -> str:
    return "".join(json.loads(frame)["params"]["update"]["content"]["text"] for frame in frames)


def test_when_the_beginning_is_no_longer_kept_the_place_is_found_by_the_newest_text() -> None:
    seam = Seam(SESSION, [chunk(8, "four "), chunk(9, "five ")])
    seam.load_started()
    seam.replay(chunk(10, "one two three four five six ", replay=True))
    assert text_of(seam.load_finished()) == "six "
    seam.hold(chunk(11, "seven "))
    assert text_of(seam.advance()) == "seven "
    assert seam.state == "settled"


def test_a_hole_asks_for_another_load_and_nothing_is_let_through() -> None:
    seam = Seam(SESSION, [chunk(1, "one ")])
    seam.load_started()
    seam.replay(chunk(2, "one two ", replay=True))
    assert text_of(seam.load_finished()) == "two "
    assert seam.state == "waiting"
    seam.hold(chunk(4, "four "))
    assert seam.advance() == []
    assert seam.state == "hole"
    seam.load_started()
    seam.replay(chunk(4, "one two three four ", replay=True))
    assert text_of(seam.load_finished()) == "three four "
    assert seam.state == "waiting"
    seam.hold(chunk(5, "five"))
    assert text_of(seam.advance()) == "five"
    assert seam.state == "settled"


def test_what_a_load_brings_about_does_not_hide_the_chunk_before_it() -> None:
    """The text of a turn was missing for good: its one chunk was older than the list of commands."""
    seam = Seam(SESSION, [])
    seam.load_started()
    assert seam.load_finished() == []
    news = news_after({"_meta": {"eventId": f"{SESSION}-110"}})
    seam.hold(news)
    assert seam.advance() == [news]
    end = line("session/update", {"sessionUpdate": "turn_completed"}, {"eventId": f"{SESSION}-120"})
    seam.hold(end)
    assert seam.advance() == []
    assert seam.state == "hole"
    seam.load_started()
    seam.replay(chunk(1, "all", replay=True))
    shown = seam.load_finished()
    assert text_of(shown[:1]) == "all"
    assert shown[1:] == [end]


def test_other_sessions_and_lines_without_an_update_pass_untouched() -> None:
    seam = Seam(SESSION, [])
    other = b'{"jsonrpc":"2.0","method":"_x.ai/queue/changed","params":{"sessionId":"x"}}'
    seam.hold(other)
    assert seam.advance() == [other]
    assert seam.state == "waiting"


def test_giving_up_lets_everything_held_through() -> None:
    seam = Seam(SESSION, [chunk(1, "one ")])
    seam.load_started()
    seam.load_finished()
    seam.hold(chunk(5, "five "))
    assert seam.advance() == []
    assert text_of(seam.give_up()) == "five "
    assert seam.state == "settled"


def test_a_gap_behind_a_chunk_that_fits_is_one_as_well() -> None:
    """Another bridge's load makes it, while lines are held here."""
    seam = Seam(SESSION, [chunk(1, "one ")])
    for held in (chunk(2, "two "), chunk(4, "four "), chunk(5, "five ")):
        seam.hold(held)
    assert text_of(seam.advance()) == "two "
    assert seam.state == "hole"
    seam.load_started()
    seam.replay(chunk(5, "one two three four five ", replay=True))
    assert text_of(seam.load_finished()) == "three four five "
