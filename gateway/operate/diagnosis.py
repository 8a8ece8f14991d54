"""What may be wrong with an installation: facts in, findings out.

`Facts` is everything that `doctor` looked at; each check is a function of it alone, so every finding
can be tested without a machine that has the problem.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gateway.engine import Engine
from gateway.wire.limits import SIZES

__all__ = ["Facts", "Finding", "Folder", "Listener", "Secret", "diagnose", "permissive_rules"]

Result = Literal["ok", "warn", "fail"]


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.  ``advice`` says what to do where ``result`` is not ok."""

    check: str
    result: Result
    text: str
    advice: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Folder:
    """A folder as ``stat`` shows it; ``mode`` None: it does not exist."""

    path: Path
    mode: int | None = 0o700
    uid: int = 0
    writable: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Secret:
    """The secret's file; ``mode`` None: it does not exist.  ``problem`` is why it cannot be used."""

    path: Path
    mode: int | None = 0o600
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Listener:
    """Somebody who listens on our port.  ``pid`` None: it belongs to another user."""

    address: str
    pid: int | None
    name: str = ""
    ours: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """What was seen.  The defaults are a healthy installation that does not run."""

    uid: int = 0
    python: tuple[int, ...] = (3, 11, 0)
    packages: Mapping[str, str | None] = dataclasses.field(default_factory=dict)  #: None: not installed
    compiled_websockets: bool = True
    programs: Mapping[str, bool] = dataclasses.field(default_factory=dict)  #: setpriv, npm: found in PATH
    engine: Engine | None = None
    engine_problem: str = ""
    free_bytes: int = 2**40  #: where the pinned copy of the engine goes
    folders: Sequence[Folder] = ()
    secret: Secret | None = None
    port: int = 2419
    listeners: Sequence[Listener] = ()
    status: Mapping[str, Any] | None = None  #: the document of ``status --json``; None: not running
    remains: Sequence[str] = ()  #: processes of this instance that are not under its supervisord
    journals: int = 0
    systemd: bool = True  #: a user manager answers
    unit_installed: bool = False
    linger: Literal["yes", "no", "unknown"] = "unknown"
    proxies: Sequence[str] = ()  #: variables of the environment that name a proxy
    no_proxy: str = ""
    permissive: Sequence[tuple[Path, str]] = ()  #: file of Grok's, what in it allows everything


def diagnose(facts: Facts) -> list[Finding]:
    """Every finding, in the order in which things are needed."""
    return [finding for check in _CHECKS for finding in check(facts)]


# -- installation ----------------------------------------------------------------------------------


def _python(facts: Facts) -> Iterator[Finding]:
    version = ".".join(map(str, facts.python))
    if (3, 11) <= facts.python[:2] <= (3, 13):
        yield Finding("python", "ok", version)
    else:
        yield Finding("python", "fail", f"{version} is not supported", "install Python 3.11, 3.12 or 3.13")


def _packages(facts: Facts) -> Iterator[Finding]:
    missing = sorted(name for name, version in facts.packages.items() if version is None)
    if missing:
        advice = "run `make up` in the checkout, or `pip install` the project again"
        yield Finding("packages", "fail", f"not installed: {', '.join(missing)}", advice)
    else:
        yield Finding("packages", "ok", f"{len(facts.packages)} of {len(facts.packages)} installed")
    if not facts.compiled_websockets:
        advice = "install websockets from a wheel for this platform"
        yield Finding("packages", "warn", "websockets runs without its C extension: slow", advice)


def _programs(facts: Facts) -> Iterator[Finding]:
    if not facts.programs.get("setpriv", True):
        advice = "install util-linux"
        text = "no setpriv: a child may outlive a process that is killed, until it notices by itself"
        yield Finding("setpriv", "warn", text, advice)


def _engine(facts: Facts) -> Iterator[Finding]:
    engine = facts.engine
    if engine is None:
        advice = "" if facts.programs.get("npm", True) else "npm, which could fetch it, is missing too"
        yield Finding("engine", "fail", facts.engine_problem, advice)
        return
    yield Finding("engine", "ok", engine.why)
    yield Finding("model", "warn" if engine.offline else "ok", engine.note)


