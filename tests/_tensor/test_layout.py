"""Strides, offsets and addresses follow from the path of a view; what PyTorch copies is a copy."""

from __future__ import annotations

import pytest

import weft


def numbers(*shape):
    size = 1
    for n in shape:
        size *= n
    return weft.arange(float(size)).reshape(shape).clone()


LAYOUTS = [
    ("transpose", lambda x: x.t(), (1, 4), 0),
    ("select", lambda x: x[1], (1,), 4),
    ("column", lambda x: x[:, -1], (4,), 3),
    ("steps", lambda x: x[1:, ::2], (4, 2), 4),
    ("expand", lambda x: x[:, None].expand(-1, 5, -1), (4, 0, 1), 0),
    ("unsqueeze", lambda x: x.t().unsqueeze(-1), (1, 4, 1), 0),
    ("squeeze", lambda x: x[:1].squeeze(), (1,), 0),
    ("diagonal", lambda x: x.diagonal(1), (5,), 1),
    ("unfold", lambda x: x.unfold(1, 2, 2), (4, 2, 1), 0),
    ("regrouped", lambda x: x[:, :2].view(3, 2, 1), (4, 1, 1), 0),
    ("movedim", lambda x: x.view(3, 2, 2).movedim(0, -1), (2, 1, 4), 0),
    ("as_strided", lambda x: x[1:].as_strided((2, 2), (3, 2)), (3, 2), 4),
    ("an index tensor", lambda x: x[weft.tensor(-1), 1:], (1,), 9),
    ("imag", lambda x: weft.view_as_complex(x.view(3, 2, 2)).t().imag, (2, 4), 1),
    ("bytes", lambda x: x[1:, 2:].view(weft.uint8), (16, 1), 24),
]


@pytest.mark.parametrize(("view", "stride", "offset"), [row[1:] for row in LAYOUTS], ids=[row[0] for row in LAYOUTS])
def test_layouts(view, stride, offset):
    x = numbers(3, 4)
    part = view(x)
    assert (part.stride(), part.storage_offset()) == (stride, offset)
    assert part.data_ptr() - x.data_ptr() == offset * part.element_size()
    assert part.untyped_storage().data_ptr() == x.data_ptr()
    assert part.stride(-1) == stride[-1]


def test_a_copy_is_made_where_strides_cannot_show_the_shape():
    for flatten in (
        lambda x: x.contiguous(),
        lambda x: x.reshape(-1),
        lambda x: x.flatten(),
        lambda x: x.ravel(),
        lambda x: x.reshape_as(weft.ones(12)),
        lambda x: x.reshape(2, 6),
    ):
        x = numbers(3, 4)
        flatten(x.t()).zero_()
        assert x.sum() == 66
        flatten(x).zero_()
        assert x.sum() == 0


def test_copies_of_views_pass_gradients_on():
    x = numbers(2, 3).requires_grad_()
    (x.t().reshape(-1) * weft.arange(6.0)).sum().backward()
    assert x.grad.tolist() == [[0, 2, 4], [1, 3, 5]]


def test_some_reshapes_of_views_are_views():
    x = numbers(4, 6)
    assert x[:, ::2].reshape(4, 3, 1).stride() == (6, 2, 2)
    x[::2].reshape(2, 3, 2).zero_()
    assert x.sum(1).tolist() == [0, 51, 0, 123]
    assert not x[:, ::2].ravel().is_set_to(x[:, ::2])
    assert x[:, 0].reshape(-1).is_set_to(x[:, 0])


def test_view_refuses_what_takes_a_copy():
    x = numbers(2, 3).t()
    text = (
        r"^view size is not compatible with input tensor's size and stride \(at least one dimension spans across two "
        r"contiguous subspaces\)\. Use \.reshape\(\.\.\.\) instead\.$"
    )
    for view in (lambda: x.view(-1), lambda: x.view_as(numbers(6)), lambda: weft.ones(6, 4).t()[:, ::2].view(-1)):
        with pytest.raises(RuntimeError, match=text):
            view()
    with pytest.raises(RuntimeError, match=r"^shape '\[7\]' is invalid for input of size 6$"):
        x.view(7)


def test_what_is_contiguous():
    x = numbers(2, 3)
    assert x.contiguous() is x
    assert x[1:].contiguous().is_set_to(x[1:])
    assert not x.t().is_contiguous()
    assert x.t().contiguous().stride() == (2, 1)
    assert weft.ones(1, 3).t().is_contiguous()


def test_memory_formats():
    x = numbers(2, 3, 4, 5)
    last = x.contiguous(memory_format=weft.channels_last)
    assert last.stride() == (60, 1, 15, 3)
    assert last.dim_order() == (0, 2, 3, 1)
    assert last.is_contiguous(memory_format=weft.channels_last)
    assert not last.is_contiguous()
    assert weft.equal(last, x)
    last.zero_()
    assert x.sum() > 0
    assert weft.nn.Conv2d(3, 2, 2).to(memory_format=weft.channels_last).weight.stride() == (12, 1, 6, 3)
    with pytest.raises(RuntimeError, match=r"^required rank 4 tensor to use channels_last format$"):
        weft.ones(2, 3).contiguous(memory_format=weft.channels_last)


def test_addresses_stay_and_tell_storages_apart():
    x = weft.ones(3)
    before = x.data_ptr()
    x.add_(1)
    assert x.data_ptr() == before != x.clone().data_ptr()
    assert x.detach().data_ptr() == x.view(3, 1).data_ptr() == before
    assert weft.zeros(0).data_ptr() == 0


