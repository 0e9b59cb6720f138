"""Sparse gradients of embeddings, and the optimizers that take them."""

from __future__ import annotations

import pytest

import weft as torch
from weft import nn, optim
from weft.nn import functional as F

INDEX = torch.tensor([[1, 3], [1, 0]])


def table():
    return nn.Parameter(torch.arange(10.0).reshape(5, 2))


def test_the_gradient_of_an_embedding_stores_the_rows_that_were_read():
    w = table()
    F.embedding(INDEX, w, padding_idx=0, sparse=True).sum().backward()
    assert (w.grad.layout, w.grad.sparse_dim(), w.grad.is_coalesced()) == (torch.sparse_coo, 1, False)
    assert w.grad._indices().tolist() == [[1, 3, 1]]
    F.embedding(torch.tensor([2]), w, sparse=True).sum().backward()
    assert w.grad._indices().tolist() == [[1, 3, 1, 2]]
    w.square().sum().backward()
    assert (w.grad.layout, w.grad[1].tolist()) == (torch.strided, [6, 8])
    F.embedding(torch.tensor([2]), w, sparse=True).sum().backward()
    assert w.grad[2].tolist() == [10, 12]


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize(("index", "offsets"), [(INDEX, None), (INDEX.reshape(-1), torch.tensor([0, 1]))])
@pytest.mark.parametrize("padding_idx", [None, 3])
def test_bags_have_the_gradients_of_dense_ones(mode, index, offsets, padding_idx):
    results = []
    for sparse in (True, False):
        w, each = table(), torch.arange(1.0, 5).reshape(index.shape).requires_grad_()
        options = {"per_sample_weights": each} if mode == "sum" else {}
        out = F.embedding_bag(
            index, w, offsets, mode=mode, sparse=sparse, padding_idx=padding_idx, include_last_offset=False, **options
        )
        (out * torch.tensor([1.0, 2.0])).sum().backward()
        assert w.grad.is_sparse is sparse
        results.append((out.tolist(), w.grad.to_dense().tolist(), each.grad is not None and each.grad.tolist()))
    assert results[0] == results[1]


def test_layers_and_what_they_refuse():
    layer = nn.EmbeddingBag(5, 2, sparse=True)
    layer(INDEX).sum().backward()
    assert layer.weight.grad.is_sparse
    layer = nn.Embedding(5, 2, sparse=True, scale_grad_by_freq=True)
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported with sparse gradients"):
        layer(INDEX)
    with pytest.raises(ValueError, match="max mode does not support sparse weights"):
        nn.EmbeddingBag(5, 2, sparse=True, mode="max")(INDEX)
    w = table()
    F.embedding(INDEX, w * 1, sparse=True).sum().backward()
    assert w.grad.layout is torch.strided
    with torch.no_grad():
        assert not F.embedding(INDEX, w, sparse=True).requires_grad


def trained(kind, sparse, **options):
    w = table()
    other = nn.Parameter(torch.ones(2))
    optimizer = kind([w, other][: 1 + (kind is not optim.SparseAdam)], lr=0.1, **options)
    for _ in range(3):
        optimizer.zero_grad()
        (F.embedding(INDEX, w, sparse=sparse) * other).square().sum().backward()
        optimizer.step()
    return w.detach(), other.detach(), optimizer


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (optim.SGD, {}),
        (optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (optim.SGD, {"maximize": True}),
        (optim.Adagrad, {"lr_decay": 0.1}),
    ],
)
def test_sparse_gradients_lead_where_dense_ones_do(kind, options):
    for sparse, dense in zip(trained(kind, True, **options)[:2], trained(kind, False, **options)[:2], strict=True):
        torch.testing.assert_close(sparse, dense)


def test_sparse_adam_changes_what_a_gradient_stores():
    w, _, optimizer = trained(optim.SparseAdam, True)
    expected = [[0, 0.7016], [1.7006, 2.7004], [4, 5], [5.7002, 6.7001], [8, 9]]  # PyTorch's
    torch.testing.assert_close(w, torch.tensor(expected), atol=1e-4, rtol=0)
    state = optimizer.state_dict()["state"][0]
    assert (state["step"].item(), state["exp_avg"][2].tolist()) == (3, [0, 0])
    w = table()
    optimizer = optim.SparseAdam([w], lr=0.1)
    for values in ([1.0, 1], [0.0, 0]):  # a zero that is stored is a gradient
        w.grad = torch.sparse_coo_tensor([[1]], [values], (5, 2))
        optimizer.step()
    torch.testing.assert_close(w[1], torch.tensor([1.8330, 2.8330]), atol=1e-4, rtol=0)  # PyTorch's


@pytest.mark.parametrize(
    "name", ["Adam", "AdamW", "RMSprop", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "Rprop", "Adafactor"]
)
def test_other_optimizers_refuse_sparse_gradients(name):
    text = {
        "Adam": "Adam does not support sparse gradients, please consider SparseAdam instead",
        "AdamW": "Adam does not support sparse gradients, please consider SparseAdam instead",
    }.get(name, f"{name} does not support sparse gradients")
    with pytest.raises(RuntimeError, match=f"^{text}$"):
        trained(getattr(optim, name), True)


def test_what_does_not_go_together():
    for kind in (optim.SGD, optim.Adagrad):
        with pytest.raises(RuntimeError, match="weight_decay option is not compatible with sparse gradients"):
            trained(kind, True, weight_decay=0.1)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam instead"):
        trained(optim.SparseAdam, False)
    with pytest.raises(ValueError, match=r"Sparse params at indices \[\[0, 0\]\]: SparseAdam requires dense parameter"):
        optim.SparseAdam([torch.ones(2).to_sparse().requires_grad_()])


def test_clipping_scaling_and_clearing():
    layer = nn.Embedding(5, 2, sparse=True)
    layer(torch.tensor([1, 1])).sum().backward()
    assert nn.utils.clip_grad_norm_(layer.parameters(), 0.5).item() == pytest.approx(8**0.5)
    assert layer.weight.grad.to_dense().norm().item() == pytest.approx(0.5, abs=1e-5)
    optimizer, scaler = optim.SGD(layer.parameters(), lr=1), torch.amp.GradScaler("cpu")
    before = layer.weight.detach().clone()
    optimizer.zero_grad(set_to_none=False)
    assert layer.weight.grad._nnz() == 0
    scaler.scale(layer(torch.tensor([1])).sum()).backward()
    scaler.step(optimizer)
    assert (layer.weight - before)[1].tolist() == pytest.approx([-1, -1])
