"""What optimizers of libraries take from PyTorch's."""

from __future__ import annotations

import weft
from weft import nn
from weft.utils._foreach_utils import (
    _foreach_supported_types,
    _get_foreach_kernels_supported_devices,
    _group_tensors_by_device_and_dtype,
    _has_foreach_support,
)


def test_tensors_are_grouped_by_the_first_list():
    params = [weft.ones(1), weft.ones(2, dtype=weft.float64), weft.ones(3)]
    grads = [weft.zeros(1), None, weft.zeros(3)]
    groups = _group_tensors_by_device_and_dtype([params, grads, []], with_indices=True)
    assert {key: (lists, at) for key, (lists, at) in groups.items()} == {
        (weft.device("cpu"), weft.float32): ([[params[0], params[2]], [grads[0], grads[2]], []], [0, 2]),
        (weft.device("cpu"), weft.float64): ([[params[1]], [None], []], [1]),
    }


def test_functions_of_lists_take_tensors_and_types_that_are_added():
    cpu = weft.device("cpu")
    assert "cuda" in _get_foreach_kernels_supported_devices()
    assert _has_foreach_support([weft.ones(1), None], cpu)
    assert not _has_foreach_support([nn.Parameter(weft.ones(1))], cpu)
    _foreach_supported_types.append(nn.Parameter)
    try:
        assert _has_foreach_support([nn.Parameter(weft.ones(1))], cpu)
    finally:
        _foreach_supported_types.remove(nn.Parameter)
