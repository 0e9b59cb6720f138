"""Hooks of modules: the call that runs them, and the identities on the tape that give backward hooks the gradients."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

from weft._base.cell import LocalCell, Registry
from weft._base.guards import is_tuple
from weft._base.handles import Handle
from weft._base.types import AnyCallable, Arg, Args, AttributeValue, Kwargs, Result
from weft._lazy.role import Interior
from weft._lazy.value import Value
from weft._tensor.codegen import op
from weft._tensor.cotangents import as_cotangent, as_gradient_of
from weft._tensor.tensor import Tensor, wrap
from weft.errors import GradientError, ModuleError
from weft.nn._tables import Hooks, forward_pre_hooks_of

T = TypeVar("T")


class HasForward(Protocol):
    """What a call between hooks needs of a module, whose tables of hooks stand in its `__dict__`."""

    def forward(self, *args: Arg, **kwargs: Arg) -> Result:
        """What the module computes."""
        ...


class Hook(NamedTuple):
    """A hook of a module's calls, with the options that say how it is called."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False
    is_global: bool = False


class WrappedHook:
    """A hook of the loading of state dicts that gets its module first, with PyTorch's names of attributes."""

    def __init__(self, hook: AnyCallable, module: object) -> None:
        self.hook = hook
        self.module = module
        self.with_module = True

    def __call__(self, *args: Arg) -> Result:
        return self.hook(self.module, *args) if self.with_module else self.hook(*args)


OF_CALLS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_pre_hooks",
    "_backward_hooks",
)
OF_STATE_DICTS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def empty_tables() -> dict[str, Hooks]:
    """The empty tables of hooks for a new module."""
    return {name: OrderedDict() for name in (*OF_CALLS, *OF_STATE_DICTS)}


def register(
    hooks: Hooks, hook: AnyCallable, *, prepend: bool = False, options: Sequence[dict[int, bool]] = ()
) -> Handle:
    """Add a hook after (or before) all others in its table, and note its key in each dict of `options`."""
    handle = Handle(hooks, hook)
    key = next(reversed(hooks))
    for marked in options:
        marked[key] = True
    if prepend:
        hooks.move_to_end(key, last=False)
    return handle


class AttributeHook:
    """A hook that computes an attribute of its module before each call.

    The attribute is not copied or pickled with the module; the copy computes its own.
    """

    @property
    def attribute(self) -> str:
        raise NotImplementedError

    def current(self, module: Arg) -> Tensor:
        """The attribute's value now; the module is not changed."""
        raise NotImplementedError


KindOfHook = TypeVar("KindOfHook", bound=AttributeHook)


def attribute_hooks(module: Arg, kind: type[KindOfHook], name: str) -> dict[int, KindOfHook]:
    """The hooks of a kind that compute an attribute of a module, by key."""
    hooks = forward_pre_hooks_of(module).items()
    return {key: hook for key, hook in hooks if isinstance(hook, kind) and hook.attribute == name}


# --- hooks on all modules ---------------------------------------------------------------------------------------


class GlobalHook(NamedTuple):
    """A hook on the calls of all modules, with its kind; `regular` if it was registered under the name of old ones."""

    kind: str
    hook: Hook
    regular: bool = False


GLOBAL_HOOKS = Registry[int, GlobalHook]("hooks on the calls of all modules")
"""Hooks on the calls of all modules, of all kinds: in one table, because every call checks whether it is empty."""

_REGISTRATION = {
    kind: Registry[int, Any](f"hooks on the registration of {kind}s") for kind in ("parameter", "buffer", "module")
}
_global_parameter_registration_hooks = _REGISTRATION["parameter"]
_global_buffer_registration_hooks = _REGISTRATION["buffer"]
_global_module_registration_hooks = _REGISTRATION["module"]


def _register_globally(kind: str, hook: AnyCallable, with_kwargs: bool = False, always_call: bool = False) -> Handle:
    return Handle(GLOBAL_HOOKS, GlobalHook(kind, Hook(hook, with_kwargs, always_call, is_global=True)))


def register_module_forward_pre_hook(hook: AnyCallable) -> Handle:
    """Call `hook(module, args)` before the `forward` of every module, ahead of the module's own hooks."""
    return _register_globally("forward_pre", hook)


def register_module_forward_hook(hook: AnyCallable, *, with_kwargs: bool = False, always_call: bool = False) -> Handle:
    """Call `hook(module, args, output)` after the `forward` of every module, ahead of the module's own hooks."""
    return _register_globally("forward", hook, with_kwargs, always_call)


def register_module_full_backward_pre_hook(hook: AnyCallable) -> Handle:
    """Call `hook(module, grad_output)` in every module's backward pass."""
    return _register_globally("backward_pre", hook)


def register_module_full_backward_hook(hook: AnyCallable) -> Handle:
    """Call `hook(module, grad_input, grad_output)` in every module's backward pass."""
    return _register_backward_hook(hook, regular=False)


