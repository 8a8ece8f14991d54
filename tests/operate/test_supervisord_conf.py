"""supervisord.conf says the same as the table of limits, and keeps its promises."""

from __future__ import annotations

import configparser
import re

import pytest
from supervisor.datatypes import byte_size

from gateway.operate.supervisor import data_file, launch_environment
from gateway.paths import Paths
from gateway.settings import Settings
from gateway.wire.limits import LIMITS, SIZES


@pytest.fixture(scope="module")
def conf() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";",))
    parser.read(data_file("supervisord.conf"))
    return parser


PROGRAMS = ["eventlistener:watchdog", "program:offline-model", "program:gateway", "program:worker"]


@pytest.mark.parametrize("section", PROGRAMS)
def test_one_rotated_log_each(conf: configparser.RawConfigParser, section: str) -> None:
    stream = "stderr" if section.startswith("eventlistener") else "stdout"
    assert byte_size(conf[section][f"{stream}_logfile_maxbytes"]) == SIZES.log
    assert int(conf[section][f"{stream}_logfile_backups"]) == SIZES.log_backups
    logs = [conf[other].get("stdout_logfile", "") for other in PROGRAMS]
    assert logs.count(conf[section]["stdout_logfile"]) == 1
    if stream == "stdout":
        assert conf[section]["redirect_stderr"] == "true"


@pytest.mark.parametrize("section", PROGRAMS)
def test_crash_loops_end_and_kills_are_no_loop(conf: configparser.RawConfigParser, section: str) -> None:
    assert int(conf[section]["startsecs"]) == (section == "eventlistener:watchdog")
    assert int(conf[section]["startretries"]) == SIZES.start_retries
    assert conf[section]["autorestart"] == "true"


@pytest.mark.parametrize("section", PROGRAMS)
def test_stop_is_patient_enough(conf: configparser.RawConfigParser, section: str) -> None:
    patience = int(conf[section]["stopwaitsecs"])
    if section == "program:worker":
        assert patience > LIMITS.drain
    else:  # the front ends the leader and its control bridge, the watchdog what is left: TERM, then KILL
        assert patience > LIMITS.stop_decision + 4 * LIMITS.terminate
    assert "stopasgroup" not in conf[section]


def test_order_of_start_and_stop(conf: configparser.RawConfigParser) -> None:
    order = sorted(PROGRAMS, key=lambda section: int(conf[section]["priority"]))
    assert order == PROGRAMS
    assert len({conf[section]["priority"] for section in PROGRAMS}) == len(PROGRAMS)


def test_supervisords_own_log_and_socket(conf: configparser.RawConfigParser) -> None:
    assert byte_size(conf["supervisord"]["logfile_maxbytes"]) == SIZES.log
    assert int(conf["supervisord"]["logfile_backups"]) == SIZES.log_backups
    assert conf["unix_http_server"]["chmod"] == "0600"
    assert "inet_http_server" not in conf


def test_nothing_is_missing_from_the_environment(short_tmp: object) -> None:
    """Every variable that the file refers to is set, and nothing in it is a secret."""
    text = data_file("supervisord.conf").read_text()
    environ = {"GROK_GATEWAY_HOME": str(short_tmp), "PATH": "/bin", "SUPERVISOR_SERVER_URL": "x"}
    paths = Paths.from_environment(environ)
    environment = launch_environment(paths, Settings(workers=3), True, environ)
    assert set(re.findall(r"%\(ENV_(\w+)\)s", text)) <= set(environment)
    assert environment["GROK_GATEWAY_NUMPROCS"] == "3"
    assert environment["GROK_GATEWAY_OFFLINE_MODEL"] == "true"
    assert "SUPERVISOR_SERVER_URL" not in environment
    assert not re.search(r"secret|token|key|password=", re.sub(r"^;.*$", "", text, flags=re.M), re.I)


def test_all_values_are_absolute(short_tmp: object) -> None:
    environ = {"GROK_GATEWAY_HOME": str(short_tmp)}
    environment = launch_environment(Paths.from_environment(environ), Settings(), False, environ)
    for name in ("PYTHON", "STATE_DIR", "RUN_DIR", "LOG_DIR"):
        assert environment[f"GROK_GATEWAY_{name}"].startswith("/")
