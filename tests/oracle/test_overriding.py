"""The functions that `__torch_function__` gets for operators, methods and attributes are those of PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import weft

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.oracle

EXPRESSIONS = """
x + y; y + x; 2 + x; x - 1; 1 - x; x * y; 2 * x; x / y; 1 / x; x // y; 1 // x; x % y; 1 % x; x ** y; 2 ** x; x @ y
y @ x; -x; +x; abs(x); ~i; i & j; j & i; 1 & i; i | j; 1 | i; i ^ j; 1 ^ i; i << j; 1 << i; i >> j; 1 >> i; x == y
x != y; x < y; x > y; y < x; x <= y; x >= y; x[0]; x[1:]; y[i]; len(x); list(x); bool(x[0]); float(x[0]); int(i[0])
x.T; x.shape; x.dtype; x.device; x.grad; x.data; x.requires_grad; x.is_leaf; x.ndim; x.real; x.layout; x.is_cuda
x.size(); x.dim(); x.numel(); x.item; x.sum(); x.sum(0); x.add_(1); x.detach(); x.clone(); x.to(t.float64); x.max()
x.tolist(); x.requires_grad_(); x.view(2); x.reshape(1, 2); x.unsqueeze(0); x.zero_(); x.masked_fill(x > 0, 1)
x.is_floating_point(); t.add(x, y); t.sum(x, dim=0); t.cat([x, y]); t.stack([y, x]); t.einsum('i->', x)
t.where(x > 0, x, y); t.max(x, 0); t.nn.functional.relu(x); t.nn.functional.softmax(x, dim=0)
t.nn.functional.linear(x, z); t.nn.functional.layer_norm(x, (2,)); t.nn.functional.dropout(x)
t.nn.functional.mse_loss(x, y); t.linalg.vector_norm(x); t.fft.fft(x); t.special.expm1(x); t.nn.init.uniform_(x)
x.backward; repr(x); t.zeros_like(x); x.new_zeros(2); t.split(x, 1); x.norm(); t.norm(x)
""".replace("\n", ";").split(";")


def names(framework: Any, expression: str) -> list[str]:
    """What a subclass is asked for in an expression; nothing of what these functions call themselves."""
    log: list[Any] = []

    class Logged(framework.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            log.append(framework.overrides.resolve_name(func))
            return super().__torch_function__(func, types, args, kwargs)

    def of(*numbers: Any) -> Any:
        return framework.tensor(numbers).as_subclass(Logged)

    scope = {"t": framework, "x": of(1.0, 2.0), "y": framework.tensor([1.0, 2.0]), "z": framework.ones(2, 2)}
    scope |= {"i": of(1, 0), "j": framework.tensor([1, 1])}
    log.clear()
    eval(expression, scope)
    return [name.replace("torch.functional.", "torch.") for name in log]  # a module of which programs see the contents


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", [text.strip() for text in EXPRESSIONS if text.strip()])
def test_the_same_functions_are_overridden(expression):
    assert names(weft, expression) == names(torch, expression)


CALLS = """
t.flatten(x, 1); t.flatten(x, start_dim=1); t.cat([x, x], 1); t.cat([x, x], dim=0); t.sum(x, 1, True); t.sum(x, dim=1)
t.max(x, 1); t.transpose(x, 0, 1); t.chunk(x, 2, 1); t.clamp(x, min=0.0); t.clamp(x, 0.0, 1.0); t.where(x > 0, x, 0.0)
t.add(x, y, alpha=2); t.softmax(x, 1); t.split(x, 1, dim=0); t.zeros_like(x, dtype=t.float64); t.conv1d(x, y, None, 1)
f.relu(x); f.relu(x, True); f.dropout(x, 0.5, training=False); f.softmax(x, 1); f.log_softmax(x, dim=1); f.gelu(x)
f.gelu(x, approximate="tanh"); f.layer_norm(x, (2,)); f.linear(x, y); f.linear(x, weight=y); f.max_pool1d(x, 2)
f.avg_pool1d(x, 2); f.avg_pool1d(x, 2, stride=1); f.adaptive_avg_pool2d(x, 1); f.pad(x, (1, 1)); f.mse_loss(x, x)
f.cross_entropy(x, y, reduction="sum"); f.batch_norm(x, None, None); f.conv2d(x, y, padding=1); f.elu(x, 0.5)
f.leaky_relu(x); f.embedding(x, y); f.interpolate(x, scale_factor=2); f.one_hot(x); f.one_hot(x, 3); f.silu(x)
f.scaled_dot_product_attention(x, x, x, is_causal=True); f.cosine_similarity(x, y, dim=0); f.hardtanh(x, 0.0, 1.0)
""".replace("\n", ";").split(";")


def arguments(framework: Any, call: str) -> Any:
    """The arguments that an object of another class gets for a call, with its letters in place of objects."""

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def __repr__(self) -> str:
            return self.name

        def __gt__(self, other: Any) -> Any:
            return self

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return str((args, kwargs or {}))

    scope = {"t": framework, "f": framework.nn.functional, "x": Named("x"), "y": Named("y")}
    return eval(call, scope)


@pytest.mark.parametrize("call", [text.strip() for text in CALLS if text.strip()])
def test_the_same_arguments_are_passed_on(call):
    assert arguments(weft, call) == arguments(torch, call)