def test_as_strided_reads_and_writes_the_storage():
    x = numbers(10)
    x[2:].as_strided((2, 3), (3, 1), 1).mul_(10)
    assert x.tolist() == [0, 10, 20, 30, 40, 50, 60, 7, 8, 9]
    sliding = x.as_strided((3, 2), (1, 1))
    x[1] = -1
    assert sliding.tolist() == [[0, -1], [-1, 20], [20, 30]]
    sliding[1].fill_(5)
    assert x[:4].tolist() == [0, 5, 5, 30]
    x.as_strided_((2,), (9,))
    assert x.tolist() == [0, 9]


def test_as_strided_passes_gradients_on():
    x = numbers(6).requires_grad_()
    (x * 2).view(2, 3).t().as_strided((2, 2), (1, 1), 1).sum().backward()
    assert x.grad.tolist() == [0, 2, 4, 2, 0, 0]
    leaf = numbers(6)[2:].detach().requires_grad_()
    leaf.view(2, 2).as_strided((2,), (2,), 3).sum().backward()
    assert leaf.grad.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (((7,), (1,)), r"^setStorage: sizes \[7\], strides \[1\], storage offset 0, and itemsize 4 requiring"),
        (((2,), (1,), -1), r"^Tensor: invalid storage offset -1$"),
        (((2, 2), (1,)), r"^mismatch in length of strides and shape$"),
        (((2,), (-1,)), r"^as_strided: Negative strides are not supported at the moment, got strides: \[-1\]$"),
        (((-1,), (1,)), r"^Storage size calculation overflowed with sizes=\[-1\] and strides=\[1\]$"),
        (
            ((2,), (2**62,)),
            r"^Storage size calculation overflowed with sizes=\[2\] and strides=\[4611686018427387904\]$",
        ),
    ],
)
def test_places_that_a_storage_does_not_have(arguments, text):
    with pytest.raises(RuntimeError, match=text):
        numbers(2, 3).as_strided(*arguments)


def test_views_of_another_type():
    x = weft.zeros(4)
    x.view(weft.int32)[1] = 1065353216
    x[2:].view(dtype=weft.float64).fill_(0.0)
    assert x.tolist() == [0, 1, 0, 0]
    assert x.view(weft.uint8)[4:8].tolist() == [0, 0, 128, 63]
    assert x.view(weft.complex64).tolist() == [1j, 0]
    for bad, text in (
        (lambda: weft.ones(3).view(weft.float64), r"^self\.size\(-1\) must be divisible by 2 to view Float as Double"),
        (lambda: weft.ones(()).view(weft.int16), r"^self\.dim\(\) cannot be 0 to view Float as Short"),
        (lambda: weft.ones(4, 4).t().view(weft.float64), r"^self\.stride\(-1\) must be 1 to view Float as Double"),
        (lambda: weft.ones(4)[1:3].view(weft.float64), r"^self\.storage_offset\(\) must be divisible by 2"),
    ):
        with pytest.raises(RuntimeError, match=text):
            bad()


def test_overlapping_writes_are_refused():
    text = (
        r"^unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory"
    )
    x = numbers(5)
    square = weft.ones(3, 3)

    def assign():
        x[1:] = x[:-1]

    for write in (
        assign,
        lambda: x[1:].copy_(x[:-1]),
        lambda: x[1:].add_(x[:-1]),
        lambda: weft.add(x[:-1], 1, out=x[1:]),
        lambda: square.add_(square.t()),
        lambda: square.mul_(square[0]),
        lambda: weft.scatter(weft.ones(5), 0, x.long(), x, out=x),
        lambda: weft.masked_select(x, weft.ones(5, dtype=weft.bool), out=x),
    ):
        with pytest.raises(RuntimeError, match=text):
            write()
    assert x.tolist() == [0, 1, 2, 3, 4]
    x.add_(x).add_(x.view(5))
    square[0].add_(square[:, 0])
    assert (x.tolist(), square[0].tolist()) == ([0, 4, 8, 12, 16], [2, 2, 2])


def test_one_number_is_written_where_elements_share_places():
    x = weft.ones(3, 1)
    wide = x.expand(3, 3)
    wide[1:].zero_()
    wide[0, 1].add_(4)
    assert x.tolist() == [[5], [0], [0]]
    with pytest.raises(RuntimeError, match=r"^unsupported operation: more than one element of the written-to tensor"):
        wide[0] = 1


def test_conjugates_are_marked():
    z = weft.tensor([1 + 2j])
    assert z.conj().is_conj()
    assert z.conj().imag.is_neg()
    assert not z.conj().resolve_conj().is_conj()
    assert z.conj().resolve_conj().tolist() == [1 - 2j]
    with pytest.raises(RuntimeError, match=r"^view_as_real doesn't work on unresolved conjugated tensors"):
        weft.view_as_real(z.conj())


def test_storages_are_set_and_resized():
    x, y = numbers(6), weft.ones(1)
    y.set_(x, 1, (2,), (2,)).add_(10)
    assert x.tolist() == [0, 11, 2, 13, 4, 5]
    part = x[2:]
    part.resize_(2, 1).zero_()
    assert x.tolist() == [0, 11, 0, 0, 4, 5]
    part.resize_(5)[-1] = 9
    assert part.tolist() == [0, 0, 4, 5, 9]
    assert x.tolist() == [0, 11, 0, 0, 4, 5]
    assert x.untyped_storage().nbytes() == 7 * x.itemsize
    assert weft.ones(2).resize_(3).tolist() == [1, 1, 0]


def test_a_dim_of_one_has_any_stride_where_pairs_become_complex():
    x = weft.zeros(3, 2).unfold(1, 2, 1)
    z = weft.view_as_complex(x)
    assert z.shape == (3, 1)
    z.fill_(1 + 2j)
    assert x.tolist() == [[[1, 2]]] * 3
