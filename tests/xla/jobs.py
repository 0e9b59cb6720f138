"""What replicas run in tests of `spawn`: functions of modules, since processes import them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import weft as torch
import weft.distributed as dist
import weft.xla.core.xla_model as xm
import weft.xla.distributed.xla_multiprocessing as xmp
import weft.xla.runtime as xr


def differ(ordinal: int) -> None:
    """Record different collectives on each replica."""
    x = torch.ones(2)
    (xm.all_reduce(xm.REDUCE_SUM, x) if ordinal else xm.all_gather(x)).tolist()


def end_early(ordinal: int) -> None:
    """Return on one replica, while the other waits in a collective."""
    if not ordinal:
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(2)).tolist()


def fail(ordinal: int) -> None:
    """Raise on one replica, while the other waits in a collective."""
    if ordinal:
        raise KeyError("lost")
    xm.all_reduce(xm.REDUCE_SUM, torch.ones(2)).tolist()


def meet_in_a_group(ordinal: int, path: str) -> None:
    """Use process groups beside collectives in programs."""
    dist.init_process_group("xla", init_method="xla://")
    x = torch.full((2,), ordinal + 1.0)
    dist.all_reduce(x)
    order = xmp.MpSerialExecutor().run(lambda: xr.global_ordinal())
    total = xm.all_reduce(xm.REDUCE_SUM, x)
    xm.mark_step()
    if xm.is_master_ordinal():
        torch.save([x, total, torch.tensor(order)], path)
    dist.destroy_process_group()


def form_groups(ordinal: int) -> None:
    """Exchange within groups of two of four replicas, all in one program."""
    x = torch.arange(4.0).reshape(2, 2) + 10 * ordinal
    expected: list[tuple[torch.Tensor, np.ndarray]] = []
    for groups in ([[0, 1], [2, 3]], [[3, 1], [2, 0]]):
        expected += _within(groups, ordinal, x)
    xm.mark_step()
    for found, numbers in expected:
        np.testing.assert_allclose(found.detach().numpy(), numbers)


def _within(groups: list[list[int]], ordinal: int, x: torch.Tensor) -> Sequence[tuple[torch.Tensor, np.ndarray]]:
    """Results of collectives, which are not computed yet, and the numbers that they should be."""
    group = next(group for group in groups if ordinal in group)
    parts = [np.arange(4.0).reshape(2, 2) + 10 * member for member in group]
    place, members = group.index(ordinal), np.array(group) + 1.0
    in_place = [x.clone()]
    xm.all_reduce(xm.REDUCE_SUM, in_place, 0.25, groups=groups)
    sent = [x.clone()]
    xm.collective_broadcast(sent, 1, groups=groups)
    halves = [np.split(part, 2)[place] for part in parts]
    leaf = x.clone().requires_grad_(True)
    gathered = xm.all_gather(leaf, groups=groups)
    exchanged = xm.all_to_all(leaf, 0, 1, 2, groups=groups)
    scattered = xm.reduce_scatter(xm.REDUCE_SUM, leaf, 1.0, 0, 2, groups=groups)
    ((gathered.sum() + exchanged.sum() + scattered.sum()) * (ordinal + 1)).backward()
    own = np.stack([np.full(2, number) for number in members])
    return [
        (xm.all_reduce(xm.REDUCE_MAX, x, 2.0, groups=groups), 2 * np.maximum(*parts)),
        (xm.all_reduce(xm.REDUCE_MUL, x, groups=groups), parts[0] * parts[1]),
        (in_place[0], sum(parts) / 4),
        (gathered, np.concatenate(parts)),
        (xm._all_gather_using_all_reduce(x, 1, groups=groups), np.concatenate(parts, 1)),
        (scattered, sum(halves)),
        (xm.reduce_scatter(xm.REDUCE_MUL, x, 0.5, 0, 2, groups=groups), halves[0] * halves[1] / 2),
        (exchanged, np.concatenate(halves, 1)),
        (sent[0], parts[group.index(1)] if 1 in group else np.zeros((2, 2))),
        (leaf.grad, members.sum() + 2 * own),
    ]
