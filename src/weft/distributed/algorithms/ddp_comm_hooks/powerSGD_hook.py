"""PowerSGD: gradients are sent as products of thin matrices.

Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for distributed optimization", 2019
(https://arxiv.org/abs/1905.13727). A matrix M (rows, columns) is approximated by P Qᵀ, with P (rows, rank) and
Q (columns, rank): one step of power iteration that starts from the Q of the previous step. The error of the
approximation is added to the gradient of the next step.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft._base.dtype import bfloat16, float16
from weft._base.state import using
from weft._base.types import Result, SavedState
from weft._tensor.codegen import op as rows
from weft._tensor.composite.shape import unbind
from weft._tensor.convert import from_host
from weft._tensor.tensor import Tensor
from weft.distributed import _collectives
from weft.distributed._grad_bucket import GradBucket, split_like
from weft.distributed._world import require_default, require_group
from weft.distributed.algorithms.ddp_comm_hooks.default_hooks import average
from weft.errors import ValueRangeError
from weft.futures import Future
from weft.linalg import qr

if TYPE_CHECKING:
    from weft.distributed._group import ProcessGroup

_log = logging.getLogger(__name__)


class PowerSGDState:
    """Options and state of PowerSGD, for one replica.

    matrix_approximation_rank     number of columns of P and Q
    start_powerSGD_iter           number of first steps with plain averages; more than 1 with `use_error_feedback` or
                                  `warm_start`, since buckets change after the first step
    min_compression_rate          matrices are compressed if they become smaller by more than this factor
    use_error_feedback            add the error of a step to the gradients of the next one
    warm_start                    start from the Q of the previous step, not from a random one
    orthogonalization_epsilon     added to the norms of columns; columns of zeros stay zero even without it
    batch_tensors_with_same_shape multiply matrices of one shape together

    It can be pickled, without the group: the copy uses the default one.
    """

    def __init__(
        self,
        process_group: ProcessGroup,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1_000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueRangeError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD "
                "can only be applied after the first two iterations in DDP."
            )
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self.rng = np.random.RandomState(random_seed)  # the same draws on all ranks
        self.error_dict: dict[int, Tensor] = {}  # by number of the bucket, as the next one
        self.q_memory_dict: dict[int, Tensor] = {}
        self.iter = 0
        self.total_numel_before_compression = 0
        self.total_numel_after_compression = 0
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)
        self.next_stats_report = 0

    def __getstate__(self) -> SavedState:
        return {name: value for name, value in self.__dict__.items() if name != "process_group"}

    def __setstate__(self, state: SavedState) -> None:
        self.__dict__.update(state, process_group=require_default())

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step at its last bucket."""
        if bucket.is_last():
            self.iter += 1
            if self.iter == self.start_powerSGD_iter:
                _log.info("Start to apply PowerSGD after %s iterations.", self.iter)

    def compression_stats(self) -> tuple[float, int, int]:
        """The compression rate, and the number of elements before and after compression."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0), before, after

    def count(self, bucket: GradBucket, matrices: Sequence[Tensor], whole: int) -> None:
        """Count the elements of a bucket; `whole` of them are sent without compression."""
        for batch, num_rows, num_cols in (m.shape for m in matrices):
            rank = min(num_rows, num_cols, self.matrix_approximation_rank)
            self.total_numel_after_compression += batch * (num_rows + num_cols) * rank
        self.total_numel_before_compression += sum(p.numel() for p in bucket.parameters())
        self.total_numel_after_compression += whole
        if bucket.is_last() and self.iter >= self.next_stats_report:
            rate, before, after = self.compression_stats()
            _log.info(
                "Compression stats: iter %s, total before compression %s, total after compression %s, rate %s",
                self.iter,
                before,
                after,
                rate,
            )
            self.next_stats_report = self.iter + self.compression_stats_logging_frequency

    def with_error(self, flat: Tensor, index: int) -> Tensor:
        """The gradients plus the errors of the previous step."""
        error = self.error_dict.get(index) if self.use_error_feedback else None
        return flat if error is None else flat + error

    def first_qs(self, index: int, shapes: Sequence[tuple[int, ...]], like: Tensor) -> list[Tensor]:
        """Each (batch, columns, rank), orthonormal: those of the previous step, or random ones."""
        sizes = [math.prod(shape) for shape in shapes]
        if not self.warm_start or index not in self.q_memory_dict:
            drawn = self.rng.standard_normal(sum(sizes)).astype(np.float32)
            self.q_memory_dict[index] = from_host(drawn).to(like.device, like.dtype)
        parts = self.q_memory_dict[index].split(sizes)
        epsilon = self.orthogonalization_epsilon
        return [orthogonalized(rows.reshape(q, shape), epsilon) for q, shape in zip(parts, shapes, strict=True)]

    def remember(self, bucket: GradBucket, gradients: Tensor, decompressed: Tensor) -> None:
        """Store the errors at the end of a bucket's step."""
        if self.use_error_feedback:
            self.error_dict[bucket.index()] = gradients - decompressed
        if not self.warm_start:
            self.q_memory_dict.clear()
        self.maybe_increase_iter(bucket)


def orthogonalized(matrices: Tensor, epsilon: float = 0) -> Tensor:
    """Orthonormal columns with the same span as those of `matrices` (batch, rows, columns), by Gram-Schmidt or QR."""
    count, half = matrices.shape[2], matrices.dtype in (float16, bfloat16)
    if count > 2 and not half:
        return qr(matrices)[0]
    done: list[Tensor] = []
    for at in range(count):
        column = matrices[:, :, at : at + 1]
        for before in done:
            column = column - (before * column).sum(1, keepdim=True) * before
        norm = (column * column).sum(1, keepdim=True).sqrt()
        norm = norm + epsilon if epsilon else rows.where(norm == 0, 1.0, norm)
        done.append(column / norm)
    return rows.cat(done, 2)


