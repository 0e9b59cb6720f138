"""What an application shows of itself as a node of the graph: its name, its outputs, and its edges to other nodes."""

from __future__ import annotations

import re

from weft._autograd.derive import smooth_outputs
from weft._autograd.graph import Vertex, vertex_of
from weft._lazy.call import BoundOp, kinds_of
from weft._lazy.role import Interior, Role, custom_of
from weft._lazy.signature import Signature
from weft.ops._kinds import Kind
from weft.ops._table import TABLE


def backward_name(x: Vertex) -> str:
    """The name of a `grad_fn`: `AddBackward0` for `add`, or from the row's `Derivative.name` if PyTorch's differs.

    Letters after digits are upper case, as in PyTorch: `MaxPool2DBackward0`.
    """
    origin = vertex_of(x).origin
    assert origin is not None, "only applications are inside of the tape"
    if custom_of(x.role) is not None:
        return f"{origin.signature.name}Backward"
    return node_name(origin.signature, origin.index)


def node_name(signature: Signature, output: int = 0) -> str:
    """The name that the nodes of an operator have, for one of its outputs."""
    name = signature.call.op.derivative.name if signature.call is not None else ""
    if callable(name):
        name = name(tuple(aval.shape for aval in signature.avals), signature.outputs[output].aval.shape)
    if name:
        return name if "Backward" in name or "::" in name else f"{name}Backward0"
    if signature.call is None or signature.call.op.name not in TABLE:  # a user's operator
        return "".join([word[:1].upper() + word[1:] for word in re.split("[ _]", signature.name)]) + "Backward0"
    module, name = signature.call.op.public.module, re.sub(r"_dims?$", "", signature.name)
    name = f"{module}_{name}" if module in _PREFIXED else name
    return name.title().replace("_", "") + "Backward0"


_PREFIXED = ("linalg", "special")
"""The modules whose rows PyTorch's table has with the module's name in front."""


def count_outputs(place: Vertex | Role) -> int:
    """The number of gradients that a node takes: up to the last output through which gradients flow."""
    signature = _signature_of(place)
    return 1 if signature is None else max(smooth_outputs(signature), default=0) + 1


def edges_of(place: Vertex | Role) -> tuple[int, ...]:
    """Positions of the inputs that PyTorch's node has an edge for, whether or not gradients flow there.

    Those are the tensors of floating types, and numbers that are one of two operands, which PyTorch makes tensors of.
    """
    signature = _signature_of(place)
    if signature is None:
        return ()
    custom = custom_of(place.role)
    if custom is not None:  # before the arguments come results outside of the tape
        return tuple(range(getattr(custom, "first", 0), len(signature.avals)))
    operands = () if signature.call is None else operand_positions(signature.call)
    return tuple(
        [
            i
            for i, aval in enumerate(signature.avals)
            if i in operands or (aval.dtype.is_differentiable and not aval.weak)
        ]
    )


def operand_positions(call: BoundOp) -> tuple[int, ...]:
    """Positions of a call's inputs that are one of two operands."""
    operands = [at for at, kind in enumerate(kinds_of(call)) if kind is Kind.OPERAND]
    return tuple(operands) if sum(p.kind is Kind.OPERAND and not p.optional for p in call.op.params) == 2 else ()


def _signature_of(place: Vertex | Role) -> Signature | None:
    """The signature of the application at a place in the graph; None for a leaf."""
    if not isinstance(place.role, Interior):
        return None
    origin = vertex_of(place).origin  # pyright: ignore[reportArgumentType]  no leaf's role
    return None if origin is None else origin.signature


def snake_case(name: str) -> str:
    """The name of an operator, from that of its node: `native_layer_norm` for `NativeLayerNormBackward0`."""
    words = re.sub(r"Backwards?\d*$", "", name.rpartition("::")[2])
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", words).lower()
