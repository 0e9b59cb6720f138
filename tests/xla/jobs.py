"""What replicas run in tests of `spawn`: functions of modules, since processes import them."""

from __future__ import annotations

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
