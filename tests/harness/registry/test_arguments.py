"""Arguments as models write them: what is understood, and what a refusal says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.registry.arguments import ArgumentError, adapt, read_objects
from harness.registry.contract import ToolSpec
from tests.harness.registry.tools import EDIT, OUTPUT, READ, RUN, TODO

EDITED = {"file_path": "a", "old_string": "b", "new_string": "c"}


@pytest.mark.parametrize(
    ("spec", "given_arguments", "understood"),
    [
        (READ.spec, {"target_file": "a", "offset": "12"}, {"target_file": "a", "offset": 12}),
        (READ.spec, {"target_file": "a", "offset": " -3 "}, {"target_file": "a", "offset": -3}),
        (READ.spec, {"target_file": "a", "offset": 4.0}, {"target_file": "a", "offset": 4}),
        (READ.spec, {"target_file": "a", "offset": "4.0"}, {"target_file": "a", "offset": 4}),
        (READ.spec, {"target_file": "a", "offset": None}, {"target_file": "a"}),
        (READ.spec, {"target_file": "a", "share": "0.5"}, {"target_file": "a", "share": 0.5}),
        (READ.spec, {"target_file": "5", "colour": 1}, {"target_file": "5"}),
        *(
            (EDIT.spec, {**EDITED, "replace_all": word}, {**EDITED, "replace_all": True})
            for word in (True, "true", "True", " YES ", "1", 1)
        ),
        *(
            (EDIT.spec, {**EDITED, "replace_all": word}, {**EDITED, "replace_all": False})
            for word in (False, "false", "No", "0", 0, None)
        ),
        (OUTPUT.spec, {"task_id": "x"}, {"task_ids": ["x"]}),
        (OUTPUT.spec, {"task_ids": 7}, {"task_ids": ["7"]}),
        (OUTPUT.spec, {"task_ids": ["x", 7], "timeout_ms": "50"}, {"task_ids": ["x", "7"], "timeout_ms": 50}),
        (OUTPUT.spec, {"timeout_ms": None}, {}),
        (TODO.spec, {"todos": [{"id": "1", "status": None}]}, {"todos": [{"id": "1"}]}),
        (RUN.spec, {"command": "a", "timeout": "9"}, {"command": "a", "timeout": 9}),
    ],
)
def test_what_can_be_meant_in_one_way_only_is_understood(
    spec: ToolSpec, given_arguments: dict[str, Any], understood: dict[str, Any]
) -> None:
    result = adapt(spec, given_arguments)
    assert result == understood
    assert [type(v) for v in result.values()] == [type(v) for v in understood.values()]


@pytest.mark.parametrize(
    ("spec", "given_arguments", "said"),
    [
        (READ.spec, {}, "`target_file` is missing"),
        (EDIT.spec, {"file_path": "a"}, "`old_string`, `new_string` are missing"),
        (READ.spec, {"target_file": 5}, "`target_file` must be a string, not 5"),
        (READ.spec, {"target_file": None}, "`target_file` must be a string, not null"),
        (
            READ.spec,
            {"target_file": "a", "offset": "twelve"},
            '`offset` must be a whole number, not "twelve"',
        ),
        (READ.spec, {"target_file": "a", "offset": 1.5}, "`offset` must be a whole number, not 1.5"),
        (READ.spec, {"target_file": "a", "offset": True}, "`offset` must be a whole number, not true"),
        (EDIT.spec, {**EDITED, "replace_all": "maybe"}, '`replace_all` must be true or false, not "maybe"'),
        (EDIT.spec, {**EDITED, "replace_all": 2}, "`replace_all` must be true or false, not 2"),
        (OUTPUT.spec, {"timeout_ms": -1}, "`timeout_ms` is not allowed"),
        (OUTPUT.spec, {"task_ids": True}, "`task_ids` must be a list, not true"),
        (TODO.spec, {"todos": "x"}, '`todos` must be a list, not "x"'),
        (TODO.spec, {"todos": [{}]}, "`todos[0].id` is missing"),
        (
            TODO.spec,
            {"todos": [{"id": "1"}, {"id": "2", "status": "odd"}]},
            "`todos[1].status` must be one of open",
        ),
    ],
)
def test_a_refusal_names_the_place_and_what_came(
    spec: ToolSpec, given_arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ArgumentError) as refused:
        adapt(spec, given_arguments)
    assert said in str(refused.value)


def test_a_refusal_speaks_the_clients_language() -> None:
    called = {"target_file": "path", "offset": "from"}
    with pytest.raises(ArgumentError, match="`path` is missing"):
        adapt(READ.spec, {}, lambda name: called.get(name, name))
    with pytest.raises(ArgumentError, match="`from` must be"):
        adapt(READ.spec, {"target_file": "a", "offset": "x"}, lambda name: called.get(name, name))


def test_a_character_in_two_escapes_is_one() -> None:
    assert read_objects(r'{"a": "\ud83d\ude00"}') == [{"a": "\U0001f600"}]


@pytest.mark.parametrize("given_arguments", [{"share": "inf"}, {"share": "nan"}, {"offset": "9" * 5000}])
def test_what_is_no_number_is_not_taken_for_one(given_arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="must be a"):
        adapt(READ.spec, {"target_file": "a", **given_arguments})


def test_a_pit_of_lists_is_refused() -> None:
    pit: list[Any] = []
    for _ in range(3000):
        pit = [pit]
    with pytest.raises(ArgumentError, match=r"`offset` must be a whole number|nested too deeply"):
        adapt(READ.spec, {"target_file": "a", "offset": pit})


def test_a_long_value_is_not_repeated_whole() -> None:
    with pytest.raises(ArgumentError) as refused:
        adapt(TODO.spec, {"todos": "x" * 10_000})
    assert len(str(refused.value)) < 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["target_file", "offset", "share", "else"]), JSON))
def test_whatever_comes_is_adapted_or_refused_and_twice_is_once(arguments: dict[str, Any]) -> None:
    try:
        result = adapt(READ.spec, arguments)
    except ArgumentError:
        return
    assert adapt(READ.spec, result) == result
    assert result.keys() <= arguments.keys() - {"else"}


@given(
    st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=3), min_size=1, max_size=4),
    st.sampled_from(["", " ", "\n"]),
)
def test_objects_in_a_row_are_read_as_they_were_written(objects: list[dict[str, Any]], between: str) -> None:
    assert read_objects(between.join(json.dumps(one) for one in objects)) == objects


@pytest.mark.parametrize("text", ["", "  \n"])
def test_no_text_is_no_arguments(text: str) -> None:
    assert read_objects(text) == [{}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{bad", "not valid JSON"),
        ('{"a": 1} trailing', "not valid JSON"),
        ("[1]", "one JSON object, not [1]"),
        ('"text"', "one JSON object"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a": 1' + "0" * 5000 + "}", "not valid JSON"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ('{"a": -Infinity}', "-Infinity is no number"),
        ('{"a": 1e999}', "1e999 is no number"),
        (r'{"a": "\ud83d"}', "half of a character"),
        (r'{"a": 1}{"\uDE00": 1}', "half of a character"),
    ],
)
def test_what_is_no_object_is_refused(text: str, said: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        read_objects(text)
    assert said in str(refused.value)
