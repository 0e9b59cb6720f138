"""Two view operators: a distributed tensor as this process's part, and a part as a distributed tensor.

They move nothing, and only change of what a value is said to be a part. So what is written to either is written to
both, as with any other view, and gradients pass unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

from weft._dispatch import apply
from weft._lazy.aval import Aval, owned
from weft._lazy.call import ONE
from weft._lazy.infer import Call, call_of
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import make_view
from weft.distributed.tensor._sharding import Sharding, type_of
from weft.ops._dims import pointwise
from weft.ops._kinds import Kind, Param
from weft.ops._strides import Layout, row_major
from weft.ops._table import NO_ARITHMETIC, TABLE, OpDef, View

T = TypeVar("T", bound=Tensor)
V = TypeVar("V")


def local_view(tensor: Tensor, sharding: Sharding) -> Tensor:
    """This process's part of a tensor with this sharding, as a view of it."""
    return _view(tensor, call_of(_TO_LOCAL, (ONE, sharding)))


def distributed_view(part: Tensor, sharding: Sharding) -> Tensor:
    """The tensor of which `part` is this process's part, as a view of it."""
    return _view(part, call_of(_FROM_LOCAL, (ONE, sharding)))


def alias_of(tensor: T) -> T:
    """Another handle on all elements, as a view."""
    return _view(tensor, call_of(TABLE["alias"], (ONE,)))  # pyright: ignore[reportReturnType]  sharded as the tensor is


def _view(tensor: Tensor, call: Call) -> Tensor:
    return make_view(wrap(apply(call, (operand(tensor),))[0]), tensor, call, ())


def _same(value: V, *_: object) -> V:
    return value


def _written(base: object, value: V, *_: object) -> V:
    del base
    return value


def _plain_type(avals: Sequence[Aval], sharding: Sharding) -> Aval:
    del sharding
    return owned(avals[0], None)


def _distributed_type(avals: Sequence[Aval], sharding: Sharding) -> Aval:
    return type_of(avals[0], sharding)


def _local_layout(layout: Layout, sharding: Sharding) -> Layout:
    return _resized(layout, sharding.local_shape)


def _whole_layout(layout: Layout, sharding: Sharding) -> Layout:
    return _resized(layout, sharding.size)


def _resized(layout: Layout, sizes: Sequence[int]) -> Layout:
    """The layout with other sizes: the dims keep their order in memory, and the room between their elements."""
    sizes = tuple(sizes)
    if layout.is_contiguous or not prod(sizes) or not prod(layout.sizes):
        return replace(layout, sizes=sizes, strides=row_major(sizes))
    strides = list(layout.strides)
    for dim, stride in enumerate(layout.strides):
        for inner, step in enumerate(layout.strides):
            if step < stride:
                strides[dim] = strides[dim] * sizes[inner] // layout.sizes[inner]
    return replace(layout, sizes=sizes, strides=tuple(strides))


_PARAMS = (Param("input", Kind.ARRAY), Param("sharding", Kind.STATIC))
_TO_LOCAL = OpDef(
    "to_local",
    _same,
    _PARAMS,
    dims=pointwise,
    types=replace(NO_ARITHMETIC, result=_plain_type),
    view=View(_local_layout, write=_written),
)
_FROM_LOCAL = OpDef(
    "from_local",
    _same,
    _PARAMS,
    dims=pointwise,
    types=replace(NO_ARITHMETIC, result=_distributed_type),
    view=View(_whole_layout, write=_written),
)