def register_module_backward_hook(hook: AnyCallable) -> Handle:
    """As `register_module_full_backward_hook`. The two cannot be used at the same time: `RuntimeError`."""
    return _register_backward_hook(hook, regular=True)


def _register_backward_hook(hook: AnyCallable, *, regular: bool) -> Handle:
    if any(entry.kind == "backward" and entry.regular is not regular for entry in GLOBAL_HOOKS.values()):
        raise ModuleError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module hook. Please use only "
            "one of them."
        )
    return Handle(GLOBAL_HOOKS, GlobalHook("backward", Hook(hook, is_global=True), regular))


def has_any_global_hook() -> bool:
    """Whether there are hooks on the calls of all modules."""
    return bool(GLOBAL_HOOKS)


def register_module_parameter_registration_hook(hook: AnyCallable) -> Handle:
    """Call `hook(module, name, parameter)` before every registration; what it returns, if anything, replaces it."""
    return Handle(_REGISTRATION["parameter"], hook)


def register_module_buffer_registration_hook(hook: AnyCallable) -> Handle:
    """Call `hook(module, name, buffer)` before every registration; what it returns, if anything, replaces it."""
    return Handle(_REGISTRATION["buffer"], hook)


def register_module_module_registration_hook(hook: AnyCallable) -> Handle:
    """Call `hook(module, name, submodule)` before every registration; what it returns, if anything, replaces it."""
    return Handle(_REGISTRATION["module"], hook)


def registering(kind: str, module: object, name: str, what: T) -> T:
    """The object to register, after the global hooks, which may replace it."""
    for hook in list(_REGISTRATION[kind].values()):
        replacement = hook(module, name, what)
        if replacement is not None:
            what = replacement
    return what


# --- calls ------------------------------------------------------------------------------------------------------


def _on_calls(module: object, kind: str) -> list[Hook]:
    """The hooks of one kind; those on all modules come first."""
    own = module.__dict__
    marked = [own.get(f"_{kind}_hooks_{option}", ()) for option in ("with_kwargs", "always_called")]
    hooks = [entry.hook for entry in list(GLOBAL_HOOKS.values()) if entry.kind == kind]  # threads may add some
    return hooks + [Hook(hook, *(key in keys for keys in marked)) for key, hook in own[f"_{kind}_hooks"].items()]


class Interceptor(Protocol):
    """Takes over what a program does with modules, as a tracer of programs does."""

    def module_called(self, module: Arg, args: Args, kwargs: Kwargs) -> Result:
        """What a call of a module returns."""
        ...

    def attribute_read(self, module: Arg, name: str, value: AttributeValue) -> AttributeValue:
        """What a program gets as a parameter, buffer or child of a module."""
        ...


_INTERCEPTOR = LocalCell[Interceptor | None]("what takes over the calls of modules", None)


@contextmanager
def intercepting(interceptor: Interceptor | None) -> Generator[None]:
    """A block in which an object takes over the calls of modules in this thread, and what is read from them."""
    with _INTERCEPTOR.within(interceptor):
        if interceptor is None:
            yield
        else:
            with Handle(GLOBAL_HOOKS, GlobalHook("interceptor", Hook(interceptor.module_called))):
                yield


def read(module: object, name: str, value: AttributeValue) -> AttributeValue:
    """What a program gets that reads a parameter, buffer or child of a module, while there are global hooks."""
    interceptor = _INTERCEPTOR.get()
    return value if interceptor is None else interceptor.attribute_read(module, name, value)


def call(module: HasForward, args: Args, kwargs: Kwargs) -> Result:
    """Call a module, or the interceptor in its stead."""
    interceptor = _INTERCEPTOR.get()
    if interceptor is not None:
        return interceptor.module_called(module, args, kwargs)
    return call_with_hooks(module, args, kwargs)


def call_with_hooks(module: HasForward, args: Args, kwargs: Kwargs) -> Result:
    """Call `module.forward` and its hooks. After an error, the forward hooks with `always_call` still run."""
    waiting: list[Hook] | None = None
    result = None
    try:
        args, kwargs = _before(module, args, kwargs)
        hook_call = BackwardHookCall(module)
        args = hook_call.wrap_inputs(args)
        result = module.forward(*args, **kwargs)
        waiting = _on_calls(module, "forward")
        while waiting:
            result = _after(module, waiting.pop(0), args, kwargs, result)
        return hook_call.wrap_outputs(result)
    # As in PyTorch, `always_call` hooks see failed calls, so that what they have begun can end; their own errors only
    # warn.
    except Exception:
        for hook in _on_calls(module, "forward") if waiting is None else waiting:
            if hook.always_call:
                result = _silenced(module, hook, args, kwargs, result)
        raise


