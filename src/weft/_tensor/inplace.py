"""In-place forms: functions whose result goes into their first argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps

from weft._base.dtype import bool_
from weft._base.guards import is_list_or_tuple
from weft._base.overriding import Overridden
from weft._base.site import UNTIL_USER, end_at_user
from weft._base.state import ambient
from weft._base.types import AnyCallable, Arg, Kwargs
from weft._lazy.native import native
from weft._tensor.arguments import refusal
from weft._tensor.autocast import not_cast
from weft._tensor.dim_names import take_names
from weft._tensor.overriding import dispatched
from weft._tensor.sharing import rebind
from weft._tensor.state import NO_FACTS
from weft._tensor.tensor import Tensor
from weft._tensor.view import is_view_of, write
from weft._tensor.write_checks import check_overlap, check_writable
from weft.errors import WeftError
from weft.ops._rows import documented


def _picker(function: AnyCallable, names: Sequence[str]) -> Callable[[Sequence[Arg], Kwargs], list[Tensor]]:
    """A function that returns the tensors among its arguments; masks in lists are read before anything is written."""
    places = {name: at for at, name in enumerate(inspect.signature(function).parameters)}

    def find(args: Sequence[object], kwargs: Kwargs) -> list[Tensor]:
        tensors: list[Tensor] = []
        for name in names:
            value = args[places[name]] if places[name] < len(args) else kwargs.get(name)
            if isinstance(value, Tensor):
                tensors.append(value)
            elif is_list_or_tuple(value):
                tensors += [x for x in value if isinstance(x, Tensor) and x.dtype is not bool_]
        return tensors

    return find


def inplace_of(function: AnyCallable, name: str, *, uniform: bool = False, separate: Sequence[str] = ()) -> AnyCallable:
    """The in-place form, which writes its result to its first argument; `uniform` if all elements get the same number.

    `separate` names the parameters whose tensors must not share elements with that argument.
    """
    apart_from = _picker(function, separate) if separate else None

    @wraps(function)
    def form(input: object, *args: object, **kwargs: object) -> Tensor:
        try:
            if not isinstance(input, Tensor):
                raise refusal(input, "input", name, "Tensor")
            facts = input._facts
            if facts is not NO_FACTS and (facts.alias is not None or facts.views is not None):
                others = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
                if others:
                    check_overlap(input, others)
            if apart_from is not None:
                check_overlap(input, apart_from((input, *args), kwargs), wholly=True)
            try:
                if ambient().autocast.enabled:
                    with not_cast():
                        result = function(input, *args, **kwargs)
                else:
                    result = function(input, *args, **kwargs)
            except WeftError:
                check_writable(input, ambient().grad)  # what PyTorch would have said first
                raise
            if native is not None and native.write_result(input, result):
                return input
            if result is NotImplemented:
                return result
            if is_view_of(result, input):
                return rebind(input, result)
            value = result._read()
            return take_names(write(input, value, uniform=uniform), value.aval.names)
        except Overridden as signal:
            return dispatched(signal)
        except UNTIL_USER as error:
            end_at_user(error)
            raise

    return documented(form, name, f"In-place version of `{function.__name__}`.")
