"""What a refusal is compared with: the exception that PyTorch raises in its place."""

from __future__ import annotations

import pytest

TOLD_APART = (ValueError, RuntimeError, TypeError, LookupError, AssertionError, AttributeError, OSError)
"""Builtins that programs catch one by one."""


def raises(call, kind, text):
    """Require an exception of this kind, and of no other one that programs tell apart from it."""
    with pytest.raises(kind, match=text) as info:
        call()
    kinds = [each for each in TOLD_APART if isinstance(info.value, each)]
    assert kinds == [each for each in TOLD_APART if issubclass(kind, each)], info.value
    assert issubclass(kind, NotImplementedError) or not isinstance(info.value, NotImplementedError)
