"""Gradient scaling: the order of its calls, skipped steps, state, and that nothing of it waits for a number."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest

import weft as torch
from tests.optim.test_fused import ALL, make, two
from weft import nn
from weft._lazy import flushing
from weft.amp.grad_scaler import OptState

GROWING = {"init_scale": 4.0, "growth_interval": 2}
STARTED = r"^Attempted {} but _scale is None\.  This may indicate your script did not use scaler\.scale\(loss or"


def scaler(**options):
    return torch.amp.GradScaler("cpu", **{**GROWING, **options})


def setup(**options):
    p = nn.Parameter(torch.tensor([1.0, 2.0]))
    return p, torch.optim.SGD([p], lr=0.5), scaler(**options)


def backward(s, p, factor=1.0):
    s.scale((p * factor).sum()).backward()


# --- an iteration -------------------------------------------------------------------------------------------------


def test_scale_takes_tensors_in_containers():
    s = scaler()
    assert float(s.scale(torch.tensor(2.0))) == 8
    a, (b,) = s.scale((torch.tensor(1.0), [torch.tensor(3.0)]))
    assert (float(a), float(b)) == (4, 12)
    assert [float(x) for x in s.scale(x for x in (torch.tensor(1.0), torch.tensor(2.0)))] == [4, 8]
    with pytest.raises(ValueError, match=r"^outputs must be a Tensor or an iterable of Tensors$"):
        s.scale(3)


def test_a_step_uses_unscaled_gradients():
    p, o, s = setup()
    backward(s, p)
    assert p.grad.tolist() == [4, 4]
    s.step(o)
    assert p.grad.tolist() == [1, 1]
    assert p.tolist() == [0.5, 1.5]
    s.update()
    assert s.get_scale() == 4


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_a_bad_gradient_skips_the_step_and_shrinks_the_scale(bad):
    p, o, s = setup()
    for factor, scale, value in ((1.0, 4.0, 0.5), (1.0, 8.0, 0.0), (bad, 4.0, 0.0), (1.0, 4.0, -0.5), (1.0, 8.0, -1.0)):
        o.zero_grad()
        backward(s, p, factor)
        s.step(o)
        s.update()
        assert (s.get_scale(), p[0].item()) == (scale, value)


def test_a_scale_never_grows_to_infinity():
    p, o, s = setup(init_scale=2.0**127, growth_interval=1, growth_factor=4.0)
    p.grad = torch.zeros(2)
    s.scale(torch.tensor(1.0))
    s.step(o)
    s.update()
    assert s.get_scale() == 2.0**127
    assert s.state_dict()["_growth_tracker"] == 0


def test_clipping_looks_at_unscaled_gradients():
    p, o, s = setup(init_scale=1024.0)
    backward(s, p, 3.0)
    s.unscale_(o)
    assert float(nn.utils.clip_grad_norm_([p], 1.0)) == pytest.approx(18**0.5)
    s.step(o)
    s.update()
    np.testing.assert_allclose(p.detach().numpy(), [1 - 0.5 / 2**0.5, 2 - 0.5 / 2**0.5], rtol=1e-6)


def test_accumulation():
    p, o, s = setup()
    backward(s, p)
    backward(s, p, 2.0)
    s.step(o)
    s.update()
    assert p.tolist() == [-0.5, 0.5]


def test_one_of_several_optimizers_may_skip():
    p, first, s = setup()
    q = nn.Parameter(torch.tensor([1.0]))
    second = torch.optim.Adam([q], lr=0.5)
    backward(s, p)
    backward(s, q, float("inf"))
    s.unscale_(second)
    s.step(first)
    s.step(second)
    s.update()
    assert p.tolist() == [0.5, 1.5]
    assert q.tolist() == [1.0]
    assert s.get_scale() == 2


def test_the_step_gives_what_the_optimizer_gives():
    p, o, s = setup()
    backward(s, p)
    assert s.step(o) is None


@pytest.mark.parametrize("text", ALL)
def test_a_skipped_step_changes_nothing(text):
    params = two()
    o = make(text, params)
    s = scaler()
    s.scale(torch.tensor(1.0))

    def step(bad):
        for at, param in enumerate(params):
            param.grad = (param.detach() + at).sin()
        if bad:
            params[1].grad[0, 0] = float("nan")
        s.step(o)
        s.update()

    step(False)
    before = [x.detach().numpy().copy() for x in (*params, *tensors(o))]
    step(True)
    for old, new in zip(before, (*params, *tensors(o)), strict=True):
        np.testing.assert_array_equal(old, new.detach().numpy())
    step(False)
    assert any((old != new.detach().numpy()).any() for old, new in zip(before, params, strict=False))


def tensors(optimizer):
    return [x for state in optimizer.state.values() for x in state.values() if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize("text", ALL)
def test_a_skipped_first_step_leaves_no_trace(text):
    def run(skips):
        params = two()
        o = make(text, params)
        s = scaler()
        s.scale(torch.tensor(1.0))
        for skip in (*skips, False, False):
            for at, param in enumerate(params):
                param.grad = (param.detach() + at).sin() * s._scale * (float("inf") if skip else 1.0)
            s.step(o)
            s.update()
        return [p.detach().numpy() for p in params]

    for with_skip, without in zip(run([True]), run([]), strict=True):
        np.testing.assert_allclose(with_skip, without, rtol=1e-6)


def test_sums_that_have_not_started_are_not_dampened():
    def run(skips):
        p = nn.Parameter(torch.tensor([1.0]))
        o = torch.optim.SGD([p], lr=0.5, momentum=0.5, dampening=0.5)
        s = scaler()
        s.scale(torch.tensor(1.0))
        for skip in (*skips, False, False):
            p.grad = torch.tensor([float("inf") if skip else 1.0]) * s._scale
            s.step(o)
            s.update()
        return p.item()

    assert run([True, True]) == run([])


# --- nothing waits ------------------------------------------------------------------------------------------------


def test_a_step_reads_nothing_and_computes_once(monkeypatch):
    counts = {"flushes": 0, "reads": 0}
    flush, read = flushing.flush, torch.Tensor._host

    def counted_flush(pending, wanted=()):
        counts["flushes"] += bool(pending)
        return flush(pending, wanted)

    def counted_read(tensor):
        counts["reads"] += 1
        return read(tensor)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    plain = torch.optim.AdamW(model.parameters(), lr=0.01)
    s = scaler(init_scale=2.0**16)
    data = torch.randn(8, 4)

    def iterate(step, factor):
        plain.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.mse_loss(model(data), data[:, :1]) * factor
        step(loss)

    def scaled(loss):
        s.scale(loss).backward()
        s.step(plain)
        s.update()

    def clipped(loss):
        s.scale(loss).backward()
        s.unscale_(plain)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        s.step(plain)
        s.update()

    iterate(scaled, 1.0)
    gc.collect()
    monkeypatch.setattr(flushing, "flush", counted_flush)
    monkeypatch.setattr(torch.Tensor, "_host", counted_read)
    monkeypatch.setattr(torch.Tensor, "_single", counted_read)
    for step in (scaled, clipped):
        for factor in (1.0, float("inf"), 1.0, 1.0):
            iterate(step, factor)
    assert counts == {"flushes": 8, "reads": 0}
    monkeypatch.undo()
    assert s.get_scale() == 2.0**16
    assert all(p.isfinite().all() for p in model.parameters())


def test_a_compiled_step_with_scaling_is_replayed():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    o = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    s = scaler()
    data = torch.randn(8, 4)

    def step(factor):
        o.zero_grad()
        with torch.autocast("cpu"):
            loss = nn.functional.mse_loss(model(data), data[:, :1])
        s.scale(loss * factor).backward()
        s.step(o)
        s.update()
        return loss

    compiled = torch.compile(step, fullgraph=True)
    losses, scales = [], []
    for factor in (1.0, 1.0, float("inf"), 1.0, 1.0, 1.0):
        losses.append(float(compiled(torch.tensor(factor))))
        scales.append(s.get_scale())
    assert scales == [4, 8, 4, 4, 8, 8]
    assert losses[2] == losses[3]
    assert losses[-1] < losses[0]
    assert compiled._runs <= 3


# --- optimizers of users ------------------------------------------------------------------------------------------


class Halving(torch.optim.Optimizer):
    """A user's optimizer: nothing but tensor operators."""

    def __init__(self, params):
        super().__init__(params, {})
        self.steps = 0

    @torch.no_grad()
    def step(self, extra=0):
        self.steps += 1
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad)
        return extra


