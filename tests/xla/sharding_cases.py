"""Cases of tensors that are split over the four devices of one process. As a program, it does what the tests say."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import weft as torch
import weft.xla.core.xla_model as xm
import weft.xla.distributed.parallel_loader as pl
import weft.xla.distributed.spmd as xs
import weft.xla.runtime as xr
from tests.distributed.processes import Cases, serve
from weft import nn

case = Cases()
DEVICE = torch.device("xla:0")
A = np.arange(48, dtype=np.float32).reshape(8, 6) / 48
B = np.arange(24, dtype=np.float32).reshape(6, 4) - 12


def grid() -> xs.Mesh:
    return xs.Mesh(range(4), (2, 2), ("data", "model"))


def on_device(array):
    return torch.from_numpy(array.copy()).to(DEVICE)


def spec_of(tensor):
    """How the computed tensor is split; None if it is on one device."""
    sharding = tensor._array().sharding
    return P(*sharding.spec) if isinstance(sharding, jax.sharding.NamedSharding) else None


@case
def a_product_of_split_matrices_is_split():
    xr.use_spmd()
    assert xr.is_spmd()
    x, w, b = on_device(A), on_device(B), on_device(np.ones(4, np.float32))
    assert xs.mark_sharding(x, grid(), ("data", None)) is x
    xs.mark_sharding(w, grid(), (None, 1))
    y = x @ w + b  # of `b`, each device gets the whole
    xm.mark_step()
    assert spec_of(y) == P("data", "model")
    assert [part.data.shape for part in y._array().addressable_shards] == [(4, 2)] * 4
    np.testing.assert_allclose(y.cpu().numpy(), A @ B + 1, rtol=1e-5)
    assert y.sum().item() == pytest.approx((A @ B + 1).sum(), rel=1e-5)


def trained(shard):
    """Losses, gradients and weights, with or without splitting."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    if shard:
        xs.mark_sharding(model[0].weight, grid(), ("model", None))
        xs.mark_sharding(model[2].weight, grid(), (None, "model"))
    losses = []
    for _ in range(3):
        x = on_device(A)
        if shard:
            xs.mark_sharding(x, grid(), ("data", None))
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        xm.mark_step()
        losses.append(loss.item())
    return losses, model


@case
def a_split_model_trains_as_a_whole_one():
    expected, whole = trained(shard=False)
    losses, split = trained(shard=True)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for ours, theirs in zip(split.parameters(), whole.parameters(), strict=True):
        np.testing.assert_allclose(ours.detach().cpu(), theirs.detach().cpu(), rtol=1e-4, atol=1e-6)
    assert split[0].weight.is_leaf
    assert spec_of(split[0].weight)[0] == spec_of(split[0].weight.grad)[0] == "model"
    assert spec_of(whole[0].weight) is None


@case
def a_dim_along_several_axes():
    x = xs.mark_sharding(on_device(A), grid(), (("model", "data"), None))
    shards = {part.device.id: part.data for part in x._array().addressable_shards}
    assert [part.shape for part in shards.values()] == [(2, 6)] * 4
    np.testing.assert_array_equal(shards[2], A[2:4])  # at 1 along "data", 0 along "model"
    np.testing.assert_array_equal(x.cpu(), A)


@case
def tensors_on_different_meshes_meet():
    x = xs.mark_sharding(on_device(A), grid(), ("data", None))
    backwards = xs.Mesh([3, 2, 1, 0], (4,))
    w = xs.mark_sharding(on_device(B.T), backwards, (0, None))
    np.testing.assert_allclose((x @ w.T).cpu(), A @ B, rtol=1e-5)


@case
def sharding_is_cleared():
    x = xs.mark_sharding(on_device(A), xs.get_1d_mesh(), (0, None))
    assert xs.clear_sharding(x) is x
    assert spec_of(x) is None
    assert spec_of(x + 1) is None
    np.testing.assert_array_equal(x.cpu(), A)


@case
def pending_tensors_are_computed():
    x = on_device(A).requires_grad_(True)
    y = x * 2
    xs.mark_sharding(y, grid(), ("data", "model"))
    assert spec_of(y) == P("data", "model")
    y.square().sum().backward()
    np.testing.assert_allclose(x.grad.cpu(), 8 * A, rtol=1e-5)


