"""Checks of derivatives by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft._base.types import AnyCallable, Arg, PyTree
from weft._tensor.convert import from_host
from weft._tensor.dim_names import names_of, set_names
from weft._tensor.examples import Examples
from weft._tensor.gradients import grad
from weft._tensor.tensor import Tensor
from weft.autograd.forward_ad import dual_level, make_dual, unpack_dual
from weft.errors import GradcheckError, GradientError, PreconditionError, ValueRangeError

HostArray = np.ndarray[Any, Any]


def gradcheck(
    func: AnyCallable,
    inputs: Tensor | Sequence[Arg],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether the gradients of `func` agree with central differences; use float64 inputs.

    Each real and imaginary part of every input that requires a gradient is changed by `eps`. With `check_backward_ad`,
    gradients of backward passes are compared, a second pass must give the same result within `nondet_tol`, and zero
    cotangents must give zero gradients, also where one output has none (`check_undefined_grad`). With
    `check_forward_ad`, the tangents of `forward_ad` are compared. `check_batched_grad` and `check_batched_forward_grad`
    compare several cotangents or tangents that are computed together with each of them alone.

    Raises `GradcheckError`, which shows both Jacobians if they differ, unless `raise_exception` is false;
    `AssertionError` if nothing is to be checked, or if what is to be checked together is not checked alone.
    `check_grad_dtypes` changes nothing, as gradients have the types of their tensors, nor does `fast_mode`: whole
    Jacobians are compared. For `masked`, use `sparse.as_sparse_gradcheck`.
    """
    del check_grad_dtypes, fast_mode, masked
    _require_one(check_forward_ad=check_forward_ad, check_backward_ad=check_backward_ad)
    _require_with(check_batched_grad=check_batched_grad, check_backward_ad=check_backward_ad)
    _require_with(check_batched_forward_grad=check_batched_forward_grad, check_forward_ad=check_forward_ad)
    args = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    at = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
    _check_inputs(args, at)
    at = [i for i in at if args[i].numel()]
    try:
        numerical = [_numerical(func, args, i, eps) for i in at]
        close = partial(np.allclose, rtol=rtol, atol=atol, equal_nan=True)
        if check_backward_ad:
            _check_backward(func, args, at, numerical, close, nondet_tol)
        if check_forward_ad:
            _check_forward(func, args, at, numerical, close)
        if check_batched_forward_grad:
            _check_batched_tangents(func, args, at)
        if check_batched_grad:
            _check_batched_cotangents(func, args, at)
        if check_backward_ad:
            _check_cotangents(func, args, at, one_left_out=check_undefined_grad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _require_one(**options: bool) -> None:
    if not any(options.values()):
        raise PreconditionError(f"Expected at least one of {' or '.join(options)} to be True")


def _require_with(**options: bool) -> None:
    """Raise `AssertionError` if the first option is set and the second, on which it relies, is not."""
    (name, is_set), (needed, is_there) = options.items()
    if is_set and not is_there:
        raise PreconditionError(f"Setting {name}=True requires {needed} to be True")


def _check_inputs(args: list[Arg], at: list[int]) -> None:
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


def _check_backward(
    func: AnyCallable,
    args: list[Arg],
    at: list[int],
    numerical: list[list[HostArray]],
    close: Callable[..., bool],
    nondet_tol: float,
) -> None:
    """Compare the Jacobians. For complex outputs, those of the imaginary parts are compared first."""
    outputs = _tensors(func(*args))
    smooth = [n for n, output in enumerate(outputs) if _is_smooth(output)]
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
                if not close(ours, theirs):
                    raise GradcheckError(
                        f"{lead}Jacobian mismatch for output {which} with respect to input {i},\n"
                        f"numerical:{theirs}\nanalytical:{ours}"
                    )


def _check_forward(
    func: AnyCallable,
    args: list[Arg],
    at: list[int],
    numerical: list[list[HostArray]],
    close: Callable[..., bool],
) -> None:
    """Compare the Jacobians in forward mode; each part of an input gives a column."""
    for place, i in enumerate(at):
        zero = np.zeros(args[i].shape, args[i].dtype.numpy)
        directions = [from_host(each) for each in _basis(zero)]
        columns = [[_parts(t._host()) for t in _tangents(func, args, i, along)] for along in directions]
        for n, each in enumerate(zip(*columns, strict=True)):
            ours, theirs = np.array(each).T, numerical[place][n]
            if not close(ours, theirs):
                raise GradcheckError(
                    f"Jacobian computed with forward mode mismatch for output {n} with respect to input {i},\n"
                    f"numerical:{theirs}\nanalytical:{ours}"
                )


def _tangents(func: AnyCallable, args: list[Arg], i: int, along: Tensor) -> list[Tensor]:
    """The tangents of the floating and complex outputs where one input moves."""
    with dual_level():
        dual = make_dual(args[i].detach(), along)
        pairs = [unpack_dual(output) for output in _tensors(func(*_with(args, i, dual)))]
    return [primal.new_zeros(primal.shape) if tangent is None else tangent for primal, tangent in pairs]


def _check_batched_tangents(func: AnyCallable, args: list[Arg], at: list[int]) -> None:
    for i in at:
        both = _random_pair(args[i])
        _compare_batched("forward gradients", f"input {i}", lambda along, i=i: _tangents(func, args, i, along), both)


def _check_batched_cotangents(func: AnyCallable, args: list[Arg], at: list[int]) -> None:
    wanted = [args[i] for i in at]
    for n, output in enumerate(_smooth_outputs(func(*args)) if at else ()):

        def pulled(cotangent: Tensor, output: Tensor = output) -> list[Tensor]:
            gradients = grad(output, wanted, cotangent, retain_graph=True, materialize_grads=True)
            return [g for g in gradients if g is not None]

        _compare_batched("gradients", f"output {n}", pulled, _random_pair(output))


def _compare_batched(what: str, place: str, function: Callable[[Tensor], list[Tensor]], both: Tensor) -> None:
    """Compare a linear function of two tensors at once, as in `vmap`, with that of each of them."""
    examples = Examples(2, "error")
    try:
        together = [examples.for_each(x) for x in examples.run(function, [examples.example_of(both)])]
    except RuntimeError as error:
        raise GradcheckError(f"While computing batched {what}, got: {error}") from error
    for n, (ours, alone) in enumerate(
        zip(together, zip(function(both[0]), function(both[1]), strict=True), strict=True)
    ):
        result, expected = ours._host(), np.stack([x._host() for x in alone])
        if not np.allclose(result, expected, rtol=1e-5, atol=1e-8):
            raise GradcheckError(
                f"Batched {what} of {place}, result {n}, differ.\nGot:\n{result}\nExpected:\n{expected}"
            )


def _check_cotangents(func: AnyCallable, args: list[Arg], at: list[int], *, one_left_out: bool) -> None:
    """Check that zero cotangents give zero gradients; if asked for, also where one output has no cotangent."""
    outputs = _smooth_outputs(func(*args))
    if not outputs or not at:
        return
    wanted = [args[i] for i in at]
    _require_zeros(outputs, wanted, "backward not multiplied by grad_output")
    for n in range(len(outputs) if one_left_out and len(outputs) > 1 else 0):
        _require_zeros(
            [output for m, output in enumerate(_smooth_outputs(func(*args))) if m != n],
            wanted,
            "Expected all input grads to be undefined or zero when all output grads are undefined or zero",
        )


def _require_zeros(outputs: list[Tensor], wanted: list[Tensor], otherwise: str) -> None:
    zeros = [from_host(np.zeros(output.shape, output.dtype.numpy)) for output in outputs]
    gradients = grad(outputs, wanted, zeros, allow_unused=True)
    if any(g is not None and g._host().any() for g in gradients):
        raise GradcheckError(otherwise)


def gradgradcheck(
    func: AnyCallable,
    inputs: Tensor | Sequence[Arg],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """`gradcheck` of the gradients of `func`: compares second derivatives with finite differences.

    They are taken by backward passes over backward passes (`check_rev_over_rev`), and in forward mode over these
    (`check_fwd_over_rev`). The cotangents of `func` are `grad_outputs`, by default random ones, which are not
    contiguous with `gen_non_contig_grad_outputs`. The other options and the errors are those of `gradcheck`.
    """
    _require_one(check_fwd_over_rev=check_fwd_over_rev, check_rev_over_rev=check_rev_over_rev)
    _require_with(check_undefined_grad=check_undefined_grad, check_rev_over_rev=check_rev_over_rev)
    _require_with(check_batched_grad=check_batched_grad, check_rev_over_rev=check_rev_over_rev)
    args = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    outputs = _smooth_outputs(func(*args))
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        seeds = [_seed(_random(rng, o), contiguous=not gen_non_contig_grad_outputs) for o in outputs]
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    count = len(args)

    def first(*both: Arg) -> tuple[Tensor, ...]:
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

    return gradcheck(
        first,
        [*args, *seeds],
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


def _seed(values: HostArray, *, contiguous: bool) -> Tensor:
    """A cotangent that requires a gradient; one that is not contiguous is every second element of a row."""
    seed = from_host(values) if contiguous else from_host(np.repeat(values[..., None], 2, -1))[..., 0]
    return seed.detach().requires_grad_(True)


def _random_pair(like: Tensor) -> Tensor:
    """Two random tensors along a new first dim."""
    rng = np.random.default_rng(0)
    return from_host(np.stack([_random(rng, like) for _ in range(2)]))


def _random(rng: np.random.Generator, like: Tensor) -> HostArray:
    values = rng.standard_normal(like.shape)
    if like.is_complex():
        values = values + 1j * rng.standard_normal(like.shape)
    return np.asarray(values, like.dtype.numpy)


def _tensors(outputs: PyTree) -> list[Tensor]:
    return [o for o in ([outputs] if isinstance(outputs, Tensor) else outputs) if isinstance(o, Tensor)]


def _is_smooth(output: Tensor) -> bool:
    return output.dtype.is_differentiable and output.requires_grad


def _smooth_outputs(outputs: PyTree) -> list[Tensor]:
    return [o for o in _tensors(outputs) if _is_smooth(o)]


def _with(args: list[Arg], i: int, x: Tensor) -> list[Arg]:
    """The arguments with another one at a position."""
    return [x if j == i else a for j, a in enumerate(args)]


def _parts(array: HostArray) -> HostArray:
    """All numbers of an array as a vector of reals; a complex number gives two."""
    flat: Any = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype) if np.iscomplexobj(flat) else flat


def _basis(zero: HostArray) -> Iterator[HostArray]:
    """For each part of an array of zeros, that array with a 1 in its place."""
    for part in range(_parts(zero).size):
        flat = np.zeros_like(_parts(zero))
        flat[part] = 1
        yield flat.view(zero.dtype).reshape(zero.shape)


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
    for cotangent in _basis(np.zeros(output.shape, output.dtype.numpy)):
        gradients = grad(output, wanted, from_host(cotangent), retain_graph=True, allow_unused=True)
        for each, x, g in zip(rows, wanted, gradients, strict=True):
            each.append(_parts(np.zeros(x.shape, x.dtype.numpy) if g is None else g._host()))
    return [np.array(each) for each in rows]


def _numerical(func: AnyCallable, args: list[Arg], i: int, eps: float) -> list[HostArray]:
    """A Jacobian for each output, by central differences."""
    base, names = args[i]._host(), names_of(args[i])
    columns: list[list[HostArray]] = []
    for part in range(_parts(base).size):
        sides = []
        for step in (-eps, eps):
            moved = base.copy()
            flat = _parts(moved)
            flat[part] += step
            shifted = set_names(from_host(flat.view(moved.dtype).reshape(moved.shape)), names).requires_grad_(True)
            sides.append(_tensors(func(*_with(args, i, shifted))))
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
    below, above = (_parts(x._host()).astype(float) for x in (low, high))
    return (above - below) / (2 * eps)
