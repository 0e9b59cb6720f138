"""Hooks of modules: the call that runs them, and the two points of the tape that backward hooks need."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from weft._lazy.value import Tape, Value
from weft._tensor.spelling import op
from weft._tensor.tensor import Handle, Tensor, wrap
from weft.errors import GradientError

if TYPE_CHECKING:
    from weft.nn._module import Module


class Hook(NamedTuple):
    """A hook, and how it is called."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False


Hooks = OrderedDict[int, Any]


def register(hooks: Hooks, hook: Any, *, prepend: bool = False) -> Handle:
    """Add a hook after (or before) all others of its kind."""
    handle = Handle(hooks, hook)
    if prepend:
        hooks.move_to_end(next(reversed(hooks)), last=False)
    return handle


def call(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`module.forward` between its hooks. Those that are always called run even where it fails."""
    done: set[int] = set()
    try:
        args, kwargs = _before(module, args, kwargs)
        crossing = Crossing(module) if module._backward_hooks or module._backward_pre_hooks else None
        if crossing is not None:
            args = crossing.inward(args)
        result = module.forward(*args, **kwargs)
        for key, hook in list(module._forward_hooks.items()):
            done.add(key)
            result = _after(module, hook, args, kwargs, result)
        return result if crossing is None else crossing.outward(result)
    except Exception:
        for key, hook in list(module._forward_hooks.items()):
            if hook.always_call and key not in done:
                _silenced(module, hook, args, kwargs)
        raise


def _before(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for hook in list(module._forward_pre_hooks.values()):
        if not hook.with_kwargs:
            found = hook.function(module, args)
            if found is not None:
                args = found if isinstance(found, tuple) else (found,)
            continue
        found = hook.function(module, args, kwargs)
        if found is None:
            continue
        if not (isinstance(found, tuple) and len(found) == 2):
            raise GradientError(
                f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {found}."
            )
        args, kwargs = found
    return args, kwargs


def _after(module: Module, hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    given = (args, kwargs, result) if hook.with_kwargs else (args, result)
    found = hook.function(module, *given)
    return result if found is None else found


def _silenced(module: Module, hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        _after(module, hook, args, kwargs, None)
    except Exception as error:
        warnings.warn(
            "module forward hook with ``always_call=True`` raised an exception that was silenced as another error was "
            f"raised in forward: {error}",
            stacklevel=4,
        )


class Crossing:
    """One call of a module as its backward hooks see it: gradients of the outputs, then of the inputs.

    The tensors that gradients flow through pass an identity on the way in, and another on the way out. Gradients of
    all tensors of one side arrive together there.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.inputs: list[int] | None = None  # positions of the arguments that gradients flow to
        self.arguments = 0
        self.grad_output: tuple[Tensor | None, ...] = ()

    def inward(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments behind the first identity."""
        self.arguments = len(args)
        at, passed = _pass(args, self._at_inputs)
        if at:
            self.inputs = at
        return passed

    def outward(self, result: Any) -> Any:
        """The result behind the second identity."""
        if isinstance(result, Tensor):
            return _pass((result,), self._at_outputs)[1][0]
        if not isinstance(result, tuple):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                f"{type(result)}",
                stacklevel=4,
            )
            return result
        passed = _pass(result, self._at_outputs)[1]
        return type(result)(*passed) if hasattr(result, "_fields") else passed

    def _at_outputs(self, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        for hook in list(self.module._backward_pre_hooks.values()):
            grads = _replaced("grad_output", grads, hook(self.module, grads))
        self.grad_output = grads
        if self.inputs is None:
            self._at_inputs((None,) * self.arguments)
        return grads

    def _at_inputs(self, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        for hook in list(self.module._backward_hooks.values()):
            grads = _replaced("grad_input", grads, hook(self.module, grads, self.grad_output))
        return grads


def _replaced(what: str, grads: tuple[Tensor | None, ...], found: Any) -> tuple[Tensor | None, ...]:
    if found is None:
        return grads
    listed = found if isinstance(found, tuple) else (found,)
    if len(listed) != len(grads):
        raise GradientError(
            f"Backward hook returned an invalid number of {what}, got {len(listed)}, but expected {len(grads)}"
        )
    return listed


def _pass(items: Sequence[Any], hook: Callable[..., Any]) -> tuple[list[int], tuple[Any, ...]]:
    """Positions of the tensors that gradients flow through, and all items with those behind an identity.

    `hook` gets a gradient (or None) per item when all have arrived, and returns those to hand on.
    """
    at = [i for i, item in enumerate(items) if isinstance(item, Tensor) and item.requires_grad]
    passed = list(items)
    if not at:
        return at, tuple(passed)

    def on_values(given: dict[int, Value], outputs: list[Value]) -> list[Value | None]:
        del outputs
        grads: list[Tensor | None] = [None] * len(passed)
        for index, grad in given.items():
            grads[at[index]] = wrap(grad)
        found = hook(tuple(grads))
        return [None if found[i] is None else found[i]._read() for i in at]

    behind = op.pass_through([items[i] for i in at])
    for i, tensor in zip(at, behind if isinstance(behind, tuple) else (behind,), strict=True):
        value = tensor._read()
        if value.tape is not None:  # None outside of grad mode
            value.tape = Tape()
            value.tape.custom = on_values
        passed[i] = tensor
    return at, tuple(passed)
