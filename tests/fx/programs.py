"""Programs to trace, written for PyTorch and for Weft: each is a class or function of `PROGRAMS`, with its inputs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Program:
    """What is traced, by the framework that it is written with, and the inputs of a call as NumPy arrays or numbers."""

    name: str
    make: Callable[[Any], Any]
    inputs: tuple[Any, ...]
    options: Callable[[Any], dict[str, Any]]


PROGRAMS: list[Program] = []


def program(*inputs: Any, options: Callable[[Any], dict[str, Any]] = lambda torch: {}) -> Callable[[Any], Any]:
    """Register a program: a function from the framework to a module or function."""

    def register(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        PROGRAMS.append(Program(make.__name__, make, inputs, options))
        return make

    return register


def array(*shape: int) -> np.ndarray[Any, Any]:
    count = math.prod(shape)
    return np.cos(np.arange(count, dtype=np.float32) * 1.7).reshape(shape).astype(np.float32)


def scaled_by(x: Any, factor: float = 2.0) -> Any:
    """A function that is wrapped where a program says so."""
    if factor > 1:
        return x * factor
    return x


def wrap_here(torch: Any, name: str) -> None:
    """Wrap a name of this module, as a line `torch.fx.wrap("name")` at its top level would."""
    scope = globals()
    scope["_wrap"] = torch.fx.wrap
    exec(f"_wrap({name!r})", scope)


@program(array(2, 3, 8, 8))
def residual(torch: Any) -> Any:
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inside, outside, stride=1):
            super().__init__()
            self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outside)
            self.relu = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outside)
            self.downsample = None
            if stride != 1:
                self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride), nn.BatchNorm2d(outside))

        def forward(self, x):
            identity = x
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            if self.downsample is not None:
                identity = self.downsample(x)
            out += identity
            return self.relu(out)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
            self.layer1 = nn.Sequential(Block(4, 4), Block(4, 8, 2))
            self.pool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(8, 5)

        def forward(self, x):
            x = self.layer1(self.stem(x))
            return self.fc(torch.flatten(self.pool(x), 1))

    return Net().eval()


@program(array(2, 5, 8))
def transformer(torch: Any) -> Any:
    nn, functional = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.heads, self.size = heads, width // heads
            self.register_buffer("mask", torch.tril(torch.ones(5, 5)).view(1, 1, 5, 5))

        def forward(self, x):
            b, t, c = x.size()
            q, k, v = self.qkv(x).split(c, dim=2)
            q = q.view(b, t, self.heads, self.size).transpose(1, 2)
            k = k.view(b, t, self.heads, self.size).transpose(1, 2)
            v = v.view(b, t, self.heads, self.size).transpose(1, 2)
            weights = (q @ k.transpose(-2, -1)) * (1.0 / self.size**0.5)
            weights = weights.masked_fill(self.mask == 0, float("-inf"))
            y = functional.softmax(weights, dim=-1) @ v
            return self.out(y.transpose(1, 2).contiguous().view(b, t, c))

    class Layer(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attn = Attention(width, 2)
            self.mlp = nn.ModuleDict({"up": nn.Linear(width, 2 * width), "down": nn.Linear(2 * width, width)})
            self.drop = nn.Dropout(0.1)

        def forward(self, x):
            x = x + self.attn(self.ln1(x))
            return x + self.drop(self.mlp["down"](functional.gelu(self.mlp["up"](self.ln2(x)), approximate="tanh")))

    return nn.Sequential(*[Layer(8) for _ in range(2)]).eval()


@program(array(3, 4))
def parameters_and_buffers(torch: Any) -> Any:
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 5)
            self.param = torch.nn.Parameter(torch.ones(3, 4))
            self.register_buffer("offset", torch.full((4,), 2.0))
            self.plain = torch.tensor([1.0, 2.0, 3.0, 4.0])

        def forward(self, x):
            x = x + self.param * self.offset
            x = self.offset - x + self.plain + self.param
            x = self.linear(x + self.linear.weight[0]).clamp(min=0.0, max=1.0)
            return torch.topk(torch.sum(x, dim=-1), 3)[0]

    return Model()


@program(array(4))
def calls_twice(torch: Any) -> Any:
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = torch.nn.Linear(4, 4)
            self.other = self.shared

        def forward(self, x):
            return self.shared(self.other(self.shared(x)).relu()) * 2

    return Model()


@program(array(2, 4))
def containers(torch: Any) -> Any:
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                [nn.Linear(4, 4), nn.Sequential(nn.Tanh(), nn.ModuleList([nn.Linear(4, 4)])[0])]
            )
            self.scales = nn.ParameterList([torch.ones(4), torch.ones(4)])
            self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Sequential(nn.Linear(4, 3), nn.Sigmoid())})

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            for scale in self.scales:
                x = x * scale
            return {name: head(x) for name, head in self.heads.items()}

    return Model()


@program(array(6, 4))
def indices(torch: Any) -> Any:
    def indices(x):
        a = x[0] + x[-1, 1:3].sum()
        b = x[1:, ::2][..., None]
        c = x[:, [0, 2]]
        d = x[x > 0]
        first, second = torch.chunk(x, 2)
        return a, b, c, d.sum(), first - second, x[: x.shape[0] // 2, 0]

    return indices


@program(array(3, 3))
def operators(torch: Any) -> Any:
    def operators(x):
        y = 2 * x + x / 3 - 1
        y = -(y**2) + 2**x
        y = (y @ x) // 2 % 3
        y += x
        y *= 2
        y -= 1
        mask = (x > 0) & (y < 5) | ~(x == y) ^ (x >= 1)
        return abs(y), 1 - y, 1 / (y * y + 1), mask, (x != y) | (x <= 0), +x

    return operators


@program(array(3))
def in_place(torch: Any) -> Any:
    def in_place(x):
        y = x.clone()
        y.add_(1).mul_(x)
        y.relu_()
        torch.nn.functional.relu(y, inplace=True)
        return y.clamp_(max=0.5)

    return in_place


@program(array(2, 3))
def defaults(torch: Any) -> Any:
    def defaults(x, scale=2.0, shift=(1, 2), *, flag=None, other=-1.5):
        return x * scale + other + shift[0]

    return defaults


@program(array(2), array(2), 3.0)
def star_args(torch: Any) -> Any:
    def star_args(x, *rest, **options):
        return x + rest[0] * rest[1]

    return star_args


@program(array(2, 2), array(2, 2))
def annotated(torch: Any) -> Any:
    tensor = torch.Tensor

    def annotated(x, y, scale=1.5):
        return x * y * scale

    annotated.__annotations__ = {"x": tensor, "y": tensor, "scale": float, "return": tensor}
    return annotated


@program(array(2, 2))
def names(torch: Any) -> Any:
    def names(input):
        sum = input.sum()
        max = input.max(dim=1)
        len_1 = input.mean()
        return sum + max[0] + max.values + len_1 + input.T.shape[0] + input.sum() + input.sum(dim=0)

    return names


@program(array(2, 3), options=lambda torch: {"concrete_args": {"flag": True, "scale": 3}})
def concrete(torch: Any) -> Any:
    def concrete(x, flag=True, scale=3):
        if flag:
            return x.view(2, scale) * scale
        return x

    return concrete


@program(array(2, 3), options=lambda torch: {"concrete_args": {"y": None}})
def concrete_none(torch: Any) -> Any:
    class Model(torch.nn.Module):
        def forward(self, x, y=None):
            return x if y is None else x + y

    return Model()


@program(
    {"a": array(2), "b": [array(2), 2]},
    options=lambda torch: {"concrete_args": {"x": {"a": torch.fx.PH, "b": [torch.fx.PH, 2]}}},
)
def concrete_tree(torch: Any) -> Any:
    def concrete_tree(x):
        return {"sum": x["a"] + x["b"][0] * x["b"][1], "rest": [x["a"]]}

    return concrete_tree


@program(array(4))
def math_functions(torch: Any) -> Any:
    def math_functions(x):
        return x * math.sqrt(x.size(0)) + math.floor(math.pi)

    return math_functions


@program(array(4))
def wrapped(torch: Any) -> Any:
    wrap_here(torch, "scaled_by")

    def wrapped(x):
        return scaled_by(x, factor=3.0) + scaled_by(2.0)

    return wrapped


@program(array(2, 6))
def functional_calls(torch: Any) -> Any:
    functional = torch.nn.functional

    def functional_calls(x):
        x = functional.relu(x)
        x = functional.dropout(x, 0.5, False)
        x = functional.softmax(x, dim=1) + functional.log_softmax(x, -1)
        x = functional.layer_norm(x, (6,))
        x = functional.pad(x, (1, 1))
        x = functional.leaky_relu(x, 0.2) + functional.elu(x) + functional.silu(x) + functional.hardtanh(x, 0.0, 1.0)
        x = functional.max_pool1d(x.unsqueeze(1), 2).squeeze(1)
        return functional.mse_loss(x, torch.zeros_like(x)), functional.smooth_l1_loss(x, x * 2, reduction="sum")

    return functional_calls


@program(array(2, 6))
def compiled_calls(torch: Any) -> Any:
    def compiled_calls(x):
        y = torch.cat([x, x], 1)
        y = torch.cat((y, y), dim=1)
        y = torch.stack([y, y], dim=0).transpose(0, 1)
        y = torch.sum(torch.flatten(y, 1), dim=1, keepdim=True) + torch.mean(x, 1, True)
        y = torch.where(y > 0, y, -1.0)
        y = torch.clamp(y, min=-2.0)
        y = torch.add(y, x, alpha=2)
        return torch.matmul(y.t(), x), torch.max(y, 1), torch.split(y, 1, dim=0), torch.einsum("ij,kj->ik", y, x)

    return compiled_calls


@program(array(2, 2))
def creation(torch: Any) -> Any:
    def creation(x):
        ones = torch.ones((x.shape[0], 2), dtype=torch.float64)
        ramp = torch.arange(x.size(0), device=x.device)
        fixed = torch.tensor([1.0, 2.0])
        return ones + x.to(torch.float64), ramp, x + fixed, torch.zeros_like(x) + fixed

    return creation


@program(array(2, 2))
def outputs(torch: Any) -> Any:
    def outputs(x):
        return {
            "a": [x, (x + 1, None)],
            "b": slice(x.shape[0], None),
            "c": 1.5,
            "d": "text",
            "e": True,
            "f": torch.float32,
        }

    return outputs


@program(array(2, 2))
def attributes(torch: Any) -> Any:
    def attributes(x):
        return x.T @ x.mT + x.real.shape[1], x.ndim, x.unsqueeze(0).shape, getattr(x, "dtype")  # noqa: B009

    return attributes


@program(array(2, 3))
def infinite(torch: Any) -> Any:
    def infinite(x):
        return x.masked_fill(x > 0, float("inf")), x * float("nan"), x.clamp(-float("inf"), 0), x - -1, x**-2

    return infinite


@program(array(3, 4))
def nothing_used(torch: Any) -> Any:
    def nothing_used(x, unused=None):
        x.sum()
        _ = x + 1
        return x * 2

    return nothing_used


@program(array(2, 4))
def hooks(torch: Any) -> Any:
    class Inner(torch.nn.Module):
        def forward(self, x):
            return x * 2

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()
            self.inner.register_forward_hook(lambda module, args, output: output + 1)
            self.inner.register_forward_pre_hook(lambda module, args: (args[0] - 1,))

        def forward(self, x):
            return self.inner(x)

    return Outer()


@program(array(2, 4))
def without_gradients(torch: Any) -> Any:
    class Model(torch.nn.Module):
        @torch.no_grad()
        def forward(self, x):
            return x.relu() + 1

    return Model()


@program(array(2, 4))
def method_functions(torch: Any) -> Any:
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4, 4))

        def helper(self, x, times):
            return x @ self.weight * times

        def forward(self, x):
            return self.helper(x, 2) + self.helper(x, times=x.size(1)) + self.training

    return Model()


@program(array(2, 4))
def unpacked(torch: Any) -> Any:
    def unpacked(x):
        rows, columns = x.shape
        (a, b), c = x.split([1, 1]), x.max(dim=1)
        values, positions = c
        return a + b, values, positions, rows * columns

    return unpacked


@program(array(2, 4))
def operator_functions(torch: Any) -> Any:
    def operator_functions(x):
        return operator.add(x, 1) + operator.getitem(x, 0) * operator.neg(x) + operator.truediv(1, x)

    return operator_functions


REFUSED: dict[str, Callable[[Any], Any]] = {
    "branch": lambda torch: lambda x: x if x.sum() > 0 else -x,
    "and": lambda torch: lambda x, y: x and y,
    "loop": lambda torch: lambda x: [row for row in x],  # noqa: C416
    "star": lambda torch: lambda x: torch.cat([*x]),
    "double star": lambda torch: lambda x: dict(**x),
    "length": lambda torch: lambda x: len(x),
    "int": lambda torch: lambda x: int(x),
    "range": lambda torch: lambda x: range(x),
    "in": lambda torch: lambda x: 3 in x,
    "assignment": lambda torch: lambda x: operator.setitem(x, 0, 1),
    "unknown argument": lambda torch: lambda x: x.foo(object()),
    "number": lambda torch: 3,
    "foreign parameter": lambda torch: _closure(torch.nn.Parameter(torch.ones(1))),
    "foreign module": lambda torch: _closure(torch.nn.Linear(2, 2)),
}
"""Programs that cannot be traced."""


def _closure(foreign: Any) -> Callable[[Any], Any]:
    return lambda x: foreign(x) if callable(foreign) else x + foreign
