"""The table of functional optimizers."""

from __future__ import annotations

from collections.abc import Callable

from weft._base.types import Arg, Result
from weft.distributed.optim._functional import FUNCTIONAL
from weft.errors import ValueRangeError

# no cell: read where optimizers are made, which is no part of a capture
functional_optim_map: dict[object, Callable[..., Result]] = {**FUNCTIONAL}
"""Functional optimizers, by the optimizer's class or by a user's key."""


def register_functional_optim(key: object, optim: type) -> None:
    """Add a functional optimizer under a key, usually an optimizer's class; an existing entry is kept."""
    functional_optim_map.setdefault(key, optim)


def as_functional_optim(optim_cls: object, *args: Arg, **kwargs: Arg) -> Result:
    """The functional optimizer of a class, without parameters; the other arguments are its options.

    It is called as `functional_class([], *args, **kwargs, _allow_empty_param_list=True)`. `ValueError` for a class
    without one.
    """
    if optim_cls not in functional_optim_map:
        raise ValueRangeError(
            f"Optimizer {optim_cls} does not have a functional counterpart! Those that have one are "
            f"{', '.join(getattr(key, '__name__', str(key)) for key in functional_optim_map)}; add others by "
            "register_functional_optim"
        )
    return functional_optim_map[optim_cls]([], *args, **kwargs, _allow_empty_param_list=True)
