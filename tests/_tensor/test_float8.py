"""8-bit floats: they are converted, stored and moved, and not computed with. The answers are PyTorch's."""

from __future__ import annotations

import copy
import io
import math
import pickle

import pytest

import weft as torch
from weft import serialization

TYPES = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)
INF, NAN = math.inf, math.nan
NUMBERS = (3.5, 3.0, 448.0, 465.0, 1000.0, 0.75, 1e-9, -3.0, -465.0, 57344.0, 61440.0, 247.0, 248.0, INF, NAN)
CONVERTED = {
    "float8_e4m3fn": (3.5, 3, 448, 448, 448, 0.75, 0, -3, -448, 448, 448, 240, 256, 448, NAN),
    "float8_e5m2": (3.5, 3, 448, 448, 1024, 0.75, 0, -3, -448, 57344, INF, 256, 256, INF, NAN),
    "float8_e4m3fnuz": (3.5, 3, NAN, NAN, NAN, 0.75, 0, -3, NAN, NAN, NAN, 240, NAN, NAN, NAN),
    "float8_e5m2fnuz": (3.5, 3, 448, 448, 1024, 0.75, 0, -3, -448, 57344, NAN, 256, 256, NAN, NAN),
    "float8_e8m0fnu": (4, 4, 512, 512, 1024, 1, 2**-30, 4, 512, 65536, 65536, 256, 256, NAN, NAN),
}


@pytest.fixture(params=TYPES, ids=lambda dtype: dtype.name)
def dtype(request):
    return request.param


def test_conversion(dtype):
    source = torch.tensor(NUMBERS)
    for x in (source.to(dtype), source.double().to(dtype), torch.tensor(NUMBERS, dtype=dtype), source.type(dtype)):
        assert x.dtype is dtype
        assert x.float().tolist() == pytest.approx(CONVERTED[dtype.name], rel=0, nan_ok=True)
    written = torch.zeros(len(NUMBERS), dtype=dtype)
    written.copy_(source)
    assert written.tolist() == pytest.approx(CONVERTED[dtype.name], rel=0, nan_ok=True)


def test_sizes_and_texts(dtype):
    x = torch.ones(3, dtype=dtype)
    assert (x.itemsize, x.nbytes, x.is_floating_point(), x.is_complex()) == (1, 3, True, False)
    assert repr(dtype) == f"torch.{dtype.name}"
    assert repr(x) == f"tensor([1., 1., 1.], dtype=torch.{dtype.name})"
    assert x.view(torch.uint8).view(dtype).tolist() == [1, 1, 1]
    assert torch.empty(2, dtype=dtype).dtype is torch.full((2,), 3.0, dtype=dtype).dtype is dtype


def test_limits():
    found = {name: torch.finfo(getattr(torch, name)) for name in CONVERTED}
    assert [info.max for info in found.values()] == [448, 57344, 240, 57344, 2.0**127]
    assert [info.min for info in found.values()] == [-448, -57344, -240, -57344, 2.0**-127]
    assert [info.eps for info in found.values()] == [0.125, 0.25, 0.125, 0.25, 1]
    assert [info.tiny for info in found.values()] == [2**-6, 2**-14, 2**-7, 2**-15, 2.0**-127]
    assert {info.bits for info in found.values()} == {8}
    assert repr(found["float8_e5m2"]) == (
        "finfo(resolution=1, min=-57344, max=57344, eps=0.25, smallest_normal=6.10352e-05, tiny=6.10352e-05, "
        "dtype=float8_e5m2)"
    )


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x + x,
        lambda x: x * 2,
        lambda x: -x,
        lambda x: x @ x,
        lambda x: x.exp(),
        lambda x: x.amax(),
        lambda x: x.add_(1),
        lambda x: torch.randn(2, dtype=x.dtype),
        lambda x: torch.arange(3, dtype=x.dtype),
        lambda x: torch.nn.functional.softmax(x, 0),
    ],
)
def test_nothing_is_computed(dtype, compute):
    with pytest.raises(NotImplementedError, match=f"not implemented for 'F{dtype.name[1:]}'"):
        compute(torch.ones(2, dtype=dtype))


def test_nothing_is_promoted(dtype):
    text = f"Promotion for Float8 Types is not supported, attempted to promote torch.{dtype.name} and torch.float32"
    with pytest.raises(RuntimeError, match=text):
        torch.ones(2, dtype=dtype) + torch.ones(2)
    with pytest.raises(RuntimeError, match="Promotion for Float8 Types"):
        torch.promote_types(dtype, torch.int32)
    assert torch.promote_types(dtype, dtype) is dtype
    assert torch.result_type(torch.ones(2, dtype=dtype), 1.5) is dtype
    assert torch.can_cast(dtype, torch.float32)


