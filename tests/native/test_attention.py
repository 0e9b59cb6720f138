import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft as torch
from tests.native import formulas
from tests.native.formulas import close, draw
from weft.errors import DTypeError, ShapeError
from weft.nn import functional
from weft.ops._kernels import attention

time = st.sampled_from([1, 2, 7, 16, 31, 33, 64, 127, 128, 129, 200, 270])
features = st.sampled_from([1, 3, 8, 16, 17, 32, 40, 64, 70])


def check(q, k, v, causal, scale, eps=3e-5, mask=None, kept=None, kept_factor=1.0):
    wide = [x.astype(np.float64) for x in (q, k, v)]
    masks = (mask, 1.0 if kept is None else kept * kept_factor)
    out, lse = attention.attention(q, k, v, causal, scale, mask, kept, kept_factor)
    expected = formulas.attention(*wide, causal, scale, *masks)
    close(out, expected[0], eps)
    close(lse, expected[1], eps)
    g = draw(9, *out.shape)
    results = attention.attention_backward(g, out, lse, q, k, v, causal, scale, mask, kept, kept_factor)
    for result, gradient in zip(results, formulas.attention_backward(g, *wide, causal, scale, *masks), strict=True):
        close(result, gradient, 4 * eps)


@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), time, time, features, features, st.booleans())
def test_attention(batch, shared, group, queries, keys, size, value_size, causal):
    q = draw(1, batch, shared * group, queries, size)
    k, v = draw(2, batch, shared, keys, size), draw(3, batch, shared, keys, value_size)
    check(q, k, v, causal, size**-0.5)


def drawn_mask(shape, additive):
    """Some keys are not seen; the query 0 and the last one see none."""
    seen = np.random.default_rng(4).random(shape) < 0.6
    if shape[-2] > 1:
        seen[..., [0, -1], :] = False
    return np.where(seen, draw(5, *shape), np.float32(-np.inf)) if additive else seen


@given(st.tuples(*[st.booleans()] * 4), st.integers(1, 2), time, time, st.booleans(), st.booleans())
def test_masks(broadcast, group, queries, keys, additive, drops):
    q, k, v = draw(1, 2, 2 * group, queries, 9), draw(2, 2, 2, keys, 9), draw(3, 2, 2, keys, 17)
    scores = (2, 2 * group, queries, keys)
    mask = drawn_mask([1 if only else size for size, only in zip(scores, broadcast, strict=True)], additive)
    kept = np.random.default_rng(6).random(scores) < 0.7 if drops else None
    check(q, k, v, False, 0.3, mask=mask, kept=kept, kept_factor=1 / 0.7)


@pytest.mark.parametrize("causal", [False, True])
def test_dropout(causal):
    q, k, v = draw(1, 1, 4, 150, 8), draw(2, 1, 2, 140, 8), draw(3, 1, 2, 140, 8)
    kept = np.random.default_rng(6).random((1, 4, 150, 140)) < 0.5
    check(q, k, v, causal, 0.3, kept=kept, kept_factor=2.0)
    check(q, k, v, causal, 0.3, kept=np.zeros_like(kept), kept_factor=0.0)


def test_many_keys_of_one_head():
    """The gradient of the query is then summed over parts of the keys."""
    check(draw(1, 1, 1, 40, 8), draw(2, 1, 1, 1100, 8), draw(3, 1, 1, 1100, 8), False, 0.3)
    check(draw(1, 1, 2, 700, 8), draw(2, 1, 1, 700, 8), draw(3, 1, 1, 700, 8), True, 0.3)


@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_scales_that_are_not_positive(scale):
    check(draw(1, 1, 1, 30, 8), draw(2, 1, 1, 40, 8), draw(3, 1, 1, 40, 8), True, scale)


def test_a_mask_of_the_least_number():
    """Rows that have it in all places are means of the values, as for any number."""
    mask = np.full((1, 1, 30, 1), np.finfo(np.float32).min)
    q, k, v = draw(1, 1, 1, 30, 8), draw(2, 1, 1, 150, 8), draw(3, 1, 1, 150, 8)
    out, _ = attention.attention(q, k, v, False, 0.3, mask)
    close(out, np.broadcast_to(v.mean(2, keepdims=True), out.shape))


@pytest.mark.parametrize("causal", [False, True])
def test_large_scores(causal):
    """Exponentials of scores themselves would overflow."""
    check(8 * draw(1, 1, 2, 300, 16), 8 * draw(2, 1, 2, 300, 16), draw(3, 1, 2, 300, 16), causal, 1.0, 1e-3)


