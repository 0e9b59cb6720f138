"""Starts the worker processes of an example."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import weft as torch
import weft.multiprocessing as mp
from weft.distributed import rpc

Work = Callable[[str, argparse.Namespace], None]


def run(names: Sequence[str], work: Work, given: argparse.Namespace) -> None:
    """Start a process for each name, and wait for all. If one fails, the others are ended.

    Each process joins the job under its name, calls `work(name, given)`, and serves the others until all have returned
    from it. They meet in a new folder, `given.meeting`.
    """
    with tempfile.TemporaryDirectory() as folder:
        given.meeting = Path(folder)
        mp.spawn(_join, (names, work, given), nprocs=len(names))


def _join(rank: int, names: Sequence[str], work: Work, given: argparse.Namespace) -> None:
    torch.manual_seed(given.seed + rank)
    rpc.init_rpc(
        names[rank],
        rank=rank,
        world_size=len(names),
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=f"file://{given.meeting}/workers"),
    )
    work(names[rank], given)
    rpc.shutdown()


def parser(description: str) -> argparse.ArgumentParser:
    """A parser of the options that all examples have."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    made.add_argument("--seed", type=int, default=0, help="seed of the weights and the data")
    return made
