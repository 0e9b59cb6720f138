"""The generated type stubs are those of the present operator table."""

from __future__ import annotations

import pytest

from weft._tensor.stubs import STUBS, package_stub


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.name)
def test_no_stub_is_stale(path):
    assert path.read_text() == STUBS[path](), "run `make stubs`"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("add", "weft/ops/elementwise.py: add"),
        ("add_", "weft/ops/elementwise.py: add"),
        ("floor", "weft/ops/unary.py: _rounding"),
        ("clone", "weft/_tensor/composite/storage.py: clone"),
    ],
)
def test_stubs_name_the_file_of_a_function(name, place):
    (line,) = [line for line in package_stub().splitlines() if line.startswith(f"def {name}(")]
    assert line.endswith(f"...  # {place}")
