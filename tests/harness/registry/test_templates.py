"""Templates: grammar, figures, and what becomes of wrong ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.registry.templates import TemplateError, placeholders, render, render_or_strip

VALUES = {
    "tools": {"by_kind": {"read": "look", "execute": ""}},
    "params": {"search": {"-A": "after"}},
    "on": True,
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain", "plain"),
        ("${{ tools.by_kind.read }}", "look"),
        ("${{tools.by_kind.edit}}|${{ no.such.thing }}", "|"),
        ("${{ params.search.-A }}", "after"),
        ("${{ on }} ${{ 'x' }} ${{ 7 }}", "true x 7"),
        ("${% if tools.by_kind.read %}yes${% endif %}", "yes"),
        ("${% if tools.by_kind.execute %}yes${% else %}no${% endif %}", "no"),
        ("${% if off %}a${% elif on %}b${% else %}c${% endif %}", "b"),
        ("${% if on and not off %}a${% endif %}", "a"),
        ("${% if off or (on and tools.by_kind.read == 'look') %}a${% endif %}", "a"),
        ('${% if tools.by_kind.read != "look" %}a${% endif %}', ""),
        ("${% if on %}${% if off %}a${% else %}b${% endif %}c${% endif %}", "bc"),
        ("at most {lines} of {other}, {} { lines }", "at most 5 of {other}, {} { lines }"),
    ],
)
def test_what_a_template_says(template: str, text: str) -> None:
    assert render(template, VALUES, {"lines": 5}) == text


@pytest.mark.parametrize(
    ("template", "bare"),
    [
        ("a ${{ b", "a  b"),
        ("a ${% if on %} b", "a  b"),
        ("a ${% endif %} b", "a  b"),
        ("a ${{ on on }} b", "a  b"),
        ("a ${{ (on }} b", "a  b"),
        ("a ${{ }} b", "a  b"),
        ("a ${% for x in y %} b {lines}", "a  b 5"),
        ("a ${{ = }} b", "a  b"),
    ],
)
def test_a_wrong_template_keeps_its_text_and_loses_its_markers(template: str, bare: str) -> None:
    with pytest.raises(TemplateError):
        render(template, VALUES)
    assert render_or_strip(template, VALUES, {"lines": 5}) == bare


@given(st.text("${}%iabnd fels.()='x", max_size=60))
def test_no_marker_survives_whatever_is_written(template: str) -> None:
    text = render_or_strip(template, VALUES)
    assert "${{" not in text
    assert "${%" not in text


def test_placeholders_are_those_outside_of_markers() -> None:
    assert placeholders("{a} ${{ {b} }} {c_d}") == {"a", "c_d"}
