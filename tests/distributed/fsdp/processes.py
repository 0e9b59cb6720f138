"""A rank of a job that trains a sharded model: `processes.py BACKEND RANK SIZE FILE`."""

from __future__ import annotations

import sys

import numpy as np

import weft as torch
import weft.distributed as dist
from tests.distributed.fsdp.models import assert_equal, batch, pair, step
from weft.distributed.device_mesh import init_device_mesh
from weft.distributed.tensor.debug import CommDebugMode


def main():
    backend, rank, size, file = sys.argv[1:]
    dist.init_process_group(backend, init_method=f"file://{file}", rank=int(rank), world_size=int(size))
    mesh = init_device_mesh("cpu", (int(size),))
    plain, model = pair(mesh=mesh)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.05) for m in (plain, model)]
    for _ in range(3):
        expected = step(plain, optimizers[0], batch())
        with CommDebugMode() as mode:
            loss = torch.tensor(step(model, optimizers[1], batch().chunk(int(size))[int(rank)]), dtype=torch.float64)
        assert mode.get_comm_counts() == {"all_gather_into_tensor": 5, "reduce_scatter_tensor": 3}
        dist.all_reduce(loss)
        np.testing.assert_allclose(loss.item() / int(size), expected, rtol=1e-9)
    assert_equal(plain, model)
    dist.destroy_process_group()
    sys.stdout.write("trained\n")


if __name__ == "__main__":
    main()
