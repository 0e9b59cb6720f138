"""Mixed precision over several ranks and workers, and in the training of whole models."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft as torch
import weft.distributed as dist
from tests.distributed.rpc import job
from tests.optim.test_fused import ALL, make
from weft import nn
from weft.distributed import rpc

F = nn.functional


class Block(nn.Module):
    """A block of a GPT."""

    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.heads = heads

    def forward(self, x):
        batch, time, width = x.shape
        heads = (batch, time, self.heads, width // self.heads)
        q, k, v = (part.reshape(heads).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, time, width)
        x = x + self.out(mixed)
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    """Blocks over characters."""

    def __init__(self, blocks, letters=16, width=32, time=16):
        super().__init__()
        self.token, self.place = nn.Embedding(letters, width), nn.Embedding(time, width)
        self.blocks = nn.Sequential(*(Block(width, 2) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def losses_of_gpt(steps, blocks, **mixed):
    torch.manual_seed(0)
    model = GPT(blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rng = np.random.default_rng(0)
    text = np.cumsum(rng.integers(0, 3, 4096)) % 16  # each letter leaves three choices for the next one

    def step(tokens, targets):
        optimizer.zero_grad()
        with torch.autocast("cpu", **mixed):
            loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        return loss

    compiled, losses = torch.compile(step), []
    for _ in range(steps):
        starts = rng.integers(0, len(text) - 17, 8)
        tokens, targets = (np.stack([text[s + k : s + k + 16] for s in starts]) for k in (0, 1))
        losses.append(compiled(torch.tensor(tokens), torch.tensor(targets)).float())
    return np.array([float(x) for x in losses])


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize(("steps", "blocks"), [(50, 1), pytest.param(200, 2, marks=pytest.mark.soak)])
def test_a_gpt_in_bfloat16_follows_float32(steps, blocks):
    plain = losses_of_gpt(steps, blocks, enabled=False)
    mixed = losses_of_gpt(steps, blocks, dtype=torch.bfloat16)
    assert plain[-20:].mean() < (0.6 if steps == 200 else 0.9) * plain[0]
    smooth = [np.convolve(x, np.ones(10) / 10, "valid") for x in (plain, mixed)]
    np.testing.assert_allclose(smooth[1], smooth[0], rtol=0.02)
    assert not np.array_equal(plain, mixed)


@pytest.mark.parametrize("text", ALL)
def test_every_optimizer_learns_in_mixed_precision(text):
    def train(**mixed):
        torch.manual_seed(0)
        layers = [nn.Linear(4, 8, bias=False), nn.Linear(8, 1, bias=False)]
        o = make(text, [p for layer in layers for p in layer.parameters()])
        for group in o.param_groups:
            group["lr"] = 1.0 if "Adadelta" in text else 0.02
        data = torch.randn(16, 4)
        losses = []
        for _ in range(15):
            o.zero_grad()
            with torch.autocast("cpu", **mixed):
                loss = F.mse_loss(layers[1](layers[0](data).tanh()), data.sum(1, keepdim=True))
            loss.backward()
            o.step()
            losses.append(float(loss))
        assert all(p.dtype is torch.float32 for layer in layers for p in layer.parameters())
        return losses

    plain, mixed = train(enabled=False), train()
    assert mixed[-1] < mixed[0]
    np.testing.assert_allclose(mixed, plain, rtol=0.15 if "Rprop" in text else 0.05)


def test_replicas_scale_and_skip_together():
    def body(rank):
        dist.init_process_group("threads")
        assert not torch.is_autocast_enabled("cpu")
        torch.manual_seed(0)
        module = nn.Linear(4, 1)
        model = nn.parallel.DistributedDataParallel(module)
        o = torch.optim.SGD(module.parameters(), lr=0.1)
        s = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
        torch.manual_seed(rank)
        data = torch.randn(8, 4)
        path = []
        for at in range(4):
            o.zero_grad()
            with torch.autocast("cpu"):
                y = model(data)
                loss = F.mse_loss(y, data[:, :1]) * (math.inf if (rank, at) == (1, 2) else 1.0)
            assert y.dtype is torch.bfloat16
            s.scale(loss).backward()
            s.step(o)
            s.update()
            path.append((module.weight.detach().numpy().tolist(), s.get_scale()))
        return path

    one, other = dist.run_threads(body, nprocs=2)
    assert one == other
    assert [scale for _, scale in one] == [4, 8, 4, 4]
    assert one[2][0] == one[1][0] != one[3][0]


def product(x):
    """What a worker computes in its own state."""
    return x @ x


def mixed_product(x):
    """The same, in a region of the worker's own."""
    with torch.autocast("cpu"):
        return x @ x


def each_its_own():
    x = torch.ones(2, 2)
    with torch.autocast("cpu"):
        assert rpc.rpc_sync("w1", product, (x,)).dtype is torch.float32
        assert rpc.rpc_async("w1", product, (x,)).wait().dtype is torch.float32
        assert product(x).dtype is torch.bfloat16
    assert rpc.rpc_sync("w1", mixed_product, (x,)).dtype is torch.bfloat16
    assert rpc.rpc_sync("w1", product, (x,)).dtype is torch.float32


def test_remote_calls_have_a_state_of_their_own():
    job.run_in_threads(each_its_own, 2)
