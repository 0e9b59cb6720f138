"""Replicas in two processes, which average their gradients."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from common import drawn, fill, report
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_basic(rank, world_size, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    ddp_model = DDP(fill(ToyModel()))
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.1)
    loss_fn = nn.MSELoss()
    dataset = TensorDataset(drawn(40, 10), drawn(40, 5, seed=1))
    sampler = DistributedSampler(dataset, shuffle=False)
    losses = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, targets in DataLoader(dataset, batch_size=10, sampler=sampler):
            optimizer.zero_grad()
            loss = loss_fn(ddp_model(inputs), targets)
            loss.backward()
            optimizer.step()
            average = loss.detach().clone()
            dist.all_reduce(average, op=dist.ReduceOp.SUM)
            losses.append(average.item() / world_size)
    path = os.path.join(folder, "model.checkpoint")
    if rank == 0:
        torch.save(ddp_model.state_dict(), path)
    dist.barrier()
    ddp_model.load_state_dict(torch.load(path, map_location="cpu"))
    if rank == 0:
        report(losses[0], losses[-1])
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(demo_basic, args=(2, folder), nprocs=2, join=True)
