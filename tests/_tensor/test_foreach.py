"""Functions over lists of tensors. Expected numbers are those of torch 2.13.0."""

from __future__ import annotations

import pytest

import weft


def tensors():
    return [weft.tensor([1.0, 2.0]), weft.tensor([3.0])]


def others():
    return [weft.tensor([10.0, 20.0]), weft.tensor([30.0])]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda a, b: weft._foreach_add(a, b, alpha=2), [[21, 42], [63]]),
        (lambda a, _: weft._foreach_add(a, 1), [[2, 3], [4]]),
        (lambda a, _: weft._foreach_add(a, [1, 2]), [[2, 3], [5]]),
        (lambda a, _: weft._foreach_add(a, weft.tensor(5.0), alpha=2), [[11, 12], [13]]),
        (lambda a, _: weft._foreach_add(self=a, scalar=1), [[2, 3], [4]]),
        (lambda a, b: weft._foreach_addcdiv(a, a, b, 0.5), [[1.05, 2.05], [3.05]]),
        (lambda a, b: weft._foreach_addcdiv(a, a, b, weft.tensor([0.5, 1])), [[1.05, 2.05], [3.1]]),
        (lambda a, b: weft._foreach_addcmul(a, tensor2=b, tensor1=a, scalars=[1, 2]), [[11, 42], [183]]),
        (lambda a, b: weft._foreach_lerp(a, b, weight=0.5), [[5.5, 11], [16.5]]),
        (lambda a, b: weft._foreach_lerp(a, b, a), [[10, 38], [84]]),
        (lambda a, _: weft._foreach_pow(a, 2), [[1, 4], [9]]),
        (lambda a, _: weft._foreach_pow(2, a), [[2, 4], [8]]),
        (lambda a, _: weft._foreach_maximum(a, [1.5, 9]), [[1.5, 2], [9]]),
        (lambda a, b: weft._foreach_minimum(a, b), [[1, 2], [3]]),
        (lambda a, _: weft._foreach_neg(tuple(a)), [[-1, -2], [-3]]),
        (lambda a, _: weft._foreach_clone(a), [[1, 2], [3]]),
        (lambda a, _: weft._foreach_max(a), [2, 3]),
        (lambda a, _: weft._foreach_norm(a), [2.23606801, 3]),
        (lambda a, _: weft._foreach_norm(a, float("inf")), [2, 3]),
        (lambda a, _: weft._foreach_powsum(a, 3), [9, 27]),
        (lambda *_: weft._foreach_mm([weft.eye(2)], [weft.ones(2, 2)]), [[[1, 1], [1, 1]]]),
        (lambda *_: weft._foreach_div([weft.tensor([3])], 2), [[1.5]]),
    ],
)
def test_each_tensor_has_a_result(call, expected):
    results = call(tensors(), others())
    assert isinstance(results, tuple)
    for result, numbers in zip(results, expected, strict=True):
        weft.testing.assert_close(result, weft.tensor(numbers).float())


def test_lists_are_written_in_place():
    a = tensors()
    assert weft._foreach_mul_(a, others()) is a
    weft._foreach_sub_(a, 1)
    weft._foreach_sqrt_(a)
    assert a[0].tolist() == pytest.approx([3, 6.244998])
    weft._foreach_copy_(a, others())
    weft._foreach_zero_(a[1:])
    assert [x.tolist() for x in a] == [[10, 20], [0]]


def test_a_list_has_gradients():
    a = [x.requires_grad_() for x in tensors()]
    sum(y.sum() for y in weft._foreach_mul(a, others())).backward()
    assert [x.grad.tolist() for x in a] == [[10, 20], [30]]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda a: weft._foreach_add(a, a[:1]), RuntimeError, "must have the same number of tensors, got 2 and 1"),
        (lambda a: weft._foreach_add(a, [1]), RuntimeError, "must have same number of elements as scalar list"),
        (lambda _: weft._foreach_abs([]), RuntimeError, "must have at least one tensor"),
        (lambda a: weft._foreach_abs(a[0]), TypeError, "must be tuple of Tensors, not Tensor"),
        (
            lambda _: weft._foreach_abs([None]),
            TypeError,
            "expected Tensor as element 0 in argument 0, but got NoneType",
        ),
    ],
)
def test_lists_that_do_not_fit(call, error, text):
    with pytest.raises(error, match=text):
        call(tensors())


def test_gradients_are_unscaled_and_scales_updated():
    grads, found_inf = tensors(), weft.zeros(1)
    weft._amp_foreach_non_finite_check_and_unscale_(grads, found_inf, weft.tensor(0.5))
    assert ([x.tolist() for x in grads], found_inf.item()) == ([[0.5, 1], [1.5]], 0)
    scale, tracker = weft.tensor([4.0]), weft.zeros(1, dtype=weft.int32)
    for expected in ((4, 1), (8, 0), (8, 1)):
        weft._amp_update_scale_(scale, tracker, found_inf, 2.0, 0.5, 2)
        assert (scale.item(), tracker.item()) == expected
    weft._amp_foreach_non_finite_check_and_unscale_([weft.tensor([float("nan")])], found_inf, weft.tensor(0.5))
    weft._amp_update_scale_(scale, tracker, found_inf, 2.0, 0.5, 2)
    assert (found_inf.item(), scale.item(), tracker.item()) == (1, 4, 0)
