"""Pruning: parameters multiplied by masks of zeros and ones.

A pruned parameter `name` is replaced by the parameter `name_orig`, the buffer `name_mask` and a plain attribute `name`.
The attribute is their product, and a hook computes it before every call of the module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

from weft._base.guards import is_a, is_dict, is_iterable
from weft._base.state import default_dtype
from weft._base.types import Arg
from weft._tensor.arguments import without_names
from weft._tensor.codegen import op
from weft._tensor.composite.create import ones_like
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, DimError, PreconditionError, ValueRangeError
from weft.nn._hooks import AttributeHook, attribute_hooks, register
from weft.nn._tables import buffers_of, forward_pre_hooks_of, parameters_of
from weft.nn.utils.convert_parameters import parameters_to_vector

if TYPE_CHECKING:
    from weft.nn._module import Module

M = TypeVar("M", bound="Module")


class BasePruningMethod(AttributeHook, ABC):
    """A method that chooses a mask. A subclass sets `PRUNING_TYPE` and overrides `compute_mask`.

    `PRUNING_TYPE` says which part of a tensor the method sees if that is pruned already: "unstructured" the remaining
    elements, "structured" the slices along its `dim` that are not all zero, "global" the whole tensor.
    """

    PRUNING_TYPE: str
    _tensor_name: str

    @property
    def attribute(self) -> str:
        return self._tensor_name

    def current(self, module: Module) -> Tensor:
        return self.apply_mask(module)

    def __call__(self, module: Module, inputs: object) -> None:
        """Set the attribute; called before each call of the module."""
        del inputs
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """A mask for the tensor of scores `t`, which must be zero where `default_mask` is."""

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter times its mask."""
        mask, original = getattr(module, self._tensor_name + "_mask"), getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Arg, importance_scores: Tensor | None = None, **kwargs: Arg
    ) -> BasePruningMethod:
        """Prune a parameter by the method `cls(*args, **kwargs)`; returns the method that is its hook now.

        Elements with the smallest `importance_scores`, by default the elements themselves, are pruned first. If the
        parameter is pruned already, zeros are added to its mask.
        """
        key, before = _hook_on(module, name)
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        original = getattr(module, name)
        if importance_scores is not None and importance_scores.shape != original.shape:
            raise PreconditionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got "
                f"{importance_scores.shape} vs {original.shape}"
            )
        mask = ones_like(original.detach())
        if before is not None:
            method = _joined(before, method)
            mask = getattr(module, name + "_mask")
        scores = original if importance_scores is None else importance_scores
        mask = method.compute_mask(scores.detach(), default_mask=mask.detach())
        if before is None:
            # The optimizer keeps the unmasked original, under another name; what the module computes with is derived
            # anew before each call.
            del parameters_of(module)[name]
            module.register_parameter(name + "_orig", original)
        else:
            del forward_pre_hooks_of(module)[key]
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        register(forward_pre_hooks_of(module), method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A tensor pruned by this method. Nothing is registered."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise PreconditionError(
                f"importance_scores should have the same shape as tensor t, got {importance_scores.shape} vs {t.shape}"
            )
        scores = t if importance_scores is None else importance_scores
        mask = ones_like(t.detach()) if default_mask is None else default_mask
        return t * self.compute_mask(scores.detach(), default_mask=mask)

    def remove(self, module: Module) -> None:
        """Write the zeros into the parameter itself. The caller removes the hook."""
        name = self._tensor_name
        pruned = self.apply_mask(module)
        delattr(module, name)
        original: Any = parameters_of(module).pop(name + "_orig")
        del buffers_of(module)[name + "_mask"]
        original.data = pruned.detach()
        setattr(module, name, original)


def _hook_on(module: Module, name: str) -> tuple[int, BasePruningMethod | None]:
    """The key and the method of the hook that prunes a parameter."""
    hooks = attribute_hooks(module, BasePruningMethod, name)
    if len(hooks) > 1:
        raise PreconditionError(
            f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. Use a PruningContainer."
        )
    return next(iter(hooks.items()), (-1, None))


def _joined(before: BasePruningMethod, method: BasePruningMethod) -> PruningContainer:
    """A container of the methods that have pruned a parameter so far, and of one more method."""
    if not isinstance(before, PruningContainer):
        return PruningContainer(before, method)
    joined = PruningContainer(*before)
    joined.add_pruning_method(method)
    return joined


