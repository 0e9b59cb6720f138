"""Transforms that treat the slices of a dim differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions._transform import Transform
from weft.distributions.utils import sum_rightmost
from weft.errors import PreconditionError

if TYPE_CHECKING:
    from weft.distributions._constraint import Constraint


class _Sequence(Transform):
    """Several transforms, each for its own part of a dim."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise PreconditionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:
        return all(t.bijective for t in self.transforms)

    def with_cache(self, cache_size: int = 1) -> Transform:
        new: Any = super().with_cache(cache_size)
        if new is not self:
            new.transforms = [t.with_cache(cache_size) for t in self.transforms]
        return new

    def _parts(self, x: Tensor, name: str = "tensor") -> Sequence[Tensor]:
        """The slices of `x`, one for each transform."""
        raise NotImplementedError

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        raise NotImplementedError

    def _require_dim(self, x: Tensor, name: str) -> None:
        if not -x.dim() <= self.dim < x.dim():
            raise PreconditionError(f"dim {self.dim} out of range for {name} with {x.dim()} dimensions")

    def _call(self, x: Tensor) -> Tensor:
        return self._joined([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._joined([t.inv(part) for t, part in zip(self.transforms, self._parts(y), strict=True)])

    def _jacobians(self, x: Tensor, y: Tensor) -> list[tuple[Transform, Tensor]]:
        parts = zip(self.transforms, self._parts(x, "x"), self._parts(y, "y"), strict=True)
        return [(t, t.log_abs_det_jacobian(before, after)) for t, before, after in parts]


class CatTransform(_Sequence):
    """Transforms of slices of the sizes `lengths` along `dim`, as `cat` concatenates them."""

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise PreconditionError(f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})")

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The size of the dim."""
        return sum(self.lengths)

    def _parts(self, x: Tensor, name: str = "tensor") -> Sequence[Tensor]:
        self._require_dim(x, name)
        if x.size(self.dim) != self.length:
            raise PreconditionError(f"x.size({self.dim}) = {x.size(self.dim)} must equal length {self.length}")
        return x.split(self.lengths, self.dim)

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        return op.cat(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = [sum_rightmost(term, self.event_dim - t.event_dim) for t, term in self._jacobians(x, y)]
        dim = (self.dim - x.dim() if self.dim >= 0 else self.dim) + self.event_dim
        return op.cat(terms, dim) if dim < 0 else op.stack(terms).sum(0)  # the dim belongs to an event, or not

    @constraints.dependent_property
    def domain(self) -> Constraint:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Sequence):
    """Transforms of the slices along `dim`, as `stack` stacks them."""

    def _parts(self, x: Tensor, name: str = "tensor") -> Sequence[Tensor]:
        self._require_dim(x, name)
        if x.size(self.dim) != len(self.transforms):
            raise PreconditionError(
                f"x.size({self.dim}) = {x.size(self.dim)} must equal len(transforms) {len(self.transforms)}"
            )
        return x.unbind(self.dim)

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        return op.stack(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self._joined([term for _, term in self._jacobians(x, y)])

    @constraints.dependent_property
    def domain(self) -> Constraint:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
