"""Training the models of the examples in float64, whole or as one of several replicas.

`python -m tests.distributed.replicas MODEL BACKEND RANK SIZE ADDRESS FILE` is one replica, of processes.
"""

from __future__ import annotations

import importlib
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np

import weft
import weft.distributed as dist
from weft import nn
from weft.nn import functional as F
from weft.nn.parallel import DistributedDataParallel

EXAMPLES = str(Path(__file__).parents[2] / "examples")
BATCH, STEPS = 8, 2


def example(name):
    if EXAMPLES not in sys.path:
        sys.path.append(EXAMPLES)
    return importlib.import_module(name)


def gpt(rng):
    """A model, and a batch for each step."""
    model = example("_gpt.model").GPT(vocabulary=11, width=8, layers=1, heads=2)
    return model, rng.integers(0, 11, (STEPS, BATCH, 6)), rng.integers(0, 11, (STEPS, BATCH, 6))


def resnet(rng):
    """The same; its batch normalisation is over the batches of all ranks."""
    model = nn.SyncBatchNorm.convert_sync_batchnorm(example("resnet20").ResNet(width=2, blocks=1))
    return model, rng.standard_normal((STEPS, BATCH, 3, 8, 8)), rng.integers(0, 10, (STEPS, BATCH))


MODELS = {"gpt": gpt, "resnet": resnet}


def train(name, rank=0, size=1, steps=STEPS, **options):
    """The trained state of a replica that sees its part of each batch, or of the model on whole batches."""
    weft.manual_seed(rank)
    model, inputs, targets = MODELS[name](np.random.default_rng(1))
    model = model.double()
    if rank == 0:  # others get theirs from it, whatever they drew
        rng = np.random.default_rng(0)
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0)
            parameter.data += weft.tensor(0.3 * rng.standard_normal(parameter.shape))
    wrapped = DistributedDataParallel(model, **options) if size > 1 else model
    optimizer = weft.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for x, y in zip(inputs[:steps], targets[:steps], strict=True):
        optimizer.zero_grad()
        found = wrapped(weft.tensor(x[rank::size]))
        F.cross_entropy(found.flatten(0, -2), weft.tensor(y[rank::size]).flatten()).backward()
        optimizer.step()
    return {key: value.numpy(force=True) for key, value in model.state_dict().items()}


def main():
    name, backend, rank, size, address, file = sys.argv[1:]
    dist.init_process_group(backend, address, timedelta(seconds=120), int(size), int(rank))
    np.savez(file, **train(name, int(rank), int(size)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
