"""Everything that a script would run: its own commands and, layer by layer, those behind wrappers.

The result over-estimates on purpose: for a deny rule, a command that *may* run has to be found.  What must
never be over-estimated is which commands an allow rule covers, so these are kept apart (`Reach.top`).
"""

from __future__ import annotations

import dataclasses
import re

from harness.limits import SIZES
from harness.permissions.shell.parse import Command, Script, parse
from harness.permissions.shell.wrappers import unwrap

__all__ = ["Reach", "reach"]

_ECHOES = frozenset({"echo", "printf"})


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """``script`` as written; ``commands`` of all layers; ``texts`` of all scripts; why it is not certain."""

    script: Script
    commands: tuple[Command, ...]
    texts: tuple[str, ...]
    obstacles: tuple[str, ...]

    @property
    def top(self) -> tuple[Command, ...]:
        return self.script.commands


def reach(text: str) -> Reach:
    """Take a script apart through all its layers."""
    return _Search().run(text)


class _Search:
    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.texts: list[str] = []
        self.obstacles: dict[str, None] = {}
        self.seen: set[str] = set()
        self.met: set[tuple[Command, bool]] = set()

    def run(self, text: str) -> Reach:
        script = self._script(text, 0) or Script((), ("it is nested too deeply",), listed=False)
        return Reach(script, tuple(self.commands), tuple(self.texts), tuple(self.obstacles))

    def _script(self, text: str, depth: int) -> Script | None:
        if depth > SIZES.shell_depth or len(self.commands) > SIZES.shell_commands:
            self.obstacles["it is nested too deeply or too long to be checked"] = None
            return None
        if text in self.seen:
            return None
        self.seen.add(text)
        self.texts.append(text)
        script = parse(text)
        self.obstacles.update(dict.fromkeys(script.obstacles))
        for inner in script.scripts:
            self._script(inner, depth + 1)
        for command in script.commands:
            self._command(command, depth)
        if any(self._hungry(command) for command in self.commands):
            for command in script.commands:
                self._fed(command, depth)
        return script

    def _command(self, command: Command, depth: int) -> None:
        if depth > SIZES.shell_depth or len(self.commands) > SIZES.shell_commands:
            self.obstacles["it is nested too deeply or too long to be checked"] = None
            return
        if (command, depth == 0) in self.met:  # tails of tails would double with every wrapper
            return
        self.met.add((command, depth == 0))
        self.commands.append(command)
        inner = unwrap(command)
        if inner.obstacle:
            self.obstacles[inner.obstacle] = None
        for script in inner.scripts:
            self._script(script, depth + 1)
        for one in inner.commands:
            self._command(one, depth + 1)

    @staticmethod
    def _hungry(command: Command) -> bool:
        """Whether this is a shell that reads commands from its input."""
        return "reads its commands" in unwrap(command).obstacle

    def _fed(self, command: Command, depth: int) -> None:
        """Text that another command or a heredoc may hand to such a shell."""
        if command.stdin:
            self._script(command.stdin, depth + 1)
        if command.name in _ECHOES:
            words = [w.text for w in command.words[1:] if not re.fullmatch(r"-[neE]+", w.text)]
            text = " ".join(words).replace("\\n", "\n")
            if text:
                self._script(text, depth + 1)