def test_a_users_optimizer_is_not_called_in_a_skipped_step():
    p = nn.Parameter(torch.tensor([1.0]))
    o, s = Halving([p]), scaler()
    for factor, result in ((1.0, 3), (float("inf"), None)):
        o.zero_grad()
        backward(s, p, factor)
        assert s.step(o, extra=3) == result
        s.update()
    assert (o.steps, p.item()) == (1, 0.0)


def test_a_users_step_around_ours_is_not_called_in_a_skipped_step():
    class Counting(torch.optim.SGD):
        steps = 0

        def step(self, closure=None):
            type(self).steps += 1
            return super().step(closure)

    p = nn.Parameter(torch.tensor([1.0]))
    o, s = Counting([p], lr=0.5), scaler()
    backward(s, p, float("inf"))
    s.step(o)
    assert (Counting.steps, p.item()) == (0, 1.0)


def test_an_optimizer_that_deals_with_the_scale_itself():
    seen = []

    class Own(Halving):
        _step_supports_amp_scaling = True

        def step(self):
            seen.append((None if self.grad_scale is None else float(self.grad_scale), float(self.found_inf)))

    p = nn.Parameter(torch.tensor([1.0]))
    o, s = Own([p]), scaler()
    backward(s, p)
    s.step(o)
    s.update()
    assert p.grad.tolist() == [4]  # still scaled
    backward(s, p, float("inf"))
    s.unscale_(o)
    s.step(o)
    assert seen == [(4.0, 0.0), (None, 1.0)]
    assert not hasattr(o, "found_inf")

    class Asking(Halving):
        _step_supports_amp_scaling = True

        def step(self, grad_scaler=None):
            seen.append(grad_scaler)

    o = Asking([p])
    with pytest.warns(
        FutureWarning, match=r"^GradScaler is going to stop passing itself as a keyword argument"
    ) as record:
        s.step(o)
    assert seen[-1] is s
    assert record[0].filename == __file__