def _space(facts: Facts) -> Iterator[Finding]:
    if facts.free_bytes < SIZES.pinned_copy:
        text = f"{facts.free_bytes // 2**20} MiB free for the pinned copy of the engine"
        yield Finding("disk", "fail", text, f"at least {SIZES.pinned_copy // 2**20} MiB are needed")


# -- files -----------------------------------------------------------------------------------------


def _folders(facts: Facts) -> Iterator[Finding]:
    bad = False
    for folder in facts.folders:
        if folder.mode is None:
            continue  # `up` makes it
        if folder.uid != facts.uid:
            text, advice = f"{folder.path} belongs to uid {folder.uid}", "remove it, or use GROK_GATEWAY_HOME"
        elif folder.mode & 0o077:
            text, advice = f"{folder.path} is open to others", f"chmod 700 {folder.path}"
        elif not folder.writable:
            text, advice = f"{folder.path} is not writable", f"chmod 700 {folder.path}"
        else:
            continue
        bad = True
        yield Finding("folders", "fail", text, advice)
    if not bad:
        yield Finding("folders", "ok", ", ".join(str(folder.path) for folder in facts.folders))


def _secret(facts: Facts) -> Iterator[Finding]:
    secret = facts.secret
    if secret is None:
        return
    if secret.mode is None:
        yield Finding("secret", "ok", "not there yet; `grok-gateway up` makes it")
    elif secret.problem:
        yield Finding("secret", "fail", secret.problem)
    elif secret.mode & 0o077:
        text = f"{secret.path} can be read by others"
        advice = f"rm {secret.path}, then `grok-gateway restart gateway` makes a new one"
        yield Finding("secret", "fail", text, advice)
    else:
        yield Finding("secret", "ok", str(secret.path))


def _journals(facts: Facts) -> Iterator[Finding]:
    if facts.status is None and facts.journals:
        text = f"{facts.journals} connections of an earlier run were not ended in order"
        yield Finding("journals", "warn", text, "nothing: the next `grok-gateway up` looks after them")


# -- the port --------------------------------------------------------------------------------------


def _port(facts: Facts) -> Iterator[Finding]:
    four = [one for one in facts.listeners if one.address in ("127.0.0.1", "0.0.0.0", "::")]  # noqa: S104
    six = [one for one in facts.listeners if one.address in ("::1", "::") and not one.ours]
    ours = any(one.ours for one in four)
    strangers = [one for one in four if not one.ours]
    if ours:
        yield Finding("port", "ok", f"127.0.0.1:{facts.port}: the gateway listens")
    elif strangers:
        text = f"port {facts.port} is taken by {_who(strangers[0])}"
        advice = "end that process, or set GROK_GATEWAY_PORT"
        yield Finding("port", "fail", text, advice)
    elif facts.status is not None:
        advice = "look at `grok-gateway logs gateway`"
        yield Finding("port", "fail", f"nobody listens on 127.0.0.1:{facts.port}", advice)
    else:
        yield Finding("port", "ok", f"127.0.0.1:{facts.port} is free")
    if six and (ours or not strangers):
        text = f"[::1]:{facts.port} is taken by {_who(six[0])}, which clients of `localhost` may reach"
        yield Finding("port", "warn", text, "let clients connect to 127.0.0.1, not to localhost")


def _who(listener: Listener) -> str:
    if listener.pid is None:
        return "a process of another user"
    return f"{listener.name or 'a process'} (pid {listener.pid})"


def _proxies(facts: Facts) -> Iterator[Finding]:
    excepted = {word.strip() for word in facts.no_proxy.split(",")}
    if facts.proxies and not excepted & {"*", "127.0.0.1", "127.0.0.0/8"}:
        text = f"{', '.join(facts.proxies)} set: some clients use a proxy even for 127.0.0.1"
        yield Finding("proxies", "warn", text, "add 127.0.0.1 to NO_PROXY")


