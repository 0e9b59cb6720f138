"""Calls of rows on distributed tensors, compared with the same calls on whole ones."""

from __future__ import annotations

from random import Random

import numpy as np

import weft as torch
from weft._dispatch import apply
from weft._lazy.call import ONE, Exact, many
from weft._lazy.infer import call_of
from weft._tensor.scalar import number
from weft._tensor.tensor import wrap
from weft.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from weft.distributed.tensor._plan import whole_call
from weft.distributed.tensor._propagate import strategies
from weft.distributed.tensor._redistribute import redistributed
from weft.ops._kinds import TENSOR_KINDS, Kind


def call_of_sample(sample):
    """The call of a sample, and its inputs: NumPy arrays, or Python numbers."""
    arrays = iter(sample.arrays)
    static, inputs = [], []
    for param in sample.op.params:
        value = sample.static[param.name]
        if param.kind in TENSOR_KINDS and value is not None:
            count = max(value, -value)
            static.append(ONE if value > 0 else many(count))
            inputs += [np.array(next(arrays)) for _ in range(count)]
        elif param.kind is Kind.SCALAR and value is not None:
            static.append(ONE)
            inputs.append(np.asarray(value).item())
        elif param.kind is Kind.KEY:
            static.append(many(2))
            inputs += [7, 3]
        else:
            static.append(Exact(value) if param.text == "int | float" else value)
    return call_of(sample.op, tuple(static)), inputs


def results(call, inputs):
    """The results of a call on tensors and numbers."""
    return [
        wrap(v) for v in apply(call, tuple(x._read() if isinstance(x, torch.Tensor) else number(x) for x in inputs))
    ]


def any_placements(chance, x, mesh):
    """Placements that a tensor may have."""
    choices = [Replicate(), *(Shard(dim) for dim in range(x.ndim))]
    if x.is_floating_point():
        choices.append(Partial())
    return [chance.choice(choices) for _ in range(mesh.ndim)]


def placed(x, mesh, placements):
    """A distributed tensor with these placements, and the whole one that gradients flow to."""
    leaf = distribute_tensor(x.detach(), mesh).requires_grad_(x.requires_grad)
    sharding = leaf.sharding.with_placements(placements)
    return leaf, wrap(redistributed(leaf._read(), sharding))


def _weighted_sum(outputs, mesh):
    """A number to which every element contributes with another weight."""
    total = 0.0
    for x in outputs:
        weights = torch.from_numpy(np.cos(np.arange(x.numel(), dtype=np.float64)).reshape(tuple(x.shape)))
        if isinstance(x, DTensor):
            weights = distribute_tensor(weights, mesh)
        weighted = x * weights
        total = total + (weighted.abs() if x.is_complex() else weighted).sum()
    return total


def strategies_of(sample, mesh):
    """For each way to run a row over the mesh, of one dim, the placements of the tensors."""
    call, arrays = call_of_sample(sample)
    inputs = [torch.from_numpy(x)._read() if isinstance(x, np.ndarray) else number(x) for x in arrays]
    whole = whole_call(call, [x.aval for x in inputs])
    if whole.rule.factors.separate:
        dims = range(max(len(operand.shape) for operand in whole.operands))
        return [
            [[Shard(dim) if dim < len(operand.shape) else Replicate()] for operand in whole.operands] for dim in dims
        ]
    found = strategies(whole.rule, whole.operands, whole.sizes, mesh.size(), {})
    return [[[placement] for placement in strategy.ins] for strategy in found]


def check(sample, mesh, seed):
    """Require that a row computes the same on parts with any placements as on whole tensors."""
    _, arrays = call_of_sample(sample)
    chance = Random(f"{sample.op.name} {seed} {mesh.shape}")
    tensors = [torch.from_numpy(x) for x in arrays if isinstance(x, np.ndarray)]
    check_with(sample, mesh, [any_placements(chance, x, mesh) for x in tensors])


def check_with(sample, mesh, placements):
    """Require that a row computes the same on parts with these placements as on whole tensors, gradients included."""
    call, arrays = call_of_sample(sample)
    plain = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in arrays]
    leaves, parts, told = [], [], placements
    rest = iter(placements)
    for x in plain:
        if not isinstance(x, torch.Tensor):
            parts.append(x)
            continue
        counts = sample.op.name.endswith("_step") and not x.ndim  # how often an optimizer has stepped has no gradient
        x.requires_grad_(sample.op.derivative.exists and x.dtype.is_differentiable and not counts)
        leaf, part = placed(x, mesh, next(rest))
        leaves.append((x, leaf))
        parts.append(part)
    wanted, outputs = results(call, plain), results(call, parts)
    for a, b in zip(outputs, wanted, strict=True):
        assert a.shape == b.shape
        _equal(a.detach().full_tensor(), b.detach(), told)
    smooth = [pair for pair in zip(outputs, wanted, strict=True) if pair[1].requires_grad]
    if not smooth:
        return
    _weighted_sum([b for _, b in smooth], mesh).backward()
    _weighted_sum([a for a, _ in smooth], mesh).backward()
    for x, leaf in leaves:
        assert (x.grad is None) == (leaf.grad is None), told
        if x.grad is not None:
            assert leaf.grad.placements == leaf.placements
            _equal(leaf.grad.full_tensor(), x.grad, told)


def _equal(a, b, told):
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6, atol=1e-8, err_msg=str(told))
