"""The generated type stubs are those of the present operator table."""

from __future__ import annotations

import pytest

from weft._tensor.stubs import STUBS


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.name)
def test_no_stub_is_stale(path):
    assert path.read_text() == STUBS[path](), "run `make stubs`"
