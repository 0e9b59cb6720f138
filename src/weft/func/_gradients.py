"""`grad`, `vjp` and `jvp`, and what is nearest to them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from weft._base.types import AnyCallable, Arg, PyTree
from weft._tensor.composite.create import ones_like, zeros_like
from weft._tensor.directions import require_tangent
from weft._tensor.tensor import Tensor
from weft.errors import TransformError
from weft.func._linearization import ArgNums, Linearization, require_tensors
from weft.func._names import named_like
from weft.func._trees import described, flattened, rebuilt


def grad(func: AnyCallable, argnums: ArgNums = 0, has_aux: bool = False) -> AnyCallable:
    """The function that computes the gradient of `func`, whose result is a scalar, by the arguments `argnums`.

    Its result has the structure of the argument, or is a tuple of these for a tuple of numbers. With `has_aux`, `func`
    returns (scalar, anything), and the result is (gradient, anything). Gradients flow to what `func` takes from
    outside. `RuntimeError` if `func` does not return a scalar, or writes to a tensor from outside.
    """
    both = grad_and_value(func, argnums, has_aux)

    def function(*args: Arg, **kwargs: Arg) -> PyTree:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return named_like(func, function)


def grad_and_value(func: AnyCallable, argnums: ArgNums = 0, has_aux: bool = False) -> AnyCallable:
    """As `grad`, but the results are (gradient, value), or with `has_aux` (gradient, (value, anything))."""
    name = "grad_and_value(f)(*args)"

    def function(*args: Arg, **kwargs: Arg) -> PyTree:
        at = Linearization(partial(func, **kwargs), args, argnums, has_aux, name)
        value = at.result
        if not isinstance(value, Tensor):
            raise TransformError(f"{name}: Expected f(*args) to return a Tensor, got {type(value)}")
        if value.ndim:
            raise TransformError(
                f"{name}: Expected f(*args) to return a scalar Tensor, got tensor with {value.ndim} dims. Maybe you "
                "wanted to use the vjp or jacrev APIs instead?"
            )
        if value.is_complex() and value.requires_grad:
            raise TransformError(f"grad can be implicitly created only for real scalar outputs but got {value.dtype}")
        gradients = at.pulled([ones_like(value.detach())], retain_graph=False)
        (value,) = at.left([value])
        gradient = rebuilt(at.argument_structure, gradients)
        return gradient, ((value, at.aux) if has_aux else value)

    return named_like(func, function)


def vjp(func: AnyCallable, *primals: PyTree, has_aux: bool = False) -> tuple[PyTree, ...]:
    """The results of `func(*primals)`, and the function from gradients of these to a tuple of gradients of `primals`.

    That function can be called several times, also under `vmap`. With `has_aux`, `func` returns (results, anything),
    and the tuple ends with what it has returned besides. `RuntimeError` if a result is no floating or complex tensor.
    """
    name = "vjp(f, *primals)"
    at = Linearization(func, primals, None, has_aux, name)
    require_tensors(at.outputs, name)
    for output in at.outputs:
        if not output.dtype.is_differentiable:
            raise TransformError(
                "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype "
                f"{output.dtype}"
            )

    def pullback(cotangents: PyTree, retain_graph: bool = True, create_graph: bool | None = None) -> tuple[PyTree, ...]:
        leaves, structure = flattened(cotangents)
        if structure != at.structure:
            raise TransformError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {described(structure)}, primal output: {described(at.structure)}"
            )
        gradients = at.pulled(leaves, retain_graph=retain_graph, create_graph=create_graph is not False)
        return rebuilt(at.argument_structure, gradients)

    # The graph is kept for calls of the pullback, whatever backward passes the caller runs meanwhile.
    at.hold()
    results = rebuilt(at.structure, at.left(at.outputs))
    return (results, pullback, at.aux) if has_aux else (results, pullback)


def jvp(
    func: AnyCallable, primals: PyTree, tangents: PyTree, *, strict: bool = False, has_aux: bool = False
) -> tuple[PyTree, ...]:
    """The results of `func(*primals)`, and their derivatives along `tangents`, which have the structure of `primals`.

    With `strict`, a result that does not depend on `primals` is an error, else its derivative is zero. With `has_aux`,
    `func` returns (results, anything), and the tuple ends with what it has returned besides.
    """
    name = "jvp(f, primals, tangents)"
    leaves = checked_tangents(name, primals, tangents)
    at = Linearization(func, primals, None, has_aux, name, forward=True)
    require_tensors(at.outputs, name)
    along = derivatives(at, leaves, strict=strict)
    results = rebuilt(at.structure, at.left(at.outputs)), rebuilt(at.structure, along)
    return (*results, at.aux) if has_aux else results


def checked_tangents(name: str, primals: PyTree, tangents: PyTree) -> list[Tensor]:
    """The leaves of `tangents`; `RuntimeError` if these do not fit `primals`, `ValueError` for integers."""
    if not isinstance(primals, tuple):
        raise TransformError(f"{name}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    points, structure = flattened(primals)
    leaves, of_tangents = flattened(tangents)
    if structure != of_tangents:
        raise TransformError(
            f"{name}: Expected primals and tangents to have the same python structure. For example, if primals is a "
            f"tuple of 3 tensors, tangents also must be. Got primals with structure {described(structure)} and "
            f"tangents with structure {described(of_tangents)}"
        )
    for what, tensors in (("primals", points), ("tangents", leaves)):
        if not tensors:
            raise TransformError(f"{name}: Expected {what} to contain at least one Tensor.")
        for x in tensors:
            if not isinstance(x, Tensor):
                raise TransformError(f"{name}: Expected {what} to only contain Tensors, got {type(x)}")
    for x, tangent in zip(points, leaves, strict=True):
        require_tangent(x, tangent)
    return [t if t.dtype is x.dtype else t.to(x.dtype) for x, t in zip(points, leaves, strict=True)]


def derivatives(at: Linearization, tangents: Sequence[Tensor], *, strict: bool = False) -> list[Tensor]:
    """The derivatives of the results along `tangents`; zeros for results that do not depend on the arguments."""
    results = at.pushed(tangents)
    if strict and any(x is None for x in results):
        raise TransformError(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed "
            "with strict=True."
        )
    return [zeros_like(y.detach()) if x is None else x for x, y in zip(results, at.outputs, strict=True)]


def linearize(func: AnyCallable, *primals: PyTree) -> tuple[PyTree, AnyCallable]:
    """The results of `func(*primals)`, and the function from tangents of `primals` to derivatives along them.

    `func` runs once; use `jvp` for a single direction. `RuntimeError` for tangents that do not fit `primals`.
    """
    at = Linearization(func, primals, None, False, "linearize", forward=True)
    require_tensors(at.outputs, "jvp(f, primals, tangents)")

    def pushforward(*tangents: PyTree) -> PyTree:
        leaves, structure = flattened(tangents)
        if structure != at.argument_structure:
            raise TransformError(
                f"Expected the tangents {described(structure)} to have the same argspec as the primals "
                f"{described(at.argument_structure)}"
            )
        for index, (x, tangent) in enumerate(zip(at.inputs, leaves, strict=True)):
            for what, own, other in (
                ("shape", tangent.shape, x.shape),
                ("device", tangent.device, x.device),
                ("dtype", tangent.dtype, x.dtype),
            ):
                if own != other:
                    raise TransformError(
                        f"tangent:{index} with {what} {own} in flattened pytree doesn't match the {what} {other} of "
                        "the corresponding primal."
                    )
        return rebuilt(at.structure, derivatives(at, leaves))

    at.hold()
    return rebuilt(at.structure, at.left(at.outputs)), pushforward


def functionalize(func: AnyCallable, *, remove: str = "mutations") -> AnyCallable:
    """`func` itself: what is recorded is free of writes and views already. The arguments keep their values.

    `RuntimeError` for another `remove` than "mutations" and "mutations_and_views".
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise TransformError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are: "
            "remove='mutations', remove='mutations_and_views'"
        )

    def function(*args: Arg, **kwargs: Arg) -> PyTree:
        return func(*args, **kwargs)

    return named_like(func, function)


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """The tensor itself: within transforms, tensors are not wrapped."""
    del recurse
    return tensor
