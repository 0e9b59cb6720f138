"""Collation: making a batch from samples."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Hashable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._base.dtype import float64
from weft._base.types import AnyCallable, PyTree
from weft._lazy.aligned import room_like
from weft._tensor.codegen import op
from weft._tensor.convert import as_tensor, from_host, tensor
from weft._tensor.dim_names import names_of, set_names
from weft._tensor.kind_names import advice
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError, UnsupportedCallError
from weft.utils.data._utils.info import get_worker_info

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import Batch, Index, Sample


np_str_obj_array_pattern = re.compile(r"[SaUO]")
"""Found in the names of NumPy's types of strings and objects, of which no tensors are made."""

CollateMap = Mapping[Any, Callable[..., Any]]

_NO_RULE = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def default_collate(batch: Batch) -> Batch:
    """Tensors, arrays and numbers stacked along a new first dim; mappings and sequences are collated by entry.

    Strings and bytes are kept in lists. `TypeError` for other types; for None, the error names the sample.
    `default_collate_fn_map` has the rules for types that are not containers; add to it for your own types.
    """
    try:
        return collate(batch, collate_fn_map=default_collate_fn_map)
    except (TypeError, AttributeError, DTypeError) as error:
        if (text := absent_sample(batch)) is not None:
            raise (DTypeError if isinstance(error, DTypeError) else ArgumentError)(text) from error
        raise


def absent_sample(batch: Batch, indices: Sequence[Index] | None = None) -> str | None:
    """The error text for a batch with None among its samples or their entries; None if there is no None.

    The text names the sample by its position in the batch, and by its index in the dataset if `indices` is a sequence.
    """
    if not isinstance(batch, Sequence) or _rule_for(None, default_collate_fn_map) is not None:
        return None
    for position, sample in enumerate(batch):
        if (entry := _path_to_none(sample)) is not None:
            number = f", at dataset index {indices[position]!r}," if isinstance(indices, Sequence) else ""
            part = f"entry {entry} of sample" if entry else "sample"
            advice = (
                "give it a value, or give the DataLoader a collate_fn of your own"
                if entry
                else "leave such samples out of the dataset, or give the DataLoader a collate_fn that returns "
                "default_collate([x for x in batch if x is not None])"
            )
            return f"{_NO_RULE.format(type(None))}; {part} {position} of the batch{number} is None: {advice}"
    return None


def _path_to_none(sample: Sample) -> str | None:
    """The subscripts that lead to the first None in nested containers; empty if the sample itself is None."""
    if sample is None:
        return ""
    entries: Any = sample.items() if isinstance(sample, Mapping) else ()
    if isinstance(sample, Sequence) and not isinstance(sample, (str, bytes)):
        entries = enumerate(sample)
    for key, value in entries:
        if (path := _path_to_none(value)) is not None:
            return f"[{key!r}]{path}"
    return None


def collate(batch: Batch, *, collate_fn_map: CollateMap | None = None) -> Batch:
    """A batch by the rules in a map from types to functions; containers are collated by entry.

    The rule for the first sample's own type is preferred to those for its base classes. A rule is called as
    `rule(batch, collate_fn_map=…)`. `TypeError` if there is no rule, `RuntimeError` for sequences of unequal length.
    """
    first = batch[0]
    if (rule := _rule_for(first, collate_fn_map or {})) is not None:
        return rule(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        entries = {key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map) for key in first}
        return _like_mapping(first, entries)
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch) and not hasattr(first, "_fields"):
            raise ShapeError("each element in list of batch should be of equal size")
        # Named tuples of unequal length are a matter of their own class, as in PyTorch.
        columns = zip(*batch, strict=False)
        return _like_sequence(first, [collate(column, collate_fn_map=collate_fn_map) for column in columns])
    raise ArgumentError(_NO_RULE.format(type(first)) + advice(first))


def _rule_for(sample: Sample, rules: CollateMap) -> AnyCallable | None:
    if type(sample) in rules:
        return rules[type(sample)]
    return next((rule for kind, rule in rules.items() if isinstance(sample, kind)), None)


