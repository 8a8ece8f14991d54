"""Writes that are interrupted, raced or refused."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.workspace import host_filesystem
from harness.workspace.filesystem import ABSENT, PathChangedError
from harness.workspace.host_filesystem import HostFileSystem

from .conftest import MemoryTree

FS = HostFileSystem()
OLD, NEW = b"old " * 20_000, b"new " * 30_000
NOBODY = 65534
STEPS = ["open", "write", "fchmod", "fsync", "stat", "rename"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_step_leaves_the_old_file_or_the_new_one(
    step: str, after: bool, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    path.chmod(0o640)
    program = f"""
        import os, signal
        from harness.workspace.host_filesystem import HostFileSystem
        real = os.{step}
        def killed(*args, **kwargs):
            if {after}:
                real(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)
        real_open, armed = os.open, []
        def watched(path, flags, *args, **kwargs):
            if not armed and flags & os.O_CREAT:
                armed.append(True)
                os.{step} = killed
                if {step!r} == "open":
                    return killed(path, flags, *args, **kwargs)
            return real_open(path, flags, *args, **kwargs)
        os.open = watched
        if {step!r} == "open":
            real = real_open
        HostFileSystem().replace_atomic({str(path)!r}, b"new " * 30_000)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert path.read_bytes() == (NEW if after and step == "rename" else OLD)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("step", ["write", "fchmod", "fsync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_leaves_no_temporary_file(
    step: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)

    def failing(*_args: object, **_kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(host_filesystem.os, step, failing)
    with pytest.raises(OSError, match=r"file") as caught:
        FS.replace_atomic(str(path), NEW)
    monkeypatch.undo()
    assert (caught.value.errno, caught.value.filename) == (number, str(path))
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_bytes() == OLD


def test_an_interrupt_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(host_filesystem.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        FS.replace_atomic(str(tmp_path / "file"), NEW)
    assert os.listdir(tmp_path) == []


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(host_filesystem.os, "write", lambda fd, data: write(fd, data[:1000]))
    FS.replace_atomic(str(tmp_path / "file"), NEW)
    monkeypatch.undo()
    assert (tmp_path / "file").read_bytes() == NEW


def test_a_reader_never_sees_half(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    stop = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not stop.is_set():
            seen.add(FS.read(str(path)).data)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(30):
        FS.replace_atomic(str(path), OLD if number % 2 else NEW)
    stop.set()
    reader.join()
    assert seen <= {OLD, NEW}


# -- links that appear in between ----------------------------------------------------------------------


def outside(tmp_path: Path) -> Path:
    target = tmp_path / "outside"
    target.mkdir()
    (target / "file").write_bytes(OLD)
    return target


def test_a_directory_swapped_for_a_link_is_noticed(tmp_path: Path) -> None:
    elsewhere = outside(tmp_path)
    inside = tmp_path / "work/inside"
    inside.mkdir(parents=True)
    (inside / "file").write_bytes(OLD)
    inside.rename(tmp_path / "work/moved")
    inside.symlink_to(elsewhere)
    for act in (
        FS.read,
        FS.remove,
        lambda path: FS.replace_atomic(path, NEW),
        lambda path: FS.mkdirs(path + "/x"),
    ):
        with pytest.raises(PathChangedError):
            act(f"{inside}/file")
    assert (elsewhere / "file").read_bytes() == OLD
    assert os.listdir(elsewhere) == ["file"]


def test_a_file_swapped_for_a_link_during_the_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = outside(tmp_path)
    path = tmp_path / "file"
    path.write_bytes(OLD)
    fsync = os.fsync

    def swap(fd: int) -> None:
        fsync(fd)
        path.unlink()
        path.symlink_to(elsewhere / "file")

    monkeypatch.setattr(host_filesystem.os, "fsync", swap)
    with pytest.raises(PathChangedError):
        FS.replace_atomic(str(path), NEW)
    assert (elsewhere / "file").read_bytes() == OLD
    assert sorted(os.listdir(tmp_path)) == ["file", "outside"]


def test_a_link_put_in_at_the_last_moment_is_replaced_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = outside(tmp_path)
    path = tmp_path / "file"
    path.write_bytes(OLD)
    rename = os.rename

    def swap(*args: object, **kwargs: object) -> None:
        path.unlink()
        path.symlink_to(elsewhere / "file")
        rename(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(host_filesystem.os, "rename", swap)
    FS.replace_atomic(str(path), NEW)
    assert (elsewhere / "file").read_bytes() == OLD
    assert not path.is_symlink()
    assert path.read_bytes() == NEW


def test_a_directory_moved_during_the_write_takes_the_write_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = outside(tmp_path)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "file").write_bytes(OLD)
    fsync = os.fsync

    def swap(fd: int) -> None:
        fsync(fd)
        inside.rename(tmp_path / "moved")
        inside.symlink_to(elsewhere)

    monkeypatch.setattr(host_filesystem.os, "fsync", swap)
    FS.replace_atomic(f"{inside}/file", NEW)
    assert (elsewhere / "file").read_bytes() == OLD
    assert (tmp_path / "moved/file").read_bytes() == NEW
    assert os.listdir(tmp_path / "moved") == ["file"]


def test_a_racing_swapper_never_gets_a_write_outside(tmp_path: Path) -> None:
    elsewhere = outside(tmp_path)
    inside, parked = tmp_path / "inside", tmp_path / "parked"
    inside.mkdir()
    (inside / "file").write_bytes(OLD)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            inside.rename(parked)
            inside.symlink_to(elsewhere)
            time.sleep(0.002)
            inside.unlink()
            parked.rename(inside)
            time.sleep(random.random() / 10)

    swapper = threading.Thread(target=swap)
    swapper.start()
    wrote = refused = 0
    try:
        deadline = time.monotonic() + 30
        while (wrote < 5 or refused < 5) and time.monotonic() < deadline:
            try:
                FS.replace_atomic(f"{inside}/file", NEW)
                wrote += 1
            except (PathChangedError, FileNotFoundError):
                refused += 1
    finally:
        stop.set()
        swapper.join()
    assert (elsewhere / "file").read_bytes() == OLD
    assert os.listdir(elsewhere) == ["file"]
    assert os.listdir(inside) == ["file"]
    assert wrote
    assert refused


def test_two_creators_make_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    outcomes: list[str] = []
    gate = threading.Barrier(8)

    def create(number: int) -> None:
        gate.wait()
        with contextlib.suppress(PathChangedError):
            FS.replace_atomic(path, str(number).encode(), expected=ABSENT)
            outcomes.append(str(number))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [FS.read(path).data.decode()]
    assert os.listdir(tmp_path) == ["file"]


def test_a_change_during_the_write_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    seen = FS.stat(str(path))
    fsync = os.fsync

    def change(fd: int) -> None:
        fsync(fd)
        path.write_bytes(b"theirs")

    monkeypatch.setattr(host_filesystem.os, "fsync", change)
    with pytest.raises(PathChangedError):
        FS.replace_atomic(str(path), NEW, expected=seen)
    assert path.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["file"]


def test_the_same_in_memory(memory: MemoryTree) -> None:
    path = f"{memory.root}/file"
    memory.put("file", "old")
    memory.put("elsewhere", "safe")

    def swap(step: str, _path: str) -> None:
        if step == "rename":
            memory.symlink("file", "elsewhere")

    memory.fs.on_step = swap
    with pytest.raises(PathChangedError):
        memory.fs.replace_atomic(path, b"new")
    assert memory.get("elsewhere") == b"safe"


# -- special files, permissions ------------------------------------------------------------------------


def test_special_files_are_neither_read_nor_written(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for act in (
        lambda: FS.read(str(fifo)),
        lambda: FS.replace_atomic(str(fifo), b""),
        lambda: FS.read("/dev/zero"),
    ):
        with pytest.raises(OSError, match=r"Invalid") as caught:  # and none of them waits
            act()
        assert caught.value.errno == errno.EINVAL


def test_files_without_a_size_are_read(tmp_path: Path) -> None:
    assert FS.read(f"/proc/{os.getpid()}/status").data.startswith(b"Name:")
    assert FS.read(f"/proc/{os.getpid()}/status", 4).truncated


def test_the_umask_holds_for_new_files_and_the_content_is_never_wider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    fsync, fchmod = os.fsync, os.fchmod

    def look(fd: int, *args: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(fd).st_mode))
        (fchmod if args else fsync)(fd, *args)

    monkeypatch.setattr(host_filesystem.os, "fchmod", look)
    before = os.umask(0o027)
    try:
        FS.replace_atomic(str(tmp_path / "new"), b"1")
        (tmp_path / "secret").touch()
        (tmp_path / "secret").chmod(0o600)
        FS.replace_atomic(str(tmp_path / "secret"), b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert modes == [0o600]


def as_nobody(act: Callable[[], object]) -> str:
    """Root may do everything: whether permissions are asked shows only as somebody else.

    Gives "done" or the name of the exception.  A fork, because the interpreter itself may lie where only
    root gets to.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            act()
            os.write(writer, b"done")
        except BaseException as error:
            os.write(writer, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        outcome = pipe.read().decode()
    os.waitpid(child, 0)
    return outcome


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that somebody else can get to; pytest's own are private."""
    if os.geteuid() != 0:
        pytest.skip("needs another user")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name).resolve()
        path.chmod(0o755)
        yield path


def test_a_file_that_may_not_be_written_is_not_replaced(shared: Path) -> None:
    directory = shared / "open"
    directory.mkdir()
    directory.chmod(0o777)
    path = directory / "file"
    path.write_bytes(OLD)
    path.chmod(0o444)
    assert as_nobody(lambda: FS.replace_atomic(str(path), NEW)) == "PermissionError"
    assert os.listdir(directory) == ["file"]
    assert path.read_bytes() == OLD


def test_a_writable_file_in_a_closed_directory_is_written_in_place(shared: Path) -> None:
    path = shared / "file"
    path.write_bytes(OLD)
    path.chmod(0o666)
    inode = path.stat().st_ino
    assert as_nobody(lambda: FS.replace_atomic(str(path), b"new")) == "done"
    assert path.read_bytes() == b"new"
    assert path.stat().st_ino == inode


def test_owner_and_bits_are_kept_or_the_dangerous_bits_dropped(shared: Path) -> None:
    mine = shared / "mine"
    mine.write_bytes(OLD)
    os.chown(mine, NOBODY, NOBODY)
    mine.chmod(0o4755)
    FS.replace_atomic(str(mine), NEW)
    found = mine.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (NOBODY, NOBODY, 0o4755)

    directory = shared / "open"
    directory.mkdir()
    directory.chmod(0o777)
    roots = directory / "file"
    roots.write_bytes(OLD)
    roots.chmod(0o4777)
    assert as_nobody(lambda: FS.replace_atomic(str(roots), b"new")) == "done"
    found = roots.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (NOBODY, 0o777)


def test_extended_attributes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("no extended attributes here")
    FS.replace_atomic(str(path), NEW)
    assert os.getxattr(path, "user.note") == b"kept"


def test_a_mounted_file_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    inode = path.stat().st_ino

    def busy(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(host_filesystem.os, "rename", busy)
    FS.replace_atomic(str(path), b"short")
    assert (path.read_bytes(), path.stat().st_ino) == (b"short", inode)
    assert os.listdir(tmp_path) == ["file"]


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    path = tmp_path / "deep/er/file"
    FS.mkdirs(str(path.parent))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        FS.replace_atomic(str(path), b"1")
        FS.read(str(path))
        for wrong in (f"{path}/x", f"{tmp_path}/missing/x"):
            for act in (FS.read, FS.remove, lambda p: FS.replace_atomic(p, b"1")):
                with pytest.raises(OSError, match=wrong):
                    act(wrong)
    assert len(os.listdir("/proc/self/fd")) == before
