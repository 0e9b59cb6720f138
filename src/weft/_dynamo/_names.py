"""How the inputs of graphs are called: by the arguments and modules that they belong to."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence

from weft._base.types import AnyCallable, Arg, Args, Kwargs
from weft._tensor.tensor import Tensor
from weft.nn._module import Module


def names_of_inputs(
    inputs: Sequence[Tensor], function: AnyCallable, args: Args, kwargs: Kwargs, modules: Mapping[int, Module]
) -> list[str]:
    """A name for each tensor, such as `L_x_` for an argument and `L_self_modules_0_parameters_weight_`."""
    name_of: dict[int, str] = {}
    owner = function if isinstance(function, Module) else getattr(function, "__self__", None)
    sources = [*_arguments(function, args, kwargs), ("L_self", owner)]
    sources += [(f"G_{type(module).__name__}", module) for module in modules.values()]
    for prefix, thing in sources:
        for name, tensor in _tensors(prefix, thing):
            name_of.setdefault(id(tensor), name)
    counts: dict[str, int] = {}
    names: list[str] = []
    for tensor in inputs:
        name = re.sub(r"\W+", "_", f"{name_of.get(id(tensor), 'L_tensor')}_")
        counts[name] = count = counts.get(name, -1) + 1
        names.append(f"{name}{count}_" if count else name)
    return names


def _arguments(function: AnyCallable, args: Args, kwargs: Kwargs) -> Iterator[tuple[str, Arg]]:
    call = function.forward if isinstance(function, Module) else function
    try:
        bound = inspect.signature(call).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # what cannot say its parameters
        bound = {"args": args, "kwargs": kwargs}
    for name, value in bound.items():
        yield f"L_{name}", value


def _tensors(prefix: str, thing: Arg) -> Iterator[tuple[str, Tensor]]:
    if isinstance(thing, Tensor):
        yield prefix, thing
    elif isinstance(thing, (list, tuple)):
        for at, part in enumerate(thing):
            yield from _tensors(f"{prefix}_{at}", part)
    elif isinstance(thing, dict):
        for key, part in thing.items():
            yield from _tensors(f"{prefix}_{key}", part)
    elif isinstance(thing, Module):
        for path, module in thing.named_modules():
            below = "".join([f"_modules_{part}" for part in path.split(".") if part])
            for kind, members in (("parameters", module._parameters), ("buffers", module._buffers)):
                for name, tensor in members.items():
                    if tensor is not None:
                        yield f"{prefix}{below}_{kind}_{name}", tensor
