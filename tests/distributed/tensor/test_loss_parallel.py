"""Losses over classes that are split: what they give, and what they send."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import weft as torch
from tests.distributed.tensor.threads import WHOLE, on_mesh
from weft.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from weft.distributed.tensor.debug import CommDebugMode, ExplicitRedistributionContext
from weft.distributed.tensor.parallel import loss_parallel
from weft.nn.functional import cross_entropy, log_softmax, nll_loss

SAMPLES = 6


def scores(*size):
    return torch.randn(*size, dtype=torch.float64) * 3


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def differentiated(function, x):
    """The result of a function of scores, and their gradient for weights that differ between results."""
    y = function(x)
    (y * y).sum().backward()
    return whole(y).detach(), whole(x.grad)


def agree(function, x, mesh, placements):
    """Require that a function gives the same for split scores, and split gradients; returns what was sent."""
    expected = differentiated(function, x.clone().requires_grad_())
    split = distribute_tensor(x, mesh, placements).requires_grad_()
    with loss_parallel(), CommDebugMode() as mode:
        y = function(split)
        (y * y).sum().backward()
    for found, other in zip((whole(y).detach(), whole(split.grad)), expected, strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-9, atol=1e-12)
    assert split.grad.placements == tuple(placements)
    return mode


OPTIONS = list(product(("none", "mean", "sum"), (False, True), (-100, 3), (0.0, 0.1)))  # weight, ignored, smoothing
SOME = [("none", False, -100, 0.0), ("mean", True, 3, 0.1), ("mean", False, 3, 0.0), ("sum", True, -100, 0.0)]


@pytest.mark.parametrize("classes", [8, 10, 5])
def test_cross_entropy_sends_sums_of_the_size_of_the_batch_only(classes):
    def program(mesh):
        torch.manual_seed(0)
        x, sizes = scores(SAMPLES, classes), torch.rand(classes, dtype=torch.float64)
        targets = torch.tensor([0, 3, 4, 3, 1, 2])
        for reduction, has_weight, ignored, smoothing in OPTIONS if WHOLE else SOME:
            weight = sizes if has_weight else None

            def loss(x, options=(weight, None, ignored, None, reduction, smoothing)):
                return cross_entropy(x, targets, *options)

            mode = agree(loss, x, mesh, [Shard(1)])
            if classes != 5:  # over four processes, one has no class
                assert mode.get_comm_counts() == {"all_reduce": 2}
                assert mode.get_bytes() == (1 + 4) * SAMPLES * 8

    on_mesh((4,), program)


def test_probabilities_of_classes():
    def program(mesh):
        torch.manual_seed(0)
        x, target = scores(SAMPLES, 8), torch.rand(SAMPLES, 8, dtype=torch.float64)
        weight = torch.rand(8, dtype=torch.float64)
        for smoothing in (0.0, 0.1):
            mode = agree(
                lambda x, s=smoothing: cross_entropy(x, target, weight, label_smoothing=s), x, mesh, [Shard(1)]
            )
            assert mode.get_comm_counts() == {"all_reduce": 2}
        learnt = distribute_tensor(target, mesh, [Shard(1)]).requires_grad_()
        cross_entropy(distribute_tensor(x, mesh, [Shard(1)]), learnt).backward()
        plain = target.clone().requires_grad_()
        cross_entropy(x, plain).backward()
        np.testing.assert_allclose(whole(learnt.grad), plain.grad, rtol=1e-9)

    on_mesh((2,), program)


def test_log_probabilities_stay_split():
    def program(mesh):
        torch.manual_seed(0)
        x, targets = scores(SAMPLES, 8), torch.tensor([0, 3, -100, 3, 7, 2])
        for reduction in ("none", "mean", "sum"):
            mode = agree(lambda x, r=reduction: nll_loss(log_softmax(x, 1), targets, reduction=r), x, mesh, [Shard(1)])
            assert mode.get_comm_counts() == {"all_reduce": 4}  # one of them in the backward pass
        split = distribute_tensor(x, mesh, [Shard(1)])
        with CommDebugMode() as mode:
            y = log_softmax(split.half(), -1, dtype=torch.float32)
        assert (y.placements, y.dtype) == ((Shard(1),), torch.float32)
        assert mode.get_bytes() == 2 * SAMPLES * 4
        assert torch.allclose(whole(y), log_softmax(x.half(), -1, dtype=torch.float32), atol=1e-6)

    on_mesh((2,), program)


def test_batches_that_are_split_too():
    def program(mesh):
        torch.manual_seed(0)
        x, pixels = scores(4, 8), scores(4, 8, 3)
        targets, images = torch.tensor([0, 3, -100, 7]), torch.randint(0, 8, (4, 3))
        for placements in ([Shard(0), Shard(1)], [Shard(1), Shard(0)], [Shard(1), Shard(1)]):
            own = [Shard(0) if p == Shard(0) else Replicate() for p in placements]
            placed = {False: targets, True: distribute_tensor(targets, mesh, own)}
            for reduction in ("none", "mean"):

                def loss(x, reduction=reduction, placed=placed):
                    return cross_entropy(x, placed[isinstance(x, DTensor)], reduction=reduction)

                agree(loss, x, mesh, placements)
        split = distribute_tensor(x, mesh, [Shard(0), Shard(1)])
        total = cross_entropy(split, distribute_tensor(targets, mesh, [Shard(0), Replicate()]), reduction="sum")
        assert total.placements == (Partial(), Replicate())
        rows = {False: images, True: distribute_tensor(images, mesh, [Shard(1), Replicate()])}
        agree(lambda x: cross_entropy(x, rows[isinstance(x, DTensor)]), pixels, mesh, [Shard(2), Shard(1)])
        with loss_parallel(), pytest.raises(ValueError, match=r"^loss_parallel\(\) requires a DTensor \(not a plain"):
            cross_entropy(split, targets)

    on_mesh((2, 2), program)


def test_one_sample():
    def program(mesh):
        torch.manual_seed(0)
        x = scores(8)
        agree(lambda x: cross_entropy(x, torch.tensor(3)), x, mesh, [Shard(0)])
        agree(lambda x: cross_entropy(x, torch.tensor([3]), reduction="sum"), x, mesh, [Shard(0)])
        y = cross_entropy(distribute_tensor(x, mesh, [Shard(0)]), torch.tensor(3))  # without dims, outside of the block
        assert torch.allclose(whole(y), cross_entropy(x, torch.tensor(3)))

    on_mesh((2,), program)


def test_scores_of_low_precision_and_infinite_ones():
    def program(mesh):
        torch.manual_seed(0)
        x, targets = scores(SAMPLES, 8), torch.tensor([0, 3, 1, 3, 7, 2])
        x[:, 4] = -torch.inf
        agree(lambda x: cross_entropy(x, targets), x, mesh, [Shard(1)])
        low = x.to(torch.bfloat16)
        with loss_parallel():
            y = cross_entropy(distribute_tensor(low, mesh, [Shard(1)]), targets)
        assert y.dtype == torch.bfloat16
        assert torch.equal(whole(y), cross_entropy(low, targets))

    on_mesh((2,), program)


def test_what_does_not_fit_is_refused_as_for_whole_scores():
    def program(mesh):
        x, targets = distribute_tensor(scores(4, 8), mesh, [Shard(1)]), torch.tensor([0, 1, 2, 9])
        with pytest.raises(RuntimeError, match=r"got mixed torch.Tensor and DTensor"):
            cross_entropy(x, targets)
        with loss_parallel():
            with pytest.raises(IndexError, match=r"Target 9 is out of bounds\."):
                whole(cross_entropy(x, targets))
            with pytest.raises(ValueError, match=r"Expected input batch_size \(4\) to match target batch_size \(3\)"):
                cross_entropy(x, targets[:3])
            with pytest.raises(RuntimeError, match="weight tensor should be defined either for all 8 classes or no"):
                cross_entropy(x, targets, torch.ones(4).double())
            with ExplicitRedistributionContext():
                cross_entropy(x, targets.clamp(max=7))
        with ExplicitRedistributionContext(), pytest.raises(RuntimeError, match="Implicit redistribution"):
            cross_entropy(x, distribute_tensor(targets, mesh))

    on_mesh((2,), program)
