"""The special methods of `Tensor` that are rows: `x + y`, `y + x` and `x += y`."""

from __future__ import annotations

import operator
from types import FunctionType

import numpy as np

from weft._base.device import CPU
from weft._base.numpy_guards import ARRAY
from weft._base.overriding import Overridden
from weft._base.site import UNTIL_USER, end_at_user
from weft._base.types import AnyCallable, Arg
from weft._lazy.infer import call_of
from weft._tensor import fast_path
from weft._tensor.arguments import not_implemented
from weft._tensor.codegen import default_static, is_plain, led_to
from weft._tensor.convert import from_host
from weft._tensor.functions import PublicFunction
from weft._tensor.inplace import inplace_of
from weft._tensor.overriding import dispatched, separate
from weft._tensor.tensor import Results, Tensor
from weft.ops._kinds import Kind

_ARRAYS = (Tensor, np.ndarray)
_OPERANDS = (*_ARRAYS, bool, int, float, complex, np.generic)


def _as_operand(other: Arg) -> Arg:
    return from_host(other, CPU) if isinstance(other, ARRAY) else other


def dunders_of(entry: PublicFunction) -> dict[str, AnyCallable]:
    """The special methods that a function is."""
    op, function, public = entry.row, entry.function, entry.public
    if op is None or len(op.params) == 1:
        assert isinstance(function, FunctionType)
        return {name: separate(function) for name in public.dunder}

    takes_number = op.params[1].kind is Kind.OPERAND
    others = _OPERANDS if takes_number else _ARRAYS

    def forward(input: Arg, other: Arg) -> Results:
        try:
            if not isinstance(other, others):
                return not_implemented(other, op.name)
            return function(input, _as_operand(other))
        except Overridden as signal:
            return dispatched(signal)
        except UNTIL_USER as error:
            end_at_user(error)
            raise

    def swapped(input: Arg, other: Arg) -> Results:
        try:
            if not isinstance(other, others):
                return not_implemented(other, op.name)
            return function(_as_operand(other), input)
        except Overridden as signal:
            return dispatched(signal)
        except UNTIL_USER as error:
            end_at_user(error)
            raise

    static = default_static(op, 2)
    fast = forward
    if static is not None and is_plain(op):
        fast = fast_path.binary(call_of(op, static), forward, takes_number)
    functions: dict[str, AnyCallable] = {}
    for name in public.dunder:
        reflected = name.startswith("__r") and f"__{name[3:]}" in public.dunder
        functions[name] = led_to(op.impl, separate(swapped if reflected else fast))
        if public.inplace and not reflected and hasattr(operator, f"__i{name[2:]}"):
            functions[f"__i{name[2:]}"] = inplace_of(led_to(op.impl, forward), f"__i{name[2:]}")
    return functions
