"""Commands that run other commands: where in their arguments the other one stands.

A wrapper's options are a table, for without knowing which of them take a value one cannot say where its own
arguments end: in ``sudo -u rm ls`` nothing is removed, in ``sudo -n rm ls`` something is.  An option that
the table does not know makes the place ambiguous; then every later word is taken for a possible command,
and the script is asked about.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from harness.permissions.shell.parse import Command
from harness.permissions.shell.words import Word, names

__all__ = ["PEELED", "Inner", "unwrap"]


@dataclasses.dataclass(frozen=True, slots=True)
class Inner:
    """What a command runs: simple commands, scripts as text; ``obstacle`` says what cannot be known."""

    commands: tuple[Command, ...] = ()
    scripts: tuple[str, ...] = ()
    obstacle: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """``valued``: letters and long names that take a value; ``flags``: those that take none.

    ``places``: own arguments before the command.  ``script``: letters or names whose value is a script.
    ``joined``: the arguments are joined and given to a shell.  ``assigns``: ``NAME=value`` may stand before
    the command.  ``digits``: ``-5`` is an option.  ``more``: it adds arguments of its own.
    """

    valued: str = ""
    flags: str = ""
    long_valued: tuple[str, ...] = ()
    long_flags: tuple[str, ...] = ()
    places: int = 0
    script: tuple[str, ...] = ()
    joined: bool = False
    assigns: bool = False
    digits: bool = False
    more: bool = False


_FORMS: dict[str, _Form] = {
    "env": _Form(
        "uC",
        "i0v",
        ("unset", "chdir"),
        ("ignore-environment", "null", "debug"),
        script=("S", "split-string"),
        assigns=True,
    ),
    "timeout": _Form("ks", "fpv", ("kill-after", "signal"), ("foreground", "preserve-status", "verbose"), 1),
    "nice": _Form("n", "", ("adjustment",), digits=True),
    "ionice": _Form("cnpPu", "t", ("class", "classdata"), ("ignore",)),
    "chrt": _Form("TPD", "abfimordpRv", places=1),
    "stdbuf": _Form("ioe", "", ("input", "output", "error")),
    "nohup": _Form(),
    "setsid": _Form("", "cfw", (), ("ctty", "fork", "wait")),
    "time": _Form(
        "fo", "apvq", ("format", "output"), ("append", "portability", "verbose", "quiet"), assigns=True
    ),
    "command": _Form("", "pvV"),
    "builtin": _Form(),
    "exec": _Form("a", "cl"),
    "coproc": _Form(assigns=True),
    "sudo": _Form(
        "ughpCrtTDRU",
        "AbEeHiKklnPSsVvBN",
        (
            "user",
            "group",
            "host",
            "prompt",
            "chdir",
            "chroot",
            "role",
            "type",
            "command-timeout",
            "close-from",
        ),
        ("askpass", "background", "login", "shell", "non-interactive", "preserve-env", "stdin", "set-home"),
        assigns=True,
    ),
    "doas": _Form("uC", "nsL"),
    "xargs": _Form(
        "InPdELsa",
        "0rtpxoile",
        ("replace", "max-args", "max-procs", "delimiter", "max-chars", "arg-file", "max-lines", "eof"),
        ("null", "no-run-if-empty", "verbose", "interactive", "exit", "open-tty"),
        more=True,
    ),
    "taskset": _Form("", "apc", places=1),
    "chroot": _Form("", "", ("userspec", "groups"), ("skip-chdir",), 1),
    "setarch": _Form("", "vhR3BFIZLSXVR", places=1),
    "linux32": _Form("", "vR3BFIZLSX"),
    "linux64": _Form("", "vR3BFIZLSX"),
    "strace": _Form("eopsuEaOPSXIb", "cfqtTvxyirdCDFkwnzZ"),
    "ltrace": _Form("eopsunlaAFxD", "bcCfhiLrStTV"),
    "watch": _Form(
        "nqs", "bcdegtxwpr", ("interval",), ("no-title", "beep", "color", "differences"), joined=True
    ),
    "flock": _Form(
        "wE", "sxenuoFv", ("timeout", "wait"), ("shared", "exclusive", "nonblock"), 1, ("c", "command")
    ),
    "ssh": _Form("bcDEeFIiJLlmOopQRSWw", "46AaCfGgKkMNnqsTtVvXxYy", places=1, joined=True),
    "script": _Form("cEIOBTmot", "aefqV", ("log-io", "log-out"), ("quiet", "append"), 1, ("c", "command")),
    "su": _Form("gGswT", "lmpfPh-", ("shell", "group"), ("login",), 1, ("c", "command", "session-command")),
    "runuser": _Form("gGswuT", "lmpfPh-", ("user", "shell"), ("login",), 1, ("c", "command")),
    "busybox": _Form(),
    "toybox": _Form(),
}
#: Wrappers that change neither what runs nor with which rights: an allow rule looks through them.
PEELED = frozenset({"timeout", "nice", "ionice", "chrt", "stdbuf", "env"})
#: Wrappers whose grammar is not known here.
_OPAQUE = names(
    """
    parallel bwrap firejail systemd-run systemd-inhibit torsocks proxychains proxychains4 fakeroot
    dbus-run-session xvfb-run valgrind gdb perf rlwrap unbuffer expect socat podman docker lxc-
    attach tini dumb-init gosu su-exec setpriv capsh prlimit numactl cpulimit cgexec entr sshpass
    faketime unshare nsenter start-stop-daemon run-parts hyperfine at batch pkexec machinectl chpst
    softlimit setuidgid daemonize caffeinate arch sg newgrp rsh mosh pssh autossh screen tmux zellij
    dtach nq
    """
)
_SHELLS = frozenset(
    {"bash", "sh", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "csh", "tcsh", "yash"}
)
#: Behind ``!`` the grammar takes these for programs.
_KEYWORDS = names("! { } if then elif else fi for do done while until case esac select function in")
#: Builtins that keep a command for later, or put one program in another's place.
_SHELL_TABLES = names("hash enable bind complete compgen mapfile readarray")
_SHELL_VALUED = frozenset({"--rcfile", "--init-file"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


def unwrap(command: Command) -> Inner:
    """What this command would run besides itself."""
    words = command.words
    if not words:
        return Inner()
    if not words[0].fixed:
        return Inner(obstacle="what it runs is decided only when it runs")
    name, arguments = command.name, words[1:]
    if words[0].plain and name in _KEYWORDS:
        return Inner(_after(command, arguments, _Form()), obstacle="a keyword stands where a program should")
    if name in _SHELLS:
        return _shell(command, arguments)
    if name == "eval":
        return _joined(arguments)
    if name == "find":
        return _find(command, arguments)
    if name in ("trap", "alias"):
        return _stored(name, arguments)
    if name in _SHELL_TABLES and any(w.text.startswith("-") for w in arguments):
        return _every_place(command, arguments, f"{name} may change what a name or a key runs")
    if name in ("source", ".") and arguments and not arguments[0].fixed:
        return Inner(obstacle="it reads commands from what another one prints")
    if name in _OPAQUE:
        return _every_place(command, arguments, f"what {name} runs cannot be told for sure")
    form = _FORMS.get(name)
    return _wrapped(command, form, arguments) if form else Inner()


def _wrapped(command: Command, form: _Form, arguments: Sequence[Word]) -> Inner:
    rest = list(arguments)
    scripts: list[str] = []
    places = form.places
    while rest:
        word = rest[0]
        if not word.fixed and (word.text.startswith("-") or word.text == ""):
            return _every_place(command, rest, f"{command.name} gets options that only the shell knows")
        text = word.text
        if text == "--":
            del rest[0]
            break
        if text.startswith("-") and text != "-":
            count, script = _option(form, text, rest)
            if count == 0:
                return _every_place(command, rest, f"{command.name} {text} is an option unknown here")
            if script is not None:
                if script.dynamic:
                    return _every_place(
                        command, rest, f"{command.name} runs a text that only the shell knows"
                    )
                scripts.append(script.text)
            del rest[:count]
        elif text == "-" or (form.assigns and _ASSIGNMENT.match(text)):
            del rest[0]
        elif places:
            places -= 1
            del rest[0]
        else:
            break
    while places and rest:
        places -= 1
        del rest[0]
    if form.assigns:
        while rest and _ASSIGNMENT.match(rest[0].text):
            del rest[0]
    if scripts:  # their further arguments are the script's, or its words themselves
        return Inner(
            _after(command, rest, form), (*scripts, *(_text_of((Word(s), *rest)) for s in scripts if rest))
        )
    if form.joined:
        return _joined(rest)
    return Inner(_after(command, rest, form))


def _option(form: _Form, text: str, rest: Sequence[Word]) -> tuple[int, Word | None]:
    """(how many words an option takes, the script in it); 0 for an option that is not known."""
    following = rest[1] if len(rest) > 1 else None
    if text.startswith("--"):
        name, has_value, value = text[2:].partition("=")
        if name in form.script:
            return (1, dataclasses.replace(rest[0], text=value)) if has_value else (2, following)
        if name in form.long_valued:
            return (1 if has_value else 2), None
        return (1 if name in form.long_flags else 0), None
    if form.digits and re.fullmatch(r"-[-+]?\d+", text):
        return 1, None
    for place, letter in enumerate(text[1:], start=2):
        attached = text[place:]
        if letter in form.script:
            return (1, dataclasses.replace(rest[0], text=attached)) if attached else (2, following)
        if letter in form.valued:
            return (1 if attached else 2), None
        if form.more and letter in "ile":  # their value can only be attached
            return 1, None
        if letter not in form.flags:
            return 0, None
    return 1, None


def _after(command: Command, rest: Sequence[Word], form: _Form) -> tuple[Command, ...]:
    if not rest:
        return ()
    more = command.more or form.more
    return (dataclasses.replace(command, words=tuple(rest), assignments=(), more=more),)


def _every_place(command: Command, words: Sequence[Word], obstacle: str) -> Inner:
    """Every tail of the words as a command, every word with a blank in it as a script."""
    tails = tuple(
        dataclasses.replace(command, words=tuple(words[at:]), assignments=()) for at in range(len(words))
    )
    scripts = tuple(w.text for w in words if not w.dynamic and re.search(r"[\s;&|]", w.text))
    return Inner(tails, scripts, obstacle)


def _text_of(words: Sequence[Word]) -> str:
    return " ".join(w.text for w in words)


def _joined(words: Sequence[Word]) -> Inner:
    """Arguments that a shell reads once more as one script."""
    if not words:
        return Inner()
    if any(w.dynamic for w in words):
        return Inner(scripts=(_text_of(words),), obstacle="it runs a text that only the shell knows")
    return Inner(scripts=(_text_of(words),))


def _find(command: Command, arguments: Sequence[Word]) -> Inner:
    found: list[Command] = []
    at = 0
    while at < len(arguments):
        if arguments[at].text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = at + 1
            while end < len(arguments) and arguments[end].text != ";":
                if arguments[end].text == "+" and arguments[end - 1].text == "{}":
                    break
                end += 1
            if end > at + 1:
                words = tuple(arguments[at + 1 : end])
                found.append(dataclasses.replace(command, words=words, assignments=(), more=True))
            at = end
        at += 1
    if any(w.dynamic for w in arguments):
        return Inner(tuple(found), obstacle="find gets expressions that only the shell knows")
    return Inner(tuple(found))


def _stored(name: str, arguments: Sequence[Word]) -> Inner:
    """Scripts that are kept for later: of ``trap`` the first argument, of ``alias`` every value."""
    if any(w.dynamic for w in arguments):
        return Inner(obstacle=f"{name} keeps a text that only the shell knows")
    if name == "trap":
        rest = [w.text for w in arguments if w.text not in ("--", "-")]
        return Inner(scripts=tuple(rest[:1]))
    return Inner(scripts=tuple(w.text.partition("=")[2] for w in arguments if "=" in w.text))


def _shell(command: Command, arguments: Sequence[Word]) -> Inner:
    """A shell: its ``-c`` script, a script on its input, or a file that is a program like any other."""
    at, from_text = 0, False
    while at < len(arguments) and (arguments[at].dynamic or arguments[at].text[:1] in ("-", "+")):
        text = arguments[at].text
        if arguments[at].dynamic:
            return _every_place(command, arguments[at:], "a shell gets arguments that only the shell knows")
        if text in ("-", "--"):
            at += 1
            break
        if text.startswith("--"):
            at += 2 if text in _SHELL_VALUED else 1
            continue
        from_text = from_text or (text[0] == "-" and "c" in text)
        at += 2 if text[-1] in "oO" else 1
    rest = arguments[at:]
    if from_text:
        if not rest:
            return Inner(obstacle="a shell without its script")
        if rest[0].dynamic:
            return Inner(scripts=(rest[0].text,), obstacle="a shell runs a text that only the shell knows")
        return Inner(scripts=(rest[0].text,))
    if (
        command.stdin is not None
    ):  # behind the name of a file it is that file's input, and may be run all the same
        return Inner(scripts=(command.stdin,))
    if rest and rest[0].fixed and rest[0].text != "/dev/stdin" and not rest[0].text.startswith("/dev/fd/"):
        return Inner()
    return Inner(obstacle="a shell reads its commands from elsewhere")
