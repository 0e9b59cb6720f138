"""`DistributedDataParallel`, with ranks as threads: replicas equal one process on the whole batch."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.nn import functional as F
from weft.nn.parallel import DistributedDataParallel


class Attention(nn.Module):
    """A GPT in small: embedding, one block, head."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], dtype=weft.float64)
        return self.head(self.block(self.tokens(ids), src_mask=mask))


class Residual(nn.Module):
    """A ResNet in small; its normalisation has buffers, and no statistics that depend on how a batch is cut."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = self.first(x)
        x = x + self.second(F.relu(self.norm(x)))
        return self.head(x.mean((2, 3)))


def tokens(rng):
    return weft.tensor(rng.integers(0, 11, (8, 5))), weft.tensor(rng.integers(0, 11, (8, 5)))


def images(rng):
    return weft.tensor(rng.standard_normal((8, 3, 6, 6))), weft.tensor(rng.integers(0, 2, 8))


def loss_of(model, x, y):
    return F.cross_entropy(model(x).reshape(-1, 11 if y.ndim == 2 else 2), y.reshape(-1))


def trained(make, batch_of, start, wrap=lambda model: model, rank=0, size=1, steps=4):
    model = make().double()
    if rank == 0:  # others get theirs from it, whatever they drew
        model.load_state_dict(start)
    model.eval()
    wrapped = wrap(model)
    optimizer = weft.optim.AdamW(model.parameters(), 1e-2)
    rng = np.random.default_rng(1)
    for _ in range(steps):
        x, y = batch_of(rng)
        optimizer.zero_grad()
        loss_of(wrapped, x[rank::size], y[rank::size]).backward()
        optimizer.step()
    return {name: value.tolist() for name, value in model.state_dict().items()}


def join():
    dist.init_process_group("threads", timeout=timedelta(seconds=60))


@pytest.mark.parametrize(
    ("make", "batch_of", "size", "cap"), [(Attention, tokens, 2, 0.001), (Residual, images, 4, None)]
)
def test_replicas_equal_one_process_on_the_whole_batch(make, batch_of, size, cap):
    def body(rank):
        join()
        wrap = lambda model: DistributedDataParallel(model, bucket_cap_mb=cap)  # noqa: E731
        return trained(make, batch_of, start, wrap, rank, size)

    start = make().double().state_dict()
    found = dist.run_threads(body, nprocs=size)
    alone = trained(make, batch_of, start)
    for replica in found:
        assert replica == found[0]
    for name, expected in alone.items():
        np.testing.assert_allclose(found[0][name], expected, rtol=0, atol=1e-10, err_msg=name)


class Partly(nn.Module):
    """Which of its layers takes part depends on what it is told."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.never = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x, which):
        return (self.a if which == "a" else self.b)(x).sum()


def test_unused_parameters_are_named_with_the_first_rank_that_differs():
    def body(rank):
        join()
        model = DistributedDataParallel(Partly())
        with pytest.raises(RuntimeError) as caught:
            model(weft.ones(1, 2), "ab"[rank % 2]).backward()
        return str(caught.value)

    found = dist.run_threads(body, nprocs=3)
    assert found[0].startswith(
        "Rank 0: parameters without a gradient in this backward pass: b.weight, b.bias, never.weight, never.bias. "
        "The first rank that differs is rank 1, where they are: a.weight, a.bias, never.weight, never.bias. "
    )
    assert "find_unused_parameters=True" in found[2]


def test_unused_parameters_may_be_found():
    def body(rank):
        join()
        module = Partly()
        model = DistributedDataParallel(module, find_unused_parameters=True)
        found = []
        for which in ("ab"[rank % 2], "a"):
            model.zero_grad()
            model(weft.full((1, 2), rank + 1.0), which).backward()
            found.append([None if p.grad is None else p.grad.tolist() for p in (module.a.bias, module.b.bias)])
        assert module.never.weight.grad is None
        return found

    for found in dist.run_threads(body, nprocs=2):
        assert found[0] == [[0.5, 0.5], [0.5, 0.5]]
        assert found[1] == [[1, 1], None]


def test_gradients_add_up_without_sync():
    def body(rank):
        join()
        module = nn.Linear(1, 1, bias=False)
        model = DistributedDataParallel(module)
        with model.no_sync():
            model(weft.tensor([[rank + 1.0]])).backward()
        alone = module.weight.grad.item()
        model(weft.tensor([[10.0]])).backward()
        return alone, module.weight.grad.item()

    assert dist.run_threads(body) == [(1, 11.5), (2, 11.5)]


def test_a_communication_hook_takes_the_place_of_the_average():
    def body(rank):
        join()
        module = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 1, bias=False))
        model = DistributedDataParallel(module, bucket_cap_mb=5e-6)
        seen = []

        def hook(state, bucket):
            seen.append((state, bucket.index(), bucket.is_last(), [tuple(g.shape) for g in bucket.gradients()]))
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda future: 10 * future.value()[0])

        model.register_comm_hook("state", hook)
        with pytest.raises(RuntimeError, match="can only be called once"):
            model.register_comm_hook("state", hook)
        model(weft.ones(1, 3)).sum().backward()
        assert seen == [("state", 0, False, [(1, 2)]), ("state", 1, True, [(2, 3)])]
        weights = module[1].weight.detach().tolist()[0]
        assert module[0].weight.grad.tolist() == [pytest.approx([20 * w] * 3) for w in weights]

    dist.run_threads(body)


def test_buffers_are_those_of_rank_0():
    def body(rank):
        join()
        module = nn.BatchNorm1d(2)
        model = DistributedDataParallel(module)
        for _ in range(2):
            model(weft.full((4, 2), float(rank + 1))).sum().backward()
        model(weft.zeros(4, 2))
        return module.running_mean.tolist()

    first, second = dist.run_threads(body)
    assert first == second


def test_models_that_differ_are_refused():
    def body(rank):
        join()
        DistributedDataParallel(nn.Linear(2, 2 + rank))

    with pytest.raises(RuntimeError, match=r"parameter weight of shape \[[23], 2\] and type"):
        dist.run_threads(body)


def test_a_module_without_parameters_and_a_bad_bucket_size_are_refused():
    def body(rank):
        join()
        with pytest.raises(RuntimeError, match="doesn't have any parameter that requires a gradient"):
            DistributedDataParallel(nn.ReLU())
        with pytest.raises(ValueError, match="bucket_cap_mb must be positive"):
            DistributedDataParallel(nn.Linear(1, 1), bucket_cap_mb=0)

    dist.run_threads(body, nprocs=1)
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        DistributedDataParallel(nn.Linear(1, 1))
