"""Keeps one leader: does what the state machine of `gateway.front.leader` asks and reports back.

One task at a time, the activity of the present state, holds one lock until it has cleaned up; so no
two starts, and no start and an end, ever overlap.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import logging
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gateway.engine_home import EngineError, write_offline_home
from gateway.front.binary import BinaryError, sweep
from gateway.front.control_bridge import BridgeStartError, ControlBridge, NoAnswerError
from gateway.front.leader import (
    Acquire,
    Action,
    Adopted,
    Answered,
    Close,
    End,
    Event,
    Exited,
    Failed,
    Gone,
    LeaderMachine,
    Missed,
    Pause,
    Restart,
    Spawned,
    Start,
    TimedOut,
    TimerFired,
    Watch,
)
from gateway.front.leader_launch import Launch
from gateway.front.leader_process import (
    Leader,
    LeaderError,
    LeaderLog,
    describe_exit,
    end_leaders,
    judge,
    look,
    start,
    wait_listening,
)
from gateway.front.models import model_list, write_models
from gateway.paths import Paths
from gateway.settings import Settings
from gateway.wire.handoff import LeaderInfo
from gateway.wire.limits import LIMITS, Limits
from gateway.wire.process import Exit, Identity

__all__ = ["LeaderKeeper"]

log = logging.getLogger(__name__)

#: What an activity counts as when it fails by a defect: the machine is never left without one.
_AFTER_DEFECT: dict[type[Action], type[Event]] = {
    Acquire: Failed,
    Watch: Exited,
    End: Gone,
    Pause: TimerFired,
}


class LeaderKeeper:
    """See the module.  ``on_change(info)`` is called on the loop at every change of ``info``."""

    def __init__(
        self,
        paths: Paths,
        settings: Settings,
        on_change: Callable[[LeaderInfo], None],
        *,
        limits: Limits = LIMITS,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._paths, self._settings, self._on_change = paths, settings, on_change
        self._limits, self._environ = limits, environ
        self._machine = LeaderMachine(limits)
        self._log = LeaderLog(paths.log("leader"))
        self._single = asyncio.Lock()
        self._task: asyncio.Task[Event | None] | None = None
        self._stage = ""  # of the start under way, for the text of a time-out
        self._launch: Launch | None = None
        self._leader: Identity | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._exit: Exit | None = None
        self._bridge: ControlBridge | None = None
        self._lent = False  # the control bridge went to a rescue and has no successor yet
        self._models: dict[str, Any] | None = None
        self._settled = set[asyncio.Future[None]]()
        self.info = LeaderInfo(socket=str(paths.leader_socket))

    # -- what the front calls --------------------------------------------------------------------
    def start(self) -> None:
        """Begin to acquire a leader, in the background."""
        self._feed(Start())

    async def restart(self) -> str | None:
        """Replace the leader, with the newest binary; None once it is ready, else the reason.

        Joins a start that is under way.  Takes ``limits.ready`` seconds at most.
        """
        if self._machine.state != "starting":
            self._launch = None
            self._feed(Restart("a restart was asked for"))
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settled.add(settled)
        try:
            async with asyncio.timeout(self._limits.ready):
                await settled
        except TimeoutError:
            return f"not ready within {self._limits.ready:g} s: {self._stage or self._machine.reason}"
        finally:
            self._settled.discard(settled)
        return None if self._machine.state == "ready" else self._machine.reason

    async def throwaway_bridge(
        self, on_line: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> ControlBridge:
        """An initialized bridge that the caller closes.  Raises BridgeStartError and NoAnswerError.

        It is the control bridge, whose place another one takes at once; a fresh one while there is none.
        """
        if self._machine.state != "ready":
            raise NoAnswerError(f"the leader is {self._machine.state}")
        if self._bridge is not None and not self._bridge.ended.is_set():
            bridge, self._bridge, self._lent = self._bridge, None, True
        else:
            bridge, _ = await self._new_bridge(self._limits.bridge_start)
        bridge.take(on_line, on_end)
        return bridge

    async def close(self, end_leader: bool) -> None:
        """Stop keeping it.  ``end_leader``: end it too and verify that; else the next front adopts it."""
        self._feed(Close("the front stops"))
        task, self._task = self._task, None
        if task:
            task.cancel()
        async with self._single:
            await self._let_go()
            if end_leader and (left := await self._end_leaders()):
                log.error("the leader could not be ended: pid %s", ", ".join(str(i.pid) for i in left))
        self._leader = None
        self._publish()

    def status(self) -> dict[str, Any]:
        """The ``leader`` object of ``status --json``."""
        leader, launch = self._leader, self._launch
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - leader.created if leader else 0.0
        return {
            "state": self._machine.state,
            "pid": leader.pid if leader else 0,
            "adopted": self._machine.adopted,
            "reason": self._machine.reason,
            "generation": self.info.generation,
            "uptime_s": round(age, 1),
            "starts": self._machine.starts,
            "misses": self._machine.misses,
            "version": launch.version if launch else "",
            "command": list(launch.command) if launch else [],
            "source": launch.source if launch else "",
            "home": str(launch.home) if launch and launch.home else "",
            "offline": bool(launch and launch.offline),
            "model": launch.note if launch else "",
        }

    # -- the machine and its activities ----------------------------------------------------------
    def _feed(self, event: Event) -> None:
        before = self._machine.state
        action = self._machine.handle(event, asyncio.get_running_loop().time())
        if self._machine.state != before:
            reason = f": {self._machine.reason}" if self._machine.reason else ""
            log.info("leader: %s -> %s%s", before, self._machine.state, reason)
        if action is not None:
            if self._task:
                self._task.cancel()
            self._task = asyncio.create_task(self._run(action), name=f"leader {self._machine.state}")
            self._task.add_done_callback(self._activity_over)
        self._publish()

    async def _run(self, action: Action) -> Event | None:
        async with self._single:
            try:
                match action:
                    case Acquire():
                        return await self._acquire()
                    case Watch():
                        await self._watch()
                    case End():
                        return await self._end()
                    case Pause(seconds):
                        await asyncio.sleep(seconds)
                        return TimerFired()
            except Exception as error:
                log.exception("leader: a defect in %s", type(action).__name__)
                return _AFTER_DEFECT[type(action)](f"internal error: {error!r}")
        return None

    def _activity_over(self, task: asyncio.Task[Event | None]) -> None:
        if task is self._task and not task.cancelled() and (event := task.result()):
            self._feed(event)

    # -- starting --------------------------------------------------------------------------------
    async def _acquire(self) -> Event:
        try:
            self._stage = "choosing the engine"
            socket = self._paths.leader_socket
            verdict = judge(await asyncio.to_thread(look, socket))
            for stray in verdict.end:
                log.warning("leader: pid %d serves our socket but is not ours to keep", stray.identity.pid)
            spare = verdict.adopt.identity if verdict.adopt else None
            if verdict.end or spare is None:
                await self._end_leaders(spare)
            launch = await self._launch_of(verdict.adopt)
            async with asyncio.timeout(self._limits.leader_start):
                await self._offline_model(launch)
                leader = spare or self._spawn(launch)
                self._hold(leader, Adopted() if spare else Spawned())
                self._stage = "waiting for it to listen"
                await wait_listening(leader, socket, self._ended)
                self._stage = "waiting for its first answer"
                await self._open_bridge(self._limits.bridge_start)
            return Answered()
        except TimeoutError:
            return TimedOut(f"not ready within {self._limits.leader_start:g} s: {self._stage}")
        except (BinaryError, BridgeStartError, EngineError, LeaderError, NoAnswerError) as error:
            self._launch = None  # what is wrong with it may be put right before the next try
            return Failed(str(error))

    async def _launch_of(self, adopted: Leader | None) -> Launch:
        if adopted:
            self._launch = await asyncio.to_thread(Launch.running, adopted, self._paths)
        elif self._launch is None:
            self._launch = await asyncio.to_thread(Launch.new, self._settings, self._paths, self._environ)
        return self._launch

    async def _offline_model(self, launch: Launch) -> None:
        """Its port stands in the engine's configuration; the two programs start side by side."""
        while launch.offline:
            try:
                write_offline_home(self._paths)
                return
            except EngineError as error:
                self._stage = str(error)
                await asyncio.sleep(LIMITS.reconnect)

    def _spawn(self, launch: Launch) -> Identity:
        sweep(self._paths.binaries, keep=Path(launch.command[0]))
        env = launch.leader_environment(self._environ)
        self._child = start(launch.command, self._paths.leader_socket, env, self._paths.state, self._log)
        leader = Identity.of(self._child.pid)
        if leader is None:
            raise LeaderError(self._ended() or "the leader ended at once")
        return leader

    def _hold(self, leader: Identity, event: Event) -> None:
        log.info("leader: %s pid %d, generation %s", type(event).__name__, leader.pid, _generation(leader))
        self._leader = leader
        self._exit = Exit(leader, lambda: self._feed(Exited(self._ended() or "the leader ended")))
        self._feed(event)

    def _ended(self) -> str | None:
        """How the leader's process ended, None while it runs."""
        if self._child is not None:
            code = self._child.poll()
            return None if code is None else f"the leader {describe_exit(code, self._log.last_words())}"
        alive = self._leader is None or self._leader.alive()
        return None if alive else f"the leader {describe_exit(None, self._log.last_words())}"

    async def _open_bridge(self, timeout: float) -> None:
        launch = self._launch
        assert launch is not None
        self._bridge, result = await self._new_bridge(timeout)
        meta = result.get("_meta")
        if isinstance(meta, Mapping):
            if isinstance(version := meta.get("agentVersion"), str):
                self._launch = dataclasses.replace(launch, version=version)
            self._keep_models(meta.get("modelState"))

    async def _new_bridge(self, timeout: float) -> tuple[ControlBridge, dict[str, Any]]:
        launch = self._launch
        assert launch is not None
        return await ControlBridge.open(
            launch.bridge(self._paths),
            link=launch.link,
            env=launch.bridge_environment(self._environ),
            cwd=self._paths.state,
            timeout=timeout,
        )

    def _keep_models(self, state: Any) -> None:
        models = model_list(state)
        if models is None or models == self._models:
            return
        try:
            write_models(self._paths.models_file, models)
            self._models = models
        except OSError as error:
            log.warning("leader: %s cannot be written: %s", self._paths.models_file, error.strerror)

    # -- watching --------------------------------------------------------------------------------
    async def _watch(self) -> None:
        """Probe at intervals, at once when the bridge is lost; returns when the third miss ended this."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._limits.probe_interval
        while self._machine.state == "ready":
            await self._until(due)
            due = loop.time() + self._limits.probe_interval
            bridge = self._bridge
            try:
                await self._probe()
            except BridgeStartError as error:
                log.warning("leader: %s", error)
            except NoAnswerError as error:
                if bridge is not None and self._lent:  # it was taken while it was being asked
                    continue
                log.warning("leader: probe missed: %s", error)
                await self._close_bridge()  # the next one may find a way that this one did not
                self._feed(Missed(str(error)))
            else:
                self._feed(Answered())
            self._log.trim()

    async def _until(self, due: float) -> None:
        """Sleep, but no longer than the bridge lives; one that could not be had is tried at its time."""
        if self._lent:
            self._lent = False
            return
        bridge = self._bridge
        ended = asyncio.Event() if bridge is None or bridge.ended.is_set() else bridge.ended
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await ended.wait()

    async def _probe(self) -> None:
        if self._bridge is None or self._bridge.ended.is_set():
            await self._close_bridge()
            await self._open_bridge(self._limits.probe_timeout)
        else:
            self._keep_models(await self._bridge.probe(self._limits.probe_timeout))

    # -- ending ----------------------------------------------------------------------------------
    async def _end(self) -> Event:
        await self._let_go()
        left = await self._end_leaders()
        self._leader = None
        return Gone(f"pid {left[0].pid} cannot be ended" if left else "")

    async def _end_leaders(self, spare: Identity | None = None) -> tuple[Identity, ...]:
        """A thread cannot be cancelled: to leave it behind would let it end the *next* leader."""
        ending = asyncio.ensure_future(
            asyncio.to_thread(end_leaders, self._paths.leader_socket, spare, self._limits.terminate)
        )
        try:
            return await asyncio.shield(ending)
        finally:
            await asyncio.wait([ending])
            if spare is None:
                self._reap()

    async def _let_go(self) -> None:
        if self._exit:
            self._exit.cancel()
            self._exit = None
        await self._close_bridge()

    async def _close_bridge(self) -> None:
        bridge, self._bridge = self._bridge, None
        if bridge:
            await bridge.close()

    def _reap(self) -> None:
        """Also a leader that this process started before it replaced itself (reload) is its child."""
        child, self._child = self._child, None
        if child is not None:
            child.poll()
        elif self._leader is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._leader.pid, os.WNOHANG)

    # -- telling ---------------------------------------------------------------------------------
    def _publish(self) -> None:
        machine, leader, launch = self._machine, self._leader, self._launch
        state = machine.state
        if state in ("ready", "backoff", "broken", "absent"):
            for settled in self._settled:
                if not settled.done():
                    settled.set_result(None)
        engine = launch.engine if launch else ""
        info = LeaderInfo(state, machine.reason, socket=str(self._paths.leader_socket), engine=engine)
        if leader and launch and state in ("starting", "ready"):
            info = dataclasses.replace(
                info,
                generation=_generation(leader),
                pid=leader.pid,
                created=leader.created,
                bridge=launch.bridge(self._paths),
                link=launch.link,
                env=launch.bridge_environment(self._environ),
            )
        if info != self.info:
            self.info = info
            self._on_change(info)


def _generation(leader: Identity) -> str:
    """One value for the life of a process, the same for every front that adopts it."""
    return hashlib.sha256(f"{leader.pid}:{leader.created}".encode()).hexdigest()[:8]
