"""What users get wrong, and what they are told: the exception PyTorch raises, and what was given and expected."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import pytest

import weft as torch

BAD_CALLS = [
    ("torch.ones(2, 3) + torch.ones(4, 3)", RuntimeError, r"tensor a \(2\) must match the size of tensor b \(4\)"),
    ("torch.ones(2, 3) @ torch.ones(4, 5)", RuntimeError, r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 4x5\)"),
    ("torch.ones(2, 2) @ torch.ones(2, 2).double()", RuntimeError, "expected m1 and m2 to have the same dtype"),
    ("torch.cat([torch.ones(2, 2), torch.ones(2, 3)])", RuntimeError, "must match except in dimension 0"),
    ("torch.ones(2).sum(3)", IndexError, r"Dimension out of range \(expected to be in range of \[-1, 0\], but got 3\)"),
    ("torch.softmax(torch.ones(2), dim='a')", TypeError, r"softmax\(\): argument 'dim' must be int, not str$"),
    ("torch.softmax(torch.ones(2))", TypeError, r"^softmax\(\) missing 1 required positional argument: 'dim'$"),
    ("torch.softmax(torch.ones(2), 0, axis=0)", TypeError, r"^softmax\(\) got an unexpected keyword argument 'axis'$"),
    ("torch.zeros(2.5)", TypeError, r"zeros\(\): argument 'size' must be tuple of ints, not float"),
    ("torch.zeros('a')", TypeError, r"zeros\(\): argument 'size' must be tuple of ints, not str"),
    ("torch.randn(2, generator=3)", TypeError, "argument 'generator' must be Generator, not int"),
    ("torch.ones(2).to('meta').cpu()", NotImplementedError, "Cannot copy out of meta tensor; no data! "),
    ("torch.ones(2).to('meta') + torch.ones(2)", RuntimeError, "at least two devices, meta and cpu!"),
    ("torch.ones(2, device='gpux')", RuntimeError, "Expected one of cpu, .* device string: gpux"),
    ("torch.ones(2, device='cpu:99')", RuntimeError, r"cpu:99: this machine has \d+ cpu device\(s\), counted from 0"),
    ("torch.ones(3)[5]", IndexError, "index 5 is out of bounds for dimension 0 with size 3"),
    ("torch.ones(2, 2).item()", RuntimeError, "a Tensor with 4 elements cannot be converted to Scalar"),
    ("int(torch.ones(2))", ValueError, "only one element tensors can be converted to Python scalars"),
    ("torch.ones(2, requires_grad=True).backward()", RuntimeError, "implicitly created only for scalar outputs"),
    ("torch.ones(2).sum().backward()", RuntimeError, "does not require grad and does not have a grad_fn"),
    ("torch.ones(2, requires_grad=True).add_(1)", RuntimeError, "a leaf Variable that requires grad is being used"),
    ("torch.ones(2, dtype=torch.int64).add_(1.5)", RuntimeError, "result type Float can't be cast to the desired"),
    ("torch.ones(2).requires_grad_().numpy()", RuntimeError, "Can't call numpy\\(\\) on Tensor that requires grad"),
    ("torch.tensor([[1], [1, 2]])", ValueError, r"expected sequence of length 1 at dim 1 \(got 2\)"),
    ("torch.linalg.norm(torch.ones(2, 3, 4), 'fro')", RuntimeError, "the input must be 1D or 2D. Got 3D."),
    ("torch.linalg.norm(torch.ones(2, 3, 4), 'nuc')", RuntimeError, "the input must be 1D or 2D. Got 3D."),
    ("torch.nn.functional.pad(torch.ones(2, 3), (1, 1), mode='a')", NotImplementedError, "Unrecognised padding mode a"),
    ("torch.floor(torch.tensor([1j]))", NotImplementedError, "floor is not supported for complex inputs"),
    ("torch.max(torch.tensor([1j]))", NotImplementedError, "does not support complex input"),
    (
        "torch.nn.functional.adaptive_avg_pool2d(torch.zeros(1, 4, 4), (2, 2, 2))",
        ValueError,
        "Input dimension should be at least 4",
    ),
    ("torch.symeig(torch.eye(2))", RuntimeError, r"symeig: .* is now removed; use torch\.linalg\.eigh"),
    ("torch.eye(2).eig()", RuntimeError, r"eig: .* is now removed; use torch\.linalg\.eig,"),
    ("torch.eye(2).lstsq(torch.eye(2))", RuntimeError, r"lstsq: .* is now removed; use torch\.linalg\.lstsq"),
    ("torch.solve(torch.eye(2), torch.eye(2))", RuntimeError, r"solve: .* is now removed; use torch\.linalg\.solve"),
    ("torch.matrix_rank(torch.eye(2))", RuntimeError, r"removed; use torch\.linalg\.matrix_rank"),
    ("torch.save({}, '/nonexistent/x.weft')", RuntimeError, "Parent directory /nonexistent does not exist"),
]


def run(call):
    """What an expression gives, as if it stood in this file."""
    return eval(compile(call, __file__, "eval"), {"torch": torch})


@pytest.mark.parametrize(("call", "error", "text"), BAD_CALLS, ids=[call for call, _, _ in BAD_CALLS])
def test_a_bad_call_is_an_error_at_once(call, error, text):
    with pytest.raises(error, match=text):
        run(call)


@pytest.mark.parametrize(
    "call",
    [
        "torch.ones(2, 3) + torch.ones(4, 3)",
        "torch.ones(2, 3) @ torch.ones(4, 5)",
        "torch.cat([torch.ones(2, 2), torch.ones(2, 3)])",
        "torch.ones(2).add_(torch.ones(3))",
        "torch.ones(2, 3).view(7)",
        "torch.nn.functional.linear(torch.ones(3), torch.ones(2, 2))",
        "torch.ones(3)[5]",
        "torch.ones(2).item()",
        "torch.ones(2, requires_grad=True).backward()",
        "torch.tensor([[1], [1, 2]])",
    ],
)
def test_a_traceback_ends_at_the_users_line(call):
    with pytest.raises(torch.errors.WeftError) as raised:
        run(call)
    assert traceback.extract_tb(raised.value.__traceback__)[-1].filename == __file__
    assert raised.value.__cause__ is None


def test_a_traceback_shows_the_users_functions_that_an_operator_calls():
    class Scaled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return broken()

    def broken():
        return torch.ones(2) + torch.ones(3)

    with pytest.raises(RuntimeError) as raised:
        torch.ones(2).as_subclass(Scaled).add_(1)
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "broken"


def test_full_tracebacks_are_there_on_request():
    shown = subprocess.run(
        [sys.executable, "-c", "import weft; weft.ones(2, 3) + weft.ones(4, 3)"],
        env={**os.environ, "WEFT_FULL_TRACEBACKS": "1"},
        capture_output=True,
        text=True,
    ).stderr
    assert "_dispatch.py" in shown
    assert "incompatible shapes for broadcasting" in shown, "jax's own words"


REFUSALS: dict[str, list[str]] = json.loads(Path(__file__).with_name("refusals.json").read_text())
"""How PyTorch refuses calls, as `python -m tests.oracle.error_inputs` has recorded it: builtin class and text."""


@pytest.mark.parametrize("call", REFUSALS)
def test_a_call_is_refused_in_pytorchs_words(call):
    kind, text = REFUSALS[call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(torch.errors.WeftError) as raised:
            run(call)
    assert isinstance(raised.value, getattr(builtins, kind))
    assert text in str(raised.value)


@pytest.mark.parametrize("kind", [int, float, bool, complex])
def test_pythons_types_stand_for_element_types(kind):
    dtype = {int: torch.int64, float: torch.float64, bool: torch.bool, complex: torch.complex128}[kind]
    assert torch.zeros(2, dtype=kind).dtype is dtype
    assert torch.ones(2).to(kind).dtype is dtype
    assert torch.ones(2).new_zeros(2, dtype=kind).dtype is dtype
    assert torch.full_like(torch.ones(2), 1, dtype=kind).dtype is dtype
    assert torch.promote_types(kind, kind) is dtype
    if kind in (int, float):
        assert torch.arange(3, dtype=kind).dtype is dtype


def test_integers_beyond_int64_are_numbers_as_far_as_uint64():
    assert (torch.ones(2) + 2**63).tolist() == [2.0**63, 2.0**63]
    assert (torch.ones(2, dtype=torch.int64) == 2**63).tolist() == [False, False]
    assert torch.full((2,), 2**63, dtype=torch.float32).tolist() == [2.0**63, 2.0**63]


def test_an_error_of_a_users_function_stays_what_it_is():
    def distance(a, b):
        raise KeyError("mine")

    x = torch.ones(2, 2)
    with pytest.raises(KeyError, match="mine"):
        torch.nn.functional.triplet_margin_with_distance_loss(x, x, x, distance_function=distance)


VALUES = [
    ("torch.ones(3)[torch.tensor([7])]", IndexError, "index.*out of bounds"),
    ("torch.nn.functional.embedding(torch.tensor([4]), torch.ones(3, 2))", IndexError, "index out of range in self"),
    ("torch.ones(2, 2).gather(1, torch.tensor([[2]]))", RuntimeError, "out of bounds"),
    ("torch.arange(3) // 0", RuntimeError, "ZeroDivisionError"),
    ("torch.arange(3) % torch.tensor([1, 0, 1])", RuntimeError, "ZeroDivisionError"),
    ("torch.bernoulli(torch.tensor([2.0]))", RuntimeError, "Expected p_in >= 0 && p_in <= 1"),
]


@pytest.mark.parametrize(("call", "error", "text"), VALUES, ids=[call for call, _, _ in VALUES])
def test_a_bad_value_is_an_error_at_once_where_it_is_at_hand(call, error, text):
    with pytest.raises(error, match=text):
        run(call)
