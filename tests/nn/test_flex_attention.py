"""Attention with scores and masks given as functions. The numbers were compared with PyTorch's."""

from __future__ import annotations

import math

import pytest

import weft as torch
from weft import nn
from weft.nn.attention import SDPBackend, sdpa_kernel
from weft.nn.attention.bias import CausalVariant, causal_lower_right, causal_upper_left
from weft.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    noop_mask,
    or_masks,
)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def inputs(batch=2, heads=4, queries=5, key_heads=2, keys=7, features=4):
    sizes = ((batch, heads, queries, features), (batch, key_heads, keys, features), (batch, key_heads, keys, 3))
    return [torch.randn(size, requires_grad=True) for size in sizes]


def test_scores_and_a_mask():
    query, key, value = inputs()
    bias = torch.randn(4, 13, requires_grad=True)

    def score(scores, b, h, q_idx, kv_idx):
        return scores + bias[h, q_idx - kv_idx + 6] * (b + 1)

    def mask(b, h, q_idx, kv_idx):
        return (q_idx + 1 >= kv_idx) & (kv_idx != 2 * b) & (q_idx != 3)

    blocks = create_block_mask(mask, 2, None, 5, 7, BLOCK_SIZE=2)
    out, aux = flex_attention(
        query, key, value, score, blocks, enable_gqa=True, return_aux=AuxRequest(lse=True, max_scores=True)
    )

    q, k = torch.arange(5).view(-1, 1), torch.arange(7)
    table = torch.stack([torch.stack([bias[h][q - k + 6] * (b + 1) for h in range(4)]) for b in range(2)])
    seen = torch.stack([(q + 1 >= k) & (k != 2 * b) & (q != 3) for b in range(2)])[:, None]
    scores = query @ key.repeat_interleave(2, 1).transpose(-2, -1) / 2 + table
    scores = scores.masked_fill(~seen, -1e30)
    weights = scores.softmax(-1) * seen.any(-1, keepdim=True)
    expected = weights @ value.repeat_interleave(2, 1)
    torch.testing.assert_close(out, expected)
    assert out[:, :, 3].eq(0).all()
    rows = [0, 1, 2, 4]
    torch.testing.assert_close(aux.lse[:, :, rows], scores.logsumexp(-1)[:, :, rows])
    torch.testing.assert_close(aux.max_scores[:, :, rows], scores.amax(-1)[:, :, rows])
    assert aux.lse[:, :, 3].eq(-math.inf).all()
    leaves = (query, key, value, bias)
    grads = torch.autograd.grad((out * out).sum(), leaves)
    for grad, wanted in zip(grads, torch.autograd.grad((expected * expected).sum(), leaves), strict=True):
        torch.testing.assert_close(grad, wanted)


def test_without_functions_it_is_ordinary_attention():
    query, key, value = (x.half() for x in inputs(key_heads=4))
    out = flex_attention(query, key, value, scale=0.3)
    assert out.dtype is torch.float16
    plain = nn.functional.scaled_dot_product_attention(query, key, value, scale=0.3)
    torch.testing.assert_close(out, plain, atol=2e-3, rtol=0)
    with pytest.warns(UserWarning, match="^return_lse is deprecated"):
        assert flex_attention(query, key, value, return_lse=True)[1].shape == (2, 4, 5)


def test_masks_are_combined():
    first = create_mask(and_masks(causal, lambda b, h, q, k: k < 1), None, None, 2, 3)
    assert first.int().tolist() == [[[[1, 0, 0], [1, 0, 0]]]]
    assert create_mask(or_masks(causal, lambda b, h, q, k: k < 1), 1, 1, 2, 2).int().tolist() == [[[[1, 0], [1, 1]]]]
    assert create_mask(noop_mask, 1, 2, 1, 1).tolist() == [[[[True]], [[True]]]]
    scores = create_mask(lambda s, b, h, q, k: torch.where(q >= k, s, -math.inf), None, None, 2, 2)
    assert scores.int().tolist() == [[[[1, 0], [1, 1]]]]


