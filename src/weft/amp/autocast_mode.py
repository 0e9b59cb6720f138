"""What programs set of autocast: regions in which each operator runs in the precision that its row names, and settings.

What is set is a field of the thread's state (`weft._base.autocast`). It takes effect where calls are recorded
(`weft._lazy.autocast`), and in functions that are composed of rows (`weft._tensor.autocast`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Self

import numpy as np

from weft._base.autocast import DEFAULT_TYPES, DTYPE_INDEX, Autocast
from weft._base.device import device
from weft._base.dtype import DType, bfloat16, float16
from weft._base.site import warn_user
from weft._base.state import ambient, set_field
from weft._base.types import AnyCallable, Arg, PyTree, Result
from weft._lazy.autocast import is_eligible
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.tensor import Tensor
from weft.cuda._devices import is_available, is_bf16_supported
from weft.errors import AmpError, ArgumentError, ValueRangeError

if TYPE_CHECKING:
    from weft.autograd._context import Ctx

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

_LOWER_TYPES = (bfloat16, float16)


class autocast:
    """A region, or a decorator, in which operators on devices of a type choose their own precision.

    Matrix products and convolutions run in `dtype`, by default bfloat16 on "cpu" and "xla" and float16 on "cuda" and
    "mps"; operators that need range run in float32; the rest in the types that they get. What is written in place, to
    `out`, or asked for with a `dtype` stays as it is, and float64 is never cast. A weight is cast once in the outermost
    region, unless `cache_enabled` is False. State is per thread.
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.device = device_type = _required_type(device_type)
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        if not isinstance(self.fast_dtype, DType):
            raise ArgumentError(f"autocast: dtype must be a torch.dtype, not {kind_and_advice(dtype)}")
        self._dtype_index = DTYPE_INDEX[device_type]
        self._enabled = bool(enabled) and _is_possible(device_type, self.fast_dtype)
        self._cache_enabled = ambient().autocast.caches if cache_enabled is None else bool(cache_enabled)
        self._before: list[Autocast] = []

    def __enter__(self) -> Self:
        before = ambient().autocast
        self._before.append(before)
        dtypes = list(before.dtypes)
        dtypes[self._dtype_index] = self.fast_dtype
        change(
            enabled=before.enabled | {self.device} if self._enabled else before.enabled - {self.device},
            dtypes=tuple(dtypes),
            caches=self._cache_enabled,
            nesting=before.nesting + 1,
        )
        return self

    def __exit__(self, *exc: object) -> None:
        before, now = self._before.pop(), ambient().autocast
        if now.nesting == 1:
            now.kept.clear()
        dtypes = list(now.dtypes)
        dtypes[self._dtype_index] = before.dtypes[self._dtype_index]
        was_on = self.device in before.enabled
        change(
            enabled=now.enabled | {self.device} if was_on else now.enabled - {self.device},
            dtypes=tuple(dtypes),
            caches=before.caches,
            nesting=now.nesting - 1,
        )

    def __call__(self, func: AnyCallable) -> AnyCallable:
        if not callable(func):
            raise ArgumentError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. "
                "Did you mean to use autocast as a context manager? For example:\n"
                "    with torch.autocast(device_type=...):\n"
                "        output = model(input)"
            )
        return autocast_decorator(self, func)


def autocast_decorator(autocast_instance: autocast, func: AnyCallable) -> AnyCallable:
    """The function, with its calls in the region."""

    @wraps(func)
    def call(*args: Arg, **kwargs: Arg) -> Result:
        region = copy(autocast_instance)  # calls may overlap, in threads and in recursion
        region._before = []
        with region:
            return func(*args, **kwargs)

    return call


def _required_type(device_type: object) -> str:
    if not isinstance(device_type, str):
        raise ValueRangeError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    return type_of(device_type, "autocast")


