"""Spectral normalisation by a hook. Newer code uses `parametrizations.spectral_norm`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from weft._base.state import using
from weft._base.types import SavedState
from weft._tensor.arguments import without_names
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.errors import ModuleError, ValueRangeError
from weft.nn import functional as F
from weft.nn._conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from weft.nn._hooks import AttributeHook, attribute_hooks, register
from weft.nn._lazy_parameter import is_lazy
from weft.nn._parameter import Parameter
from weft.nn._tables import (
    forward_pre_hooks_of,
    load_state_dict_pre_hooks_of,
    parameters_of,
    state_dict_hooks_of,
    version_of,
)

if TYPE_CHECKING:
    from weft.nn._module import Module
    from weft.nn._state_dict import Metadata

M = TypeVar("M", bound="Module")


def default_dim(module: Module) -> int:
    """The dim of a module's weight that indexes its outputs."""
    return int(isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)))


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """A weight as a matrix, with `dim` first and all other dims flattened."""
    return op.reshape(op.movedim(weight, dim, 0), (weight.shape[dim], -1))


def random_direction(like: Tensor, size: int, eps: float) -> Tensor:
    """A vector of length 1."""
    return F.normalize(op.randn((size,), dtype=like.dtype, device=like.device), dim=0, eps=eps)


def require_iterations(number: int) -> None:
    """Refuse a number of power iterations below 1."""
    if number <= 0:
        raise ValueRangeError(f"Expected n_power_iterations to be positive, but got n_power_iterations={number}")


class SpectralNorm(AttributeHook):
    """The hook that divides `name_orig` by its largest singular value before each call.

    The value is estimated by the power method from the vectors `name_u` and `name_v`, which each call in training
    improves.
    """

    _version = 1
    """Of the state dict: from 1 on, `name_v` is saved, and `name` is not."""

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        require_iterations(n_power_iterations)
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    @property
    def attribute(self) -> str:
        return self.name

    def current(self, module: Module) -> Tensor:
        return self.compute_weight(module, do_power_iteration=False)

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """The weight as a matrix, with `dim` first and all other dims flattened."""
        return as_matrix(weight, self.dim)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The normalised weight; the estimates are improved first if `do_power_iteration`."""
        weight, u, v = (getattr(module, self.name + suffix) for suffix in ("_orig", "_u", "_v"))
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with using(grad=False):
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(op.mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(op.mv(matrix, v), dim=0, eps=self.eps))
        return weight / op.dot(u, op.mv(matrix, v))

    def remove(self, module: Module) -> None:
        """Make the normalised weight a parameter again. `remove_spectral_norm` removes the hooks."""
        with using(grad=False):
            weight: Any = self.compute_weight(module, do_power_iteration=False)
        for suffix in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: object) -> None:
        del inputs
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int | str, eps: float) -> SpectralNorm:
        """Normalise a parameter; returns the hook."""
        if attribute_hooks(module, SpectralNorm, name):
            raise ModuleError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        weight = parameters_of(module)[name]
        if weight is None:
            raise ValueRangeError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ValueRangeError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. Make sure to run the dummy "
                "forward before applying spectral normalization"
            )
        hook = SpectralNorm(name, n_power_iterations, without_names(dim, weight), eps)
        height, width = hook.reshape_weight_to_matrix(weight.detach()).shape
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        # A plain attribute, as the parameter is the original now; the hook sets it anew before each call.
        setattr(module, name, weight.detach())
        module.register_buffer(name + "_u", random_direction(weight, height, eps))
        module.register_buffer(name + "_v", random_direction(weight, width, eps))
        register(forward_pre_hooks_of(module), hook)
        register(state_dict_hooks_of(module), SpectralNormStateDictHook(hook))
        register(load_state_dict_pre_hooks_of(module), SpectralNormLoadStateDictPreHook(hook))
        return hook


class SpectralNormStateDictHook:
    """Writes the version of the hook into the state dict's metadata."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Module, state_dict: SavedState, prefix: str, local_metadata: Metadata) -> None:
        del module, state_dict, prefix
        local_metadata.setdefault("spectral_norm", {})[self.fn.name + ".version"] = version_of(self.fn)


class SpectralNormLoadStateDictPreHook:
    """Computes `name_v` for state dicts of version 0, which hold `name_orig`, `name` and `name_u`."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self,
        state_dict: SavedState,
        prefix: str,
        local_metadata: Metadata,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        del unexpected_keys, error_msgs
        version = local_metadata.get("spectral_norm", {}).get(self.fn.name + ".version")
        key = prefix + self.fn.name
        if (version or 0) >= 1:
            return
        if version is None and key not in state_dict and all(key + s in state_dict for s in ("_orig", "_u", "_v")):
            return
        missing = [key + suffix for suffix in ("_orig", "", "_u") if key + suffix not in state_dict]
        if missing:
            missing_keys.extend(missing if strict else [])
            return
        original, weight, u = state_dict[key + "_orig"], state_dict.pop(key), state_dict[key + "_u"]
        with using(grad=False):
            matrix = self.fn.reshape_weight_to_matrix(original)
            left, values, right = op.svd(matrix, full_matrices=False)
            v = op.mv(right.mH, op.mv(left.mH, u) / values)  # the least-squares solution
            state_dict[key + "_v"] = v * ((original / weight).mean() / op.dot(u, op.mv(matrix, v)))


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | str | None = None
) -> M:
    """Divide a parameter by its largest singular value (Miyato et al., 2018); returns the module.

    `dim` is the one that indexes outputs: 0, or 1 in transposed convolutions. `eps` prevents division by zero.
    """
    SpectralNorm.apply(module, name, n_power_iterations, default_dim(module) if dim is None else dim, eps)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Make the normalised weight an ordinary parameter; returns the module."""
    own_hooks = attribute_hooks(module, SpectralNorm, name)
    if not own_hooks:
        raise ValueRangeError(f"spectral_norm of '{name}' not found in {module}")
    for hook in own_hooks.values():
        hook.remove(module)
        for hooks in (forward_pre_hooks_of(module), state_dict_hooks_of(module), load_state_dict_pre_hooks_of(module)):
            for key in [key for key, other in hooks.items() if hook is other or getattr(other, "fn", None) is hook]:
                del hooks[key]
    return module