# --- errors -------------------------------------------------------------------------------------------------------


def test_the_order_of_calls():
    p, o, s = setup()
    for name in ("unscale_", "step"):
        with pytest.raises(AssertionError, match=STARTED.format(name)):
            getattr(s, name)(o)
    with pytest.raises(AssertionError, match=STARTED.format("update")):
        s.update()
    s.scale(torch.tensor(1.0))
    with pytest.raises(AssertionError, match=r"^No inf checks were recorded prior to update\.$"):
        s.update()
    with pytest.raises(AssertionError, match=r"^No inf checks were recorded for this optimizer\.$"):
        s.step(o)
    s = scaler()
    backward(s, p)
    s.unscale_(o)
    with pytest.raises(RuntimeError, match=r"^unscale_\(\) has already been called on this optimizer since the"):
        s.unscale_(o)
    s.step(o)
    with pytest.raises(RuntimeError, match=r"^unscale_\(\) is being called after step\(\)\.$"):
        s.unscale_(o)
    with pytest.raises(RuntimeError, match=r"^step\(\) has already been called since the last update\(\)\.$"):
        s.step(o)
    assert s._per_optimizer_states[id(o)]["stage"] is OptState.STEPPED
    s.update()
    s.unscale_(o)


def test_what_is_refused():
    _, o, s = setup()
    with pytest.raises(RuntimeError, match=r"^Closure use is not currently supported if GradScaler is enabled\.$"):
        s.step(o, closure=lambda: None)
    half = nn.Parameter(torch.ones(2, dtype=torch.float16))
    backward(s, half)
    with pytest.raises(ValueError, match=r"^Attempting to unscale FP16 gradients\.$"):
        s.unscale_(torch.optim.SGD([half], lr=0.1))
    for options, text in (
        ({"growth_factor": 1.0}, r"^The growth factor must be > 1\.0\.$"),
        ({"backoff_factor": 1.0}, r"^The backoff factor must be < 1\.0\.$"),
    ):
        with pytest.raises(AssertionError, match=text):
            scaler(**options)
    for new in (torch.ones(2), torch.ones(1, requires_grad=True), 3):
        with pytest.raises(AssertionError, match=r"^new_scale should be a float or a 1-element torch\.cuda"):
            s.update(new)
    with pytest.raises(RuntimeError, match=r"^The source state dict is empty, possibly because it was saved from"):
        s.load_state_dict({})


