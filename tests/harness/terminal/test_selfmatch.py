"""Kills by pattern that would hit their own shell."""

from __future__ import annotations

import pytest

from harness.workspace.terminal.selfmatch import self_matching_kill


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("pkill -f server; ./server", ("pkill", "server")),
        ("./server; pkill -f server", ("pkill", "server")),
        ("pkill -9f server && ./server", ("pkill", "server")),
        ("pkill --full server ; server", ("pkill", "server")),
        ("pkill -9 -f 'my server'; my server", ("pkill", "my server")),
        ("A=1 sudo pkill -u root -f serv; ./serv", ("pkill", "serv")),
        ("pkill serv -f; ./serv", ("pkill", "serv")),
        ("if true; then pkill -f abc; fi; abc", ("pkill", "abc")),
        ("pgrep -f abc | xargs kill; abc", ("pgrep", "abc")),
        ("kill $(pgrep -f abc); abc", ("pgrep", "abc")),
        ('kill "$(pgrep -f abc)"; abc', ("pgrep", "abc")),
        ("kill `pgrep -f abc`; abc", ("pgrep", "abc")),
        # what matches nothing but itself is left alone, as are names, short and computed patterns
        ("pkill -f server", None),
        ("pkill server; ./server", None),
        ("pkill -x server; ./server", None),
        ("pkill -f ab; ab", None),
        ('pkill -f "$(name)"; name', None),
        ("pkill -f ${name}; name", None),
        ("pgrep -f abc; abc", None),
        ("echo 'pkill -f abc'; abc", None),
        ("echo pkill -f abc; abc", None),
        ("cat <<EOF\npkill -f abc\nEOF\nabc", None),
        ("pkill -f", None),
        ("", None),
    ],
)
def test_table(command: str, found: tuple[str, str] | None) -> None:
    assert self_matching_kill(command) == found
