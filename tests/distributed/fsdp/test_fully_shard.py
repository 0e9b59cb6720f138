"""Fully sharded data parallelism computes what one process computes, with the fewest collectives."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import weft as torch
from tests.distributed.fsdp.models import Chain, assert_equal, batch, loss_of, pair, sharded, step
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from weft.distributed.tensor import DTensor, Replicate, Shard
from weft.distributed.tensor.debug import CommDebugMode
from weft.utils.checkpoint import checkpoint

GATHER, SCATTER, REDUCE = "all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"
HYBRID = ("replicate", "shard")


def own(x, mesh):
    return x.chunk(mesh.size())[mesh.get_rank()]


# --- equality with one process ---


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize(
    ("shape", "reshards", "backward_gathers"),
    [((4,), None, 2), ((4,), True, 3), ((4,), False, 0), ((4,), 2, 3), ((2, 2), None, 2)],
    ids=["default", "reshard", "keep", "two_ranks_keep", "hybrid"],
)
def test_training_is_that_of_one_process(shape, reshards, backward_gathers, kind):
    def program(mesh):
        plain, model = pair(mesh=mesh, reshard_after_forward=reshards)
        model.set_reshard_after_forward(True, recurse=False) if reshards in (True, 2) else None
        optimizers = [getattr(torch.optim, kind)(m.parameters(), lr=0.05) for m in (plain, model)]
        for _ in range(3):
            step(plain, optimizers[0], batch())
            optimizers[1].zero_grad()
            with CommDebugMode() as mode:
                loss = loss_of(model, own(batch(), mesh))
                assert mode.get_comm_counts() == {GATHER: 3}
                loss.backward()
                reduced = {REDUCE: 3} if len(shape) == 2 else {}
                assert mode.get_comm_counts() == {GATHER: 3 + backward_gathers, SCATTER: 3, **reduced}
                optimizers[1].step()
            assert mode.get_total_counts() == 6 + backward_gathers + 3 * (len(shape) == 2)
        assert_equal(plain, model)
        assert all(
            state["exp_avg"].to_local().shape[0] < 7 for state in optimizers[1].state.values() if kind == "AdamW"
        )

    on_mesh(shape, program, HYBRID[-len(shape) :])


def test_parts_may_be_empty():
    def program(mesh):
        model = fully_shard(nn.Linear(3, 2), mesh=mesh)
        return model.weight.placements, tuple(model.weight.to_local().shape), tuple(model.bias.to_local().shape)

    shard = (Shard(0),)
    assert on_mesh((3,), program) == [(shard, (1, 3), (1,))] * 2 + [(shard, (0, 3), (0,))]


def test_other_dims_are_sharded_where_a_function_says_so():
    def program(mesh):
        torch.manual_seed(0)
        plain = nn.Linear(5, 2).double()
        model = fully_shard(
            copy.deepcopy(plain), mesh=mesh, shard_placement_fn=lambda p: Shard(-1) if p.ndim == 2 else None
        )
        assert (model.weight.placements, model.weight.to_local().shape[1]) == ((Shard(1),), [2, 2, 1][mesh.get_rank()])
        x = torch.randn(3, 5, dtype=torch.float64)
        loss_of(plain, x).backward()
        loss_of(model, x).backward()
        assert_equal(plain, model, gradients=True)

    on_mesh((3,), program)


@pytest.mark.parametrize("waits", ["gradient_sync", "all_reduce"])
def test_gradients_accumulate_without_communication(waits):
    def program(mesh):
        plain, model = pair(mesh=mesh)
        with CommDebugMode() as mode:
            for at in range(3):
                loss_of(plain, batch() + at).backward()
                getattr(model, f"set_requires_{waits}")(at == 2)
                loss_of(model, own(batch(), mesh) + at).backward()
                assert at == 2 or all(parameter.grad is None for parameter in model.parameters())
        assert_equal(plain, model, gradients=True)
        counts = mode.get_comm_counts()
        assert (counts[SCATTER], counts[REDUCE]) == (3 if waits == "gradient_sync" else 9, 3)

    on_mesh((2, 2), program, HYBRID)


def test_gradients_accumulate_where_passes_reduce_too():
    def program(mesh):
        plain, model = pair(mesh=mesh)
        model.set_reshard_after_backward(False)
        for at in range(2):
            loss_of(plain, batch() + at).backward()
            loss_of(model, own(batch(), mesh) + at).backward()
        assert not isinstance(model.last.weight, DTensor)  # it was not resharded
        model.set_reshard_after_backward(True)
        loss_of(plain, batch()).backward()
        loss_of(model, own(batch(), mesh)).backward()
        assert_equal(plain, model, gradients=True)

    on_mesh((2,), program)


def test_mixed_precision():
    def program(mesh):
        seen = []
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        model = Chain()
        model.blocks[0][0].register_forward_hook(lambda layer, x, y: seen.append((x[0].dtype, layer.weight.dtype)))
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        outer = MixedPrecisionPolicy(torch.bfloat16, torch.float32, output_dtype=torch.float32)
        fully_shard(model, mesh=mesh, mp_policy=outer, offload_policy=CPUOffloadPolicy())
        with CommDebugMode() as mode:
            y = model(torch.randn(4, 6))
            gathered = mode.get_bytes()
            y.sum().backward()
        assert (y.dtype, seen) == (torch.float32, [(torch.bfloat16, torch.bfloat16)])
        assert {p.grad.dtype for p in model.parameters()} == {p.dtype for p in model.parameters()} == {torch.float32}
        parts = sum(-(-p.shape[0] // 2) * p[0].numel() for p in model.parameters())
        assert gathered == 2 * parts  # bytes of bfloat16

    on_mesh((2,), program)


def test_norms_are_clipped_by_one_all_reduce():
    def program(mesh):
        plain, model = pair(mesh=mesh)
        loss_of(plain, batch()).backward()
        loss_of(model, own(batch(), mesh)).backward()
        before = nn.utils.clip_grad_norm_(plain.parameters(), 0.1).item()
        with CommDebugMode() as mode:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        assert mode.get_comm_counts() == {REDUCE: 1}
        np.testing.assert_allclose(norm.item(), before, rtol=1e-12)
        assert_equal(plain, model, gradients=True)

    on_mesh((4,), program)


# --- what else may happen between ---


def test_parameters_are_gathered_again_for_checkpointed_blocks():
    class Checkpointed(Chain):
        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = checkpoint(block, x)
            return self.last(x)

    def program(mesh):
        torch.manual_seed(0)
        plain = Checkpointed().double()
        model = sharded(copy.deepcopy(plain), mesh=mesh)
        with CommDebugMode() as mode:
            loss_of(model, own(batch(), mesh)).backward()
        assert mode.get_comm_counts() == {GATHER: 5, SCATTER: 3}
        loss_of(plain, batch()).backward()
        assert_equal(plain, model, gradients=True)

    on_mesh((2,), program)


def test_shared_and_frozen_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.middle, self.out = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=False)
            self.out.weight = self.words.weight
            self.middle.bias.requires_grad_(False)

        def forward(self, x):
            return self.out(self.middle(self.words(x)))

    def program(mesh):
        torch.manual_seed(0)
        plain, tokens = Tied().double(), torch.tensor([[1, 2], [3, 6]])
        model = copy.deepcopy(plain)
        fully_shard(model.middle, mesh=mesh)
        fully_shard(model, mesh=mesh)
        assert model.out.weight is model.words.weight
        loss_of(plain, tokens).backward()
        loss_of(model, own(tokens, mesh)).backward()
        assert model.middle.bias.grad is None
        for parameter in (plain.middle.bias, model.middle.bias):
            parameter.grad = torch.zeros_like(parameter)
        assert_equal(plain, model, gradients=True)

    on_mesh((2,), program)


def test_evaluations_and_passes_over_one_graph():
    def program(mesh):
        plain, model = pair(mesh=mesh)
        first, second = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (plain, model))
        x = batch()
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                assert torch.allclose(model(x), plain(x))
            step(plain, first, x), step(model, second, own(x, mesh))
            assert_equal(plain, model)
        losses = [loss_of(m, y) + loss_of(m, y + 1) for m, y in ((plain, x), (model, own(x, mesh)))]
        for loss in losses:
            loss.backward(retain_graph=True)
            loss.backward()
        assert_equal(plain, model, gradients=True)

    on_mesh((2,), program)


def test_unused_parameters_keep_no_gradient_unless_they_take_part_with_zeros():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x)

    def program(mesh):
        model = fully_shard(Half(), mesh=mesh)
        model(torch.ones(1, 2)).sum().backward()
        assert model.unused.weight.grad is None
        model.set_reduce_scatter_unused_params(True)
        model(torch.ones(1, 2)).sum().backward()
        assert model.unused.weight.grad.full_tensor().tolist() == [[0, 0], [0, 0]]

    on_mesh((2,), program)


def test_prefetching_changes_no_number_and_no_count():
    def program(mesh):
        plain, model = pair(mesh=mesh)
        model.set_modules_to_forward_prefetch([model.blocks[0]])
        model.blocks[0].set_modules_to_forward_prefetch([model.blocks[1]])
        model.blocks[1].set_modules_to_backward_prefetch([model.blocks[0]])
        with CommDebugMode() as mode:
            loss_of(model, own(batch(), mesh)).backward()
        assert mode.get_comm_counts() == {GATHER: 5, SCATTER: 3}
        loss_of(plain, batch()).backward()
        assert_equal(plain, model, gradients=True)

    on_mesh((2,), program)


def test_a_module_is_unsharded_by_hand():
    def program(mesh):
        _, model = pair(mesh=mesh)
        block = model.blocks[0]
        handle = block.unshard(async_op=True)
        handle.wait()
        assert isinstance(block[0].weight, nn.Parameter)
        assert not isinstance(block[0].weight, DTensor)
        block.reshard()
        assert isinstance(block[0].weight, DTensor)
        assert block.unshard() is None

    on_mesh((2,), program)


def test_other_methods_and_several_modules_in_one_group():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 3), nn.Linear(3, 1)

        def forward(self, x):
            return self.b(self.a(x))

        def encode(self, x):
            return self.a(x) * 2

    def program(mesh):
        torch.manual_seed(0)
        plain = Two()
        model = copy.deepcopy(plain)
        fully_shard([model.a, model.b], mesh=mesh)
        fully_shard(model, mesh=mesh)
        register_fsdp_forward_method(model, "encode")
        x = torch.ones(1, 2)
        with CommDebugMode() as mode:
            loss_of(model, x).backward()
        assert mode.get_comm_counts() == {GATHER: 2, SCATTER: 1}
        loss_of(plain, x).backward()
        assert_equal(plain, model, gradients=True)
        assert torch.allclose(model.encode(x), plain.encode(x))

    on_mesh((2,), program)


def test_divisors_and_hooks():
    def program(mesh):
        layer = nn.Linear(2, 1, bias=False)
        model = fully_shard(layer, mesh=mesh)
        model.set_gradient_divide_factor(1.0)
        model(torch.ones(1, 2)).sum().backward()
        summed = model.weight.grad.full_tensor().tolist()
        model.set_all_reduce_hook(lambda buffer: buffer.zero_())
        model.weight.grad = None
        model(torch.ones(1, 2)).sum().backward()
        return summed, model.weight.grad.full_tensor().tolist()

    assert on_mesh((2,), program) == [([[2, 2]], [[0, 0]])] * 2


# --- state ---


def test_state_dicts_have_parts_and_take_parts_or_wholes():
    def program(mesh):
        plain, model = pair(mesh=mesh)
        other = sharded(Chain().double(), mesh=mesh)
        loss_of(model, batch())
        loss_of(other, batch())  # the outermost parameters are whole now
        state = model.state_dict()
        assert all(isinstance(value, DTensor) for value in state.values())
        other.load_state_dict(state)
        assert_equal(plain, other)
        other.load_state_dict(Chain().double().state_dict())
        other.load_state_dict(plain.state_dict())
        assert_equal(plain, other)
        optimizers = [torch.optim.AdamW(m.parameters()) for m in (model, other)]
        step(model, optimizers[0], own(batch(), mesh))
        optimizers[1].load_state_dict(optimizers[0].state_dict())
        other.load_state_dict(model.state_dict())
        for m, optimizer in zip((model, other), optimizers, strict=True):
            step(m, optimizer, own(batch(), mesh))
        assert_equal(model, other)
        assert model.float()(torch.ones(1, 6)).dtype is torch.float32

    on_mesh((2,), program)


def test_after_an_error_the_next_step_is_right():
    def program(mesh):
        plain, model = pair(mesh=mesh)
        with pytest.raises(RuntimeError, match="shape"):
            model(torch.ones(2, 5, dtype=torch.float64))
        assert all(isinstance(parameter, DTensor) for parameter in model.blocks.parameters())
        model.reset_iter_state()
        loss_of(plain, batch()).backward()
        loss_of(model, own(batch(), mesh)).backward()
        assert_equal(plain, model, gradients=True)

    on_mesh((2,), program)


def test_a_sharded_module_is_still_of_its_class():
    def program(mesh):
        model = fully_shard(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), mesh=mesh)
        assert isinstance(model, FSDPModule)
        assert isinstance(model, nn.Sequential)
        assert type(model).__name__ == "FSDPSequential"
        assert type(model[:1]) is nn.Sequential

    on_mesh((1,), program)


def test_ignored_parameters_stay():
    def program(mesh):
        layer = nn.Linear(2, 2)
        model = fully_shard(layer, mesh=mesh, ignored_params={layer.bias})
        assert not isinstance(model.bias, DTensor)
        return model.weight.placements

    assert on_mesh((2, 1), program, HYBRID) == [(Replicate(), Shard(0))] * 2
