"""Regions in which each operator runs in the precision that its row of the operator table names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial, wraps
from typing import Any, Self

import numpy as np

from weft._base.autocast import DTYPE_INDEX, Autocast
from weft._base.dtype import DType, bfloat16, float16
from weft._base.site import warn_user
from weft._base.state import ambient
from weft._lazy.autocast import is_eligible
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.tensor import Tensor
from weft.amp._state import change, get_autocast_dtype, is_autocast_available, is_autocast_enabled, type_of
from weft.cuda._devices import is_available, is_bf16_supported
from weft.errors import AmpError, ArgumentError, ValueRangeError

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

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(func):
            raise ArgumentError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. "
                "Did you mean to use autocast as a context manager? For example:\n"
                "    with torch.autocast(device_type=...):\n"
                "        output = model(input)"
            )
        return autocast_decorator(self, func)


def autocast_decorator(autocast_instance: autocast, func: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its calls in the region."""

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        region = copy(autocast_instance)  # calls may overlap, in threads and in recursion
        region._before = []
        with region:
            return func(*args, **kwargs)

    return call


def _required_type(device_type: Any) -> str:
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


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Callable[..., Any]:
    """Decorates `forward` of an `autograd.Function`, whose `backward` is decorated with `custom_bwd`.

    With `cast_inputs`, floating tensors on devices of the type are cast to it in a region, and `forward` then runs with
    autocast off. Without, its operators are cast as anywhere in the region.
    """
    device_type = _required_type(device_type)
    if fwd is None:
        return partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        enabled = is_autocast_enabled(device_type)
        ctx._dtype = get_autocast_dtype(device_type)
        # `backward` runs later, outside of the region, and has to find the settings of the forward pass.
        ctx._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorates `backward` of an `autograd.Function`, which then runs in the autocast state of its `forward`."""
    device_type = _required_type(device_type)
    if bwd is None:
        return partial(custom_bwd, device_type=device_type)

    @wraps(bwd)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(ctx, *args, **kwargs)

    return backward


def _cast(value: Any, device_type: str, dtype: DType) -> Any:
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
