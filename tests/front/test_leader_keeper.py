"""The keeper with the fault-injecting engine: whatever the leader does, one healthy leader or a reason."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.front.control_bridge import NoAnswerError
from gateway.front.leader_keeper import LeaderKeeper
from gateway.front.leader_process import end_leaders, look
from gateway.paths import Paths
from gateway.settings import Settings
from gateway.wire.acp import INITIALIZE
from gateway.wire.handoff import LeaderInfo
from gateway.wire.jsonrpc import dump, request_bytes
from gateway.wire.limits import LIMITS, SIZES
from gateway.wire.process import Identity
from tests.engines.fake import FakeEngine
from tests.engines.processes import carriers
from tests.engines.scripted_model import steps

#: Short enough for a test to see a hang, long enough for a busy machine.
QUICK = dataclasses.replace(
    LIMITS,
    leader_start=10,
    bridge_start=10,
    probe_interval=0.1,
    probe_timeout=1.0,
    backoff_first=0.02,
    circuit_rest=30,
    terminate=0.5,
)


class Kept:
    """A keeper and what it announced."""

    def __init__(self, paths: Paths, grok: Path, home: Path | None = None, **limits: float) -> None:
        self.paths = paths
        self.announced = list[LeaderInfo]()
        environ = {"HOME": str(paths.state), "PATH": os.environ["PATH"], "XAI_API_KEY": "sk-test"}
        if home:
            environ["GROK_HOME"] = str(home)
            del environ["XAI_API_KEY"]
        self.keeper = LeaderKeeper(
            paths,
            Settings(grok=str(grok)),
            self.announced.append,
            limits=dataclasses.replace(QUICK, **limits),
            environ=environ,
        )

    @property
    def info(self) -> LeaderInfo:
        return self.keeper.info

    async def until(self, *states: str, generation_not: str = "-") -> LeaderInfo:
        """Wait until a state is announced (also one that has passed since the call) and return it."""
        seen = max(0, len(self.announced) - 1)
        async with asyncio.timeout(60):
            while True:
                for info in self.announced[seen:]:
                    if info.state in states and info.generation != generation_not:
                        return info
                await asyncio.sleep(0.005)

    async def ready(self, generation_not: str = "-") -> LeaderInfo:
        return await self.until("ready", generation_not=generation_not)

    def leaders(self) -> list[int]:
        return [leader.identity.pid for leader in look(self.paths.leader_socket).leaders]


Keep = Callable[..., Kept]


@pytest.fixture
def paths(short_tmp: Path) -> Paths:
    paths = Paths.from_environment({"GROK_GATEWAY_HOME": str(short_tmp)})
    paths.create()
    return paths


@pytest.fixture
async def keep(paths: Paths) -> AsyncIterator[Keep]:
    """Makes keepers, started; afterwards no leader of this instance may be left."""
    made = list[Kept]()

    def make(grok: Path, **options: object) -> Kept:
        made.append(Kept(paths, grok, **options))  # type: ignore[arg-type]
        made[-1].keeper.start()
        return made[-1]

    yield make
    for kept in made:
        await kept.keeper.close(end_leader=True)
    left = look(paths.leader_socket).leaders
    end_leaders(paths.leader_socket)
    assert left == ()


@pytest.fixture
def engine(short_tmp: Path) -> FakeEngine:
    return FakeEngine(short_tmp)


async def test_ready_and_announced(keep: Keep, engine: FakeEngine) -> None:
    kept = keep(engine.path)
    info = await kept.ready()
    assert [i.state for i in kept.announced] == ["starting", "starting", "ready"]
    assert [info.pid] == kept.leaders()
    assert Identity(info.pid, info.created).alive()
    assert len(info.generation) == 8
    assert info.bridge[0] == str(engine.path)
    assert info.bridge[-2:] == ("--leader-socket", str(kept.paths.leader_socket))
    assert not info.link, "a script is not pinned"
    assert "XAI_API_KEY" not in info.env
    status = kept.keeper.status()
    assert (status["state"], status["pid"], status["starts"], status["adopted"]) == (
        "ready",
        info.pid,
        1,
        False,
    )
    assert status["version"] == "1.0.41"


async def test_killed_and_started_again(keep: Keep, engine: FakeEngine) -> None:
    kept = keep(engine.path)
    first = await kept.ready()
    os.kill(first.pid, signal.SIGKILL)
    lost = await kept.until("lost")
    assert lost.reason == "the leader ended by signal SIGKILL"
    assert (lost.generation, lost.pid) == ("", 0)
    second = await kept.ready(first.generation)
    assert kept.leaders() == [second.pid]


async def test_killed_while_it_starts(keep: Keep, engine: FakeEngine) -> None:
    engine.set(leader={"start_delay": 0.3})
    kept = keep(engine.path)
    async with asyncio.timeout(60):
        while not kept.info.pid:
            await asyncio.sleep(0.005)
    doomed = kept.info
    assert doomed.state == "starting"
    os.kill(doomed.pid, signal.SIGKILL)
    second = await kept.ready(doomed.generation)
    assert kept.leaders() == [second.pid]
    assert kept.keeper.status()["starts"] == 2


async def test_one_that_ends_at_once_opens_the_circuit(keep: Keep, engine: FakeEngine) -> None:
    engine.set(leader={"exit_at_once": {"code": 7, "stderr": "Error: no luck\n"}})
    kept = keep(engine.path)
    info = await kept.until("broken")
    assert "the leader ended with exit code 7, its last words: Error: no luck" in info.reason
    assert kept.keeper.status()["starts"] == SIZES.leader_starts
    reason = await kept.keeper.restart()
    assert reason is not None
    assert "Error: no luck" in reason
    engine.set()
    assert await kept.keeper.restart() is None
    assert kept.info.state == "ready"


async def test_one_that_never_answers_is_killed(keep: Keep, engine: FakeEngine) -> None:
    engine.set(leader={"mute": True, "ignore_term": True})
    kept = keep(engine.path, leader_start=1.0)
    lost = await kept.until("lost")
    assert lost.reason == "not ready within 1 s: waiting for its first answer"
    engine.set()
    info = await kept.ready()
    assert kept.leaders() == [info.pid]


async def test_one_that_stops_answering_is_replaced(keep: Keep, engine: FakeEngine) -> None:
    kept = keep(engine.path)
    first = await kept.ready()
    engine.set(leader={"hang_on": ["_x.ai/models/list", "initialize"]})
    lost = await kept.until("lost")
    assert lost.reason.startswith("no answer to ")
    engine.set()
    second = await kept.ready(first.generation)
    assert kept.leaders() == [second.pid]


async def test_a_pause_shorter_than_three_probes_is_forgiven(keep: Keep, engine: FakeEngine) -> None:
    kept = keep(engine.path, probe_timeout=0.5)
    first = await kept.ready()
    os.kill(first.pid, signal.SIGSTOP)
    async with asyncio.timeout(60):
        while not kept.keeper.status()["misses"]:
            await asyncio.sleep(0.005)
    os.kill(first.pid, signal.SIGCONT)
    async with asyncio.timeout(60):
        while kept.keeper.status()["misses"]:
            await asyncio.sleep(0.005)
    assert kept.info.generation == first.generation


async def test_a_lost_control_bridge_is_replaced_and_the_leader_stays(keep: Keep, engine: FakeEngine) -> None:
    kept = keep(engine.path, probe_interval=30)
    first = await kept.ready()
    bridges = _bridges(kept)
    assert len(bridges) == 1
    os.kill(bridges[0], signal.SIGKILL)
    async with asyncio.timeout(60):
        while _bridges(kept) in ([], bridges):
            await asyncio.sleep(0.01)
    assert kept.info == first


async def test_a_throwaway_bridge_is_there_at_once_and_replaced(keep: Keep, engine: FakeEngine) -> None:
    kept = keep(engine.path, probe_interval=30)
    first = await kept.ready()
    (standby,) = _bridges(kept)
    bridges = [await kept.keeper.throwaway_bridge(lambda line: None, lambda: None) for _ in range(2)]
    assert bridges[0]._process.pid == standby
    assert bridges[1]._process.pid != standby  # its successor was not there yet
    async with asyncio.timeout(60):
        while len(_bridges(kept)) < 3:
            await asyncio.sleep(0.01)
        for bridge in bridges:
            await bridge.close()
    (successor,) = _bridges(kept)
    assert successor not in [bridge._process.pid for bridge in bridges]
    assert kept.info == first
    assert not kept.keeper.status()["misses"]


async def test_there_is_no_throwaway_bridge_without_a_leader(keep: Keep, engine: FakeEngine) -> None:
    engine.set(leader={"hang_on": ["initialize"]})
    kept = keep(engine.path)
    await kept.until("starting")
    with pytest.raises(NoAnswerError, match="starting"):
        await kept.keeper.throwaway_bridge(lambda line: None, lambda: None)


async def test_a_bridge_that_cannot_be_had_is_named(keep: Keep, engine: FakeEngine) -> None:
    engine.set(bridge={"exit_at_once": {"code": 5, "stderr": "Error: no bridge\n"}})
    kept = keep(engine.path)
    lost = await kept.until("lost")
    assert lost.reason == "initialize: its bridge ended with exit code 5, its last words: Error: no bridge"


async def test_restarts_at_once_and_together_give_one_leader(keep: Keep, engine: FakeEngine) -> None:
    kept = keep(engine.path)
    first = await kept.ready()
    assert await asyncio.gather(*(kept.keeper.restart() for _ in range(10))) == [None] * 10
    assert kept.info.generation != first.generation
    assert kept.leaders() == [kept.info.pid]
    assert kept.keeper.status()["starts"] == 2


async def test_a_new_command_counts_from_the_restart_on(keep: Keep, engine: FakeEngine) -> None:
    kept = keep(engine.path)
    await kept.ready()
    engine.set(version="grep 3.8")
    reason = await kept.keeper.restart()
    assert reason is not None
    assert "is not Grok Build: --version printed: grep 3.8" in reason


async def test_the_next_front_adopts(keep: Keep, engine: FakeEngine) -> None:
    kept = keep(engine.path)
    first = await kept.ready()
    await kept.keeper.close(end_leader=False)
    assert kept.info.state == "absent"
    assert kept.leaders() == [first.pid]
    again = keep(Path("/nowhere/grok"))  # adopting needs no engine on disk but the leader's own
    info = await again.ready()
    assert (info.pid, info.created, info.generation) == (first.pid, first.created, first.generation)
    assert info.bridge[-7:] == first.bridge[-7:]
    assert str(engine.path) in info.bridge
    status = again.keeper.status()
    assert (status["adopted"], status["starts"]) == (True, 0)
    os.kill(first.pid, signal.SIGKILL)
    await again.ready(first.generation)
    assert again.keeper.status()["adopted"] is False


async def test_an_adopted_leader_that_hangs_is_replaced(keep: Keep, engine: FakeEngine) -> None:
    kept = keep(engine.path)
    first = await kept.ready()
    await kept.keeper.close(end_leader=False)
    os.kill(first.pid, signal.SIGSTOP)
    again = keep(engine.path, leader_start=1.0)
    second = await again.ready(first.generation)
    assert again.leaders() == [second.pid]


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.15, 0.3, 0.6])
@pytest.mark.parametrize("end_leader", [True, False])
async def test_closed_at_any_moment(keep: Keep, engine: FakeEngine, moment: float, end_leader: bool) -> None:
    kept = keep(engine.path)
    await asyncio.sleep(moment)
    await kept.keeper.close(end_leader)
    assert kept.info.state == "absent"
    assert not _bridges(kept)
    if end_leader:
        assert kept.leaders() == []
    else:
        info = await keep(engine.path).ready()
        assert kept.leaders() == [info.pid]


async def test_the_offline_model_is_waited_for(keep: Keep, engine: FakeEngine, short_tmp: Path) -> None:
    empty = short_tmp / "no-login"
    kept = keep(engine.path, home=empty)
    await kept.until("starting")
    await asyncio.sleep(0.2)
    assert kept.keeper.status()["starts"] == 0
    kept.paths.offline_port.write_text("18081")
    info = await kept.ready()
    assert info.env["GROK_HOME"] == str(kept.paths.offline_home)
    config = (kept.paths.offline_home / "config.toml").read_text()
    assert 'base_url = "http://127.0.0.1:18081/v1"' in config
    assert kept.keeper.status()["offline"] is True
    assert not empty.exists(), "the user's own home stays as it is"


async def test_without_the_offline_model_the_reason_says_so(
    keep: Keep, engine: FakeEngine, short_tmp: Path
) -> None:
    kept = keep(engine.path, home=short_tmp / "no-login", leader_start=0.2)
    lost = await kept.until("lost")
    assert "the offline model is not running yet" in lost.reason


async def test_models_are_written_for_others(keep: Keep, engine: FakeEngine) -> None:
    kept = keep(engine.path)
    await kept.ready()
    assert not kept.paths.models_file.exists(), "this engine lists none"
    kept.keeper._keep_models({"currentModelId": "a", "availableModels": [{"modelId": "a"}]})
    assert json.loads(kept.paths.models_file.read_text())["models"][0]["id"] == "a"


def _bridges(kept: Kept) -> list[int]:
    """Pids of the living bridges of this instance."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or Identity.of(int(entry.name)) is None:
            continue
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"stdio" in argv and str(kept.paths.leader_socket).encode() in argv and b"--" not in argv:
            found.append(int(entry.name))
    return found