def _approximate(
    state: PowerSGDState, index: int, matrices: Sequence[Tensor], whole: Tensor
) -> Future[tuple[list[Tensor], Tensor]]:
    """A future of the averages of matrices, each (batch, rows, columns), approximate, and of a flat tensor, exact."""
    group = require_group(state.process_group)
    shapes, most = [tuple(m.shape) for m in matrices], state.matrix_approximation_rank
    p_shapes = [(batch, num_rows, min(num_rows, num_cols, most)) for batch, num_rows, num_cols in shapes]
    q_shapes = [(batch, num_cols, min(num_rows, num_cols, most)) for batch, num_rows, num_cols in shapes]
    qs = state.first_qs(index, q_shapes, whole)
    thin = _flat([*(rows.matmul(m, q) for m, q in zip(matrices, qs, strict=True)), whole])
    work = _collectives.all_reduce(thin, group=group, async_op=True)
    assert work is not None, "a replica is a member of its group"

    def finish(done: Future[Result]) -> tuple[list[Tensor], Tensor]:
        with using(grad=False):
            *sums, rest = _parts(done.value()[0], [*p_shapes, (whole.numel(),)])
            ps = [orthogonalized(p, state.orthogonalization_epsilon) for p in sums]  # the scale does not matter
            if matrices:
                thin = _flat([rows.matmul(rows.transpose(m, 1, 2), p) for m, p in zip(matrices, ps, strict=True)])
                _collectives.all_reduce(thin, group=group)
                state.q_memory_dict[index] = thin / group.size()
            qs = _parts(state.q_memory_dict[index], q_shapes) if matrices else []
            products = [rows.matmul(p, rows.transpose(q, 1, 2)) for p, q in zip(ps, qs, strict=True)]
            return products, rest / group.size()

    return work.get_future().then(finish)


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors concatenated into a new vector."""
    return rows.cat([rows.reshape(t, (-1,)) for t in tensors])


def _parts(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """The inverse of `_flat`."""
    parts = flat.split([math.prod(shape) for shape in shapes])
    return [rows.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Result]:
    """Averages in which large matrices are compressed one by one; vectors and small matrices are sent as they are.

    The first `start_powerSGD_iter` steps use plain averages.
    """
    # As PyTorch's hook, whose documentation advises it: the first steps are plain, since compressing them costs
    # accuracy.
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return average(state.process_group, bucket.buffer())
    # What compression has left out is added to the next gradients (error feedback; Vogels et al., 2019).
    gradients = state.with_error(bucket.buffer(), bucket.index())
    tensors = split_like(gradients, bucket.parameters())
    whole = [at for at, t in enumerate(tensors) if not _worth_it(state, t)]
    batches = _batches(state, tensors, [at for at in range(len(tensors)) if at not in whole])
    matrices = [rows.stack([rows.reshape(tensors[at], (tensors[at].shape[0], -1)) for at in b]) for b in batches]
    state.count(bucket, matrices, sum(tensors[at].numel() for at in whole))
    kept = _flat([tensors[at] for at in whole]) if whole else gradients[:0]
    future = _approximate(state, bucket.index(), matrices, kept)

    def decompress(done: Future[Result]) -> Tensor:
        products, rest = done.value()
        with using(grad=False):
            rest_of = dict(zip(whole, _parts(rest, [tuple(tensors[at].shape) for at in whole]), strict=True))
            for batch, product in zip(batches, products, strict=True):
                rest_of.update(zip(batch, unbind(product), strict=True))
            result = _flat([rest_of[at] for at in range(len(tensors))])
            state.remember(bucket, gradients, result)
        return result

    return future.then(decompress)


def _worth_it(state: PowerSGDState, tensor: Tensor) -> bool:
    """Whether a tensor, as a matrix, has more than `min_compression_rate` times the elements of its P and Q."""
    num_rows = tensor.shape[0] if tensor.ndim else 1
    num_cols = tensor.numel() // num_rows if num_rows else 0
    rank = min(num_rows, num_cols, state.matrix_approximation_rank)
    return (num_rows + num_cols) * rank * state.min_compression_rate < num_rows * num_cols


def _batches(state: PowerSGDState, tensors: Sequence[Tensor], chosen: Sequence[int]) -> list[list[int]]:
    """The groups of tensors that are multiplied together: matrices of one shape, or each tensor by itself."""
    by_shape: dict[tuple[int, int], list[int]] = {}
    for at in chosen:
        by_shape.setdefault((tensors[at].shape[0], tensors[at].numel()), []).append(at)
    together = list(by_shape.values())
    return together if state.batch_tensors_with_same_shape else [[at] for batch in together for at in batch]


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Result]:
    """Averages in which a bucket is compressed as one square matrix, padded with zeros: faster, but less accurate."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return average(state.process_group, bucket.buffer())
    flat = bucket.buffer()
    length, side = flat.numel(), math.ceil(math.sqrt(flat.numel()))
    filling = rows.zeros((side**2 - length,), dtype=flat.dtype, device=flat.device)
    gradients = state.with_error(rows.cat([flat, filling]), bucket.index())
    matrices = [rows.reshape(gradients, (1, side, side))]
    state.count(bucket, matrices, 0)
    future = _approximate(state, bucket.index(), matrices, gradients[:0])

    def decompress(done: Future[Result]) -> Tensor:
        with using(grad=False):
            result = rows.reshape(done.value()[0][0], (-1,))
            state.remember(bucket, gradients, result)
            return result[:length]

    return future.then(decompress)
