"""`SyncBatchNorm`: normalisation over the batches of all ranks."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft._tensor.compile import Compiled

IMAGES = np.random.default_rng(0).standard_normal((6, 2, 3))
PARTS = {1: [slice(6)], 3: [slice(4), slice(4, 4), slice(4, 6)]}  # of all ranks; one has nothing


def normalised(rank, size, momentum, dtype=weft.float64):
    dist.init_process_group("threads", timeout=timedelta(seconds=60))
    layer = nn.SyncBatchNorm(2, momentum=momentum, dtype=weft.float64 if dtype is weft.float64 else None)
    nn.init.constant_(layer.weight, 2)
    x = weft.tensor(IMAGES[PARTS[size][rank]], dtype=dtype).requires_grad_()
    found = layer(x)
    assert found.dtype is dtype
    (found**3).sum().backward()
    layer(x.detach())
    parts = [found, x.grad, layer.weight.grad, layer.bias.grad, layer.running_mean, layer.running_var]
    return [part.double().numpy(force=True) for part in parts], int(layer.num_batches_tracked)


@pytest.mark.parametrize(("momentum", "dtype", "exact"), [(0.1, weft.float64, 1e-12), (None, weft.bfloat16, 0.1)])
def test_uneven_batches_are_normalised_as_one(momentum, dtype, exact):
    ((whole, _),) = dist.run_threads(normalised, (1, momentum), nprocs=1)
    found = dist.run_threads(normalised, (3, momentum, dtype), nprocs=3)
    assert [count for _, count in found] == [2, 2, 2]
    by_part = list(zip(*(parts for parts, _ in found), strict=True))
    joined = [np.concatenate(part) for part in by_part[:2]] + [sum(part) for part in by_part[2:4]]
    for mine, expected in zip([*joined, by_part[4][1], by_part[5][2]], whole, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=exact, atol=max(exact, 1e-12))


def test_layers_are_converted_with_what_they_hold():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.ModuleDict({"a": nn.BatchNorm2d(3, eps=1e-3, affine=False)}), nn.ReLU())
    model[0].eval()
    before = list(model.state_dict(keep_vars=True).items())
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert converted is model
    assert [type(m) for m in (model[0], model[1]["a"], model[2])] == [nn.SyncBatchNorm, nn.SyncBatchNorm, nn.ReLU]
    after = list(model.state_dict(keep_vars=True).items())
    assert [name for name, _ in after] == [name for name, _ in before]
    assert all(a is b for (_, a), (_, b) in zip(after, before, strict=True))
    assert (model[0].training, model[1]["a"].training, model[1]["a"].eps) == (False, True, 1e-3)
    assert isinstance(nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm3d(2)), nn.SyncBatchNorm)


def test_without_ranks_it_is_an_ordinary_batch_normalisation():
    x = weft.tensor(IMAGES, dtype=weft.float32)
    assert weft.equal(nn.SyncBatchNorm(2)(x), nn.BatchNorm1d(2)(x))


def test_inputs_without_channels_are_refused():
    with pytest.raises(ValueError, match=r"expected at least 2D input \(got 1D input\)"):
        nn.SyncBatchNorm(2)(weft.ones(2))
    with pytest.raises(ValueError, match="SyncBatchNorm number of input channels should be non-zero"):
        nn.SyncBatchNorm(2)(weft.ones(2, 0))


def test_statistics_are_on_no_graph_and_a_compiled_layer_trains_as_any_other(monkeypatch):
    captures = []
    run = Compiled._run
    monkeypatch.setattr(Compiled, "_run", lambda *args: (captures.append(1), run(*args))[1])

    def body(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))

        def states(whole):
            weft.manual_seed(0)
            model = nn.Sequential(nn.Linear(4, 3), nn.SyncBatchNorm(3))
            optimizer = weft.optim.SGD(model.parameters(), 0.1)
            call = whole(model)
            for at in range(4):
                optimizer.zero_grad()
                call((weft.arange(8.0).view(2, 4) + rank + at).sin()).square().sum().backward()
                assert not any(buffer.requires_grad for buffer in model.buffers())
                optimizer.step()
            return list(model.state_dict().values())

        expected, found = states(lambda model: model), states(lambda model: weft.compile(model, fullgraph=True))
        weft.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    dist.run_threads(body)
    assert len(captures) == 2  # once on each rank
