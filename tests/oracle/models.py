"""Whole models, written once for either framework, and their training from given weights.

`python -m tests.oracle.models [MODEL …]` records PyTorch's initial weights and losses in `curves/`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

ANSWERS = Path(__file__).resolve().parent / "curves"
STEPS = 20
TOLERANCE = {"float32": 1e-4, "float64": 1e-9}

Arrays = dict[str, np.ndarray]


def _mlp(torch: Any) -> tuple[Any, Any, Any]:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    return model, optimizer, nn.functional.mse_loss


def _cnn(torch: Any) -> tuple[Any, Any, Any]:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, stride=2, bias=False),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    return model, optimizer, nn.functional.cross_entropy


def _gpt(torch: Any) -> tuple[Any, Any, Any]:
    nn, functional = torch.nn, torch.nn.functional
    vocabulary, d, heads = 11, 16, 2

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            q, k, v = (p.view(b, t, heads, -1).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(d, dim=2))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, d), nn.Embedding(8, d)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)).flatten(0, 1)

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    return model, optimizer, lambda logits, targets: functional.cross_entropy(logits, targets.flatten())


def _resnet20(torch: Any) -> tuple[Any, Any, Any]:
    """He et al., 2016, for small images; the widths are divided by four."""
    nn, functional = torch.nn, torch.nn.functional

    def norm(channels: int, kernel: int, wide: int, stride: int = 1) -> Any:
        conv = nn.Conv2d(channels, wide, kernel, stride=stride, padding=kernel // 2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(wide))

    class Block(nn.Module):
        def __init__(self, channels: int, wide: int, stride: int) -> None:
            super().__init__()
            self.first, self.second = norm(channels, 3, wide, stride), norm(wide, 3, wide)
            self.skip = norm(channels, 1, wide, stride) if channels != wide else nn.Identity()

        def forward(self, x: Any) -> Any:
            return functional.relu(self.second(functional.relu(self.first(x))) + self.skip(x))

    plan = [(4, 4, 1)] * 3 + [(4, 8, 2), (8, 8, 1), (8, 8, 1), (8, 16, 2), (16, 16, 1), (16, 16, 1)]
    model = nn.Sequential(
        norm(3, 3, 4),
        nn.ReLU(),
        *(Block(*sizes) for sizes in plan),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-4)
    return model, optimizer, functional.cross_entropy


def _lstm(torch: Any) -> tuple[Any, Any, Any]:
    nn, functional = torch.nn, torch.nn.functional

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.head = nn.Embedding(11, 12), nn.Linear(20, 11)
            self.rnn = nn.LSTM(12, 10, num_layers=2, bidirectional=True, batch_first=True)

        def forward(self, ids: Any) -> Any:
            return self.head(self.rnn(self.tokens(ids))[0]).flatten(0, 1)

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return model, optimizer, lambda logits, targets: functional.cross_entropy(logits, targets.flatten())


def _vae(torch: Any) -> tuple[Any, Any, Any]:
    """Kingma and Welling, 2014. The noise is the second half of the input, so that it is the same everywhere."""
    nn, functional = torch.nn, torch.nn.functional

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(12, 16), nn.Softplus(), nn.Linear(16, 8))
            self.decoder = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 12))

        def forward(self, x: Any) -> Any:
            pixels, noise = x[:, :12], x[:, 12:]
            mean, log_variance = self.encoder(pixels).chunk(2, dim=1)
            code = mean + noise * torch.exp(log_variance / 2)
            gap = (mean**2 + log_variance.exp() - 1 - log_variance).sum() / 2
            return self.decoder(code), gap

    def loss(found: Any, pixels: Any) -> Any:
        logits, gap = found
        return (functional.binary_cross_entropy_with_logits(logits, pixels, reduction="sum") + gap) / len(pixels)

    model = Model()
    return model, torch.optim.RMSprop(model.parameters(), lr=3e-3), loss


def _transformer(torch: Any) -> tuple[Any, Any, Any]:
    nn, functional = torch.nn, torch.nn.functional

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.head = nn.Embedding(11, 16), nn.Linear(16, 11)
            self.body = nn.Transformer(16, 2, 2, 2, 32, dropout=0.0, batch_first=True, norm_first=True)

        def forward(self, ids: Any) -> Any:
            source, target = self.tokens(ids), self.tokens(ids.flip(1))
            mask = self.body.generate_square_subsequent_mask(ids.shape[1], dtype=source.dtype)
            return self.head(self.body(source, target, tgt_mask=mask, tgt_is_causal=True)).flatten(0, 1)

    model = Model()
    optimizer = torch.optim.NAdam(model.parameters(), lr=3e-3)
    return model, optimizer, lambda logits, targets: functional.cross_entropy(logits, targets.flatten())


MODELS = {
    "mlp": _mlp,
    "cnn": _cnn,
    "gpt": _gpt,
    "resnet20": _resnet20,
    "lstm": _lstm,
    "vae": _vae,
    "transformer": _transformer,
}


def batches(name: str, dtype: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """The data of every step, made from a fixed seed."""
    # a ReLU's input within rounding of 0 sends float32 runs apart (PyTorch's own, too): these seeds have none
    rng = np.random.default_rng(4 if name == "resnet20" else 7)
    found = []
    for _ in range(STEPS):
        if name == "mlp":
            x = rng.standard_normal((8, 6))
            found.append((x.astype(dtype), np.stack([x.sum(1), x[:, 0], x[:, 1] * x[:, 2]], 1).astype(dtype)))
        elif name == "cnn":
            found.append((rng.standard_normal((5, 2, 9, 9)).astype(dtype), rng.integers(0, 4, 5)))
        elif name == "resnet20":
            found.append((rng.standard_normal((8, 3, 16, 16)).astype(dtype), rng.integers(0, 10, 8)))
        elif name == "vae":
            pixels = rng.random((6, 12))
            x = np.concatenate([pixels, rng.standard_normal((6, 4))], 1)
            found.append((x.astype(dtype), pixels.astype(dtype)))
        else:
            ids = rng.integers(0, 11, (3, 9))
            found.append((ids[:, :-1].copy(), ids[:, 1:].copy()))
    return found


def losses(torch: Any, name: str, dtype: str, weights: Arrays, *, compiled: bool = False) -> list[float]:
    """The loss of every step of a training run from these weights."""
    model, optimizer, loss_of = MODELS[name](torch)
    model.load_state_dict({key: torch.from_numpy(value.copy()) for key, value in weights.items()})
    model.to(getattr(torch, dtype))

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    if compiled:
        step = torch.compile(step)
    data = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in batches(name, dtype)]
    return [step(x, y).item() for x, y in data]


def initial_weights(torch: Any, name: str) -> Arrays:
    """The weights of a fresh model, from a fixed seed."""
    torch.manual_seed(3)
    model, _, _ = MODELS[name](torch)
    return {key: value.detach().numpy() for key, value in model.state_dict().items()}


def main() -> None:
    """Record PyTorch's weights and losses."""
    import torch

    ANSWERS.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or MODELS:
        weights = initial_weights(torch, name)
        curves = {f"loss.{dtype}": np.array(losses(torch, name, dtype, weights)) for dtype in TOLERANCE}
        np.savez_compressed(ANSWERS / f"{name}.npz", **{f"weight.{k}": v for k, v in weights.items()}, **curves)


if __name__ == "__main__":
    main()
