"""Modes that see operators: which operators those are, in which order modes are asked, and what they may answer."""

from __future__ import annotations

import threading
from typing import ClassVar

import pytest

import weft
from weft import nn
from weft.nn import functional as F
from weft.overrides import TorchFunctionMode, resolve_name
from weft.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
    is_in_torch_dispatch_mode,
)

aten = weft.ops.aten


class Log(TorchDispatchMode):
    """Keeps what is called, tensors by their sizes."""

    def __init__(self):
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append((str(func).removeprefix("aten."), *map(_shown, args), *(kwargs or {}).items()))
        return func(*args, **(kwargs or {}))

    @property
    def names(self):
        return [name for name, *_ in self.calls]


def _shown(x):
    if isinstance(x, weft.Tensor):
        return tuple(x.shape)
    return [_shown(part) for part in x] if isinstance(x, list) else x


X = weft.arange(12.0).view(3, 4) - 5
IMAGE = weft.ones(1, 3, 8, 8)
BIAS = weft.ones(3)
CLASSES = weft.tensor([0, 1, 2])


def written(x):
    y = x.clone()
    y[1:2] += 1
    y[0] = x[1]
    y[x > 0] = 2


PROGRAMS = {
    "add.Tensor rsub.Scalar pow.Tensor_Scalar": lambda: (X + 1, 1 - X, X**2),
    "reciprocal mul.Tensor": lambda: 1 / X,
    "sum.dim_IntList max max.dim std.correction": lambda: (X.sum(1), X.max(), X.max(1), X.std()),
    "view permute view": lambda: (X.reshape(4, 3), X.T, X.flatten()),
    "t clone _unsafe_view": lambda: X.t().reshape(-1),
    "slice.Tensor select.int": lambda: X[1:3, 0],
    "index.Tensor": lambda: X[:, CLASSES],
    "clone slice.Tensor add_.Tensor slice.Tensor copy_ select.int select.int copy_ gt.Scalar index_put_": lambda: (
        written(X)
    ),
    "_to_copy _to_copy": lambda: (X.double(), X.to(weft.int32), X.float()),
    "zeros arange.start_step rand": lambda: (weft.zeros(2, 3), weft.arange(1, 5, 2), weft.rand(2)),
    "cat split.Tensor split.Tensor": lambda: (weft.cat([X, X]), X.split(2), X.chunk(2, 1)),
    "t addmm": lambda: F.linear(X, X, BIAS),
    "unsqueeze t view mm _unsafe_view": lambda: F.linear(X[None], X),
    "t mm select.int mv": lambda: (X @ X.t(), weft.matmul(X, X[0])),
    "convolution": lambda: F.conv2d(IMAGE, IMAGE),
    "max_pool2d_with_indices mean.dim": lambda: (F.max_pool2d(IMAGE, 2), F.adaptive_avg_pool2d(IMAGE, 1)),
    "relu gelu _softmax": lambda: (F.relu(X), F.gelu(X), F.softmax(X, -1)),
    "native_layer_norm": lambda: F.layer_norm(X, (4,)),
    "_log_softmax nll_loss_forward": lambda: F.cross_entropy(X, CLASSES),
    "embedding": lambda: F.embedding(CLASSES, X),
    "_scaled_dot_product_flash_attention_for_cpu": lambda: F.scaled_dot_product_attention(IMAGE, IMAGE, IMAGE),
    "clone mul_.Tensor clamp_": lambda: X.clone().mul_(X).clamp_(0, 1),
    "empty.memory_format add.out": lambda: weft.add(X, X, out=weft.empty(3, 4)),
    "sum _local_scalar_dense": lambda: X.sum().item(),
    "clone relu_": lambda: F.relu(X.clone(), inplace=True),
}


@pytest.mark.parametrize("names", PROGRAMS)
def test_operators_are_those_of_pytorch(names):
    with Log() as log:
        PROGRAMS[names]()
    assert [name.removesuffix(".default") for name in log.names] == names.split()


ARGUMENTS = [
    (lambda: X + 1, ("add.Tensor", (3, 4), 1)),
    (lambda: X.sum(1), ("sum.dim_IntList", (3, 4), [1])),
    (lambda: X.reshape(-1, 3), ("view.default", (3, 4), [4, 3])),
    (lambda: X[:, CLASSES], ("index.Tensor", (3, 4), [None, (3,)])),
    (lambda: X.double(), ("_to_copy.default", (3, 4), ("dtype", weft.float64))),
    (lambda: F.gelu(X, approximate="tanh"), ("gelu.default", (3, 4), ("approximate", "tanh"))),
    (lambda: F.softmax(X, -1), ("_softmax.default", (3, 4), -1, False)),
    (lambda: F.mse_loss(X, X, reduction="sum"), ("mse_loss.default", (3, 4), (3, 4), 2)),
    (lambda: F.max_pool2d(IMAGE, 2), ("max_pool2d_with_indices.default", (1, 3, 8, 8), [2, 2])),
    (lambda: F.interpolate(IMAGE, scale_factor=2), ("upsample_nearest2d.default", IMAGE.shape, [16, 16], 2.0, 2.0)),
    (
        lambda: F.conv2d(IMAGE, IMAGE, stride=2),
        ("convolution.default", IMAGE.shape, IMAGE.shape, None, [2, 2], [0, 0], [1, 1], False, [0, 0], 1),
    ),
    (lambda: F.embedding(CLASSES, X), ("embedding.default", (3, 4), (3,))),
    (lambda: X.mul_(1), ("mul_.Tensor", (3, 4), 1)),
    (lambda: weft.zeros(2, 3, dtype=weft.int8), ("zeros.default", [2, 3], ("dtype", weft.int8))),
]


