"""Autocast classes of functions that are composed of rows."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import wraps

from weft._base.guards import LIST_OR_TUPLE
from weft._base.state import ambient, using
from weft._base.types import AnyCallable, Arg, Result
from weft._lazy.autocast import cast, cast_device, is_eligible, wanted_type
from weft._tensor.tensor import Tensor, operand, wrap
from weft.ops._autocast import CastClass, PerDevice, class_on


def not_cast() -> using:
    """A block in which nothing is cast, as for in-place operators and those with `out`."""
    return using(autocast=ambient().autocast.off())


def casting(function: AnyCallable, cast_class: CastClass | PerDevice) -> AnyCallable:
    """A function with an autocast class: its tensors are cast, and the rows that it calls cast nothing.

    With an explicit `dtype`, its tensors are not cast either.
    """
    names = list(inspect.signature(function).parameters)
    at_dtype = names.index("dtype") if "dtype" in names else len(names)

    @wraps(function)
    def run(*args: object, **kwargs: object) -> Result:
        state = ambient()
        if not state.autocast.enabled:
            return function(*args, **kwargs)
        values = [operand(x) for x in _tensors((*args, *kwargs.values()))]
        device_type = cast_device(values, state.autocast)
        if not device_type:
            return function(*args, **kwargs)
        wanted: Arg = None  # a type, where `fitted` is called
        if kwargs.get("dtype", args[at_dtype] if at_dtype < len(args) else None) is None:
            wanted = wanted_type(class_on(cast_class, device_type), values, state.autocast, device_type)

        def fitted(x: Arg) -> Arg:
            if isinstance(x, LIST_OR_TUPLE):
                return type(x)(map(fitted, x))
            if not isinstance(x, Tensor) or not is_eligible(x.dtype) or x.dtype is wanted:
                return x
            return wrap(cast(operand(x), wanted, state))

        with not_cast():
            if wanted is None:
                return function(*args, **kwargs)
            return function(*map(fitted, args), **{name: fitted(x) for name, x in kwargs.items()})

    return run


def _tensors(arguments: Iterable[Arg]) -> Iterator[Tensor]:
    for x in arguments:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, LIST_OR_TUPLE):
            yield from _tensors(x)
