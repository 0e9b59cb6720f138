"""Types of results, of losses above all, and results without elements. The expected ones are PyTorch's."""

from __future__ import annotations

import cmath

import numpy as np
import pytest

import weft as torch
from weft.nn import functional as F

HALF, FLOAT, DOUBLE, LONG, BOOL = torch.float16, torch.float32, torch.float64, torch.int64, torch.tensor(True).dtype


@pytest.mark.parametrize(
    ("loss", "input", "target", "result"),
    [
        (F.cross_entropy, FLOAT, DOUBLE, DOUBLE),
        (F.cross_entropy, HALF, FLOAT, FLOAT),
        (F.cross_entropy, DOUBLE, FLOAT, DOUBLE),
        (F.binary_cross_entropy_with_logits, FLOAT, HALF, HALF),
        (F.binary_cross_entropy_with_logits, DOUBLE, FLOAT, FLOAT),
        (F.binary_cross_entropy_with_logits, FLOAT, DOUBLE, DOUBLE),
        (F.huber_loss, FLOAT, DOUBLE, FLOAT),
        (F.huber_loss, FLOAT, LONG, FLOAT),
        (F.hinge_embedding_loss, HALF, FLOAT, HALF),
        (F.mse_loss, FLOAT, DOUBLE, DOUBLE),
        (F.l1_loss, HALF, FLOAT, FLOAT),
        (F.kl_div, HALF, FLOAT, FLOAT),
    ],
)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_of_two_types(loss, input, target, result, reduction):
    x = torch.ones(2, 3, dtype=input, requires_grad=True)
    y = loss(x, torch.ones(2, 3).to(target), reduction=reduction)
    assert y.dtype is result
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is input


@pytest.mark.parametrize(
    ("loss", "input", "target", "message"),
    [
        (
            F.binary_cross_entropy_with_logits,
            FLOAT,
            LONG,
            "result type Float can't be cast to the desired",
        ),
        (F.binary_cross_entropy_with_logits, FLOAT, BOOL, "Subtraction, the `-` operator, with a bool tensor"),
        (F.binary_cross_entropy_with_logits, LONG, FLOAT, "\"log_sigmoid_cpu\" not implemented for 'Long'"),
        (F.l1_loss, FLOAT, BOOL, "Subtraction, the `-` operator, with a bool tensor"),
        (F.kl_div, FLOAT, LONG, "kl_div: Integral inputs not supported"),
        (F.huber_loss, LONG, FLOAT, "\"huber_cpu\" not implemented for 'Long'"),
        (F.hinge_embedding_loss, LONG, FLOAT, r"mean\(\): could not infer output dtype"),
    ],
)
def test_types_that_a_loss_refuses(loss, input, target, message):
    with pytest.raises(RuntimeError, match=message):
        loss(torch.ones(2, 3, dtype=input), torch.ones(2, 3, dtype=target))


def test_a_bool_to_the_power_of_a_python_bool():
    x = torch.tensor([True, False])
    assert (x**True).tolist() == [True, False]
    assert (x**False).tolist() == [True, True]
    assert torch.pow(x, True, out=torch.zeros(2, dtype=BOOL)).tolist() == [True, False]
    with pytest.raises(NotImplementedError, match="\"pow\" not implemented for 'Bool'"):
        _ = x**x


@pytest.mark.parametrize("shapes", [((0, 0), (0,)), ((0, 0, 0), (0,)), ((2, 0, 0), (0,)), ((2, 3, 0), (0,))])
def test_products_over_no_elements(shapes):
    a, b = map(torch.ones, shapes)
    assert (a @ b).tolist() == np.matmul(a.numpy(), b.numpy()).tolist()


def test_joins_of_nothing():
    assert torch.block_diag().shape == (1, 0)
    for r in range(1, 4):
        assert torch.combinations(torch.empty(0), r).shape == (0, r)
        assert torch.combinations(torch.empty(0), r, with_replacement=True).shape == (0, r)


def test_names_of_the_arguments_of_tensor_split():
    x = torch.arange(4)
    assert [part.tolist() for part in torch.tensor_split(x, indices=[1])] == [[0], [1, 2, 3]]
    assert [part.tolist() for part in x.tensor_split(sections=2)] == [[0, 1], [2, 3]]
    assert len(torch.tensor_split(x, tensor_indices_or_sections=torch.tensor(2))) == 2
    with pytest.raises(TypeError, match="takes one of indices and sections, but got 2"):
        torch.tensor_split(x, 2, indices=[1])


def test_numbers_in_arrays_within_sequences():
    assert torch.tensor(((7, np.array(5)), (np.array(9), 5.0))).tolist() == [[7, 5], [9, 5]]
    assert torch.tensor([np.array(5), np.array(6)]).dtype is LONG


def test_the_type_of_tensors():
    assert torch.tensor([1, 2]).type(torch.Tensor).dtype is FLOAT


@pytest.mark.parametrize(
    "z", [1e-19 + 1e-18j, 1e-8 + 1e-8j, 1e-300 + 1e-300j, -1e-10 + 1e-5j, 1e-5j, 2 + 3j, -0.3 - 2j]
)
def test_the_logarithm_of_complex_numbers_near_one(z):
    y = torch.log1p(torch.tensor(z, dtype=torch.complex128)).item()
    exact = cmath.log(1 + z) if abs(z) > 0.1 else z - z * z / 2 + z**3 / 3
    assert y.real == pytest.approx(exact.real, rel=1e-12)
    assert y.imag == pytest.approx(exact.imag, rel=1e-12)


def test_edges_have_the_type_of_the_elements():
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.tensor([0.3, -0.3, 0.2, 0.5], dtype=dtype)
        assert F.hardshrink(x, 0.3).tolist() == [0, 0, 0, 0.5]


def test_attention_with_a_mask_and_without_the_future():
    q, k, v = torch.randn(3, 1, 2, 5, 4).unbind()
    mask = torch.randn(5, 5)
    future = torch.full((5, 5), -torch.inf).triu(1)
    both = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=True)
    assert torch.allclose(both, F.scaled_dot_product_attention(q, k, v, attn_mask=mask + future), atol=1e-6)
    seen = mask > -1
    seen[:, 0] = True
    both = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=True)
    only = F.scaled_dot_product_attention(q, k, v, attn_mask=seen & torch.ones(5, 5, dtype=BOOL).tril())
    assert torch.allclose(both, only, atol=1e-6)


@pytest.mark.parametrize(
    ("mode", "size", "first"),
    [("bilinear", (3, 4), [8.751, 12.206, 10.211]), ("bicubic", (3, 4), [8.828, 12.727, 10.048])],
)
def test_antialiased_images(mode, size, first):
    x = (torch.arange(2 * 3 * 7 * 9.0) * 37 % 19).reshape(2, 3, 7, 9)
    y = F.interpolate(x, size, mode=mode, antialias=True)
    assert y.shape == (2, 3, *size)
    assert y.flatten()[:3].tolist() == pytest.approx(first, abs=1e-3)
    assert torch.allclose(F.interpolate(torch.ones(1, 1, 7, 9), size, mode=mode, antialias=True), torch.ones(1))
    larger = F.interpolate(x, (14, 18), mode="bilinear", antialias=True)
    assert torch.allclose(larger, F.interpolate(x, (14, 18), mode="bilinear"), atol=1e-5)


def test_print_options_of_an_unknown_profile():
    before = torch.get_printoptions() if hasattr(torch, "get_printoptions") else None
    torch.set_printoptions(profile="long")
    assert before is None or torch.get_printoptions() == before
