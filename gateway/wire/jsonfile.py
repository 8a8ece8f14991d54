"""A JSON object in a file that several programs keep settings in: read it, replace it whole."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["JsonFileError", "read_object", "replace_object"]


class JsonFileError(Exception):
    """The file cannot be used; the text says which, why and what to do, without a full stop."""


def read_object(file: Path) -> dict[str, Any]:
    """The object in ``file``; empty when there is no file.  Raises JsonFileError."""
    try:
        data = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise JsonFileError(f"{file} cannot be read: {error}; correct it or remove it") from error
    if not isinstance(data, dict):
        raise JsonFileError(f"{file} must hold a JSON object; correct it or remove it")
    return data


def replace_object(file: Path, data: Mapping[str, Any]) -> None:
    """Write ``data`` beside the file, 0600, and put it in its place.  Raises JsonFileError."""
    beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as stream:  # noqa: PTH123 (a descriptor, not a path)
            stream.write(json.dumps(dict(data), indent=2) + "\n")
        beside.replace(file.resolve())  # the file may be a link to where its owner keeps it
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise JsonFileError(f"{file} cannot be written: {error.strerror}") from error
