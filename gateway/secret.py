"""The secret of one instance: who reads it may use the gateway.

32 random bytes as 64 hex digits in ``Paths.secret``, 0600.  It is read again at each use, so that a
new secret is in force at once and no process keeps an old one.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path

__all__ = ["SecretError", "ensure_secret", "read_secret"]

_SECRET = re.compile(r"[0-9a-f]{64}")


class SecretError(Exception):
    """The secret is missing or unusable; the text says where and what to do, never the content."""


def read_secret(file: Path) -> str:
    """The 64 hex digits.  Raises SecretError."""
    try:
        text = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SecretError(
            f"cannot read the secret {file}: {reason}; `grok-gateway up` makes a new one"
        ) from error
    if not _SECRET.fullmatch(text):
        raise SecretError(
            f"{file} does not hold 64 hex digits; delete it, `grok-gateway restart gateway` makes a new one"
        )
    return text


def ensure_secret(file: Path) -> str:
    """The secret, made first if there is none (its folder exists).  Raises SecretError.

    The file appears complete or not at all: a link onto an existing name fails like O_EXCL does, and
    a reader can never see the empty file between an open and a write.
    """
    if not file.exists():
        draft = file.with_name(f".secret-{secrets.token_hex(8)}")
        try:
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(fd, secrets.token_hex(32).encode() + b"\n")
                os.fsync(fd)
            finally:
                os.close(fd)
            with contextlib.suppress(FileExistsError):  # somebody else was first: theirs counts
                os.link(draft, file)
        except OSError as error:
            raise SecretError(f"cannot create the secret {file}: {error.strerror}") from error
        finally:
            draft.unlink(missing_ok=True)
    return read_secret(file)
