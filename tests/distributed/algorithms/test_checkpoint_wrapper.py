"""Modules that are computed again in the backward pass, by wrapping them."""

from __future__ import annotations

import copy
from functools import partial

import pytest

import weft as torch
from weft import nn
from weft.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    CheckpointWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from weft.distributed.fsdp.wrap import size_based_auto_wrap_policy


def model():
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 1))


def gradients(module, x):
    module.zero_grad()
    module(x).sum().backward()
    return [p.grad.tolist() for p in module.parameters()]


@pytest.mark.parametrize("implementation", CheckpointImpl)
def test_gradients_and_names_are_as_without(implementation):
    plain, x = model(), torch.ones(2, 3)
    wrapped = copy.deepcopy(plain)
    apply_activation_checkpointing(
        wrapped,
        checkpoint_wrapper_fn=partial(checkpoint_wrapper, checkpoint_impl=implementation),
        check_fn=lambda module: isinstance(module, nn.Linear),
    )
    assert [type(one) for one in (wrapped[0], wrapped[1], wrapped[1][0])] == [
        CheckpointWrapper,
        nn.Sequential,
        CheckpointWrapper,
    ]
    assert gradients(wrapped, x) == gradients(plain, x)
    assert wrapped[0].in_features == 3
    assert checkpoint_wrapper(wrapped[1])[1] is wrapped[1][1]
    assert [name for name, _ in wrapped[0].named_parameters()] == ["weight", "bias"]
    assert list(wrapped.state_dict()) == list(plain.state_dict())
    wrapped.load_state_dict(model().state_dict())
    plain.load_state_dict(wrapped.state_dict())
    assert gradients(wrapped, x) == gradients(plain, x)


def test_activations_on_the_host():
    plain, x = model(), torch.ones(2, 3)
    assert gradients(offload_wrapper(copy.deepcopy(plain)), x) == gradients(plain, x)


def test_policies_and_functions_of_users():
    chain, calls = model(), []

    def counted(function, *args, text):
        calls.append(text)
        return function(*args)

    apply_activation_checkpointing(
        chain,
        partial(checkpoint_wrapper, checkpoint_fn=counted, text="a"),
        auto_wrap_policy=partial(size_based_auto_wrap_policy, min_num_params=20),
    )
    assert [isinstance(child, CheckpointWrapper) for child in (*chain, chain[1][0])] == [False, False, False, True]
    chain(torch.ones(2, 3))
    assert calls == ["a"]
