"""Remote calls between two hosts, by messages and in chunks; each worker says what it has got."""

import json
import os

import weft as torch
from weft.distributed import rpc


def total(x):
    return x.sum()


rank = int(os.environ["RANK"])
rpc.init_rpc(f"w{rank}", rank=rank, world_size=2)
other = f"w{1 - rank}"
small = rpc.rpc_sync(other, total, (torch.ones(3),)).item()
large = rpc.rpc_sync(other, torch.add, (torch.ones(300_000), 1))
reference = rpc.remote(other, total, (torch.ones(5),))
said = {"small": small, "large": [large[0].item(), large.numel()], "reference": reference.to_here().item()}
os.write(1, json.dumps(said).encode() + b"\n")
rpc.shutdown()
