"""Clipping of gradients."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable, Sequence
from math import inf
from typing import Any

from weft._base.dtype import float32, promote_types
from weft._base.guards import is_a
from weft._base.state import using
from weft._tensor.codegen import op
from weft._tensor.convert import tensor
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, GradientError


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    items = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for p in items:
        if not is_a(p, Tensor):
            raise ArgumentError(f"clipping gradients: parameters must be Tensors, not {kind_and_advice(p)}")
    return [p.grad for p in items if p.grad is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors as one vector, zero-dim. `RuntimeError` for a non-finite norm if `error_if_nonfinite`."""
    del foreach
    items = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not items:
        return tensor(0.0)
    with using(grad=False):
        # Tensors of one mesh are reduced together, by one all-reduce; meshes cannot meet in one operator.
        norms = [_norm(together, float(norm_type)) for together in _by_mesh(items)]
        total = norms[0] if len(norms) == 1 else op.vector_norm(op.stack(norms), float(norm_type))
    # Only then is a number read, which ends the recorded program.
    if error_if_nonfinite and not bool(op.isfinite(total)):
        raise GradientError(
            f"The total norm of order {float(norm_type)} for gradients from `parameters` is non-finite, so it cannot "
            "be clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


def _by_mesh(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """The tensors that are distributed over one mesh of processes each; plain ones are together, too."""
    groups: dict[Any, list[Tensor]] = {}
    for x in tensors:
        groups.setdefault(x._read().aval.mesh, []).append(x)
    return list(groups.values())


def _norm(tensors: Sequence[Tensor], order: float) -> Tensor:
    """The norm of all tensors as one vector. Of distributed ones, processes exchange the sum of their parts' powers."""
    if tensors[0]._read().aval.mesh is None or not 0 < order < inf:
        return op.vector_norm(op.stack([op.vector_norm(x, order) for x in tensors]), order)
    wide = [x.to(promote_types(x.dtype, float32)) for x in tensors]
    total = op.sum(op.stack([op.sum(x.abs() ** order) for x in wide])) ** (1 / order)
    return total.to(tensors[0].dtype)


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients, whose norm is `total_norm`, down to the norm `max_norm`; a smaller norm is left alone."""
    del foreach
    with using(grad=False):
        factor = op.clamp_max(max_norm / (total_norm + 1e-6), 1.0)
        for grad in _grads(parameters):
            grad.mul_(factor)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients such that their total norm is at most `max_norm`; returns the norm before scaling."""
    items = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if isinstance(parameters, Generator) and not items:
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    total = get_total_norm(_grads(items), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(items, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The deprecated name of `clip_grad_norm_`."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clip gradients to the range ±`clip_value`."""
    del foreach
    with using(grad=False):
        for grad in _grads(parameters):
            grad.clamp_(-clip_value, clip_value)
