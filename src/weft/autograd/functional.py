"""Derivatives of functions of tensors: Jacobians, Hessians, and their products with vectors.

`weft.func` has the same for nested containers of tensors, and its functions can be nested.
"""

from __future__ import annotations

from weft._base.state import using
from weft._base.types import PyTree
from weft._tensor.directions import in_all_directions, split_by
from weft._tensor.tensor import Tensor
from weft.autograd._call import (
    INDEPENDENT,
    INDEPENDENT_JACOBIAN,
    LINEAR,
    Function,
    FunctionCall,
    Tensors,
    as_tuple,
    check_outputs,
    gradients_of,
    require_gradients,
    single_element,
)
from weft.errors import PreconditionError, TransformError, UnsupportedTransformError


def vjp(
    func: Function, inputs: PyTree, v: PyTree = None, create_graph: bool = False, strict: bool = False
) -> tuple[PyTree, PyTree]:
    """The results of `func`, and the product of `v`, in their shapes, with its Jacobian: one gradient for each input.

    `v` may be left out for a result of one element. With `create_graph`, gradients flow through both. With `strict`,
    an input on which the results do not depend is an error instead of a gradient of zeros.
    """
    with using(grad=True):
        call = FunctionCall("vjp", func, inputs, create_graph, strict)
        v = call.vector(v, call.outputs, call.has_outputs, "user-provided function returns a single Tensor")
    gradients = call.gradients(call.outputs, v)
    return call.finished(call.outputs, call.has_outputs), call.finished(
        call.filled(gradients, INDEPENDENT), call.is_tuple
    )


def jvp(
    func: Function, inputs: PyTree, v: PyTree = None, create_graph: bool = False, strict: bool = False
) -> tuple[PyTree, PyTree]:
    """The results of `func`, and the product of its Jacobian with `v`, which has the shapes of the inputs.

    The options are those of `vjp`.
    """
    with using(grad=True):
        call = FunctionCall("jvp", func, inputs, create_graph, strict)
        v = call.vector(v, call.inputs, call.is_tuple, "input to the user-provided function is a single Tensor")
    tangents = call.tangents(call.outputs, v)
    return call.finished(call.outputs, call.has_outputs), call.finished(tangents, call.has_outputs)


def vhp(
    func: Function, inputs: PyTree, v: PyTree = None, create_graph: bool = False, strict: bool = False
) -> tuple[PyTree, PyTree]:
    """The result of `func`, a single element, and the product of `v` with its Hessian, by two backward passes.

    `v` has the shapes of the inputs. The options are those of `vjp`.
    """
    call, jacobian, v = _differentiated("vhp", func, inputs, v, create_graph, strict)
    gradients = call.filled(call.gradients(jacobian, v), INDEPENDENT_JACOBIAN)
    return call.finished(call.outputs, False), call.finished(gradients, call.is_tuple)


def hvp(
    func: Function, inputs: PyTree, v: PyTree = None, create_graph: bool = False, strict: bool = False
) -> tuple[PyTree, PyTree]:
    """The result of `func`, a single element, and the product of its Hessian with `v`, forward over reverse.

    `v` has the shapes of the inputs. The options are those of `vjp`.
    """
    call, jacobian, v = _differentiated("hvp", func, inputs, v, create_graph, strict)
    return call.finished(call.outputs, False), call.finished(call.tangents(jacobian, v), call.is_tuple)


def jacobian(
    func: Function,
    inputs: PyTree,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> PyTree:
    """The Jacobian of `func`: for each result and each input a tensor of the shape of the result, then of the input.

    With `vectorize`, all passes run together, else one after the other. `strategy` "forward-mode" takes a pass for each
    element of the inputs instead of the results. The other options are those of `vjp`.
    """
    _check_strategy(strategy)
    if strategy == "forward-mode":
        return _forward_jacobian(func, inputs, create_graph, strict, vectorize)
    with using(grad=True):
        call = FunctionCall("jacobian", func, inputs, create_graph, strict)
        if strict and vectorize:
            raise TransformError(
                "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. "
                "Please either set `strict=False` or `vectorize=False`."
            )
        table = call.rows_together() if vectorize else [call.rows(at) for at in range(len(call.outputs))]
        parts = [call.finished(row, call.is_tuple) for row in table]
    return tuple(parts) if call.has_outputs else parts[0]


def hessian(
    func: Function,
    inputs: PyTree,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> PyTree:
    """The Hessian of `func`, whose result is a single element: for each pair of inputs a tensor of both shapes.

    `outer_jacobian_strategy` "forward-mode" is forward over reverse. The other options are those of `jacobian`.
    """
    _check_strategy(outer_jacobian_strategy)
    is_tuple, tensors = as_tuple(inputs, "inputs", "hessian")

    def single(*arguments: Tensor) -> Tensor:
        result = func(*arguments)
        has_outputs, outputs = as_tuple(result, "outputs of the user-provided function", "hessian")
        check_outputs(outputs, strict)
        return single_element("hessian", has_outputs, outputs).reshape(())

    def gradient(*arguments: Tensor) -> Tensor | tuple[Tensor, ...]:
        if outer_jacobian_strategy == "forward-mode":
            arguments = tuple([x if x.requires_grad else x.detach().requires_grad_() for x in arguments])
        gradients = jacobian(single, arguments, create_graph=True)
        if strict:
            require_gradients(gradients, LINEAR)
        return gradients

    table = jacobian(gradient, tensors, create_graph, strict, vectorize, outer_jacobian_strategy)
    return table if is_tuple else table[0][0]


def _check_strategy(strategy: str) -> None:
    if strategy not in ("forward-mode", "reverse-mode"):
        raise PreconditionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs '
            'than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )


def _forward_jacobian(func: Function, inputs: PyTree, create_graph: bool, strict: bool, vectorize: bool) -> PyTree:
    for name, is_set in (("create_graph", create_graph), ("strict", strict)):
        if is_set:
            raise TransformError(
                f'torch.autograd.functional.jacobian: `{name}=True` and `strategy="forward-mode"` are not supported '
                f'together (yet). Please either set `{name}=False` or `strategy="reverse-mode"`.'
            )
    if not vectorize:
        raise UnsupportedTransformError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for "
            "`vectorize=True`."
        )
    with using(grad=True):
        call = FunctionCall("jacobian", func, inputs, False, False)
    columns = in_all_directions(lambda *basis: call.tangents(call.outputs, basis), call.inputs)
    parts = [
        call.finished(split_by(column.movedim((0,), (-1,)), call.inputs, y.shape, at_end=True), call.is_tuple)
        for column, y in zip(columns, call.outputs, strict=True)
    ]
    return tuple(parts) if call.has_outputs else parts[0]


def _differentiated(
    name: str, func: Function, inputs: PyTree, v: PyTree, create_graph: bool, strict: bool
) -> tuple[FunctionCall, list[Tensor], Tensors | None]:
    """A call whose result is a single element, its gradients on the tape, and the vector to multiply with."""
    with using(grad=True):
        call = FunctionCall(name, func, inputs, create_graph, strict)
        v = call.vector(v, call.inputs, call.is_tuple, "input to the user-provided function is a single Tensor")
        single_element(name, call.has_outputs, call.outputs)
        gradients = gradients_of(call.outputs, call.inputs, None, create_graph=True)
        if strict:
            require_gradients(gradients, LINEAR)
        return call, call.filled(gradients, INDEPENDENT), v
