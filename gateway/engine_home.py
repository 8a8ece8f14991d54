"""Which model answers, in which GROK_HOME, and what of the environment an engine gets to see.

Without a login, an API key and a model of the user's own, grok could not do a single turn.  Then the
offline model answers, in a private home: the user's own folder stays as it is.
"""

from __future__ import annotations

import re
import secrets
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from gateway.paths import Paths

__all__ = [
    "OWN_MODEL_HOW",
    "OWN_MODEL_NOTE",
    "EngineError",
    "bridge_environment",
    "leader_environment",
    "model_choice",
    "offline_note",
    "user_home",
    "write_home",
    "write_offline_home",
]

#: Both names are read by grok.
KEYS = ("XAI_API_KEY", "GROK_CODE_XAI_API_KEY")

#: What tools may need to behave as in the user's shell.  All else stays out: secrets above all.
_PASSED = frozenset(
    [
        "HOME",
        "PATH",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "COLORTERM",
        "USER",
        "LOGNAME",
        "SHELL",
        "TMPDIR",
        "SSH_AUTH_SOCK",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
    ]
)
_PASSED_PREFIXES = ("LC_", "XDG_")
#: A bridge is a pipe with a name: it calls no model and runs no tool.
_PASSED_TO_BRIDGES = frozenset(["HOME", "PATH", "LANG", "TZ", "TMPDIR"])

_FIXED = {
    "GROK_DISABLE_AUTOUPDATER": "1",
    "GROK_TELEMETRY_ENABLED": "0",
    "GROK_TELEMETRY_TRACE_UPLOAD": "0",
    "GROK_TELEMETRY_MIXPANEL_ENABLED": "0",
    "GROK_FEEDBACK_ENABLED": "0",
}

_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")

#: How the embedded engine gets a model: it has no login.
OWN_MODEL_HOW = "write a [model.NAME] with its base_url into ~/.grok/config.toml"
OWN_MODEL_NOTE = "the models of your own grok configuration"

_OFFLINE_CONFIG = """\
# Written by the gateway at each start of the leader.
[cli]
auto_update = false

[features]
telemetry = false
feedback = false
remote_fetch = false
managed_config = false
codebase_indexing = false

[telemetry]
trace_upload = false
mixpanel_enabled = false

[models]
default = "offline"

[model.offline]
model = "offline"
name = "Offline model (no account)"
base_url = "http://127.0.0.1:{port}/v1"
api_key = "none-needed"
context_window = 200000
api_backend = "chat_completions"
"""


class EngineError(Exception):
    """The engine cannot be used; the text says what happened, where and what to do."""


def offline_note(how: str) -> str:
    """What the offline model is and how to get another; ``how``: what to do, as an order."""
    return (
        "the offline model (no login and no model configured): it obeys plain instructions such as `run ls`; "
        f"for a real one {how}, then `grok-gateway restart leader`, or start the gateway with XAI_API_KEY set"
    )


def user_home(environ: Mapping[str, str]) -> Path:
    """The user's own GROK_HOME."""
    if home := environ.get("GROK_HOME"):
        return Path(home)
    return Path(environ.get("HOME") or "/") / ".grok"


def model_choice(paths: Paths, environ: Mapping[str, str], *, login: bool = True) -> tuple[Path | None, bool]:
    """(GROK_HOME or None for the default, whether the offline model answers).

    ``login``: whether the engine can use what `grok login` leaves; it is for xAI's own client.

    Raises EngineError for a config.toml that cannot be read: grok would not start with it either.
    """
    home = user_home(environ)
    own = Path(environ["GROK_HOME"]) if environ.get("GROK_HOME") else None
    keys = any(environ.get(key) for key in KEYS)
    if keys or (login and _logged_in(home)) or _config(home).get("model"):
        return own, False
    return paths.offline_home, True


def _logged_in(home: Path) -> bool:
    """After a logout the file may stay, empty."""
    try:
        return bool(orjson.loads((home / "auth.json").read_bytes()))
    except FileNotFoundError:
        return False
    except (OSError, orjson.JSONDecodeError):
        return True  # there is something; grok itself will say what is wrong with it


def _config(home: Path) -> dict[str, Any]:
    file = home / "config.toml"
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise EngineError(f"{file} is not valid TOML: {error}") from error
    except OSError as error:
        raise EngineError(f"{file} cannot be read: {error.strerror}") from error


def write_offline_home(paths: Paths) -> None:
    """Write the private home for the offline model that runs now.

    Raises EngineError while the offline model has not said its port.
    """
    try:
        port = int(paths.offline_port.read_text("ascii"))
    except (OSError, ValueError) as error:
        raise EngineError(
            f"the offline model is not running yet ({paths.offline_port} names no port); "
            "`grok-gateway up` starts it when it is needed"
        ) from error
    write_home(paths.offline_home, port)


def write_home(home: Path, port: int) -> None:
    """Write a home whose only model is the one at this port of loopback, and an empty auth.json.

    Without the latter Grok spends 100 ms of each ``initialize`` on looking for it again, and answers one
    client after the other.  Raises EngineError.
    """
    partial = home / f".config.{secrets.token_hex(4)}"
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        partial.write_text(_OFFLINE_CONFIG.format(port=port), "utf-8")
        partial.rename(home / "config.toml")
        (home / "auth.json").write_text("{}", "ascii")
    except OSError as error:
        raise EngineError(f"{home} cannot be written: {error.strerror}") from error


def leader_environment(home: Path | None, offline: bool, environ: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a leader; tools inherit it."""
    env = {k: v for k, v in environ.items() if k in _PASSED or k.startswith(_PASSED_PREFIXES)}
    if not offline:
        named = {*KEYS, *_variables(_config(home or user_home(environ)))}
        env |= {n: environ[n] for n in named if environ.get(n) and not n.startswith("GROK_GATEWAY_")}
    return env | _homed(home)


def bridge_environment(home: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a bridge: no keys."""
    env = {k: v for k, v in environ.items() if k in _PASSED_TO_BRIDGES or k.startswith("LC_")}
    return env | _homed(home)


def _homed(home: Path | None) -> dict[str, str]:
    return {**_FIXED, "GROK_HOME": str(home)} if home else dict(_FIXED)


def _variables(value: Any, key: str = "") -> Iterator[str]:
    """Names of environment variables that a grok configuration refers to, wherever they stand."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _variables(inner, key if key == "env_http_headers" else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _variables(inner, key)
    elif isinstance(value, str):
        if key in ("env_key", "env_http_headers"):
            yield value
        yield from _REFERENCE.findall(value)
