"""The environment of a command, laid in layers; later ones win.  Pure.

1. what the engine itself was given · 2. what a login shell sets besides · 3. colours and progress ·
4. the session's own (an ``.envrc``, a client's) · 5. nothing that would wait for a person: pagers, editors,
prompts · 6. the login shell's PATH first · 7. who runs it.

The colour settings promise a terminal that takes colours while ``NO_COLOR`` asks for none: programs that
know it stay plain, and the others must not fall back to a teletype's layout.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TASK_VARIABLE", "command_environment", "merge_paths"]

#: Marks every process of a command, so that those which left its process group are found again.
TASK_VARIABLE = "GROK_TASK"

_COLOURS = {
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "CLICOLOR": "1",
    "CLICOLOR_FORCE": "1",
    "FORCE_COLOR": "1",
    "NO_COLOR": "1",
    "CI": "true",
    "CARGO_TERM_PROGRESS_WHEN": "always",
    "CARGO_TERM_PROGRESS_WIDTH": "80",
    "GRADLE_OPTS": "-Dorg.gradle.console=rich",
    "MAVEN_OPTS": "-Dstyle.color=always",
    "NPM_CONFIG_PROGRESS": "true",
    "PIP_PROGRESS_BAR": "on",
}
_PLAIN = {"TERM": "dumb", "NO_COLOR": "1", "FORCE_COLOR": "0"}
_UNATTENDED = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GH_PAGER": "cat",
    "AWS_PAGER": "",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GPG_TTY": "",
}


def command_environment(
    base: Mapping[str, str],
    *,
    login: Mapping[str, str],
    session: Mapping[str, str],
    session_id: str | None,
    task: str,
    background: bool = False,
    monitor: bool = False,
) -> dict[str, str]:
    """The whole environment of one command.  A monitor is read line by line: it gets no colours."""
    result = dict(base)
    for name, value in login.items():
        result.setdefault(name, value)
    result.update(_PLAIN if monitor else _COLOURS)
    result.update(session)
    result.update(_UNATTENDED)
    result["PATH"] = merge_paths(login.get("PATH", ""), result.get("PATH", ""))
    if background or monitor:
        result.setdefault("PYTHONUNBUFFERED", "1")
    result["GROK_AGENT"] = "1"
    if session_id:
        result["GROK_SESSION_ID"] = session_id
    result[TASK_VARIABLE] = task
    # The engine's own interpreter is none of a command's business.
    for name in ("PYTHONHOME", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__"):
        if name not in session:
            result.pop(name, None)
    return result


def merge_paths(first: str, second: str) -> str:
    """Both search paths, each directory once, in the order of its first place."""
    return ":".join(dict.fromkeys(part for part in f"{first}:{second}".split(":") if part))
