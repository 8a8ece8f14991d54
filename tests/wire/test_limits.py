from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from gateway.wire.limits import GUARD_SETTINGS, LIMITS, SIZES, LimitError, Limits, limits_from_environment


def test_every_row_has_a_reason_and_is_positive() -> None:
    for field in dataclasses.fields(Limits):
        assert Limits.reason(field.name), field.name
        assert field.default > 0, field.name


def test_the_defaults_keep_their_own_rules() -> None:
    Limits().check_rules()
    assert Limits().pre_hook_answer == 585


def test_both_repeats_of_a_denial_come_before_the_hook_fails_open() -> None:
    for table in (Limits(), Limits().scaled(0.01)):
        assert 4 * table.answer_again < table.pre_hook_margin


def test_scaling_touches_the_guard_rows_alone() -> None:
    table, scaled = Limits(), Limits().scaled(0.01)
    for field in dataclasses.fields(Limits):
        factor = 0.01 if field.metadata["guard"] else 1
        assert getattr(scaled, field.name) == pytest.approx(getattr(table, field.name) * factor), field.name
    scaled.check_rules()


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1.5", "nan", "inf"])
def test_a_bad_scale_is_refused_by_name(text: str) -> None:
    with pytest.raises(LimitError, match="GROK_GATEWAY_GUARD_SCALE"):
        limits_from_environment({"GROK_GATEWAY_GUARD_SCALE": text})


def test_a_bad_scale_breaks_no_import() -> None:
    """The command line must come far enough to say what is wrong."""
    done = subprocess.run(
        [sys.executable, "-c", "import gateway.wire.limits"], env={"GROK_GATEWAY_GUARD_SCALE": "x"}
    )
    assert done.returncode == 0


def test_settings_are_milliseconds() -> None:
    table = Limits().with_guard_settings({"dialogMs": 300_000, "checkBudgetMs": 200_000.0})
    assert (table.dialog, table.check) == (300, 200)
    assert table.ack == Limits().ack


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"nothingMs": 1}, "guard.nothingMs"),
        ({"ackMs": 0}, "positive"),
        ({"ackMs": -5}, "positive"),
        ({"ackMs": True}, "positive"),
        ({"ackMs": "5000"}, "positive"),
        ({"ackMs": float("nan")}, "positive"),
        ({"ackMs": float("inf")}, "positive"),
        ({"ackMs": 16_000}, "guard.ackMs.*guard.policyMs"),
        ({"policyMs": 540_000}, "guard.policyMs.*guard.checkBudgetMs"),
        ({"dialogMs": 100_000}, "guard.checkBudgetMs.*guard.dialogMs"),
        ({"dialogMs": 585_000}, "guard.dialogMs.*deadline"),
    ],
)
def test_a_setting_that_breaks_a_rule_is_named(settings: dict[str, float], said: str) -> None:
    with pytest.raises(LimitError, match=said):
        Limits().with_guard_settings(settings)


def test_every_setting_names_a_guard_row() -> None:
    rows = {field.name for field in dataclasses.fields(Limits) if field.metadata["guard"]}
    assert set(GUARD_SETTINGS.values()) <= rows


def test_the_bounds_fit_each_other() -> None:
    assert SIZES.grok_line < SIZES.engine_line <= SIZES.frame
    assert SIZES.head < SIZES.packet
    assert LIMITS.ack <= LIMITS.policy
