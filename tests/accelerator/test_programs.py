"""Programs on the accelerator compute what they compute on the CPU."""

from __future__ import annotations

import io

import pytest

import weft as torch
from weft import accelerator, nn
from weft.nn import functional
from weft.utils import memory


def _losses(
    device: torch.device, steps: int, *, cast: torch.dtype | None = None, compiled: bool = False
) -> list[float]:
    """The losses of a small transformer, the same on every device."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Embedding(50, 32), nn.TransformerEncoder(layer, 2), nn.Linear(32, 50))
    ids, targets = torch.randint(50, (4, 16)), torch.randint(50, (4 * 16,))
    model, ids, targets = model.to(device), ids.to(device), targets.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device.type, enabled=cast is torch.float16)

    def step(ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast(device.type, cast, enabled=cast is not None):
            loss = functional.cross_entropy(model(ids).flatten(0, 1).float(), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    run = torch.compile(step) if compiled else step
    return [run(ids, targets).item() for _ in range(steps)]


@pytest.mark.parametrize("compiled", [False, True])
def test_training_follows_the_cpu(device, compiled):
    torch.set_float32_matmul_precision("highest")
    assert _losses(device, 8, compiled=compiled) == pytest.approx(_losses(torch.device("cpu"), 8), rel=1e-4)


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
def test_mixed_precision_follows_the_cpu(device, cast):
    assert _losses(device, 8, cast=cast) == pytest.approx(_losses(torch.device("cpu"), 8), rel=5e-2)


def test_random_numbers_are_those_of_the_cpu(device):
    def draws(where):
        torch.manual_seed(5)
        a = torch.randn(1000, device=where), torch.rand(7, 5, device=where), torch.randperm(100, device=where)
        b = torch.randint(0, 9, (50,), device=where), functional.dropout(torch.ones(64, device=where), 0.5)
        return [x.cpu().tolist() for x in (*a, *b)]

    ours, theirs = draws(device), draws("cpu")
    assert ours[1:] == theirs[1:]
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5, abs=1e-6)  # whose logarithms differ in the last digit


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [8, 2])
def test_attention_of_halves(device, dtype, causal, heads):
    q = torch.randn(2, 8, 128, 64)
    k, v = torch.randn(2, heads, 128, 64), torch.randn(2, heads, 128, 64)
    weight = torch.randn(2, 8, 128, 64)

    def results(*inputs):
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        y = functional.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=True)
        return [x.double() for x in (y, *torch.autograd.grad(y, leaves, weight.to(y.dtype)))]

    halves = [x.to(dtype) for x in (q, k, v)]
    for ours, exact in zip(results(*halves), results(*[x.double() for x in halves]), strict=True):
        assert ((ours - exact).norm() / exact.norm()).item() < 1e-2


def test_derivatives_of_the_derivative_of_attention(device):
    q = torch.randn(1, 2, 16, 8, dtype=torch.bfloat16, requires_grad=True)

    def second(x):
        (g,) = torch.autograd.grad(functional.scaled_dot_product_attention(x, x, x).float().sum(), x, create_graph=True)
        return torch.autograd.grad(g.float().pow(2).sum(), x)[0].double()

    exact = second(q.detach().double().requires_grad_())
    assert ((second(q) - exact).norm() / exact.norm()).item() < 5e-2
    batched = torch.vmap(lambda x: functional.scaled_dot_product_attention(x, x, x))(q.unsqueeze(0))
    torch.testing.assert_close(batched[0], functional.scaled_dot_product_attention(q, q, q), rtol=2e-2, atol=2e-2)


def test_long_attention_needs_no_array_of_scores(device):
    """The scores of 16 heads over 32,768 positions would be 34 GB in bfloat16."""
    if device.type != "cuda":
        pytest.skip("the kernel is cuDNN's")
    q = torch.randn(1, 16, 32768, 64, dtype=torch.bfloat16, requires_grad=True)
    functional.scaled_dot_product_attention(q, q, q, is_causal=True).float().sum().backward()
    assert q.grad is not None
    assert q.grad.isfinite().all().item()
    assert accelerator.max_memory_allocated() < 8 * 2**30


def test_values_travel(device):
    x = torch.arange(6.0).view(2, 3)
    assert x.cpu().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.numpy().tolist() == x.tolist()
    with pytest.raises(RuntimeError, match="same device"):
        _ = x + torch.ones(3, device="cpu")
    file = io.BytesIO()
    torch.save({"x": x, "model": nn.Linear(2, 2).state_dict()}, file)
    file.seek(0)
    assert torch.load(file)["x"].device == x.device
    file.seek(0)
    assert torch.load(file, map_location="cpu")["x"].device.type == "cpu"
    view = x[0]
    view.mul_(2)
    x[:, 1] = -1
    assert x.tolist() == [[0, -1, 4], [3, -1, 5]]
    assert x.to("cpu", non_blocking=True).pin_memory().to(device).equal(x)


def test_data_loaders_feed_it(device):
    data = torch.utils.data.TensorDataset(torch.arange(8.0, device="cpu"))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=1)
    assert [batch.to(device).sum().item() for (batch,) in loader] == [6, 22]


def test_memory_is_counted_by_step(device):
    x = torch.ones(1 << 22)
    x[0].item()
    memory.reset_peak_memory_stats(device)
    before = memory.memory_allocated(device)
    assert memory.max_memory_allocated(device) == before >= x.nbytes
    y = x + 1
    y[0].item()
    assert memory.memory_allocated(device) >= before + y.nbytes
    del y
    assert memory.max_memory_allocated(device) >= before + x.nbytes
    assert x.nbytes in [one.nbytes for one in memory.allocations(device)]


def test_out_of_memory_is_told_and_left(device):
    total = accelerator.get_memory_info()[1]
    x = torch.ones(total // 4 // 3)
    y = torch.cat([x, x, x, x])
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        y[0].item()
    del x, y
    assert torch.ones(1000).sum().item() == 1000
