"""Graphs that are recorded and not computed yet, as StableHLO; and barriers in them."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base import config
from weft._base.guards import is_a
from weft._base.state import ambient, using
from weft._dispatch import apply
from weft._lazy import lowered
from weft._lazy.infer import call_of
from weft._lazy.value import Value
from weft._tensor.tensor import Tensor, operand
from weft._tensor.view import write
from weft._tensor.write_checks import check_writable
from weft.errors import ArgumentError
from weft.ops._kinds import Many
from weft.ops._table import TABLE
from weft.xla._buckets import require_tensors

_barrier = TABLE["optimization_barrier"]


def get_stablehlo(tensors: Sequence[Tensor] | None = None) -> str:
    """The graph of these tensors as StableHLO text: what computes them from tensors that are computed already.

    Without tensors it is the graph of everything that this thread has recorded and that somebody still refers to, as
    `mark_step` would compute it. Nothing is computed by this. If `XLA_HLO_DEBUG=1` was set when the program started,
    locations name its lines.
    """
    return lowered.text(_values(tensors), lines=config.HLO_DEBUG)


def get_stablehlo_bytecode(tensors: Sequence[Tensor] | None = None) -> bytes:
    """The graph of `get_stablehlo` as MLIR bytecode."""
    return lowered.bytecode(_values(tensors))


def _values(tensors: Sequence[Tensor] | None) -> list[Value]:
    if isinstance(tensors, Tensor) or not all(is_a(tensor, Tensor) for tensor in tensors or ()):
        raise ArgumentError(f"get_stablehlo: a list of tensors is needed, got {type(tensors).__name__}")
    return [tensor._read() for tensor in tensors] if tensors else lowered.living(ambient().pending)


def optimization_barrier_(tensors: Sequence[Tensor]) -> None:
    """Keep the compiler from moving computation across this point for any of these tensors.

    What uses a tensor afterwards starts when all of them are computed. Without it the compiler may undo a checkpoint by
    sharing its forward pass. The elements, gradients and identities of the tensors stay what they are.
    """
    targets = [*tensors] if isinstance(tensors, tuple) else tensors
    require_tensors("tensors", targets)
    if not targets:
        return
    for tensor in targets:
        check_writable(tensor, grad=False)
    results = apply(call_of(_barrier, (Many(len(targets)),)), tuple([operand(tensor) for tensor in targets]))
    for tensor, result in zip(targets, results, strict=True):
        # A leaf that requires a gradient may only be written off the tape; its elements stay what they are, so nothing
        # is lost.
        if tensor.is_leaf:
            with using(grad=False):
                write(tensor, result)
        else:
            write(tensor, result)
