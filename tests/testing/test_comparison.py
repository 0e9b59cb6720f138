"""`assert_close` accepts and refuses what PyTorch's does, in its words."""

from __future__ import annotations

import pytest

import weft as torch
from weft.testing import assert_allclose, assert_close

T = torch.tensor
CLOSE = [
    (T([1.0, 2.0]), T([1.0, 2.000001])),
    (T([1.0], dtype=torch.bfloat16), T([1.01], dtype=torch.bfloat16)),
    (T([float("inf")]), T([float("inf")])),
    (torch.zeros(0), torch.zeros(0)),
    (torch.zeros(2, requires_grad=True), torch.zeros(2)),
    (1.0, 1.00000001),
    (float("inf"), float("inf")),
    ((1, [T(2.0)]), [1, (T(2.0),)]),
    ({"a": T(1.0), "b": None}, {"b": None, "a": T(1.0)}),
    (True, True),
]
DIFFERENT = [
    (
        T([1.0, 2.0, 3.0]),
        T([1.0, 2.0, 3.5]),
        "Tensor-likes are not close!\n\nMismatched elements: 1 / 3 (33.3%)\nGreatest absolute difference: 0.5 at index "
        "(2,) (up to 1e-05 allowed)\nGreatest relative difference: 0.1428571492433548 at index (2,) (up to 1.3e-06 "
        "allowed)",
    ),
    (
        T([[1, 2], [3, 4]]),
        T([[1, 2], [3, 6]]),
        "Tensor-likes are not equal!\n\nMismatched elements: 1 / 4 (25.0%)\nGreatest absolute difference: 2 at index "
        "(1, 1)\nGreatest relative difference: 0.3333333432674408 at index (1, 1)",
    ),
    (
        T(1.0),
        T(2.0),
        "Scalars are not close!\n\nExpected 2.0 but got 1.0.\nAbsolute difference: 1.0 (up to 1e-05 allowed)\n"
        "Relative difference: 0.5 (up to 1.3e-06 allowed)",
    ),
    (
        T([1.0]),
        T([1.0], dtype=torch.float64),
        "The values for attribute 'dtype' do not match: torch.float32 != torch.float64.",
    ),
    (T([1.0]), T([1.0, 2.0]), "The values for attribute 'shape' do not match: torch.Size([1]) != torch.Size([2])."),
    (1, 1.0, "The (d)types do not match: <class 'int'> != <class 'float'>."),
    (None, 1, "None mismatch: None is not 1"),
    (True, False, "Booleans mismatch: True is not False"),
    ([1, 2], [1], "The length of the sequences mismatch: 2 != 1"),
    (
        {"a": 1},
        {"b": 1},
        "The keys of the mappings do not match:\nMissing keys in the actual mapping: ['b']\nAdditional keys in the "
        "actual mapping: ['a']",
    ),
    (
        {"a": [1, 2]},
        {"a": [1, 3]},
        "Scalars are not equal!\n\nExpected 3 but got 2.\nAbsolute difference: 1\nRelative difference: "
        "0.3333333333333333\n\nThe failure occurred for item ['a'][1]",
    ),
]


@pytest.mark.parametrize(("actual", "expected"), CLOSE)
def test_close(actual, expected):
    assert_close(actual, expected)


@pytest.mark.parametrize(("actual", "expected", "text"), DIFFERENT)
def test_different(actual, expected, text):
    with pytest.raises(AssertionError) as error:
        assert_close(actual, expected)
    assert str(error.value).replace("weft.", "torch.") == text.replace("weft.", "torch.")


@pytest.mark.parametrize(("actual", "expected"), [(T(1.0), 1.0), ("a", "a"), (object(), object()), ([T(1.0)], [1.0])])
def test_what_cannot_be_compared(actual, expected):
    with pytest.raises(TypeError, match="No comparison pair was able to handle inputs of type"):
        assert_close(actual, expected)


def test_what_cannot_be_compared_counts_before_what_differs():
    with pytest.raises(TypeError):
        assert_close([1, "a"], [2, "a"])


def test_options():
    nan = T([float("nan")])
    with pytest.raises(AssertionError):
        assert_close(nan, nan)
    assert_close(nan, nan, equal_nan=True)
    assert_close(T([1]), T([1.0]), check_dtype=False)
    assert_close(T([200], dtype=torch.uint16), T([200]), check_dtype=False)
    transposed = torch.zeros(2, 3).t()
    assert_close(transposed, torch.zeros(3, 2))
    with pytest.raises(AssertionError, match=r"attribute 'stride\(\)' do not match: \(1, 3\) != \(2, 1\)"):
        assert_close(transposed, torch.zeros(3, 2), check_stride=True)
    with pytest.raises(TypeError, match="Parameter"):
        assert_close(torch.nn.Parameter(T([1.0])), T([1.0]), allow_subclasses=False)
    with pytest.raises(ValueError, match="Both 'rtol' and 'atol' must be either specified or omitted, but got no atol"):
        assert_close(T([1.0]), T([1.0]), rtol=0.1)


def test_messages_of_the_caller():
    with pytest.raises(AssertionError, match=r"^mine$"):
        assert_close(1, 2, msg="mine")
    with pytest.raises(AssertionError, match=r"^mine: Scalars are not equal!"):
        assert_close(1, 2, msg=lambda text: f"mine: {text}")


def test_the_older_form():
    with pytest.warns(FutureWarning, match="assert_close"):
        assert_allclose([1.0, float("nan")], T([1.0, float("nan")]))
    with pytest.warns(FutureWarning), pytest.raises(AssertionError):
        assert_allclose([1.0], T([2.0]))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_older_form_has_larger_tolerances():
    for dtype, difference in [(torch.float16, 1.5e-3), (torch.float32, 5e-5), (torch.float64, 5e-6)]:
        assert_allclose(T([1.0], dtype=dtype), T([1.0 + difference], dtype=dtype))
        with pytest.raises(AssertionError):
            assert_allclose(T([1.0], dtype=dtype), T([1.0 + 4 * difference], dtype=dtype))
    with pytest.raises(AssertionError):
        assert_allclose(T([1]), T([2]))
