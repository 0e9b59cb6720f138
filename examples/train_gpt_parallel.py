"""Train the GPT of `train_gpt.py` on four processes: fully sharded over two of them, tensor parallel over two.

    weft run --standalone --nproc-per-node 4 examples/train_gpt_parallel.py

The processes are a mesh of 2x2. Along "tp", the perceptron of each block is split by its hidden features. Along "dp",
each process takes other text, and keeps a part of all parameters and of the optimizer's state. Attention has one
projection for queries, keys and values, which cannot be split by heads, so it is only sharded. docs/parallel.md
explains both.
"""

from __future__ import annotations

import argparse
import os
from itertools import islice

import weft as torch
import weft.distributed as dist
from _gpt.model import GPT
from _gpt.ranks import Ranks
from _gpt.text import VOCABULARY, Text, Windows, batches
from weft import nn
from weft.distributed.device_mesh import DeviceMesh, init_device_mesh
from weft.distributed.fsdp import fully_shard
from weft.distributed.tensor.debug import CommDebugMode, visualize_sharding
from weft.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from weft.nn import functional as F

PERCEPTRON = {"mlp.0": ColwiseParallel(), "mlp.2": RowwiseParallel()}


def parallel(model: GPT, mesh: DeviceMesh) -> GPT:
    """The model, in place: perceptrons split over "tp"; every block, and then the rest, sharded over "dp"."""
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], PERCEPTRON)
        fully_shard(block, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"])


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy, in nats per character, of each token after the first of `uint8[batch, time + 1]`."""
    tokens = tokens.long()
    return F.cross_entropy(model(tokens[:, :-1]).reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


def main() -> None:
    """Train, and print the sharding and the communication of the first step, and then the losses."""
    given = options()
    dist.init_process_group()
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "tp"))
    speaks = dist.get_rank() == 0
    torch.manual_seed(0)
    model = parallel(GPT(VOCABULARY, given.width, given.layers, given.heads), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr)
    if speaks:
        visualize_sharding(model.blocks[0].mlp[0].weight, header="mlp.0.weight")

    readers = Ranks(mesh.get_local_rank("dp"), mesh["dp"].size())  # those that differ in "tp" read the same text
    text = Windows(Text.of_standard_library().training, given.context)
    for number, tokens in enumerate(islice(batches(text, given.batch, 0, readers), given.steps)):
        with CommDebugMode() as communication:
            loss = loss_of(model, tokens)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        (mean,) = Ranks(dist.get_rank(), dist.get_world_size()).mean(loss)
        if speaks and not number:
            print(communication.generate_comm_debug_tracing_table(noise_level=0))
        if speaks:
            print(f"step {number + 1}: loss {mean:.4f}", flush=True)
    dist.destroy_process_group()


def options() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description="Train a GPT, fully sharded and tensor parallel, on four processes.")
    for name, default in (("steps", 100), ("batch", 8), ("context", 64), ("width", 64), ("layers", 2), ("heads", 4)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"(default: {default})")
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate (default: %(default)s)")
    if "RANK" not in os.environ:
        parser.error("start it by: weft run --standalone --nproc-per-node 4 examples/train_gpt_parallel.py")
    return parser.parse_args()


if __name__ == "__main__":
    main()
