"""Jacobians and Hessians: all directions at once, under `vmap`."""

from __future__ import annotations

from weft._base.types import AnyCallable, Arg, PyTree
from weft._tensor.directions import in_all_directions, split_by
from weft._tensor.tensor import Tensor
from weft.errors import TransformError, ValueRangeError
from weft.func._gradients import derivatives
from weft.func._linearization import ArgNums, Linearization, require_tensors
from weft.func._names import named_like
from weft.func._trees import flattened, rebuilt


def jacrev(
    func: AnyCallable, argnums: ArgNums = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> AnyCallable:
    """The function that computes the Jacobian of `func` by the arguments `argnums`, with a backward pass per result.

    For a result of shape R and an argument of shape A it has the shape (*R, *A). Structures of results contain
    structures of arguments. All passes run together, or `chunk_size` at a time. With `has_aux`, `func` returns
    (results, anything), and the result is (Jacobian, anything). `RuntimeError` for complex numbers.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueRangeError("jacrev: `chunk_size` should be greater than 0.")

    def function(*args: Arg) -> PyTree:
        refuse_complex("jacrev", args, "inputs")
        at = Linearization(func, args, argnums, has_aux, "vjp(f, *primals)")
        require_tensors(at.outputs, "vjp(f, *primals)")
        refuse_complex("jacrev", at.outputs, "outputs")
        rows = in_all_directions(lambda *basis: at.pulled(basis), at.outputs, chunk_size)
        columns = [split_by(row, at.outputs, x.shape) for row, x in zip(rows, at.inputs, strict=True)]
        parts = [rebuilt(at.argument_structure, each) for each in zip(*columns, strict=True)]
        jacobian = rebuilt(at.structure, parts)
        return (jacobian, at.aux) if has_aux else jacobian

    return named_like(func, function)


def jacfwd(func: AnyCallable, argnums: ArgNums = 0, has_aux: bool = False, *, randomness: str = "error") -> AnyCallable:
    """The function that computes the Jacobian of `func` as `jacrev` does, by a forward pass for each argument's number.

    `func` itself runs once, so its random numbers are the same for all passes, whatever `randomness` says.
    """
    del randomness

    def function(*args: Arg) -> PyTree:
        refuse_complex("jacfwd", args, "inputs")
        at = Linearization(func, args, argnums, has_aux, "jvp(f, primals, tangents)", forward=True)
        require_tensors(at.outputs, "jvp(f, primals, tangents)")
        refuse_complex("jacfwd", at.outputs, "outputs")
        columns = in_all_directions(lambda *basis: derivatives(at, basis), at.inputs)
        parts = [
            rebuilt(at.argument_structure, split_by(column.movedim((0,), (-1,)), at.inputs, y.shape, at_end=True))
            for column, y in zip(columns, at.outputs, strict=True)
        ]
        jacobian = rebuilt(at.structure, parts)
        return (jacobian, at.aux) if has_aux else jacobian

    return named_like(func, function)


def hessian(func: AnyCallable, argnums: ArgNums = 0) -> AnyCallable:
    """The function that computes the Hessian of `func` by the arguments `argnums`: `jacfwd(jacrev(func))`."""
    return jacfwd(jacrev(func, argnums), argnums)


def refuse_complex(name: str, tree: PyTree, what: str) -> None:
    """Raise `RuntimeError` for complex tensors."""
    for index, x in enumerate(flattened(tree)[0]):
        if isinstance(x, Tensor) and x.is_complex():
            raise TransformError(
                f"{name}: Expected all {what} to be real but received complex tensor at flattened input idx: {index}"
            )
