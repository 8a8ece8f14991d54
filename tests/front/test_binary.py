from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.front import binary
from gateway.front.binary import BinaryError, pin, pin_running, sweep

SLEEP = Path(shutil.which("sleep") or "/bin/sleep").resolve()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(shutil.copy2(SLEEP, tmp_path / "grok"))


def test_a_copy_is_made_once_and_runs(folder: Path, source: Path) -> None:
    copy = pin(source, folder)
    inode = copy.stat().st_ino
    assert pin(source, folder) == copy
    assert copy.stat().st_ino == inode != source.stat().st_ino
    assert copy.read_bytes() == source.read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert os.listdir(folder) == [copy.name]
    subprocess.run([copy, "0"], check=True)


def test_a_new_file_gets_a_copy_of_its_own_and_the_old_one_stays(folder: Path, source: Path) -> None:
    old = pin(source, folder)
    content = old.read_bytes()
    fresh = source.with_name("new")
    fresh.write_bytes(content + b"newer")
    fresh.chmod(0o755)
    fresh.replace(source)
    new = pin(source, folder)
    assert new != old
    assert old.read_bytes() == content
    sweep(folder, keep=new)
    assert os.listdir(folder) == [new.name]


def test_a_copy_cut_short_is_made_again(folder: Path, source: Path) -> None:
    copy = pin(source, folder)
    os.truncate(copy, 100)
    assert pin(source, folder) == copy
    assert copy.read_bytes() == source.read_bytes()


def test_without_shared_blocks_it_is_copied(
    folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(binary.fcntl, "ioctl", refuse)
    assert pin(source, folder).read_bytes() == source.read_bytes()


def test_only_native_executables(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(BinaryError, match="script is not a native executable"):
        pin(script, folder)
    with pytest.raises(BinaryError, match="nothing-here cannot be read: No such file"):
        pin(tmp_path / "nothing-here", folder)
    assert os.listdir(folder) == []


def test_a_full_disk_says_what_to_do_and_leaves_nothing(source: Path) -> None:
    """A real one: a file system of 64 KiB in a mount namespace of its own."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom gateway.front.binary import pin, BinaryError\n"
        "folder = Path(sys.argv[2])\n"
        "(folder / 'filler').write_bytes(b'x' * 60000)\n"
        "try: pin(Path(sys.argv[1]), folder)\n"
        "except BinaryError as error: print(error)\n"
        "print(sorted(e.name for e in folder.iterdir()))\n"
    )
    script = 'mount -t tmpfs -o size=64k none "$0" && exec "$1" -c "$2" "$3" "$0"'
    folder = source.parent / "small"
    folder.mkdir()
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", script]
    result = subprocess.run(
        [*command, str(folder), sys.executable, code, str(source)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    if "unshare" in result.stderr or "mount:" in result.stderr:
        pytest.skip(f"no mount namespace here: {result.stderr.strip()}")
    message, left = result.stdout.splitlines()
    assert message.startswith("no space for the 0 MiB copy of ")
    assert str(folder) in message
    assert "GROK_GATEWAY_HOME" in message
    assert left == "['filler']"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_an_unwritable_folder_is_named(
    folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    real = os.open

    def refuse(path: Path, flags: int, *rest: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(code, os.strerror(code))
        return real(path, flags, *rest)

    monkeypatch.setattr(binary.os, "open", refuse)
    with pytest.raises(BinaryError, match=f"{folder} is not writable"):
        pin(source, folder)


def test_a_source_that_changes_meanwhile_is_refused(
    folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow(target: int, command: int, fd: int) -> None:
        with source.open("ab") as file:
            file.write(b"more")
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(binary.fcntl, "ioctl", grow)
    with pytest.raises(BinaryError, match="changed while it was copied"):
        pin(source, folder)
    assert os.listdir(folder) == []


def test_the_copy_of_a_running_process(folder: Path, source: Path) -> None:
    copy = pin(source, folder)
    with subprocess.Popen([copy, "60"]) as process:
        try:
            assert pin_running(process.pid, folder) == copy
            sweep(folder)
            assert os.listdir(folder) == []
            rescued = pin_running(process.pid, folder)
            assert rescued.parent == folder
            assert rescued.read_bytes() == source.read_bytes()
            assert pin_running(process.pid, folder) == rescued
        finally:
            process.kill()


def test_sweeping_removes_links_and_halves_but_not_the_copy(folder: Path, source: Path) -> None:
    copy = pin(source, folder)
    (folder / "control-0123").hardlink_to(copy)
    (folder / f".{copy.name}.abcd").write_bytes(b"half")
    sweep(folder, keep=copy)
    assert os.listdir(folder) == [copy.name]
    sweep(folder / "missing")
