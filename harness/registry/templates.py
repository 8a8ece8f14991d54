"""Templates of descriptions: texts that name other tools by what the client calls them.

``${{ tools.by_kind.read }}`` is a value, ``${% if tools.by_kind.execute and not params.x %} … ${% elif … %}
… ${% else %} … ${% endif %}`` a choice, ``{max_lines_read}`` one of the figures that are given.  A template
that cannot be rendered loses its markers and keeps its text: no marker ever reaches a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["TemplateError", "placeholders", "render", "render_or_strip"]

_MARKER = re.compile(r"\$\{\{(?P<value>.*?)\}\}|\$\{%(?P<tag>.*?)%\}", re.DOTALL)
_BROKEN = re.compile(r"\$\{\{.*?\}\}|\$\{%.*?%\}|\$\{\{|\$\{%", re.DOTALL)
_FIGURE = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_TOKEN = re.compile(r"\s*(?:(==|!=|\(|\))|'([^']*)'|\"([^\"]*)\"|(-?\d+)|([A-Za-z_][\w.-]*))")

Values = Mapping[str, Any]
#: A piece of a parsed template: text, or something that gives text.
_Piece = Callable[[Values], str]


class TemplateError(ValueError):
    """A template that does not follow the grammar or asks for what cannot be had."""


def render(template: str, values: Values, figures: Mapping[str, int] | None = None) -> str:
    """The text of a template; unknown names are empty, wrong grammar raises `TemplateError`."""
    reader = _Reader(template)
    pieces, end = reader.block(())
    assert end == ""
    return _fill("".join(piece(values) for piece in pieces), figures or {})


def render_or_strip(template: str, values: Values, figures: Mapping[str, int] | None = None) -> str:
    """`render`, or the bare text when the template is wrong."""
    try:
        return render(template, values, figures)
    except TemplateError:
        return _fill(_BROKEN.sub("", template), figures or {})


def placeholders(template: str) -> frozenset[str]:
    """The names of the figures that a template asks for."""
    return frozenset(_FIGURE.findall(_MARKER.sub("", template)))


def _fill(text: str, figures: Mapping[str, int]) -> str:
    return _FIGURE.sub(lambda found: str(figures.get(found[1], found[0])), text)


class _Reader:
    """Reads a template block by block."""

    def __init__(self, template: str) -> None:
        self._parts = _parts(template)

    def block(self, ends: Sequence[str]) -> tuple[list[_Piece], str]:
        """Pieces up to one of the tags ``ends`` (or the end of the template), and that tag."""
        pieces = list[_Piece]()
        for kind, content in self._parts:
            if kind == "text":
                pieces.append(_constant(content))
            elif kind == "value":
                pieces.append(_shown(_expression(content)))
            elif (word := content.partition(" ")[0]) in ends:
                return pieces, content
            elif word == "if":
                pieces.append(self._choice(content))
            else:
                raise TemplateError(f"tag {content!r} has no place here")
        if ends:
            raise TemplateError("a choice is not closed")
        return pieces, ""

    def _choice(self, tag: str) -> _Piece:
        """Everything from ``if`` to its ``endif``."""
        arms = list[tuple[Callable[[Values], Any], list[_Piece]]]()
        condition = _expression(tag.partition(" ")[2])
        otherwise = list[_Piece]()
        while True:
            pieces, tag = self.block(("elif", "else", "endif"))
            arms.append((condition, pieces))
            if tag == "else":
                otherwise, tag = self.block(("endif",))
            if tag == "endif":
                break
            condition = _expression(tag.partition(" ")[2])

        def choose(values: Values) -> str:
            chosen = next((pieces for test, pieces in arms if test(values)), otherwise)
            return "".join(piece(values) for piece in chosen)

        return choose


def _parts(template: str) -> Iterator[tuple[str, str]]:
    position = 0
    for found in _MARKER.finditer(template):
        yield _plain(template[position : found.start()])
        if found["value"] is not None:
            yield "value", found["value"].strip()
        else:
            yield "tag", found["tag"].strip(" -\n")
        position = found.end()
    yield _plain(template[position:])


def _plain(text: str) -> tuple[str, str]:
    if "${{" in text or "${%" in text:
        raise TemplateError("a marker is not closed")
    return "text", text


# -- expressions -----------------------------------------------------------------------------------

_Term = Callable[[Values], Any]
_Tokens = list[tuple[str, Any]]


def _expression(source: str) -> _Term:
    tokens = list(_tokens(source))
    term, rest = _or(tokens)
    if rest:
        raise TemplateError(f"{source!r} does not end where it should")
    return term


def _tokens(source: str) -> Iterator[tuple[str, Any]]:
    position, source = 0, source.strip()
    while position < len(source):
        found = _TOKEN.match(source, position)
        if found is None:
            raise TemplateError(f"{source!r} is no expression")
        sign, single, double, number, name = found.groups()
        if sign or name in ("and", "or", "not"):
            yield "sign", sign or name
        elif name in ("true", "false"):
            yield "literal", name == "true"
        elif name:
            yield "name", name
        elif number:
            yield "literal", int(number)
        else:
            yield "literal", single if single is not None else double
        position = found.end()


def _or(tokens: _Tokens) -> tuple[_Term, _Tokens]:
    left, tokens = _and(tokens)
    while tokens[:1] == [("sign", "or")]:
        right, tokens = _and(tokens[1:])
        left = _either(left, right)
    return left, tokens


def _and(tokens: _Tokens) -> tuple[_Term, _Tokens]:
    left, tokens = _not(tokens)
    while tokens[:1] == [("sign", "and")]:
        right, tokens = _not(tokens[1:])
        left = _both(left, right)
    return left, tokens


def _not(tokens: _Tokens) -> tuple[_Term, _Tokens]:
    if tokens[:1] == [("sign", "not")]:
        term, tokens = _not(tokens[1:])
        return lambda values: not term(values), tokens
    left, tokens = _atom(tokens)
    if tokens[:1] in ([("sign", "==")], [("sign", "!=")]):
        equal = tokens[0][1] == "=="
        right, tokens = _atom(tokens[1:])
        return lambda values: (left(values) == right(values)) is equal, tokens
    return left, tokens


def _atom(tokens: _Tokens) -> tuple[_Term, _Tokens]:
    if not tokens:
        raise TemplateError("the end where a value should stand")
    (kind, value), rest = tokens[0], tokens[1:]
    if kind == "literal":
        return lambda _: value, rest
    if kind == "name":
        return lambda values: _look_up(values, value), rest
    if value == "(":
        term, rest = _or(rest)
        if rest[:1] != [("sign", ")")]:
            raise TemplateError("a bracket is not closed")
        return term, rest[1:]
    raise TemplateError(f"{value} where a value should stand")


def _either(left: _Term, right: _Term) -> _Term:
    return lambda values: left(values) or right(values)


def _both(left: _Term, right: _Term) -> _Term:
    return lambda values: left(values) and right(values)


def _shown(term: _Term) -> _Piece:
    return lambda values: _text(term(values))


def _constant(text: str) -> _Piece:
    return lambda _: text


def _look_up(values: Values, path: str) -> Any:
    """``a.b.c`` in nested mappings; what is not there is empty, as a kind without a tool is."""
    here: Any = values
    for step in path.split("."):
        here = here.get(step) if isinstance(here, Mapping) else None
    return "" if here is None else here


def _text(value: Any) -> str:
    return ("false", "true")[value] if isinstance(value, bool) else str(value)