def _is_possible(device_type: str, dtype: DType) -> bool:
    """Whether a region can cast to `dtype`; warns if it cannot. `RuntimeError` for bfloat16 on a GPU without it."""
    if device_type == "cuda":
        if not is_available():
            warn_user("User provided device_type of 'cuda', but CUDA is not available. Disabling")
            return False
        if dtype is bfloat16 and not is_bf16_supported():
            raise AmpError("Current CUDA Device does not support bfloat16. Please switch dtype to float16.")
    if dtype not in _LOWER_TYPES:
        name = device_type.upper()
        warn_user(
            f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
            f"{name} Autocast only supports dtypes of {', '.join(map(str, _LOWER_TYPES))} currently."
        )
        return False
    return True


# --- derivatives written by users ---------------------------------------------------------------------------------


def custom_fwd(fwd: AnyCallable | None = None, *, device_type: str, cast_inputs: DType | None = None) -> AnyCallable:
    """Decorates `forward` of an `autograd.Function`, whose `backward` is decorated with `custom_bwd`.

    With `cast_inputs`, floating tensors on devices of the type are cast to it in a region, and `forward` then runs with
    autocast off. Without, its operators are cast as anywhere in the region.
    """
    device_type = _required_type(device_type)
    if fwd is None:
        return partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @wraps(fwd)
    def forward(ctx: Ctx, *args: Arg, **kwargs: Arg) -> Result:
        enabled = is_autocast_enabled(device_type)
        ctx._dtype = get_autocast_dtype(device_type)
        # `backward` runs later, outside of the region, and has to find the settings of the forward pass.
        ctx._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return forward


def custom_bwd(bwd: AnyCallable | None = None, *, device_type: str) -> AnyCallable:
    """Decorates `backward` of an `autograd.Function`, which then runs in the autocast state of its `forward`."""
    device_type = _required_type(device_type)
    if bwd is None:
        return partial(custom_bwd, device_type=device_type)

    @wraps(bwd)
    def backward(ctx: Ctx, *args: Arg, **kwargs: Arg) -> Result:
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(ctx, *args, **kwargs)

    return backward


def _cast(value: PyTree, device_type: str, dtype: DType) -> PyTree:
    """Floating tensors on devices of the type, in another type, also inside of containers."""
    if isinstance(value, Tensor):
        kind = ambient().autocast.as_if or value.device.type
        return value.to(dtype) if kind == device_type and is_eligible(value.dtype) else value
    if isinstance(value, str | bytes | np.ndarray):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, Iterable):
        items = (_cast(v, device_type, dtype) for v in value)
        return type(value)(items) if isinstance(value, list | tuple) else items
    return value


# --- settings, one by one ------------------------------------------------------------------------------------------


def is_autocast_available(device_type: str) -> bool:
    """Whether devices of this type have autocast."""
    return _device_type(device_type, "is_autocast_available") in DEFAULT_TYPES


def type_of(device_type: object, function: str) -> str:
    """The type in a type of device, or in a device such as "cpu:0"; `RuntimeError` for those without autocast."""
    kind = _device_type(device_type, function)
    if kind not in DTYPE_INDEX:
        raise AmpError(f"User specified an unsupported autocast device_type '{device_type}'")
    return kind


def _dtype_index(device_type: object, function: str) -> int:
    """The index of a type of device in `Autocast.dtypes`."""
    return DTYPE_INDEX[type_of(device_type, function)]


def _device_type(device_type: object, function: str) -> str:
    """The type in a type of device, or in a device; `TypeError` for what is no string."""
    if not isinstance(device_type, str):
        raise ArgumentError(f"{function}(): argument 'device_type' must be str, not {type(device_type).__name__}")
    return device(device_type).type


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether operators on devices of this type are cast here."""
    return type_of(device_type, "is_autocast_enabled") in ambient().autocast.enabled


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Switch casting for a type of device, by default CUDA, for the rest of this thread or region."""
    name = "set_autocast_enabled"
    kind, on = ("cuda", device_type) if enabled is None else (device_type, enabled)
    if not isinstance(on, bool):
        raise ArgumentError(f"{name}(): argument 'enabled' must be bool, not {type(on).__name__}")
    kind, state = type_of(kind, name), ambient().autocast
    change(enabled=state.enabled | {kind} if on else state.enabled - {kind})