def _before(module: object, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    for hook in _on_calls(module, "forward_pre"):
        if not hook.with_kwargs:
            replacement = hook.function(module, args)
            if replacement is not None:
                args = replacement if is_tuple(replacement) else (replacement,)
            continue
        replacement = hook.function(module, args, kwargs)
        if replacement is None:
            continue
        if not (is_tuple(replacement) and len(replacement) == 2):
            raise ModuleError(
                f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {replacement}."
            )
        args, kwargs = replacement
    return args, kwargs


def _after(module: object, hook: Hook, args: Args, kwargs: Kwargs, result: Result) -> Result:
    arguments = (args, kwargs, result) if hook.with_kwargs else (args, result)
    replacement = hook.function(module, *arguments)
    return result if replacement is None else replacement


def _silenced(module: object, hook: Hook, args: Args, kwargs: Kwargs, result: Result) -> Result:
    try:
        return _after(module, hook, args, kwargs, result)
    except Exception as error:
        kind = "global module" if hook.is_global else "module"
        warnings.warn(
            f"{kind} forward hook with ``always_call=True`` raised an exception that was silenced as another error was "
            f"raised in forward: {error}",
            stacklevel=4,
        )
        return result


# --- backward passes --------------------------------------------------------------------------------------------


class BackwardHookCall:
    """The backward hooks of one call of a module: they get the gradients of the outputs, and then those of the inputs.

    Inputs and outputs that need a gradient each pass through one identity operator, where the gradients of all of them
    arrive together.
    """

    def __init__(self, module: object) -> None:
        self.module = module
        self.before = _on_calls(module, "backward_pre")
        self.after = _on_calls(module, "backward")
        self.inputs: list[int] | None = None  # positions of the arguments that gradients flow to
        self.arguments = 0
        self.grad_output: tuple[Tensor | None, ...] = ()

    def wrap_inputs(self, args: Args) -> Args:
        """The arguments, with tensors that need a gradient replaced by the results of the first identity."""
        if not self.after:
            return args
        self.arguments = len(args)
        at, passed = _pass(args, self._at_inputs)
        if at:
            self.inputs = at
        return passed

    def wrap_outputs(self, result: Result) -> Result:
        """The result, with tensors that need a gradient replaced by the results of the second identity."""
        if not (self.before or self.after):
            return result
        if isinstance(result, Tensor):
            return _pass((result,), self._at_outputs)[1][0]
        if not is_tuple(result):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                f"{type(result)}",
                stacklevel=4,
            )
            return result
        passed = _pass(result, self._at_outputs)[1]
        return type(result)(*passed) if hasattr(result, "_fields") else passed

    def _at_outputs(self, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        for hook in self.before:
            grads = _replaced("pre hook", "grad_output", grads, hook.function(self.module, grads))
        self.grad_output = grads
        if self.inputs is None and any(g is not None for g in self._at_inputs((None,) * self.arguments)):
            raise GradientError(
                "Backward hook for Modules where no input requires gradient should always return None or None for all "
                "gradients."
            )
        return grads

    def _at_inputs(self, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        for hook in self.after:
            grads = _replaced("hook", "grad_input", grads, hook.function(self.module, grads, self.grad_output))
        return grads


def _replaced(
    which: str, what: str, grads: tuple[Tensor | None, ...], replacement: Tensor | tuple[Tensor | None, ...] | None
) -> tuple[Tensor | None, ...]:
    if replacement is None:
        return grads
    items = replacement if isinstance(replacement, tuple) else (replacement,)
    if len(items) != len(grads):
        raise GradientError(
            f"Backward {which} returned an invalid number of {what}, got {len(items)}, but expected {len(grads)}"
        )
    return items


def _pass(
    items: Args, hook: Callable[[tuple[Tensor | None, ...]], tuple[Tensor | None, ...]]
) -> tuple[list[int], Args]:
    """The positions of the tensors that need a gradient, and all items, with these tensors passed through an identity.

    `hook` is called once, with a gradient (or None) for each item, and returns the gradients to propagate.
    """
    at = [i for i, item in enumerate(items) if isinstance(item, Tensor) and item.requires_grad]
    passed = list(items)
    if not at:
        return at, tuple(passed)

    def on_values(by_index: dict[int, Value], outputs: list[Value]) -> list[Value | None]:
        del outputs
        grads: list[Tensor | None] = [None] * len(passed)
        for index, grad in by_index.items():
            grads[at[index]] = wrap(as_gradient_of(avals[index], grad))
        replacements = hook(tuple(grads))
        return [
            None if (grad := replacements[i]) is None else as_cotangent(grad._read(), aval, "the result of a hook")
            for i, aval in zip(at, avals, strict=True)
        ]

    avals = [items[i]._read().aval for i in at]
    behind = op.pass_through([items[i] for i in at])
    for i, tensor in zip(at, behind if is_tuple(behind) else (behind,), strict=True):
        value = tensor._read()
        if value.role is not None:  # it is None outside of grad mode
            value.role = Interior(custom=on_values)
        passed[i] = tensor
    return at, tuple(passed)
