"""Functions on parts, and shardings that users state."""

from __future__ import annotations

import pytest

import weft as torch
import weft.distributed._functional_collectives as functional
from tests.distributed.tensor.threads import on_mesh
from weft.distributed.device_mesh import init_device_mesh
from weft.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from weft.distributed.tensor._register import _stated
from weft.distributed.tensor.experimental import implicit_replication, local_map, register_sharding


def test_a_function_on_parts():
    def program(mesh):
        w, x = torch.randn(12, 8), torch.randn(8, 16)
        ws, xs = distribute_tensor(w, mesh, [Shard(1)]), distribute_tensor(x, mesh, [Shard(0)])
        w, x = ws.full_tensor(), xs.full_tensor()

        def product(group, a, b):
            return functional.all_reduce(torch.mm(a, b), "sum", group)

        mapped = local_map(product, [Replicate()], (None, [Shard(1)], [Shard(0)]), device_mesh=mesh)
        y = mapped(mesh.get_group(), ws, xs)
        assert y.placements == (Replicate(),)
        assert torch.allclose(y.to_local(), w @ x, atol=1e-5)
        with pytest.raises(ValueError, match="in local_map has a mismatched placements"):
            mapped(mesh.get_group(), xs.t(), xs.redistribute(placements=[Replicate()]))
        moving = local_map(
            product, [Replicate()], (None, [Shard(1)], [Shard(0)]), device_mesh=mesh, redistribute_inputs=True
        )
        whole = moving(mesh.get_group(), ws.redistribute(placements=[Replicate()]), xs)
        assert torch.allclose(whole.to_local(), w @ x, atol=1e-5)

    on_mesh((2,), program)


def test_gradients_of_parts_form_those_of_the_whole_as_stated():
    def program(mesh):
        x = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]).requires_grad_()
        w = distribute_tensor(torch.ones(2, 3), mesh).requires_grad_()

        @local_map(
            out_placements=[Shard(0)],
            in_placements=([Shard(0)], [Replicate()]),
            in_grad_placements=([Shard(0)], [Partial()]),
        )
        def product(a, b):
            return a @ b

        product(x, w).to_local().sum().backward()
        return x.grad.full_tensor().tolist(), w.grad.full_tensor().tolist()

    assert on_mesh((2,), program) == [([[3, 3]] * 4, [[4] * 3] * 2)] * 2


def test_bad_functions_on_parts():
    def program(mesh):
        x = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
        with pytest.raises(
            AssertionError, match=r"^in_placements length 2 does not match the number of input args 1!$"
        ):
            local_map(torch.neg, [Shard(0)], ([Shard(0)], None))(x)
        with pytest.raises(AssertionError, match=r"^Non-tensor output 3 expects None placements but received "):
            local_map(lambda part: 3, [Replicate()])(x)
        with pytest.raises(AssertionError, match="expects placements but received None"):
            local_map(torch.neg, [Shard(0)], (None,))(x)
        with pytest.raises(AssertionError, match="Non-Tensor input 2 expects None placements but received"):
            local_map(torch.mul, [Shard(0)], ([Shard(0)], [Replicate()]))(x, 2)
        with pytest.raises(AssertionError, match="expects in grad placements but received None"):
            local_map(torch.neg, [Shard(0)], ([Shard(0)],), (None,))(x)
        other = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (1, 2)), [Replicate(), Shard(0)])
        assert local_map(torch.add, [Shard(0)])(x, other).device_mesh == mesh
        both = local_map(lambda part: (part * 2, part.shape[0]), ([Shard(0)], None))(x)
        assert isinstance(both[0], DTensor)
        assert both[1] == 2
        assert local_map(lambda a: a + 1, [Shard(0)])(1) == 2

    on_mesh((2,), program)


def test_a_stated_sharding_takes_the_place_of_the_rule():
    def program(mesh):
        x = distribute_tensor(torch.arange(12.0).reshape(4, 3), mesh, [Shard(0)])
        return torch.cumsum(x, 1).placements, torch.cumsum(x, 1).full_tensor().tolist()

    usual = on_mesh((2,), program)

    @register_sharding(torch.cumsum)
    def whole_only(input, dim, dtype):
        assert input.ndim == 2
        return [([Replicate()], [Replicate(), None, None])]

    try:
        stated = on_mesh((2,), program)
    finally:
        _stated.clear()
    assert [placements for placements, _ in usual] == [(Shard(0),)] * 2
    assert stated == [((Replicate(),), usual[0][1])] * 2
    with pytest.raises(TypeError, match="register_sharding takes an operator of the table"):
        register_sharding(print)


def test_plain_tensors_stand_for_replicated_ones_in_a_block():
    def program(mesh):
        x = distribute_tensor(torch.arange(6.0).reshape(3, 2), mesh, [Shard(0)]).requires_grad_()
        plain = torch.full((3, 2), 2.0)
        with implicit_replication():
            y = x * plain
            y.sum().backward()
        assert y.placements == (Shard(0),)
        assert x.grad.full_tensor().tolist() == plain.tolist()
        with pytest.raises(RuntimeError, match="got mixed"):
            x * plain

    on_mesh((2,), program)
