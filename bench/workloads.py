"""The programs that are measured. Each takes the framework as a module, and gives a function that runs one iteration.

They are written once, in PyTorch's API; `sync` waits for the result, where a framework computes asynchronously.
"""

from __future__ import annotations

import importlib
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Run = Callable[[], Any]

GPT2 = 50304, 768, 12, 12, 1024, 16
"""The sizes of `gpt2`: vocabulary, features, heads, layers, length, batch."""


def sync(framework: Any, tensor: Any) -> None:
    """Wait until a tensor is computed."""
    if tensor.is_cuda:
        tensor.detach().cpu().tolist()
    else:
        sync_all(framework)


def sync_all(framework: Any) -> None:
    """Wait until all that was recorded is computed."""
    if framework.__name__ == "weft":
        framework.cpu.synchronize()


def earning() -> int:
    """How often Weft has run interpreted programs that will be compiled when they have run more often."""
    return sum(graph.runs for graph in importlib.import_module("weft").explain().interpreted if graph.each)


def rec_plain(torch: Any) -> Run:
    """`a + b` on 4×4, recorded (here) or executed (there), never read."""
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    sync(torch, a), sync(torch, b)
    return lambda: a + b


def rec_grad(torch: Any) -> Run:
    """The same where `a` requires a gradient."""
    a, b = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    sync(torch, a), sync(torch, b)
    return lambda: a + b


def watched_rec(torch: Any) -> dict[str, Run]:
    """20,000 × `a + b` on 4×4, recorded, with a callback that sees 1 % of the operators, and without."""
    return _watched(torch, rec_plain(torch), 20_000)


def watched_mlp(torch: Any) -> dict[str, Run]:
    """20 training steps of `mlp`, with a callback that sees 1 % of the operators, and without."""
    return _watched(torch, mlp(torch), 20)


def _watched(torch: Any, step: Run, count: int) -> dict[str, Run]:
    counts: Counter[str] = Counter()

    def see(function: Any) -> None:
        counts[function.name] += 1

    callback = torch.monitor.add_global_callback(see, sampling_prob=0.01)
    callback.disable()

    def plain() -> None:
        for _ in range(count):
            step()

    def sampled() -> None:
        callback.enable()
        plain()
        callback.disable()

    return {"sampled": sampled, "plain": plain}


def tape(torch: Any) -> Run:
    """10 × (matmul, tanh) on 4×4, forward and backward; the gradient is computed in every round."""
    w, x = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)

    def run() -> None:
        h = w
        for _ in range(10):
            h = torch.tanh(h @ x)
        h.sum().backward()
        sync(torch, w.grad)
        w.grad = None

    return run


def chain(torch: Any) -> Run:
    """`tanh(x * 0.5 + 1) * x` over 10 M float32."""
    x = torch.randn(10_000_000)

    def run() -> None:
        with torch.no_grad():
            sync(torch, torch.tanh(x * 0.5 + 1) * x)

    return run


def mlp(torch: Any, *, compiled: bool = False, named: bool = False) -> Run:
    """8 × (256 → 256, tanh), batch 32, MSE, SGD with momentum: a whole training step. `named`: all dims have names."""
    nn = torch.nn
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.Tanh())]
    x, y = torch.randn(32, 256), torch.randn(32, 256)
    if named:
        x, y = x.rename("batch", "h0"), y.rename("batch", "h8")
        for at, layer in enumerate(layers[::2]):
            layer.weight = nn.Parameter(layer.weight.detach().rename(f"h{at + 1}", f"h{at}").clone())
            layer.bias = nn.Parameter(layer.bias.detach().rename(f"h{at + 1}").clone())
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return training_step(torch, model, optimizer, lambda out: nn.functional.mse_loss(out, y), (x,), compiled)


def numpy_step(torch: Any) -> Run:
    """A training step whose batch is an array that the program keeps, and whose loss is read as an array."""
    nn = torch.nn
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.Tanh())])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches = [np.random.default_rng(n).normal(size=(32, 256)).astype(np.float32) for n in range(4)]
    buffer = np.zeros((32, 256), np.float32)
    turns = itertools.cycle(batches)

    def run() -> Any:
        np.copyto(buffer, next(turns))  # as environments do, which fill one buffer again and again
        x = torch.from_numpy(buffer)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        return loss.detach().numpy()

    return run