def test_elements_move(dtype):
    x = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=dtype)
    assert torch.cat([x, x[:1]]).tolist() == [1, 2, 4, 8, 1]
    assert x.view(2, 2).t().tolist() == [[1, 4], [2, 8]]
    assert x[torch.tensor([3, 0])].tolist() == [8, 1]
    assert torch.where(torch.tensor([True, False, True, False]), x, x[0]).tolist() == [1, 1, 4, 1]
    assert x.expand(2, 4).clone().tolist() == [[1, 2, 4, 8]] * 2
    assert (x == torch.tensor([1.0, 2.0, 2.0, 8.0], dtype=dtype)).tolist() == [True, True, False, True]
    assert not x.isnan().any()
    x[1:3] = 16.0
    x[0] = x[3]
    x.view(2, 2)[1].fill_(2)
    assert x.tolist() == [8, 16, 2, 2]


def test_gradients_pass_conversions():
    x = torch.tensor([1.0, 500.0], requires_grad=True)
    y = x.to(torch.float8_e4m3fn)
    assert y.requires_grad
    (y.float() * torch.tensor([2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [2, 3]


def test_files(dtype, tmp_path):
    x = torch.tensor([1.0, 2.0, 4.0], dtype=dtype)
    file = io.BytesIO()
    torch.save({"x": x, "part": x[1:], "dtype": dtype}, file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["dtype"] is loaded["x"].dtype is dtype
    assert (loaded["x"].tolist(), loaded["part"].tolist()) == ([1, 2, 4], [2, 4])
    assert pickle.loads(pickle.dumps(x)).tolist() == copy.deepcopy(x).tolist() == [1, 2, 4]
    serialization.save_file({"x": x}, tmp_path / "x.safetensors")
    again = serialization.load_file(tmp_path / "x.safetensors")["x"]
    assert again.dtype is dtype
    assert again.tolist() == [1, 2, 4]


def test_modules_hold_them():
    layer = torch.nn.Linear(2, 2)
    weight = layer.weight.detach().to(torch.float8_e5m2)
    assert layer.to(torch.float8_e5m2).weight.tolist() == weight.tolist()
    assert layer.state_dict()["weight"].dtype is torch.float8_e5m2
    assert layer.float()(torch.ones(2)).dtype is torch.float32


def test_scaled_products():
    a, b = torch.rand(4, 8), torch.rand(3, 8)
    small = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    wanted = 6 * small[0].float() @ small[1].float().t() + 1
    scales = torch.tensor(2.0), torch.tensor(3.0)
    got = torch._scaled_mm(small[0], small[1].t(), *scales, bias=torch.ones(3), out_dtype=torch.float32)
    assert torch.allclose(got, wanted)
    rows, columns = torch.rand(4, 1), torch.rand(1, 3)
    got = torch._scaled_mm(small[0], small[1].t(), rows, columns, out_dtype=torch.bfloat16)
    assert got.dtype is torch.bfloat16
    assert torch.allclose(got.float(), (small[0].float() @ small[1].float().t()) * rows * columns, rtol=1e-2)
    with pytest.raises(RuntimeError, match=r"_scaled_mm: scale_a must be one number or of size \[4, 1\], got \[3\]"):
        torch._scaled_mm(small[0], small[1].t(), torch.ones(3), scales[1])


@pytest.mark.oracle
def test_every_number_as_in_pytorch(dtype):
    oracle = pytest.importorskip("torch", reason="needs torch", exc_type=ImportError)
    bytes_ = oracle.arange(256, dtype=oracle.uint8)
    theirs = bytes_.view(getattr(oracle, dtype.name)).float()
    ours = torch.arange(256, dtype=torch.uint8).view(dtype)
    assert ours.float().tolist() == pytest.approx(theirs.tolist(), rel=0, nan_ok=True)
    oracle.manual_seed(0)
    numbers = oracle.cat([oracle.randn(500) * scale for scale in (1e-3, 1, 100, 1e4)])
    theirs = numbers.to(getattr(oracle, dtype.name)).float()
    assert torch.tensor(numbers.numpy()).to(dtype).float().tolist() == pytest.approx(
        theirs.tolist(), rel=0, nan_ok=True
    )
