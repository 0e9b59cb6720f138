"""Replicas of a small dense model on trainers, which share a large embedding on a parameter server.

    python examples/rpc/ddp_rpc.py
    python examples/rpc/ddp_rpc.py --help

A master creates the embedding as a `RemoteModule` on the server, and starts the trainers. A trainer gets the embeddings
of its words from there, and passes them through its replica, a `DistributedDataParallel`. In the backward pass, the
replicas' gradients are averaged over the trainers, those of the embedding go to the server, and the optimizer updates
both. The task is to find out which of four topics a bag of words is about. On two cores it printed

    trainer0: loss from 1.505 to 0.428, 82.4% of new bags
    trainer1: loss from 1.560 to 0.343, 79.3% of new bags
    replicas are equal: True
"""

from __future__ import annotations

import argparse

import weft as torch
import weft.distributed as dist
from _workers import parser, run
from weft import nn
from weft.distributed import autograd, rpc
from weft.distributed.nn import RemoteModule
from weft.distributed.optim import DistributedOptimizer
from weft.nn import functional as F
from weft.nn.parallel import DistributedDataParallel as DDP

TOPICS = 4


def options() -> argparse.Namespace:
    """The parsed command line."""
    made = parser("Train replicas with a remote embedding.")
    made.add_argument("--trainers", type=int, default=2, help="workers that have a replica")
    made.add_argument("--steps", type=int, default=200, help="steps of training")
    made.add_argument("--batch", type=int, default=32, help="bags of a trainer in a step")
    made.add_argument("--words", type=int, default=200, help="words in the vocabulary")
    made.add_argument("--length", type=int, default=8, help="words in a bag")
    made.add_argument("--width", type=int, default=16, help="width of a word's embedding")
    made.add_argument("--lr", type=float, default=0.3, help="learning rate")
    return made.parse_args()


class Hybrid(nn.Module):
    """Logits of the topics; the embedding is remote, the dense part one of the replicas."""

    def __init__(self, embedding: RemoteModule, width: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.dense = DDP(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, TOPICS)))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.dense(self.embedding.forward(words))


def bags(count: int, given: argparse.Namespace, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Bags of words, `int64[count, length]`, and the topic of each, from which half of its words are drawn."""
    topics = torch.randint(TOPICS, (count, 1), generator=generator)
    words = torch.randint(given.words, (count, given.length), generator=generator)
    related = torch.arange(given.length) % 2 == 0
    return torch.where(related, words - words % TOPICS + topics, words), topics.flatten()


def train(embedding: RemoteModule, number: int, given: argparse.Namespace) -> tuple[list[float], float, list[float]]:
    """Train one replica; returns its losses, its accuracy on new bags, and the sums of its parameters."""
    dist.init_process_group(init_method=f"file://{given.meeting}/trainers", rank=number, world_size=given.trainers)
    model = Hybrid(embedding, given.width)
    references = [*embedding.remote_parameters(), *map(rpc.RRef, model.dense.parameters())]
    optimizer = DistributedOptimizer(torch.optim.SGD, references, lr=given.lr)
    generator = torch.Generator().manual_seed(given.seed + number)
    losses = []
    for _ in range(given.steps):
        words, topics = bags(given.batch, given, generator)
        with autograd.context() as context_id:
            loss = F.cross_entropy(model(words), topics)
            autograd.backward(context_id, [loss])
            optimizer.step(context_id)
        losses.append(loss.item())
    words, topics = bags(256, given, generator)
    with torch.no_grad():
        accuracy = (model(words).argmax(1) == topics).float().mean().item()
    dist.destroy_process_group()
    return losses, accuracy, [p.sum().item() for p in model.dense.parameters()]


def work(name: str, given: argparse.Namespace) -> None:
    """The master runs the training; the other workers only serve calls."""
    if name != "master":
        return
    embedding = RemoteModule("server", nn.EmbeddingBag, args=(given.words, given.width), kwargs={"mode": "sum"})
    calls = [
        rpc.rpc_async(f"trainer{number}", train, (embedding, number, given), timeout=0)
        for number in range(given.trainers)
    ]
    found = torch.futures.wait_all(calls)
    for number, (losses, accuracy, _) in enumerate(found):
        print(f"trainer{number}: loss from {losses[0]:.3f} to {losses[-1]:.3f}, {accuracy:.1%} of new bags")
    sums = [parameters for *_, parameters in found]
    print(f"replicas are equal: {all(each == sums[0] for each in sums)}")


def main() -> None:
    """Start the workers."""
    given = options()
    run(["master", "server", *(f"trainer{number}" for number in range(given.trainers))], work, given)


if __name__ == "__main__":
    main()
