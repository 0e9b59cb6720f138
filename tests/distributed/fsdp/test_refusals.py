"""What `FullyShardedDataParallel` refuses, with PyTorch's exceptions."""

from __future__ import annotations

import pytest

import weft as torch
import weft.distributed as dist
from tests.distributed.refusals import refuses
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.device_mesh import init_device_mesh
from weft.distributed.fsdp import (
    FullStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from weft.distributed.fsdp import FullyShardedDataParallel as FSDP
from weft.distributed.fsdp.wrap import CustomPolicy, always_wrap_policy, enable_wrap


def linear():
    return nn.Linear(2, 2)


def parameter():
    return nn.Parameter(torch.ones(2))


def ran():
    """A wrapper in a wrapper, after a forward pass."""
    model = FSDP(nn.Sequential(FSDP(linear()), linear()))
    model(torch.ones(1, 2))
    return model


def enters(context):
    with context:
        pass


def nested_wraps():
    with enable_wrap(wrapper_cls=FSDP), enable_wrap(wrapper_cls=FSDP):
        pass


def differing_settings():
    model = nn.Sequential(FSDP(linear()), FSDP(linear()))
    FSDP.set_state_dict_type(model[0], StateDictType.SHARDED_STATE_DICT)
    FSDP.get_state_dict_type(model)


class Summons(nn.Module):
    """A module that asks for whole parameters while it runs."""

    def __init__(self):
        super().__init__()
        self.inner = linear()
        self.wrappers = []

    def forward(self, x):
        enters(FSDP.summon_full_params(self.wrappers[0]))
        return self.inner(x)


def summons_in_a_pass():
    module = Summons()
    module.wrappers.append(FSDP(module))
    module.wrappers[0](torch.ones(1, 2))


def mixed_configs():
    FSDP.set_state_dict_type(FSDP(linear()), StateDictType.FULL_STATE_DICT, ShardedStateDictConfig())


HYBRID = {"sharding_strategy": ShardingStrategy.HYBRID_SHARD}

CASES = [
    (ValueError, "both process_group and device_mesh", lambda mesh: FSDP(linear(), dist.group.WORLD, device_mesh=mesh)),
    (ValueError, "requires explicit specification", lambda mesh: FSDP(linear(), **HYBRID)),
    (ValueError, "requires explicit specification", lambda mesh: FSDP(linear(), dist.group.WORLD, **HYBRID)),
    (ValueError, "both ignored_modules", lambda mesh: FSDP(linear(), ignored_modules=[], ignored_states=[])),
    (ValueError, "got types", lambda mesh: FSDP(linear(), ignored_states=[linear(), parameter()])),
    (ValueError, "got types", lambda mesh: FSDP(linear(), ignored_modules=[parameter()])),
    (TypeError, "iterable", lambda mesh: FSDP(linear(), ignored_modules=3)),
    (ValueError, "not include FSDP", lambda mesh: FSDP(linear(), ignored_modules=[FSDP(linear())])),
    (ValueError, "to be callable", lambda mesh: FSDP(linear(), param_init_fn=42)),
    (
        ValueError,
        "already have FSDP applied but found 0",
        lambda mesh: FSDP(nn.Sequential(FSDP(linear())), auto_wrap_policy=always_wrap_policy),
    ),
    (ValueError, "it returned 3", lambda mesh: FSDP(linear(), auto_wrap_policy=CustomPolicy(lambda module: 3))),
    (NotImplementedError, "already within an autowrap", lambda mesh: nested_wraps()),
    (RuntimeError, "on inner FSDP instances", lambda mesh: enters(ran().module[0].no_sync())),
    (RuntimeError, "on the root", lambda mesh: ran().module[0].clip_grad_norm_(1.0)),
    (NotImplementedError, "not supported", lambda mesh: enters(FSDP.summon_full_params(linear(), rank0_only=True))),
    (AssertionError, "during forward/backward", lambda mesh: summons_in_a_pass()),
    (RuntimeError, "Expected state_dict_config", lambda mesh: mixed_configs()),
    (AssertionError, "the same state dict settings", lambda mesh: differing_settings()),
    (RuntimeError, "Missing key", lambda mesh: FSDP(linear()).load_state_dict({})),
    (
        RuntimeError,
        r"still on meta device: \['0.weight', '0.bias'\]",
        lambda mesh: fully_shard(nn.Sequential(nn.Linear(2, 2, device="meta"), linear()), mesh=mesh)(torch.ones(1, 2)),
    ),
]


@pytest.mark.parametrize(("kind", "text", "call"), CASES)
def test_exceptions_are_those_of_pytorch(kind, text, call):
    on_mesh((1,), lambda mesh: refuses(lambda: call(mesh), kind, text))


def test_parameters_of_the_meta_device_are_sharded_and_then_made():
    def program(mesh):
        model = fully_shard(nn.Linear(2, 2, device="meta"), mesh=init_device_mesh("cpu", (2,)))
        model.to_empty(device="cpu")
        model.reset_parameters()
        return model(torch.ones(1, 2)).shape

    assert on_mesh((2,), program) == [(1, 2)] * 2


def test_equal_settings_are_told():
    def program(mesh):
        model = nn.Sequential(FSDP(linear()), FSDP(linear()))
        FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig())
        return FSDP.get_state_dict_type(model).state_dict_type

    assert on_mesh((1,), program) == [StateDictType.FULL_STATE_DICT]