def test_blocks():
    blocks = create_block_mask(causal, 1, 1, 384, 384)
    assert blocks.to_dense().tolist() == [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
    assert blocks.kv_num_blocks.tolist() == [[[1, 1, 1]]]
    assert blocks.full_kv_num_blocks.tolist() == [[[0, 1, 2]]]
    assert blocks.kv_indices.tolist() == [[[[0, 1, 2], [1, 0, 2], [2, 0, 1]]]]
    assert blocks.full_q_num_blocks.tolist() == [[[2, 1, 0]]]
    assert (blocks.shape, blocks.numel(), blocks.BLOCK_SIZE) == ((1, 1, 384, 384), 384 * 384, (128, 128))
    assert blocks.sparsity() == pytest.approx(100 / 3)
    assert blocks._adjust(130, 130).to_dense().tolist() == [[[[1, 0], [1, 1]]]]
    assert blocks[0, 0, 1:].kv_num_blocks.tolist() == [[[1, 1]]]
    assert "mask_mod=causal" in repr(blocks.to("cpu"))
    assert create_block_mask(causal, 1, 1, 4, 4, BLOCK_SIZE=2, separate_full_blocks=False).full_kv_indices is None


def test_blocks_alone_are_a_mask():
    columns = torch.tensor([[[[1, 0], [0, 1]]]], dtype=torch.int32)
    blocks = BlockMask.from_kv_blocks(torch.tensor([[[1, 2]]], dtype=torch.int32), columns, BLOCK_SIZE=2)
    assert create_mask(blocks.mask_mod, 2, 3, 4, 4)[1, 2].int().tolist() == [[0, 0, 1, 1]] * 2 + [[1] * 4] * 2


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda q, k, v: flex_attention(q, k, v), ValueError, "number of heads but got Hq=4 and Hkv=2"),
        (
            lambda q, k, v: flex_attention(q[0], k[0], v[0]),
            NotImplementedError,
            "^NYI: query, key, and value must be 4D",
        ),
        (lambda q, k, v: flex_attention(q, k.double(), v, enable_gqa=True), ValueError, "to have the same dtype"),
        (lambda q, k, v: flex_attention(q[:, :3], k, v, enable_gqa=True), ValueError, "to be a multiple of kv heads"),
        (lambda q, k, v: flex_attention(q, k[:0], v[:0], enable_gqa=True), ValueError, "got Bq=2, and Bkv=0"),
        (
            lambda q, k, v: flex_attention(q, k, v, None, create_block_mask(causal, 1, 1, 9, 9), enable_gqa=True),
            ValueError,
            r"block_mask.shape=\(1, 1, 9, 9\) but got q_len=5 and kv_len=7",
        ),
        (
            lambda q, k, v: flex_attention(q, k, v, None, create_block_mask(causal, 1, 1, 5, 7)[0], enable_gqa=True),
            RuntimeError,
            "^Cannot use mask_mod from a sliced BlockMask$",
        ),
        (lambda *_: create_block_mask(lambda s, b, h, q, k: s, 1, 1, 2, 2), AssertionError, "requires a mask_mod"),
        (
            lambda *_: create_mask(lambda q, k: q, 1, 1, 2, 2),
            AssertionError,
            "^Expected 4 or 5 positional args, got 2$",
        ),
        (lambda *_: and_masks(3), RuntimeError, "^All inputs should be callable mask_mods"),
        (lambda *_: causal_upper_left(3), AssertionError, "^causal_upper_left only supports 2D tensors"),
        (lambda *_: sdpa_kernel(3).__enter__(), AssertionError, "^Backend must be an instance of SDPBackend or a list"),
    ],
)
def test_refusals(call, kind, text):
    with pytest.raises(kind, match=text):
        call(*inputs())


def test_causal_biases():
    assert causal_upper_left(2, 3).int().tolist() == [[1, 0, 0], [1, 1, 0]]
    lower = causal_lower_right(2, 3)
    assert (lower.int().tolist(), lower.variant) == ([[1, 1, 0], [1, 1, 1]], CausalVariant.LOWER_RIGHT)
    query, key, value = inputs(key_heads=4)
    assert torch.equal(
        nn.functional.scaled_dot_product_attention(query, key, value, causal_upper_left(5, 7)),
        nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True),
    )


def test_the_choice_of_implementations_is_remembered():
    cuda = torch.backends.cuda
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        assert (cuda.math_sdp_enabled(), cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled()) == (1, 1, 0)
    assert cuda.mem_efficient_sdp_enabled()
    cuda.enable_flash_sdp(False)
    assert not cuda.flash_sdp_enabled()
    cuda.enable_flash_sdp(True)
    with pytest.warns(FutureWarning, match=r"^`torch.backends.cuda.sdp_kernel\(\)` is deprecated"):
        context = cuda.sdp_kernel(enable_math=False)
    with context:
        assert (cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled()) == (False, True)
