"""Digits on the lazy XLA device, in replicas: a program as it was written for PyTorch/XLA, with other imports.

    python examples/xla_lazy.py --replicas 2

Each replica trains on its part of the data. Gradients are averaged within the step's program, and the accuracy is the
mean of what the replicas have measured.
"""

from __future__ import annotations

import argparse

import numpy as np
import weft_xla.core.xla_model as xm
import weft_xla.distributed.parallel_loader as pl
import weft_xla.distributed.xla_multiprocessing as xmp
import weft_xla.runtime as xr
from sklearn.datasets import load_digits

import weft as torch
import weft.nn as nn
import weft.nn.functional as F
import weft.optim as optim
from weft.utils.data import DataLoader, DistributedSampler, TensorDataset


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Images of 8 by 8 pixels with their labels, for training and for testing."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32)
    labels = torch.tensor(labels)
    return TensorDataset(images[:1536], labels[:1536]), TensorDataset(images[1536:], labels[1536:])


def train(index: int, flags: argparse.Namespace) -> None:
    """What each replica does."""
    torch.manual_seed(flags.seed)
    device = xm.xla_device()
    training, testing = digits()
    sampler = DistributedSampler(training, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True)
    batch = flags.batch // xr.world_size()
    loader = pl.MpDeviceLoader(DataLoader(training, batch, sampler=sampler), device)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    xm.broadcast_master_param(model)
    optimizer = optim.SGD(model.parameters(), lr=flags.lr, momentum=0.9)
    tracker = xm.RateTracker()

    def report(step: int, loss: torch.Tensor) -> None:
        xm.master_print(f"step {step}: loss {loss.item():.4f}")

    step = 0
    for epoch in range(flags.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            xm.optimizer_step(optimizer)
            tracker.add(batch)
            if step % 50 == 0:
                mean = xm.all_reduce(xm.REDUCE_SUM, loss.detach(), scale=1 / xr.world_size())
                xm.add_step_closure(report, args=(step, mean))
            step += 1

    part = torch.utils.data.Subset(testing, range(xr.global_ordinal(), len(testing), xr.world_size()))
    right = 0
    with torch.no_grad():
        for images, labels in pl.MpDeviceLoader(DataLoader(part, 64), device):
            right += (model(images).argmax(1) == labels).sum()
    accuracy = xm.mesh_reduce("accuracy", int(right) / len(part), np.mean)
    xm.master_print(f"accuracy {accuracy:.2%}")
    if flags.save:
        xm.save(model.state_dict(), flags.save)
    xm.rendezvous("done")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="images in a step of all replicas together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", help="a file for the weights")
    flags = parser.parse_args()
    xmp.spawn(train, args=(flags,), nprocs=flags.replicas)
