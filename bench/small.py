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


def rollout(torch: Any) -> Run:
    """64 steps of acting: four rows through two small networks, a draw from a distribution, and its array."""
    nn = torch.nn
    torch.manual_seed(0)

    def network(outputs: int) -> Any:
        return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))

    actor, critic = network(2), network(1)

    def run() -> None:
        with torch.no_grad():
            observed = torch.zeros(4, 4)
            for _ in range(64):
                choice = torch.distributions.Categorical(logits=actor(observed))
                action = choice.sample()
                choice.log_prob(action)
                observed = observed * 0.9 + action[:, None] * 0.1 + critic(observed).tanh() * 0.01
                action.numpy()

    return run


def reinforce(torch: Any) -> Run:
    """Four episodes of REINFORCE, of 20 to 35 steps, and a step by Adam after each."""
    nn = torch.nn
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)

    def episode(steps: int) -> None:
        observed, logs = torch.ones(4), []
        for _ in range(steps):
            choice = torch.distributions.Categorical(logits=policy(observed))
            action = choice.sample()
            logs.append(choice.log_prob(action))
            observed = observed * (0.9 if action.item() else 0.8)
        returns = torch.arange(float(steps), 0.0, -1.0)
        loss = -(torch.stack(logs) * (returns - returns.mean())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def run() -> None:
        for steps in (20, 25, 30, 35):
            episode(steps)

    return run


def iterate(torch: Any) -> Run:
    """Tensors as sequences: elements summed up, rows read, pairs, keys, and elements written one by one."""
    numbers = torch.arange(2000.0)
    rows, labels, table, grid = torch.ones(400, 2), torch.arange(200), torch.ones(24, 24), torch.zeros(24, 24)

    def run() -> None:
        sum(float(x) for x in numbers)
        torch.ones(500).unbind(0)
        [[x.item() for x in row] for row in rows]
        [(row.sum().item(), int(label)) for row, label in zip(rows, labels)]  # noqa: B905  the shorter one ends it
        {int(label): at for at, label in enumerate(labels)}
        for i in range(24):
            for j in range(24):
                grid[i, j] = table[i, j] + table[i, j]
        grid.sum().item()

    return run
