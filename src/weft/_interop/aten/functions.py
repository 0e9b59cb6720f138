"""`__torch_dispatch__`: who is asked before one of PyTorch's operators runs, and which operator that is.

`__torch_function__` sees public functions, and this sees what PyTorch's consist of. Both are signals of what a call
reads (`_base/overriding.py`); this one is for the outermost function that is an operator in PyTorch.
"""

from __future__ import annotations

from weft._autograd.node import node_name, snake_case
from weft._base.overriding import Handler, Operators, handles, is_handled
from weft._base.own_names import own_form
from weft._base.types import AnyCallable, Arg, Args, Kwargs, Result
from weft._dispatch import apply_signature
from weft._interop.aten import indexing, layers
from weft._interop.aten.calls import OwnOverload, dispatch, is_dispatched
from weft._interop.aten.calls import call as call
from weft._interop.aten.calls import call_packet as call_packet
from weft._interop.aten.calls import innermost_mode as innermost_mode
from weft._interop.aten.calls import modes as modes
from weft._interop.aten.calls import set_modes as set_modes
from weft._interop.aten.decompositions import DECOMPOSED
from weft._interop.aten.overloads import name_of_function, resolve
from weft._interop.aten.rules import REDUCTIONS
from weft._lazy.signature import Signature
from weft._lazy.value import Value
from weft._tensor.codegen import op
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor, operand, wrap
from weft.ops._aten import AtenOverload, aten, is_composite, texts_of
from weft.ops._schema import FunctionSchema
from weft.ops._table import TABLE

assert indexing.__name__, "decompositions are noted by import"
assert layers.__name__, "decompositions are noted by import"

# no cell: what is names of functions, which do not change
_names: dict[int, str] = {}


def _name_of(handler: Handler) -> str:
    name = _names.get(id(handler))
    if name is None:
        name = _names[id(handler)] = _found_name(handler)
    return name


def _found_name(handler: Handler) -> str:
    function = handler.public if hasattr(handler.public, "__qualname__") else handler.function
    if function.__name__ in ("__get__", "__set__", "__delete__"):  # a property, such as `x.T`
        function = handler.function if function.__name__ == "__get__" else function
        return function.__name__
    return name_of_function(function)


def _decomposition(handler: Handler) -> AnyCallable | None:
    name = _name_of(handler)
    home = own_form(getattr(handler.public, "__module__", None) or "")
    own = f"F.{name}" if home == "weft.nn.functional" else name
    return DECOMPOSED.get(own) or DECOMPOSED.get(name)


def _is_operator(handler: Handler) -> bool:
    name = _name_of(handler)
    return _decomposition(handler) is not None or (bool(texts_of(name)) and not is_composite(name))


def _answer(handler: Handler, args: Args, kwargs: Kwargs) -> Result:
    """What `__torch_dispatch__` returns for a call of a public function, or for the operators that it consists of."""
    name, decomposed = _name_of(handler), _decomposition(handler)
    if kwargs.get("inplace") is True and texts_of(f"{name}_"):
        name, decomposed = f"{name}_", None
    elif decomposed is not None:
        return decomposed(*args, **kwargs)
    match = resolve(getattr(aten, name), *_of_schema(handler, name, args, kwargs))
    result = dispatch(OwnOverload(name, handler.function), args, kwargs) if match is None else dispatch(*match)
    return result.requires_grad_() if kwargs.get("requires_grad") and isinstance(result, Tensor) else result


def _of_schema(handler: Handler, name: str, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Arguments of a public function as the operator has them: its own names, numbers for reductions."""
    names = {p.name for text in texts_of(name).values() for p in FunctionSchema(text).arguments} | {"input"}
    code = handler.function.__code__
    positional = code.co_varnames[: code.co_argcount]
    kwargs = dict(kwargs)
    for own in positional[len(args) :]:  # parameters of another name in the same place
        if own in names or own not in kwargs or own in _ONLY_PUBLIC:
            break
        args = (*args, kwargs.pop(own))
    kwargs = {key: x for key, x in kwargs.items() if key in names or not (key in _ONLY_PUBLIC or x is None)}
    if isinstance(kwargs.get("reduction"), str):
        kwargs["reduction"] = REDUCTIONS.index(kwargs["reduction"])
    return args, kwargs


_ONLY_PUBLIC = ("inplace", "requires_grad", "size_average", "reduce", "_stacklevel")
"""Parameters that only public functions have."""

# --- derivatives --------------------------------------------------------------------------------------------------


class DerivativeOverload(AtenOverload):
    """The derivative of an application, for the gradients that a backward pass needs: one operator, as it is recorded.

    It has the name that PyTorch has for it, or would have: `mul_backward`, where PyTorch calls `mul` for each factor.
    """

    def __init__(self, name: str, signature: Signature) -> None:
        super().__init__(getattr(aten, name), "default")
        self.__module__ = "torch.ops.aten"
        self._signature = signature

    def __call__(self, *args: Arg) -> Result:
        """The gradients, or the only one."""
        if is_dispatched(args, {}):
            return dispatch(self, args, {})
        inputs = tuple([operand(x) if isinstance(x, Tensor) else number(x) for x in args])
        results = tuple(map(wrap, apply_signature(self._signature, inputs)))
        return results[0] if len(results) == 1 else results


def _derive(origin: Signature, signature: Signature, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    name = snake_case(node_name(origin))
    name = _DERIVATIVES.get(name, f"{name}_backward")
    args = [x.number if x.aval.weak else wrap(x) for x in inputs]
    result = dispatch(DerivativeOverload(name, signature), tuple(args), {})
    return tuple([operand(x) for x in (result if isinstance(result, tuple | list) else [result])])


_DERIVATIVES = {
    "relu": "threshold_backward", "softmax": "_softmax_backward_data", "log_softmax": "_log_softmax_backward_data",
    "embedding": "embedding_dense_backward",
}  # fmt: skip

Operators.is_one = _is_operator
Operators.answer = _answer
Operators.derive = _derive

handles(Tensor.__bool__, Tensor.__bool__, only_operator=True)
for _name in TABLE:
    _function = getattr(op, _name)
    if not is_handled(_function):
        handles(_function, _function, only_operator=True)
