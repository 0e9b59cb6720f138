"""The steps of data parallelism in one process: parts of a batch for devices, and results of all in one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from weft._tensor.codegen import op as rows
from weft._tensor.composite.shape import chunk
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError, ValueRangeError
from weft.nn.parallel._data_parallel import require_one


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """A part of each tensor along `dim` for each device, in the containers around it; other objects go to all.

    Parts have about one size. A tuple of them for a tensor, else a list of containers.
    """
    if isinstance(inputs, Tensor):
        parts = chunk(inputs, len(target_gpus), dim)
        return tuple(part.to(device) for part, device in zip(parts, target_gpus, strict=False))
    if isinstance(inputs, dict) and inputs:
        return [type(inputs)(zip(inputs, one, strict=True)) for one in _each(inputs.values(), target_gpus, dim)]
    if isinstance(inputs, (list, tuple)) and inputs:
        kind = type(inputs)
        return [kind(*one) if hasattr(kind, "_fields") else kind(one) for one in _each(inputs, target_gpus, dim)]
    return [inputs for _ in target_gpus]


def _each(items: Any, devices: Sequence[Any], dim: int) -> Any:
    return zip(*(scatter(item, devices, dim) for item in items), strict=False)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Tensors of all devices in one along `dim`, on `target_device`, in the containers around them.

    Those without dims become a vector, with a warning. None stays None.
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
    if isinstance(first, dict):
        if any(len(output) != len(first) for output in outputs):
            raise ValueRangeError("All dicts must have the same number of keys")
        return type(first)((key, gather([output[key] for output in outputs], target_device, dim)) for key in first)
    items = [gather(one, target_device, dim) for one in zip(*outputs, strict=True)]
    return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)


def replicate(network: Any, devices: Sequence[Any], detach: bool = False) -> list[Any]:
    """The replicas of a module: itself, as a process has one device; `RuntimeError` for several `devices`."""
    del detach
    require_one(devices)
    return [network for _ in devices]


def parallel_apply(
    modules: Sequence[Any],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """What each module gives for its input, or the list or tuple of its inputs, one after the other."""
    for values, what in ((inputs, "inputs"), (kwargs_tup, "kwargs_tup"), (devices, "devices")):
        if values is not None and len(values) != len(modules):
            raise PreconditionError(
                f"The number of modules {len(modules)} is not equal to the number of {what} {len(values)}"
            )
    named = kwargs_tup or [{}] * len(modules)
    return [
        module(*(args if isinstance(args, (list, tuple)) else (args,)), **keywords)
        for module, args, keywords in zip(modules, inputs, named, strict=True)
    ]
