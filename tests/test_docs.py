"""The code blocks of the README and of every page under docs/ run as they stand, page by page."""

from __future__ import annotations

import re
from pathlib import Path
from weakref import WeakKeyDictionary

import pytest

from weft._base import config
from weft._lazy import explain

_ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PAGES = [
    path for path in (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md"))) if _BLOCK.search(path.read_text())
]


@pytest.mark.parametrize("page", _PAGES, ids=lambda path: path.name)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as programs have their folder there
    monkeypatch.setattr(
        config, "TIER", "auto"
    )  # as for the reader, to whom it is nothing what other tests have computed
    monkeypatch.setattr(explain, "_log", [])
    monkeypatch.setattr(explain, "_interpreted", WeakKeyDictionary())
    scope = {"__name__": "__main__"}
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        lines_above = text[: match.start(1)].count("\n")
        code = compile("\n" * lines_above + match[1], str(page), "exec")
        exec(code, scope)


def test_the_links_of_the_readme_lead_somewhere():
    for target in re.findall(r"\]\((docs/[^)]+)\)", (_ROOT / "README.md").read_text()):
        assert (_ROOT / target).is_file(), target
