"""Sequences of different lengths, padded and packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from weft._base.device import DeviceLike
from weft._base.dtype import DType, float16, float32, float64, int8, int16, int32, int64, uint8
from weft._base.guards import is_a, is_iterable, is_list_or_tuple
from weft._base.state import ambient
from weft._base.types import Arg
from weft._lazy.value import Value
from weft._tensor import packing
from weft._tensor.codegen import op
from weft._tensor.convert import as_tensor, from_host, from_numpy_array
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.overriding import overridable
from weft._tensor.packing import padded_rows
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, DimError, PreconditionError, ShapeError, ValueRangeError
from weft.ops._dims import broadcast_shapes

Packed = TypeVar("Packed", bound="PackedSequence")
T = TypeVar("T")
R = TypeVar("R")


class PackedSequence_(NamedTuple):
    """The fields of `PackedSequence`."""

    data: Any
    batch_sizes: Any
    sorted_indices: Any
    unsorted_indices: Any


def _of(optional: T | None, fn: Callable[[T], R]) -> R | None:
    return None if optional is None else fn(optional)


class PackedSequence(PackedSequence_):
    """Sequences without padding, stored time step by time step, with the longest sequence first.

    `batch_sizes` (int64, on the CPU) is the number of sequences at each time. `sorted_indices` lead from the original
    order to the sorted one, and `unsorted_indices` back; both may be None. `pack_padded_sequence` and `pack_sequence`
    create it.
    """

    padded: tuple[Value, Tensor] | None = None  # the value of `data`, and the same elements with padding

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            if not is_list_or_tuple(data) or len(data) != 2:
                raise PreconditionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueRangeError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
                "They should be instantiated by functions like pack_sequence and pack_padded_sequences in "
                "nn.utils.rnn."
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple(self)

    def to(self: Packed, *args: Arg, **kwargs: Arg) -> Packed:
        """A packed sequence with `data.to(…)`, and the permutations on its device; `batch_sizes` stays on the CPU."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        order = (_of(indices, lambda t: t.to(data.device)) for indices in self[2:])
        return type(self)(data, self.batch_sizes, *order)

    def cpu(self: Packed) -> Packed:
        """On the CPU."""
        return self.to("cpu")

    def cuda(self: Packed, device: DeviceLike | None = None) -> Packed:
        """On a GPU."""
        return self.to("cuda" if device is None else device)

    def pin_memory(self: Packed) -> Packed:
        """Itself, with tensors as `Tensor.pin_memory` returns them."""
        data, sizes, *order = self
        return type(self)(data.pin_memory(), sizes, *(_of(indices, lambda t: t.pin_memory()) for indices in order))

    @property
    def is_cuda(self) -> bool:
        """Whether `data` is on a GPU."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """False: XLA manages transfers by itself."""
        return False


def _cast_method(name: str, dtype: DType) -> None:
    def cast(self: PackedSequence) -> PackedSequence:
        return self.to(dtype=dtype)

    cast.__name__, cast.__qualname__ = name, f"PackedSequence.{name}"
    cast.__doc__ = f"The same with `data` as {dtype}."
    setattr(PackedSequence, name, cast)


for _name, _dtype in (
    ("double", float64),
    ("float", float32),
    ("half", float16),
    ("long", int64),
    ("int", int32),
    ("short", int16),
    ("char", int8),
    ("byte", uint8),
):
    _cast_method(_name, _dtype)


def packed_like(
    padded: Tensor, batch_sizes: Tensor, sorted_indices: Tensor | None = None, unsorted_indices: Tensor | None = None
) -> PackedSequence:
    """Pack (time, batch, …), with sequences sorted by length.

    The padded tensor is kept, so that padding again is free. As long as nobody reads `data`, programs do not depend on
    the number of elements.
    """
    data = packing.pack(padded, batch_sizes._host())
    packed = PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices)
    packed.padded = (data._read(), padded)
    return packed


def padded_of(packed: PackedSequence) -> Tensor:
    """(time, batch, …) of a packed sequence, sorted; values past a sequence's end are arbitrary."""
    if packed.padded is not None:
        value, padded = packed.padded
        if packed.data._read() is value:
            return padded
    return packing.unpack(packed.data, packed.batch_sizes._host())


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The inverse of a permutation (n,); None for None."""
    if permutation is None:
        return None
    return op.argsort(permutation)


def _lengths(values: Tensor | Sequence[int]) -> np.ndarray[Any, Any]:
    lengths = as_tensor(values, dtype=int64) if not isinstance(values, Tensor) else values.to(int64)
    if lengths.ndim != 1:
        raise ShapeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got "
            f"{lengths.ndim}D {lengths.device.type} Long tensor"
        )
    return lengths._host()


def _check_lengths(lengths: np.ndarray, input: Tensor, batch_first: bool) -> None:
    """Raise if sorted lengths do not fit the input."""
    batch = input.shape[not batch_first]
    if not input.numel():
        raise ShapeError("Cannot pack empty tensors.")
    if len(lengths) != batch:
        raise ShapeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={batch})"
        )
    if (lengths <= 0).any():
        raise ShapeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if (np.diff(lengths) > 0).any():
        raise ShapeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you "
            "do not need ONNX exportability."
        )


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack (time, batch, …), or (batch, time, …) if `batch_first`, given the `lengths` (batch,) of the sequences.

    Lengths must be sorted unless `enforce_sorted` is false. `RuntimeError` if they do not fit the input.
    """
    sizes, order = _lengths(lengths), None
    if input.ndim < 2:
        raise DimError(f"Dimension out of range (expected to be in range of [{-input.ndim}, 0], but got 1)")
    ranks = None if enforce_sorted else np.argsort(-sizes, kind="stable")
    sizes = sizes if ranks is None else sizes[ranks]
    _check_lengths(sizes, input, batch_first)
    padded = input.transpose(0, 1) if batch_first else input
    padded = padded[: int(sizes[0])]
    if ranks is not None:
        order = from_numpy_array(ranks).to(input.device)
        padded = op.index_select(padded, 1, order)
    else:
        padded = op.clone(padded)  # so that later writes to the input have no effect
    batch_sizes = from_numpy_array(packing.conjugate(sizes))
    steps = padded.shape[0]
    if sizes[0] > steps:  # PyTorch packs the elements that exist; the rest is missing
        return PackedSequence(packing.pack(padded, batch_sizes._host()[:steps]), batch_sizes, order)
    return packed_like(padded, batch_sizes, order)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """(time, batch, …), or (batch, time, …) if `batch_first`, and the lengths (batch,), both in the original order.

    The size of time is the longest length, or `total_length`; `ValueError` if that is shorter.
    """
    sizes = sequence.batch_sizes._host()
    extra = 0 if total_length is None else total_length - len(sizes)
    if extra < 0:
        raise ValueRangeError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {len(sizes)}"
        )
    padded = padded_of(sequence)
    if extra:
        more = op.zeros((extra, *padded.shape[1:]), dtype=padded.dtype, device=padded.device)
        padded = op.cat([padded, more])
    padded = packing.fill(padded, np.pad(sizes, (0, extra)), padding_value)
    lengths = from_numpy_array(packing.conjugate(sizes))
    if sequence.unsorted_indices is not None:
        padded = op.index_select(padded, 1, sequence.unsorted_indices)
        # Lengths are on the CPU, as in PyTorch, wherever the data are.
        lengths = op.index_select(lengths, 0, sequence.unsorted_indices.cpu())
    return op.transpose(padded, 0, 1) if batch_first else padded, lengths


