"""Regions: nesting, settings, what is left alone, casts of weights that are kept, and what is recorded in regions."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

import weft as torch
from tests.amp.regions import region
from weft._base.state import ambient
from weft.library import Cast, custom_op

F = torch.nn.functional
CPU = {"device_type": "cpu"}


def x(*shape, dtype=torch.float32):
    return torch.ones(shape or (4, 4), dtype=dtype)


def is_on(device_type="cpu"):
    return torch.is_autocast_enabled(device_type)


# --- regions ------------------------------------------------------------------------------------------------------


def test_the_example_of_the_documentation():
    a, b, c, d, f = x(), x(), x(), x(), x()
    with torch.autocast("cpu"):
        e = torch.mm(a, b)
        assert e.dtype is torch.bfloat16
        assert torch.mm(d, e).dtype is torch.bfloat16
        with torch.autocast("cpu", enabled=False):
            assert torch.mm(c, e.float()).dtype is torch.float32
        assert torch.mm(d, f).dtype is torch.bfloat16
    assert torch.mm(d, e.float()).dtype is torch.float32


def test_a_region_sets_and_restores_what_it_is_about_and_nothing_else():
    assert not is_on()
    with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False) as region_itself:
        assert isinstance(region_itself, torch.autocast)
        assert is_on()
        assert torch.get_autocast_dtype("cpu") is torch.float16
        assert not torch.is_autocast_cache_enabled()
        assert not is_on("cuda")
        torch.set_grad_enabled(False)
    assert (is_on(), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()) == (
        False, torch.bfloat16, True,
    )  # fmt: skip
    assert not torch.is_grad_enabled()
    torch.set_grad_enabled(True)


def test_one_region_can_be_entered_again_inside_of_itself():
    mixed = torch.autocast("cpu")
    with mixed, torch.autocast("cpu", enabled=False), mixed:
        assert is_on()
    assert not is_on()
    assert ambient().plain


def test_a_region_ends_with_an_error():
    with pytest.raises(ValueError, match=r"^stop$"), torch.autocast("cpu"):
        raise ValueError("stop")
    assert not is_on()


def test_as_a_decorator():
    @torch.autocast("cpu")
    def product(a, depth):
        """Its text."""
        return product(a, depth - 1) if depth else (a @ a)

    assert product(x(), 3).dtype is torch.bfloat16
    assert product.__doc__ == "Its text."
    assert not is_on()


def test_two_types_of_device_are_apart():
    with torch.autocast("cpu"), torch.autocast("xla", dtype=torch.float16):
        assert is_on("cpu")
        assert is_on("xla")
        assert torch.get_autocast_dtype("xla") is torch.float16
        assert (x() @ x()).dtype is torch.bfloat16
    with torch.autocast("xla"):
        assert (x() @ x()).dtype is torch.float32  # these are on the CPU


def test_settings_one_by_one():
    torch.set_autocast_enabled("cpu", True)
    assert (x() @ x()).dtype is torch.bfloat16
    torch.set_autocast_dtype("cpu", torch.float16)
    assert (x() @ x()).dtype is torch.float16
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    assert (x() @ x()).dtype is torch.float32
    torch.set_autocast_enabled(True)
    assert torch.is_autocast_enabled()
    torch.set_autocast_enabled(False)
    assert [torch.get_autocast_dtype(d) for d in ("cpu", "cuda", "xla", "mps")] == [
        torch.bfloat16, torch.float16, torch.bfloat16, torch.float16,
    ]  # fmt: skip
    assert [torch.amp.is_autocast_available(d) for d in ("cpu", "cuda", "meta")] == [True, True, False]
    assert (torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()) == (1, 0)


@pytest.mark.parametrize(
    ("name", "replacement", "value"),
    [
        ("is_autocast_cpu_enabled()", "is_autocast_enabled('cpu')", False),
        ("is_autocast_xla_enabled()", "is_autocast_enabled('xla')", False),
        ("get_autocast_cpu_dtype()", "get_autocast_dtype('cpu')", torch.bfloat16),
        ("get_autocast_gpu_dtype()", "get_autocast_dtype('cuda')", torch.float16),
        ("get_autocast_xla_dtype()", "get_autocast_dtype('xla')", torch.bfloat16),
    ],
)
def test_older_functions_warn(name, replacement, value):
    with pytest.warns(DeprecationWarning, match="deprecated") as record:
        assert getattr(torch, name[:-2])() is value
    assert str(record[0].message) == f"torch.{name} is deprecated. Please use torch.{replacement} instead."
    assert record[0].filename == __file__


@pytest.mark.parametrize("kind", ["cpu", "xla", "gpu"])
def test_older_setters_warn(kind):
    device = "cuda" if kind == "gpu" else kind
    with pytest.warns(DeprecationWarning, match="deprecated"):
        getattr(torch, f"set_autocast_{kind}_dtype")(torch.get_autocast_dtype(device))
    if kind != "gpu":
        with pytest.warns(DeprecationWarning, match="deprecated"):
            getattr(torch, f"set_autocast_{kind}_enabled")(False)


def test_a_new_thread_starts_without():
    seen = []
    with torch.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append((is_on(), (x() @ x()).dtype)))
        thread.start()
        thread.join()
    assert seen == [(False, torch.float32)]


# --- what cannot be -----------------------------------------------------------------------------------------------


def test_devices_without_autocast():
    with pytest.raises(RuntimeError, match=r"^User specified an unsupported autocast device_type 'meta'$"):
        torch.autocast("meta")
    with pytest.raises(RuntimeError, match="foo"):
        torch.autocast("foo")
    with pytest.raises(ValueError, match=r"^Expected `device_type` of type `str`, got: `<class 'weft.*device'>`$"):
        torch.autocast(torch.device("cpu"))
    with pytest.raises(TypeError, match=r"^is_autocast_enabled\(\): argument 'device_type' must be str, not int$"):
        torch.is_autocast_enabled(3)
    with pytest.raises(TypeError, match=r"^autocast\(\)\(func\) requires a callable, but got int\."):
        torch.autocast("cpu")(3)
    with pytest.raises(TypeError, match=r"^enabled must be a bool \(got int\)$"):
        torch.set_autocast_cache_enabled(3)
    with pytest.raises(TypeError, match=r"argument 'enabled' must be bool, not int$"):
        torch.set_autocast_enabled("cpu", 3)
    with pytest.raises(TypeError, match=r"argument 'dtype' must be torch\.dtype, not int$"):
        torch.set_autocast_dtype("cpu", 3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_device_is_disabled():
    with pytest.warns(UserWarning, match="Disabling") as record:
        mixed = torch.autocast("cuda")
    assert str(record[0].message) == "User provided device_type of 'cuda', but CUDA is not available. Disabling"
    assert record[0].filename == __file__
    with mixed:
        assert not is_on("cuda")
    with warnings.catch_warnings():
        torch.autocast("cuda", enabled=False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64])
def test_other_types_disable_it(dtype):
    with pytest.warns(
        UserWarning, match=r"^In CPU autocast, but the target dtype is not supported\. Disabling"
    ) as record:
        mixed = torch.autocast("cpu", dtype=dtype)
    assert str(record[0].message).splitlines()[1] == (
        "CPU Autocast only supports dtypes of torch.bfloat16, torch.float16 currently."
    )
    with mixed:
        assert (x() @ x()).dtype is torch.float32


def test_a_banned_operator_says_what_to_do_instead():
    p = x(3) / 2
    with region("cuda"), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits and BCEWithLogits are\n"):
        torch.nn.BCELoss()(p, p)
    with region("cuda"):
        assert torch.nn.BCEWithLogitsLoss()(p, p).dtype is torch.float32
    with torch.autocast("cpu"):
        assert torch.nn.BCELoss()(p.bfloat16(), p).dtype is torch.float32


# --- what is left alone -------------------------------------------------------------------------------------------


def test_in_place_and_out_are_not_cast():
    with torch.autocast("cpu"):
        assert x().addmm_(x(), x()).dtype is torch.float32
        assert torch.addmm(x(), x(), x()).dtype is torch.bfloat16
        out = torch.empty(4, 4)
        assert torch.addmm(x(), x(), x(), out=out) is out
        big = x() * 1.001
        assert torch.mm(big, x(), out=out)[0, 0] != 4  # nothing was rounded to bfloat16
        with pytest.raises(RuntimeError, match="same dtype"):
            torch.mm(x(), x(dtype=torch.bfloat16), out=out)
    with region("cuda"):
        half = x(dtype=torch.float16)
        assert half.exp_().dtype is torch.float16
        assert torch.linalg.cross(x(3, dtype=torch.float16), x(3, dtype=torch.float16), out=half[0, :3]) is not None


def test_an_explicit_type_is_obeyed():
    half = x(dtype=torch.float16)
    with region("cuda"):
        assert half.sum().dtype is torch.float32
        assert half.sum(dtype=torch.float16).dtype is torch.float16
        assert F.softmax(half, 0).dtype is torch.float32
        assert F.softmax(half, 0, dtype=torch.float16).dtype is torch.float16
        assert half.norm(dtype=torch.float64).dtype is torch.float64
        assert half.cumsum(0, dtype=torch.float64).dtype is torch.float64


def test_other_types_are_never_cast():
    with torch.autocast("cpu"):
        assert (x(dtype=torch.float64) @ x(dtype=torch.float64)).dtype is torch.float64
        assert (x(dtype=torch.int64) @ x(dtype=torch.int64)).dtype is torch.int64
        assert (x(dtype=torch.complex64) @ x(dtype=torch.complex64)).dtype is torch.complex64
    with region("cuda"):
        assert x(dtype=torch.int64).sum().dtype is torch.int64
        assert x(dtype=torch.float64).exp().dtype is torch.float64


def test_unlisted_operators_take_what_comes():
    with torch.autocast("cpu"):
        y = x() @ x()
        assert (y + 1).dtype is torch.bfloat16
        assert (y + x()).dtype is torch.float32
        assert y.relu().dtype is torch.bfloat16
        assert y[0].dtype is torch.bfloat16


def test_a_view_of_what_was_cast_is_no_view():
    pairs = x(3, 2)
    with torch.autocast("cpu"):
        torch.view_as_complex(pairs).zero_()
        assert pairs.sum() == 0
        cast = torch.view_as_complex(x(3, 2, dtype=torch.bfloat16))
        assert cast.dtype is torch.complex64
        assert cast._base is None


# --- layers -------------------------------------------------------------------------------------------------------

LAYERS = {
    "linear": (lambda: torch.nn.Linear(4, 3), (2, 4)),
    "convolution and norms": (
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 2), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.GroupNorm(2, 4),
            torch.nn.InstanceNorm2d(4, affine=True), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.LazyLinear(3),
        ),
        (2, 2, 5, 5),
    ),
    "transformer": (lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0), (2, 3, 4)),
    "lstm": (lambda: torch.nn.LSTM(4, 3), (2, 2, 4)),
    "gru": (lambda: torch.nn.GRU(4, 3), (2, 2, 4)),
    "rnn": (lambda: torch.nn.RNN(4, 3), (2, 2, 4)),
    "lstm cell": (lambda: torch.nn.LSTMCell(4, 3), (2, 4)),
    "norms": (lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.RMSNorm(4)), (2, 4)),
    "attention": (lambda: torch.nn.MultiheadAttention(4, 2), None),
    "bilinear": (lambda: torch.nn.Bilinear(4, 4, 2), None),
    "pooling": (
        lambda: torch.nn.Sequential(torch.nn.Conv3d(1, 2, 2), torch.nn.MaxPool3d(2), torch.nn.AvgPool3d(1)),
        (1, 1, 4, 4, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "cuda", "xla"])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_layers_of_mixed_types_learn(name, device):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = make()
    with region(device):
        data = torch.randn(shape) if shape else torch.randn(3, 2, 4)
        result = layer(data, data, data) if name == "attention" else layer(data, data) if not shape else layer(data)
        first = result[0] if isinstance(result, tuple) else result
        loss = first.float().square().mean()
    loss.backward()
    used = [p for p in layer.parameters() if p.grad is not None]
    assert used
    assert all(p.grad.dtype is torch.float32 and p.grad.isfinite().all() for p in used)


# --- gradients, and the casts that are kept -----------------------------------------------------------------------


def test_gradients_come_back_in_the_type_of_the_leaf():
    w = x().requires_grad_()
    with torch.autocast("cpu"):
        y = torch.mm(w, w)
    y.sum().backward()
    assert y.dtype is torch.bfloat16
    assert w.grad.dtype is torch.float32
    assert w.grad[0, 0] == 8


def casts_recorded(function):
    with torch.autocast("cpu"):
        before = len(ambient().pending)
        results = function()
        recorded = [v for v in ambient().pending[before:] if v.origin.signature.name == "to_dtype"]
        del results
    return len(recorded)


def test_a_weight_is_cast_once_in_the_outermost_region():
    w, b = x().requires_grad_(), x()

    def nested():
        first = torch.mm(w, w)
        with torch.autocast("cpu", enabled=False):
            torch.mm(w, w)
        with torch.autocast("cpu"):
            return first, torch.mm(w, w), torch.addmm(w, w, w)

    assert casts_recorded(nested) == 1
    assert casts_recorded(lambda: [torch.mm(b, b) for _ in range(2)]) == 2  # no weight: one cast for each call

    def uncached():
        with torch.autocast("cpu", cache_enabled=False):
            return [torch.mm(w, w) for _ in range(2)]

    assert casts_recorded(uncached) == 2

    def cleared():
        first = torch.mm(w, w)
        torch.clear_autocast_cache()
        return first, torch.mm(w, w)

    assert casts_recorded(cleared) == 2
    assert not ambient().autocast.kept


def test_a_weight_that_is_written_is_cast_anew():
    w = x(2, 2).requires_grad_()
    with torch.autocast("cpu"):
        assert torch.mm(w, w)[0, 0] == 2
        with torch.no_grad():
            w.mul_(2)
        assert torch.mm(w, w)[0, 0] == 8
        w.data = x(2, 2) * 3
        assert torch.mm(w, w)[0, 0] == 18


def test_what_was_cast_without_gradients_has_them_with():
    w = x(2, 2).requires_grad_()
    with torch.autocast("cpu"):
        with torch.no_grad():
            torch.mm(w, w)
        torch.mm(w, w).sum().backward()
    assert w.grad[0, 0] == 4


def test_several_backward_passes_in_one_region():
    w = x(2, 2).requires_grad_()
    with torch.autocast("cpu"):
        for _ in range(3):
            torch.mm(w, x(2, 2)).sum().backward()
    assert w.grad[0, 0] == 6


def test_second_derivatives():
    w = x(2, 2).requires_grad_()
    with torch.autocast("cpu"):
        y = torch.mm(w, w).float().sum()
        (grad,) = torch.autograd.grad(y, w, create_graph=True)
    grad.sum().backward()
    assert w.grad.tolist() == [[4.0, 4.0], [4.0, 4.0]]


def test_inference_mode():
    w = x(2, 2).requires_grad_()
    with torch.autocast("cpu"):
        with torch.inference_mode():
            assert torch.mm(w, w).dtype is torch.bfloat16
        torch.mm(w, w).sum().backward()


# --- derivatives and operators of users ---------------------------------------------------------------------------


def product_function(cast_inputs):
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs)
        def forward(ctx, a, b, extra):
            ctx.save_for_backward(a, b)
            result = a.mm(b)
            seen.append((is_on(), a.dtype, result.dtype, extra["k"].dtype))
            return result

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            seen.append((is_on(), grad.dtype))
            return grad.mm(b.T), a.T.mm(grad), None

    return Product, seen


@pytest.mark.parametrize("cast_inputs", [None, torch.float32])
def test_functions_of_users(cast_inputs):
    product, seen = product_function(cast_inputs)
    a = x().requires_grad_()
    half = x(dtype=torch.bfloat16)
    with torch.autocast("cpu"):
        product.apply(a, half if cast_inputs else x(), {"k": half}).sum().backward()
    casts = cast_inputs is None
    expected = torch.bfloat16 if casts else torch.float32
    assert seen[0] == (casts, torch.float32, expected, half.dtype if casts else torch.float32)
    assert seen[1] == (casts, expected)
    assert a.grad.dtype is torch.float32
    del seen[:]
    product.apply(a, x(), {"k": half})
    assert seen == [(False, torch.float32, torch.float32, torch.bfloat16)]


def test_custom_fwd_wants_a_type_of_device():
    with pytest.raises(ValueError, match=r"^Expected `device_type` of type `str`"):
        torch.amp.custom_fwd(device_type=torch.device("cpu"))
    with pytest.raises(ValueError, match=r"^Expected `device_type` of type `str`"):
        torch.amp.custom_bwd(device_type=3)


def test_custom_operators_give_their_class():
    seen = []

    @custom_op("amp_test::twice", cast=Cast.LOWER)
    def twice(a: torch.Tensor) -> torch.Tensor:
        seen.append(is_on())
        return a @ a

    @custom_op("amp_test::wide", cast=Cast.FLOAT32)
    def wide(a: torch.Tensor) -> torch.Tensor:
        return a @ a

    @custom_op("amp_test::plain")
    def plain(a: torch.Tensor) -> torch.Tensor:
        return a @ a

    with torch.autocast("cpu"):
        assert twice(x()).dtype is torch.bfloat16
        assert wide(x(dtype=torch.bfloat16)).dtype is torch.float32
        assert plain(x()).dtype is torch.float32
    assert set(seen) == {False}
    assert twice(x()).dtype is torch.float32


def test_custom_operators_register_the_type_of_their_inputs():
    @custom_op("amp_test::square")
    def square(a: torch.Tensor) -> torch.Tensor:
        return a @ a

    square.register_autocast("cpu", torch.float16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert square(x()).dtype is torch.float16
        assert square(x(dtype=torch.float64)).dtype is torch.float64
    assert square(x()).dtype is torch.float32
    with pytest.raises(ValueError, match=r"^Unknown device type: 'cup'; expected one of cpu, "):
        square.register_autocast("cup", torch.float16)
    with pytest.raises(ValueError, match=r"^register_autocast: cast_inputs must be a dtype, got 'half'$"):
        square.register_autocast("cpu", "half")


# --- older spellings ----------------------------------------------------------------------------------------------


def test_older_spellings_warn_and_are_the_same():
    with pytest.warns(FutureWarning) as record:
        mixed = torch.cpu.amp.autocast(dtype=torch.float16)
    assert str(record[0].message) == (
        "`torch.cpu.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cpu', args...)` instead."
    )
    assert record[0].filename == __file__
    with mixed:
        assert (x() @ x()).dtype is torch.float16
    with pytest.warns(FutureWarning, match=r"^`torch\.cuda\.amp\.autocast\(args"):
        assert isinstance(torch.cuda.amp.autocast(enabled=False), torch.autocast)
    with pytest.warns(FutureWarning, match=r"^`torch\.cuda\.amp\.GradScaler\(args"):
        assert isinstance(torch.cuda.amp.GradScaler(enabled=False), torch.amp.GradScaler)
    with pytest.warns(FutureWarning, match=r"^`torch\.cpu\.amp\.GradScaler\(args"):
        assert torch.cpu.amp.GradScaler().is_enabled()
    with pytest.warns(FutureWarning, match=r"^`torch\.cuda\.amp\.custom_fwd\(args"):
        torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)
    with pytest.warns(FutureWarning, match=r"^`torch\.cuda\.amp\.custom_bwd\(args"):
        torch.cuda.amp.custom_bwd(lambda ctx: None)


# --- captures -----------------------------------------------------------------------------------------------------


def test_compiled_functions_are_captured_for_each_state():
    w = x().requires_grad_()

    @torch.compile(fullgraph=True)
    def product(a):
        return torch.mm(a, w)

    for _ in range(3):
        assert product(x()).dtype is torch.float32
        with torch.autocast("cpu"):
            assert product(x()).dtype is torch.bfloat16
            assert product(x()).dtype is torch.bfloat16
        with torch.autocast("cpu", dtype=torch.float16):
            y = product(x())
            assert y.dtype is torch.float16
    assert product._runs == 3
    y.sum().backward()
    assert w.grad.dtype is torch.float32
    assert w.grad[0, 0] == 4


def test_a_region_inside_of_a_compiled_step():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(8, 4)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu"):
            loss = F.mse_loss(model(data), data[:, :1])
        loss.backward()
        optimizer.step()
        return loss

    compiled = torch.compile(step, fullgraph=True)
    losses = [float(compiled()) for _ in range(5)]
    assert compiled._runs <= 2
    assert losses == sorted(losses, reverse=True)


def test_a_function_that_leaves_a_region_open_runs_uncaptured():
    def opens(a):
        torch.set_autocast_enabled("cpu", True)
        return a @ a

    compiled = torch.compile(opens)
    with pytest.warns(UserWarning, match="changes the gradient mode or a default"):
        assert compiled(x()).dtype is torch.bfloat16
    assert is_on()
    torch.set_autocast_enabled("cpu", False)


def test_checkpoints_compute_again_in_the_same_state():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 4) for _ in range(2)]
    data = torch.randn(3, 4)

    def gradients(run):
        for layer in layers:
            layer.zero_grad()
        with torch.autocast("cpu"):
            h = run(lambda a: layers[0](a).relu(), data)
            y = run(lambda a: layers[1](a).tanh(), h)
            assert y.dtype is torch.bfloat16
            loss = y.float().sum()
        loss.backward()  # outside: what is computed again is cast as it was
        return [p.grad.numpy().copy() for layer in layers for p in layer.parameters()]

    plain = gradients(lambda f, a: f(a))
    again = gradients(torch.utils.checkpoint.checkpoint)
    for one, other in zip(plain, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_to_jax_follows_a_region():
    import jax.numpy as jnp

    def product(a):
        with torch.autocast("cpu"):
            return a @ a

    assert torch.to_jax(product)(jnp.ones((2, 2), jnp.float32)).dtype == jnp.bfloat16


def test_outside_of_regions_nothing_is_different():
    assert ambient().autocast.enabled == frozenset()
    assert ambient().plain
