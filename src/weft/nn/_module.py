"""The base of all layers and models."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from weft.__future__ import get_overwrite_module_params_on_conversion, get_swap_module_params_on_conversion
from weft._base.device import DeviceLike
from weft._base.dtype import DType, as_dtype, bfloat16, float16, float32, float64
from weft._base.guards import is_a
from weft._base.handles import Handle
from weft._base.site import end_at_user
from weft._base.state import ambient, peek
from weft._base.types import AnyCallable, Arg, AttributeValue, PyTree, Result, SavedState
from weft._base.usage import log_api_usage_once
from weft._tensor.compile import compile
from weft._tensor.composite.create import empty_like, order_by_name
from weft._tensor.gradients import clear_grad
from weft._tensor.kind_names import advice
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ModuleError, ValueRangeError
from weft.nn import _hooks, _state_dict
from weft.nn._attributes import bind_base, find_in_tables, table_of
from weft.nn._hooks import GLOBAL_HOOKS, AttributeHook
from weft.nn._lazy_parameter import is_lazy
from weft.nn._lookup import Lookup, assignable, name_of_type, require_name, surplus
from weft.nn._parameter import Buffer, Parameter
from weft.nn._state_dict import IncompatibleKeys, Metadata


class Module(Lookup):
    """A layer or model: named tensors and child modules, and `forward`, which computes with them.

    Assign a `Parameter`, a `Buffer` or another module to an attribute to register it.
    """

    training: bool
    _modules: dict[str, Module | None]
    _version: int = 1  # version of the layout of the state dict
    _read_by_calls = ("training", "_parameters", "_buffers", "_modules", *_hooks.OF_CALLS)
    """Attributes that a captured call may read, besides those that a subclass's code names."""
    _not_read_by_calls = frozenset((*_hooks.OF_STATE_DICTS, "_non_persistent_buffers_set"))
    """Attributes that a captured call does not read."""
    dump_patches: bool = False
    """Whether PyTorch says how the source of a loaded module has changed; it never does so here."""
    compiled_by: AnyCallable
    """The result of `weft.compile` for a module; `weft.nn._optimized` sets it."""
    call_super_init: bool = False
    """Whether `Module.__init__` passes its arguments on to the next base class, for models with several bases."""

    def __init_subclass__(cls, **kwargs: Arg) -> None:
        super().__init_subclass__(**kwargs)
        find_in_tables(cls, Module.__getattr__)

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        log_api_usage_once("python.nn_module")
        if not self.call_super_init and (args or kwargs):
            raise ArgumentError(surplus(type(self).__name__, args, kwargs))
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _modules={},
            _is_full_backward_hook=None,
            **_hooks.empty_tables(),
        )
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # --- calling ----------------------------------------------------------------------------------------------

    def forward(self, *args: Arg, **kwargs: Arg) -> Result:
        """Compute the module's result. Every subclass overrides it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        own = self.__dict__
        # An absent attribute would be searched for among parameters, buffers and submodules, in every call.
        if "_compiled_call_impl" in own:
            return own["_compiled_call_impl"](*args, **kwargs)
        state = peek()
        if state is not None and state.capture is not None:
            # Adding a hook, or changing what the call reads, has to invalidate replays, which do not come by here.
            state.capture.called(self)
        if (
            own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or own["_backward_hooks"]
            or own["_backward_pre_hooks"]
            or GLOBAL_HOOKS
        ):
            return _hooks.call(self, args, kwargs)
        try:
            return self.forward(*args, **kwargs)
        except KeyboardInterrupt as error:
            end_at_user(error)
            raise

    def _call_impl(self, *args: Arg, **kwargs: Arg) -> Result:
        """A call without compilation, even if the module is compiled."""
        capture = ambient().capture
        if capture is not None:
            capture.called(self)
        return _hooks.call(self, args, kwargs)

    def compile(self, *args: Arg, **kwargs: Arg) -> None:
        """Compile the calls of this module, in place. The arguments are those of `weft.compile` after the model."""
        self.__dict__["_compiled_call_impl"] = compile(self._call_impl, *args, **kwargs)

    def register_forward_pre_hook(
        self, hook: AnyCallable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call `hook(module, args)` before `forward`; a result other than None replaces the arguments.

        With `with_kwargs` the call is `hook(module, args, kwargs)`, and its result a pair of both.
        """
        options = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return _hooks.register(self._forward_pre_hooks, hook, prepend=prepend, options=options)

    def register_forward_hook(
        self, hook: AnyCallable, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> Handle:
        """Call `hook(module, args, output)` after `forward`; a result other than None replaces the output.

        With `with_kwargs` the call is `hook(module, args, kwargs, output)`; with `always_call` also after errors.
        """
        options = [self._forward_hooks_with_kwargs] if with_kwargs else []
        options += [self._forward_hooks_always_called] if always_call else []
        return _hooks.register(self._forward_hooks, hook, prepend=prepend, options=options)

    def register_full_backward_pre_hook(self, hook: AnyCallable, prepend: bool = False) -> Handle:
        """Call `hook(module, grad_output)` when the gradients of the outputs are known; it may replace them."""
        return _hooks.register(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook: AnyCallable, prepend: bool = False) -> Handle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the inputs are known; it may replace them.

        Both are tuples, with None for arguments that have no gradient.
        """
        return self._register_backward_hook(hook, full=True, prepend=prepend)

    def register_backward_hook(self, hook: AnyCallable) -> Handle:
        """The older name of `register_full_backward_hook`, which cannot be used together with it."""
        return self._register_backward_hook(hook, full=False)

    def _register_backward_hook(self, hook: AnyCallable, full: bool, prepend: bool = False) -> Handle:
        if self._is_full_backward_hook is (not full):
            raise ModuleError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only "
                "one of them."
            )
        self._is_full_backward_hook = full
        return _hooks.register(self._backward_hooks, hook, prepend=prepend)

    # --- registering ------------------------------------------------------------------------------------------

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Register a parameter. None reserves the name, and is not saved."""
        require_name(self, "parameter", name, self.__dict__.get("_parameters"))
        if param is not None and not is_a(param, Parameter):
            raise ArgumentError(
                f"cannot assign '{name_of_type(param)}' object to parameter '{name}' "
                f"(torch.nn.Parameter or None required){advice(param)}"
            )
        if param is not None and not param.is_leaf:
            raise ValueRangeError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. "
                f"To express '{name}' as a function of another Tensor, compute the value in the forward() method."
            )
        self._parameters[name] = None if param is None else _hooks.registering("parameter", self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register a tensor that is state but not a parameter; it is saved only if `persistent`."""
        require_name(self, "buffer", name, self.__dict__.get("_buffers"))
        if tensor is not None and not is_a(tensor, Tensor):
            raise ArgumentError(
                f"cannot assign '{name_of_type(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
                + advice(tensor)
            )
        self._buffers[name] = _hooks.registering("buffer", self, name, tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Register a child module."""
        if module is not None and not is_a(module, Module):
            raise ArgumentError(f"{name_of_type(module)} is not a Module subclass{advice(module)}")
        require_name(self, "module", name, self.__dict__.get("_modules"))
        self._modules[name] = _hooks.registering("module", self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """An alias of `add_module`."""
        self.add_module(name, module)

    def __getattr__(self, name: str) -> AttributeValue:
        own = self.__dict__
        for kind in ("_parameters", "_buffers", "_modules"):
            table = own.get(kind)
            if table is not None and name in table:
                return _hooks.read(self, name, table[name]) if GLOBAL_HOOKS else table[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: AttributeValue) -> None:
        own = self.__dict__
        kind = table_of(value)
        if kind:
            self._forget(name, kind)
        else:
            kind = next((k for k in ("_parameters", "_modules", "_buffers") if name in own.get(k, ())), "")
            assignable(kind, name, value)
        if kind == "_parameters":
            self.register_parameter(name, value)
        elif kind == "_modules":
            self._modules[name] = _hooks.registering("module", self, name, value)
        elif isinstance(value, Buffer):
            self.register_buffer(name, value, value.persistent)
        elif kind:
            self.register_buffer(name, value, name not in self._non_persistent_buffers_set)
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name: str, kind: str) -> None:
        """Remove what is registered under a name as another kind than `kind`, before it is registered again."""
        own = self.__dict__
        if kind not in own:
            word = {"_parameters": "parameters", "_modules": "module", "_buffers": "buffer"}[kind]
            raise AttributeError(f"cannot assign {word} before Module.__init__() call")
        own.pop(name, None)
        for other in {"_parameters", "_buffers", "_modules"} - {kind}:
            own[other].pop(name, None)
        if kind != "_buffers":
            self._non_persistent_buffers_set.discard(name)

    def __delattr__(self, name: str) -> None:
        for kind in (self._parameters, self._buffers, self._modules):
            if name in kind:
                del kind[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __getstate__(self) -> SavedState:
        left_out = {"_compiled_call_impl", *(hook.attribute for hook in self._attribute_hooks())}
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: SavedState) -> None:
        self.__dict__.update(state)
        for hook in self._attribute_hooks():
            setattr(self, hook.attribute, hook.current(self))

    def _attribute_hooks(self) -> list[AttributeHook]:
        """The hooks that compute attributes; these attributes are not state."""
        hooks = self.__dict__.get("_forward_pre_hooks", {}).values()
        return [hook for hook in hooks if isinstance(hook, AttributeHook)]

    # --- the whole tree ---------------------------------------------------------------------------------------

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call `fn` with every module below this one, then with this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the contents of all tensors and of their gradients; the tensor objects stay the same.

        After `weft.__future__.set_overwrite_module_params_on_conversion(True)`, parameters are other objects.
        """
        if recurse:
            for module in self.children():
                module._apply(fn)
        if get_overwrite_module_params_on_conversion() and not get_swap_module_params_on_conversion():
            self._overwrite_parameters()
        for tensor in [x for x in (*self._parameters.values(), *self._buffers.values()) if x is not None]:
            grad = tensor.grad
            # The tensor objects stay, so optimizers and ties between modules stay, too.
            tensor.data = fn(tensor.data)
            if grad is not None:
                tensor.grad = fn(grad.detach()).requires_grad_(grad.requires_grad)
        return self

    def _overwrite_parameters(self) -> None:
        """Replace the parameters by other objects with the same elements and gradients."""
        for name, old in self._parameters.items():
            if old is not None:
                new = self._parameters[name] = Parameter(old.detach(), old.requires_grad)
                new.grad = old.grad

    def to(self, *args: Arg, **kwargs: Arg) -> Self:
        """Move all tensors to a device, and cast the floating ones: `to(device, dtype)`, `to(dtype)`, `to(tensor)`."""
        if "copy" in kwargs or len(args) > (2 if isinstance(args[0] if args else None, DType | Tensor) else 3):
            raise ModuleError(".to() does not accept copy argument")
        args = tuple([as_dtype(a, float64) if isinstance(a, type) else a for a in args])  # such as `float`
        named = kwargs.get("dtype")
        candidates = [None if named is None else as_dtype(named, float64), *args]
        if args and isinstance(args[0], Tensor):
            candidates = [args[0].dtype]
            args, kwargs = (args[0].device, args[0].dtype), {}
        dtype = next((a for a in candidates if isinstance(a, DType)), None)
        if dtype is not None and not dtype.is_differentiable:
            raise ArgumentError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )
        if dtype is not None and dtype.is_complex:
            warnings.warn(
                "Complex modules are a new feature under active development whose design may change, and some modules "
                "might not work as expected when using complex tensors as parameters or buffers.",
                stacklevel=2,
            )
        others = tuple(a for a in args if not isinstance(a, DType))
        only_moved = {name: value for name, value in kwargs.items() if name not in ("dtype", "memory_format")}
        order_by_name(order := kwargs.get("memory_format"))  # also where no tensor has an order

        def convert(tensor: Tensor) -> Tensor:
            if order is not None and tensor.ndim in (4, 5):
                tensor = tensor.to(memory_format=order)
            moved = tensor.to(*others, **only_moved) if others or only_moved else tensor
            return moved if dtype is None or not tensor.dtype.is_differentiable else moved.to(dtype)

        return self._apply(convert)

    def _cast(self, dtype: DType) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self) -> Self:
        """Cast the floating tensors to float32."""
        return self._cast(float32)

    def double(self) -> Self:
        """Cast the floating tensors to float64."""
        return self._cast(float64)

    def half(self) -> Self:
        """Cast the floating tensors to float16."""
        return self._cast(float16)

    def bfloat16(self) -> Self:
        """Cast the floating tensors to bfloat16."""
        return self._cast(bfloat16)

    def type(self, dst_type: DType | str) -> Self:
        """Cast all tensors."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self) -> Self:
        """Move all tensors to the CPU."""
        return self._apply(lambda t: t.to("cpu"))

    def cuda(self, device: DeviceLike | None = None) -> Self:
        """Move all tensors to a GPU."""
        return self._apply(lambda t: t.to("cuda" if device is None else device))

    def xpu(self, device: DeviceLike | None = None) -> Self:
        """Move all tensors to an Intel GPU."""
        return self._apply(lambda t: t.to("xpu" if device is None else device))

    def to_empty(self, *, device: DeviceLike, recurse: bool = True) -> Self:
        """Replace all tensors by uninitialised ones of the same shapes and types on a device."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def share_memory(self) -> Self:
        """Move all tensors, and the gradients that there are, to memory that processes share."""
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.share_memory_()  # raises for parameters that have no elements yet
            if tensor.grad is not None:
                tensor.grad.share_memory_()
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode on or off, for this module and all below it."""
        if not is_a(mode, bool):
            raise ValueRangeError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode, for this module and all below it."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether gradients are accumulated, for all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients of all parameters, or set them to zero."""
        for parameter in self.parameters():
            clear_grad(parameter, set_to_none)

    # --- state dicts ------------------------------------------------------------------------------------------

    def get_extra_state(self) -> PyTree:
        """The state that a subclass saves besides its tensors."""
        raise ModuleError(
            "Reached a code path in Module.get_extra_state() that should never be called. Override it with "
            "set_extra_state() in the module."
        )

    def set_extra_state(self, state: PyTree) -> None:
        """Restore what `get_extra_state` returned."""
        raise ModuleError(
            "Reached a code path in Module.set_extra_state() that should never be called. Override it with "
            "get_extra_state() in the module."
        )

    def state_dict(
        self, *args: Arg, destination: SavedState | None = None, prefix: str = "", keep_vars: bool = False
    ) -> SavedState:
        """Parameters and persistent buffers by name; detached views unless `keep_vars`.

        If a dict `destination` is given, they are put into it. Their names start with `prefix`.
        """
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead.", FutureWarning, stacklevel=2)
            arguments: Any = (*args, *(destination, prefix, keep_vars)[len(args) :])
            destination, prefix, keep_vars = arguments
        return _state_dict.collect(self, destination, prefix, keep_vars)

    def _save_to_state_dict(self, destination: SavedState, prefix: str, keep_vars: bool) -> None:
        for name, tensor in _state_dict.local_state(self):
            destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + _state_dict.EXTRA] = self.get_extra_state()

    def load_state_dict(self, state_dict: SavedState, strict: bool = True, assign: bool = False) -> IncompatibleKeys:
        """Copy a state dict into the module's tensors; with `assign`, replace the tensors by those of the dict.

        Returns `(missing_keys, unexpected_keys)`. Raises `StateDictError` if a tensor does not fit or, with `strict`,
        if there are such keys; then nothing is written.
        """
        return _state_dict.load(self, state_dict, strict, assign)

    def _renew_entries(self, state_dict: SavedState, prefix: str, version: int | None) -> None:
        """Bring the entries of a state dict that is to be loaded from an earlier version to the present one."""

    def _load_from_state_dict(
        self,
        state_dict: SavedState,
        prefix: str,
        local_metadata: Metadata,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Plan the writes to this module's own tensors. They are made once the whole tree is known to fit."""
        self._renew_entries(state_dict, prefix, local_metadata.get("version"))
        for hook in list(self._load_state_dict_pre_hooks.values()):
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        writes: _state_dict.Writes = []
        missing = _state_dict.plan_tensors(self, state_dict, prefix, local_metadata, error_msgs, writes)
        extra_key = prefix + _state_dict.EXTRA
        takes_extra = type(self).set_extra_state is not Module.set_extra_state
        if takes_extra and extra_key in state_dict:
            writes.append(partial(self.set_extra_state, state_dict[extra_key]))
        elif takes_extra:
            missing.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        if strict:
            missing_keys.extend(missing)
            unexpected_keys.extend(_state_dict.unexpected(self, state_dict, prefix, extra_key))
        # Written at the end, when all modules are known to fit: a state dict that does not must leave the model as it
        # was.
        _state_dict.write_or_plan(writes, local_metadata)

    def register_state_dict_pre_hook(self, hook: AnyCallable) -> Handle:
        """Call `hook(module, prefix, keep_vars)` before the state is collected."""
        return Handle(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> Handle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after the state was collected; must return None."""
        return Handle(self._state_dict_hooks, _state_dict.PostHook(hook))

    def _register_state_dict_hook(self, hook: AnyCallable) -> Handle:
        """As `register_state_dict_post_hook`, but a result other than None replaces the state dict."""
        return Handle(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: AnyCallable) -> Handle:
        """Call `hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)` before loading."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: AnyCallable, with_module: bool = False) -> Handle:
        """As `register_load_state_dict_pre_hook`; the hook gets the module only if `with_module`."""
        return Handle(self._load_state_dict_pre_hooks, _hooks.WrappedHook(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None]) -> Handle:
        """Call `hook(module, incompatible_keys)` after the state was loaded; it may remove keys from the lists."""
        return Handle(self._load_state_dict_post_hooks, hook)


bind_base(Module)
