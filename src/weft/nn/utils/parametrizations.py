"""Ready-made parametrizations: orthogonal matrices, weight normalisation, spectral normalisation."""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from weft._base.limits import finfo
from weft._base.state import using
from weft._base.types import SavedState
from weft._tensor.arguments import without_names
from weft._tensor.codegen import op
from weft._tensor.dim_names import names_of, unnamed, with_names
from weft._tensor.kind_names import advice
from weft._tensor.tensor import Tensor
from weft.errors import DimError, ValueRangeError
from weft.nn import functional as F
from weft.nn._hooks import register
from weft.nn._module import Module
from weft.nn._tables import load_state_dict_pre_hooks_of
from weft.nn.utils.parametrize import register_parametrization
from weft.nn.utils.spectral_norm import as_matrix, default_dim, random_direction, require_iterations
from weft.nn.utils.weight_norm import norm_except_dim, scaled

if TYPE_CHECKING:
    from weft.nn._state_dict import Metadata

M = TypeVar("M", bound="Module")


def _tensor_of(module: Module, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueRangeError(f"Module '{module}' has no parameter or buffer with name '{name}'{advice(module)}")
    return weight


# --- orthogonal matrices ----------------------------------------------------------------------------------------


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


def _identity(like: Tensor, size: int) -> Tensor:
    return op.eye(size, dtype=like.dtype, device=like.device)


def _is_orthogonal(Q: Tensor) -> bool:
    rows, columns = Q.shape[-2:]
    return bool(op.isclose(Q.mH @ Q, _identity(Q, columns), atol=10.0 * rows * finfo(Q.dtype).eps).all())


def _orthogonalized(A: Tensor) -> Tensor:
    """The orthonormal factor Q of the QR decomposition in which R has a positive diagonal."""
    q, r = op.qr(A)
    return q * op.unsqueeze(op.sgn(op.diagonal(r, 0, -2, -1)), -2)


def _with_diagonal(A: Tensor, diagonal: Tensor) -> Tensor:
    """A matrix, at least as high as it is wide, with its diagonal replaced."""
    columns = A.shape[-1]
    new = op.unsqueeze(diagonal, -2) * op.eye(A.shape[-2], columns, dtype=A.dtype, device=A.device)
    return op.tril(A, -1) + op.triu(A, 1) + new


class _Orthogonal(Module):
    """Makes arbitrary matrices orthonormal: in their columns, or in their rows if they are wide.

    With trivialization, the result is `base` times the map of the original (Lezcano-Casado, 2019).
    """

    base: Any

    def __init__(self, weight: Tensor, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map is _OrthMaps.householder:
            raise ValueRangeError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        names, x = names_of(X), unnamed(X)
        wide = x.shape[-2] < x.shape[-1]
        result = self._map(x.mT if wide else x)
        if hasattr(self, "base"):
            result = self.base @ result
        return with_names(result.mT if wide else result, names)

    def _map(self, X: Tensor) -> Tensor:
        rows, columns = X.shape[-2:]
        if self.orthogonal_map is _OrthMaps.householder:
            A = op.tril(X, -1)
            Q = op.householder_product(A, 2.0 / (1.0 + (A * A).sum(dim=-2)))
            return Q * op.unsqueeze(op.trunc(op.diagonal(X, 0, -2, -1)).detach(), -2)
        lower = op.tril(X)
        if rows != columns:
            lower = op.cat([lower, op.zeros((*X.shape[:-1], rows - columns), dtype=X.dtype, device=X.device)], -1)
        skew = lower - lower.mH
        if self.orthogonal_map is _OrthMaps.matrix_exp:
            result = op.matrix_exp(skew)
        else:
            identity = _identity(skew, rows)
            result = op.solve(identity - skew * 0.5, identity + skew * 0.5)
        return result if rows == columns else result[..., :columns]

    def right_inverse(self, Q: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if Q.shape != self.shape:
            raise ValueRangeError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}."
            )
        with using(grad=False):
            names, q = names_of(Q), unnamed(Q)
            wide = q.shape[-2] < q.shape[-1]
            if not hasattr(self, "base"):
                result = self._reflectors(q.mT if wide else q)
                return with_names(result.mT if wide else result, names)
            self.base = self._based_on(q.mT if wide else q)
            return (0.0 - op.eye(*q.shape[-2:], dtype=q.dtype, device=q.device)).expand(q.shape).clone().rename(*names)

    def _reflectors(self, Q: Tensor) -> Tensor:
        """The reflectors that the Householder map turns into `Q`."""
        if self.orthogonal_map is not _OrthMaps.householder:
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        A, tau = op.geqrf(Q)
        signs = op.sign(op.diagonal(A, 0, -2, -1))
        return _with_diagonal(A, op.where(tau == 0.0, -signs, signs))  # for tau = 0, LAPACK skips the reflector

    def _based_on(self, Q: Tensor) -> Tensor:
        """A square orthogonal matrix whose first columns are `Q`, made orthonormal where they are not."""
        rows, columns = Q.shape[-2:]
        if rows == columns:
            return Q.clone() if _is_orthogonal(Q) else _orthogonalized(Q)
        rest = op.randn((*Q.shape[:-1], rows - columns), dtype=Q.dtype, device=Q.device)
        return _orthogonalized(op.cat([Q, rest], -1))


def orthogonal(
    module: M, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> M:
    """Keep a matrix (or a batch of them) orthogonal, or unitary if complex; returns the module.

    The columns are orthonormal, or the rows if the matrix is wide. `orthogonal_map` is "matrix_exp", "cayley" or
    "householder"; the default is "matrix_exp" for square and complex matrices, else "householder". `use_trivialization`
    keeps a base matrix beside the original, which helps convergence (Lezcano-Casado, 2019).
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueRangeError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    # PyTorch's defaults; Householder reflections are of real matrices.
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _OrthMaps.__members__:
        raise ValueRangeError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    parametrization = _Orthogonal(weight, _OrthMaps[orthogonal_map], use_trivialization=use_trivialization)
    return register_parametrization(module, name, parametrization, unsafe=True)


# --- weight normalisation ---------------------------------------------------------------------------------------


class _WeightNorm(Module):
    """Slices along a dim, computed from their directions and lengths."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return scaled(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def _from_hooks(
    name: str,
    state_dict: SavedState,
    prefix: str,
    metadata: Metadata,
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    """Accept the keys of the older, hook-based `weight_norm` in a state dict."""
    del metadata, strict, missing, unexpected, errors
    old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
    if all(key in state_dict for key in old):
        for at, key in enumerate(old):
            state_dict[f"{prefix}parametrizations.{name}.original{at}"] = state_dict.pop(key)


def weight_norm(module: M, name: str = "weight", dim: int | str | None = 0) -> M:
    """Compute a parameter from lengths, `original0`, and directions, `original1`; returns the module.

    There is one length for each slice along `dim`, or a single one if it is None (Salimans and Kingma, 2016).
    """
    parametrization = _WeightNorm(without_names(dim, _tensor_of(module, name)))
    register_parametrization(module, name, parametrization, unsafe=True)
    register(load_state_dict_pre_hooks_of(module), partial(_from_hooks, name))
    return module


# --- spectral normalisation -------------------------------------------------------------------------------------


class _SpectralNorm(Module):
    """A weight divided by its largest singular value. Each use in training improves the estimate of that value."""

    _u: Any
    _v: Any

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise DimError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        require_iterations(n_power_iterations)
        self.dim = dim % ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = as_matrix(weight, self.dim).detach()
            self.register_buffer("_u", random_direction(weight, matrix.shape[0], eps))
            self.register_buffer("_v", random_direction(weight, matrix.shape[1], eps))
            self._power_method(matrix, 15)

    def _power_method(self, matrix: Tensor, iterations: int) -> None:
        with using(grad=False):
            for _ in range(iterations):
                self._u.copy_(F.normalize(op.mv(matrix, self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(op.mv(matrix.mH, self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._power_method(matrix.detach(), self.n_power_iterations)
        return weight / op.vdot(self._u, op.mv(matrix, self._v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | str | None = None
) -> M:
    """Divide a parameter by its largest singular value (Miyato et al., 2018); returns the module.

    That value is estimated by the power method, with `n_power_iterations` at each use in training. `dim` is the one
    that indexes outputs: 0, or 1 in transposed convolutions. A vector is divided by its length.
    """
    weight = _tensor_of(module, name)
    at = default_dim(module) if dim is None else without_names(dim, weight)
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, at, eps))