# -- the processes ---------------------------------------------------------------------------------


def _processes(facts: Facts) -> Iterator[Finding]:
    if facts.status is None:
        if facts.remains:
            text = f"no supervisord answers, but there is {', '.join(facts.remains)}"
            yield Finding("processes", "warn", text, "`grok-gateway down` ends them")
        else:
            yield Finding("processes", "ok", "not running; `grok-gateway up` starts it")
        return
    unwell = [one for one in facts.status["components"] if one["state"] != "RUNNING" or one.get("reason")]
    for one in unwell:
        text = f"{one['name']} is {one['state']}"
        text += f": {one['reason']}" if one.get("reason") else ""
        yield Finding("processes", "fail", text, f"look at `grok-gateway logs {one['name']}`")
    if not unwell:
        yield Finding("processes", "ok", f"{len(facts.status['components'])} running")
    leader = facts.status["leader"]
    if leader.get("state") == "ready":
        adopted = ", adopted from an earlier run" if leader.get("adopted") else ""
        yield Finding("leader", "ok", f"ready, pid {leader.get('pid')}{adopted}")
    else:
        text = f"{leader.get('state')}: {leader.get('reason') or 'no reason given'}"
        yield Finding("leader", "fail", text, "look at `grok-gateway logs leader`")


def _service(facts: Facts) -> Iterator[Finding]:
    if not facts.systemd:
        text = "no systemd user manager: nothing starts the gateway at login"
        yield Finding("service", "ok", f"{text}; a start-up script may call `grok-gateway up`")
        return
    if not facts.unit_installed:
        advice = "`grok-gateway service install` starts the gateway with your login and after failures"
        yield Finding("service", "ok", f"not installed; {advice}")
        return
    yield Finding("service", "ok", "installed")
    if facts.linger != "yes":
        text = f"linger is {facts.linger}: the service ends with your last logout"
        yield Finding("service", "warn", text, "loginctl enable-linger")


# -- Grok's own permissions ------------------------------------------------------------------------


def _permissions(facts: Facts) -> Iterator[Finding]:
    for file, what in facts.permissive:
        text = f"{file}: {what}: Grok asks nobody before it runs tools"
        yield Finding("permissions", "warn", text, "remove it; only a client's hooks hold such a Grok back")
    if not facts.permissive:
        yield Finding("permissions", "ok", "Grok's own configuration allows nothing across the board")


#: Modes in which Grok runs every tool without asking.
_OPEN_MODES = frozenset(
    {"always-approve", "always_approve", "bypassPermissions", "bypass-permissions", "yolo"}
)
#: A rule that covers every use of a tool, or every tool.
_OPEN_RULE = re.compile(r"\*|(?:Bash|Edit|Write|MultiEdit|MCPTool)(?:\(\s*(?:\*|\*\*|:\*|\*:\*)?\s*\))?")


def permissive_rules(config: Mapping[str, Any]) -> list[str]:
    """What in a configuration allows everything: Grok's ``config.toml``, or the ``settings.json`` of
    Claude Code, which Grok reads too."""
    found = list[str]()
    places = (("ui", "permission_mode"), ("permission", "mode"), ("permissions", "defaultMode"))
    for section, key in places:
        mode = _table(config, section).get(key)
        if mode in _OPEN_MODES:
            found.append(f"[{section}] {key} = {mode}")
    for section in ("permission", "permissions"):
        rules = _table(config, section).get("allow")
        for rule in rules if isinstance(rules, list) else ():
            if isinstance(rule, str) and _OPEN_RULE.fullmatch(rule.strip()):
                found.append(f"[{section}] allow {rule}")
    if config.get("permission_mode") in _OPEN_MODES:
        found.append(f"permission_mode = {config['permission_mode']}")
    return found


def _table(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}


_CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _python,
    _packages,
    _programs,
    _engine,
    _space,
    _folders,
    _secret,
    _port,
    _proxies,
    _processes,
    _journals,
    _service,
    _permissions,
)
