"""Derivatives against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._tensor.convert import from_host
from weft._tensor.gradients import grad
from weft._tensor.tensor import Tensor
from weft.errors import GradientError


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    fast_mode: bool = False,
) -> bool:
    """Whether the gradients of `func` agree with central differences; use float64 inputs.

    Every real and imaginary part of every input that requires a gradient is moved by `eps`. Raises `RuntimeError`
    with both Jacobians unless `raise_exception` is false. The remaining options are accepted for compatibility.
    """
    del nondet_tol, check_undefined_grad, check_grad_dtypes, fast_mode
    args = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    at = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
    if not at:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have "
            "requires_grad=True."
        )
    count = len(_smooth_outputs(func(*args)))
    for which in range(count):
        for i in at:
            analytical = _analytical(func, args, which, i)
            numerical = _numerical(func, args, which, i, eps)
            if not np.allclose(analytical, numerical, rtol=rtol, atol=atol, equal_nan=True):
                if raise_exception:
                    raise GradientError(
                        f"Jacobian mismatch for output {which} with respect to input {i},\n"
                        f"numerical:{numerical}\nanalytical:{analytical}"
                    )
                return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    **options: Any,
) -> bool:
    """`gradcheck` of the gradients of `func`: second derivatives against finite differences."""
    args = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    outputs = _smooth_outputs(func(*args))
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        seeds = [from_host(_random(rng, o)).requires_grad_(True) for o in outputs]
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    count = len(args)

    def first(*both: Any) -> tuple[Tensor, ...]:
        here, cotangents = both[:count], both[count:]
        wanted = [a for a in here if isinstance(a, Tensor) and a.requires_grad]
        found = grad(
            _smooth_outputs(func(*here)), wanted, list(cotangents), create_graph=True, allow_unused=True,
            materialize_grads=True,
        )  # fmt: skip
        return tuple(g for g in found if g is not None)

    return gradcheck(first, [*args, *seeds], **options)


def _random(rng: np.random.Generator, like: Tensor) -> np.ndarray[Any, Any]:
    values = rng.standard_normal(like.shape)
    if like.is_complex():
        values = values + 1j * rng.standard_normal(like.shape)
    return np.asarray(values, like.dtype.numpy)


def _smooth_outputs(outputs: Any) -> list[Tensor]:
    listed = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    return [o for o in listed if isinstance(o, Tensor) and o.dtype.is_differentiable and o.requires_grad]


def _parts(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """All real numbers of an array in a row; complex ones give two."""
    flat: Any = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype) if np.iscomplexobj(flat) else flat


def _analytical(func: Callable[..., Any], args: list[Any], which: int, i: int) -> np.ndarray[Any, Any]:
    """Jacobian rows by backward passes from each part of the output."""
    output = _smooth_outputs(func(*args))[which]
    rows = []
    host = np.zeros(output.shape, output.dtype.numpy)
    for part in range(_parts(host).size):
        seed = np.zeros(output.shape, output.dtype.numpy)
        flat = _parts(seed)
        flat[part] = 1
        cotangent = from_host(flat.view(seed.dtype).reshape(seed.shape))
        (found,) = grad(output, [args[i]], cotangent, retain_graph=True, allow_unused=True)
        size = _parts(args[i].detach().numpy()).size
        rows.append(np.zeros(size) if found is None else _parts(found.detach().numpy()))
    return np.array(rows)


def _numerical(func: Callable[..., Any], args: list[Any], which: int, i: int, eps: float) -> np.ndarray[Any, Any]:
    """The same by central differences."""
    base = args[i].detach().numpy()
    columns = []
    for part in range(_parts(base).size):
        sides = []
        for step in (eps, -eps):
            moved = base.copy()
            flat = _parts(moved)
            flat[part] += step
            shifted = from_host(flat.view(moved.dtype).reshape(moved.shape)).requires_grad_(True)
            here = [shifted if j == i else a for j, a in enumerate(args)]
            sides.append(_parts(_smooth_outputs(func(*here))[which].detach().numpy()).astype(float))
        columns.append((sides[0] - sides[1]) / (2 * eps))
    return np.array(columns).T if columns else np.zeros((0, 0))