@case
def batches_are_split():
    rows = xs.ShardingSpec(grid(), ("data", None))
    batches = [(torch.from_numpy(A + i), torch.arange(8)) for i in range(2)]
    for i, (x, labels) in enumerate(pl.MpDeviceLoader(batches, DEVICE, input_sharding=rows)):
        assert (spec_of(x), spec_of(labels)) == (P("data", None), None)  # it has one dim, and the specification two
        np.testing.assert_array_equal(x.cpu(), A + i)
    each = {"x": rows, "label": xs.ShardingSpec(grid(), ("model",))}
    (batch,) = pl.MpDeviceLoader([{"x": torch.ones(4, 2), "label": torch.arange(8)}], DEVICE, input_sharding=each)
    assert (spec_of(batch["x"]), spec_of(batch["label"])) == (P("data", None), P("model"))
    with pytest.raises(
        ValueError, match=r"^input_sharding has the keys \['x', 'label'\], so a batch must be a dict with"
    ):
        xm.send_cpu_data_to_device({"x": torch.ones(4, 2)}, DEVICE, each)


@case
def meshes():
    mesh = xs.Mesh(np.array([2, 3, 0, 1]), (4, 1), ("x", "y"))
    assert dict(mesh.shape()) == {"x": 4, "y": 1}
    assert (mesh.size(), mesh.get_axis_name_idx("y"), mesh.get_axis_name_idx("z")) == (4, 1, None)
    assert mesh.get_logical_mesh().tolist() == [[2], [3], [0], [1]]
    hybrid = xs.HybridMesh(ici_mesh_shape=(2, 2), dcn_mesh_shape=(1, 1), axis_names=("data", "model"))
    assert (dict(hybrid.shape()), hybrid.get_logical_mesh().tolist()) == ({"data": 2, "model": 2}, [[0, 1], [2, 3]])
    assert dict(xs.get_1d_mesh().shape()) == {0: 4}
    assert dict(xs.get_1d_mesh("data").shape()) == {"data": 4}
    assert xs.get_global_mesh() is None
    xs.set_global_mesh(mesh)
    assert xs.get_global_mesh() is mesh


@case
def mistakes_of_sharding_are_told():
    x = on_device(A)
    for message, call in {
        r"^Mesh: mesh_shape \(2, 2\) needs each device from 0 to 3 once, got \[0, 1, 2\]$": lambda: xs.Mesh(
            range(3), (2, 2)
        ),
        r"^Mesh: mesh_shape \(2, 2\) needs 2 different axis_names, got \('a', 'a'\)$": lambda: xs.Mesh(
            range(4), (2, 2), ("a", "a")
        ),
        r"^HybridMesh: the devices of this process are one slice, so dcn_mesh_shape must be 1 for each": lambda: (
            xs.HybridMesh(ici_mesh_shape=(2, 1), dcn_mesh_shape=(2, 1))
        ),
        r"^\(2,\) is not mappable over 4 devices\.$": lambda: xs.mark_sharding(x, xs.Mesh(range(2), (2,)), (0, None)),
        r"^Partition spec length \(1\) should be equal to the input rank \(2\)\.$": lambda: xs.mark_sharding(
            x, grid(), ("data",)
        ),
        r"^Each device mesh dimension should appear at most once in partition_spec \('data', 0\)\.$": lambda: (
            xs.mark_sharding(x, grid(), ("data", 0))
        ),
        r"^axis 2 is out of bounds for a mesh of shape \(2, 2\)$": lambda: xs.mark_sharding(x, grid(), (2, None)),
    }.items():
        with pytest.raises(AssertionError, match=message):
            call()
    with pytest.raises(
        ValueError, match=r"^Axis name rows is not defined in the given mesh; it has \['data', 'model'\]$"
    ):
        xs.mark_sharding(x, grid(), ("rows", None))
    with pytest.raises(
        RuntimeError, match=r"^mark_sharding: a tensor of size \[3, 6\] cannot be split into equal parts"
    ):
        xs.mark_sharding(x[:3], grid(), ("data", None))
    with pytest.raises(RuntimeError, match=r"^mark_sharding: the tensor is on cpu; move it to xla_device\(\) first$"):
        xs.mark_sharding(torch.ones(4), grid(), ("data",))
    with pytest.raises(TypeError, match=r"^mark_sharding: the first argument must be a Tensor, got ndarray$"):
        xs.mark_sharding(np.ones(4), grid(), ("data",))
    with pytest.raises(TypeError, match=r"^input_sharding must be a ShardingSpec, or a dict of them by the keys"):
        xm.send_cpu_data_to_device([torch.ones(4)], xm.xla_device(), [xs.ShardingSpec(grid(), ("data",))])
    with pytest.warns(UserWarning, match=r"^use_spmd: auto-sharding is XLA's on TPUs only"):
        xr.use_spmd(auto=True)


if __name__ == "__main__":
    serve("the process", {function.__name__: function for function in case})
