"""Jacobians and Hessians: all directions at once, under `vmap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._tensor.codegen import op
from weft._tensor.composite.create import eye
from weft._tensor.tensor import Tensor
from weft.errors import TransformError, ValueRangeError
from weft.func._gradients import derivatives
from weft.func._linearization import ArgNums, Linearization, require_tensors
from weft.func._names import named_like
from weft.func._trees import flattened, rebuilt
from weft.func._vmap import vmap


def jacrev(
    func: Callable[..., Any], argnums: ArgNums = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> Callable[..., Any]:
    """The function that computes the Jacobian of `func` by the arguments `argnums`, with a backward pass per result.

    For a result of shape R and an argument of shape A it has the shape (*R, *A). Structures of results contain
    structures of arguments. All passes run together, or `chunk_size` at a time. With `has_aux`, `func` returns
    (results, anything), and the result is (Jacobian, anything). `RuntimeError` for complex numbers.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueRangeError("jacrev: `chunk_size` should be greater than 0.")

    def function(*args: Any) -> Any:
        refuse_complex("jacrev", args, "inputs")
        at = Linearization(func, args, argnums, has_aux, "vjp(f, *primals)")
        require_tensors(at.outputs, "vjp(f, *primals)")
        refuse_complex("jacrev", at.outputs, "outputs")
        rows = _for_all(lambda *basis: at.pulled(basis), at.outputs, chunk_size)
        columns = [_split(row, at.outputs, (*x.shape,), at_end=False) for row, x in zip(rows, at.inputs, strict=True)]
        parts = [rebuilt(at.argument_structure, each) for each in zip(*columns, strict=True)]
        jacobian = rebuilt(at.structure, parts)
        return (jacobian, at.aux) if has_aux else jacobian

    return named_like(func, function)


def jacfwd(
    func: Callable[..., Any], argnums: ArgNums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """The function that computes the Jacobian of `func` as `jacrev` does, by a forward pass for each argument's number.

    `func` itself runs once, so its random numbers are the same for all passes, whatever `randomness` says.
    """
    del randomness

    def function(*args: Any) -> Any:
        refuse_complex("jacfwd", args, "inputs")
        at = Linearization(func, args, argnums, has_aux, "jvp(f, primals, tangents)")
        require_tensors(at.outputs, "jvp(f, primals, tangents)")
        refuse_complex("jacfwd", at.outputs, "outputs")
        columns = _for_all(lambda *basis: derivatives(at, basis), at.inputs, None)
        parts = [
            rebuilt(at.argument_structure, _split(column.movedim((0,), (-1,)), at.inputs, (*y.shape,), at_end=True))
            for column, y in zip(columns, at.outputs, strict=True)
        ]
        jacobian = rebuilt(at.structure, parts)
        return (jacobian, at.aux) if has_aux else jacobian

    return named_like(func, function)


def hessian(func: Callable[..., Any], argnums: ArgNums = 0) -> Callable[..., Any]:
    """The function that computes the Hessian of `func` by the arguments `argnums`: `jacfwd(jacrev(func))`."""
    return jacfwd(jacrev(func, argnums), argnums)


def refuse_complex(name: str, tree: Any, what: str) -> None:
    """Raise `RuntimeError` for complex tensors."""
    for index, x in enumerate(flattened(tree)[0]):
        if isinstance(x, Tensor) and x.is_complex():
            raise TransformError(
                f"{name}: Expected all {what} to be real but received complex tensor at flattened input idx: {index}"
            )


def _for_all(function: Callable[..., list[Tensor]], tensors: Sequence[Tensor], chunk_size: int | None) -> list[Tensor]:
    """`function` of the standard basis of the space of `tensors`, one vector at a time, along a new first dim."""
    return vmap(function, chunk_size=chunk_size)(*standard_basis(tensors))


def standard_basis(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The vectors of the standard basis of the space of several tensors: the parts of all of them for each tensor."""
    numels = [x.numel() for x in tensors]
    total, start, parts = sum(numels), 0, []
    for x, numel in zip(tensors, numels, strict=True):
        part = op.zeros(total, numel, dtype=x.dtype, device=x.device)
        part[start : start + numel] = eye(numel, dtype=x.dtype, device=x.device)
        parts.append(part.reshape(total, *x.shape))
        start += numel
    return parts


def _split(jacobian: Tensor, tensors: Sequence[Tensor], shape: tuple[int, ...], *, at_end: bool) -> list[Tensor]:
    """A Jacobian whose first (or last) dim counts the elements of several tensors, for each of these."""
    parts = jacobian.split([x.numel() for x in tensors], -1 if at_end else 0)
    sizes = [(*shape, *x.shape) if at_end else (*x.shape, *shape) for x in tensors]
    return [part.reshape(size) for part, size in zip(parts, sizes, strict=True)]
