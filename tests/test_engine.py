"""Which engine runs, and what people are told when none can."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway import engine
from gateway.engine import (
    GROK_VERSION,
    HARNESS,
    EngineError,
    EngineMissingError,
    bridge_arguments,
    check_version,
    install,
    installed_binary,
    kind_of,
    leader_arguments,
    native_executable,
    resolve,
)
from gateway.paths import Paths
from gateway.settings import Settings
from gateway.wire.limits import LIMITS

MakeProgram = Callable[..., Path]


@pytest.fixture
def make_program(tmp_path: Path) -> MakeProgram:
    def make(body: str, name: str = "grok", folder: str = "bin") -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "config", tmp_path / "state", tmp_path / "run")
    paths.create()
    return paths


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    return {"HOME": str(home), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}


GOOD = "echo 'grok 1.2.3 (abc)'"


# -- which one --------------------------------------------------------------------------------------
def test_nothing_there_says_how_to_get_one(paths: Paths, environ: dict[str, str]) -> None:
    with pytest.raises(EngineMissingError) as caught:
        resolve(Settings(engine="grok"), paths, environ)
    for part in (
        "no grok found",
        "npm install -g @xai-official/grok",
        "grok-gateway up",
        "GROK_GATEWAY_GROK",
    ):
        assert part in str(caught.value)


def test_the_order_of_preference(
    paths: Paths, environ: dict[str, str], make_program: MakeProgram, tmp_path: Path
) -> None:
    installed = installed_binary(paths)
    installed.parent.mkdir(parents=True)
    shutil.copy(make_program("echo 'grok 1.0.1'", "other"), installed)
    assert resolve(Settings(), paths, environ).version == "1.0.1"
    make_program("echo 'grok 1.0.2'", folder="home/.grok/bin")
    assert resolve(Settings(), paths, environ).version == "1.0.2"
    make_program("echo 'grok 1.0.3'")
    chosen = resolve(Settings(), paths, environ)
    assert chosen.version == "1.0.3"
    assert chosen.why == f"grok 1.0.3: {tmp_path}/bin/grok (found in PATH)"
    named = make_program("echo 'grok 1.0.4'", "mine")
    assert resolve(Settings(grok="mine"), paths, environ).version == "1.0.4"
    assert resolve(Settings(grok=str(named)), paths, environ).binary == named
    assert not resolve(Settings(grok=str(named)), paths, environ).native


def test_an_unusable_one_in_path_is_passed_over_but_a_named_one_is_not(
    paths: Paths, environ: dict[str, str], make_program: MakeProgram
) -> None:
    make_program("echo 'grok, a pattern tool'")
    with pytest.raises(EngineError, match="is not Grok Build"):
        resolve(Settings(engine="grok"), paths, environ)
    make_program(GOOD, folder="home/.grok/bin")
    assert resolve(Settings(), paths, environ).version == "1.2.3"
    with pytest.raises(EngineError, match="is not Grok Build"):
        resolve(Settings(grok="grok"), paths, environ)


@pytest.mark.parametrize("grok", ["/nothing/here", "no-such-command", "/etc/passwd", "~/nothing"])
def test_a_name_that_leads_nowhere(paths: Paths, environ: dict[str, str], grok: str) -> None:
    with pytest.raises(EngineError, match="no such executable file"):
        resolve(Settings(grok=grok), paths, environ)


def test_without_grok_the_embedded_engine_answers_and_says_why(
    paths: Paths, environ: dict[str, str], make_program: MakeProgram
) -> None:
    chosen = resolve(Settings(), paths, environ)
    assert (chosen.kind, chosen.command, chosen.native) == ("harness", HARNESS, False)
    assert "no grok found" in chosen.why
    assert "npm install -g @xai-official/grok" in chosen.why
    assert chosen.offline
    assert "config.toml" in chosen.note
    make_program("echo 'grok, a pattern tool'")
    assert "is not Grok Build" in resolve(Settings(), paths, environ).why
    make_program(GOOD, folder="home/.grok/bin")
    assert resolve(Settings(), paths, environ).kind == "grok"
    assert resolve(Settings(engine="harness"), paths, environ).kind == "harness"


def test_a_login_is_grok_s_alone(paths: Paths, environ: dict[str, str], tmp_path: Path) -> None:
    login = tmp_path / "home/.grok/auth.json"
    login.parent.mkdir()
    login.write_text('{"https://accounts.example/x": {"key": "token"}}')
    assert resolve(Settings(), paths, environ).offline
    assert not resolve(Settings(), paths, {**environ, "XAI_API_KEY": "k"}).offline


def test_a_command_tells_its_engine(paths: Paths, environ: dict[str, str]) -> None:
    assert kind_of(resolve(Settings(engine="harness"), paths, environ).command) == "harness"
    assert kind_of(("/usr/bin/grok",)) == kind_of(("/usr/bin/python3", "play.py")) == "grok"


# -- which model ------------------------------------------------------------------------------------
def test_without_login_key_and_model_the_offline_model_answers(
    paths: Paths, environ: dict[str, str], make_program: MakeProgram
) -> None:
    make_program(GOOD)
    chosen = resolve(Settings(), paths, environ)
    assert chosen.offline
    assert chosen.home == paths.offline_home
    assert "run `grok login`" in chosen.note
    named = make_program(GOOD, "mine")
    assert f"run `{named} login`" in resolve(Settings(grok=str(named)), paths, environ).note
    assert os.listdir(environ["HOME"]) == [], "the user's own home stays as it is"


@pytest.mark.parametrize("own", [".grok", "elsewhere"])
@pytest.mark.parametrize(
    ("file", "content", "offline"),
    [
        ("auth.json", '{"https://auth.x.ai": {"key": "k"}}', False),
        ("auth.json", "{}", True),
        ("auth.json", "{broken", False),
        ("config.toml", '[model.mine]\nmodel = "m"\n', False),
        ("config.toml", "[cli]\nauto_update = false\n", True),
    ],
)
def test_a_login_or_a_model_of_ones_own_is_used(
    paths: Paths,
    environ: dict[str, str],
    make_program: MakeProgram,
    own: str,
    file: str,
    content: str,
    offline: bool,
) -> None:
    make_program(GOOD)
    home = Path(environ["HOME"]) / own
    home.mkdir()
    (home / file).write_text(content)
    if own != ".grok":
        environ["GROK_HOME"] = str(home)
    chosen = resolve(Settings(), paths, environ)
    assert chosen.offline is offline
    if not offline:
        assert chosen.home == (home if own != ".grok" else None)


@pytest.mark.parametrize("key", ["XAI_API_KEY", "GROK_CODE_XAI_API_KEY"])
def test_a_key_is_used_and_not_shown(
    paths: Paths, environ: dict[str, str], make_program: MakeProgram, key: str
) -> None:
    make_program(GOOD)
    chosen = resolve(Settings(), paths, {**environ, key: "xai-secret"})
    assert (chosen.offline, chosen.home) == (False, None)
    assert "xai-secret" not in repr(chosen)


def test_a_broken_configuration_is_named(
    paths: Paths, environ: dict[str, str], make_program: MakeProgram
) -> None:
    make_program(GOOD)
    file = Path(environ["HOME"]) / ".grok/config.toml"
    file.parent.mkdir()
    file.write_text("[cli\n")
    with pytest.raises(EngineError, match=f"{file} is not valid TOML"):
        resolve(Settings(), paths, environ)


# -- a wrong binary ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("echo 'grep (GNU grep) 3.8'", r"is not Grok Build: --version printed: grep \(GNU grep\) 3.8$"),
        ("true", "is not Grok Build: --version printed: nothing$"),
        ("echo 'Error: glibc too old' >&2; exit 127", "exit code 127; it printed: Error: glibc too old$"),
        ("kill -SEGV $$", "ended with signal SIGSEGV; it printed: nothing$"),
        ("yes", r"did not end within 0.5 s after --version; it printed: y y"),
        ("echo slow; sleep 60", "did not end within 0.5 s after --version; it printed: slow$"),
    ],
)
def test_wrong_binaries(
    make_program: MakeProgram, environ: dict[str, str], body: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 0.5 if "0.5" in text else LIMITS.version
    monkeypatch.setattr(engine, "LIMITS", type("L", (), {"version": limit}))
    with pytest.raises(EngineError, match=text) as caught:
        check_version(make_program(body), environ)
    assert len(str(caught.value)) < 2000


def test_a_child_that_holds_the_pipe_does_not_hold_us(
    make_program: MakeProgram, environ: dict[str, str]
) -> None:
    program = make_program(f"sleep 60 & {GOOD}")
    assert check_version(program, environ) == "1.2.3"


def test_a_file_of_another_architecture(tmp_path: Path, environ: dict[str, str]) -> None:
    alien = tmp_path / "grok"
    alien.write_bytes(b"\x7fELF" + bytes(100))
    alien.chmod(0o755)
    with pytest.raises(EngineError, match="cannot be executed: Exec format error"):
        check_version(alien, environ)


def test_asking_for_the_version_shows_no_secret_and_touches_no_home(
    make_program: MakeProgram, environ: dict[str, str], tmp_path: Path
) -> None:
    program = make_program(f'env > "{tmp_path}/seen"; touch "$HOME/trace"; {GOOD}')
    check_version(program, {**environ, "XAI_API_KEY": "xai-secret"})
    assert "xai-secret" not in (tmp_path / "seen").read_text()
    assert os.listdir(environ["HOME"]) == []


# -- from the command to the native executable ------------------------------------------------------
@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The npm package as it lies there when its install script has not run."""
    package = tmp_path / "lib/node_modules/@xai-official/grok"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": "@xai-official/grok"}))
    launcher = package / "bin/grok"
    launcher.write_text("#!/usr/bin/env node\nrequire('./grok-bootstrap.js')\n")
    launcher.chmod(0o755)
    return package


