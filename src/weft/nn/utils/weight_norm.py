"""Weight normalisation by a hook. Newer code uses `parametrizations.weight_norm`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from weft._tensor.arguments import without_names
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.errors import ModuleError, ValueRangeError
from weft.nn._hooks import AttributeHook, attribute_hooks, register
from weft.nn._lazy_parameter import is_lazy
from weft.nn._parameter import Parameter
from weft.nn._tables import forward_pre_hooks_of, parameters_of

if TYPE_CHECKING:
    from weft.nn._module import Module

M = TypeVar("M", bound="Module")


def norm_except_dim(v: Tensor, dim: int) -> Tensor:
    """The 2-norm of each slice along `dim`, with size 1 in the other dims; for dim -1, of all elements, zero-dim."""
    if dim == -1:
        return op.vector_norm(v)
    flat = op.reshape(op.movedim(v, dim, 0), (v.shape[dim], -1))
    shape = [1] * v.ndim
    shape[dim] = v.shape[dim]
    return op.reshape(op.vector_norm(flat, 2.0, 1), tuple(shape))


def scaled(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """The slices of `v` along `dim`, scaled to the lengths `g`."""
    return v * (g / norm_except_dim(v, dim))


class WeightNorm(AttributeHook):
    """The hook that computes `name` from `name_g` and `name_v` before each call."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    @property
    def attribute(self) -> str:
        return self.name

    def current(self, module: Module) -> Tensor:
        return self.compute_weight(module)

    def compute_weight(self, module: Module) -> Tensor:
        """The parameter computed from lengths and directions."""
        return scaled(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | str | None) -> WeightNorm:
        """Replace a parameter by its lengths and directions; returns the hook."""
        warnings.warn(
            "`torch.nn.utils.weight_norm` is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`.",
            FutureWarning,
            stacklevel=3,
        )
        if attribute_hooks(module, WeightNorm, name):
            raise ModuleError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        weight = getattr(module, name)
        if is_lazy(weight):
            raise ValueRangeError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. Make sure to run the dummy "
                "forward before applying weight normalization"
            )
        hook = WeightNorm(name, without_names(dim, weight))
        lengths = norm_except_dim(weight.detach(), hook.dim)
        del parameters_of(module)[name]
        module.register_parameter(name + "_g", Parameter(lengths))
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        setattr(module, name, hook.compute_weight(module))
        register(forward_pre_hooks_of(module), hook)
        return hook

    def remove(self, module: Module) -> None:
        """Make the product a parameter again. `remove_weight_norm` removes the hook."""
        weight: Any = self.compute_weight(module)
        delattr(module, self.name)
        del parameters_of(module)[self.name + "_g"], parameters_of(module)[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: object) -> None:
        del inputs
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: M, name: str = "weight", dim: int | str | None = 0) -> M:
    """Split a parameter into lengths `name_g` and directions `name_v` (Salimans and Kingma, 2016); returns the module.

    There is one length for each slice along `dim`, or a single one if it is None.
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Make the parameter an ordinary one again; returns the module."""
    hooks = attribute_hooks(module, WeightNorm, name)
    if not hooks:
        raise ValueRangeError(f"weight_norm of '{name}' not found in {module}")
    for key, hook in hooks.items():
        hook.remove(module)
        del forward_pre_hooks_of(module)[key]
    return module
