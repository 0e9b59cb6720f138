"""Calls that PyTorch refuses, row by row: which builtin its exception is, and what its text says."""

from __future__ import annotations

import pytest


def refuses(call, kinds, text):
    """`call()` raises an exception that is all of `kinds`, is no other builtin one, and has a text that matches."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    with pytest.raises(kinds[0], match=text) as info:
        call()
    allowed = {base for kind in kinds for base in kind.__mro__}
    bases = {base for base in type(info.value).__mro__ if base.__module__ == "builtins"}
    assert bases <= allowed, f"it is also {bases - allowed}"
    assert isinstance(info.value, kinds[-1])


def rows(*given):
    """As `parametrize` takes rows of a name and what belongs to it."""
    return [pytest.param(*row, id=name) for name, *row in given]
