"""Chunks: boxes of a tensor. Which chunk a rank has, how chunks overlap, and whether they make up the tensor."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from math import prod

from weft._base.size import Size
from weft._tensor.tensor import Tensor
from weft.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorStorageMetadata
from weft.distributed.tensor import DTensor

_PRIME = 2**127 - 1  # so large that an accident is less likely than a broken machine


def chunk_of(tensor: Tensor) -> ChunkStorageMetadata | None:
    """The box that this rank has of a tensor: all of a plain one. None outside of a distributed tensor's mesh."""
    if not isinstance(tensor, DTensor):
        return ChunkStorageMetadata(Size([0] * tensor.ndim), Size(tensor.shape))
    if tensor.device_mesh.get_coordinate() is None:
        return None
    parts = tensor.sharding.local_parts()
    return ChunkStorageMetadata(Size([start for start, _ in parts]), Size([size for _, size in parts]))


def local_part_of(tensor: Tensor) -> Tensor:
    """The elements of this rank's chunk of a tensor, as a plain tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()


def overlap(one: ChunkStorageMetadata, other: ChunkStorageMetadata) -> ChunkStorageMetadata | None:
    """The box that is in both; None if there are no elements in it."""
    starts = [max(a, b) for a, b in zip(one.offsets, other.offsets, strict=True)]
    ends = [min(a, b) for a, b in zip(_ends(one), _ends(other), strict=True)]
    if any(end <= start for start, end in zip(starts, ends, strict=True)):
        return None
    return ChunkStorageMetadata(Size(starts), Size([end - start for start, end in zip(starts, ends, strict=True)]))


def relative(box: ChunkStorageMetadata, chunk: ChunkStorageMetadata) -> Size:
    """Where a box begins within a chunk."""
    return Size([a - b for a, b in zip(box.offsets, chunk.offsets, strict=True)])


def narrowed(tensor: Tensor, offsets: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """The view of a box of a tensor."""
    for dim, (start, length) in enumerate(zip(offsets, lengths, strict=True)):
        if length != tensor.shape[dim]:
            tensor = tensor.narrow(dim, start, length)
    return tensor


def make_up(chunks: Sequence[ChunkStorageMetadata], size: Sequence[int]) -> bool:
    """Whether chunks lie within a tensor of a size, do not overlap, and leave nothing out; in linear time.

    With a variable for each place of each dim, the polynomial of a box is the product, over dims, of its begin's minus
    its end's variable. Boxes make up another one if, and only if, their polynomials add up to its: these are the mixed
    differences of indicator functions. Two polynomials are the same if they have the same value for random numbers
    modulo a large prime; they are not, with a probability of dims divided by the prime (J. T. Schwartz, Fast
    probabilistic algorithms for verification of polynomial identities, J. ACM 27, 1980).
    """
    variables: list[dict[int, int]] = [defaultdict(partial(secrets.randbelow, _PRIME)) for _ in size]

    def value(offsets: Sequence[int], sizes: Sequence[int]) -> int:
        result = 1
        for variable, start, length in zip(variables, offsets, sizes, strict=True):
            result = result * (variable[start] - variable[start + length]) % _PRIME
        return result

    return (sum(value(chunk.offsets, chunk.sizes) for chunk in chunks) - value([0] * len(size), size)) % _PRIME == 0


def are_told_apart(chunks: Sequence[ChunkStorageMetadata]) -> bool:
    """Whether no empty chunk begins where another one does; then one entry of the metadata would say where both are.

    Ranks without a part of a tensor save empty chunks, which begin behind all others.
    """
    starts = {tuple(chunk.offsets) for chunk in chunks if chunk.numel}
    return all(chunk.numel or tuple(chunk.offsets) not in starts for chunk in chunks)


def faults_of(key: str, tensor: TensorStorageMetadata) -> Iterator[str]:
    """What is wrong with the chunks of a tensor: they must lie within it, not overlap, and leave nothing out."""
    if make_up(tensor.chunks, tensor.size):
        return
    for chunk in tensor.chunks:
        if any(end > size for end, size in zip(_ends(chunk), tensor.size, strict=True)):
            yield f"key:{key} has out of bounds chunk: tensor-size:{tensor.size} chunk: {chunk}"
    for one, other in _overlapping(tensor):
        yield f"key:{key} has overlapping chunks: {one} {other}"
    volume, covered = prod(tensor.size), sum(chunk.numel for chunk in tensor.chunks)
    if covered != volume:
        yield f"key:{key} invalid fill tensor-volume: {volume} chunks-volume: {covered}"


def _overlapping(tensor: TensorStorageMetadata) -> Iterator[tuple[ChunkStorageMetadata, ChunkStorageMetadata]]:
    """Pairs of chunks that overlap, found along the longest dim: so time is not quadratic in the number of chunks."""
    if len(tensor.chunks) < 2:
        return
    longest = max(range(len(tensor.size)), key=lambda dim: tensor.size[dim], default=None)
    active: list[ChunkStorageMetadata] = []
    for chunk in sorted(tensor.chunks, key=lambda chunk: _interval(chunk, longest)):
        start, _ = _interval(chunk, longest)
        active = [other for other in active if _interval(other, longest)[1] > start]
        yield from ((other, chunk) for other in active if overlap(other, chunk) is not None)
        active.append(chunk)


def _interval(chunk: ChunkStorageMetadata, dim: int | None) -> tuple[int, int]:
    """Where a chunk begins and ends along a dim; a tensor without dims has one place."""
    return (0, 1) if dim is None else (chunk.offsets[dim], chunk.offsets[dim] + chunk.sizes[dim])


def _ends(chunk: ChunkStorageMetadata) -> list[int]:
    return [start + size for start, size in zip(chunk.offsets, chunk.sizes, strict=True)]
