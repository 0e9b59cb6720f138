"""A rank of a job that trains, and saves in the background: `training.py BACKEND RANK SIZE FILE FOLDER`.

It continues from the checkpoint in the folder, if there is one, and prints the losses of two steps.
"""

from __future__ import annotations

import json
import os
import sys

import weft as torch
import weft.distributed as dist
import weft.distributed.checkpoint as dcp
from weft import nn
from weft.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from weft.distributed.device_mesh import init_device_mesh
from weft.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor


def sharded(name, module, mesh):
    for key, parameter in list(module.named_parameters(recurse=False)):
        module.register_parameter(key, nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Shard(0)])))


def main():
    backend, rank, size, file, folder = sys.argv[1:]
    dist.init_process_group(backend, init_method=f"file://{file}", rank=int(rank), world_size=int(size))
    mesh = init_device_mesh("cpu", (int(size),))
    torch.manual_seed(int(size))
    plain = nn.Linear(4, 5).double()
    model = distribute_module(plain, mesh, sharded)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    x = distribute_tensor(torch.arange(24.0).reshape(6, 4).double() / 24, mesh, [Replicate()])
    if os.path.isdir(folder):
        model_state, state = get_state_dict(model, optimizer)
        dcp.load({"model": model_state, "optimizer": state}, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=state)
    losses, future = [], None
    for step in range(2):
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step == 0:
            model_state, state = get_state_dict(model, optimizer)
            future = dcp.async_save({"model": model_state, "optimizer": state}, checkpoint_id=folder)
    future.result()
    dist.destroy_process_group()
    sys.stdout.write(f"\n{json.dumps(losses)}\n")


if __name__ == "__main__":
    main()
