"""Copies and sums of tensors between the devices of one process."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.device import DeviceLike
from weft._tensor.codegen import op
from weft._tensor.composite.shape import chunk, split
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, OutOfRangeError, ShapeError


def _one_of(devices: Sequence[DeviceLike] | None, out: object) -> None:
    if (devices is None) == (out is None):
        raise OutOfRangeError(f"Exactly one of 'devices' and 'out' must be specified, but got {devices=} and {out=}")


def _written(out: Sequence[Tensor], values: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(one.copy_(value) for one, value in zip(out, values, strict=True))


def broadcast(
    tensor: Tensor, devices: Sequence[DeviceLike] | None = None, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]:
    """The tensor on each of `devices`, or written to each tensor of `out`."""
    _one_of(devices, out)
    if out is not None:
        return _written(out, [tensor] * len(out))
    return tuple(tensor.to(device) for device in devices or ())


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[DeviceLike], buffer_size: int = 10485760
) -> tuple[tuple[Tensor, ...], ...]:
    """For each device, the tensors on it."""
    del buffer_size
    return tuple(tuple(tensor.to(device) for tensor in tensors) for device in devices)


def reduce_add(inputs: Sequence[Tensor], destination: DeviceLike | None = None) -> Tensor:
    """The sum of tensors of one shape, on `destination`, by default the device of the first."""
    if not inputs:
        raise OutOfRangeError("reduce_add expects at least one tensor, got none")
    shape, target = inputs[0].shape, inputs[0].device if destination is None else destination
    for at, one in enumerate(inputs):
        if one.shape != shape:
            raise ShapeError(f"input {at} has invalid size: got {tuple(one.shape)}, but expected {tuple(shape)}")
    total = inputs[0].to(target)
    for one in inputs[1:]:
        total = total + one.to(target)
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: DeviceLike | None = None, buffer_size: int = 10485760
) -> tuple[Tensor, ...]:
    """`reduce_add` of the first tensors of each sequence, of the second ones, and so on."""
    del buffer_size
    return tuple(reduce_add(column, destination) for column in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor,
    devices: Sequence[DeviceLike] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: object = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Parts of the tensor along `dim`, one for each device, of `chunk_sizes` or about equal; or written to `out`."""
    del streams
    if out is not None:
        if devices is not None or chunk_sizes is not None:
            raise OutOfRangeError("'devices' and 'chunk_sizes' must not be specified when 'out' is specified")
        return _written(out, split(tensor, tuple(one.shape[dim] for one in out), dim))
    targets = list(devices or ())
    parts = chunk(tensor, len(targets), dim) if chunk_sizes is None else split(tensor, tuple(chunk_sizes), dim)
    return tuple(part.to(target) for part, target in zip(parts, targets, strict=False))


def gather(
    tensors: Sequence[Tensor], dim: int = 0, destination: DeviceLike | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The tensors joined along `dim` on `destination`, by default the device of the first; or written to `out`."""
    if out is not None and destination is not None:
        raise OutOfRangeError(f"'destination' must not be specified when 'out' is specified, but got {destination=}")
    if not tensors:
        raise ArgumentError("gather expects at least one tensor, got none")
    target = tensors[0].device if destination is None else destination
    joined = op.cat([tensor.to(out.device if out is not None else target) for tensor in tensors], dim)
    return joined if out is None else out.copy_(joined)