def _blocks(torch: Any, d: int, heads: int, layers: int, *, causal: bool, gelu: str = "none") -> Any:
    """Layers of a transformer, normalised at the start of each branch, on (batch, length, d)."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            parts = self.qkv(self.norm1(x)).split(d, dim=2)
            q, k, v = (part.view(b, t, heads, d // heads).transpose(1, 2) for part in parts)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate=gelu))

    return nn.Sequential(*(Block() for _ in range(layers)))


def _transformer(torch: Any, vocabulary: int, d: int, heads: int, layers: int, length: int, gelu: str = "none") -> Any:
    """A GPT with learned positions, from (batch, length) ids to (batch, length, vocabulary) logits."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
            self.blocks = _blocks(torch, d, heads, layers, causal=True, gelu=gelu)
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary, bias=False)

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.positions(torch.arange(length, device=ids.device))
            return self.head(self.norm(self.blocks(x)))

    return Model()


def gpt(torch: Any, *, compiled: bool = False) -> Run:
    """A GPT of 4 layers, d 128, 4 heads, T 128, B 16, vocabulary 256, AdamW: a whole training step."""
    vocabulary, d, heads, layers, length, batch = 256, 128, 4, 4, 128, 16
    torch.manual_seed(0)
    model = _transformer(torch, vocabulary, d, heads, layers, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    ids = torch.randint(0, vocabulary, (batch, length))
    targets = torch.randint(0, vocabulary, (batch * length,))

    def loss(logits: Any) -> Any:
        return torch.nn.functional.cross_entropy(logits.view(-1, vocabulary), targets)

    return training_step(torch, model, optimizer, loss, (ids,), compiled)


def gpt2(torch: Any, *, compiled: bool = False) -> Run:
    """GPT-2 of 124 M parameters on a GPU: T 1024, batch 16, bf16 autocast, AdamW; a whole training step.

    The vocabulary is padded to a multiple of 64, as is usual.
    """
    vocabulary, d, heads, layers, length, batch = GPT2
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")

    class Cast(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = _transformer(torch, vocabulary, d, heads, layers, length, "tanh")
            self.model.head.weight = self.model.tokens.weight
            for p in self.parameters():
                torch.nn.init.normal_(p, std=0.02)

        def forward(self, ids: Any) -> Any:
            with torch.autocast("cuda", torch.bfloat16):
                return self.model(ids)

    model = Cast().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    ids = torch.randint(0, vocabulary, (batch, length), device="cuda")
    targets = torch.randint(0, vocabulary, (batch * length,), device="cuda")

    def loss(logits: Any) -> Any:
        return torch.nn.functional.cross_entropy(logits.view(-1, vocabulary).float(), targets)

    return training_step(torch, model, optimizer, loss, (ids,), compiled)


def resnet(torch: Any, *, compiled: bool = False) -> Run:
    """ResNet-20 on 32×32, batch 32, SGD with momentum: a whole training step."""
    nn, functional = torch.nn, torch.nn.functional
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, channels: int, wide: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels, wide, 3, stride=stride, padding=1, bias=False)
            self.conv2 = nn.Conv2d(wide, wide, 3, padding=1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(wide), nn.BatchNorm2d(wide)
            self.skip = nn.Identity()
            if channels != wide:
                self.skip = nn.Sequential(nn.Conv2d(channels, wide, 1, stride=stride, bias=False), nn.BatchNorm2d(wide))

        def forward(self, x: Any) -> Any:
            h = functional.relu(self.norm1(self.conv1(x)))
            return functional.relu(self.norm2(self.conv2(h)) + self.skip(x))

    plan = [(16, 16, 1)] * 3 + [(16, 32, 2), (32, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 64, 1)]
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *(Block(*sizes) for sizes in plan),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    images, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    return training_step(
        torch, model, optimizer, lambda out: functional.cross_entropy(out, labels), (images,), compiled
    )


def lstm(torch: Any, *, compiled: bool = False) -> Run:
    """Two LSTM layers, hidden 256, T 64, B 32, Adam: a whole training step."""
    nn, functional = torch.nn, torch.nn.functional
    vocabulary, hidden, length, batch = 256, 256, 64, 32
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.head = nn.Embedding(vocabulary, hidden), nn.Linear(hidden, vocabulary)
            self.rnn = nn.LSTM(hidden, hidden, num_layers=2)

        def forward(self, ids: Any) -> Any:
            return self.head(self.rnn(self.tokens(ids))[0]).flatten(0, 1)

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    ids, targets = torch.randint(0, vocabulary, (length, batch)), torch.randint(0, vocabulary, (length * batch,))
    return training_step(torch, model, optimizer, lambda out: functional.cross_entropy(out, targets), (ids,), compiled)


def vit(torch: Any, *, compiled: bool = False) -> Run:
    """A ViT of 4 layers, d 192, 3 heads, on 32×32 images in patches of 4, batch 32, AdamW: a whole training step."""
    nn = torch.nn
    d, heads, layers, patch, size, batch = 192, 3, 4, 4, 32, 32
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, d, patch, patch)
            self.token = nn.Parameter(torch.zeros(1, 1, d))
            self.positions = nn.Parameter(torch.randn(1, 1 + (size // patch) ** 2, d) * 0.02)
            self.blocks = _blocks(torch, d, heads, layers, causal=False)
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 10)

        def forward(self, x: Any) -> Any:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.shape[0], 1, d), x], dim=1) + self.positions
            return self.head(self.norm(self.blocks(x))[:, 0])

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    images, labels = torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,))
    loss = nn.functional.cross_entropy
    return training_step(torch, model, optimizer, lambda out: loss(out, labels), (images,), compiled)


