"""Calls of functions whose derivatives are taken, for `autograd.functional`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._autograd.forward import pushed_forward
from weft._base.state import ambient, using
from weft._base.types import PyTree
from weft._lazy.external import taken_in
from weft._lazy.value import Value
from weft._tensor.codegen import op
from weft._tensor.composite.create import ones_like, zeros_like
from weft._tensor.directions import in_all_directions, split_by
from weft._tensor.gradients import grad
from weft._tensor.tensor import Tensor, operand, wrap
from weft.errors import ArgumentError, TransformError

Tensors = tuple[Tensor, ...]
Function = Callable[..., Any]


class FunctionCall:
    """A function called with tensors that stand for the inputs on the tape."""

    def __init__(self, name: str, func: Function, inputs: PyTree, create_graph: bool, strict: bool) -> None:
        self.name = name
        self.create_graph = create_graph
        self.strict = strict
        self.is_tuple, originals = as_tuple(inputs, "inputs", name)
        self.inputs = tuple([_stand_in(x, create_graph) for x in originals])
        self.has_outputs, self.outputs = as_tuple(func(*self.inputs), "outputs of the user-provided function", name)
        check_outputs(self.outputs, strict)

    def vector(self, v: PyTree, tensors: Tensors, is_tuple: bool, text: str) -> Tensors | None:
        """The given vector, checked against the shapes of `tensors`; None for that of a single element."""
        if v is None:
            if len(tensors) != 1 or tensors[0].numel() != 1:
                raise TransformError(f"The vector v can only be None if the {text} with a single element.")
            return None
        _, parts = as_tuple(v, "v", self.name)
        if len(parts) != len(tensors):
            raise TransformError(
                f"v is a tuple of invalid length: should be {len(tensors)} but got {len(parts)}."
                if is_tuple
                else "The given v should contain a single Tensor."
            )
        for index, (part, x) in enumerate(zip(parts, tensors, strict=True)):
            if part.shape != x.shape:
                lead = f"Entry {index} in " if is_tuple else ""
                raise TransformError(f"{lead}v has invalid size: should be {x.shape} but got {part.shape}.")
        return parts if self.create_graph else tuple([part.detach() for part in parts])

    # --- derivatives --------------------------------------------------------------------------------------------

    def gradients(self, outputs: Sequence[Tensor], v: Tensors | None) -> list[Tensor | None]:
        """The gradients of the inputs, from those of some outputs."""
        with using(grad=self.create_graph or ambient().grad):
            return gradients_of(outputs, self.inputs, v, create_graph=self.create_graph)

    def tangents(self, outputs: Sequence[Tensor], v: Sequence[Tensor] | None) -> list[Tensor]:
        """The tangents of some outputs, from those of the inputs."""
        parts = [ones_like(x.detach()) for x in self.inputs] if v is None else v
        directions: dict[Value, Value | None] = {
            taken_in(operand(x)): taken_in(operand(t)) for x, t in zip(self.inputs, parts, strict=True)
        }
        with using(grad=self.create_graph or ambient().grad):
            values = pushed_forward([operand(y) for y in outputs], directions)
            return self.filled([None if x is None else wrap(x) for x in values], _INDEPENDENT_OUTPUT, outputs)

    def filled(
        self, gradients: Sequence[Tensor | None], text: str, like: Sequence[Tensor] | None = None
    ) -> list[Tensor]:
        """Zeros for what is None; with `strict`, `RuntimeError` with this text."""
        tensors = self.inputs if like is None else like
        for at, x in enumerate(gradients):
            if self.strict and x is None:
                raise TransformError(text.format(at))
            if self.strict and self.create_graph and x is not None and not x.requires_grad:
                raise TransformError(_CONSTANT.format(at))
        return [zeros_like(x.detach()) if g is None else g for g, x in zip(gradients, tensors, strict=True)]

    def rows(self, at: int) -> list[Tensor]:
        """The Jacobian of an output by each input, one row after the other."""
        output = self.outputs[at]
        elements = output.reshape(-1)
        columns: list[list[Tensor]] = [[] for _ in self.inputs]
        for element in range(output.numel()):
            gradients = self.gradients([elements[element]], None)
            for index, (column, x) in enumerate(zip(columns, gradients, strict=True)):
                if x is None and self.strict:
                    raise TransformError(
                        f"Output {at} of the user-provided function is independent of input {index}. This is not "
                        "allowed in strict mode."
                    )
                if self.strict and self.create_graph and x is not None and not x.requires_grad:
                    raise TransformError(_CONSTANT.format(at))
                column.append(zeros_like(self.inputs[index].detach()) if x is None else x)
        return [
            op.stack(column).reshape((*output.shape, *x.shape))
            if column
            else op.zeros((*output.shape, *x.shape), dtype=x.dtype)
            for column, x in zip(columns, self.inputs, strict=True)
        ]

    def rows_together(self) -> list[list[Tensor]]:
        """The Jacobians of all outputs by each input, by passes that run together."""

        def pulled(*cotangents: Tensor) -> list[Tensor]:
            return self.filled(self.gradients(self.outputs, cotangents), "")

        rows = in_all_directions(pulled, self.outputs)
        columns = [split_by(row, self.outputs, x.shape) for row, x in zip(rows, self.inputs, strict=True)]
        return [list(each) for each in zip(*columns, strict=True)]

    def finished(self, tensors: Sequence[Tensor], is_tuple: bool) -> PyTree:
        """Results as the caller gets them: on the tape if asked for, and in a tuple or alone."""
        results = tuple(tensors) if self.create_graph else tuple([x.detach() for x in tensors])
        return results if is_tuple else results[0]


def gradients_of(
    outputs: Sequence[Tensor], inputs: Tensors, v: Sequence[Tensor] | None, *, create_graph: bool
) -> list[Tensor | None]:
    """The gradients of the inputs; None where the outputs do not depend on them."""
    cotangents = [None] * len(outputs) if v is None else v
    # Outputs that depend on no input contribute nothing, and `grad` refuses them.
    pairs = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
    if not pairs:
        return [None] * len(inputs)
    return list(
        grad(
            [y for y, _ in pairs],
            inputs,
            [g for _, g in pairs],
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=True,
        )
    )


def _stand_in(x: Tensor, create_graph: bool) -> Tensor:
    """A tensor that stands for an input, with which it shares the graph if gradients shall flow there."""
    return x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()


def as_tuple(tensors: PyTree, what: str, name: str) -> tuple[bool, Tensors]:
    """Whether it is a tuple, and the tuple; `TypeError` for anything but tensors."""
    is_tuple = isinstance(tensors, tuple)
    parts: tuple[Any, ...] = tensors if isinstance(tensors, tuple) else (tensors,)
    for index, x in enumerate(parts):
        if not isinstance(x, Tensor):
            position = f"value at index {index}" if is_tuple else f"given {what}"
            raise ArgumentError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the {position} has type "
                f"{type(x)}."
            )
    return is_tuple, parts


def single_element(name: str, is_tuple: bool, outputs: Tensors) -> Tensor:
    """The only output, which must have a single element."""
    if is_tuple:
        raise TransformError(f"The function given to {name} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise TransformError(f"The Tensor returned by the function given to {name} should contain a single element")
    return outputs[0]


def check_outputs(outputs: Tensors, strict: bool) -> None:
    if strict:
        require_gradients(outputs, _NO_GRADIENTS)


def require_gradients(tensors: Sequence[Tensor | None], text: str) -> None:
    """Raise `RuntimeError` with this text for a tensor through which no gradients flow."""
    for at, x in enumerate(tensors):
        if x is None:
            raise TransformError(INDEPENDENT.format(at))
        if not x.requires_grad:
            raise TransformError(text.format(at))


_NO_GRADIENTS = (
    "Output {} of the user-provided function does not require gradients. The outputs must be computed in a "
    "differentiable manner from the input when running in strict mode."
)
INDEPENDENT = "The output of the user-provided function is independent of input {}. This is not allowed in strict mode."
_INDEPENDENT_OUTPUT = (
    "Output {} of the user-provided function is independent of the inputs. This is not allowed in strict mode."
)
INDEPENDENT_JACOBIAN = (
    "The jacobian of the user-provided function is independent of input {}. This is not allowed in strict mode."
)
_CONSTANT = (
    "The jacobian of the user-provided function is independent of input {}. This is not allowed in strict mode when "
    "create_graph=True."
)
LINEAR = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} is "
    "independent of the input. This is not allowed in strict mode. You should ensure that your function is twice "
    "differentiable and that the jacobian depends on the inputs (this would be violated by a linear function for "
    "example)."
)