@pytest.mark.parametrize(("run", "call"), ARGUMENTS)
def test_arguments_are_passed_on_as_pytorch_does(run, call):
    with Log() as log:
        run()
    assert [tuple(x for x in call if not _is_of_factory(x)) for call in log.calls] == [call]


def _is_of_factory(x):
    return isinstance(x, tuple) and x[:1] in (("device",), ("pin_memory",), ("layout",))


@pytest.mark.parametrize(
    "run",
    [
        lambda m, x: m(x),
        lambda m, x: F.cross_entropy(m(x), CLASSES),
        lambda m, x: m(x[None])[0].T @ x,
        lambda m, x: F.conv2d(x[None, None], x[None, None, :2, :2], padding="same"),
        lambda m, x: weft.einsum("ij,kj->ik", x, x),
        lambda m, x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
        lambda m, x: x.var(0) + x.std(1).sum(),
        lambda m, x: F.pad(x, (1, 2)),
        lambda m, x: F.pad(x[None], (1, 1), "reflect"),
        lambda m, x: F.group_norm(x[None].transpose(1, 2), 2),
        lambda m, x: F.batch_norm(x, x[0], x[1] + 9),
        lambda m, x: weft.matmul(x[None, None], x.t()[None]),
        lambda m, x: x[[0, 2], 1:][..., None],
        lambda m, x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    ],
)  # fmt: skip
def test_what_a_mode_passes_on_is_computed_as_without_one(run):
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 3))
    wanted = run(model, X)
    with Log() as log:
        assert weft.allclose(run(model, X), wanted, atol=1e-5)
    assert log.names


def test_a_backward_pass_is_seen():
    x = weft.ones(3, 4, requires_grad=True)
    with Log() as log:
        (x * X).relu().sum().backward()
    assert log.names == [
        *["mul.Tensor", "relu.default", "sum.default"],
        *["sum_backward.default", "threshold_backward.default", "mul_backward.default"],
    ]
    assert weft.equal(x.grad, X * (X > 0))


def test_arguments_and_results_are_the_programs_own_tensors():
    seen = []

    class Keep(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            seen.append((*args, result))
            return result

    x = weft.ones(2, requires_grad=True)
    with Keep():
        y = x.exp()
        z = y.relu()
    assert [
        [a is b for a, b in zip(call, wanted, strict=True)]
        for call, wanted in zip(seen, [(x, y), (y, z)], strict=False)
    ] == [[True] * 2] * 2
    z.sum().backward()
    assert weft.equal(x.grad, y)


def test_a_mode_answers_in_place_of_the_operator():
    class Zeros(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return weft.zeros_like(result) if func is aten.mul.Tensor else result

    with Zeros():
        assert (X * X).sum().item() == 0
        assert (X + X).sum().item() == 2 * X.sum().item()
    assert (X * X).sum().item() != 0


def test_arguments_of_new_tensors_can_be_changed():
    class OnMeta(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func._schema.arguments[-1].name == "pin_memory" or "device" in (kwargs or {}):
                kwargs = {**(kwargs or {}), "device": "meta"}
            return func(*args, **(kwargs or {}))

    with OnMeta():
        assert weft.zeros(1000, 1000).device.type == "meta"


def test_the_innermost_mode_is_asked_first():
    with Log() as outer, Log() as inner:
        assert _get_current_dispatch_mode() is inner
        assert _get_current_dispatch_mode_stack() == [outer, inner]
        X + X
        with _disable_current_modes():
            assert not is_in_torch_dispatch_mode()
            X + X
    assert outer.names == inner.names == ["add.Tensor"]
    assert _get_current_dispatch_mode() is None


def test_a_mode_is_off_while_it_answers():
    class Twice(Log):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            super().__torch_dispatch__(func, types, args, kwargs)
            return func(*args, **(kwargs or {})) + 1

    with Twice() as log:
        y = X * 2
    assert weft.equal(y, 2 * X + 1)
    assert log.names == ["mul.Tensor"]


def test_functions_are_overridden_before_operators():
    order = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            order.append(resolve_name(func))
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            order.append(str(func))
            return func(*args, **(kwargs or {}))

    with Operators(), Functions():
        F.linear(X, X)
    assert order == ["torch.nn.functional.linear", "aten.t.default", "aten.mm.default"]


def test_a_call_by_name_is_seen_and_refusals_end_the_block():
    class Refuse(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise RuntimeError(f"no {func}")

    turned = X.t()
    with pytest.raises(RuntimeError, match=r"^no aten\.mm\.default$"), Refuse():
        aten.mm(X, turned)
    assert aten.mm(X, X.t()).shape == (3, 3)


def test_other_threads_have_no_modes():
    with Log() as log:
        thread = threading.Thread(target=lambda: X + X)
        thread.start()
        thread.join()
    assert log.names == []


def test_an_operator_of_ones_own_is_seen():
    @weft.library.custom_op("dispatched::twice", mutates_args=())
    def twice(x: weft.Tensor) -> weft.Tensor:
        return 2 * x

    class Names(TorchDispatchMode):
        seen: ClassVar[list[str]] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(func.name())
            return func(*args, **(kwargs or {}))

    with Names():
        y = twice(X)
    assert weft.equal(y, 2 * X)
    assert Names.seen == ["dispatched::twice"]
