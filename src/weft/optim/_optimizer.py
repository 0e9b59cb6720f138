"""The base of all optimizers."""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from types import NoneType
from typing import Any, TypeAlias

from weft._base.activity import Activity, process
from weft._base.capture import active_capture
from weft._base.cell import Registry
from weft._base.guards import is_dict, is_list_or_tuple, is_tuple
from weft._base.handles import Handle
from weft._base.interrupts import uninterrupted
from weft._base.site import end_at_user, ends_at_user, warn_user
from weft._base.state import ambient
from weft._base.timeline import Phase, spanned
from weft._base.types import AnyCallable, Arg, Args, Kwargs, PyTree, Result, SavedState
from weft._base.usage import log_api_usage_once
from weft._lazy.flushing import end_optimizer_step, flush_pending
from weft._lazy.runtime import accelerator_memory
from weft._tensor.compile import ByIdentity
from weft._tensor.gradients import clear_grad
from weft._tensor.kind_names import is_of_other_library, kind_and_advice
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import own
from weft.errors import ArgumentError, OptimizerStateError, OptionError, ValueRangeError
from weft.nn._hooks import register
from weft.nn._lazy_parameter import is_lazy
from weft.nn._lookup import name_of_type
from weft.optim._origin import kinds_of, other_optimizer
from weft.optim._own import grouped_by_device_and_dtype

Group: TypeAlias = dict[str, Any]
"""Parameters, under "params", and the options for them, by name."""

Closure = Callable[[], Result]
"""Computes the loss and the gradients again, and returns the loss."""

Params = Iterable[Tensor] | Iterable[Group] | Iterable[tuple[str, Tensor]]
"""What an optimizer is made of: parameters, groups of them with options, or parameters with names."""


def _span_name(method: str, optimizer: object, *_: object, **__: object) -> str:
    return f"Optimizer.{method}#{type(optimizer).__name__}.{method}"