# --- settings and state -------------------------------------------------------------------------------------------


def test_a_new_scale():
    p, _, s = setup()
    backward(s, p)
    s.update(16.0)
    assert s.get_scale() == 16
    new = torch.tensor([32.0])
    s.update(new)
    new.zero_()
    assert s.get_scale() == 32


def test_settings():
    s = scaler()
    s.set_growth_factor(3.0)
    s.set_backoff_factor(0.25)
    s.set_growth_interval(7)
    assert (s.get_growth_factor(), s.get_backoff_factor(), s.get_growth_interval(), s.get_scale()) == (
        3.0,
        0.25,
        7,
        4.0,
    )
    assert s.is_enabled()


def test_state_goes_on_where_it_was():
    p, o, s = setup(growth_interval=3)
    for _ in range(4):
        o.zero_grad()
        backward(s, p)
        s.step(o)
        s.update()
    state = s.state_dict()
    assert state == {
        "scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3, "_growth_tracker": 1,
    }  # fmt: skip
    fresh, used = scaler(), scaler()
    used.scale(torch.tensor(1.0))
    for other in (fresh, used, pickle.loads(pickle.dumps(s)), copy.deepcopy(s)):
        other.load_state_dict(state)
        assert other.state_dict() == state
        assert float(other.scale(torch.tensor(1.0))) == 8
        assert other._get_growth_tracker() == 1
    assert pickle.loads(pickle.dumps(s)).state_dict() == state


def test_it_is_pickled_between_iterations():
    p, _, s = setup()
    backward(s, p)
    s.unscale_(torch.optim.SGD([p], lr=0.1))
    with pytest.raises(AssertionError, match=r"^A GradScaler instance may only be pickled at the beginning of an"):
        pickle.dumps(s)


def test_a_disabled_scaler_hands_everything_on():
    p, o, _ = setup()
    s = torch.amp.GradScaler("cpu", enabled=False)
    assert s.scale(p) is p
    p.grad = torch.ones(2)
    s.unscale_(o)
    s.step(o)
    s.update()
    s.load_state_dict({})
    assert p.tolist() == [0.5, 1.5]
    assert (s.is_enabled(), s.state_dict(), s.get_scale(), s._get_growth_tracker()) == (False, {}, 1.0, 0)
    assert not pickle.loads(pickle.dumps(s)).is_enabled()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_it_is_disabled():
    with pytest.warns(UserWarning, match=r"Disabling") as record:
        assert not torch.amp.GradScaler().is_enabled()
    assert str(record[0].message) == "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling."
    assert record[0].filename == __file__
