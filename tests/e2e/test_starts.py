"""Starting: with a bad engine, a bad folder or bad settings, all at once, over leftovers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.gateway import COMMAND, Gateway
from tests.engines.fake import FakeEngine
from tests.engines.scripted_model import steps

Make = Callable[..., Gateway]


# -- engines that are none -------------------------------------------------------------------------


async def test_an_engine_that_exits_at_once_is_named_with_its_last_words(
    make_gateway: Make, fake_engine: FakeEngine
) -> None:
    fake_engine.set(leader={"exit_at_once": {"code": 3, "stderr": "the licence has run out\n"}})
    gateway = make_gateway(fake_engine.path)
    done = await gateway.run("up", timeout=120)
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "the licence has run out" in said
    assert "3" in said


@pytest.mark.parametrize("content", [None, "", "not a program at all"])
async def test_a_wrong_binary_is_named(make_gateway: Make, short_tmp: Path, content: str | None) -> None:
    binary = short_tmp / "wrong-grok"
    if content is not None:
        binary.write_text(content)
        binary.chmod(0o755)
    gateway = make_gateway(binary)
    done = await gateway.run("up", timeout=120)
    assert done.returncode == 1
    assert "wrong-grok" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


async def test_an_engine_without_a_leader_is_told_apart(make_gateway: Make, short_tmp: Path) -> None:
    binary = short_tmp / "old-grok"
    binary.write_text("#!/bin/sh\necho \"error: unrecognized subcommand 'leader'\" >&2\nexit 2\n")
    binary.chmod(0o755)
    done = await make_gateway(binary).run("up", timeout=120)
    assert done.returncode == 1
    assert "unrecognized subcommand" in done.stdout + done.stderr


# -- folders and settings --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("GROK_GATEWAY_PORT", "seven", "GROK_GATEWAY_PORT"),
        ("GROK_GATEWAY_PORT", "70000", "65535"),
        ("GROK_GATEWAY_WORKERS", "1", "GROK_GATEWAY_WORKERS"),
        ("GROK_GATEWAY_ENGINE", "gpt", "auto, grok, harness"),
        ("GROK_GATEWAY_GUARD_SCALE", "2", "GROK_GATEWAY_GUARD_SCALE"),
        ("GROK_GATEWAY_HOME", "relative/folder", "absolute"),
        ("GROK_GATEWAY_HOME", "/tmp/" + "long" * 40, "GROK_GATEWAY_HOME"),
    ],
)
def test_a_bad_value_is_named(
    make_gateway: Make, fake_engine: FakeEngine, variable: str, value: str, said: str
) -> None:
    gateway = make_gateway(fake_engine.path)
    environment = {**gateway.environment, variable: value}
    done = subprocess.run([*COMMAND, "up"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2), done
    assert said in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("port = [", "config.toml"),
        ("prot = 2419\n", "prot"),
        ('port = "x"\n', "65535"),
        ("[guard]\ndialogMs = 1\n", "dialogMs"),
        ("[guard]\nnothingMs = 1\n", "nothingMs"),
    ],
)
def test_a_bad_file_is_named(make_gateway: Make, fake_engine: FakeEngine, content: str, said: str) -> None:
    gateway = make_gateway(fake_engine.path)
    gateway.paths.config.mkdir(parents=True)
    gateway.paths.config_file.write_text(content)
    done = gateway.command("up")
    assert done.returncode in (1, 2)
    assert said in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout


def test_without_a_home_there_is_no_fallback(make_gateway: Make, fake_engine: FakeEngine) -> None:
    gateway = make_gateway(fake_engine.path)
    bare = {k: v for k, v in gateway.environment.items() if k not in ("HOME", "GROK_GATEWAY_HOME")}
    done = subprocess.run([*COMMAND, "up"], env=bare, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2)
    assert "HOME" in done.stderr + done.stdout


async def test_a_state_folder_that_cannot_be_made(make_gateway: Make, fake_engine: FakeEngine) -> None:
    gateway = make_gateway(fake_engine.path)
    (gateway.folder / "gw").write_text("a file is in the way")
    done = await gateway.run("up")
    assert done.returncode == 1
    assert str(gateway.folder / "gw") in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    (gateway.folder / "gw").unlink()


@pytest.mark.grok
async def test_a_disk_too_full_for_the_pinned_copy(
    make_gateway: Make, grok_binary: Path, grok_home: Path
) -> None:
    gateway = make_gateway(grok_binary, grok_home)
    home = gateway.folder / "gw"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(home)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here (needs root)")
    try:
        done = await gateway.run("up", timeout=120)
        assert done.returncode == 1
        assert "space" in (done.stdout + done.stderr).lower()
        assert "Traceback" not in done.stdout + done.stderr
        assert not gateway.carriers_after(10)
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


async def test_three_ups_at_once_are_one_instance(make_gateway: Make, fake_engine: FakeEngine) -> None:
    gateway = make_gateway(fake_engine.path)
    for _ in range(2):
        done = await asyncio.gather(*(gateway.run("up") for _ in range(3)))
        assert [d.returncode for d in done] == [0, 0, 0], done
        for role in ("supervisord", "front", "leader", "watchdog"):
            assert len(gateway.processes(role)) == 1, role
        assert (await gateway.run("down")).returncode == 0


def test_usage_is_2_and_not_running_is_3(make_gateway: Make, fake_engine: FakeEngine) -> None:
    gateway = make_gateway(fake_engine.path)
    for arguments, code in (
        (("no-such-command",), 2),
        (("restart", "nobody"), 2),
        ((), 2),
        (("status",), 3),
        (("status", "--json"), 3),
        (("restart", "leader"), 3),
        (("reload",), 3),
    ):
        assert gateway.command(*arguments).returncode == code, arguments


# -- leftovers and strangers -----------------------------------------------------------------------


async def test_leftovers_of_a_crash_are_no_obstacle(make_gateway: Make, fake_engine: FakeEngine) -> None:
    gateway = make_gateway(fake_engine.path)
    gateway.up()
    gateway.kill_all()
    left = [gateway.paths.leader_socket, gateway.paths.leader_lock, gateway.paths.front_socket]
    assert all(path.exists() for path in left)
    # The pid that the lock names now belongs to somebody else, who must be left alone.
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        gateway.paths.leader_lock.write_text(str(stranger.pid))
        gateway.up()
        assert stranger.poll() is None
        client, session = await gateway.session()
        assert (await client.prompt(session, "hello"))["stopReason"] == "end_turn"
        await client.close()
        gateway.down()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.grok
async def test_the_users_own_configuration_does_not_turn_the_leader_off(
    make_gateway: Make, grok_binary: Path, grok_home: Path
) -> None:
    config = grok_home / "config.toml"
    config.write_text(config.read_text().replace("[cli]\n", "[cli]\nuse_leader = false\n"))
    gateway = make_gateway(grok_binary, grok_home).up()
    client, session = await gateway.session()
    assert (await client.prompt(session, steps({"text": "led"})))["stopReason"] == "end_turn"
    assert len(gateway.processes("leader")) == 1
    await client.close()


@pytest.mark.grok
async def test_thirty_clients_at_a_cold_start_share_one_leader(
    make_gateway: Make, grok_binary: Path, grok_home: Path
) -> None:
    gateway = make_gateway(grok_binary, grok_home)
    up = asyncio.create_task(gateway.run("up"))
    async with asyncio.timeout(60):
        while not gateway.paths.secret.exists() or not gateway.processes("front"):
            await asyncio.sleep(0.01)

    async def come() -> None:
        while True:
            try:
                client = await gateway.client()
                break
            except Exception:  # refused or 503 until the first worker is ready
                await asyncio.sleep(0.1)
        session = await client.new_session(gateway.work)
        assert (await client.prompt(session, steps({"text": "here"})))["stopReason"] == "end_turn"
        await client.close()

    await asyncio.wait_for(asyncio.gather(*(come() for _ in range(30))), 90)
    assert (await up).returncode == 0
    assert len(gateway.processes("leader")) == 1


@pytest.mark.grok
async def test_a_newer_binary_on_disk_changes_nothing_until_restart(
    make_gateway: Make, grok_binary: Path, grok_home: Path, short_tmp: Path
) -> None:
    binary = short_tmp / "grok-native"
    os.symlink(grok_binary, binary)
    gateway = make_gateway(binary, grok_home).up()
    leader = gateway.pid("leader")
    client, session = await gateway.session()
    binary.unlink()
    binary.write_text("#!/bin/sh\necho grok 99.0.0\n")
    binary.chmod(0o755)
    newcomer, theirs = await gateway.session()
    for who, sid in ((client, session), (newcomer, theirs)):
        assert (await who.prompt(sid, steps({"text": "same"})))["stopReason"] == "end_turn"
        await who.close()
    assert gateway.pid("leader") == leader
    binary.unlink()
    os.symlink(grok_binary, binary)
    assert (await gateway.run("restart", "leader")).returncode == 0
    assert gateway.pid("leader") != leader


# -- status tells the truth ------------------------------------------------------------------------


async def test_status_names_each_loss(fake: Gateway) -> None:
    whole = await fake.status()
    names = [component["name"] for component in whole["components"]]
    assert {"gateway", "watchdog", "worker:worker_00", "worker:worker_01"} <= set(names)
    assert whole["leader"]["state"] == "ready"
    assert whole["leader"]["pid"] == fake.pid("leader")
    victim = fake.workers()["worker_00"]
    os.kill(victim, signal.SIGKILL)
    await fake.gone(victim)
    await fake.until("worker", 2)
    async with asyncio.timeout(60):
        while (done := await fake.run("status", "--json")).returncode:
            await asyncio.sleep(0.2)
    after = json.loads(done.stdout)
    rows = {component["name"]: component for component in after["components"]}
    assert rows["worker:worker_00"]["pid"] != victim
    assert rows["worker:worker_01"]["pid"] == fake.workers()["worker_01"]
    assert rows["gateway"]["pid"] == fake.pid("front")


async def test_a_stopped_worker_is_found_and_replaced(fake: Gateway) -> None:
    victim = fake.workers()["worker_00"]
    os.kill(victim, signal.SIGSTOP)
    await fake.gone(victim, timeout=60)
    await fake.until("worker", 2)
    client, session = await fake.session()
    assert (await client.prompt(session, "well"))["stopReason"] == "end_turn"
    await client.close()


async def test_a_stopped_leader_is_found_and_replaced(fake: Gateway) -> None:
    client, session = await fake.session()
    leader = fake.pid("leader")
    os.kill(leader, signal.SIGSTOP)
    await fake.gone(leader, timeout=60)
    await client.wait_for(lambda m: m.get("method") == "gateway/leader_restarted")
    assert client.closed.done() is False
    assert session
    await client.close()
