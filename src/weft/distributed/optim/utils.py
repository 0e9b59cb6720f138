"""The table of functional optimizers."""

from __future__ import annotations

from typing import Any

from weft._base.types import Arg
from weft.distributed.optim._functional import (
    _FunctionalAdadelta,
    _FunctionalAdagrad,
    _FunctionalAdam,
    _FunctionalAdamax,
    _FunctionalAdamW,
    _FunctionalRMSprop,
    _FunctionalRprop,
    _FunctionalSGD,
)
from weft.errors import ValueRangeError

# no cell: read where optimizers are made, which is no part of a capture
functional_optim_map: dict[Any, type[Any]] = {
    functional._optimizer_class: functional
    for functional in (
        _FunctionalAdagrad,
        _FunctionalAdam,
        _FunctionalAdamW,
        _FunctionalSGD,
        _FunctionalAdadelta,
        _FunctionalRMSprop,
        _FunctionalRprop,
        _FunctionalAdamax,
    )
}
"""Functional optimizers, by the optimizer's class or by a user's key."""


def register_functional_optim(key: Any, optim: type[Any]) -> None:
    """Add a functional optimizer under a key, usually an optimizer's class; an existing entry is kept."""
    functional_optim_map.setdefault(key, optim)


def as_functional_optim(optim_cls: Any, *args: Arg, **kwargs: Arg) -> Any:
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
