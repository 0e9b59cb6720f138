"""Recorders: calls that the extension sorts are those that the generated functions sort."""

from __future__ import annotations

import math
from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft as torch
from weft._lazy.native import native
from weft._tensor import codegen, convert
from weft._tensor.recorders import recorder_of
from weft.ops._kinds import REQUIRED, Kind
from weft.ops._table import TABLE

pytestmark = pytest.mark.skipif(native is None, reason="the extension is not built, or turned off")

MATRIX, WHOLE, MASK = torch.arange(6.0).reshape(2, 3), torch.tensor([[0, 1, 0], [1, 0, 1]]), torch.tensor([True, False])
TENSORS = [MATRIX, WHOLE, MASK, torch.tensor(2.0), torch.nn.Parameter(torch.ones(3)), MATRIX.t()]
ODD = [None, "x", 1 + 2j, np.float32(0.5), np.int64(1), True, 2**70, [1, "a"], object(), math.nan]
BY_KIND = {
    Kind.ARRAY: TENSORS,
    Kind.OPERAND: [*TENSORS, 2, 0.5, True],
    Kind.SCALAR: [1, 0, -1, 0.5, 1.0, 0.0, 1e-5, True, 2],
    Kind.ARRAYS: [[MATRIX], [MATRIX, MATRIX], (MATRIX, WHOLE), [], [MATRIX, 1]],
    Kind.DIM: [0, 1, -1, 2, 5, True],
    Kind.DIMS: [0, -1, (0, 1), [1], (), (0, True)],
    Kind.SHAPE: [(), (2, 3), [3, 2], torch.Size([2]), 3, (-1,), (2, True), (2**70,)],
    Kind.DTYPE: [None, torch.float32, torch.int64, torch.float16, float, torch.bool, torch.quint8],
    Kind.STATIC: [0, 1, 2, -1, True, False, 0.5, 1.0, "mean", "none", (1, 1), [1, 2], (0,), None],
}


@cache
def rows():
    """The rows that have recorders, and draw no random numbers."""
    names = [name for name, op in TABLE.items() if recorder_of(op, codegen._variadic(op)) is not None]
    return [name for name in names if all(p.kind is not Kind.KEY for p in TABLE[name].params)]


def outcome(function, args, kwargs):
    """What a call records, or raises."""
    try:
        results = function(*args, **kwargs)
    except Exception as error:
        return type(error), str(error)
    several = results if isinstance(results, tuple) else (results,)
    values = [x._value for x in several]
    return [(v.origin, [(x.aval, None if x.aval.weak else id(x)) for x in v.inputs], v.role) for v in values]


@pytest.fixture(scope="module")
def functions():
    """For a row, its function with a recorder and without; generated once."""
    pairs = {}

    def pair(name):
        if name not in pairs:
            op = TABLE[name]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(codegen, "recorder_of", lambda *_: None)
                plain = codegen._compiled(op, name.rpartition("::")[2])
            pairs[name] = codegen._compiled(op, name.rpartition("::")[2]), plain
        return pairs[name]

    return pair


def drawn_arguments(op, random):
    """Arguments for a row: nearly all of a kind that it takes."""
    args, kwargs = [], {}
    for param in op.params:
        is_required = param.default is REQUIRED
        if not is_required and random.random() < 0.5:
            continue
        value = random.choice(ODD if random.random() < 0.1 else BY_KIND[param.kind])
        if param.keyword_only or kwargs or not is_required:
            kwargs[param.name] = value
        else:
            args.append(value)
    return args, kwargs


@pytest.mark.filterwarnings("ignore")
@given(seed=st.integers(0, 2**32))
def test_a_recorded_call_is_what_the_generated_function_records(functions, seed):
    random, names = Random(seed), rows()
    for _ in range(20):
        name = random.choice(names)
        recorded, plain = functions(name)
        args, kwargs = drawn_arguments(TABLE[name], random)
        with torch.set_grad_enabled(random.random() < 0.5):
            assert outcome(recorded, args, kwargs) == outcome(plain, args, kwargs)


NUMBERS = st.one_of(
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.integers(-3, 3),
    st.floats(),
    st.sampled_from([1j, np.float32(2), "a"]),
)
NESTED = st.recursive(
    NUMBERS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner)), max_leaves=6
)
DTYPES = [
    None,
    torch.float32,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.bool,
    torch.bfloat16,
    torch.complex64,
    float,
]


@given(data=NESTED, dtype=st.sampled_from(DTYPES))
def test_a_new_tensor_of_numbers_is_the_one_that_numpy_makes(data, dtype):
    def made():
        try:
            x = torch.tensor(data, dtype=dtype)
        except Exception as error:
            return type(error), str(error)
        return x.dtype, x.shape, x.view(-1)._host().tobytes() if x.numel() else b""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "new_tensor", convert._no_new_tensor)
        expected = made()
    assert made() == expected


def test_a_draw_is_taken_once_and_in_order():
    torch.manual_seed(3)
    first = [torch.rand(2), torch.randn(2, 2), torch.randint(0, 9, (3,)), torch.bernoulli(torch.full((4,), 0.5))]
    torch.manual_seed(3)
    with torch.device("cpu"):  # which recorders leave to Python
        second = [torch.rand(2), torch.randn(2, 2), torch.randint(0, 9, (3,)), torch.bernoulli(torch.full((4,), 0.5))]
    for a, b in zip(first, second, strict=True):
        assert a.tolist() == b.tolist()


def test_attributes_of_modules_are_found_as_python_finds_them():
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)
            self.register_buffer("seen", torch.zeros(1))

        @property
        def broken(self):
            raise AttributeError("from within")

    class Asked(Own):
        def __getattr__(self, name):
            return "asked" if name == "wished" else super().__getattr__(name)

    module = Own()
    assert module.layer is module._modules["layer"]
    assert module.seen is module._buffers["seen"]
    assert module.layer.weight is module.layer._parameters["weight"]
    for name in ("wished", "broken"):
        with pytest.raises(AttributeError, match=f"'Own' object has no attribute '{name}'"):
            getattr(module, name)
    assert Asked().wished == "asked"
    assert isinstance(Asked().layer, torch.nn.Linear)
    with pytest.MonkeyPatch.context() as patch:  # Python forgets what the extension has set
        patch.setattr(Own, "__getattr__", lambda self, name: name, raising=False)
        assert module.wished == "wished"
    with pytest.raises(AttributeError):
        _ = module.wished
    module.__dict__["layer"] = "mine"
    assert module.layer == "mine"
    del module.__dict__["_parameters"]
    assert module.seen is module._buffers["seen"]
