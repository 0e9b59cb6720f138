"""Names say what they hold, in the field's own terms: no participles in place of nouns, no private metaphors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import weft

NOUN = "a noun for what it holds, such as `entry`, `index`, `match` or `result`"
MEANT = {
    **dict.fromkeys(
        ("asked", "come", "found", "given", "known", "listed", "made", "said", "shown", "taken", "told"), NOUN
    ),
    "where": "`device`, `location` or `path`",
    "aside": "the name of the state that it is saved to",
    "bell": "`waiter` or `event`",
    "beside": "`executor`, or what runs in parallel",
    "drops": "`drops_...`, with what it drops",
    "farewell": "`shutdown`",
    "former": "`legacy` or `previous`",
    "freight": "`payload`",
    "hot": "`fast_path`, or `one_hot`",
    "keeper": "`owner` or `lock`",
    "nudge": "`wake` or `notify`",
    "parcel": "`message` or `buffer`",
    "passage": "`backward_pass`",
    "place": "`location`, `device` or `slot`",
    "spelling": "`name` or `codegen`",
    "step_back": "`yield` or `retry`",
    "tend": "`poll` or `maintain`",
    "turn": "`lock` or `iteration`",
    "written_whole": "`atomic_write`",
}
CLASSES = ("place",)
"""Refused as names of classes and types alone: for a variable, `place` is a position among arguments or dims."""

PUBLIC = {"where": "`torch.where`, the operator"}
"""Names of functions that are PyTorch's."""

ARGUMENTS = {("exception_wrapper", "where")}
"""Modules, and the arguments and attributes in them that are PyTorch's."""


_BINDING = (ast.Name, ast.Attribute, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.arg, ast.ExceptHandler)
_BINDING += (ast.MatchAs, ast.MatchStar)


def bound(node: ast.AST) -> str | None:
    """The name that a node of a syntax tree binds, if it does."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return None if name in PUBLIC else name
        case ast.ClassDef(name=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
            return name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return name
    return None


def refused(source: str) -> Iterator[tuple[int, str]]:
    """The lines of a module that bind a refused name, and the word."""
    for node in ast.walk(ast.parse(source)):
        if type(node) not in _BINDING:
            continue  # half of the nodes
        name = (bound(node) or "").strip("_")
        word = name.lower()
        if word in MEANT and (word not in CLASSES or name != word):
            yield node.lineno, name


def modules() -> Iterator[Path]:
    return Path(weft.__file__).parent.glob("**/*.py")


def test_names_say_what_they_hold():
    errors = [
        f"{path}:{line}: `{name}`; meant is {MEANT[name.lower()]}"
        for path in modules()
        for line, name in refused(path.read_text())
        if (path.stem, name) not in ARGUMENTS
    ]
    assert not errors, "\n".join(errors)


def test_refused_are_all_kinds_of_names():
    source = """
def given(told, *, asked=None):
    found = [made for made in told]
    self._known = listed = 0
    try:
        match found:
            case [shown, *taken]: pass
    except ValueError as said: pass
class Place: pass
Bell = int
"""
    names = ["given", "told", "asked", "found", "made", "known", "listed", "shown", "taken", "said", "Place", "Bell"]
    assert sorted(name for _, name in refused(source)) == sorted(names)
    assert not list(refused("def where(input, place): return input.found(where=place)"))
