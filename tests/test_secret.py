from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.secret import SecretError, ensure_secret, read_secret


def test_made_once_private_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    secret = ensure_secret(file)
    assert len(bytes.fromhex(secret)) == 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ensure_secret(file) == read_secret(file) == secret
    assert os.listdir(tmp_path) == ["secret"]


def test_many_makers_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        secrets = set(pool.map(ensure_secret, [tmp_path / "secret"] * 64))
    assert secrets == {read_secret(tmp_path / "secret")}
    assert os.listdir(tmp_path) == ["secret"]


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 64, b"G" * 64, b"a" * 65])
def test_an_unusable_secret_is_named_but_not_shown(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    for attempt in (read_secret, ensure_secret):
        with pytest.raises(SecretError) as caught:
            attempt(file)
        assert str(file) in str(caught.value)
        assert not content or content.decode("latin-1") not in str(caught.value)


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match="No such file"):
        read_secret(tmp_path / "secret")
    with pytest.raises(SecretError, match="cannot create"):
        ensure_secret(tmp_path / "nowhere" / "secret")
