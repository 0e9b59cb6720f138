"""`x[index]` and `x[index] = values`."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from weft._base.device import CPU
from weft._base.dtype import BOOL, COMPLEX, INTEGER, bool_, int32, int64, uint8
from weft._base.limits import limits
from weft._base.overriding import Overridden
from weft._base.site import UNTIL_USER, end_at_user, warn_user
from weft._base.state import ambient
from weft._base.types import Arg
from weft._dispatch import apply
from weft._lazy.aligned import copied
from weft._lazy.aval import Aval, aval_of
from weft._lazy.call import ONE, many
from weft._lazy.infer import Call, call_of, signature_of
from weft._lazy.native import native
from weft._lazy.value import Value
from weft._tensor.alias import owner_of, spreads
from weft._tensor.codegen import op
from weft._tensor.convert import from_host, moved, tensor
from weft._tensor.dim_names import label_of, names_of, set_names
from weft._tensor.indexing import IndexPlan, normalise_index
from weft._tensor.kind_names import advice, kind_of
from weft._tensor.overriding import dispatched, require_not_overridden
from weft._tensor.pieces import slice_at
from weft._tensor.scalar import fitting, number
from weft._tensor.tensor import Tensor, placed_with, wrap
from weft._tensor.view import put, write, written
from weft._tensor.write_checks import check_overlap, check_writable
from weft.errors import ArgumentError, DimNameError, DTypeError
from weft.ops._table import TABLE
from weft.ops._type_names import c_name, scalar_name


def nonzero_dims(mask: Tensor) -> tuple[Tensor, ...]:
    """For each dim of a mask, the coordinates of its nonzero elements; they have the name of a mask's only dim.

    Waits for the elements, since their number is the size of the result.
    """
    if mask.dtype is uint8:
        warn_user("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
    hosted = [from_host(places.astype(np.int64), mask.device) for places in np.nonzero(mask.detach()._host())]
    places = tuple(placed_with(mask, place) for place in hosted)
    return tuple(set_names(place, names_of(mask)) for place in places) if len(places) == 1 else places


def require_mask_names(x: Tensor, masks: Sequence[Tensor], dims: Sequence[int]) -> None:
    """Raise `RuntimeError` where a mask has another name than the dim of `x` that it covers, from each of `dims` on."""
    for mask, first in zip(masks, dims, strict=True):
        covered = names_of(x)[first : first + mask.ndim]
        for own, other in zip(covered, names_of(mask), strict=True):
            if own is not None and other is not None and own != other:
                raise DimNameError(
                    f"The names of the mask {list(names_of(mask))} do not match those of the dims {list(covered)} of "
                    f"the indexed {label_of(x)}"
                )


def placed_index(x: Tensor, index: Tensor) -> Tensor:
    """An index tensor for `x`: from the CPU, or with a single element, it is moved to the device of `x`."""
    held, target = index.device, x.device
    if held == target or (held != CPU and index.ndim):
        return index
    return moved(index, target)


def _plan(x: Tensor, index: object) -> IndexPlan:
    def make(item: object) -> Tensor:
        if isinstance(item, Tensor):
            return item if item.dtype in (bool_, uint8) else placed_index(x, item)
        require_not_overridden(item)
        return placed_with(x, tensor(item, device=x.device))

    def nonzero(mask: Tensor) -> list[Tensor]:
        return [placed_index(x, places) for places in nonzero_dims(mask)]

    return normalise_index(index, x.shape, make, nonzero, all_slices=ambient().capture is not None)


def _walked(x: Tensor, plan: IndexPlan) -> Tensor:
    for step in plan.steps:
        x = getattr(op, step.row)(x, **step.static, **step.scalars)
    require_mask_names(x, plan.masks, plan.mask_dims)
    return x


_OPERANDS: tuple[type, ...] = (Tensor, int, float, complex, np.generic)
_DATA: tuple[type, ...] = (np.ndarray, list, tuple)


def getitem(x: Tensor, index: object) -> Tensor:
    """`x[index]`: a view for ints, slices, `...` and None; a new tensor if the index has tensors or lists."""
    try:
        if native is not None:
            view = native.getitem(x, index)
            if view is not None:
                return view
        if type(index) is int:  # the most common case; the plan refuses indices out of range
            sizes = x._read().aval.size
            if sizes and -sizes[0] <= index < sizes[0]:
                return slice_at(x, 0, index % sizes[0])
        plan = _plan(x, index)
        view = _walked(x, plan)
        if plan.indices:
            _note_indices(plan.spec)
            return op.index(view, indices=plan.indices, spec=plan.spec)
        return view if plan.steps else op.alias(x)
    except Overridden as signal:
        return dispatched(signal)
    except UNTIL_USER as error:
        end_at_user(error)
        raise


def setitem(x: Tensor, index: Arg, values: Arg) -> None:
    """Write `values`, a tensor or a number that broadcasts to the shape of `x[index]`."""
    try:
        if native is not None and native.setitem(x, index, values):
            return
        if index is False:
            return
        if index is True:
            index = None
        if not isinstance(values, _OPERANDS):
            if not isinstance(values, _DATA):
                require_not_overridden(values)
                raise ArgumentError(
                    f"can't assign a {kind_of(values)} to a torch.{scalar_name(x.dtype)}Tensor{advice(values)}"
                )
            values = placed_with(x, tensor(values, dtype=x.dtype, device=x.device))
        if isinstance(index, Tensor) and index.dtype is bool_ and index.shape == x.shape and _is_single(values):
            _fill_call(x._read().aval)
            write(x, op.masked_fill(x, placed_index(x, index), values)._read())
            return
        plan = _plan(x, index)
        if not plan.indices and _assigned(x, plan, values):
            return
        target = _walked(x, plan)
        if not plan.indices:
            if values is target:
                check_writable(x, ambient().grad)
                return
            write(target, _filled(target, values)._read())
            return
        source: Arg = values
        if not isinstance(values, Tensor):
            source = placed_with(x, _number_like(x, values))
        source = as_filling(x, plan.masks, len(plan.indices), source)
        if not source.ndim:
            source = placed_index(x, source)
        while source.ndim and source.shape[0] == 1:  # as in PyTorch, leading dims of size one are dropped
            source = op.squeeze(source, 0)
        check_overlap(target, [source, *plan.indices], wholly=True)
        _note_indices(plan.spec)
        write(target, op.index_put(target, indices=plan.indices, values=source, spec=plan.spec)._read())
    except Overridden as signal:
        return dispatched(signal)
    except UNTIL_USER as error:
        end_at_user(error)
        raise


def _assigned(x: Tensor, plan: IndexPlan, values: object) -> bool:
    """Write to a part of a tensor where it takes a few operators: outside of any graph, without copying the values.

    Loops over elements write so. False if it is not done, because a gradient may flow, somebody watches, or the values
    are to be converted: then the part becomes a tensor first, which is written to like any other.
    """
    state, alias = ambient(), x._alias
    base = x if alias is None else alias.base
    old = base._read()
    if state.watched or state.inference or state.context.transform or old.role is not None or old.aval.inference:
        return False
    aval = x._read().aval  # a distributed tensor may be a view of a plain one, and the reverse
    if old.aval.owner is not None or aval.owner is not None or old.aval.names is not None:
        return False
    if old.aval.external:  # a write to the part, as a tensor, goes to its memory alone
        return False
    if alias is not None and spreads(x):
        return False
    steps = () if alias is None else alias.steps
    # The type of the part follows from signatures alone: nothing is recorded until it is sure that the write is done.
    for step in plan.steps:
        call, others = step.applied()
        if call.op.check.elements is not None:  # it reads a tensor's elements: `apply` alone runs or records that
            return False
        aval = signature_of(call, (aval, *[other.aval for other in others])).outputs[0].aval
        steps = (*steps, (call, others))
    if isinstance(values, Tensor):
        value = values._read()
        if value.aval is not aval or value.role is not None or owner_of(values) is owner_of(x):
            return False
    else:
        value = _filling_value(aval, values)
    put(base, written(steps, old, value), state.grad)
    return True


def _number_like(x: Tensor, number: Arg) -> Tensor:
    """A number in the type of a tensor, on its device."""
    return wrap(_filling_value(aval_of((), x.dtype, device=x.device), number))


def _filling_value(aval: Aval, x: Arg) -> Value:
    """A value of a type that is a number everywhere."""
    return apply(_fill_call(aval), (number(fitting(x, aval.dtype)),))[0]


def _fill_call(aval: Aval) -> Call:
    """The call that fills a type with a number. It is noted for the extension, with the range of numbers that fit."""
    fill = call_of(TABLE["full"], (tuple(aval.shape), ONE, aval.dtype), aval.device)
    dtype = aval.dtype
    if dtype.category != COMPLEX and aval not in _fills:
        if len(_fills) >= _MOST_FILLS:
            _fills.clear()
        least, most = (-inf, inf) if dtype.category == BOOL else map(float, limits(dtype))
        if dtype.category == INTEGER and not least:
            least = -most  # negative numbers wrap around
        _fills[aval] = fill, least, most, dtype.is_floating_point
    return fill


# no cell: a cache, keyed by all that its entries depend on
_fills: dict[Aval, tuple[Call, float, float, bool]] = {}
_MOST_FILLS = 4096


def _note_indices(dims: tuple[int, ...]) -> None:
    """Note the calls for index tensors of these dims, for the extension."""
    if dims not in _index_calls and len(_index_calls) < _MOST_FILLS:
        indices = many(len(dims))
        get = call_of(TABLE["index"], (ONE, indices, dims))
        put = call_of(TABLE["index_put"], (ONE, indices, ONE, dims, False))
        _index_calls[dims] = get, put


# no cell: a cache, keyed by all that its entries depend on
_index_calls: dict[tuple[int, ...], tuple[Call, Call]] = {}

if native is not None:
    native.bind(fills=_fills, index_calls=_index_calls, copied_array=copied, bool_=bool_, int32=int32, int64=int64)
    native.bind(masked_fill_call=call_of(TABLE["masked_fill"], (ONE, ONE, ONE)))


def as_filling(x: Tensor, masks: Sequence[Tensor], indices: int, values: Tensor) -> Tensor:
    """`values` for a write at `indices` index tensors; in the type of `x` if a mask is filled with a single number.

    That requires one element, and one bool mask from which all indices were made.
    """
    if values.numel() != 1 or len(masks) != 1 or masks[0].ndim != indices:
        return values
    if masks[0].dtype is not bool_:
        raise DTypeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {c_name(masks[0].dtype)}")
    return values if values.dtype is x.dtype else op.to_dtype(values, x.dtype)


def delitem(x: Tensor, index: object) -> None:
    """Raises `TypeError`: elements of a tensor cannot be deleted."""
    raise ArgumentError("Tensor does not support deleting items")


def _is_single(values: object) -> bool:
    return not isinstance(values, Tensor) or values.ndim == 0


def _filled(target: Tensor, values: Arg) -> Tensor:
    if not isinstance(values, Tensor):
        return op.fill(target, values)
    lead = values.ndim - target.ndim
    if lead > 0 and all(size == 1 for size in values.shape[:lead]):  # as in PyTorch, these dims are dropped
        values = op.squeeze(values, tuple(range(lead)))
    source = values
    if owner_of(source) is owner_of(target):
        source = op.expand(source, target.shape)  # check_overlap compares tensors of one shape
    check_overlap(target, [source])
    return op.copy(target, moved(values, target.device))
