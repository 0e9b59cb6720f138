"""Programs that are run by PyTorch and here. The outcome is what one returns, or the error that it raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")


def leaf(fw: Any, *elements: float, grad: bool = True) -> Any:
    """A vector of float64."""
    return fw.tensor(elements, dtype=fw.float64, requires_grad=grad)


def numbers(tensor: Any) -> Any:
    """The elements of a tensor, None for None."""
    return None if tensor is None else tensor.detach().tolist()


def assert_same_outcome(program: Callable[[Any], Any]) -> None:
    """Both frameworks give the same, numbers up to rounding, or raise errors that begin alike."""
    _assert_same(_outcome(program, weft), _outcome(program, torch))


def _outcome(program: Callable[[Any], Any], fw: Any) -> Any:
    try:
        return program(fw)
    except RuntimeError as error:
        return f"error: {str(error)[:40]}"


def _assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for mine, yours in zip(ours, theirs, strict=True):
            _assert_same(mine, yours)
    elif isinstance(theirs, float):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    else:
        assert ours == theirs
