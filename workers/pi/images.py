"""Images of messages as files: Grok takes no image in a prompt, but its tools read one by its path."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from workers.pi.protocol import UserError

__all__ = ["keep_image"]


def keep_image(name: str, data: bytes) -> str:
    """Write an image to a folder of the user's own; its path.  Raises UserError."""
    folder = Path(tempfile.gettempdir()) / f"grok-gateway-images-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise UserError(f"{folder} is not yours alone: remove it, or images cannot be given to Grok.")
        file = folder / name
        if not file.exists():
            fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as stream:  # noqa: PTH123 (a descriptor, not a path)
                stream.write(data)
    except OSError as error:
        raise UserError(f"An image could not be written to {folder}: {error.strerror}.") from error
    return str(file)
