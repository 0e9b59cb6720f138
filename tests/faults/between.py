"""What ranks on several hosts do together: `between.py BACKEND INIT_METHOD RANK SIZE`, or without the last three."""

import json
import os
import sys
from datetime import timedelta

import weft as torch
import weft.distributed as dist
from weft.nn.parallel import DistributedDataParallel

backend, *place = sys.argv[1:]
before = torch.ones(2).sum().item() if backend == "gloo" else 2.0  # programs compute before they join
method, rank, size = (place[0], int(place[1]), int(place[2])) if place else (None, -1, -1)
dist.init_process_group(backend, method, timedelta(seconds=40), rank=rank, world_size=size)
rank, size = dist.get_rank(), dist.get_world_size()
said = {"rank": rank, "backend": dist.get_backend(), "before": before}

for count in (3, 70_000):  # what each rank reduces alone, and what all reduce together
    x = torch.full((count,), float(rank + 1))
    dist.all_reduce(x)
    assert x.eq(size * (size + 1) / 2).all()
y = torch.tensor([rank, 7], dtype=torch.int32)
dist.broadcast(y, src=size - 1)
parts = [torch.zeros(1) for _ in range(size)]
dist.all_gather(parts, torch.tensor([float(rank)]))
everything = [None] * size
dist.all_gather_object(everything, {"rank": rank})
received = torch.zeros(size)
dist.all_to_all_single(received, torch.arange(float(size)) + 10 * rank)
if rank == 0:
    dist.send(torch.arange(4.0), dst=size - 1)
elif rank == size - 1:
    dist.recv(z := torch.zeros(4), src=0)
    said["message"] = z.tolist()
halves = [dist.new_group(list(range(size))[at::2]) for at in range(2)]
half = torch.ones(1)
dist.all_reduce(half, group=halves[rank % 2])
dist.barrier()

torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.full((1, 2), float(rank))).sum().backward()
    optimizer.step()
said |= {
    "broadcast": y.tolist(),
    "gathered": [part.item() for part in parts] + [entry["rank"] for entry in everything],
    "exchanged": received.tolist(),
    "half": half.item(),
    "groups": [repr(group).rpartition("(")[2][:-2] for group in halves if isinstance(group, dist.ProcessGroup)],
    "weights": [round(value, 4) for value in model.module.weight.flatten().tolist()],
}
os.write(1, json.dumps(said).encode() + b"\n")
dist.destroy_process_group()