class PruningContainer(BasePruningMethod):
    """Methods that prune one parameter, one after another. The last one adds zeros to the mask of the others."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if args:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Add a method for the same parameter."""
        if not is_a(method, BasePruningMethod):
            raise ArgumentError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueRangeError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to PruningContainer "
                f"{self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The default mask, updated by the last method in the part of `t` that it sees."""
        method = self._pruning_methods[-1]
        part = _visible(method, t, default_mask)
        mask = default_mask.to(dtype=t.dtype).clone()
        mask[part] = method.compute_mask(t[part], default_mask=default_mask[part]).to(dtype=mask.dtype)
        return mask


def _visible(method: Any, t: Tensor, mask: Tensor) -> Tensor | tuple[slice | Tensor, ...]:
    """The index of the part of a pruned tensor that a method sees."""
    whole: list[Any] = [slice(None)] * t.ndim
    if method.PRUNING_TYPE == "global":
        return tuple(whole)
    if method.PRUNING_TYPE == "unstructured":
        return mask == 1
    if method.PRUNING_TYPE != "structured":
        raise ValueRangeError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
    if not hasattr(method, "dim"):
        raise AttributeError('Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.')
    if method.dim < -t.ndim:
        raise DimError(f"Index is out of bounds for tensor with dimensions {t.ndim}")
    dim = method.dim % t.ndim
    whole[dim] = mask.sum(dim=[d for d in range(t.ndim) if d != dim]) != 0
    return tuple(whole)


# --- methods ----------------------------------------------------------------------------------------------------


class Identity(BasePruningMethod):
    """Prunes nothing."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The default mask."""
        del t
        return default_mask


class _Amount(BasePruningMethod):
    """Methods that prune a given number (int) or share (float) of the elements or slices."""

    def __init__(self, amount: int | float) -> None:
        if not isinstance(amount, Real):
            raise ArgumentError(f"Invalid type for amount: {amount}. Must be int or float.")
        if amount < 0 or (not isinstance(amount, Integral) and float(amount) > 1.0):
            raise ValueRangeError(
                f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer"
            )
        self.amount = amount

    def _number(self, size: int) -> int:
        """How many of `size` are pruned."""
        amount: Any = self.amount
        if not isinstance(amount, Integral):
            return round(amount * size)
        if int(amount) > size:
            raise ValueRangeError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
        return int(amount)


def _without_least(scores: Tensor, number: int, mask: Tensor) -> Tensor:
    """The mask with zeros at the smallest scores."""
    if not number:
        return mask.clone()
    least = op.topk(op.reshape(scores, (-1,)), number, largest=False).indices
    return op.reshape(op.index_fill(op.reshape(mask, (-1,)), 0, least, 0), tuple(mask.shape))


class RandomUnstructured(_Amount):
    """Prunes elements at random."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The default mask with zeros at random."""
        number = self._number(t.numel())
        return _without_least(op.rand(tuple(t.shape), dtype=default_dtype(), device=t.device), number, default_mask)


class L1Unstructured(_Amount):
    """Prunes the elements with the smallest absolute values."""

    PRUNING_TYPE = "unstructured"

    @classmethod
    def apply(
        cls, module: Module, name: str, amount: int | float, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        """Prune a parameter; returns the hook."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The default mask with zeros at the smallest absolute values."""
        return _without_least(op.abs(t), self._number(t.numel()), default_mask)


class _Structured(_Amount):
    """Methods that prune whole slices along one dim."""

    PRUNING_TYPE = "structured"
    dim: int

    def _scores(self, t: Tensor) -> Tensor:
        """One number for each slice; slices with the smallest are pruned first."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The default mask with zeros in whole slices."""
        if t.ndim <= 1:
            raise ValueRangeError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                f"{t.shape} with {t.ndim} dims"
            )
        if self.dim >= t.ndim:
            raise DimError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        slices = t.shape[self.dim]
        number = self._number(slices)
        if not number:
            return default_mask
        kept = _without_least(self._scores(t), number, op.ones((slices,), dtype=t.dtype, device=t.device))
        along = [1] * t.ndim
        along[self.dim] = slices
        return op.reshape(kept, tuple(along)) * default_mask.to(dtype=t.dtype)


