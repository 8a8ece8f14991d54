"""The bridge against small children that misbehave in one way each."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import gc
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.wire.handoff import LeaderInfo
from gateway.wire.limits import LIMITS, SIZES, Limits
from gateway.wire.ndjson import Overlong
from gateway.wire.process import end_group, spawn
from tests.engines.processes import carriers, state
from workers.bridge import Bridge, BridgeExit

FAST = dataclasses.replace(LIMITS, bridge_eof=0.3, terminate=0.5, bridge_write=0.5)

ECHO = """
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
"""


class Harness:
    """A bridge to a Python script, and what was heard of it."""

    def __init__(self, folder: Path, limits: Limits = FAST) -> None:
        self.folder = folder
        self.lines: list[bytes] = []
        self.overlong: list[Overlong] = []
        self.pauses: list[bool] = []
        self.exit: asyncio.Future[BridgeExit] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()
        self.bridge = Bridge(
            on_pause=lambda: self.pauses.append(True),
            on_resume=lambda: self.pauses.append(False),
            on_overlong=self.overlong.append,
            limits=limits,
        )

    def start(self, script: str) -> Harness:
        file = self.folder / f"child-{len(list(self.folder.iterdir()))}.py"
        file.write_text("import os, signal, subprocess, sys, time\n" + textwrap.dedent(script))
        return self.run([sys.executable, "-S", str(file)])

    def run(self, argv: list[str], *, link: bool = False, env: Mapping[str, str] = os.environ) -> Harness:
        info = LeaderInfo(state="ready", bridge=argv, link=link, env=env)
        self.bridge.start(info, self._line, self.exit.set_result)
        return self

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def ended(self) -> BridgeExit:
        async with asyncio.timeout(60):
            return await asyncio.shield(self.exit)

    def _line(self, line: bytes) -> None:
        self.lines.append(line)
        self.changed.set()


@pytest.fixture
async def make(tmp_path: Path):
    made: list[Harness] = []

    def make_one(limits: Limits = FAST) -> Harness:
        made.append(Harness(tmp_path, limits))
        return made[-1]

    yield make_one
    for harness in made:
        await harness.bridge.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while state(pid) not in ("", "Z", "X") and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    return state(pid) in ("", "Z", "X")


async def test_messages_both_ways_and_a_clean_end(make) -> None:
    before = descriptors()
    h = make().start(ECHO)
    h.bridge.write(b'{"id":1}')
    h.bridge.write('{"text":"é漢🎉"}'.encode())
    await h.until(lambda: len(h.lines) == 2)
    assert h.lines == [b'{"id":1}', '{"text":"é漢🎉"}'.encode()]
    await h.bridge.close()
    assert await h.ended() == BridgeExit("stop", code=0)
    assert h.bridge.pid == 0
    gc.collect()
    assert descriptors() == before


async def test_long_lines_both_ways(make) -> None:
    h = make().start(ECHO)
    sizes = [65_535, 65_536, 65_537, 2**20, 20 * 2**20]
    sent = [b'{"a":"%b"}' % (b"x" * (size - 8)) for size in sizes]
    for line in sent:
        h.bridge.write(line)
    await h.until(lambda: len(h.lines) == len(sent))
    assert h.lines == sent
    assert h.pauses == []  # what is read on behind a long line may be an ack that cannot wait


async def test_more_input_than_may_wait_pauses_its_source(make) -> None:
    h = make().start("sys.stdin.buffer.readline(); print('{}', flush=True)")
    h.bridge.write(b"{" + b" " * (SIZES.bridge_input + 2**20) + b"}")
    assert h.pauses == [True]
    await h.until(lambda: bool(h.lines))
    assert h.pauses == [True, False]


async def test_a_line_feed_inside_a_message_becomes_a_blank(make) -> None:
    h = make().start(ECHO)
    h.bridge.write(b'{\n "a": 1,\r\n "b": "x\\ny"\n}')
    await h.until(lambda: bool(h.lines))
    assert json.loads(h.lines[0]) == {"a": 1, "b": "x\ny"}


async def test_only_objects_reach_the_client(make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    script = r"""
        out = sys.stdout.buffer
        out.write(b"\xef\xbb\xbf" + b'{"first":1}\r\n')
        out.write(b"Welcome to the agent\n\x1b[31mred\x1b[0m text\n\n\"str\"\n[1]\n{oops}\n")
        out.write(b'{"deep":' + b"[" * 100_000 + b"\n")
        out.write(b'{"jsonrpc":"2.0","bad":"\xff"}\n{"a":"\\ud800"}\n  {"last":1}\n{"torn":')
        out.flush()
        sys.stdin.read()
    """
    h = make().start(script)
    await h.until(lambda: len(h.lines) == 3)
    assert h.lines == [b'{"first":1}', b'{"a":"\\ud800"}', b'  {"last":1}']
    await h.bridge.close()
    assert h.bridge.noise == 7
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "Welcome to the agent" in text
    assert "red text" in text
    assert "\x1b" not in text
    assert "ended within a line, 8 bytes" in text


async def test_an_overlong_line_is_dropped_and_reported(make, monkeypatch: pytest.MonkeyPatch) -> None:
    h = make()
    h.bridge._lines._limit = 100_000
    h.start("print('{\"id\":7,\"a\":\"' + 'x' * 200_000 + '\"}'); print('{}', flush=True); sys.stdin.read()")
    await h.until(lambda: bool(h.lines))
    assert h.lines == [b"{}"]
    (overlong,) = h.overlong
    assert overlong.size == 200_000 + len('{"id":7,"a":""}')
    assert overlong.head.startswith(b'{"id":7,')


async def test_a_paused_reader_loses_nothing_and_holds_the_child_back(make) -> None:
    h = make().start("""
        for n in range(20_000):
            print('{"n":%d,"pad":"%s"}' % (n, 'x' * 200))
        print('{"done":1}', flush=True)
        sys.stdin.read()
    """)
    await h.until(lambda: bool(h.lines))
    h.bridge.pause_reading()
    await asyncio.sleep(0.3)
    held = len(h.lines)
    await asyncio.sleep(0.2)
    assert len(h.lines) == held < 20_000
    h.bridge.resume_reading()
    await h.until(lambda: h.lines[-1] == b'{"done":1}')
    assert [json.loads(line)["n"] for line in h.lines[:-1]] == list(range(20_000))


async def test_a_child_that_stops_reading_is_ended(make) -> None:
    h = make().start("print('{}', flush=True); time.sleep(60)")
    await h.until(lambda: bool(h.lines))
    h.bridge.write(b"{" + b" " * (SIZES.bridge_input + 2**20) + b"}")
    exit_ = await h.ended()
    assert exit_ == BridgeExit("run", signal=9, reason="it read nothing of its input for 0.5 s")
    assert str(exit_) == "bridge, stage run: it read nothing of its input for 0.5 s, ended by SIGKILL"
    assert h.pauses == [True]


async def test_a_child_that_reads_slowly_is_not_ended(make) -> None:
    h = make().start("""
        import time
        print('{}', flush=True)
        left = 400_000
        while left:
            left -= len(os.read(0, min(left, 40_000)))
            time.sleep(0.15)
        print('{"all":1}', flush=True)
    """)
    await h.until(lambda: bool(h.lines))
    h.bridge.write(b"{" + b" " * (400_000 - 3) + b"}")
    await h.until(lambda: h.lines[-1] == b'{"all":1}')


# -- how it ends ---------------------------------------------------------------------------------


async def test_exit_text_names_stage_code_and_last_stderr(make) -> None:
    script = r"""
        sys.stderr.write("\x1b[2m2026-11-30T10:00:00Z\x1b[0m \x1b[31mERROR\x1b[0m cannot reach the leader\n")
        sys.stderr.write("Error: gave up")
        sys.exit(3)
    """
    exit_ = await make().start(script).ended()
    assert exit_.stage == "start"
    assert exit_.code == 3
    assert str(exit_) == (
        "bridge, stage start: exit code 3; "
        "last stderr: 2026-11-30T10:00:00Z ERROR cannot reach the leader\nError: gave up"
    )


async def test_exit_by_a_signal_while_running(make) -> None:
    h = make().start("print('{}', flush=True); time.sleep(60)")
    await h.until(lambda: bool(h.lines))
    os.kill(h.bridge.pid, signal.SIGTERM)
    assert str(await h.ended()) == "bridge, stage run: ended by SIGTERM"


async def test_the_last_words_come_before_the_end(make) -> None:
    h = make().start(
        "print('{\"pad\":\"' + 'x' * 50_000 + '\"}'); print('{\"last\":1}'); sys.stderr.write('bye')"
    )
    h.bridge.pause_reading()  # a slow client does not lose them either: what a pipe holds is small
    exit_ = await h.ended()
    assert h.lines[-1] == b'{"last":1}'
    assert exit_.stderr_tail == "bye"


async def test_stderr_is_drained_and_only_its_tail_is_kept(make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    h = make().start("""
        for n in range(3000):
            sys.stderr.write("line %d %s\\n" % (n, "y" * 80))
        sys.stderr.write("z" * 100_000 + "\\nthe end\\n")
        print('{}', flush=True)
    """)
    exit_ = await h.ended()
    assert h.lines == [b"{}"]
    assert exit_.stderr_tail.endswith("z" * SIZES.log_line + "\nthe end")
    assert len(exit_.stderr_tail) <= SIZES.stderr_tail
    assert sum("line " in record.getMessage() for record in caplog.records) == SIZES.chatter


@pytest.mark.parametrize(
    ("make_binary", "text"),
    [
        (lambda folder: folder / "missing", "No such file"),
        (lambda folder: folder, "ermission denied|not executable"),
        (lambda folder: _file(folder, b"\x7fELFgarbage", 0o755), "exit code 12|xec format error"),
        (lambda folder: _file(folder, b"#!/bin/sh\n", 0o644), "ermission denied|not executable"),
        (lambda folder: _file(folder, b"#!/no/such/interpreter\n", 0o755), "No such file"),
    ],
    ids=["missing", "folder", "not a program", "not executable", "no interpreter"],
)
async def test_a_binary_that_cannot_run(make, tmp_path: Path, make_binary, text: str) -> None:
    binary = make_binary(tmp_path)
    exit_ = await make().run([str(binary), "agent"]).ended()
    assert exit_.stage == "start"
    assert any(part in str(exit_) for part in text.split("|")), str(exit_)
    assert str(binary) in str(exit_)


def _file(folder: Path, content: bytes, mode: int) -> Path:
    file = folder / "program"
    file.write_bytes(content)
    file.chmod(mode)
    return file


async def test_writing_to_a_bridge_that_has_ended_does_nothing(make) -> None:
    h = make().start("sys.exit(0)")
    await h.ended()
    h.bridge.write(b"{}")
    h.bridge.pause_reading()
    h.bridge.resume_reading()
    await h.bridge.close()


async def test_a_bridge_never_started_closes_at_once(make) -> None:
    async with asyncio.timeout(0.2):
        await make().bridge.close()


# -- close ---------------------------------------------------------------------------------------


async def test_close_sends_what_is_queued_and_reads_to_the_end(make) -> None:
    h = make(dataclasses.replace(LIMITS, bridge_eof=20)).start("""
        data = sys.stdin.buffer.read()
        print('{"read":%d}' % len(data))
        for n in range(3000):
            print('{"n":%d,"pad":"%s"}' % (n, 'x' * 100))
    """)
    h.bridge.write(b"{" + b" " * 1_000_000 + b"}")
    h.bridge.pause_reading()
    await h.bridge.close()
    assert h.lines[0] == b'{"read":1000003}'
    assert len(h.lines) == 3001
    assert (await h.ended()).code == 0


async def test_close_of_a_child_that_ignores_eof(make) -> None:
    h = make().start("print('{}', flush=True); time.sleep(60)")
    await h.until(lambda: bool(h.lines))
    await h.bridge.close()
    assert await h.ended() == BridgeExit("stop", signal=15)


async def test_close_of_a_child_that_ignores_everything(make) -> None:
    h = make().start("signal.signal(15, signal.SIG_IGN); print('{}', flush=True); time.sleep(60)")
    await h.until(lambda: bool(h.lines))
    await h.bridge.close()
    assert await h.ended() == BridgeExit("stop", signal=9)


GRANDCHILDREN = """
    def stubborn(generation):
        signal.signal(15, signal.SIG_IGN)
        if generation < 2 and os.fork() == 0:
            stubborn(generation + 1)
        os.write(1, b'{"pid":%d}\\n' % os.getpid())
        os.write(ready, b"x")
        time.sleep(60)

    go_on, ready = os.pipe()
    if os.fork() == 0:
        stubborn(1)
    os.read(go_on, 1), os.read(go_on, 1)