class Optimizer:
    """Parameters in groups, each with its own options, and state for each parameter.

    A subclass overrides `step`. The base calls hooks around it, and computes pending values at its end.
    """

    stepping: bool = False
    _watched: Any = None
    _opt_called: bool | None = None  # whether there was a step since a learning rate schedule was attached
    _skips_steps: bool = False  # whether a step changes nothing if `_found_inf` is not zero
    _made_in: weakref.ref[Any] | None = None  # what recorded the function that has made it
    _found_inf: Sequence[Tensor] = ()  # by device, while `GradScaler` steps: not zero if a gradient is infinite or NaN

    def __init_subclass__(cls, **kwargs: Arg) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in vars(cls):
            cls.step = cls._with_hooks(cls.step)

    def __init__(self, params: Params, defaults: Group) -> None:
        log_api_usage_once("python.optimizer")
        if isinstance(params, Tensor):
            raise ArgumentError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                f"{name_of_type(params)}"
            )
        capture = ambient().capture
        if capture is not None:
            self._made_in = weakref.ref(capture)
        self.defaults = defaults
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        self._hooks: dict[str, OrderedDict[int, Any]] = {name: OrderedDict() for name in _HOOKS}
        groups: list[Any] = list(params)
        if not groups:
            raise ValueRangeError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)
        flush_pending()  # compute initial values by a program of their own, separate from the first step

    # --- groups -----------------------------------------------------------------------------------------------

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters, with the options that differ from the defaults."""
        if not is_dict(param_group):
            raise ArgumentError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        group["params"], names = _unpacked(group["params"])
        if names:
            group["param_names"] = names
        for param in group["params"]:
            if not isinstance(param, Tensor):
                kind = kind_and_advice(param)
                raise ArgumentError(f"optimizer can only optimize Tensors, but one of the params is {kind}")
            # A result has no gradient unless it retains one, and is computed anew in the next step.
            if not (param.is_leaf or param.retains_grad or self.defaults.get("differentiable")):
                raise ValueRangeError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueRangeError(
                    f"parameter group didn't specify a value of required optimization parameter {name}"
                )
            group.setdefault(name, default)
        if len(set(group["params"])) != len(group["params"]):
            warn_user(
                "optimizer contains a parameter group with duplicate parameters; each step updates these several times"
            )
        others = {param for other in self.param_groups for param in other["params"]}
        if not others.isdisjoint(group["params"]):
            raise ValueRangeError("some parameters appear in more than one parameter group")
        if self.param_groups and ("param_names" in group) != ("param_names" in self.param_groups[0]):
            kind = "with names" if names else "without names"
            raise ValueRangeError(
                "all optimizer param groups should be with/without names. "
                f"cannot add param group {kind} to the optimizer"
            )
        self.param_groups.append(group)

    def __repr__(self) -> str:
        groups: list[str] = []
        for at, group in enumerate(self.param_groups):
            lines = [f"    {name}: {group[name]}\n" for name in sorted(group) if name != "params"]
            groups.append(f"Parameter Group {at}\n{''.join(lines)}")
        return f"{type(self).__name__} (\n" + "\n".join(groups) + ")"

    # --- stepping ---------------------------------------------------------------------------------------------

    @ends_at_user
    @spanned(Phase.RECORDING, partial(_span_name, "zero_grad"))
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients of all parameters, or set them to zero."""
        for group in self.param_groups:
            for param in group["params"]:
                clear_grad(param, set_to_none)

    def step(self, closure: Closure | None = None) -> Result:
        """Update the parameters. `closure`, if given, computes the gradients again and returns the loss."""
        raise NotImplementedError

    @staticmethod
    def _with_hooks(step: AnyCallable) -> AnyCallable:
        """Wrap a step: run the optimizer's hooks around it, and compute what is pending at its end."""

        @wraps(step)
        def run(self: Optimizer, *args: Arg, **kwargs: Arg) -> Result:
            if self._opt_called is False:
                self._opt_called = True
            # a subclass calls the step of its base, or only wraps another
            if self.stepping or "_hooks" not in vars(self):
                return step(self, *args, **kwargs)
            self.stepping = True
            try:
                return self._run_with_hooks(step, (self, *args), kwargs)
            except KeyboardInterrupt as error:
                end_at_user(error)
                raise
            finally:
                self.stepping = False
                uninterrupted.end_extension()

        return run

    @spanned(Phase.RECORDING, partial(_span_name, "step"))
    def _run_with_hooks(self, step: AnyCallable, args: Args, kwargs: Kwargs) -> Result:
        state = ambient()
        # Replays step without Python code, so they hold while options and state are as they were.
        if state.capture is not None:
            params = [group["params"] for group in self.param_groups]
            state.capture.stepped(self._what_a_capture_depends_on, self.state, *params)
        for hook in (*_before_all.values(), *self._hooks["step_pre"].values()):
            replacement = hook(self, args, kwargs)
            if replacement is not None:
                args, kwargs = _pre_hook_result(replacement)
        loss = step(*args, **kwargs)
        for hook in (*self._hooks["step_post"].values(), *_after_all.values()):
            hook(self, args, kwargs)
        end_optimizer_step()
        if process.activity is not None:
            _tell_step(process.activity, id(self))
            active_capture().repeats(partial(_tell_step, process.activity, id(self)))
        return loss

    _read_by_calls = ()  # the next method tells instead

    def _what_a_capture_depends_on(self) -> tuple[object, ...]:
        """A key. While it is equal, a captured step does what a new one would do with the same tensors and numbers."""
        groups = [
            (
                ByIdentity(group),
                len(group["params"]),
                *[x for x in group.values() if isinstance(x, (bool, str, NoneType))],
            )
            for group in self.param_groups
        ]
        hooks = (self._hooks["step_pre"], self._hooks["step_post"])
        return ByIdentity(self.state), *groups, *(key for held in hooks for key in held)

    _group_tensors_by_device_and_dtype = staticmethod(grouped_by_device_and_dtype)

    def _is_made_in(self, capture: object) -> bool:
        """Whether the function that `capture` records has made it."""
        return self._made_in is not None and self._made_in() is capture

    def watch_steps(self) -> None:
        """Note from now on whether there was a step."""
        if self._opt_called is None:
            self._opt_called = False
            self._watched = vars(self).get("step")

    def is_overridden(self) -> bool:
        """Whether `step` was replaced since `watch_steps`."""
        return vars(self).get("step") is not self._watched

    def was_stepped(self) -> bool:
        """Whether there was a step since `watch_steps`."""
        return bool(self._opt_called)

    # --- state dicts ------------------------------------------------------------------------------------------

    def state_dict(self) -> SavedState:
        """State by number of the parameter, and the groups, with numbers in place of parameters."""
        for hook in list(self._hooks["state_dict_pre"].values()):
            hook(self)
        numbers: dict[Any, int] = {}
        groups: list[Group] = []
        for group in self.param_groups:
            for param in group["params"]:
                numbers.setdefault(param, len(numbers))
            packed = {name: value for name, value in group.items() if name != "params"}
            groups.append({**packed, "params": [numbers[param] for param in group["params"]]})
        packed_state = {numbers.get(key, key): value for key, value in self.state.items()}
        contents: SavedState = {"state": packed_state, "param_groups": groups}
        for hook in list(self._hooks["state_dict_post"].values()):
            contents = hook(self, contents) or contents
        return contents

    def load_state_dict(self, state_dict: SavedState) -> None:
        """Load a state dict of an optimizer with the same groups. Floating state is cast to its parameter's type.

        Raises `ValueError` (also a `RuntimeError`) for the state of another kind of optimizer, and if groups or shapes
        do not fit; nothing has changed then. Options that an older version did not have get their defaults.
        """
        state_dict = dict(state_dict)
        for hook in list(self._hooks["load_pre"].values()):
            state_dict = hook(self, state_dict) or state_dict
        # Steps change what is loaded here, and the caller's own dict must stay as it was.
        saved = copy.deepcopy(state_dict["param_groups"])
        if len(saved) != len(self.param_groups):
            raise OptimizerStateError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(saved, self.param_groups, strict=True)):
            raise OptimizerStateError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        for at, group in enumerate(saved):
            self._require_own_options(at, group)
        param_of = {
            number: param
            for old, new in zip(saved, self.param_groups, strict=True)
            for number, param in zip(old["params"], new["params"], strict=True)
        }
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            param = param_of.get(key)
            state[key if param is None else param] = copy.deepcopy(value) if param is None else _cast(param, value)
        groups = [
            {**old, "params": new["params"]} | {n: new[n] for n in ("param_names",) if n in new}
            for old, new in zip(saved, self.param_groups, strict=True)
        ]
        # Before anything is replaced: state that does not fit would otherwise leave an optimizer that is neither the
        # old nor the new one.
        for at, group in enumerate(groups):
            self._require_fitting(at, group, state)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in list(self._hooks["load_post"].values()):
            hook(self)

    def _require_own_options(self, at: int, group: Group) -> None:
        """Refuse a group of another kind of optimizer, whose learning rate, for one, is none for this one."""
        other = other_optimizer(self, group, kinds_of(Optimizer))
        if other:
            raise OptimizerStateError(
                f"loaded state dict is of {other}, and this optimizer is {type(self).__name__}: group {at} has the "
                f"options {sorted(group.keys() - {'params', 'param_names'})}, expected {sorted(self.defaults)}. Load "
                f"the state of an optimizer of the same kind, or start without one"
            )

    def _needed_shapes(self, group: Group, param: Tensor) -> Mapping[str, tuple[int, ...]]:
        """The required shapes of a parameter's state, by name."""
        del group, param
        return {}

    def _require_fitting(self, at: int, group: Group, state: Mapping[int, SavedState]) -> None:
        """Refuse state whose shapes do not fit the group's parameters, as that of another model."""
        for place, param in enumerate(group["params"]):
            # A lazy parameter has no shape yet to compare with.
            if param not in state or is_lazy(param):
                continue
            shapes = self._needed_shapes({**self.defaults, **group}, param)
            names = {name for name, value in state[param].items() if isinstance(value, Tensor) and value.ndim}
            if shapes and names.difference(shapes) and not names.issuperset(shapes):
                raise OptimizerStateError(
                    f"loaded state dict does not fit {type(self).__name__}, but another optimizer: the state of "
                    f"parameter {place} of group {at} is {sorted(names)}, expected {sorted(shapes)}. Load the state of "
                    "an optimizer of the same kind, or start without one"
                )
            for name, shape in shapes.items():
                value = state[param].get(name)
                if isinstance(value, Tensor) and value.shape != shape:
                    raise OptimizerStateError(
                        f"loaded state dict does not fit parameter {place} of group {at}, of shape "
                        f"{tuple(param.shape)}: its state '{name}' has shape {tuple(value.shape)}, expected {shape}. "
                        "Load the state of an optimizer of the same parameters in the same order, or start without one"
                    )

    def __getstate__(self) -> SavedState:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: SavedState) -> None:
        self.__dict__.update(state)
        self.__dict__.setdefault("_hooks", {name: OrderedDict() for name in _HOOKS})
        for group in self.param_groups:
            for name, default in self.defaults.items():
                group.setdefault(name, default)

    # --- hooks ------------------------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: AnyCallable) -> Handle:
        """Call `hook(optimizer, args, kwargs)` before each step; a pair that it returns replaces the arguments.

        As in PyTorch, the first of `args` is the optimizer.
        """
        return Handle(self._hooks["step_pre"], hook)

    def register_step_post_hook(self, hook: Callable[..., None]) -> Handle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return Handle(self._hooks["step_post"], hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., None], prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` before the state is collected."""
        return register(self._hooks["state_dict_pre"], hook, prepend=prepend)

    def register_state_dict_post_hook(self, hook: AnyCallable, prepend: bool = False) -> Handle:
        """Call `hook(optimizer, state_dict)` after the state was collected; it may return another state dict."""
        return register(self._hooks["state_dict_post"], hook, prepend=prepend)

    def register_load_state_dict_pre_hook(self, hook: AnyCallable, prepend: bool = False) -> Handle:
        """Call `hook(optimizer, state_dict)` before loading; it may return another state dict."""
        return register(self._hooks["load_pre"], hook, prepend=prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None], prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` after loading."""
        return register(self._hooks["load_post"], hook, prepend=prepend)


_HOOKS = ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_pre", "load_post")


class _Required:
    """The default of an option that every group must set."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


