"""Writes the checkpoints of `files/` with PyTorch: `python record.py`, where torch 2.13 and safetensors are installed.

`torch` is what two ranks have saved by PyTorch's `FileSystemWriter`, `safetensors` by its `HuggingFaceStorageWriter`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

FILES = Path("files")  # the metadata has the path


def tensors(mesh):
    whole = torch.arange(15.0).reshape(5, 3)
    return {
        "rows": distribute_tensor(whole, mesh, [Shard(0)]),
        "columns": distribute_tensor(whole.to(torch.bfloat16), mesh, [Shard(1)]),
        "everywhere": distribute_tensor(whole[:2].double(), mesh, [Replicate()]),
        "plain": torch.tensor([True, False]),
        "number": torch.tensor(7),
    }


def rank(rank, file):
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", f"file://{file}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    state = tensors(mesh) | {"step": 3, "settings": {"betas": (0.9, 0.99), "steps": [torch.ones(1), {"deep": "text"}]}}
    dcp.save(state, checkpoint_id=FILES / "torch")
    writer = dcp.HuggingFaceStorageWriter(str(FILES / "safetensors"), save_distributed=True)
    dcp.save(tensors(mesh), storage_writer=writer)
    dist.destroy_process_group()


def main():
    os.chdir(Path(__file__).parent)
    shutil.rmtree(FILES, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank, (f"{folder}/job",), nprocs=2)
    sys.stdout.write(f"{sorted(str(path.relative_to(FILES)) for path in FILES.rglob('*.*'))}\n")


if __name__ == "__main__":
    main()
