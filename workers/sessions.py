"""The sessions that one connection has attached, and what each of them is doing.

Sans-I/O.  The book keeps the whole parameters of each session, since a new bridge must load it with
exactly them: a load without its hooks would run tools that nobody allowed.  It learns the rest from what
the engine says anyway; `SessionBook.observe` is given only the few notifications that matter.

A session's state moves through `_MOVES`; pairs that are not in the table change nothing.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gateway.wire.limits import SIZES, Limits
from workers.session_params import registered_timeout

__all__ = ["Event", "Session", "SessionBook", "State", "TooManySessions", "TurnEnd"]

#: ``_meta`` keys that only session/new understands; a load is sent without them.
_NEW_ONLY = frozenset({"sessionId", "modelId"})
#: ``_meta`` keys that Grok forgets when it loads a session that was not resident.
_FORGOTTEN = ("systemPromptOverride", "rules")
#: ``_meta`` keys of one particular load, not of the session.
_LOAD_ONLY = frozenset({"cursor", "noReplay", "x.ai/persist", "x.ai/restore_code", "sessionId"})


class TooManySessions(Exception):  # noqa: N818 (a refusal of the client)
    """``SIZES.sessions`` are attached."""


class State(enum.Enum):
    IDLE = "idle"
    WORKING = "working"
    NEEDS_INPUT = "needs_input"  #: a permission or a question is open
    LOST = "lost"  #: no bridge has it loaded


class Event(enum.Enum):
    TURN = "a turn runs or waits"
    QUIET = "no turn runs or waits"
    ASKED = "something is asked"
    RESOLVED = "nothing is asked any more"
    BRIDGE_LOST = "bridge lost"
    LOADED = "loaded, no turn runs"
    LOADED_RUNNING = "loaded, a turn runs"


_MOVES = {
    (State.IDLE, Event.TURN): State.WORKING,
    (State.IDLE, Event.ASKED): State.NEEDS_INPUT,  # background work may ask
    (State.IDLE, Event.BRIDGE_LOST): State.LOST,
    (State.WORKING, Event.QUIET): State.IDLE,
    (State.WORKING, Event.ASKED): State.NEEDS_INPUT,
    (State.WORKING, Event.BRIDGE_LOST): State.LOST,
    (State.NEEDS_INPUT, Event.RESOLVED): State.WORKING,
    (State.NEEDS_INPUT, Event.QUIET): State.IDLE,
    (State.NEEDS_INPUT, Event.BRIDGE_LOST): State.LOST,
    (State.LOST, Event.LOADED): State.IDLE,
    (State.LOST, Event.LOADED_RUNNING): State.WORKING,
}


@dataclasses.dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended, as a notification told it."""

    session_id: str
    prompt_id: str
    stop_reason: str
    usage: Mapping[str, Any] | None

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> TurnEnd:
        """From the parameters of a ``turn_completed``."""
        update = _mapping(params.get("update"))
        return cls(
            _text(params.get("sessionId")) or "",
            _text(update.get("prompt_id")) or "",
            str(update.get("stop_reason")),
            update.get("usage"),
        )


@dataclasses.dataclass(slots=True, eq=False)
class Session:
    """One attached session: how to load it again, and what it is doing."""

    session_id: str
    params: dict[str, Any]  #: of session/new or session/load as the engine got them
    since: float  #: of the present state, monotonic seconds
    state: State = State.IDLE
    mode: str | None = None
    model: dict[str, Any] | None = None  #: parameters of the last session/set_model
    options: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  #: by configId
    running: str | None = None  #: prompt id of the running turn
    queued: tuple[str, ...] = ()  #: prompt ids that wait
    ended: tuple[str, ...] = ()  #: prompt ids of the last turns that ended
    turns: int = 0  #: generation: turns seen to start
    background: int = 0  #: background commands running
    rules_due: bool = False  #: Grok has forgotten the rules: they go in front of the next prompt

    @property
    def busy(self) -> bool:
        return self.state in (State.WORKING, State.NEEDS_INPUT)

    @property
    def rules(self) -> str:
        """The texts that Grok forgets on a load, "" when there are none."""
        meta = _mapping(self.params.get("_meta"))
        return "\n\n".join(meta[k] for k in _FORGOTTEN if isinstance(meta.get(k), str) and meta[k].strip())

    @property
    def has_hooks(self) -> bool:
        """Grok asks the client something about its turns."""
        return bool(_mapping(_mapping(self.params.get("_meta")).get("x.ai/hooks")))

    def move(self, event: Event, now: float) -> None:
        state = _MOVES.get((self.state, event), self.state)
        if state is not self.state:
            self.state, self.since = state, now
        if event is Event.BRIDGE_LOST:
            self.queued = ()

    def load_params(self) -> dict[str, Any]:
        """Parameters of the session/load that brings this session back on another bridge."""
        params = {**self.params, "sessionId": self.session_id}
        params.setdefault("mcpServers", [])
        meta = {k: v for k, v in _mapping(params.pop("_meta", None)).items() if k not in _NEW_ONLY}
        if meta:
            params["_meta"] = meta
        return params

    def option_requests(self) -> list[tuple[str, dict[str, Any]]]:
        """(method, parameters) that restore what the client has set since, in order."""
        requests = list[tuple[str, dict[str, Any]]]()
        if self.model is not None:
            requests.append(("session/set_model", self.model))
        requests += [("session/set_config_option", params) for params in self.options.values()]
        if self.mode is not None:
            params = {"sessionId": self.session_id, "modeId": self.mode}
            requests.append(("session/set_mode", params))
        return requests

    def to_json(self, now: float) -> dict[str, Any]:
        """For `status`: no title, no prompt."""
        return {
            "sessionId": self.session_id,
            "state": self.state.value,
            "seconds": round(now - self.since, 1),
            "queued": len(self.queued),
            "turns": self.turns,
        }


