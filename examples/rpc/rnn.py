"""A language model whose embedding and decoder are on a parameter server, and whose LSTM is on the trainer.

    python examples/rpc/rnn.py
    python examples/rpc/rnn.py --help

The trainer computes the LSTM itself, and calls the embedding and the decoder on the server by reference. Distributed
autograd differentiates through all three parts, and a distributed optimizer updates each parameter on its worker. The
text is the source of a module of Python's standard library. On two cores it printed

    step 30: perplexity 22.73
    step 150: perplexity 6.13
"""

from __future__ import annotations

import argparse
import inspect
import math
import statistics
import textwrap
import time

import numpy as np

import weft as torch
from _workers import parser, run
from weft import nn
from weft.distributed import autograd, rpc
from weft.distributed.optim import DistributedOptimizer
from weft.nn import functional as F

VOCABULARY = 128  # ASCII
State = tuple[torch.Tensor, torch.Tensor]


def options() -> argparse.Namespace:
    """The parsed command line."""
    made = parser("Train an RNN that is split over two workers.")
    made.add_argument("--steps", type=int, default=150, help="steps of training")
    made.add_argument("--batch", type=int, default=16, help="streams of text that are read side by side")
    made.add_argument("--length", type=int, default=32, help="characters of a stream in a step")
    made.add_argument("--width", type=int, default=64, help="width of a character's embedding")
    made.add_argument("--hidden", type=int, default=128, help="width of the state")
    made.add_argument("--lr", type=float, default=5e-3, help="learning rate of Adam")
    return made.parse_args()


class Decoder(nn.Module):
    """Logits of the next character."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.1)
        self.linear = nn.Linear(hidden, VOCABULARY)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.linear(self.dropout(states))


class Model(nn.Module):
    """The whole model, as the trainer sees it."""

    def __init__(self, server: str, width: int, hidden: int) -> None:
        super().__init__()
        self.embedding = rpc.remote(server, nn.Embedding, (VOCABULARY, width))
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.decoder = rpc.remote(server, Decoder, (hidden,))

    def forward(self, tokens: torch.Tensor, state: State | None) -> tuple[torch.Tensor, State]:
        embedded = self.embedding.rpc_sync().forward(tokens)
        states, state = self.lstm(embedded, state)
        return self.decoder.rpc_sync().forward(states), state

    def parameter_rrefs(self) -> list[rpc.RRef[torch.Tensor]]:
        """References to the parameters of all parts."""
        return [
            *rpc.rpc_sync(self.embedding.owner(), parameter_rrefs, (self.embedding,)),
            *parameter_rrefs(rpc.RRef(self.lstm)),
            *rpc.rpc_sync(self.decoder.owner(), parameter_rrefs, (self.decoder,)),
        ]


def parameter_rrefs(module: rpc.RRef[nn.Module]) -> list[rpc.RRef[torch.Tensor]]:
    """References to the parameters of a module of this worker."""
    return [rpc.RRef(p) for p in module.local_value().parameters()]


def text() -> np.ndarray:
    """The characters of a module, as ASCII codes."""
    return np.frombuffer(inspect.getsource(textwrap).encode("ascii"), np.uint8).astype(np.int64)


def pieces(given: argparse.Namespace) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The text as streams, `length` characters at a time, and for each character the one that follows."""
    characters = text()
    per_stream = (len(characters) - 1) // given.batch
    streams, following = (
        characters[at : at + given.batch * per_stream].reshape(given.batch, per_stream) for at in (0, 1)
    )
    parts = [np.s_[:, at : at + given.length] for at in range(0, per_stream - given.length + 1, given.length)]
    return [(torch.from_numpy(streams[part]), torch.from_numpy(following[part])) for part in parts]


def work(name: str, given: argparse.Namespace) -> None:
    """The trainer trains; the server only serves calls."""
    if name != "trainer":
        return
    model = Model("server", given.width, given.hidden)
    optimizer = DistributedOptimizer(torch.optim.Adam, model.parameter_rrefs(), lr=given.lr)
    source = pieces(given)
    print(f"{len(source)} pieces of {given.batch}×{given.length} characters")
    state, losses, start = None, [], time.perf_counter()
    for step in range(1, given.steps + 1):
        at = step % len(source)
        characters, following = source[at]
        state = tuple(part.detach() for part in state) if at and state is not None else None
        with autograd.context() as context_id:
            logits, state = model(characters, state)
            loss = F.cross_entropy(logits.flatten(0, 1), following.flatten())
            autograd.backward(context_id, [loss])
            optimizer.step(context_id)
        losses.append(loss.item())
        if step % max(1, given.steps // 5) == 0:
            print(f"step {step}: perplexity {math.exp(statistics.fmean(losses)):.2f}")
            losses.clear()
    print(f"{given.steps / (time.perf_counter() - start):.0f} steps/s")


def main() -> None:
    """Start the workers."""
    run(["trainer", "server"], work, options())


if __name__ == "__main__":
    main()
