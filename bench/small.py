"""Programs of small steps: their time is that of the framework, not that of the arithmetic."""

from __future__ import annotations

from typing import Any

from bench.workloads import Run

TOKENS = 32


def small_item(torch: Any) -> Run:
    """A number read from a graph of three operators."""
    a = torch.randn(4, 4)
    return lambda: ((a + 1) * 2).sum().item()


def _mlp(torch: Any) -> tuple[Any, Any, Any]:
    nn = torch.nn
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 2))
    return model, torch.randn(8, 16), torch.tensor([0, 1] * 4)


def small_step(torch: Any) -> Run:
    """A training step of a small classifier by Adam, whose loss is read."""
    model, x, y = _mlp(torch)
    optimizer = torch.optim.Adam(model.parameters())

    def run() -> Any:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return run


def small_inference(torch: Any) -> Run:
    """The classes that the same classifier gives, as a list."""
    model, x, _ = _mlp(torch)

    def run() -> Any:
        with torch.no_grad():
            return model(x).argmax(1).tolist()

    return run


def character_rnn(torch: Any) -> Run:
    """32 characters, one after the other, by a cell and a layer; each is read before the next one."""
    nn = torch.nn
    torch.manual_seed(0)
    embedding, cell, head = nn.Embedding(64, 32), nn.GRUCell(32, 64), nn.Linear(64, 64)

    def run() -> None:
        with torch.no_grad():
            character, state = 0, torch.zeros(1, 64)
            for _ in range(TOKENS):
                state = cell(embedding(torch.tensor([character])), state)
                character = int(head(state).argmax(1))

    return run


def decode(torch: Any) -> Run:
    """32 tokens of two layers of attention, with a cache that grows by one position for each."""
    nn, functional = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    width, heads = 64, 4
    embedding = nn.Embedding(256, width)
    blocks = [(nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)) for _ in range(2)]

    def attend(block: Any, x: Any, cache: Any) -> Any:
        norm, project, merge = block
        q, k, v = project(norm(x)).view(1, 1, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        attended = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 1, width)
        return x + merge(attended), (k, v)

    def run() -> None:
        with torch.no_grad():
            token, caches = torch.zeros(1, 1, dtype=torch.long), [None] * len(blocks)
            for _ in range(TOKENS):
                x = embedding(token)
                for at, block in enumerate(blocks):
                    x, caches[at] = attend(block, x, caches[at])
                token = (x @ embedding.weight.t()).argmax(-1)
                token.item()

    return run