"""


@pytest.mark.parametrize("end", ["eof", "crash", "stubborn"])
async def test_grandchildren_that_ignore_term_and_hold_the_pipes_end_with_it(make, end: str) -> None:
    last = {
        "eof": "sys.stdin.read()",
        "crash": "os._exit(7)",
        "stubborn": "signal.signal(15, signal.SIG_IGN); time.sleep(60)",
    }[end]
    h = make().start(GRANDCHILDREN + "    " + last + "\n")
    await h.until(lambda: len(h.lines) == 2)
    pids = [json.loads(line)["pid"] for line in h.lines]
    if end == "crash":
        exit_ = await h.ended()
    else:
        await h.bridge.close()  # does not hang on the stdout that they hold open
        exit_ = await h.ended()
    assert (exit_.code, exit_.signal) == {"eof": (0, None), "crash": (7, None), "stubborn": (None, 9)}[end]
    for pid in pids:
        assert await gone(pid)


async def test_a_cancelled_close_kills(make) -> None:
    h = make().start("signal.signal(15, signal.SIG_IGN); print('{}', flush=True); time.sleep(60)")
    await h.until(lambda: bool(h.lines))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await h.bridge.close()
    assert (await h.ended()).signal == 9


def test_a_bridge_dies_with_a_killed_worker() -> None:
    """Even one that does not read its input, and so sees no end of it."""
    worker = """
        import asyncio, os, sys
        from gateway.wire.handoff import LeaderInfo
        from workers.bridge import Bridge

        async def main():
            bridge = Bridge()
            info = LeaderInfo(bridge=["/bin/sleep", "60"], env=dict(os.environ))
            bridge.start(info, lambda line: None, lambda exit_: None)
            print(bridge.pid, flush=True)
            await asyncio.sleep(60)

        asyncio.run(main())
    """
    argv = [sys.executable, "-c", textwrap.dedent(worker)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        deadline = time.monotonic() + 5
        while b"sleep" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
        process.wait()
    while state(pid) not in ("", "Z", "X"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- the pinned binary ---------------------------------------------------------------------------


@pytest.fixture
def pinned(short_tmp: Path) -> Path:
    """A copy of a real program, in a folder of its own."""
    binary = short_tmp / "pinned"
    shutil.copyfile(shutil.which("sleep") or "/bin/sleep", binary)
    binary.chmod(0o755)
    return binary


async def test_it_runs_a_hard_link_that_vanishes_at_once(make, pinned: Path) -> None:
    """From then on it cannot start a leader of its own, whatever becomes of the one that it looks for."""
    h = make().run([str(pinned), "60"], link=True)
    exe, inode = Path(f"/proc/{h.bridge.pid}/exe"), pinned.stat().st_ino
    async with asyncio.timeout(60):
        while not str(exe.readlink()).endswith("(deleted)"):
            await asyncio.sleep(0.001)
    assert exe.stat().st_ino == inode
    assert str(exe.readlink()).startswith(str(pinned.parent / "bridge-"))
    assert list(pinned.parent.iterdir()) == [pinned]
    assert stat.S_ISREG(pinned.stat().st_mode)


@pytest.mark.parametrize("end", ["exit", "close"])
async def test_the_link_never_stays(make, pinned: Path, end: str) -> None:
    h = make().run([str(pinned), "0.05" if end == "exit" else "60"], link=True)
    await (h.ended() if end == "exit" else h.bridge.close())
    assert list(pinned.parent.iterdir()) == [pinned]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EMLINK])
async def test_a_link_that_cannot_be_made(
    make, pinned: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fails(self: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "hardlink_to", fails)
    exit_ = await make().run([str(pinned), "60"], link=True).ended()
    assert str(exit_) == f"bridge, stage start: cannot start {pinned}: {os.strerror(number)}"
    assert list(pinned.parent.iterdir()) == [pinned]


# -- cancelled at any moment ---------------------------------------------------------------------


async def test_cancelled_at_random_moments_of_the_start(make, tmp_path: Path) -> None:
    """The loop stays responsive and nothing is left; a child would run for a minute."""
    marker = f"cancel-test-{random.getrandbits(64):x}"
    rng = random.Random(7)
    count = int(os.environ.get("GROK_GATEWAY_TEST_CANCELS", "100"))
    before = descriptors()
    worst = 0.0

    async def heartbeat() -> None:
        nonlocal worst
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(0.005)
            worst = max(worst, time.perf_counter() - begin)

    async def one() -> None:
        h = Harness(tmp_path)
        try:
            h.run(["/bin/sh", "-c", f": {marker}; echo '{{}}'; exec sleep 60"])
            await h.until(lambda: len(h.lines) == 2)  # never: one line comes
        finally:
            await h.bridge.close()

    beat = asyncio.create_task(heartbeat())
    for _ in range(count // 10):
        tasks = [asyncio.create_task(one()) for _ in range(10)]
        for task in tasks:
            await asyncio.sleep(rng.uniform(0, 0.005))
            task.cancel()
        if rng.random() < 0.5:  # a second time, within close
            await asyncio.sleep(rng.uniform(0, 0.02))
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)
    beat.cancel()
    deadline = time.monotonic() + 5
    while (carriers(marker) or descriptors() > before) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert carriers(marker) == []
    assert descriptors() <= before
    assert worst < 2, "something blocked the loop"


# -- the real engine -----------------------------------------------------------------------------


LEADER_FLAGS = ("--no-exit-on-disconnect", "--relay-on-demand", "--no-auto-update")


@pytest.fixture
async def leader(grok_binary: Path, grok_home: Path, short_tmp: Path):
    """A leader of the real engine, and what a bridge to it needs."""
    pinned, socket = short_tmp / "grok-pinned", short_tmp / "leader.sock"
    shutil.copyfile(grok_binary, pinned)
    pinned.chmod(0o755)
    env = {**os.environ, "GROK_HOME": str(grok_home), "GROK_DISABLE_AUTOUPDATER": "1"}
    mode = ["--permission-mode", "default", "agent"]
    process = spawn(
        [str(pinned), *mode, "leader", *LEADER_FLAGS, "--leader-socket", str(socket)],
        env=env,
    )
    lock = socket.with_suffix(".lock")
    async with asyncio.timeout(60):
        while not (lock.exists() and lock.read_text() == str(process.pid) and socket.exists()):
            await asyncio.sleep(0.02)
    argv = [str(pinned), *mode, "--leader", "stdio", "--leader-socket", str(socket)]
    yield process, LeaderInfo(state="ready", socket=str(socket), bridge=argv, link=True, env=env)
    await end_group(process)


class Grok(Harness):
    """A bridge to the real engine."""

    def __init__(self, folder: Path, info: LeaderInfo) -> None:
        super().__init__(folder)
        self.bridge.start(info, self._line, self.exit.set_result)

    async def call(self, method: str, **params: Any) -> Any:
        number = len(self.lines) + 1000
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.bridge.write(json.dumps(request).encode())
        await self.until(lambda: any(json.loads(line).get("id") == number for line in self.lines))
        return next(m for line in self.lines if (m := json.loads(line)).get("id") == number)["result"]

    async def initialize(self) -> None:
        result = await self.call("initialize", protocolVersion=1, clientCapabilities={})
        assert result["agentCapabilities"]["loadSession"] is True


@pytest.mark.grok
async def test_a_turn_through_a_bridge_of_the_real_engine(leader, tmp_path: Path) -> None:
    _, info = leader
    grok = Grok(tmp_path, info)
    await grok.initialize()
    assert list(Path(info.bridge[0]).parent.glob("bridge-*")) == []
    session = await grok.call("session/new", cwd=str(tmp_path), mcpServers=[])
    prompt = [{"type": "text", "text": "hello"}]
    result = await grok.call("session/prompt", sessionId=session["sessionId"], prompt=prompt)
    assert result["stopReason"] == "end_turn"
    assert any(b"agent_message_chunk" in line for line in grok.lines)
    assert grok.bridge.noise == 0
    await grok.bridge.close()
    assert await grok.ended() == BridgeExit("stop", code=0)


@pytest.mark.grok
async def test_a_line_of_20_mib_reaches_the_real_engine(leader, tmp_path: Path) -> None:
    _, info = leader
    grok = Grok(tmp_path, info)
    await grok.initialize()
    session = await grok.call("session/new", cwd=str(tmp_path), mcpServers=[])
    prompt = [{"type": "text", "text": "x" * (20 * 2**20)}]
    with contextlib.suppress(KeyError):  # the model's window is smaller: any answer will do
        await grok.call("session/prompt", sessionId=session["sessionId"], prompt=prompt)
    await grok.bridge.close()
    assert (await grok.ended()).code == 0


@pytest.mark.grok
async def test_the_real_bridge_killed_and_terminated(leader, tmp_path: Path) -> None:
    process, info = leader
    for number, expected in ((signal.SIGKILL, (None, 9)), (signal.SIGTERM, (143, None))):
        grok = Grok(tmp_path, info)
        await grok.initialize()
        os.kill(grok.bridge.pid, number)
        exit_ = await grok.ended()
        assert (exit_.stage, exit_.code, exit_.signal) == ("run", *expected)
    assert process.poll() is None


async def test_a_bridge_that_changes_its_connection_is_ended(make: Callable[[], Harness]) -> None:
    """Nothing of what it says behind that word is passed on."""
    harness = make().start("""
        print('{"jsonrpc":"2.0","method":"before"}')
        print('{"jsonrpc":"2.0","method":"x.ai/leader_reconnected","params":{"sessionId":"s"}}')
        print('{"jsonrpc":"2.0","method":"after"}', flush=True)
        time.sleep(60)
    """)
    exit_ = await harness.ended()
    assert (exit_.stage, exit_.signal) == ("run", signal.SIGKILL)
    assert "its connection to the leader broke" in str(exit_)
    assert harness.lines == [b'{"jsonrpc":"2.0","method":"before"}']


@pytest.mark.grok
async def test_no_leader_and_no_binary_to_start_one_from(leader, tmp_path: Path) -> None:
    """It cannot start a stray leader, and says why it ends."""
    process, info = leader
    await end_group(process)
    grok = Grok(tmp_path, info)
    grok.bridge.write(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}')
    exit_ = await grok.ended()
    assert (exit_.stage, exit_.code) == ("start", 1)
    assert "Failed to spawn leader" in str(exit_)


@pytest.mark.grok
async def test_random_cancels_during_the_start_of_the_real_bridge(leader, tmp_path: Path) -> None:
    _, info = leader
    rng = random.Random(3)

    async def one() -> None:
        grok = Grok(tmp_path, info)
        try:
            await grok.initialize()
        finally:
            await grok.bridge.close()

    for _ in range(10):
        task = asyncio.create_task(one())
        await asyncio.sleep(rng.uniform(0, 0.4))
        task.cancel()
        await asyncio.wait([task])
    assert list(Path(info.bridge[0]).parent.glob("bridge-*")) == []