class SessionBook:
    """Sessions of one connection by id; subagents' sessions belong to the one that started them."""

    def __init__(self, capacity: int = SIZES.sessions) -> None:
        self._capacity = capacity
        self._sessions = dict[str, Session]()
        self._parents = dict[str, str]()

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._sessions or session_id in self._parents

    def get(self, session_id: str | None) -> Session | None:
        """The session, or for a subagent's session the one it belongs to."""
        if session_id is None:
            return None
        return self._sessions.get(self._parents.get(session_id, session_id))

    def family(self, session_id: str | None) -> frozenset[str]:
        """The ids of a session and of its subagents' sessions; empty for an unknown one."""
        session = self.get(session_id)
        if session is None:
            return frozenset()
        own = session.session_id
        return frozenset({own, *(child for child, parent in self._parents.items() if parent == own)})

    def hook_timeout(self, session_id: str | None, params: Mapping[str, Any], limits: Limits) -> float:
        """Seconds that a hook of this session was registered with; ``params`` are those of its run."""
        session = self.get(session_id)
        meta = _mapping(session.params.get("_meta")) if session else {}
        return registered_timeout(meta, params.get("hookEventName"), params.get("hookCallbackId"), limits)

    def check_room(self) -> None:
        """Raises TooManySessions when no further session fits."""
        if len(self) >= self._capacity:
            raise TooManySessions

    def attach(
        self, session_id: str, params: Mapping[str, Any], now: float, *, running: str | None = None
    ) -> Session:
        """A session/new, session/load or session/resume succeeded with these parameters."""
        kept = {k: v for k, v in params.items() if k != "sessionId"}
        meta = {k: v for k, v in _mapping(kept.pop("_meta", None)).items() if k not in _LOAD_ONLY}
        before = self._sessions.get(session_id)
        if before is None:
            session = self._sessions[session_id] = Session(session_id, {}, now)
        else:
            session = before
            # As in Grok: hooks that a load does not mention stay; rules count from creation only.
            old = _mapping(before.params.get("_meta"))
            meta = {**{k: old[k] for k in ("x.ai/hooks", *_FORGOTTEN) if k in old}, **meta}
        session.params = {**kept, "_meta": meta} if meta else kept
        if running is not None:
            self._runs(session, running, now)
        return session

    def detach(self, session_id: str) -> None:
        """The session was closed."""
        self._sessions.pop(session_id, None)
        self._parents = {c: p for c, p in self._parents.items() if p != session_id}

    def prompt_sent(self, session_id: str, now: float) -> None:
        if session := self.get(session_id):
            session.move(Event.TURN, now)

    def prompt_answered(self, session_id: str, open_prompts: int, now: float) -> None:
        """The engine answered a prompt of the session; ``open_prompts`` others are still open.

        An answer of the gateway is no evidence: the turn may run on.
        """
        session = self.get(session_id)
        if session is not None and not open_prompts and not session.queued:
            session.running = None
            session.move(Event.QUIET, now)

    def asked(self, session_id: str | None, still_open: int, now: float) -> None:
        """A permission or question opened or was settled; ``still_open`` of the session are open."""
        if session := self.get(session_id):
            session.move(Event.ASKED if still_open else Event.RESOLVED, now)

    def bridge_lost(self, now: float) -> None:
        for session in self:
            session.move(Event.BRIDGE_LOST, now)

    def loaded(self, session: Session, running: str | None, now: float) -> None:
        """A new bridge has loaded the session again; ``running`` names the turn that still runs."""
        if running is None:
            session.running = None
            session.rules_due = bool(session.rules)
            session.move(Event.LOADED, now)
        else:
            self._runs(session, running, now)
            session.move(Event.LOADED_RUNNING, now)

    def option_set(self, method: str, params: Mapping[str, Any]) -> None:
        """The engine accepted a session/set_* request."""
        session = self.get(_text(params.get("sessionId")))
        if session is None:
            return
        if method == "session/set_mode":
            session.mode = _text(params.get("modeId"))
        elif method == "session/set_model":
            session.model = dict(params)
        elif method == "session/set_config_option" and (option := _text(params.get("configId"))):
            session.options[option] = dict(params)

    def observe(self, method: str, params: dict[str, Any], now: float) -> TurnEnd | None:
        """Learn from a notification that `tells` something; the end of a turn is returned."""
        return _OBSERVERS[method](self, params, now)

    @staticmethod
    def tells(method: str, update: str) -> bool:
        """Whether `observe` learns from a notification; ``update`` is its sessionUpdate, "" if none."""
        return method in _OBSERVERS and (not update or update in _UPDATES)

    def own_changes(self, params: Any) -> dict[str, Any] | None:
        """``sessions/changed`` with this connection's sessions only; None when nothing is left.

        Grok tells every client of every session, with its folder and a title made from its prompt.
        """
        params = _mapping(params)
        upserted = [e for e in _list(params.get("upserted")) if _mapping(e).get("sessionId") in self]
        removed = [e for e in _list(params.get("removed")) if isinstance(e, str) and e in self]
        if not upserted and not removed:
            return None
        return {**params, "upserted": upserted, "removed": removed}

    # -- observers -----------------------------------------------------------------------------

    def _runs(self, session: Session, prompt_id: str, now: float) -> None:
        if session.running != prompt_id:
            session.running = prompt_id
            session.turns += 1
        session.move(Event.TURN, now)

    def _queue_changed(self, params: dict[str, Any], now: float) -> None:
        session = self.get(_text(params.get("sessionId")))
        if session is None:
            return
        entries = (_text(_mapping(e).get("id")) for e in _list(params.get("entries")))
        session.queued = tuple(e for e in entries if e)
        if running := _text(params.get("runningPromptId")):
            self._runs(session, running, now)
        elif session.queued:
            session.move(Event.TURN, now)

    def _sessions_changed(self, params: dict[str, Any], now: float) -> None:
        for entry in map(_mapping, _list(params.get("upserted"))):
            session = self._sessions.get(_text(entry.get("sessionId")) or "")
            # "idle" is no evidence: it also comes between two turns of a queue.
            if session is not None and entry.get("activity") in ("working", "needs_input"):
                session.move(Event.TURN, now)

    def _session_update(self, params: dict[str, Any], now: float) -> TurnEnd | None:
        session_id = _text(params.get("sessionId")) or ""
        session = self.get(session_id)
        update = _mapping(params.get("update"))
        kind = update.get("sessionUpdate")
        if session is None:
            return None
        if kind == "turn_completed" and session_id in self._sessions:
            end = TurnEnd.of(params)
            self._turn_ended(session, end.prompt_id, now)
            return end
        if kind == "subagent_spawned" and (child := _text(update.get("child_session_id"))):
            if len(self._parents) < self._capacity:
                self._parents[child] = session.session_id
        elif kind == "subagent_finished" and (child := _text(update.get("child_session_id"))):
            self._parents.pop(child, None)
        elif kind == "current_mode_update":
            session.mode = _text(update.get("currentModeId")) or session.mode
        elif kind == "background_tasks":
            tasks = map(_mapping, _list(update.get("tasks")))
            session.background = sum(task.get("status") == "running" for task in tasks)
        return None

    def _turn_ended(self, session: Session, prompt_id: str, now: float) -> None:
        session.ended = (*session.ended[1 - SIZES.ended_turns :], prompt_id)
        if session.running in (prompt_id, None) and not session.queued:
            session.running = None
            session.move(Event.QUIET, now)


#: Kinds of session updates that `SessionBook.observe` understands; the many others are not even parsed.
_UPDATES = frozenset(
    {
        "background_tasks",
        "current_mode_update",
        "subagent_finished",
        "subagent_spawned",
        "turn_completed",
    }
)

_Observer = Callable[[SessionBook, dict[str, Any], float], TurnEnd | None]

#: The notifications that `SessionBook.observe` understands.
_OBSERVERS: dict[str, _Observer] = {
    "_x.ai/queue/changed": SessionBook._queue_changed,
    "_x.ai/sessions/changed": SessionBook._sessions_changed,
    "_x.ai/session_notification": SessionBook._session_update,
    "_x.ai/session/update": SessionBook._session_update,
    "session/update": SessionBook._session_update,
}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
