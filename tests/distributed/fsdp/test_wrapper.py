"""`FullyShardedDataParallel`, the older wrapper."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest

import weft as torch
from tests.distributed.fsdp.models import Chain, assert_equal, batch, loss_of, step
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel,
    LocalStateDictConfig,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from weft.distributed.fsdp.wrap import (
    CustomPolicy,
    ModuleWrapPolicy,
    always_wrap_policy,
    enable_wrap,
    lambda_auto_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
    wrap,
    wrap_submodules,
)
from weft.distributed.tensor import DTensor
from weft.distributed.tensor.debug import CommDebugMode

GATHER, SCATTER, REDUCE = "all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"
BLOCKS = ModuleWrapPolicy({nn.Sequential})


def own(x, mesh):
    return x.chunk(mesh.size())[mesh.get_rank()]


def pair(**options):
    torch.manual_seed(0)
    plain = Chain().double()
    options = {"auto_wrap_policy": BLOCKS} | options
    return plain, FullyShardedDataParallel(copy.deepcopy(plain), **options)


@pytest.mark.parametrize(
    ("strategy", "shape", "counts"),
    [
        (ShardingStrategy.FULL_SHARD, (2,), {GATHER: 5, SCATTER: 3}),
        (ShardingStrategy.SHARD_GRAD_OP, (2,), {GATHER: 3, SCATTER: 3}),
        (ShardingStrategy.NO_SHARD, (2,), {REDUCE: 3}),
        (ShardingStrategy.HYBRID_SHARD, (2, 2), {GATHER: 5, SCATTER: 3, REDUCE: 3}),
    ],
    ids=str,
)
def test_strategies_train_as_one_process(strategy, shape, counts):
    def program(mesh):
        plain, model = pair(sharding_strategy=strategy, device_mesh=mesh if mesh.ndim == 2 else None)
        optimizers = [torch.optim.AdamW(m.parameters(), lr=0.05) for m in (plain, model)]
        for _ in range(2):
            step(plain, optimizers[0], batch())
            with CommDebugMode() as mode:
                step(model, optimizers[1], own(batch(), mesh))
            assert mode.get_comm_counts() == counts
        assert_equal(plain, model)

    on_mesh(shape, program, ("replicate", "shard")[-len(shape) :])


def test_accumulating_and_clipping():
    def program(mesh):
        plain, model = pair()
        with model.no_sync():
            loss_of(model, own(batch(), mesh)).backward()
        assert all(parameter.grad is None for parameter in model.parameters())
        loss_of(model, own(batch(), mesh)).backward()
        for _ in range(2):
            loss_of(plain, batch()).backward()
        norms = nn.utils.clip_grad_norm_(plain.parameters(), 0.1), model.clip_grad_norm_(0.1)
        np.testing.assert_allclose(norms[1].item(), norms[0].item(), rtol=1e-12)
        assert_equal(plain, model, gradients=True)
        with pytest.raises(RuntimeError, match="on inner FSDP instances is not supported"), model.blocks[0].no_sync():
            pass
        with pytest.raises(RuntimeError, match="should only be called on the root"):
            model.blocks[0].clip_grad_norm_(1.0)

    on_mesh((2,), program)


def test_it_looks_like_the_module_that_it_wraps():
    def program(mesh):
        plain, model = pair()
        assert [name for name, _ in model.named_parameters()] == [name for name, _ in plain.named_parameters()]
        assert model.last.out_features == 1
        assert isinstance(model.blocks[0], FullyShardedDataParallel)
        assert isinstance(model.blocks[0][0], nn.Linear)
        assert [w.check_is_root() for w in FullyShardedDataParallel.fsdp_modules(model)] == [True, False, False]
        assert FullyShardedDataParallel.fsdp_modules(model, root_only=True) == [model]
        with pytest.raises(AttributeError, match="nothing"):
            _ = model.nothing

    on_mesh((1,), program)


def test_whole_parameters_can_be_seen_and_changed():
    def program(mesh):
        plain, model = pair()
        loss_of(model, batch()).backward()
        loss_of(plain, batch()).backward()
        with FullyShardedDataParallel.summon_full_params(model, with_grads=True):
            assert not any(isinstance(parameter, DTensor) for parameter in model.parameters())
            assert_equal(plain, model)
            assert_equal(plain, model, gradients=True)
            with torch.no_grad():
                model.first.weight.fill_(3.0)
        assert set(model.first.weight.full_tensor().ravel().tolist()) == {3.0}
        with FullyShardedDataParallel.summon_full_params(model, writeback=False, rank0_only=True):
            assert isinstance(model.first.weight, DTensor) is (mesh.get_rank() > 0)
        model.apply(lambda m: nn.init.zeros_(m.weight) if isinstance(m, nn.Linear) else None)
        assert model.first.weight.full_tensor().abs().sum().item() == 0

    on_mesh((2,), program)


@pytest.mark.parametrize("kind", StateDictType, ids=lambda kind: kind.name)
def test_state_dicts(kind):
    def program(mesh):
        plain, model = pair()
        _, other = pair()
        optimizers = [torch.optim.AdamW(m.parameters(), lr=0.1) for m in (plain, model, other)]
        step(plain, optimizers[0], batch())
        step(model, optimizers[1], own(batch(), mesh))
        wrapper = FullyShardedDataParallel
        with wrapper.state_dict_type(model, kind), wrapper.state_dict_type(other, kind):
            state = model.state_dict()
            assert list(state) == list(plain.state_dict())
            other.load_state_dict(state)
            saved = wrapper.optim_state_dict(model, optimizers[1])
            assert list(saved["state"]) == list(state)
            loaded = wrapper.optim_state_dict_to_load(other, optimizers[2], saved)
            optimizers[2].load_state_dict(loaded)
        if kind is StateDictType.FULL_STATE_DICT:
            plain.load_state_dict(state)
        step(other, optimizers[2], own(batch(), mesh))
        step(plain, optimizers[0], batch())
        assert_equal(plain, other)

    on_mesh((2,), program)


def test_only_the_first_rank_gets_a_whole_state_dict():
    def program(mesh):
        _, model = pair()
        wrapper = FullyShardedDataParallel
        with wrapper.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)):
            return len(model.state_dict())

    assert on_mesh((2,), program) == [12, 0]


def test_mixed_precision_and_a_common_start():
    def program(mesh):
        torch.manual_seed(mesh.get_rank())
        model = FullyShardedDataParallel(
            nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)),
            mixed_precision=MixedPrecision(torch.bfloat16, torch.float32, torch.float32),
            sync_module_states=True,
        )
        y = model.module[0].weight.full_tensor(), model(torch.ones(2, 2))
        return y[0].tolist(), y[1].dtype

    first, second = on_mesh((2,), program)
    assert first == second


@pytest.mark.parametrize(
    ("policy", "wrapped"),
    [
        (always_wrap_policy, ["blocks", "blocks.0", "blocks.0.0", "blocks.0.1", "blocks.0.2", "first", "last"]),
        (BLOCKS, ["blocks.0"]),
        (partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.LayerNorm}), ["blocks.0.2"]),
        (partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, nn.Tanh)), ["blocks.0.1"]),
        (partial(size_based_auto_wrap_policy, min_num_params=50), ["blocks.0.0"]),
        (CustomPolicy(lambda m: {"name": "own"} if isinstance(m, nn.Tanh) else False), ["blocks.0.1"]),
    ],
    ids=["always", "classes", "transformer", "lambda", "size", "custom"],
)
def test_policies(policy, wrapped):
    class Wrapped(nn.Module):
        def __init__(self, module, name=""):
            super().__init__()
            self.inner = module

    model = Chain(layers=1)
    wrap_submodules(model, policy, Wrapped, (), (), {})
    names = [name.replace(".inner", "") for name, module in model.named_modules() if isinstance(module, Wrapped)]
    assert sorted(names) == wrapped


def test_wrapping_by_annotation():
    made = []
    assert isinstance(wrap(nn.Tanh()), nn.Tanh)
    with enable_wrap(wrapper_cls=lambda module, **options: made.append(options) or module, a=1, b=2):
        wrap(nn.Tanh(), b=3)
        with pytest.raises(NotImplementedError, match="already within an autowrap"), enable_wrap(wrapper_cls=list):
            pass
    assert made == [{"a": 1, "b": 3}]


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: FullyShardedDataParallel(torch.ones(2)), TypeError, "takes a module, but got Tensor"),
        (lambda: FullyShardedDataParallel(nn.Tanh(), sharding_strategy=3), ValueError, "must be a ShardingStrategy"),
        (
            lambda: FullyShardedDataParallel(nn.Tanh(), sharding_strategy=ShardingStrategy.HYBRID_SHARD),
            ValueError,
            "requires explicit specification of process group or device_mesh",
        ),
        (
            lambda: FullyShardedDataParallel(nn.Tanh(), mixed_precision=MixedPrecision(keep_low_precision_grads=True)),
            NotImplementedError,
            "a gradient has the type of its parameter",
        ),
        (
            lambda: FullyShardedDataParallel.set_state_dict_type(
                nn.Tanh(), StateDictType.FULL_STATE_DICT, LocalStateDictConfig()
            ),
            RuntimeError,
            "Expected state_dict_config of type",
        ),
        (
            lambda: FullyShardedDataParallel(
                nn.Sequential(FullyShardedDataParallel(nn.Linear(1, 1))), auto_wrap_policy=BLOCKS
            ),
            ValueError,
            "already have FSDP applied but found",
        ),
        (
            lambda: FullyShardedDataParallel.summon_full_params(nn.Tanh(), rank0_only=True).__enter__(),
            NotImplementedError,
            "writeback=True and rank0_only=True is not supported",
        ),
        (
            lambda: FullyShardedDataParallel(nn.Sequential(nn.Tanh()), auto_wrap_policy=CustomPolicy(lambda m: 3)),
            ValueError,
            "should return False/True or a kwarg dict",
        ),
    ],
)
def test_errors(call, kind, text):
    def program(mesh):
        with pytest.raises(kind, match=text):
            call()

    on_mesh((1,), program)
