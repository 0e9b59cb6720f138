"""Gradient scaling: losses multiplied so that float16 gradients do not vanish; steps skipped where they overflow."""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, TypeAlias

from weft._base.device import device
from weft._base.device import device as device_class
from weft._base.dtype import DType, float16, float32, int32
from weft._base.site import warn_user
from weft._base.state import using
from weft._base.types import Arg, Args, Kwargs, PyTree, Result, SavedState
from weft._dispatch import apply
from weft._lazy.aval import aval_of
from weft._lazy.call import ONE, many
from weft._lazy.infer import call_of
from weft._lazy.runtime import new_array
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.leaf import leaf
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import replace_value
from weft.cuda._devices import is_available
from weft.errors import AmpError, ArgumentError, PreconditionError, ValueRangeError
from weft.ops.optimizer_scaling import unscale_gradients, updated_scale
from weft.optim._optimizer import Optimizer

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """How far an optimizer is in this iteration."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _refresh_per_optimizer_state() -> SavedState:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


_CLOSED_STATE = (
    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after scaler.update()."
)
_NEW_SCALE = (
    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with requires_grad=False."
)


AnyOptimizer: TypeAlias = Any
"""An optimizer, or what stands for one: an object with `param_groups` and `step`."""


class GradScaler:
    """Scales losses, unscales gradients, skips steps with infinite or NaN gradients, and adapts the scale.

    An iteration is `scale(loss).backward()`, `step(optimizer)`, `update()`, with `unscale_` before `step` if gradients
    are clipped or read. None of these waits for a value: the program of the step chooses between old and new
    parameters. Only if the optimizer's `step` is the user's own, one number is read to decide whether to call it.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = bool(enabled)
        if device == "cuda" and enabled and not is_available():
            warn_user("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.")
            self._enabled = False
        if not self._enabled:
            return
        if growth_factor <= 1.0:
            raise PreconditionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise PreconditionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._scale: Tensor | None = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker: Tensor | None = None
        self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_refresh_per_optimizer_state)

    # --- an iteration -------------------------------------------------------------------------------------------

    def scale(self, outputs: PyTree) -> PyTree:
        """Multiply a tensor, or all tensors in containers, by the scale; returns them unchanged if scaling is off."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._start(outputs.device)
            return outputs * _on(self._scale, outputs.device)
        if isinstance(outputs, Iterable):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, list | tuple) else scaled
        raise ValueRangeError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: AnyOptimizer) -> None:
        """Divide the gradients of an optimizer by the scale before `step`, so that they can be clipped or read.

        Once for each `step`, when all gradients are there. `RuntimeError` for a second time, and after the step.
        """
        if not self._enabled:
            return
        self._started("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise AmpError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise AmpError("unscale_() is being called after step().")
        state["found_inf_per_device"] = self._unscaled(optimizer)
        state["stage"] = OptState.UNSCALED

    def step(self, optimizer: AnyOptimizer, *args: Arg, **kwargs: Arg) -> Result:
        """Unscale the gradients if they are not yet, and step if all are finite; returns what `optimizer.step` does.

        Further arguments are those of the optimizer's `step`; there can be no closure. Step hooks of Weft's optimizers
        run in skipped steps, too.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise AmpError("Closure use is not currently supported if GradScaler is enabled.")
        self._started("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise AmpError("step() has already been called since the last update().")
        # Such an optimizer unscales within its own step; doing it here, too, would divide twice.
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._handed_over(optimizer, state, args, kwargs)
        else:
            if state["stage"] is OptState.READY:
                self.unscale_(optimizer)
            # Their sum decides within the step's program: PyTorch reads it here, and waits for the device in every
            # step.
            infinities = list(state["found_inf_per_device"].values())
            if not infinities:
                raise PreconditionError("No inf checks were recorded for this optimizer.")
            result = self._stepped(optimizer, infinities, args, kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """End the iteration: shrink the scale after a skipped step, or let it grow after many others, or set it."""
        if not self._enabled:
            return
        scale, tracker = self._started("update")
        if new_scale is not None:
            self._set_scale(scale, new_scale)
        else:
            states = self._per_optimizer_states.values()
            infinities = [x for state in states for x in state["found_inf_per_device"].values()]
            if not infinities:
                raise PreconditionError("No inf checks were recorded prior to update.")
            call = call_of(updated_scale, (ONE,) * 6)
            numbers = (self._growth_factor, self._backoff_factor, self._growth_interval)
            inputs = (scale, tracker, _total(infinities, scale.device))
            # In the program as well, so that no number is waited for.
            with using(grad=False):
                new = apply(call, (*map(operand, inputs), *map(number, numbers)))
                replace_value(scale, new[0])
                replace_value(tracker, new[1])
        self._per_optimizer_states.clear()

    # --- the parts of an iteration ------------------------------------------------------------------------------

    def _start(self, device: device) -> None:
        assert self._growth_tracker is None, "both start together"
        self._scale = _constant(self._init_scale, float32, device)
        self._growth_tracker = _constant(self._init_growth_tracker, int32, device)

    def _started(self, name: str) -> tuple[Tensor, Tensor]:
        """The scale and the count of steps; `AssertionError` if nothing has been scaled yet."""
        scale, tracker = self._scale, self._growth_tracker
        if scale is None or tracker is None:
            raise PreconditionError(
                f"Attempted {name} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )
        return scale, tracker

    def _unscaled(self, optimizer: AnyOptimizer, *, checks_only: bool = False) -> dict[device, Tensor]:
        """Unscale the gradients of an optimizer; returns by device whether any is infinite or NaN.

        With `checks_only` the gradients, which may be float16 then, stay as they are.
        """
        grads: dict[device_class, list[Tensor]] = {}
        for param in (param for group in optimizer.param_groups for param in group["params"]):
            if not isinstance(param, Tensor):
                raise ArgumentError(
                    f"unscale_: an optimizer of Tensors is needed, but a parameter is {kind_and_advice(param)}"
                )
            grad = param.grad
            if grad is None:
                continue
            # As in PyTorch: unscaled float16 gradients are the ones that vanish.
            if grad.dtype is float16 and not checks_only:
                raise ValueRangeError("Attempting to unscale FP16 gradients.")
            grads.setdefault(grad.device, []).append(grad)
        return {device: self._unscaled_on(device, group, checks_only) for device, group in grads.items()}

    def _unscaled_on(self, device: device, grads: Sequence[Tensor], checks_only: bool) -> Tensor:
        infinities, scale = _constant(0.0, float32, device), self._scale
        assert scale is not None, "the caller has called _started"
        factor = _constant(1.0, float32, device) if checks_only else _on(scale, device)
        call = call_of(unscale_gradients, (many(len(grads)), ONE, ONE))
        with using(grad=False):
            *new, infinite = apply(call, tuple(map(operand, (*grads, infinities, factor))))
            if not checks_only:
                for grad, value in zip(grads, new, strict=True):
                    replace_value(grad, value)
        return wrap(infinite)

    def _stepped(self, optimizer: AnyOptimizer, infinities: Sequence[Tensor], args: Args, kwargs: Kwargs) -> Result:
        """Step unless a gradient is infinite or NaN. Weft's optimizers decide that within the program of the step."""
        if not (isinstance(optimizer, Optimizer) and optimizer._skips_steps):
            return None if sum(float(x) for x in infinities) else optimizer.step(*args, **kwargs)
        optimizer._found_inf = infinities
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer._found_inf

    def _handed_over(self, optimizer: AnyOptimizer, state: SavedState, args: Args, kwargs: Kwargs) -> Result:
        """Step an optimizer that handles the scale itself, which gets `grad_scale` and `found_inf` as attributes."""
        scale, _ = self._started("_check_inf_per_device")
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the near "
                "future GradScaler registers `grad_scale: Tensor` and `found_inf: Tensor` to the passed optimizer and "
                "let the optimizer use them directly.",
                FutureWarning,
                stacklevel=3,
            )
            return optimizer.step(*args, **kwargs, grad_scaler=self)
        if state["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
        own = getattr(optimizer, "grad_scale", None)
        if state["stage"] is not OptState.UNSCALED:
            own = scale if own is None else scale * own
        optimizer.grad_scale = own
        infinities = [_constant(0.0, float32, scale.device), *state["found_inf_per_device"].values()]
        optimizer.found_inf = _total(infinities, scale.device)
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def _check_inf_per_device(self, optimizer: AnyOptimizer) -> dict[device, Tensor]:
        """By device, whether any gradient is infinite or NaN; the gradients stay as they are."""
        self._started("_check_inf_per_device")
        infinities = self._unscaled(optimizer, checks_only=True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = infinities
        return infinities

    def _found_inf_per_device(self, optimizer: AnyOptimizer) -> dict[device, Tensor]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

    def _set_scale(self, scale: Tensor, new: object) -> None:
        if isinstance(new, float):
            scale.fill_(new)
            return
        if not isinstance(new, Tensor) or new.device.type != self._device or new.numel() != 1 or new.requires_grad:
            raise PreconditionError(_NEW_SCALE)
        scale.copy_(new.reshape(()))

    # --- settings -----------------------------------------------------------------------------------------------

    def get_scale(self) -> float:
        """The scale as a number, after waiting for it; 1.0 if scaling is off."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale)

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by to grow."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by to grow."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by after a skipped step."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by after a skipped step."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many steps in a row without a skipped one the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many steps in a row without a skipped one the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker)

    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def is_enabled(self) -> bool:
        """Whether scaling is on."""
        return self._enabled

    # --- saving -------------------------------------------------------------------------------------------------

    def state_dict(self) -> SavedState:
        """The scale and the settings as numbers, after waiting for them; empty if scaling is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: SavedState) -> None:
        """Set the scale and the settings; does nothing if scaling is off."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise AmpError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        self._fill(self._scale, self._init_scale)
        self._fill(self._growth_tracker, self._init_growth_tracker)

    @staticmethod
    def _fill(tensor: Tensor | None, value: float) -> None:
        if tensor is not None:
            tensor.fill_(value)

    def __getstate__(self) -> SavedState:
        state = dict(self.__dict__)
        if self._enabled:
            if self._per_optimizer_states:
                raise PreconditionError(_CLOSED_STATE)
            state.update(_init_scale=self.get_scale(), _init_growth_tracker=self._get_growth_tracker())
            state.update(_scale=None, _growth_tracker=None)
        return state


def _constant(value: float, dtype: DType, device: device) -> Tensor:
    """A number as a tensor, which is an input of the program, not a constant."""
    aval = aval_of((), dtype, device=device)
    return wrap(leaf(aval, new_array(aval, value)))


def _on(tensor: Any, device: device) -> Tensor:
    return tensor if tensor.device == device else tensor.to(device)


def _total(infinities: Sequence[Tensor], device: device) -> Tensor:
    """The sum over devices: not zero if any gradient is infinite or NaN."""
    first, *others = (_on(x, device) for x in infinities)
    return sum(others, first)