# -- the real engine --------------------------------------------------------------------------------
@pytest.fixture
def user_home(short_tmp: Path, grok_home: Path) -> Path:
    """A GROK_HOME whose config says what a user's may say: bridges must use our leader all the same."""
    file = grok_home / "config.toml"
    file.write_text(file.read_text().replace("[cli]\n", "[cli]\nuse_leader = false\n"))
    return grok_home


def _instance_id(kept: Kept) -> str:
    """Which agent answers a bridge that is started as the workers do."""
    info = kept.info
    line = request_bytes(b"1", "initialize", dump(INITIALIZE)) + b"\n"
    with subprocess.Popen(
        info.bridge, env=dict(info.env), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as bridge:
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        bridge.stdin.write(line)
        bridge.stdin.flush()
        answer = json.loads(bridge.stdout.readline())
        bridge.stdin.close()
    return str(answer["result"]["_meta"]["agentInstanceId"])


@pytest.mark.grok
async def test_grok_ready_killed_and_ready_again(keep: Keep, grok_binary: Path, user_home: Path) -> None:
    kept = keep(grok_binary, home=user_home)
    first = await kept.ready()
    assert first.link
    assert os.listdir(kept.paths.binaries) == [Path(first.bridge[0]).name]
    assert Path(f"/proc/{first.pid}/exe").samefile(first.bridge[0])
    argv = Path(f"/proc/{first.pid}/cmdline").read_bytes().decode().split("\0")
    assert "--no-auto-update" in argv
    environ = Path(f"/proc/{first.pid}/environ").read_bytes()
    assert b"GROK_DISABLE_AUTOUPDATER=1" in environ
    assert b"GROK_GATEWAY" not in environ
    models = json.loads(kept.paths.models_file.read_text())
    assert models["current"] == "scripted"
    two = next(m for m in models["models"] if m["id"] == "scripted-two")
    assert (two["contextWindow"], two["reasoning"]["default"]) == (100000, "medium")
    ids = {await asyncio.to_thread(_instance_id, kept) for _ in range(2)}
    assert len(ids) == 1, "use_leader = false in the config: bridges still meet at our leader"
    os.kill(first.pid, signal.SIGKILL)
    second = await kept.ready(first.generation)
    assert kept.leaders() == [second.pid]
    assert {await asyncio.to_thread(_instance_id, kept)}.isdisjoint(ids)


@pytest.mark.grok
async def test_grok_over_leftovers_and_a_foreign_pid(
    keep: Keep, grok_binary: Path, user_home: Path, paths: Paths
) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(paths.leader_socket))
        paths.leader_lock.write_text(str(stranger.pid))
        kept = keep(grok_binary, home=user_home)
        info = await kept.ready()
        assert kept.leaders() == [info.pid]
        assert paths.leader_lock.read_text() == str(info.pid)
        await kept.keeper.close(end_leader=True)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.grok
