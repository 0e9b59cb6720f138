"""Maxima and minima of compiled programs are NaN where there is one, whichever way the program came about."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import weft as torch
from weft._base import config
from weft.nn import functional
from weft.ops._kernels import library

pytestmark = pytest.mark.compiled

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture(params=[False, True], ids=["by XLA", "by kernels"], autouse=True)
def native(request, monkeypatch):
    if request.param and not library.available():
        pytest.skip(f"the native kernels are {library.status()}")
    monkeypatch.setattr(config, "NATIVE", request.param)


def rows(dtype=torch.float32, width=5_000):
    """Three rows, of which the second has a NaN."""
    x = torch.arange(3.0 * width).reshape(3, width) % 1_999
    x[1, 7] = float("nan")
    return x.to(dtype)


def where_nan(*tensors):
    return [t.isnan().tolist() for t in tensors]


SECOND = [False, True, False]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_and_columns(dtype):
    x = rows(dtype)
    assert where_nan(x.amax(1), x.amin(1), x.max(1).values, x.min(1).values, *x.aminmax(dim=1)) == [SECOND] * 6
    assert where_nan(x.t().amax(0), torch.linalg.vector_norm(x, float("inf"), 1)) == [SECOND] * 2
    assert where_nan(x.max(), x.min(), x[0].max()) == [True, True, False]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.bool], ids=str)
def test_other_types_are_as_they_were(dtype):
    x = (torch.arange(9_000).reshape(3, 3_000) % 251).to(dtype)
    array = x.numpy()
    assert x.amax(1).tolist() == array.max(1).tolist()
    assert x.amin(0).tolist() == array.min(0).tolist()
    if dtype is not torch.bool:
        assert torch.maximum(x, x.flip(0)).tolist() == np.maximum(array, array[::-1]).tolist()


def test_in_transforms():
    x = rows()
    assert where_nan(torch.func.vmap(torch.amax)(x), torch.func.vmap(lambda row: row.max(0).values)(x)) == [SECOND] * 2
    value, tangent = torch.func.jvp(lambda x: x.amax(1), (x,), (torch.ones_like(x),))
    assert where_nan(value) == [SECOND]
    assert tangent.tolist()[::2] == [1, 1]
    leaf = x.clone().requires_grad_()
    leaf.max(1).values.sum().backward()
    assert leaf.grad.nonzero().tolist() == [[0, 1_998], [1, 7], [2, int(x[2].argmax())]]


def test_what_sums_add_up():
    """XLA's library takes what is computed element by element before a sum, too."""
    x = rows()
    target = -torch.ones_like(x)
    assert (
        where_nan(
            functional.hinge_embedding_loss(x, target),
            functional.margin_ranking_loss(x, x.flip(1), target),
            functional.relu(x).sum(),
            torch.maximum(x, target).sum(),
            x.clamp(0, 1).sum(),
        )
        == [True] * 5
    )


def test_pools():
    x = rows()[:, None]
    for pooled in (functional.max_pool1d(x, 3), functional.adaptive_max_pool1d(x, 1), functional.max_pool1d(x, 5_000)):
        assert pooled.isnan().any(-1).reshape(-1).tolist() == SECOND


def test_functions_of_jax():
    def body(x):
        window = lax.reduce_window(x, -jnp.inf, lax.max, (1, 4), (1, 4), "VALID")
        return jnp.max(x, 1), jnp.sum(jnp.maximum(x, 0), 1), jnp.sum(jnp.minimum(0, x), 1), jnp.max(window, 1)

    x = rows()
    assert where_nan(*torch.from_jax(body)(x)) == [SECOND] * 4
    assert [np.isnan(y).tolist() for y in jax.jit(torch.to_jax(body_of_tensors))(x.numpy())] == [SECOND] * 2
    sizes = jax.jit(lambda x: (jnp.max(x[:0], 0, initial=3.0), lax.reduce_max(x[:, :0], (1,))))(x.numpy())
    assert [np.unique(y).tolist() for y in sizes] == [[3], [-np.inf]]


def body_of_tensors(x):
    return x.amax(1), functional.relu(x).sum(1)


def test_exported_programs_need_no_kernel():
    class Largest(torch.nn.Module):
        def forward(self, x):
            return body_of_tensors(x)

    x = rows()
    program = torch.export.export(Largest(), (x,))
    assert where_nan(*program(x)) == [SECOND] * 2
    assert "weft_extremes" not in program.exported.mlir_module()
    free = torch.export.export(Largest(), (x,), dynamic_shapes={"x": {1: torch.export.Dim("width")}})
    assert where_nan(*free(x)) == [SECOND] * 2


def test_a_loop_that_is_compiled_on_the_way(monkeypatch):
    """The same answer before and after a program is compiled."""
    monkeypatch.setattr(config, "TIER", "auto")
    x = rows()[1]
    answers = []
    for _ in range(40):
        y = x
        for _ in range(10):
            y = torch.tanh(y) * 1.5
        answers.append(y.max().item())
    assert all(map(np.isnan, answers))


_SPLIT = """
import numpy as np, jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from weft._lazy import runtime
from weft.ops._replicas import AXIS, reduced
mesh = Mesh(np.array(jax.devices()), "d")
x = np.arange(40_000, dtype=np.float32).reshape(4, 10_000)
x[1, 7] = np.nan
for spec in (P("d", None), P(None, "d")):
    split = jax.device_put(x, NamedSharding(mesh, spec))
    print([np.isnan(jax.jit(lambda x: jnp.max(x, axis))(split)).sum().item() for axis in (None, 0, 1)])
    print(jax.jit(lambda x: jnp.max(x.astype(int)[:1]))(split).item())
for dtype in ("float16", "bfloat16", "float32", "float64"):
    for sign, word in ((1, "max"), (-1, "min")):
        reduce = lambda x: reduced(x.astype(dtype), word)
        both = jax.jit(jax.shard_map(reduce, mesh=Mesh(mesh.devices, AXIS), in_specs=P(AXIS), out_specs=P()))
        y = np.array([[1.0, -2, np.nan, 0, np.inf], [-3, 4, 5, -0.0, -np.inf]]) * sign
        assert (np.asarray(both(y), float)[0] * sign).tolist().__repr__() == "[1.0, 4.0, nan, 0.0, inf]", both(y)
"""


def test_arrays_that_are_split_over_devices(native):
    environment = dict(os.environ, XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")
    done = subprocess.run([sys.executable, "-c", _SPLIT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n") == ["[1, 1, 1]", "9999"] * 2 + [""]
