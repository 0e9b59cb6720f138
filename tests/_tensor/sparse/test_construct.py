"""Sparse tensors from indices and values: what they hold, how they print, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import weft as torch

INDICES, VALUES = [[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0]
DENSE = [[0, 0, 3], [4, 0, 5]]


def coo(**options):
    return torch.sparse_coo_tensor(INDICES, VALUES, (2, 3), **options)


def csr():
    return torch.sparse_csr_tensor([0, 1, 3], [2, 0, 2], VALUES, (2, 3))


def test_what_a_tensor_in_coordinates_tells():
    s = coo()
    assert (s.layout, s.is_sparse, s.is_sparse_csr, s.is_coalesced()) == (torch.sparse_coo, True, False, False)
    assert (s.sparse_dim(), s.dense_dim(), s._nnz(), s.shape, s.dtype) == (2, 0, 3, (2, 3), torch.float32)
    assert (s.numel(), s.ndim, s.stride(), s.is_contiguous(), s.requires_grad) == (6, 2, (0, 0), False, False)
    assert s._indices().tolist() == INDICES
    assert s.coalesce().indices().tolist() == INDICES
    assert s.to_dense().tolist() == DENSE
    assert torch.sparse_coo_tensor(INDICES, VALUES).shape == (2, 3)
    assert torch.sparse_coo_tensor([[1]], [[1, 2]], (3, 2), dtype=torch.float64).to_dense().tolist() == [
        [0, 0],
        [1, 2],
        [0, 0],
    ]


def test_a_dense_tensor_tells_that_it_is_dense():
    d = torch.ones(2, 3)
    assert (d.layout, d.is_sparse, d.is_nested, d.sparse_dim(), d.dense_dim()) == (torch.strided, False, False, 0, 2)
    assert d.to_dense() is d


def test_equal_indices_add_up_when_they_are_coalesced():
    s = torch.sparse_coo_tensor([[1, 0, 1]], [[3.0, 1], [2, 2], [4, 0]], (3, 2))
    once = s.coalesce()
    assert once.indices().tolist() == [[0, 1]]
    assert once.values().tolist() == [[2, 2], [7, 1]]
    assert once.coalesce() is once
    assert s.to_dense().tolist() == once.to_dense().tolist()
    assert torch.sparse_coo_tensor([[0, 0]], [True, True], (2,)).to_dense().tolist() == [True, False]


def test_values_share_memory_with_what_they_were_made_of():
    values = torch.tensor(VALUES)
    s = torch.sparse_coo_tensor(INDICES, values, (2, 3))
    values.mul_(2)
    assert s.to_dense().sum().item() == 24
    s._values().zero_()
    assert values.tolist() == [0, 0, 0]


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_compressed_matrices_are_scipys(layout):
    dense = np.random.default_rng(0).integers(0, 3, (5, 7)).astype(np.float64)
    ours = getattr(torch.tensor(dense), f"to_sparse_{layout}")()
    theirs = getattr(scipy.sparse, f"{layout}_array")(dense)
    starts, plain = (
        (ours.crow_indices(), ours.col_indices()) if layout == "csr" else (ours.ccol_indices(), ours.row_indices())
    )
    assert starts.tolist() == theirs.indptr.tolist()
    assert plain.tolist() == theirs.indices.tolist()
    assert ours.values().tolist() == theirs.data.tolist()
    np.testing.assert_array_equal(ours.to_dense(), dense)
    make = getattr(torch, f"sparse_{layout}_tensor")
    np.testing.assert_array_equal(make(starts, plain, ours.values(), (5, 7)).to_dense(), dense)
    np.testing.assert_array_equal(ours.to_sparse().to_dense(), dense)


@pytest.mark.parametrize("layout", ["bsr", "bsc"])
def test_blocks(layout):
    dense = torch.zeros(4, 6)
    dense[2:, 2] = torch.tensor([1.0, 2.0])
    dense[0, 5] = 3
    blocks = getattr(dense, f"to_sparse_{layout}")((2, 3))
    assert blocks.layout is getattr(torch, f"sparse_{layout}")
    assert (blocks._nnz(), blocks.values().shape) == (2, (2, 2, 3))
    assert torch.equal(blocks.to_dense(), dense)
    assert torch.equal(blocks.t().to_dense(), dense.t())
    np.testing.assert_allclose(blocks @ torch.ones(6, 1), dense @ torch.ones(6, 1))
    if layout == "bsr":
        assert blocks.crow_indices().tolist() == scipy.sparse.bsr_array(dense.numpy(), blocksize=(2, 3)).indptr.tolist()


def test_slices_that_are_not_zero():
    dense = torch.tensor([[0.0, 0], [1, 0], [0, 0], [2, 3]])
    rows = dense.to_sparse(1)
    assert (rows.indices().tolist(), rows.values().tolist()) == ([[1, 3]], [[1, 0], [2, 3]])
    assert dense.to_sparse().indices().tolist() == [[1, 3, 3], [0, 0, 1]]
    assert torch.tensor(5.0).to_sparse().to_dense().item() == 5


def test_factories_with_a_layout():
    assert torch.zeros(2, 3, layout=torch.sparse_coo)._nnz() == 0
    assert torch.zeros(2, 3, layout=torch.sparse_csr).crow_indices().tolist() == [0, 0, 0]
    assert torch.zeros_like(coo()).layout is torch.sparse_coo
    assert torch.sparse_coo_tensor((2, 3)).to_dense().tolist() == [[0] * 3] * 2
    with pytest.raises(RuntimeError, match=r"^ones\(...\) is not implemented for sparse layout torch.sparse_coo"):
        torch.ones(2, layout=torch.sparse_coo)
    with pytest.raises(NotImplementedError, match=r"ones_like\(\) .* since not all elements are zero"):
        torch.ones_like(coo())


def test_texts_are_pytorchs():
    assert (
        repr(coo())
        == """tensor(indices=tensor([[0, 1, 1],
                       [2, 0, 2]]),
       values=tensor([3., 4., 5.]),
       size=(2, 3), nnz=3, layout=torch.sparse_coo)"""
    )
    assert (
        repr(csr())
        == """tensor(crow_indices=tensor([0, 1, 3]),
       col_indices=tensor([2, 0, 2]),
       values=tensor([3., 4., 5.]), size=(2, 3), nnz=3,
       layout=torch.sparse_csr)"""
    )
    assert repr(coo(requires_grad=True) * 2).endswith("layout=torch.sparse_coo, grad_fn=<MulBackward0>)")
    assert repr(torch.sparse_coo_tensor((2, 3), dtype=torch.float64)) == (
        "tensor(indices=tensor([], size=(2, 0)),\n       values=tensor([], size=(0,)),\n"
        "       size=(2, 3), nnz=0, dtype=torch.float64, layout=torch.sparse_coo)"
    )


def check(what, *args, **options):
    return getattr(torch, what)(*args, check_invariants=True, **options)


REFUSED = [
    (
        lambda: torch.sparse_coo_tensor(INDICES, VALUES, (2,)),
        r"'len\(size\) == sparse_dim \+ dense_dim' is not satisfied: len\(size\) = 1, sparse_dim = 2, dense_dim = 0",
    ),
    (
        lambda: torch.sparse_coo_tensor(INDICES, VALUES[:2], (2, 3)),
        "indices and values must have same nnz, but got nnz from indices: 3, nnz from values: 2",
    ),
    (
        lambda: check("sparse_coo_tensor", INDICES, VALUES, (2, 2)),
        "size is inconsistent with indices: for dim 1, size is 2 but found index 2",
    ),
    (lambda: check("sparse_coo_tensor", [[0, -1]], [1.0, 2.0], (2,)), "found negative index -1 for dim 0"),
    (
        lambda: check("sparse_coo_tensor", [[1, 0]], [1.0, 2.0], (2,), is_coalesced=True),
        "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor",
    ),
    (lambda: check("sparse_csr_tensor", [0, 1, 3], [2, 0, 2], VALUES, (2, 2)), "`0 <= col_indices < ncols` is not"),
    (lambda: check("sparse_csr_tensor", [0, 1, 4], [2, 0, 2], VALUES, (2, 3)), r"`crow_indices\[..., -1\] == nnz` is"),
    (lambda: check("sparse_csr_tensor", [1, 1, 3], [2, 0, 2], VALUES, (2, 3)), r"`crow_indices\[..., 0\] == 0` is not"),
    (
        lambda: check("sparse_csr_tensor", [0, 1, 3], [2, 2, 0], VALUES, (2, 3)),
        "`col_indices.* are sorted and distinct along the last dimension values` is not satisfied",
    ),
    (
        lambda: check("sparse_csr_tensor", [0, 1], [2, 2, 0], VALUES, (2, 3)),
        r"crow_indices.shape\[-1\] must be equal to the number of rows \+ 1 \(=3\), but got 2",
    ),
    (
        lambda: torch.sparse_compressed_tensor([0, 1], [0], [1.0], (1, 1)),
        "sparse_compressed_tensor expected sparse compressed tensor layout but got none",
    ),
    (lambda: coo().indices(), "Cannot get indices on an uncoalesced tensor, please call .coalesce\\(\\) first"),
    (lambda: coo().values(), "Cannot get values on an uncoalesced tensor"),
    (lambda: coo().crow_indices(), "crow_indices expected sparse row compressed tensor layout but got Sparse"),
    (lambda: csr().indices(), "indices expected sparse coordinate tensor layout but got SparseCsr"),
    (lambda: torch.ones(2).coalesce(), "coalesce expected sparse coordinate tensor layout but got Strided"),
    (lambda: torch.ones(2, 3).to_sparse(3), r"sparse_dim argument must be in \[0,2\] range, but 3 is given"),
    (
        lambda: torch.ones(2, 3).to_sparse_bsr((2, 2)),
        r"dense_to_sparse_bsr: tensor sparse size \(2,3\) must be divisible by given blocksize \(2,2\)",
    ),
    (
        lambda: torch.ones(2, 3).to_sparse(layout=torch.sparse_bsr),
        "conversion from Strided to SparseBsr without blocksize argument given is not supported",
    ),
    (
        lambda: coo().sparse_resize_((1, 1), 2, 0),
        r"shrinking the size of sparse dimensions \(from \[2, 3\] to \[1, 1\]\)",
    ),
    (lambda: coo().nbytes, "nbytes is not defined for sparse tensors"),
    (lambda: coo().data_ptr(), "Cannot access data pointer of Tensor that doesn't have storage"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_mistakes_are_named(call, text):
    with pytest.raises(RuntimeError, match=text):
        call()


def test_a_sparse_tensor_is_no_array():
    with pytest.raises(TypeError, match=r"can't convert Sparse layout tensor to numpy. Use Tensor.to_dense\(\) first."):
        coo().numpy()
    with pytest.raises(NotImplementedError, match=r"Parameter\(\): a tensor with layout torch.sparse_coo cannot be"):
        torch.nn.Parameter(coo())


def test_invariants_are_checked_where_they_are_asked_for():
    switch = torch.sparse.check_sparse_tensor_invariants
    wrong = ([[5]], [1.0], (2,))
    torch.sparse_coo_tensor(*wrong)
    assert not switch.is_enabled()
    with switch():
        assert switch.is_enabled()
        with pytest.raises(RuntimeError, match="size is inconsistent"):
            torch.sparse_coo_tensor(*wrong)
        with switch(False):
            torch.sparse_coo_tensor(*wrong)
        torch.sparse_coo_tensor(*wrong, check_invariants=False)
    switch.enable()
    assert switch.is_enabled()
    switch.disable()
    with pytest.raises(IndexError):  # without checks, where it is used
        torch.sparse_coo_tensor(*wrong).to_dense().tolist()


def test_resizing_in_place():
    s = coo()
    assert s.sparse_resize_((4, 4), 2, 0) is s
    assert (s.shape, s._nnz()) == ((4, 4), 3)
    s.sparse_resize_and_clear_((1, 2, 3), 2, 1)
    assert (s.shape, s._nnz(), s.dense_dim()) == ((1, 2, 3), 0, 1)


def test_spdiags_is_scipys():
    rows = np.arange(1.0, 13).reshape(3, 4)
    for size in ((4, 4), (3, 5), (6, 2)):
        ours = torch.sparse.spdiags(torch.tensor(rows), torch.tensor([0, -1, 2]), size)
        np.testing.assert_array_equal(ours.to_dense(), scipy.sparse.spdiags(rows, [0, -1, 2], *size).toarray())
    assert torch.sparse.spdiags(torch.ones(2), torch.tensor(0), (2, 2), torch.sparse_csr).layout is torch.sparse_csr
    with pytest.raises(RuntimeError, match="Offset tensor contains duplicate values"):
        torch.sparse.spdiags(torch.ones(2, 2), torch.tensor([1, 1]), (2, 2))


def test_older_classes():
    indices, values = torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 2.0])
    x = torch.sparse.FloatTensor(indices, values, torch.Size([2, 2]))
    assert x.to_dense().tolist() == [[0, 1], [2, 0]]
    assert isinstance(x, torch.sparse.FloatTensor)
    assert not isinstance(x, torch.sparse.DoubleTensor)
    assert torch.sparse.LongTensor(2, 3).shape == (2, 3)
    with pytest.raises(TypeError, match=r"sparse.FloatTensor\(\) takes \(indices, values"):
        torch.sparse.FloatTensor("a")


def test_methods_of_the_base_class_are_those_of_the_layout():
    x = torch.tensor([[0.0, 1], [0, 0]])
    assert torch.Tensor.indices(x.to_sparse()).tolist() == [[0], [1]]
    assert torch.Tensor.crow_indices(x.to_sparse_csr()).tolist() == [0, 1, 1]
    assert (torch.Tensor.sparse_dim(x.to_sparse()), torch.Tensor.dense_dim(x.to_sparse())) == (2, 0)
    assert (torch.Tensor.sparse_dim(x), torch.Tensor.dense_dim(x)) == (0, 2)
