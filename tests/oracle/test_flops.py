"""Counts of operations of whole models, compared with PyTorch's, for training steps."""

import math

import pytest

import weft
from weft.utils import flop_counter as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.utils.flop_counter")
pytestmark = pytest.mark.oracle


def residual(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

        def forward(self, x):
            y = self.norms[0](self.first(x)).relu()
            return (self.norms[1](self.second(y)) + self.shortcut(x)).relu()

    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3), nn.MaxPool2d(3, 2, 1), Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    return model, [torch.ones(2, 3, 32, 32)]


def transformer(torch):
    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x):
            q, k, v = (part.view(2, 6, 4, 4).transpose(1, 2) for part in self.qkv(x).split(16, 2))
            scores = q @ k.transpose(-2, -1) / math.sqrt(4)
            return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 6, 16))

    model = nn.Sequential(
        nn.Embedding(50, 16), nn.LayerNorm(16), Attention(), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 50, bias=False)
    )
    return model, [torch.arange(12).view(2, 6)]


def recurrent(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(5, 6, num_layers=2)
            self.start = torch.nn.Parameter(torch.zeros(2, 3, 6))  # with its gradient, PyTorch computes all that we do
            self.out = torch.nn.Linear(6, 2)

        def forward(self, x):
            return self.out(self.lstm(x, (self.start, self.start))[0])

    return Net(), [torch.ones(4, 3, 5)]


@pytest.mark.parametrize("build", [residual, transformer, recurrent])
def test_models(build):
    totals = []
    for library, module in ((torch, theirs), (weft, ours)):
        with library.device("meta"):  # where PyTorch has no kernels of its CPU's, which it does not count
            model, inputs = build(library)
        with module.FlopCounterMode(display=False) as counter:
            loss = model(*inputs).sum()
            forward = {name: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
            loss.backward()
        totals.append((forward, counter.get_total_flops()))
    assert totals[0] == totals[1]


def test_attention_is_counted_as_pytorch_counts_its_kernels():
    q, k, v = (weft.ones(2, 3, size, 8, requires_grad=True) for size in (5, 7, 7))
    with ours.FlopCounterMode(display=False) as counter:
        y = weft.nn.functional.scaled_dot_product_attention(q, k, v)
        assert counter.get_total_flops() == theirs.sdpa_flop_count(q.shape, k.shape, v.shape)
        y.sum().backward()
    backward = theirs.sdpa_backward_flop_count(y.shape, q.shape, k.shape, v.shape)
    assert counter.get_total_flops() == backward + theirs.sdpa_flop_count(q.shape, k.shape, v.shape)
