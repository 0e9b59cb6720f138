"""Checks of derivatives by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._tensor.convert import from_host
from weft._tensor.dim_names import names_of, set_names
from weft._tensor.gradients import grad
from weft._tensor.tensor import Tensor
from weft.errors import GradcheckError, GradientError, PreconditionError, ValueRangeError


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

    Each real and imaginary part of every input that requires a gradient is changed by `eps`. Also checked: a second
    backward pass gives the same result within `nondet_tol`, and zero cotangents give zero gradients. Raises
    `GradcheckError`, which shows both Jacobians if they differ, unless `raise_exception` is false. The other options
    are accepted for compatibility.
    """
    del check_undefined_grad, check_grad_dtypes, fast_mode
    args = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    at = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
    _check_inputs(args, at)
    at = [i for i in at if args[i].numel()]
    try:
        _check(func, args, at, eps, atol, rtol, nondet_tol)
        _check_cotangents(func, args, at)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_inputs(args: list[Any], at: list[int]) -> None:
    if not at:
        raise ValueRangeError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )
    for i in at:
        if any(step == 0 and size > 1 for step, size in zip(args[i].stride(), args[i].shape, strict=True)):
            raise GradientError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                "non-overlapping to be able to compute the numerical gradients correctly. You should call .contiguous "
                "on the input before passing it to gradcheck."
            )


def _check(
    func: Callable[..., Any], args: list[Any], at: list[int], eps: float, atol: float, rtol: float, nondet_tol: float
) -> None:
    """Compare the Jacobians. For complex outputs, those of the imaginary parts are compared first."""
    outputs = _tensors(func(*args))
    smooth = [n for n, output in enumerate(outputs) if _is_smooth(output)]
    numerical = [_numerical(func, args, i, eps) for i in at]
    if not smooth and any(jacobian.any() for jacobians in numerical for jacobian in jacobians):
        raise GradcheckError("Numerical gradient for function expected to be zero")
    analytical = [_analytical(outputs[n], [args[i] for i in at], nondet_tol) for n in smooth]
    parts = ((1, "imaginary"), (0, "real")) if any(outputs[n].is_complex() for n in smooth) else ((0, ""),)
    for offset, part in parts:
        for which, n in enumerate(smooth):
            is_complex = outputs[n].is_complex()
            if offset and not is_complex:
                continue
            rows = slice(offset, None, 2) if is_complex else slice(None)
            lead = f"While considering the {part} part of complex outputs only, " if is_complex else ""
            for place, i in enumerate(at):
                ours, theirs = analytical[which][place][rows], numerical[place][n][rows]
                if not np.allclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True):
                    raise GradcheckError(
                        f"{lead}Jacobian mismatch for output {which} with respect to input {i},\n"
                        f"numerical:{theirs}\nanalytical:{ours}"
                    )


def _check_cotangents(func: Callable[..., Any], args: list[Any], at: list[int]) -> None:
    """Check that zero cotangents give zero gradients."""
    outputs = _smooth_outputs(func(*args))
    zeros = [from_host(np.zeros(output.shape, output.dtype.numpy)) for output in outputs]
    gradients = grad(outputs, [args[i] for i in at], zeros, allow_unused=True) if outputs and at else ()
    if any(g is not None and g.detach().numpy().any() for g in gradients):
        raise GradcheckError("backward not multiplied by grad_output")


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    **options: Any,
) -> bool:
    """`gradcheck` of the gradients of `func`: compares second derivatives with finite differences."""
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
        gradients = grad(
            _smooth_outputs(func(*here)),
            wanted,
            list(cotangents),
            create_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        return tuple(g for g in gradients if g is not None)

    return gradcheck(first, [*args, *seeds], **options)


def _random(rng: np.random.Generator, like: Tensor) -> np.ndarray[Any, Any]:
    values = rng.standard_normal(like.shape)
    if like.is_complex():
        values = values + 1j * rng.standard_normal(like.shape)
    return np.asarray(values, like.dtype.numpy)


def _tensors(outputs: Any) -> list[Tensor]:
    return [o for o in ([outputs] if isinstance(outputs, Tensor) else outputs) if isinstance(o, Tensor)]


def _is_smooth(output: Tensor) -> bool:
    return output.dtype.is_differentiable and output.requires_grad


def _smooth_outputs(outputs: Any) -> list[Tensor]:
    return [o for o in _tensors(outputs) if _is_smooth(o)]


def _parts(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """All numbers of an array as a vector of reals; a complex number gives two."""
    flat: Any = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype) if np.iscomplexobj(flat) else flat


HostArray = np.ndarray[Any, Any]


def _analytical(output: Tensor, wanted: list[Tensor], nondet_tol: float) -> list[HostArray]:
    """A Jacobian for each input. Each part of the output gives a row, by a backward pass that is run twice."""
    first, second = (_rows(output, wanted) for _ in range(2))
    if any(a.size and np.abs(a - b).max() > nondet_tol for a, b in zip(first, second, strict=True)):
        raise GradcheckError(
            "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
            "different values, although analytical gradient matches numerical gradient."
            f"The tolerance for nondeterminism was {nondet_tol}."
        )
    return first


def _rows(output: Tensor, wanted: list[Tensor]) -> list[HostArray]:
    rows: list[list[HostArray]] = [[] for _ in wanted]
    for part in range(_parts(np.zeros(output.shape, output.dtype.numpy)).size):
        seed = np.zeros(output.shape, output.dtype.numpy)
        flat = _parts(seed)
        flat[part] = 1
        cotangent = from_host(flat.view(seed.dtype).reshape(seed.shape))
        gradients = grad(output, wanted, cotangent, retain_graph=True, allow_unused=True)
        for each, x, g in zip(rows, wanted, gradients, strict=True):
            each.append(_parts(np.zeros(x.shape, x.dtype.numpy) if g is None else g.detach().numpy()))
    return [np.array(each) for each in rows]


def _numerical(func: Callable[..., Any], args: list[Any], i: int, eps: float) -> list[HostArray]:
    """A Jacobian for each output, by central differences."""
    base, names = args[i].detach().numpy(), names_of(args[i])
    columns: list[list[HostArray]] = []
    for part in range(_parts(base).size):
        sides = []
        for step in (-eps, eps):
            moved = base.copy()
            flat = _parts(moved)
            flat[part] += step
            shifted = set_names(from_host(flat.view(moved.dtype).reshape(moved.shape)), names).requires_grad_(True)
            sides.append(_tensors(func(*[shifted if j == i else a for j, a in enumerate(args)])))
        place = np.unravel_index(part // 2 if args[i].is_complex() else part, base.shape)
        columns.append([_slope(a, b, eps, tuple(map(int, place))) for a, b in zip(*sides, strict=True)])
    return [np.array(each).T for each in zip(*columns, strict=True)]


def _slope(low: Tensor, high: Tensor, eps: float, place: tuple[int, ...]) -> HostArray:
    for word, a, b in (("shape", low.shape, high.shape), ("dtype", low.dtype, high.dtype)):
        if a != b:
            raise PreconditionError(
                f"Expected `func` to return outputs with the same {word} when inputs are perturbed on index {place} by "
                f"{eps}, but got: {word}s {a} and {b}."
            )
    below, above = (_parts(x.detach().numpy()).astype(float) for x in (low, high))
    return (above - below) / (2 * eps)
