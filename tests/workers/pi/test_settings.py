"""Settings of a Pi user, models, and what the extension may send."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from gateway.wire.limits import LIMITS
from workers.pi import protocol
from workers.pi.models import Models
from workers.pi.protocol import Fields, ProtocolError, UserError
from workers.pi.settings import PiSettingError, PiSettings, save_mode


def load(folder: Path, data: Any = None, **environ: str) -> PiSettings:
    if data is not None:
        (folder / "grok-ws.json").write_text(data if isinstance(data, str) else json.dumps(data))
    return PiSettings.load(str(folder), environ)


def test_without_a_file_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path) == PiSettings()


def test_the_environment_wins(tmp_path: Path) -> None:
    data = {
        "permissionMode": "readonly",
        "headlessPermissions": "deny",
        "hooks": {"denyGrokTools": ["a"], "allowGrokTools": ["b("], "stopCheck": "make"},
        "somethingElse": 1,
    }
    settings = load(tmp_path, data, PI_GROK_DENY_TOOLS="c, d", PI_GROK_HEADLESS_PERMISSIONS="reads")
    assert (settings.mode, settings.headless, settings.stop_check) == ("read-only", "reads", "make")
    assert [p.pattern for p in settings.deny] == ["c", "d"]
    assert settings.allow[0].fullmatch("b("), "no regular expression: it stands for itself"


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ("{", "cannot be read"),
        ("[]", "JSON object"),
        ({"permissionMode": "sometimes"}, "permissionMode"),
        ({"hooks": []}, "hooks"),
        ({"hooks": {"denyGrokTools": [1]}}, "hooks.denyGrokTools"),
        ({"grokMode": True}, "grokMode"),
        ({"guard": {"dialogMs": 900_000}}, "dialogMs"),
        ({"guard": {"ackMs": "soon"}}, "ackMs"),
    ],
)
def test_a_bad_value_is_named_with_its_file(tmp_path: Path, data: Any, named: str) -> None:
    with pytest.raises(PiSettingError) as error:
        load(tmp_path, data)
    assert named in str(error.value)
    assert "grok-ws.json" in str(error.value)


def test_guard_settings_are_milliseconds(tmp_path: Path) -> None:
    assert load(tmp_path, {"guard": {"policyMs": 7000, "stallMs": 1}}).limits.policy == 7
    assert load(tmp_path, PI_GROK_ACK_MS="2000").limits.ack == 2
    assert PiSettings().limits is LIMITS


def test_the_mode_is_kept_beside_everything_else(tmp_path: Path) -> None:
    load(tmp_path, {"url": "x", "permissionMode": "auto"})
    save_mode(str(tmp_path), "read-only")
    assert json.loads((tmp_path / "grok-ws.json").read_text()) == {"url": "x", "permissionMode": "readonly"}
    assert load(tmp_path).mode == "read-only"
    assert stat.S_IMODE((tmp_path / "grok-ws.json").stat().st_mode) == 0o600
    assert [f.name for f in tmp_path.iterdir()] == ["grok-ws.json"]


# -- models ------------------------------------------------------------------------------------------

MODELS = {
    "current": "a",
    "models": [
        {
            "id": "a",
            "contextWindow": 1000,
            "reasoning": {"default": "high", "efforts": [{"id": "low"}, {"id": "high"}]},
        },
        {"id": "b", "contextWindow": None, "reasoning": {"efforts": []}},
        {"id": "c", "reasoning": None},
    ],
}


@pytest.mark.parametrize(
    ("model", "level", "effort"),
    [
        ("a", "high", "high"),
        ("a", "minimal", ""),
        ("a", "off", ""),
        ("a", "", ""),
        ("b", "medium", "medium"),
        ("c", "high", ""),
        ("unknown", "high", ""),
    ],
)
def test_effort(model: str, level: str, effort: str) -> None:
    assert Models.of(MODELS).effort(model, level) == effort


def test_an_unknown_model_is_refused_with_the_list_once_there_is_one() -> None:
    with pytest.raises(UserError, match="a, b, c"):
        Models.of(MODELS).check("d")
    Models().check("d")
    assert (Models.of(MODELS).window("a"), Models.of(MODELS).window("b")) == (1000, 0)


def test_a_file_that_is_not_there_or_broken_is_no_list(tmp_path: Path) -> None:
    assert Models.load(tmp_path / "models.json") == Models()
    (tmp_path / "models.json").write_text("{")
    assert Models.load(tmp_path / "models.json") == Models()


# -- messages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'"x"',
        b'{"id":1,"method":"x"}',
        b'{"jsonrpc":"2.0","method":"x","params":[1]}',
        b'{"jsonrpc":"2.0"}',
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.parse(data)


def test_kinds_of_messages() -> None:
    assert protocol.parse(b'{"jsonrpc":"2.0","method":"a"}').kind == "notification"
    assert protocol.parse(b'{"jsonrpc":"2.0","id":"x","method":"a","params":{"b":1}}').params == {"b": 1}
    assert protocol.parse(b'{"jsonrpc":"2.0","id":"x","result":{}}').kind == "response"


def test_a_lone_surrogate_is_no_reason_to_fail() -> None:
    assert protocol.parse(b'{"jsonrpc":"2.0","method":"a","params":{"b":"\\ud83d"}}').params == {
        "b": "\ufffd"
    }


def test_fields_are_typed() -> None:
    fields = Fields("x", {"a": "t", "n": 1, "f": True, "l": ["p"], "o": [{"q": 1}]})
    assert (fields.text("a"), fields.number("n"), fields.flag("f")) == ("t", 1, True)
    assert (fields.names("l"), fields.objects("o"), fields.names("none")) == ({"p"}, [{"q": 1}], None)
    for wrong in (
        lambda: fields.text("none"),
        lambda: fields.text("n"),
        lambda: fields.number("f"),
        lambda: fields.objects("l"),
        lambda: fields.names("o"),
    ):
        with pytest.raises(ProtocolError):
            wrong()