def unet(torch: Any, *, compiled: bool = False, widths: Sequence[int] = (16, 32, 64), batch: int = 8) -> Run:
    """A U-Net with a level for each width, on 64×64 images, Adam: a whole training step."""
    nn = torch.nn
    torch.manual_seed(0)

    def twice(channels: int, wide: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(channels, wide, 3, padding=1),
            nn.BatchNorm2d(wide),
            nn.ReLU(),
            nn.Conv2d(wide, wide, 3, padding=1),
            nn.BatchNorm2d(wide),
            nn.ReLU(),
        )

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList(twice(c, w) for c, w in zip((3, *widths), widths, strict=False))
            self.pool = nn.MaxPool2d(2)
            pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
            self.lift = nn.ModuleList(nn.ConvTranspose2d(c, w, 2, 2) for c, w in pairs)
            self.up = nn.ModuleList(twice(c, w) for c, w in pairs)
            self.head = nn.Conv2d(widths[0], 2, 1)

        def forward(self, x: Any) -> Any:
            levels = []
            for at, down in enumerate(self.down):
                x = down(self.pool(x) if at else x)
                levels.append(x)
            for lift, up, level in zip(self.lift, self.up, levels[-2::-1], strict=True):
                x = up(torch.cat([level, lift(x)], dim=1))
            return self.head(x)

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images, labels = torch.randn(batch, 3, 64, 64), torch.randint(0, 2, (batch, 64, 64))
    loss = nn.functional.cross_entropy
    return training_step(torch, model, optimizer, lambda out: loss(out, labels), (images,), compiled)


def training_step(torch: Any, model: Any, optimizer: Any, loss_of: Any, inputs: tuple[Any, ...], compiled: bool) -> Run:
    """One training step. PyTorch compiles the model, as it is meant to; Weft compiles the step."""
    forward = torch.compile(model) if compiled and torch.__name__ == "torch" else model

    def step(*batch: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(forward(*batch))
        loss.backward()
        optimizer.step()
        return loss

    whole = torch.compile(step) if compiled and torch.__name__ == "weft" else step
    return lambda: sync(torch, whole(*inputs))
