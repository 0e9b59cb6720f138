"""Replicas without a wrapper."""

from __future__ import annotations

import copy

import pytest

import weft as torch
import weft.distributed as dist
from weft import nn
from weft.distributed._composable import replicate
from weft.distributed._composable.replicate import replicate as by_its_module
from weft.distributed.fsdp import fully_shard


def on_ranks(program):
    def rank(me):
        dist.init_process_group("threads")
        torch.manual_seed(me)
        return program(me)

    return dist.run_threads(rank, nprocs=2)


def model():
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))


def gradients(module, me):
    module(torch.full((1, 2), me + 1.0)).sum().backward()
    return [parameter.grad.tolist() for parameter in module.parameters()]


def test_gradients_are_averaged_and_the_module_stays_itself():
    def program(me):
        module = model()
        names = list(module.state_dict())
        assert replicate(module) is module
        assert type(module).__name__ == "DDPSequential"
        assert isinstance(module, nn.Sequential)
        assert type(module[:1]) is nn.Sequential
        assert list(module.state_dict()) == names
        return gradients(module, me), module[0].weight.tolist()

    first, second = on_ranks(program)
    assert first == second
    assert by_its_module is replicate


def test_passes_that_do_not_synchronise():
    def program(me):
        module = replicate(model())
        gradients(module, me)
        module.zero_grad()
        module.set_requires_gradient_sync(False)
        own = gradients(module, me)
        module.set_requires_gradient_sync(True)
        return own, gradients(module, me)

    (own, averaged), (other, same) = on_ranks(program)
    assert own != other
    assert averaged == same


def fives(state, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer() * 0 + 5)
    return future


def test_modules_that_are_ignored_and_hooks():
    def program(me):
        module = model()
        replicate(module, ignored_modules=[module[1]])
        module.register_comm_hook(None, fives)
        return gradients(module, me)

    (weight, _, own, _), (_, _, other, _) = on_ranks(program)
    assert weight == [[5, 5], [5, 5]]
    assert own != other


def test_what_cannot_be_replicated():
    def program(me):
        module = replicate(model())
        with pytest.raises(AssertionError, match=r"can only be applied to a module once\. replicate has already"):
            replicate(module)
        with pytest.raises(AssertionError, match=r"^DDP does not support deepcopy"):
            copy.deepcopy(module)
        with pytest.raises(
            RuntimeError, match=r"^Expected device_id to be int or torch\.device, but got <class 'str'>$"
        ):
            replicate(model(), device_id="cpu")
        sharded = fully_shard(model())
        with pytest.raises(RuntimeError, match=r"^Cannot apply `replicate\(\)` on a Module already managed by `fully_"):
            replicate(sharded)
        return me

    assert on_ranks(program) == [0, 1]
