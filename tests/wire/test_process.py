from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.wire.process import Exit, Identity, end_group, peer_identity, spawn, wait_exit


def sleeper(seconds: float = 60) -> subprocess.Popen[bytes]:
    return spawn(["sleep", str(seconds)], env=_environment())


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "GROK_GATEWAY_TEST_ID") if name in os.environ}


def python(text: str, **options: object) -> subprocess.Popen[bytes]:
    """A child that runs this program and prints something once it is ready."""
    process = spawn(
        [sys.executable, "-c", textwrap.dedent(text)],
        env=_environment(),
        stdout=subprocess.PIPE,
        **options,  # type: ignore[arg-type]
    )
    assert process.stdout
    process.stdout.readline()
    return process


STUBBORN = """
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(flush=True)
    time.sleep(60)
"""


def test_an_identity_is_one_process_for_good() -> None:
    process = sleeper()
    identity = Identity.of(process.pid)
    assert identity
    assert identity.alive()
    assert identity == Identity.of(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.alive(), "a zombie is no living process"
    process.wait()
    assert not identity.alive()
    assert identity.signal(signal.SIGTERM) is False
    assert identity.wait(0) is True


def test_a_reused_pid_is_a_stranger() -> None:
    """The pid is right, the start time is not: nothing may be signalled."""
    process = sleeper()
    earlier = Identity(process.pid, Identity.of(process.pid).created - 1)  # type: ignore[union-attr]
    assert not earlier.alive()
    assert earlier.pidfd() is None
    assert earlier.signal(signal.SIGKILL) is False
    assert process.poll() is None
    process.kill()
    process.wait()


def test_an_odd_command_name_is_read_right(tmp_path: Path) -> None:
    program = tmp_path / "a) S 1 (b"
    program.symlink_to("/bin/sleep")
    process = spawn([str(program), "60"], env=_environment(), die_with_parent=False)
    identity = Identity.of(process.pid)
    assert identity
    assert abs(identity.created - time.clock_gettime(time.CLOCK_BOOTTIME)) < 30
    process.kill()
    process.wait()


def test_end_escalates_to_kill() -> None:
    process = python(STUBBORN)
    identity = Identity.of(process.pid)
    with ThreadPoolExecutor(1) as reaper:  # `end` is for processes that are not our children
        reaped = reaper.submit(process.wait)
        assert identity
        assert identity.end(patience=0.3)
        assert reaped.result() == -signal.SIGKILL
    process.stdout.close()  # type: ignore[union-attr]


async def test_the_end_of_a_process_is_seen_once() -> None:
    process = sleeper()
    seen: list[int] = []
    ended = asyncio.Event()

    def on_exit() -> None:
        seen.append(1)
        ended.set()

    identity = Identity.of(process.pid)
    assert identity
    Exit(identity, on_exit)
    await asyncio.sleep(0.05)
    assert not seen
    process.kill()
    await asyncio.wait_for(ended.wait(), 60)
    process.wait()
    late = asyncio.Event()
    Exit(identity, late.set)  # gone already: still told
    await asyncio.wait_for(late.wait(), 60)
    assert seen == [1]


async def test_a_cancelled_watch_is_silent() -> None:
    process = sleeper()
    identity = Identity.of(process.pid)
    assert identity
    watch = Exit(identity, lambda: pytest.fail("told after cancel"))
    watch.cancel()
    watch.cancel()
    process.kill()
    process.wait()
    await asyncio.sleep(0.05)


def test_who_listens_is_known_by_the_kernel(short_tmp: Path) -> None:
    path = str(short_tmp / "s")
    process = python(
        f"""
        import socket, time
        s = socket.socket(socket.AF_UNIX); s.bind({path!r}); s.listen(); print(flush=True); time.sleep(60)
        """
    )
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        assert peer_identity(sock) == (Identity.of(process.pid), os.getuid())
        process.kill()
        process.communicate()
        assert peer_identity(sock)[0] is None


def test_a_missing_program_is_an_oserror() -> None:
    with pytest.raises(OSError, match="No such file"):
        spawn(["/no/such/program"], env=_environment())


def test_children_start_from_the_main_thread_only() -> None:
    """The kernel binds the parent-death signal to the thread that forked."""
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="main thread"):
        pool.submit(spawn, ["true"], env=_environment()).result()


def test_a_child_gets_no_more_than_it_is_given() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    program = "import os, sys; print(sorted(os.environ), len(os.listdir('/proc/self/fd')), os.getsid(0))"
    process = spawn([sys.executable, "-c", program], env={"ONLY": "this"}, stdout=subprocess.PIPE)
    names, descriptors, session = process.communicate()[0].decode().rsplit(" ", 2)
    assert "GROK" not in names
    assert int(descriptors) == 4  # three pipes and the listed folder
    assert int(session) == process.pid
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("die", [True, False])
def test_children_die_with_their_parent_if_asked(die: bool) -> None:
    parent = python(
        f"""
        import os, time
        from gateway.wire.process import spawn
        child = spawn(["sleep", "60"], env=dict(os.environ), die_with_parent={die})
        time.sleep(0.2)  # setpriv has replaced itself by now
        print(child.pid, flush=True)
        time.sleep(60)
        """.replace("print(child.pid", "print(flush=True); print(child.pid")
    )
    assert parent.stdout
    child = Identity.of(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    assert child
    assert child.wait(5 if die else 0.3) == die
    child.end()


async def test_wait_exit_has_a_bound_and_reaps() -> None:
    process = sleeper()
    assert await wait_exit(process, 0.05) is False
    process.kill()
    assert await wait_exit(process, 5) is True
    assert process.returncode == -signal.SIGKILL
    assert await wait_exit(process, 5) is True


async def test_a_grandchild_that_holds_the_pipes_delays_nobody() -> None:
    process = python(
        """
        import os, time
        if os.fork() == 0:
            time.sleep(60)
        print(flush=True)
        """
    )
    assert await wait_exit(process, 5) is True
    await end_group(process)
    assert process.stdout
    await asyncio.wait_for(asyncio.to_thread(process.stdout.read), 60)  # the grandchild has let go


async def test_the_whole_group_ends_even_if_it_ignores_term() -> None:
    process = python(
        """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.fork()
        os.fork()
        print(flush=True)
        time.sleep(60)
        """
    )
    await end_group(process, patience=0.3)
    assert process.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 5
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            await asyncio.sleep(0.01)
        pytest.fail("members of the group are left")
    process.stdout.close()  # type: ignore[union-attr]
