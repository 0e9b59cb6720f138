"""State of modules: it stands in cells, which replays compare, or says why no replay depends on it."""

from __future__ import annotations

import pytest

from tests.module_state import MARK, Source, sources, state_of, untracked


def test_state_of_modules_stands_in_cells():
    assert not untracked(sources())


def test_marks_are_needed():
    files = sources()
    found = set().union(*(state_of(module, files) for module in files))
    marked = [s for s in found if files[s.module].is_marked(files[s.module].defined[s.name])]
    assert len(marked) == sum(
        line.lstrip().startswith(MARK) or f"  {MARK}" in line for s in files.values() for line in s.lines
    )


FORGOTTEN = {
    "a number that is rebound": "count = 0\ndef f():\n    global count\n    count += 1",
    "a table that is filled": "table = {1: 2}\ndef f(x):\n    table[x] = 1",
    "a table that others fill": "def _new():\n    return 1\ntable: dict[int, int] = {}",
    "a list with a method": "known = [1]\ndef f(x):\n    known.append(x)",
    "tables in a table": "hooks = {kind: OrderedDict() for kind in KINDS}",
    "an attribute of a class": "class Setting:\n    level = 0\ndef f():\n    Setting.level = 1",
    "an object that changes itself": "class S:\n    def set(self, x):\n        self.x = x\ns = S()",
    "a value of a thread": "class T(threading.local):\n    x = 0\nt = T()",
    "a value of a context": "level = ContextVar('level', default=0)",
}


@pytest.mark.parametrize("text", FORGOTTEN.values(), ids=FORGOTTEN)
def test_a_forgotten_one_is_found(text):
    assert len(untracked({"weft.made_up": Source(text)})) == 1
    marked = "\n".join(f"{MARK}known\n{line}" if line[0] not in " d" else line for line in text.splitlines())
    assert not untracked({"weft.made_up": Source(marked)})


@pytest.mark.parametrize(
    "text",
    [
        "level = Cell('level', 0)\ndef f():\n    level.set(1)",
        "hooks = Registry('hooks')\ndef f(x):\n    hooks[x] = 1",
        "names = {1: 2}\ndef f(x):\n    names = {}\n    names[x] = 1",
        "Begin = Callable[[], None]",
        "ONE = frozenset({1})\ndef f(x):\n    return ONE | {x}",
    ],
)
def test_what_is_no_such_state_is_not_found(text):
    assert not untracked({"weft.made_up": Source(text)})


def test_state_that_another_module_changes_is_found():
    files = {
        "weft.one": "class Setting:\n    level = 0",
        "weft.other": "from weft.one import Setting\ndef f():\n    Setting.level = 1",
    }
    assert untracked({name: Source(text) for name, text in files.items()}) == ["weft.one.Setting"]
