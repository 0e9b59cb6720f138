"""Memory behind tensors, Python functions on elements, and facts that are the same for every tensor."""

from __future__ import annotations

import pytest

import weft


def test_offsets_and_addresses_follow_views():
    base = weft.arange(12.0).reshape(3, 4).clone()
    corner = base[1:, 2:].t()
    assert (base.storage_offset(), corner.storage_offset(), base.detach().storage_offset()) == (0, 6, 0)
    assert corner.data_ptr() - base.data_ptr() == 24
    assert base.detach().data_ptr() == base.data_ptr() == base.untyped_storage().data_ptr()
    assert weft.zeros(0).data_ptr() == 0
    assert base.is_set_to(base.detach())
    assert not base.is_set_to(base.clone())


def test_storage_is_that_of_the_base():
    base = weft.ones(2, 3)
    storage = base[1].untyped_storage()
    assert (storage.nbytes(), storage.size(), len(storage)) == (24, 24, 24)
    assert repr(storage).startswith(" 0\n 0\n 128\n 63\n 0")
    assert repr(storage).endswith(" 63\n[torch.storage.UntypedStorage(device=cpu) of size 24]")
    assert storage.device == weft.device("cpu")
    assert not storage.is_shared()
    assert weft.is_storage(storage)
    assert not weft.is_storage(base)


def test_an_offset_counts_elements_of_the_type_of_the_view():
    x = weft.ones(2, dtype=weft.complex64)
    assert (weft.view_as_real(x)[1:].storage_offset(), x.imag.storage_offset(), x[1:].imag.storage_offset()) == (
        2,
        1,
        3,
    )
    assert x[1:].imag.data_ptr() - x.data_ptr() == 12


def test_facts_about_every_tensor():
    x = weft.ones(2, 3)
    assert x.layout is weft.strided
    assert x.dim_order() == (0, 1)
    assert x.name is None
    assert not any((x.is_sparse, x.is_sparse_csr, x.is_quantized, x.is_nested, x.is_mkldnn, x.is_xla, x.is_mps))
    assert not any((x.is_pinned(), x.is_shared(), x.is_conj(), x.is_neg(), x.is_inference(), x.is_distributed()))
    assert x.share_memory_() is x.to_dense() is x
    assert x.to_dense(weft.float64).dtype is weft.float64
    assert x.record_stream(None) is None


def test_the_number_of_an_output():
    values, vectors = weft.linalg.eigh(weft.eye(2, requires_grad=True))
    assert (values.output_nr, vectors.output_nr, weft.ones(1).output_nr) == (0, 1, 0)


def test_new_tensors_of_the_same_type():
    x = weft.ones(2, dtype=weft.float64)
    assert x.new().shape == (0,)
    assert x.new(2, 3).shape == x.new(weft.Size([2, 3])).shape == (2, 3)
    assert x.new([3, 1]).tolist() == [3.0, 1.0]
    assert x.new([3, 1]).dtype is x.new(x).dtype is weft.float64
    with pytest.raises(TypeError, match=r"^new\(\): expected a tensor of torch\.float64, got one of torch\.int64$"):
        x.new(weft.tensor(1))


def test_python_functions_on_elements():
    x, y = weft.tensor([1.0, 2.0]), weft.tensor(3.0)
    assert x.apply_(lambda a: a * 2) is x
    assert x.map_(y, lambda a, b: a + b).tolist() == [5.0, 7.0]
    assert x.map2_(y, y, lambda a, b, c: a - b - c).tolist() == [-1.0, 1.0]
    with pytest.raises(TypeError, match=r"^'int' object is not callable$"):
        x.apply_(3)
    with pytest.raises(RuntimeError, match=r"^Can't call apply_\(\) on Variable that requires grad\. Use var\.detach"):
        x.clone().requires_grad_().apply_(abs)


@pytest.mark.parametrize(
    ("shape", "wrap", "places"),
    [
        ((2, 3), False, [0, 4]),
        ((4, 2), False, [0, 3]),
        ((4, 2), True, [0, 3, 6]),
        ((2, 2, 2), False, [0, 7]),
    ],
)
def test_diagonals_are_filled(shape, wrap, places):
    x = weft.zeros(shape)
    assert x.fill_diagonal_(5, wrap) is x
    assert x.reshape(-1).nonzero().reshape(-1).tolist() == places
    assert x.max() == 5
    assert x.fill_diagonal_(weft.tensor(7), wrap).max() == 7


def test_diagonals_that_are_not_filled():
    with pytest.raises(RuntimeError, match=r"^dimensions must larger than 1$"):
        weft.zeros(2).fill_diagonal_(1)
    with pytest.raises(RuntimeError, match=r"^all dimensions of input must be of equal length$"):
        weft.zeros(2, 2, 3).fill_diagonal_(1)
    with pytest.raises(TypeError, match=r"argument 'fill_value' \(position 1\) must be Number, not Tensor$"):
        weft.zeros(2, 2).fill_diagonal_(weft.ones(1))


def test_sums_to_a_size():
    x = weft.arange(6.0).reshape(2, 3).requires_grad_()
    assert x.sum_to_size(2, 3) is x
    assert x.sum_to_size(3).tolist() == [3, 5, 7]
    assert x.sum_to_size(2, 1).tolist() == [[3], [12]]
    x.sum_to_size(()).backward()
    assert x.grad.tolist() == [[1] * 3] * 2
    with pytest.raises(RuntimeError, match=r"^size \{\[2, 2\]\} is not expandable to size \{\[2, 3\]\}\.$"):
        x.sum_to_size(2, 2)


def test_polygamma_in_place():
    x = weft.tensor([1.0])
    assert x.polygamma_(1) is x
    assert x.item() == pytest.approx(1.6449341)
