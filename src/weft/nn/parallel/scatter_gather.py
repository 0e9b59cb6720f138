"""The steps of data parallelism in one process: splitting a batch over devices, and joining the results."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft._base.device import DeviceLike
from weft._base.guards import is_dict, is_list_or_tuple
from weft._base.types import Args, Kwargs, PyTree, Result
from weft._tensor.codegen import op as rows
from weft._tensor.composite.shape import chunk
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError, ValueRangeError
from weft.nn.parallel.data_parallel import require_one

if TYPE_CHECKING:
    from weft.nn._module import Module


def scatter(inputs: PyTree, target_gpus: Sequence[DeviceLike], dim: int = 0) -> PyTree:
    """Split each tensor along `dim` into one part for each device, within dicts, lists and tuples.

    All parts but the last have one size. Objects that are not tensors go to every device. The result is a tuple of
    parts for a tensor, and a list of containers for a container.
    """
    if isinstance(inputs, Tensor):
        parts = chunk(inputs, len(target_gpus), dim)
        return tuple(part.to(device) for part, device in zip(parts, target_gpus, strict=False))
    if is_dict(inputs) and inputs:
        return [type(inputs)(zip(inputs, one, strict=True)) for one in _each(inputs.values(), target_gpus, dim)]
    if is_list_or_tuple(inputs) and inputs:
        kind = type(inputs)
        return [kind(*one) if hasattr(kind, "_fields") else kind(one) for one in _each(inputs, target_gpus, dim)]
    return [inputs for _ in target_gpus]


def scatter_kwargs(
    inputs: PyTree, kwargs: Kwargs | None, target_gpus: Sequence[DeviceLike], dim: int = 0
) -> tuple[tuple[Args, ...], tuple[Kwargs, ...]]:
    """Scattered arguments: for each device a tuple and a dict, which are empty where there is nothing for it."""
    parts = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    count = max(len(parts), len(named))
    parts += [()] * (count - len(parts))
    named += [{}] * (count - len(named))
    return tuple(parts), tuple(named)


def _each(items: PyTree, devices: Sequence[DeviceLike], dim: int) -> PyTree:
    return zip(*(scatter(item, devices, dim) for item in items), strict=False)


def gather(outputs: PyTree, target_device: DeviceLike | None, dim: int = 0) -> PyTree:
    """Join the devices' tensors along `dim`, on `target_device`, within dicts, lists and tuples.

    Zero-dim tensors become a vector, with a warning. None stays None.
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        parts = [output.to(target_device) for output in outputs]
        if dim == 0 and not any(part.ndim for part in parts):
            warnings.warn(
                "Was asked to gather along dimension 0, but all input tensors were scalars; will instead unsqueeze and "
                "return a vector.",
                stacklevel=2,
            )
            parts = [rows.reshape(part, (1,)) for part in parts]
        return rows.cat(parts, dim)
    if first is None:
        return None
    if is_dict(first):
        if any(len(output) != len(first) for output in outputs):
            raise ValueRangeError("All dicts must have the same number of keys")
        return type(first)((key, gather([output[key] for output in outputs], target_device, dim)) for key in first)
    items = [gather(one, target_device, dim) for one in zip(*outputs, strict=True)]
    return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)


def replicate(network: Module, devices: Sequence[DeviceLike], detach: bool = False) -> list[Module]:
    """The module itself, as the only replica: a process has one device. `RuntimeError` for several `devices`."""
    del detach
    require_one(devices)
    return [network for _ in devices]


def parallel_apply(
    modules: Sequence[Module],
    inputs: PyTree,
    kwargs_tup: Sequence[Kwargs] | None = None,
    devices: Sequence[DeviceLike] | None = None,
) -> list[Result]:
    """The results of the modules, one after the other; each input is one argument, or a list or tuple of them."""
    for values, what in ((inputs, "inputs"), (kwargs_tup, "kwargs_tup"), (devices, "devices")):
        if values is not None and len(values) != len(modules):
            raise PreconditionError(
                f"The number of modules {len(modules)} is not equal to the number of {what} {len(values)}"
            )
    nothing: Kwargs = {}
    named = kwargs_tup or [nothing] * len(modules)
    return [
        module(*(args if is_list_or_tuple(args) else (args,)), **keywords)
        for module, args, keywords in zip(modules, inputs, named, strict=True)
    ]
