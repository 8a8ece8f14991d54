"""A script as bash would take it apart, by the real grammar: every simple command in it, wherever it stands.

`parse` does not run or expand anything.  What cannot be known from the text is an *obstacle*; a script with
obstacles is never allowed by a rule.  ``listed`` says that the script is nothing but simple commands joined
by ``&&``, ``||``, ``;``, ``|`` and line ends: only then are its commands all there is to it.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator

import tree_sitter
import tree_sitter_bash

from harness.limits import SIZES
from harness.permissions.shell.words import Word, read_word

__all__ = ["Command", "Redirect", "Script", "parse"]

_LANGUAGE = tree_sitter.Language(tree_sitter_bash.language())


@dataclasses.dataclass(frozen=True, slots=True)
class Redirect:
    """``operator`` without its descriptor; ``target`` None for a heredoc."""

    operator: str
    target: Word | None


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A simple command.  ``stdin`` is the text that a heredoc or here-string gives it, if it is known.

    ``more``: further arguments are added when it runs (``xargs``).  ``piped``: it reads another command.
    """

    words: tuple[Word, ...]
    assignments: tuple[str, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    stdin: str | None = None
    piped: bool = False
    more: bool = False
    source: str = ""

    @property
    def name(self) -> str:
        """The program without its folder; empty when it is not known."""
        return self.words[0].text.rpartition("/")[2] if self.words and self.words[0].fixed else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    commands: tuple[Command, ...]
    obstacles: tuple[str, ...] = ()
    listed: bool = True
    #: Other scripts that stand in it as text: backquotes within backquotes or in a heredoc.
    scripts: tuple[str, ...] = ()


#: Nodes that only group simple commands into a list.
_LISTING = frozenset({"program", "list", "pipeline", "redirected_statement", "command"})
#: Of a command: what is no argument.
_NO_ARGUMENT = frozenset(
    {"variable_assignment", "file_redirect", "heredoc_redirect", "herestring_redirect", "comment"}
)
#: Commands with a node kind of their own.
_KEYWORDS = frozenset({"declaration_command", "unset_command", "test_command"})
#: A line that goes on: an even number of backslashes before it are characters of their own.
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n")
_NEGATION = re.compile(r"(?<![\w$\"'])!\s+")
#: Bytes of which the grammar and bash, or a reader's eye, make different things.
_STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u0085\u00a0\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def parse(text: str) -> Script:
    """Take a script apart."""
    obstacles: list[str] = []
    if len(text) > SIZES.shell_script:
        return Script((), ("it is too long to be checked",), listed=False)
    if re.search(r"\$\{[^}]*@P\}", text):
        obstacles.append("a variable's text is expanded again")
    if _STRANGE.search(text):
        obstacles.append("it holds control or invisible characters")
    forms = [text]
    joined = _CONTINUED.sub(r"\1", text)
    if joined != text:
        # bash joins continued lines before anything else, except in quotes, comments and heredocs: where
        # any of these may be, both readings are looked at and neither is trusted
        forms = [joined]
        if re.search("['#]|<<", text):
            forms.append(text)
            obstacles.append("lines are continued among quotes or comments")
    if "``" in text:  # the grammar swallows what stands behind empty backquotes
        forms.append(text.replace("``", ""))
        obstacles.append("it holds empty backquotes")
    walk = _Walk()
    broken = False
    for form in forms:
        root = _tree(form)
        walk.visit(root, (), piped=False)
        broken = broken or root.has_error
    if broken:
        obstacles.append("the shell grammar does not accept it")
        apart = text.replace("((", "( (").replace("))", ") )")
        for other in dict.fromkeys((_NEGATION.sub("", text), apart)):
            walk.visit(_tree(other), (), piped=False)  # bash knows more; what is denied may show
    return Script(
        tuple(walk.commands),
        tuple(dict.fromkeys([*obstacles, *walk.obstacles])),
        walk.listed and not broken and len(forms) == 1,
        tuple(walk.scripts),
    )


def _tree(text: str) -> tree_sitter.Node:
    return tree_sitter.Parser(_LANGUAGE).parse(text.encode("utf-8", "surrogateescape")).root_node


def _text(node: tree_sitter.Node) -> str:
    return (node.text or b"").decode("utf-8", "surrogateescape")


def _gaps(node: tree_sitter.Node) -> bool:
    """Whether the parts of a word do not touch."""
    return any(a.end_byte != b.start_byte for a, b in itertools.pairwise(node.children))


#: Commands that read some of their arguments again: as arithmetic, as names with an index.
_REREADING = frozenset({"test", "[", "printf", "read", "let", "mapfile", "readarray", "wait", "getopts"})
#: Nodes whose text is read again, now or when a variable is used.
_REREAD = _KEYWORDS | {"variable_assignment", "arithmetic_expansion", "subscript"}
_LATER = re.compile(r"\$[({]|`")


def _kept_back(node: tree_sitter.Node) -> Iterator[str]:
    """Texts that quotes keep from being expanded at first, although they hold something to expand."""
    for child in node.children:
        if child.type in ("command_substitution", "process_substitution"):
            continue
        quoted = child.type in ("raw_string", "ansi_c_string") or (
            child.type in ("word", "string", "string_content") and "\\" in _text(child)
        )
        if quoted and _LATER.search(_text(child)):
            yield _text(child)
        else:
            yield from _kept_back(child)


def _skipped(node: tree_sitter.Node) -> bool:
    """Whether anything but blanks stands between the parts of a statement, or a blank that is no blank.

    ``a\\ # b`` is one word and another; the grammar loses the escaped blank and takes the rest for a comment.
    """
    source = node.text or b""
    for before, after in itertools.pairwise(node.children):
        between = source[before.end_byte - node.start_byte : after.start_byte - node.start_byte]
        if between.strip(b" \t\n"):
            return True
        if (
            after.type == "comment"
            and not between
            and before.type not in (";", "\n", "&", "|", "(", "&&", "||")
        ):
            return True
    return False


class _Walk:
    """Collects over the tree of one script."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.obstacles: list[str] = []
        self.scripts: list[str] = []
        self.listed = True

    def visit(self, node: tree_sitter.Node, redirects: tuple[tree_sitter.Node, ...], *, piped: bool) -> None:
        kind = node.type
        if kind in _REREAD:
            self._again(node)
        if _skipped(node):
            self.obstacles.append("a part of it is not understood")
        if kind == "command" or kind in _KEYWORDS:
            self._command(node, redirects, piped)
            self.listed &= kind == "command"
        elif kind == "redirected_statement":
            self._redirected(node, redirects, piped)
        elif kind == "pipeline":
            for place, child in enumerate(node.named_children):
                self.visit(child, redirects, piped=piped or place > 0)
        else:
            if node.is_named and kind not in _LISTING and kind != "comment":
                self.listed = False
            if kind == "command_substitution":
                self._backquotes(_text(node))
            for child in node.children:
                self.listed &= child.type not in ("&", "|&")
                inner = redirects if kind in _LISTING or kind == "negated_command" else ()
                self.visit(child, inner, piped=piped and kind in _LISTING)

    def _redirected(self, node: tree_sitter.Node, outer: tuple[tree_sitter.Node, ...], piped: bool) -> None:
        own = tuple(c for c in node.named_children if c.type.endswith("_redirect"))
        body = [c for c in node.named_children if not c.type.endswith("_redirect")]
        if not all(child.type == "command" for child in body) or not body:
            # of a group of commands, or of nothing at all: it creates or empties a file as well
            self.commands.append(Command((), (), tuple(self._redirects(own)), source=_text(node)))
            self.listed = False
        for child in body:
            self.visit(child, (*own, *outer), piped=piped)
        for redirect in own:
            self._inside(redirect, redirect=True)

    def _command(self, node: tree_sitter.Node, outer: tuple[tree_sitter.Node, ...], piped: bool) -> None:
        own = tuple(c for c in node.named_children if c.type.endswith("_redirect"))
        words: list[Word] = []
        children = node.children
        if node.type in _KEYWORDS:
            words.append(Word(_text(node.children[0]), written=_text(node.children[0])))
            children = [] if node.type == "test_command" else node.children[1:]
        redirects = (*own, *outer)
        behind = [written for node in redirects for written in self._behind(node)]
        self.listed &= not behind
        for written in [*self._written(children), *behind]:
            word = read_word(written)
            if word is None:
                self.obstacles.append("a word in it cannot be read")
                word = Word("", dynamic=True, plain=False, written=written)
            words.append(word)
        if words and words[0].text in _REREADING:
            self._again(node)
        assignments = tuple(_text(c) for c in node.children if c.type == "variable_assignment")
        self.commands.append(
            Command(
                tuple(words),
                assignments if node.type == "command" else (),
                tuple(self._redirects(redirects)),
                self._stdin(redirects),
                piped,
                source=_text(node),
            )
        )
        if not words:
            self.listed = False  # assignments alone
        for child in node.named_children:
            self._inside(child, redirect=child.type.endswith("_redirect"))

    def _written(self, nodes: list[tree_sitter.Node]) -> list[str]:
        """The words as they stand in the script.

        The grammar takes some words apart, ``r''\\m`` for one; bash does so only where there is a blank.
        """
        found: list[str] = []
        end, argument = -1, False
        for node in nodes:
            if node.type == "concatenation" and _gaps(node):
                self.obstacles.append("a word in it cannot be read")
            touching = node.start_byte == end
            end = node.end_byte
            if node.type in _NO_ARGUMENT:
                if touching and node.type == "variable_assignment":
                    self.obstacles.append("a word in it cannot be read")
                argument = False
            elif touching and argument:
                found[-1] += _text(node)
            elif touching:  # it belongs to the assignment or the target before it
                self.obstacles.append("a word in it cannot be read")
            else:
                found.append(_text(node))
                argument = True
        return found

    def _behind(self, redirect: tree_sitter.Node) -> list[str]:
        """Words of the command that the grammar hangs below a redirection in front of them."""
        if redirect.type == "file_redirect":
            return self._written(redirect.children_by_field_name("destination"))[1:]
        if redirect.type == "heredoc_redirect":
            return self._written(redirect.children_by_field_name("argument"))
        return []

    def _again(self, node: tree_sitter.Node) -> None:
        """``a='b[$(rm x)]'`` runs nothing yet; ``(( a ))`` then does."""
        for text in _kept_back(node):
            self.obstacles.append("it holds a text that the shell may read again")
            plain = re.sub(r"^\$?['\"]|['\"]$|\\", "", text)
            self.scripts.append(f': "{plain}"')

    def _inside(self, node: tree_sitter.Node, *, redirect: bool = False) -> None:
        """Substitutions, wherever in a word they stand, and what the grammar hangs below a heredoc."""
        if node.type in _REREAD:
            self._again(node)
        if node.type in ("command_substitution", "process_substitution"):
            self.visit(node, (), piped=False)
            return
        if redirect and node.type in ("pipeline", "command", "list", "redirected_statement"):
            self.visit(node, (), piped=True)
            return
        if node.type == "heredoc_body" and self._expands(node):
            self._backquotes(_text(node), heredoc=True)
        if node.type == "subscript" or node.type == "arithmetic_expansion":
            self.listed = False
        for child in node.children:
            if child.type == "&":
                self.listed = False
            self._inside(child, redirect=redirect)

    @staticmethod
    def _expands(body: tree_sitter.Node) -> bool:
        """Whether the delimiter of a heredoc is unquoted, so that its text is expanded."""
        parent = body.parent
        starts = [c for c in parent.children if c.type == "heredoc_start"] if parent else []
        return not starts or not re.search(r"[\\'\"$]", _text(starts[0]))

    def _backquotes(self, text: str, *, heredoc: bool = False) -> None:
        """Scripts between backquotes that the grammar leaves as text, their escapes taken off."""
        if "`" not in text or (not heredoc and not (text.startswith("`") and "\\" in text)):
            return
        pieces = re.split(r"(?<!\\)`", text)
        self.scripts += [re.sub(r"\\([`$\\])", r"\1", piece) for piece in pieces[1::2]]
        self.obstacles.append("it nests backquotes")

    def _redirects(self, nodes: tuple[tree_sitter.Node, ...]) -> Iterator[Redirect]:
        for node in nodes:
            operator = next((c.type for c in node.children if not c.is_named), "")
            if node.type == "heredoc_redirect":
                yield Redirect("<<", None)
                continue
            targets = node.children_by_field_name("destination") or node.named_children[-1:]
            written = self._written(targets)
            word = read_word(written[0]) if written else None
            if word is None:
                self.listed = False
            yield Redirect(operator, word or Word("", dynamic=True))

    def _stdin(self, nodes: tuple[tree_sitter.Node, ...]) -> str | None:
        """The known text that the last heredoc or here-string feeds in."""
        for node in nodes:
            if node.type == "herestring_redirect":
                word = read_word(_text(node.named_children[-1])) if node.named_children else None
                return word.text if word and not word.dynamic else None
            if node.type == "heredoc_redirect":
                body = next((c for c in node.children if c.type == "heredoc_body"), None)
                if body is None:
                    return ""
                text = _text(body)
                if self._expands(body) and re.search(r"[$`]", text):
                    return None
                return text
        return None