def _like_mapping(sample: Sample, entries: dict[Hashable, Batch]) -> Batch:
    """A mapping of the sample's type, with its other attributes; a dict if the type does not allow this."""
    try:
        if not isinstance(sample, MutableMapping):
            return type(sample)(entries)  # the type may well take none
        result = copy.copy(sample)
        result.update(entries)
        return result
    except TypeError:
        return entries


def _like_sequence(sample: Sample, entries: list[Batch]) -> Batch:
    """A sequence of the sample's type; a list for plain tuples, and if the type does not allow this."""
    if isinstance(sample, tuple):
        return type(sample)(*entries) if hasattr(sample, "_fields") else entries
    try:
        if not isinstance(sample, MutableSequence):
            return type(sample)(entries)
        result = copy.copy(sample)
        for at, entry in enumerate(entries):
            result[at] = entry
        return result
    except TypeError:
        return entries


# --- rules ---


def collate_tensor_fn(batch: Batch, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """Stack tensors. This is recorded, so that it joins the step's program; in a worker, it is copied without XLA."""
    del collate_fn_map
    if any(sample.is_nested for sample in batch):
        raise UnsupportedCallError(
            "Batches of nested tensors are not currently supported by the default collate_fn; please provide a custom "
            "collate_fn to handle them appropriately."
        )
    names = names_of(batch[0])
    if get_worker_info() is None or any(names_of(sample) != names for sample in batch):
        return op.stack(list(batch), 0)
    return set_names(stacked([sample.detach()._host() for sample in batch]), (None, *names))


def collate_numpy_array_fn(batch: Batch, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """Stack arrays, as a tensor."""
    del collate_fn_map
    if np_str_obj_array_pattern.search(batch[0].dtype.str) is not None:
        raise ArgumentError(_NO_RULE.format(batch[0].dtype))
    return stacked(batch)


def stacked(arrays: Sequence[np.ndarray]) -> Tensor:
    """Stack arrays along a new first dim, with one copy; `RuntimeError` for unequal shapes."""
    first = arrays[0]
    if any(array.shape != first.shape or array.dtype != first.dtype for array in arrays):
        return op.stack([from_host(array) for array in arrays], 0)
    return as_tensor(np.stack(arrays, out=room_like((len(arrays), *first.shape), first.dtype)))


def collate_numpy_scalar_fn(batch: Batch, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """NumPy's numbers, as a tensor."""
    del collate_fn_map
    return from_host(np.asarray(batch))


def collate_float_fn(batch: Batch, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """Floats, as a float64 tensor."""
    del collate_fn_map
    return tensor(list(batch), dtype=float64)


def collate_int_fn(batch: Batch, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """Integers, as a tensor."""
    del collate_fn_map
    return tensor(list(batch))


def collate_str_fn(batch: Batch, *, collate_fn_map: CollateMap | None = None) -> Batch:
    """Strings or bytes, as they are."""
    del collate_fn_map
    return batch


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}
"""The rules of `default_collate`, by type of the samples."""


# --- without batches ---


def default_convert(data: PyTree) -> PyTree:
    """Arrays as tensors, also within mappings and sequences. This converts samples that are not batched."""
    return data if isinstance(data, Tensor) else by_leaf(data, _converted)  # which costs less than to see it is a leaf


def _converted(leaf: Sample) -> PyTree:
    is_number = isinstance(leaf, (np.bool_, np.number))
    is_array = isinstance(leaf, np.ndarray) and np_str_obj_array_pattern.search(leaf.dtype.str) is None
    return from_host(np.asarray(leaf)) if is_number or is_array else leaf


def by_leaf(data: PyTree, convert: Callable[[Sample], object]) -> PyTree:
    """`convert` applied to every leaf of nested mappings and sequences; plain tuples become lists."""
    if isinstance(data, Mapping):
        return _like_mapping(data, {key: by_leaf(value, convert) for key, value in data.items()})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like_sequence(data, [by_leaf(item, convert) for item in data])
    return convert(data)
