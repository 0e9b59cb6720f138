"""`make_tensor` draws what is asked for."""

from __future__ import annotations

import pytest

import weft as torch
from weft.testing import make_tensor

DTYPES = [torch.float32, torch.float16, torch.complex64, torch.int8, torch.uint8, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_lie_within_the_limits(dtype):
    torch.manual_seed(0)
    x = make_tensor(20, 20, dtype=dtype, device="cpu")
    assert (x.shape, x.dtype) == ((20, 20), dtype)
    parts = torch.view_as_real(x) if dtype.is_complex else x
    low, high = {torch.bool: (0, 1), torch.uint8: (0, 9)}.get(dtype, (-9, 9))
    assert parts.min() >= low
    assert low < parts.max() <= high


def test_limits_are_moved_into_the_range_of_the_type():
    x = make_tensor((100,), dtype=torch.int8, device="cpu", low=120, high=1000)
    assert 120 <= int(x.min()) <= int(x.max()) <= 127
    wide = make_tensor(100, dtype=torch.float32, device="cpu", low=-1e300, high=1e300)
    assert wide.isfinite().all()
    assert wide.abs().max() > 1e37


def test_zeros_are_replaced():
    assert make_tensor(10, dtype=torch.bool, device="cpu", exclude_zero=True).all()
    assert make_tensor(100, dtype=torch.int64, device="cpu", low=0, high=2, exclude_zero=True).min() == 1


def test_other_layouts_and_gradients():
    x = make_tensor(3, 4, dtype=torch.float64, device="cpu", noncontiguous=True, requires_grad=True)
    assert (x.shape, x.stride(), x.requires_grad) == ((3, 4), (8, 2), True)
    assert make_tensor(1, dtype=torch.float64, device="cpu", noncontiguous=True).is_contiguous()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dtype": torch.int32, "requires_grad": True}, "`requires_grad=True` is not supported for boolean"),
        ({"dtype": torch.int8, "low": 3, "high": 3}, "`low` must be less than `high`, but got 3 >= 3"),
        ({"dtype": torch.int8, "low": 200, "high": 300}, r"\[200, 300\), but .*int8 only supports \[-128, 128\)"),
        ({"dtype": torch.float32, "low": float("nan")}, "cannot be NaN"),
        (
            {"dtype": torch.float32, "noncontiguous": True, "memory_format": torch.contiguous_format},
            "`noncontiguous` and `memory_format` are mutually exclusive",
        ),
    ],
)
def test_mistakes(options, text):
    with pytest.raises(ValueError, match=text):
        make_tensor(2, device="cpu", **options)


def test_equal_limits_warn():
    with pytest.warns(FutureWarning, match="use full"):
        make_tensor(2, dtype=torch.float32, device="cpu", low=1, high=1)