async def test_grok_beside_a_stranger_that_listens(
    keep: Keep, grok_binary: Path, user_home: Path, paths: Paths
) -> None:
    code = (
        "import socket, sys, time\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\n"
        "print(flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen(
        [shutil.which("python3") or "python3", "-c", code, str(paths.leader_socket)], stdout=subprocess.PIPE
    ) as stranger:
        try:
            assert stranger.stdout is not None
            await asyncio.to_thread(stranger.stdout.readline)
            kept = keep(grok_binary, home=user_home)
            info = await kept.ready()
            assert kept.leaders() == [info.pid]
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.grok
async def test_grok_of_a_stray_bridge_is_replaced(
    keep: Keep, grok_binary: Path, user_home: Path, paths: Paths
) -> None:
    """A bridge without a leader starts one of its own, without our arguments."""
    arguments = ["--permission-mode", "default", "agent", "--leader", "stdio", "--leader-socket"]
    env = {"HOME": str(user_home), "PATH": os.environ["PATH"], "GROK_HOME": str(user_home)}
    with subprocess.Popen(
        [grok_binary, *arguments, str(paths.leader_socket)],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as bridge:
        try:
            async with asyncio.timeout(60):
                while not (evidence := look(paths.leader_socket)).leaders or not evidence.listener:
                    await asyncio.sleep(0.02)
            stray = evidence.leaders[0]
            assert not stray.ours
            assert evidence.listener == stray.identity
        finally:
            bridge.kill()
    kept = keep(grok_binary, home=user_home)
    info = await kept.ready()
    assert kept.leaders() == [info.pid] != [stray.identity.pid]
    assert not stray.identity.alive()


@pytest.mark.grok
async def test_grok_that_is_stopped_is_replaced(keep: Keep, grok_binary: Path, user_home: Path) -> None:
    kept = keep(grok_binary, home=user_home)
    first = await kept.ready()
    os.kill(first.pid, signal.SIGSTOP)
    lost = await kept.until("lost")
    assert lost.reason.startswith("no answer to ")
    second = await kept.ready(first.generation)
    assert kept.leaders() == [second.pid]


@pytest.mark.grok
async def test_grok_upgraded_on_disk_changes_nothing_until_a_restart(
    keep: Keep, grok_binary: Path, user_home: Path, short_tmp: Path
) -> None:
    command = short_tmp / "grok"
    command.symlink_to(grok_binary)
    kept = keep(command, home=user_home)
    first = await kept.ready()
    command.unlink()
    command.symlink_to("/bin/false")  # the "newer" one
    os.kill(first.pid, signal.SIGKILL)
    second = await kept.ready(first.generation)
    assert second.bridge == first.bridge
    reason = await kept.keeper.restart()
    assert reason is not None
    assert "--version ended with exit code 1" in reason
    command.unlink()
    command.symlink_to(grok_binary)
    assert await kept.keeper.restart() is None


@pytest.mark.grok
async def test_grok_adopted_with_its_own_binary(
    keep: Keep, grok_binary: Path, user_home: Path, paths: Paths
) -> None:
    kept = keep(grok_binary, home=user_home)
    first = await kept.ready()
    await kept.keeper.close(end_leader=False)
    same = keep(Path("/nowhere/grok"), home=user_home)
    info = await same.ready()
    assert (info.generation, info.bridge) == (first.generation, first.bridge)
    await same.keeper.close(end_leader=False)
    for entry in paths.binaries.iterdir():
        entry.unlink()
    again = keep(Path("/nowhere/grok"), home=user_home)
    info = await again.ready()
    assert info.generation == first.generation
    assert Path(info.bridge[0]).parent == paths.binaries
    assert info.link
    assert info.env["GROK_HOME"] == str(user_home)
    os.kill(first.pid, signal.SIGKILL)
    assert (await again.ready(first.generation)).bridge == info.bridge


@pytest.mark.grok
async def test_groks_control_bridge_cannot_start_a_leader(
    keep: Keep, grok_binary: Path, user_home: Path
) -> None:
    """It runs from an unlinked file: while no leader is there, it can only wait."""
    kept = keep(grok_binary, home=user_home, backoff_first=3)
    first = await kept.ready()
    (bridge,) = _bridges(kept)
    assert os.readlink(f"/proc/{bridge}/exe").endswith("(deleted)")
    await kept.keeper.close(end_leader=False)
    assert _bridges(kept) == []
    assert kept.leaders() == [first.pid]


@pytest.mark.grok
async def test_what_groks_tools_started_goes_with_a_killed_leader(
    keep: Keep, grok_binary: Path, user_home: Path, short_tmp: Path
) -> None:
    """Grok gives each command a session of its own, so no signal to a group would reach it."""
    kept = keep(grok_binary, home=user_home)
    first = await kept.ready()
    command = f"sleep 300 & setsid sleep 301 & echo $$ > {short_tmp}/started; sleep 302"
    tool = {"name": "run_terminal_command", "args": {"command": command, "description": "waits"}}
    with subprocess.Popen(
        first.bridge, env=dict(first.env), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as bridge:
        assert bridge.stdin is not None
        assert bridge.stdout is not None

        def ask(number: int, method: str, params: object) -> dict[str, object]:
            bridge.stdin.write(request_bytes(b"%d" % number, method, dump(params)) + b"\n")
            bridge.stdin.flush()
            while (answer := json.loads(bridge.stdout.readline())).get("id") != number:
                pass
            return answer["result"]

        await asyncio.to_thread(ask, 1, "initialize", INITIALIZE)
        meta = {"yoloMode": True}
        new = {"cwd": str(short_tmp), "mcpServers": [], "_meta": meta}
        session = (await asyncio.to_thread(ask, 2, "session/new", new))["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": steps({"tools": [tool]})}]}
        bridge.stdin.write(request_bytes(b"3", "session/prompt", dump(prompt)) + b"\n")
        bridge.stdin.flush()
        async with asyncio.timeout(60):
            while not (short_tmp / "started").exists():
                await asyncio.sleep(0.02)
        started = carriers(f"GROK_LEADER_SOCKET={kept.paths.leader_socket}")
        assert len(started) >= 3
        bridge.kill()
    os.kill(first.pid, signal.SIGKILL)
    await kept.ready(first.generation)
    assert carriers(f"GROK_LEADER_SOCKET={kept.paths.leader_socket}") == []
