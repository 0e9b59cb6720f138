"""Replicas over XLA's runtime and over MPI end where one process on the whole batches does.

`python -m tests.distributed.test_backends_ddp MODEL BACKEND FOLDER [RANK SIZE]` is a replica.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

import weft
import weft.distributed as dist
from tests.distributed.processes import ended, mpiexec, needs_mpi, start
from tests.distributed.replicas import train
from weft import nn
from weft.nn.parallel import DistributedDataParallel

MODULE = "tests.distributed.test_backends_ddp"


def perceptron(rank=0, size=1):
    """The same for two layers, which are soon compiled."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    wrapped = DistributedDataParallel(model, bucket_cap_mb=1e-4) if size > 1 else model
    optimizer = weft.optim.SGD(model.parameters(), 0.1)
    for x in weft.randn(3, 4, 3, dtype=weft.float64):
        optimizer.zero_grad()
        wrapped(x[rank::size]).square().mean().backward()
        optimizer.step()
    return {key: value.numpy(force=True) for key, value in model.state_dict().items()}


def trained(name, rank=0, size=1):
    return perceptron(rank, size) if name == "perceptron" else train(name, rank, size)


def main():
    name, backend, folder, *place = sys.argv[1:]
    rank, size, address = (int(place[0]), int(place[1]), f"file://{folder}/store") if place else (-1, -1, None)
    dist.init_process_group(backend, address, rank=rank, world_size=size)
    rank, size = dist.get_rank(), dist.get_world_size()
    np.savez(f"{folder}/{rank}.npz", **trained(name, rank, size))
    dist.destroy_process_group()


def replicas(name, backend, size, folder):
    given = [name, backend, str(folder)]
    if backend == "mpi":
        running = [start(mpiexec(size, "-m", MODULE, *given))]
    else:
        running = [start([sys.executable, "-m", MODULE, *given, str(rank), str(size)]) for rank in range(size)]
    for code, _, errors in ended(running):
        assert code == 0, errors
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(size)]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param("perceptron", 2, marks=pytest.mark.slow),
        pytest.param("gpt", 2, marks=pytest.mark.soak),
        pytest.param("resnet", 2, marks=pytest.mark.soak),
        pytest.param("gpt", 4, marks=pytest.mark.soak),
        pytest.param("resnet", 4, marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("backend", ["xla", pytest.param("mpi", marks=needs_mpi)])
def test_replicas_equal_one_process(backend, name, size, tmp_path):
    found = replicas(name, backend, size, tmp_path)
    for key, expected in trained(name).items():
        for replica in found:
            np.testing.assert_array_equal(replica[key], found[0][key], err_msg=key)
            np.testing.assert_allclose(replica[key], expected, rtol=0, atol=1e-10, err_msg=key)


if __name__ == "__main__":
    main()
