"""A server that answers the calls of several clients in batches: one matrix product instead of many with a vector.

    python examples/rpc/batching.py
    python examples/rpc/batching.py --help

A function decorated with `rpc.functions.async_execution` returns a future, and no thread waits for it. Here, all calls
of a batch but the last store their input on the server and return such a future. The last call computes the answers to
all of them. On two cores it printed

    one by one: 534 calls/s
    in batches of 32: 2,825 calls/s, 5.3 times as many
    largest difference of the answers: 1e-06
"""

from __future__ import annotations

import argparse
import threading
import time
from functools import partial

import numpy as np

import weft as torch
from _workers import parser, run
from weft import nn
from weft.distributed import rpc
from weft.futures import Future


def options() -> argparse.Namespace:
    """The parsed command line."""
    made = parser("Answer calls one by one, and in batches.")
    made.add_argument("--calls", type=int, default=512, help="calls of each client, a multiple of the batch")
    made.add_argument("--batch", type=int, default=32, help="calls that are answered together")
    made.add_argument("--width", type=int, default=1024, help="width of the server's model")
    made.add_argument("--clients", type=int, default=2, help="workers that call the server")
    return made.parse_args()


class Server:
    """A model, and the inputs of the batch that is not complete yet."""

    def __init__(self, width: int, batch: int) -> None:
        self.model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.batch = batch
        self.lock = threading.Lock()
        self.begin_batch()

    def begin_batch(self) -> None:
        """Start a new, empty batch."""
        self.inputs: list[torch.Tensor] = []
        self.outputs: Future[np.ndarray] = Future()

    def answer(self, x: torch.Tensor) -> torch.Tensor:
        """The output for one input, computed at once."""
        with torch.no_grad():
            return self.model(x)

    @rpc.functions.async_execution
    def answer_in_batch(self, x: torch.Tensor) -> Future[torch.Tensor]:
        """The output for one input, computed when its batch is complete."""
        with self.lock:
            mine = self.outputs.then(partial(row, at=len(self.inputs)))
            self.inputs.append(x)
            if len(self.inputs) < self.batch:
                return mine
            inputs, outputs = self.inputs, self.outputs
            self.begin_batch()
        outputs.set_result(self.answer(torch.stack(inputs)).numpy())
        return mine


def row(outputs: Future[np.ndarray], at: int) -> torch.Tensor:
    """One of the outputs of a batch. Rows of a NumPy array need no program of their own."""
    return torch.from_numpy(outputs.wait()[at])


def call(server: rpc.RRef[Server], method: str, inputs: np.ndarray) -> list[torch.Tensor]:
    """Send all inputs to a server, without waiting for answers in between."""
    answer = getattr(server.rpc_async(), method)
    return torch.futures.wait_all([answer(x) for x in map(torch.from_numpy, inputs)])


def work(name: str, given: argparse.Namespace) -> None:
    """The first client measures; the other workers only serve calls."""
    if name != "client0":
        return
    server = rpc.remote("server", Server, (given.width, given.batch))
    clients = [f"client{number}" for number in range(given.clients)]
    inputs = [torch.randn(given.calls, given.width).numpy() for _ in clients]

    def measure(method: str) -> tuple[float, torch.Tensor]:
        """Calls per second of all clients together, and the answers."""
        start = time.perf_counter()
        calls = [rpc.rpc_async(to, call, (server, method, mine)) for to, mine in zip(clients, inputs, strict=True)]
        answers = [answer for found in torch.futures.wait_all(calls) for answer in found]
        return len(answers) / (time.perf_counter() - start), torch.stack(answers)

    for method in ("answer", "answer_in_batch"):
        measure(method)  # compiles
    alone, expected = measure("answer")
    together, found = measure("answer_in_batch")
    print(f"one by one: {alone:,.0f} calls/s")
    print(f"in batches of {given.batch}: {together:,.0f} calls/s, {together / alone:.1f} times as many")
    print(f"largest difference of the answers: {(found - expected).abs().max().item():.1g}")


def main() -> None:
    """Start the workers."""
    given = options()
    if given.calls % given.batch:
        raise SystemExit("--calls must be a multiple of --batch: the inputs of a batch wait until it is complete")
    run(["server", *(f"client{number}" for number in range(given.clients))], work, given)


if __name__ == "__main__":
    main()
