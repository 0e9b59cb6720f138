"""Embeddings whose table is split by rows."""

from __future__ import annotations

import pytest

import weft as torch
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from weft.distributed.tensor._placements import _StridedShard
from weft.distributed.tensor.debug import CommDebugMode
from weft.distributed.tensor.parallel import RowwiseParallel, parallelize_module
from weft.nn.functional import embedding, embedding_bag

TABLES = [
    ([Replicate(), Shard(0)], 5),
    ([_StridedShard(0, split_factor=2), Shard(0)], 16),
    ([Shard(1), Shard(0)], 5),
]
INDICES = [[Replicate(), Replicate()], [Shard(0), Replicate()], [Replicate(), Shard(0)], [Shard(1), Shard(0)]]


@pytest.mark.parametrize(("placements", "rows"), TABLES, ids=str)
def test_vectors_and_gradients(placements, rows):
    numbers, weight = (torch.arange(8) * 3 % rows).reshape(4, 2), torch.arange(rows * 4.0).reshape(rows, 4)
    scale = torch.arange(32.0).reshape(4, 2, 4)

    def results(indices, table, padding, frequent):
        vectors = embedding(indices, table, padding_idx=padding, scale_grad_by_freq=frequent)
        factor = scale if indices is numbers else distribute_tensor(scale, indices.device_mesh)
        first = torch.autograd.grad((vectors * vectors * factor).sum(), table, create_graph=True)[0]
        second = torch.autograd.grad((first * first).sum(), table)[0]
        return [x if indices is numbers else x.full_tensor() for x in (vectors, first, second)]

    def program(mesh):
        for of_indices in INDICES:
            for padding, frequent in ((None, False), (-2, False), (None, True)):
                expected = results(numbers, weight.clone().requires_grad_(), padding, frequent)
                table = distribute_tensor(weight, mesh, placements).requires_grad_()
                values = results(distribute_tensor(numbers, mesh, of_indices), table, padding, frequent)
                for one, other in zip(values, expected, strict=True):
                    assert one.equal(other)

    on_mesh((2, 2), program)


def test_frequencies_in_bags_are_those_of_all_bags():
    numbers, weight = torch.tensor([[0, 1], [1, 1]]), torch.ones(4, 2)

    def gradient(numbers, table):
        bags = embedding_bag(numbers, table, mode="sum", scale_grad_by_freq=True)
        return torch.autograd.grad(bags.sum(), table)[0]

    def program(mesh):
        table = distribute_tensor(weight, mesh).requires_grad_()
        return gradient(distribute_tensor(numbers, mesh, [Shard(0)]), table).full_tensor().tolist()

    assert on_mesh((2,), program) == [gradient(numbers, weight.requires_grad_()).tolist()] * 2


def test_the_table_is_not_moved():
    def program(mesh):
        layer = parallelize_module(nn.Embedding(16, 16), mesh, RowwiseParallel(input_layouts=Replicate()))
        with CommDebugMode() as counted:
            layer(torch.arange(8).reshape(4, 2)).sum().backward()
        table = distribute_tensor(torch.ones(16, 4), mesh, [Shard(0)])
        vectors = embedding(distribute_tensor(torch.arange(3), mesh), table)
        assert layer.weight.grad.placements == (Shard(0),)
        assert vectors.placements == (Partial(),)
        return dict(counted.get_comm_counts())

    assert on_mesh((2,), program) == [{"all_reduce": 1}] * 2


def test_numbers_without_a_row_are_reported():
    def program(mesh):
        table = distribute_tensor(torch.ones(16, 4), mesh, [Shard(0)])
        for number in (99, -1):
            numbers = distribute_tensor(torch.tensor([number]), mesh)
            text = rf"index out of range in self: {number} is out of bounds for dimension 0 with size 16"
            with pytest.raises(IndexError, match=text):
                embedding(numbers, table).full_tensor()

    on_mesh((2,), program)