def get_autocast_dtype(device_type: str) -> DType:
    """The lower precision type of devices of a type."""
    return ambient().autocast.dtypes[_dtype_index(device_type, "get_autocast_dtype")]


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Set the lower precision type of devices of a type, for the rest of this thread or region."""
    if not isinstance(dtype, DType):
        raise ArgumentError(f"set_autocast_dtype(): argument 'dtype' must be torch.dtype, not {kind_and_advice(dtype)}")
    dtypes = list(ambient().autocast.dtypes)
    dtypes[_dtype_index(device_type, "set_autocast_dtype")] = dtype
    change(dtypes=tuple(dtypes))


def is_autocast_cache_enabled() -> bool:
    """Whether the casts of weights are kept until the outermost region ends."""
    return ambient().autocast.caches


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keep the casts of weights, or make one for each use, for the rest of this thread or region."""
    if not isinstance(enabled, bool):
        raise ArgumentError(f"enabled must be a bool (got {type(enabled).__name__})")
    change(caches=enabled)


def clear_autocast_cache() -> None:
    """Forget the casts of weights that are kept."""
    ambient().autocast.kept.clear()


def autocast_increment_nesting() -> int:
    """Note that a region begins; returns the number of nested regions."""
    nesting = ambient().autocast.nesting + 1
    change(nesting=nesting)
    return nesting


def autocast_decrement_nesting() -> int:
    """Note that a region ends; returns the number of nested regions."""
    nesting = ambient().autocast.nesting - 1
    change(nesting=nesting)
    return nesting


def change(**fields: Arg) -> None:
    """Set fields of the autocast state. The first change in a thread gives it its own cache of casts."""
    state = ambient().autocast
    if "kept" not in fields and state.nesting == 0 and not state.kept:
        fields["kept"] = {}
    set_field(autocast=replace(state, **fields))


# --- deprecated: one function for each type of device ---------------------------------------------------------------


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"torch.{old} is deprecated. Please use torch.{new} instead.", DeprecationWarning, stacklevel=3)


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`."""
    _deprecated("is_autocast_cpu_enabled()", "is_autocast_enabled('cpu')")
    return is_autocast_enabled("cpu")


def is_autocast_xla_enabled() -> bool:
    """`is_autocast_enabled("xla")`."""
    _deprecated("is_autocast_xla_enabled()", "is_autocast_enabled('xla')")
    return is_autocast_enabled("xla")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """`set_autocast_enabled("cpu", enabled)`."""
    _deprecated("set_autocast_cpu_enabled(enabled)", "set_autocast_enabled('cpu', enabled)")
    set_autocast_enabled("cpu", enabled)


def set_autocast_xla_enabled(enabled: bool) -> None:
    """`set_autocast_enabled("xla", enabled)`."""
    _deprecated("set_autocast_xla_enabled(enabled)", "set_autocast_enabled('xla', enabled)")
    set_autocast_enabled("xla", enabled)


def get_autocast_cpu_dtype() -> DType:
    """`get_autocast_dtype("cpu")`."""
    _deprecated("get_autocast_cpu_dtype()", "get_autocast_dtype('cpu')")
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    """`get_autocast_dtype("cuda")`."""
    _deprecated("get_autocast_gpu_dtype()", "get_autocast_dtype('cuda')")
    return get_autocast_dtype("cuda")


def get_autocast_xla_dtype() -> DType:
    """`get_autocast_dtype("xla")`."""
    _deprecated("get_autocast_xla_dtype()", "get_autocast_dtype('xla')")
    return get_autocast_dtype("xla")


def set_autocast_cpu_dtype(dtype: DType) -> None:
    """`set_autocast_dtype("cpu", dtype)`."""
    _deprecated("set_autocast_cpu_dtype(dtype)", "set_autocast_dtype('cpu', dtype)")
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: DType) -> None:
    """`set_autocast_dtype("cuda", dtype)`."""
    _deprecated("set_autocast_gpu_dtype(dtype)", "set_autocast_dtype('cuda', dtype)")
    set_autocast_dtype("cuda", dtype)


def set_autocast_xla_dtype(dtype: DType) -> None:
    """`set_autocast_dtype("xla", dtype)`."""
    _deprecated("set_autocast_xla_dtype(dtype)", "set_autocast_dtype('xla', dtype)")
    set_autocast_dtype("xla", dtype)