class RandomStructured(_Structured):
    """Prunes slices at random."""

    def __init__(self, amount: int | float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    @classmethod
    def apply(cls, module: Module, name: str, amount: int | float, dim: int | str = -1) -> BasePruningMethod:
        """Prune a parameter; returns the hook."""
        return super().apply(module, name, amount=amount, dim=without_names(dim, getattr(module, name)))

    def _scores(self, t: Tensor) -> Tensor:
        return op.rand((t.shape[self.dim],), dtype=default_dtype(), device=t.device)


class LnStructured(_Structured):
    """Prunes the slices with the smallest norm of order `n`."""

    def __init__(self, amount: int | float, n: int | float | str, dim: int = -1) -> None:
        super().__init__(amount)
        self.n = n
        self.dim = dim

    @classmethod
    def apply(
        cls,
        module: Module,
        name: str,
        amount: int | float,
        n: int | float | str,
        dim: int | str,
        importance_scores: Tensor | None = None,
    ) -> BasePruningMethod:
        """Prune a parameter; returns the hook."""
        dim = without_names(dim, getattr(module, name))
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)

    def _scores(self, t: Tensor) -> Tensor:
        return t.norm(p=self.n, dim=[d for d in range(t.ndim) if d != self.dim % t.ndim])


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    @classmethod
    def apply(cls, module: Module, name: str, mask: Tensor) -> BasePruningMethod:
        """Prune a parameter; returns the hook."""
        return super().apply(module, name, mask=mask)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The default mask times the given one."""
        del t
        if default_mask.shape != self.mask.shape:
            raise PreconditionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)


# --- functions --------------------------------------------------------------------------------------------------


def identity(module: M, name: str) -> M:
    """Register a parameter as pruned, with a mask of ones; returns the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: M, name: str, amount: int | float) -> M:
    """Prune a number (int) or a share (float) of a parameter's elements at random; returns the module."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: M, name: str, amount: int | float, importance_scores: Tensor | None = None) -> M:
    """Prune the elements with the smallest absolute values, or the smallest scores; returns the module."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: M, name: str, amount: int | float, dim: int | str) -> M:
    """Prune slices along a dim at random; returns the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: M,
    name: str,
    amount: int | float,
    n: int | float | str,
    dim: int | str,
    importance_scores: Tensor | None = None,
) -> M:
    """Prune the slices along a dim that have the smallest norm of order `n`; returns the module."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: M, name: str, mask: Tensor) -> M:
    """Prune by a mask of the parameter's shape; returns the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Arg,
) -> None:
    """Prune several parameters, given as pairs of module and name, as if they were one tensor.

    `importance_scores` is a dict from such pairs to scores. `kwargs` are the arguments of the method, which must be
    unstructured.
    """
    if not is_iterable(parameters):
        raise ArgumentError("global_unstructured(): parameters is not an Iterable")
    by_parameter: Any = {} if importance_scores is None else importance_scores
    if not is_dict(by_parameter):
        raise ArgumentError("global_unstructured(): importance_scores must be of type dict")
    pairs = list(parameters)
    tensors = [getattr(module, name).detach() for module, name in pairs]
    scores = [by_parameter.get((module, name), t) for (module, name), t in zip(pairs, tensors, strict=True)]
    masks = [getattr(m, name + "_mask", ones_like(t)) for (m, name), t in zip(pairs, tensors, strict=True)]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise ArgumentError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    vars(method)["_tensor_name"] = "all"
    mask: Any = PruningContainer(method).compute_mask(parameters_to_vector(scores), parameters_to_vector(masks))
    parts = mask.split([t.numel() for t in tensors])
    for (module, name), t, part in zip(pairs, tensors, parts, strict=True):
        custom_from_mask(module, name, op.reshape(part, tuple(t.shape)))


def remove(module: Module, name: str) -> Module:
    """Write the zeros into the parameter itself, and remove mask and hook; returns the module."""
    key, method = _hook_on(module, name)
    if method is None:
        raise ValueRangeError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    method.remove(module)
    del forward_pre_hooks_of(module)[key]
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of a module below it, is pruned."""
    hooks = (hook for below in module.modules() for hook in below._forward_pre_hooks.values())
    return any(isinstance(hook, BasePruningMethod) for hook in hooks)