@overridable
def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Stack tensors (length, …) to (longest, batch, …), or (batch, longest, …) if `batch_first`."""
    if not is_iterable(sequences):
        raise ShapeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    items: Sequence[Any] = tuple(sequences)
    if not items:
        raise ShapeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise ShapeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    for at, sequence in enumerate(items):
        if not is_a(sequence, Tensor):
            raise ArgumentError(f"expected Tensor as element {at} in argument 0, but got {kind_and_advice(sequence)}")
        if not sequence.ndim:
            raise ShapeError(f"pad_sequence: sequences must have at least 1 dimension, but element {at} has none")
    longest = max(sequence.shape[0] for sequence in items)
    rest = items[0].shape[1:]
    for sequence in items:
        broadcast_shapes((sequence.shape[0], *rest), sequence.shape)
    # On the host: a program of its own for each combination of lengths would be compiled otherwise.
    if all(map(_on_host, items)):
        rows = padded_rows([sequence.numpy(force=True) for sequence in items], longest, padding_value, padding_side)
        return from_host(rows if batch_first else rows.swapaxes(0, 1), items[0].device)

    def padded(sequence: Tensor) -> Tensor:
        missing = (longest - sequence.shape[0], *rest)
        filling = op.full(missing, padding_value, dtype=items[0].dtype, device=sequence.device)
        parts = [sequence.to(items[0].dtype).expand(sequence.shape[0], *rest), filling]
        return op.cat(parts if padding_side == "right" else parts[::-1])

    return op.stack([padded(sequence) for sequence in items], 0 if batch_first else 1)


def _on_host(sequence: Tensor) -> bool:
    """Whether the elements can be read without waiting for a computation or losing a gradient."""
    value = sequence._read()
    ready = not value.is_pending and value.role is None and value.aval.device.type == "cpu"
    return ready and ambient().capture is None


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences (length, …) of a padded tensor, one for each length."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:length] for row, length in zip(rows, lengths.to(rows.device).tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors (length, …); with `enforce_sorted` they must be sorted, the longest first."""
    items = list(sequences)
    padded = pad_sequence(items)
    return pack_padded_sequence(padded, [s.shape[0] for s in items], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The tensors (length, …) of a packed sequence, in their original order."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
