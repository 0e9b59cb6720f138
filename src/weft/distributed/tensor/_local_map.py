"""Functions on the parts of distributed tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import jax

from weft._tensor.tensor import Tensor
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor._dtensor import DTensor
from weft.distributed.tensor._placements import Placement
from weft.errors import PreconditionError, ValueRangeError


def local_map(
    func: Callable[..., Any],
    out_placements: Any,
    in_placements: Sequence[Any] | None = None,
    device_mesh: DeviceMesh | None = None,
    *,
    redistribute_inputs: bool = False,
) -> Callable[..., Any]:
    """A function that calls `func` with this process's parts of distributed tensors, and distributes its results.

    `out_placements` are the placements of the result; of several results, a tuple of theirs, None for what is no
    tensor. `in_placements` has those that the flattened arguments must have, or None. Others raise `ValueError` or,
    with `redistribute_inputs`, are moved. Without distributed arguments, `func` is called as it is.
    """

    @wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = jax.tree_util.tree_flatten(args)
        if in_placements is not None and len(in_placements) != len(leaves):
            raise PreconditionError(
                f"in_placements length {len(in_placements)} does not match the number of input args {len(leaves)}!"
            )
        mesh = device_mesh
        parts: list[Any] = []
        seen = False
        for at, leaf in enumerate(leaves):
            if not isinstance(leaf, DTensor):
                parts.append(leaf)
                continue
            seen, mesh = True, mesh or leaf.device_mesh
            if leaf.device_mesh != mesh:
                raise PreconditionError(f"arg {leaf} in local_map is on {leaf.device_mesh}, and another on {mesh}")
            wanted = None if in_placements is None else in_placements[at]
            parts.append(_placed(leaf, wanted, redistribute_inputs).to_local())
        results = func(*jax.tree_util.tree_unflatten(structure, parts), **kwargs)
        return results if not seen or mesh is None else _distributed(results, out_placements, mesh)

    return mapped


def _placed(leaf: DTensor, wanted: Any, moves: bool) -> DTensor:
    """An argument with the placements that it must have; gradients of a part are this process's own."""
    if wanted is None:
        return leaf
    placements = tuple([wanted] if isinstance(wanted, Placement) else wanted)
    if leaf.placements == placements:
        return leaf
    if not moves:
        raise ValueRangeError(
            f"arg {leaf} in local_map has a mismatched placements: arg placements is {leaf.placements} but the input "
            f"placements is {placements}! If redistribute_inputs is wanted, set redistribute_inputs=True to local_map."
        )
    return leaf.redistribute(placements=placements)


def _distributed(results: Any, out_placements: Any, mesh: DeviceMesh) -> Any:
    leaves, structure = jax.tree_util.tree_flatten(results, is_leaf=lambda x: x is None)
    is_single = len(leaves) == 1 and not (isinstance(out_placements, tuple) and len(out_placements) == 1)
    of_leaves = (out_placements,) if is_single else tuple(out_placements)
    if len(of_leaves) != len(leaves):
        raise PreconditionError(
            f"local_map: func has {len(leaves)} results, and out_placements are for {len(of_leaves)}"
        )
    wrapped: list[Any] = []
    for leaf, placements in zip(leaves, of_leaves, strict=True):
        if isinstance(leaf, Tensor):
            if placements is None:
                raise PreconditionError("local_map: a result that is a tensor needs placements, but they are None")
            wrapped.append(DTensor.from_local(leaf, mesh, placements))
        elif placements is not None:
            raise PreconditionError(f"Non-tensor output {leaf} expects None placements but received {placements}!")
        else:
            wrapped.append(leaf)
    return jax.tree_util.tree_unflatten(structure, wrapped)
