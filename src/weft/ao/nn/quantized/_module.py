"""What quantized modules have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from weft._base.dtype import float32, int64
from weft._base.types import AttributeValue, SavedState
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError
from weft.nn import _state_dict
from weft.nn._module import Module

if TYPE_CHECKING:
    from weft.nn._state_dict import Metadata


class QuantizedModule(Module):
    """A module with state that is no parameter or buffer, such as a quantized weight."""

    def _entries(self) -> dict[str, AttributeValue]:
        """The entries of the state dict, beside parameters and buffers."""
        raise NotImplementedError

    def _take(self, entries: Mapping[str, AttributeValue]) -> None:
        """Take such entries from a state dict that has them all."""
        raise NotImplementedError

    def _save_to_state_dict(self, destination: SavedState, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, value in self._entries().items():
            destination[prefix + name] = value

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
        names = list(self._entries())
        entries = {name: state_dict[prefix + name] for name in names if prefix + name in state_dict}
        rest = _state_dict.StateDict((k, v) for k, v in state_dict.items() if k not in {prefix + n for n in names})
        missing = [prefix + name for name in names if name not in entries]
        if missing and strict:
            missing_keys.extend(missing)
        super()._load_from_state_dict(rest, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        if not missing:
            _state_dict.write_or_plan([lambda: self._take(entries)], local_metadata)


class OnGrid(QuantizedModule):
    """A module whose results are on a grid of its own: `scale` and `zero_point` are numbers."""

    scale: float
    zero_point: int

    def _entries(self) -> dict[str, AttributeValue]:
        return {"scale": tensor(self.scale, dtype=float32), "zero_point": tensor(self.zero_point, dtype=int64)}

    def _take(self, entries: Mapping[str, AttributeValue]) -> None:
        self.scale, self.zero_point = float(entries["scale"]), int(entries["zero_point"])


class WeightedQuantizedModule(OnGrid):
    """A module with a quantized weight: `weight()` and `bias()` return what `set_weight_bias` was given."""

    def set_weight_bias(self, w: Tensor, b: Tensor | None) -> None:
        """Set the weight and the bias."""
        raise NotImplementedError

    def weight(self) -> Tensor:
        """The quantized weight."""
        raise NotImplementedError

    def bias(self) -> Tensor | None:
        """The bias, of floats."""
        raise NotImplementedError


def grid_of(observer: Module) -> tuple[float, int]:
    """The scale and the zero point that an observer has chosen for a whole tensor."""
    scale, zero_point = observer.calculate_qparams()
    return float(scale), int(zero_point)


def observer_of(module: Module) -> Module:
    """The observer of a module's results; `AssertionError` where there is none."""
    if not hasattr(module, "activation_post_process"):
        raise PreconditionError(
            f"Input {type(module).__name__} module must have an observer attached: call prepare(), and run the "
            "prepared model, before convert()"
        )
    return module.activation_post_process


def require_type(module: Module, allowed: type | tuple[type, ...], target: type) -> None:
    """`AssertionError` unless a module has exactly the type (or one of those) from which another is made."""
    kinds = allowed if isinstance(allowed, tuple) else (allowed,)
    if type(module) not in kinds:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise PreconditionError(
            f"nnq.{target.__name__}.from_float only works for {names}, but got: {type(module).__name__}"
        )


class HidesState(Module):
    """Mixed into modules that keep their state in submodules with private names: their text does not show these."""

    def _shown_modules(self) -> Iterable[tuple[str, Module | None]]:
        return [(name, module) for name, module in self._modules.items() if not name.startswith("_")]