_before_all = Registry[int, Any]("hooks before all steps")
_after_all = Registry[int, Any]("hooks after all steps")


def register_optimizer_step_pre_hook(hook: AnyCallable) -> Handle:
    """Call `hook(optimizer, args, kwargs)` before each step of every optimizer."""
    return Handle(_before_all, hook)


def register_optimizer_step_post_hook(hook: Callable[..., None]) -> Handle:
    """Call `hook(optimizer, args, kwargs)` after each step of every optimizer."""
    return Handle(_after_all, hook)


def _tell_step(activity: Activity, optimizer: int) -> None:
    """Tell the launcher of a step."""
    activity.step(optimizer)
    if activity.wants_memory():
        activity.device_memory(*accelerator_memory())


def _pre_hook_result(replacement: object) -> tuple[Args, Kwargs]:
    if not (is_tuple(replacement) and len(replacement) == 2):
        raise OptionError(f"step must return None or a tuple of (new_args, new_kwargs), but got {replacement}.")
    return replacement


def _unpacked(params: Params) -> tuple[list[Arg], list[str]]:
    """Parameters, and their names if they were given as pairs."""
    if isinstance(params, Tensor):
        return [params], []
    if isinstance(params, set):
        raise ArgumentError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
            "will change between runs. Please use a list instead."
        )
    entries: list[Any] = list(params)
    named = [isinstance(param, tuple) for param in entries]
    if not any(named):
        return entries, []
    if not all(named):
        raise ValueRangeError("all optimizer params should be with/without names. Some param names are missing")
    return [param for _, param in entries], [name for name, _ in entries]


def _cast(param: Tensor, value: PyTree, name: object = None) -> PyTree:
    """A copy of a parameter's state, moved to the parameter's device and, except for `step`, cast to its type."""
    if isinstance(value, Tensor):
        copied = wrap(own(value._read())).to(device=param.device)
        return copied if name == "step" or not param.dtype.is_floating_point else copied.to(dtype=param.dtype)
    if is_dict(value):
        return {key: _cast(param, entry, key) for key, entry in value.items()}
    if is_list_or_tuple(value):
        return type(value)(_cast(param, entry) for entry in value)
    if is_of_other_library(value):
        raise ArgumentError(f"loaded state dict has a state that is no tensor of Weft, but {kind_and_advice(value)}")
    return copy.deepcopy(value)


ParamsT = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
"""The argument of optimizers: parameters, groups, or pairs of name and parameter."""
