"""Functions on the parts of distributed tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, wraps
from typing import TypeAlias

import jax

from weft._base.guards import is_tuple
from weft._base.types import AnyCallable, Arg, PyTree, Result
from weft._tensor.tensor import Tensor
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor._dtensor import DTensor
from weft.distributed.tensor._placements import Placement
from weft.errors import PreconditionError, ValueRangeError

LocalPlacements: TypeAlias = Placement | Sequence[Placement] | None
"""The placements of an argument; None for what is no distributed tensor."""

OutPlacements: TypeAlias = Arg
"""The placements of a result, or those of each of several, which only the number of results tells apart."""


def local_map(
    func: AnyCallable | None = None,
    out_placements: OutPlacements = None,
    in_placements: Sequence[LocalPlacements] | None = None,
    in_grad_placements: Sequence[LocalPlacements] | None = None,
    device_mesh: DeviceMesh | None = None,
    *,
    redistribute_inputs: bool = False,
) -> AnyCallable:
    """A function that calls `func` with this process's parts of distributed tensors, and distributes its results.

    `out_placements` are the placements of the result; of several results, a tuple of theirs, None for what is no
    tensor. `in_placements` has those that the flattened arguments must have, None for what is no distributed tensor.
    Others raise `ValueError` or, with `redistribute_inputs`, are moved. `in_grad_placements` says how the processes'
    gradients of each argument form the gradient of the whole. Without distributed arguments, `func` is called as it is.
    Without `func`, the result is a decorator.
    """
    if func is None:
        return partial(
            local_map,
            out_placements=out_placements,
            in_placements=in_placements,
            in_grad_placements=in_grad_placements,
            device_mesh=device_mesh,
            redistribute_inputs=redistribute_inputs,
        )

    @wraps(func)
    def mapped(*args: Arg, **kwargs: Arg) -> Result:
        # None counts as a leaf, so that placements, which have None for what is no tensor, stay aligned with the
        # arguments.
        leaves, structure = jax.tree_util.tree_flatten(args, is_leaf=lambda x: x is None)
        for name, placements in (("in_placements", in_placements), ("in_grad_placements", in_grad_placements)):
            if placements is not None and len(placements) != len(leaves):
                raise PreconditionError(
                    f"{name} length {len(placements)} does not match the number of input args {len(leaves)}!"
                )
        mesh = device_mesh
        parts: list[object] = []
        seen = False
        for at, leaf in enumerate(leaves):
            wanted = None if in_placements is None else in_placements[at]
            if not isinstance(leaf, DTensor):
                if wanted is not None and not isinstance(leaf, Tensor):
                    raise PreconditionError(f"Non-Tensor input {leaf} expects None placements but received {wanted}!")
                parts.append(leaf)
                continue
            seen, mesh = True, mesh or leaf.device_mesh
            placed = leaf if in_placements is None else _placed(leaf, wanted, redistribute_inputs)
            parts.append(placed.to_local(grad_placements=_gradients_of(leaf, in_grad_placements, at)))
        results = func(*jax.tree_util.tree_unflatten(structure, parts), **kwargs)
        return results if not seen or mesh is None else _distributed(results, out_placements, mesh)

    return mapped


def _gradients_of(leaf: DTensor, in_grad_placements: Sequence[LocalPlacements] | None, at: int) -> LocalPlacements:
    if in_grad_placements is None:
        return None
    if in_grad_placements[at] is None:
        raise PreconditionError(f"DTensor input {leaf} expects in grad placements but received None!")
    return in_grad_placements[at]


def _placed(leaf: DTensor, wanted: LocalPlacements, moves: bool) -> DTensor:
    """An argument with the placements that it must have; gradients of a part are this process's own."""
    if wanted is None:
        raise PreconditionError(f"DTensor input {leaf} expects placements but received None!")
    placements = tuple([wanted] if isinstance(wanted, Placement) else wanted)
    if leaf.placements == placements:
        return leaf
    if not moves:
        raise ValueRangeError(
            f"arg {leaf} in local_map has a mismatched placements: arg placements is {leaf.placements} but the input "
            f"placements is {placements}! If redistribute_inputs is wanted, set redistribute_inputs=True to local_map."
        )
    return leaf.redistribute(placements=placements)


def _by_result(placements: Arg, count: int) -> tuple[LocalPlacements, ...]:
    """What was given for so many results, as a tuple."""
    return (placements,) if count == 1 and not _is_single(placements) else tuple(placements)


def _is_single(placements: object) -> bool:
    return is_tuple(placements) and len(placements) == 1


def _distributed(results: PyTree, out_placements: OutPlacements, mesh: DeviceMesh) -> PyTree:
    leaves, structure = jax.tree_util.tree_flatten(results, is_leaf=lambda x: x is None)
    of_leaves = _by_result(out_placements, len(leaves))
    if len(of_leaves) != len(leaves):
        raise PreconditionError(
            f"local_map: func has {len(leaves)} results, and out_placements are for {len(of_leaves)}"
        )
    wrapped: list[object] = []
    for leaf, placements in zip(leaves, of_leaves, strict=True):
        if isinstance(leaf, Tensor):
            wrapped.append(DTensor.from_local(leaf, mesh, placements))
        elif placements is not None:
            raise PreconditionError(f"Non-tensor output {leaf} expects None placements but received {placements}!")
        else:
            wrapped.append(leaf)
    return jax.tree_util.tree_unflatten(structure, wrapped)
