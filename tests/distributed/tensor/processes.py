"""A rank of a job that trains a model on distributed tensors: `processes.py BACKEND RANK SIZE FILE`."""

from __future__ import annotations

import copy
import sys

import numpy as np

import weft as torch
import weft.distributed as dist
from tests.distributed.tensor.test_context_parallel import follow_one_process
from tests.distributed.tensor.test_dtensor import Language, shard_all, split_layers, trained
from tests.distributed.tensor.test_loss_parallel import agree
from weft.distributed.device_mesh import init_device_mesh
from weft.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor
from weft.distributed.tensor.debug import CommDebugMode, visualize_sharding
from weft.distributed.tensor.experimental._attention import set_rotate_method
from weft.nn.functional import cross_entropy


def main():
    backend, rank, size, file = sys.argv[1:]
    dist.init_process_group(backend, init_method=f"file://{file}", rank=int(rank), world_size=int(size))
    mesh = init_device_mesh("cpu", (int(size),))
    for partition, placement in ((split_layers, Replicate()), (shard_all, Shard(0))):
        torch.manual_seed(0)
        plain = Language().double()
        tokens, targets = torch.randint(0, 32, (4, 8)), torch.randint(0, 32, (4, 8))
        model = distribute_module(copy.deepcopy(plain), mesh, partition)
        batch = [distribute_tensor(x, mesh, [placement]) for x in (tokens, targets)]
        np.testing.assert_allclose(trained(model, *batch), trained(plain, tokens, targets), rtol=1e-9)
    uneven = distribute_tensor(torch.arange(5.0), mesh, [Shard(0)])
    with CommDebugMode() as mode:
        assert uneven.full_tensor().tolist() == [0, 1, 2, 3, 4]
        dist.barrier()
    assert mode.get_comm_counts() == {"all_gather_into_tensor": 1}
    visualize_sharding(uneven, "uneven")
    assert (uneven**2).sum().item() == 30
    set_rotate_method("alltoall")
    follow_one_process(mesh)
    mode = agree(lambda x: cross_entropy(x, targets[0]), torch.randn(8, 32, dtype=torch.float64), mesh, [Shard(1)])
    assert mode.get_comm_counts() == {"all_reduce": 2}
    dist.destroy_process_group()
    sys.stdout.write("trained\n")


if __name__ == "__main__":
    main()