def _native(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF" + os.urandom(8))
    return path


def _command(tmp_path: Path, package: Path, kind: str) -> Path:
    command = tmp_path / "bin/grok"
    command.parent.mkdir(exist_ok=True)
    target = os.path.relpath(package / "bin/grok", command.parent)
    if kind == "link":
        command.symlink_to(target)
    else:
        command.write_text(
            '#!/bin/sh\nbasedir=$(dirname "$(echo "$0" | sed -e \'s,\\\\,/,g\')")\n'
            f'if [ -x "$basedir/node" ]; then\n  exec "$basedir/node"  "$basedir/{target}" "$@"\nelse\n'
            f'  exec node  "$basedir/{target}" "$@"\nfi\n'
        )
    return command


@pytest.mark.parametrize("kind", ["link", "shell wrapper"])
def test_through_a_launcher(tmp_path: Path, package: Path, kind: str) -> None:
    command, home = _command(tmp_path, package, kind), tmp_path / "home/.grok"
    with pytest.raises(EngineError, match=f"run `node {package}/bin/postinstall.js`"):
        native_executable(command, home)
    platform = _native(package.parent / f"grok-linux-{engine._ARCHITECTURES[os.uname().machine]}/bin/grok")
    assert native_executable(command, home) == platform
    beside = _native(package / "bin/grok-native")
    assert native_executable(command, home) == beside
    of_user = _native(home / "bin/grok-1.2.3")
    (home / "bin/grok").symlink_to("grok-1.2.3")
    assert native_executable(command, home) == of_user, "npm's launcher prefers it too"


def test_through_links_to_the_binary(tmp_path: Path) -> None:
    binary = _native(tmp_path / "a/grok-native")
    (tmp_path / "b").symlink_to("a/grok-native")
    (tmp_path / "c").symlink_to(tmp_path / "b")
    assert native_executable(tmp_path / "c", tmp_path) == binary


def test_a_script_of_its_own_stays_itself(make_program: MakeProgram, tmp_path: Path) -> None:
    program = make_program('exec "$basedir/nothing" "$@"')
    assert native_executable(program, tmp_path) == program


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for name in ("loop", "dangling"):
        with pytest.raises(EngineError, match=f"{name} cannot be followed"):
            native_executable(tmp_path / name, tmp_path)


@pytest.mark.grok
def test_the_real_one(grok_binary: Path, paths: Paths, environ: dict[str, str]) -> None:
    chosen = resolve(Settings(grok=str(grok_binary)), paths, environ)
    assert (chosen.kind, chosen.version, chosen.native) == ("grok", GROK_VERSION, True)
    assert chosen.binary == grok_binary.resolve()


# -- argument lists ---------------------------------------------------------------------------------
def test_arguments() -> None:
    assert leader_arguments("/x.sock") == (
        *("--permission-mode", "default", "agent", "leader", "--no-exit-on-disconnect"),
        *("--relay-on-demand", "--no-auto-update", "--leader-socket", "/x.sock"),
    )
    assert bridge_arguments("/x.sock") == (
        *("--permission-mode", "default", "agent", "--leader", "stdio", "--leader-socket", "/x.sock"),
    )


# -- fetching ---------------------------------------------------------------------------------------
def test_without_npm_it_says_what_to_install(paths: Paths, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir(exist_ok=True)
    with pytest.raises(EngineError, match=r"install Node\.js 20 or newer"):
        install(paths, {**environ, "PATH": str(tmp_path / "bin")})


def test_what_npm_said_is_passed_on(paths: Paths, environ: dict[str, str], make_program: MakeProgram) -> None:
    make_program("echo 'npm error code ENOTFOUND'; exit 1", "npm")
    make_program("true", "node")
    with pytest.raises(
        EngineError, match=r"npm install ended with exit code 1 in .*npm error code ENOTFOUND"
    ):
        install(paths, environ)
    assert os.listdir(paths.engine_install) == []


def test_install_unpacks_the_binary_and_leaves_the_users_home_alone(
    paths: Paths, environ: dict[str, str], make_program: MakeProgram
) -> None:
    """npm and the package's install script as they behave, without the network."""
    make_program(
        'while [ "$1" != --prefix ]; do shift; done; prefix=$2\n'
        'for last; do :; done; echo "$last" > "$prefix/asked"\n'
        'mkdir -p "$prefix/node_modules/@xai-official/grok/bin"',
        "npm",
    )
    make_program(
        'mkdir -p "$GROK_HOME/bin"; echo x > "$GROK_HOME/config.toml"\n'
        'case "$npm_config_user_agent" in npm/*) printf "\\177ELF" > "$(dirname "$1")/grok-native";; esac',
        "node",
    )
    binary = install(paths, environ)
    assert binary == installed_binary(paths)
    assert (paths.engine_install / "asked").read_text().strip() == f"@xai-official/grok@{GROK_VERSION}"
    assert sorted(os.listdir(paths.engine_install)) == ["asked", "node_modules"]
    assert os.listdir(environ["HOME"]) == []
    assert stat.S_IMODE(paths.engine_install.stat().st_mode) == 0o700


def test_a_platform_without_a_build_is_named(
    paths: Paths, environ: dict[str, str], make_program: MakeProgram
) -> None:
    make_program("true", "npm")
    make_program("true", "node")
    with pytest.raises(EngineError, match="this platform has no build"):
        install(paths, environ)