def test_keys_that_are_minus_infinity():
    """Such scores have no weight, also where the whole first block of keys has them."""
    q, k, v = np.ones((1, 1, 5, 4), np.float32), draw(2, 1, 1, 200, 4), draw(3, 1, 1, 200, 4)
    k[:, :, :150] = -np.inf
    out, lse = attention.attention(q, k, v, False, 0.5)
    expected = formulas.attention(*(x.astype(np.float64) for x in (q, k, v)), False, 0.5)
    close(out, expected[0])
    close(lse, expected[1])


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_a_mask_hides_is_not_seen(special):
    q, k, v = draw(1, 1, 1, 40, 8), draw(2, 1, 1, 40, 8), draw(3, 1, 1, 40, 8)
    mask = np.ones((1, 1, 1, 40), bool)
    mask[..., 7] = False
    expected = attention.attention(q, k, v, False, 0.5, mask)
    k[:, :, 7, 2] = special
    for result, same in zip(attention.attention(q, k, v, False, 0.5, mask), expected, strict=True):
        np.testing.assert_array_equal(result, same)


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_special_values_reach_who_sees_them(special):
    q, k, v = draw(1, 1, 1, 40, 8), draw(2, 1, 1, 40, 8), draw(3, 1, 1, 40, 8)
    q[0, 0, 7, 2] = special
    out, lse = (np.asarray(x) for x in attention.attention(q, k, v, True, 0.5))
    assert np.isnan(out[0, 0, 7]).all()
    assert np.isfinite(np.delete(out, 7, 2)).all()
    assert np.isfinite(np.delete(lse, 7, 2)).all()


def test_no_keys():
    q, k = draw(1, 1, 2, 3, 4), draw(2, 1, 2, 0, 4)
    out, lse = attention.attention(q, k, k, False, 1.0)
    dq, dk, _ = attention.attention_backward(q, out, lse, q, k, k, False, 1.0)
    assert not np.asarray(out).any()
    assert not np.asarray(dq).any()
    assert dk.shape == k.shape


@pytest.mark.parametrize("empty", [(0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 3, 0)])
def test_empty(empty):
    out, lse = attention.attention(*(np.zeros(empty, np.float32),) * 3, True, 1.0)
    assert out.shape == empty
    assert lse.shape == (*empty[:3], 1)


def test_refused():
    q = draw(1, 1, 3, 4, 8)
    with pytest.raises(ShapeError, match="a multiple of those of the key"):
        attention.attention(q, q[:, :2], q[:, :2], False, 1.0)
    with pytest.raises(ShapeError, match=r"the mask has shape \(1, 2, 4, 4\), which does not broadcast to"):
        attention.attention(q, q, q, False, 1.0, np.ones((1, 2, 4, 4), bool))
    with pytest.raises(ShapeError, match="weights that are kept has shape"):
        attention.attention(q, q, q, False, 1.0, None, np.ones((1, 1, 4, 4), bool))
    with pytest.raises(DTypeError, match="takes float32, got float64"):
        attention.attention(q, q, q, False, 1.0, np.ones((1, 1, 4, 4)))


# --- through the public interface -----------------------------------------------------------------------------


def attend(q, k, v, mask, **options):
    """The result, and the gradients of query, key, value and of a mask that wants one."""
    inputs = [q, k, v] if mask is None or not mask.requires_grad else [q, k, v, mask]
    torch.manual_seed(0)
    y = functional.scaled_dot_product_attention(q, k, v, mask, **options)
    grads = torch.autograd.grad(y, inputs, torch.linspace(-1, 1, y.numel()).reshape(y.shape))
    return [x.detach().numpy() for x in (y, *grads)]


@pytest.fixture
def both_bodies(monkeypatch):
    """Compare a computation by the kernels, of which it must call one, with that of the interpreted tier."""

    def run(compute, *inputs, **options):
        results = []
        for tier in ("compiled", "interpreted"):
            monkeypatch.setattr("weft._base.config.TIER", tier)
            calls.clear()
            results.append(compute(*inputs, **options))
            assert bool(calls) == (tier == "compiled")
        for ours, other in zip(*results, strict=True):
            close(ours, other, 1e-4)

    calls = []
    kernel = attention.attention
    monkeypatch.setattr(attention, "attention", lambda *args, **masks: calls.append(masks) or kernel(*args, **masks))
    return run


def tensors(*shapes):
    return [torch.tensor(draw(i, *shape), requires_grad=True) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize(
    ("shapes", "mask", "kind", "options"),
    [
        ([(5, 4), (7, 4), (7, 3)], None, None, {"is_causal": True}),
        ([(3, 5, 4), (3, 7, 4), (3, 7, 3)], (5, 7), "with gradient", {"dropout_p": 0.4}),
        ([(3, 5, 4), (3, 7, 4), (3, 7, 3)], (5, 1), "float", {}),
        ([(2, 2, 3, 5, 4), (2, 2, 1, 7, 4), (2, 2, 1, 7, 3)], (1, 1, 3, 1, 7), "bool", {}),
        ([(2, 4, 5, 4), (2, 2, 7, 4), (2, 2, 7, 3)], (2, 1, 5, 7), "bool", {"enable_gqa": True, "scale": 0.3}),
    ],
)
def test_calls_are_as_without_the_kernels(shapes, mask, kind, options, both_bodies):
    if mask is not None:
        mask = torch.tensor(drawn_mask(mask, kind != "bool"), requires_grad=kind == "with gradient")
    both_bodies(attend, *tensors(*shapes), mask, **options)


def test_a_layer_with_masks(both_bodies):
    """Padding masks and causal masks of layers reach the kernels."""
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x, memory = tensors((2, 5, 8), (2, 7, 8))
    padding = torch.where(torch.arange(7) >= torch.tensor([[7], [4]]), -torch.inf, 0.0)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(7)[:5]

    def step():
        y = layer(x, memory, memory, padding, need_weights=False, attn_mask=causal)[0]
        return [z.detach().numpy() for z in (y, *torch.autograd.grad(y.pow(2).sum(), [x, memory]))]

    both_bodies(step)
