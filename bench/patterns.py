"""Programs that are new to a framework: loops in Python, lengths that change, single numbers that are read.

Each takes the framework as a module, prepares, and gives a function that runs the pattern once, from new tensors to
Python numbers. Written once, in PyTorch's API.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weft.utils.bucketing import bucketed

Run = Callable[[], Any]


def gru(torch: Any, steps: int) -> Run:
    """A GRUCell in a Python loop, forward and backward."""

    def run() -> None:
        cell, x, h = torch.nn.GRUCell(32, 32), torch.randn(steps, 8, 32), torch.zeros(8, 32)
        for t in range(steps):
            h = cell(x[t], h)
        h.sum().backward()
        for p in cell.parameters():
            p.grad.sum().item()

    return run


def adam(torch: Any, count: int) -> Run:
    """Three steps of Adam over many small parameters."""

    def run() -> None:
        parameters = [torch.nn.Parameter(torch.randn(10 + i % 7, 10)) for i in range(count)]
        optimizer = torch.optim.Adam(parameters)
        for _ in range(3):
            optimizer.zero_grad()
            loss = sum((p * p).sum() for p in parameters)
            loss.backward()
            optimizer.step()
            loss.item()

    return run


def branch(torch: Any) -> Run:
    """REINFORCE on a walk: a policy acts by samples, episodes end when Python says so, one update an episode."""
    nn = torch.nn

    def run() -> None:
        policy = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
        for episode in range(10):
            place, terms = 0.0, []
            for t in range(5 + 3 * (episode % 4)):
                chances = policy(torch.tensor([place, t / 10])).softmax(0)
                action = torch.multinomial(chances, 1)
                terms.append(chances[action].log())
                place += 0.5 if action.item() else -0.5
                if abs(place) > 2:
                    break
            _update(optimizer, -torch.cat(terms).sum() * place)

    return run


def item(torch: Any) -> Run:
    """2,000 numbers, each read from a tiny graph."""

    def run() -> None:
        x = torch.zeros(4)
        for _ in range(2000):
            x = x + 1
            x[0].item()

    return run


def mask(torch: Any) -> Run:
    """Boolean masks that choose 12 lengths."""
    x = torch.arange(100.0)

    def run() -> None:
        for n in range(12):
            x[x < 5 * n + 1].sum().item()

    return run


def grow(torch: Any) -> Run:
    """A tensor that grows by a row, and is read each time."""

    def run() -> None:
        x = torch.randn(3, 4)
        for _ in range(20):
            x = torch.cat([x, torch.ones(1, 4)])
            x.sum().item()

    return run


def lengths_lstm(torch: Any) -> Run:
    """64 batches of different lengths through an LSTM, training."""
    nn = torch.nn

    def run() -> None:
        table, rnn, head = nn.Embedding(64, 32), nn.LSTM(32, 64), nn.Linear(64, 64)
        _train(torch, (table, rnn, head), lambda ids: head(rnn(table(ids))[0]), lambda length: (length, 8))

    return run


def lengths_gpt(torch: Any) -> Run:
    """The same through two layers of a transformer."""
    nn = torch.nn

    def run() -> None:
        table, head = nn.Embedding(64, 64), nn.Linear(64, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
        body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(ids: Any) -> Any:
            return head(body(table(ids), mask=nn.Transformer.generate_square_subsequent_mask(ids.shape[1])))

        _train(torch, (table, body, head), forward, lambda length: (8, length))

    return run


def lengths_bucketed(torch: Any) -> Run:
    """The same with lengths padded to powers of two; PyTorch runs the lengths as they are."""
    if torch.__name__ != "weft":
        return lengths_gpt(torch)
    nn, functional = torch.nn, torch.nn.functional

    def run() -> None:
        table, head = nn.Embedding(64, 64), nn.Linear(64, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
        body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        optimizer = torch.optim.Adam([p for module in (table, body, head) for p in module.parameters()])

        @bucketed({"ids": 1}, mask="real")
        def step(ids: Any, real: Any) -> Any:
            optimizer.zero_grad()
            causal = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])  # no position sees what follows it
            logits = head(body(table(ids), mask=causal))
            losses = functional.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="none")
            loss = (losses.view(ids.shape) * real).sum() / (real.sum() * ids.shape[0])
            loss.backward()
            optimizer.step()
            return loss

        for n in range(64):
            step(torch.randint(0, 64, (8, _length(n)))).item()

    return run


def _length(n: int) -> int:
    return 5 + (n * 37) % 64


def _train(torch: Any, modules: Sequence[Any], forward: Run, shape: Callable[[int], tuple[int, int]]) -> None:
    """Train modules on 64 batches of different lengths; `shape` is that of a batch of one length."""
    optimizer = torch.optim.Adam([p for module in modules for p in module.parameters()])
    for n in range(64):
        ids = torch.randint(0, 64, shape(_length(n)))
        _update(optimizer, torch.nn.functional.cross_entropy(forward(ids).flatten(0, 1), ids.flatten()))


def _update(optimizer: Any, loss: Any) -> None:
    """A step down a loss, which is read."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()


PATTERNS: dict[str, Callable[[Any], Run]] = {
    "first-gru 100": partial(gru, steps=100),
    "first-gru 500": partial(gru, steps=500),
    "first-adam 200": partial(adam, count=200),
    "first-adam 1000": partial(adam, count=1000),
    "branch": branch,
    "item": item,
    "mask": mask,
    "grow": grow,
    "shapes lstm": lengths_lstm,
    "shapes gpt": lengths_gpt,
    "shapes bucketed": lengths_bucketed,
}
