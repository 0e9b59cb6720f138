"""Distributed tensors: made, moved, computed with, differentiated, written."""

from __future__ import annotations

import copy
import pickle
from itertools import product

import numpy as np
import pytest

import weft as torch
from tests.distributed.tensor.threads import WHOLE, on_mesh
from weft import nn
from weft.distributed import tensor as dt
from weft.distributed.device_mesh import DeviceMesh, init_device_mesh
from weft.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from weft.distributed.tensor.debug import CommDebugMode
from weft.errors import DistError
from weft.serialization import save_file
from weft.utils.checkpoint import checkpoint

SOME = [Replicate(), Shard(0), Shard(1), Partial()]


def numbered(*shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape).double()


def test_a_dim_is_divided_as_chunk_divides_it():
    def program(mesh):
        return [distribute_tensor(numbered(size, 2), mesh, [Shard(0)]).to_local().shape[0] for size in (5, 8, 1, 0)]

    assert on_mesh((4,), program) == [[2, 2, 1, 0], [2, 2, 0, 0], [1, 2, 0, 0], [0, 2, 0, 0]]


@pytest.mark.parametrize(("op", "expected"), [("sum", 10), ("avg", 2.5), ("max", 4), ("min", 1), ("product", 24)])
def test_pending_reductions(op, expected):
    def program(mesh):
        x = DTensor.from_local(torch.full((2,), mesh.get_rank() + 1.0), mesh, [Partial(op)])
        return x.full_tensor().tolist(), x.redistribute(placements=[Shard(0)]).full_tensor().tolist()

    assert on_mesh((4,), program) == [([expected] * 2,) * 2] * 4


@pytest.mark.parametrize("size", [(5, 3), *([(0, 2), (4, 6), (1, 7)] if WHOLE else [])], ids=str)
def test_every_placement_leads_to_every_other_and_back(size):
    def program(mesh):
        x = numbered(*size)
        weights = numbered(*size) + 1
        moves = [*product(product(SOME, repeat=2), product(SOME[:3], repeat=2))]
        for source, target in moves if WHOLE else moves[::5]:  # each source and each target
            start = distribute_tensor(x, mesh).requires_grad_()
            moved = _placed(start, source)
            again = moved.redistribute(placements=target)
            assert again.placements == target
            assert again.to_local().shape == again.sharding.local_shape
            assert torch.equal(again.full_tensor(), x), (source, target)
            (again * distribute_tensor(weights, mesh)).sum().backward()
            assert torch.equal(start.grad.full_tensor(), weights), (source, target)

    on_mesh((2, 2), program)


def _placed(x, placements):
    """`x`, which is replicated, with placements to which users cannot move it."""
    ranks = x.device_mesh.get_coordinate()
    result = x.redistribute(placements=[Replicate() if p.is_partial() else p for p in placements])
    if not any(p.is_partial() for p in placements):
        return result
    first = all(rank == 0 for rank, p in zip(ranks, placements, strict=True) if p.is_partial())
    gradients = [p if p.is_partial() else own for p, own in zip(placements, result.placements, strict=True)]
    own = result.to_local(grad_placements=gradients) * float(first)
    return DTensor.from_local(own, x.device_mesh, placements, shape=x.shape)


def test_parts_make_a_tensor():
    def program(mesh):
        part = torch.full((2, 3), float(mesh.get_rank()), requires_grad=True)
        x = DTensor.from_local(part, mesh, [Shard(0)])
        (x * x).sum().backward()
        assert x.shape == (8, 3)
        assert isinstance(x, DTensor)
        assert x.is_leaf is False
        assert torch.equal(part.grad, 2 * part.detach())
        with pytest.raises(DistError, match=r"has a part of size \[2, .\], but its part of a tensor of size \[7, 3\]"):
            DTensor.from_local(part if mesh.get_rank() == 3 else torch.ones(2, 2), mesh, [Shard(0)], shape=(7, 3))
        uneven = torch.ones(2 if mesh.get_rank() < 3 else 1)
        return DTensor.from_local(uneven, mesh, [Shard(0)], shape=(7,)).sum().item()

    assert on_mesh((4,), program) == [7.0] * 4


def test_a_gradient_of_a_local_part_may_be_partial():
    def program(mesh):
        x = distribute_tensor(torch.ones(3), mesh).requires_grad_()
        (x.to_local(grad_placements=[Partial()]) * (mesh.get_rank() + 1)).sum().backward()
        return x.grad.to_local().tolist()

    assert on_mesh((2,), program) == [[3.0] * 3] * 2


def test_gradients_of_a_local_tensor_lie_as_asked():
    """Parts of a sum instead of the sum, if `from_local` is told so. In PyTorch, all processes have equal parts."""

    def program(mesh):
        own = torch.ones(3, requires_grad=True)
        x = DTensor.from_local(own, mesh, [Replicate()], grad_placements=[Partial()])
        (x * distribute_tensor(torch.arange(3.0), mesh)).sum().backward()
        pending = DTensor.from_local(own.detach(), mesh, [Partial()])
        pending.requires_grad_()
        (pending.to_local(grad_placements=[Partial()]) * (mesh.get_rank() + 1)).sum().backward()
        text = r"gradients with the placements \['R'\] have the size \[6\], and the local tensor has \[3\]"
        with pytest.raises(ValueError, match=text):
            DTensor.from_local(own, mesh, [Shard(0)], grad_placements=[Replicate()])
        return own.grad.tolist(), pending.grad.to_local().tolist()

    assert on_mesh((2,), program) == [([0, 1, 2], [3, 3, 3]), ([0, 0, 0], [3, 3, 3])]


def test_a_rank_outside_of_the_mesh_has_empty_parts():
    """The same program runs there: a training step, views, transfers. Scalars have no empty part, as in PyTorch."""

    def program(world):
        mesh = DeviceMesh("cpu", [0, 2])
        x = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])
        own = torch.ones(4, 2, requires_grad=True)
        joined = DTensor.from_local(own, mesh, [Shard(0)], run_check=True)
        (joined * joined).sum().backward()
        model = distribute_module(nn.Linear(2, 3), mesh)
        loss = nn.functional.cross_entropy(model(x), distribute_tensor(torch.arange(4) % 3, mesh, [Shard(0)]))
        loss.backward()
        x.add_(x + torch.tensor(1.0)).t()[0].fill_(7)
        everything = [
            joined,
            x,
            x.t(),
            x.split(1, 1)[0],
            x.redistribute(placements=[Shard(1)]),
            x.sum(0),
            model.weight.grad,
            dt.zeros(4, 3, device_mesh=mesh, placements=[Shard(0)]),
            dt.rand(4, 4, device_mesh=mesh, placements=[Shard(1)]),
        ]
        shapes = [tuple(d.shape) for d in everything]
        assert shapes == [(8, 2), (4, 2), (2, 4), (4, 1), (4, 2), (2,), (3, 2), (4, 3), (4, 4)]
        assert [d.ndim for d in everything] == [len(shape) for shape in shapes]
        assert loss.shape == loss.to_local().shape == ()
        if mesh.get_coordinate() is None:
            assert own.grad is None
            assert x.full_tensor().shape == (0,)
            assert {tuple(d.to_local().shape) for d in everything} == {(0,)}
        else:
            assert own.grad.eq(2).all()
            assert x.full_tensor().tolist() == [[7, 3]] * 4
            assert all(d.to_local().numel() for d in everything)
        return mesh.get_coordinate()

    assert on_mesh((4,), program) == [(0,), None, (1,), None]


def test_tensors_without_data_are_distributed_and_computed_with():
    def program(mesh):
        x = distribute_tensor(torch.empty(7, 4, device="meta"), mesh, [Shard(0)])
        with torch.device("meta"):
            model = nn.Linear(4, 6)
        distribute_module(model, mesh)
        y = model(x)
        y.sum().backward()
        everything = [x, y, x.sum(0), x.redistribute(placements=[Shard(1)]), x.full_tensor(), model.weight.grad]
        assert {str(d.device) for d in everything} == {"meta"}
        assert [tuple(d.shape) for d in everything] == [(7, 4), (7, 6), (4,), (7, 4), (7, 4), (6, 4)]
        model.to_empty(device="cpu")
        nn.init.ones_(model.weight)
        assert model.weight.full_tensor().eq(1).all()
        return x.placements, tuple(x.to_local().shape), tuple(everything[3].to_local().shape)

    assert on_mesh((2,), program) == [((Shard(0),), (4, 4), (7, 2)), ((Shard(0),), (3, 4), (7, 2))]


def test_what_lies_on_another_mesh_is_refused():
    def program(mesh):
        other = DeviceMesh("cpu", [1, 0])
        x, y = (distribute_tensor(torch.ones(4), where, [Shard(0)]) for where in (mesh, other))
        text = (
            r"all tensors must be on one mesh, but got DeviceMesh\('cpu', \[0, 1\]\) and DeviceMesh\('cpu', \[1, 0\]\)"
        )
        calls = (
            lambda: x + y,
            lambda: torch.cat([x, y]),
            lambda: x.clone().copy_(y),
            lambda: torch.add(x, x, out=y.clone()),
            lambda: (y.clone().requires_grad_() * 1).backward(x),
        )
        for call in calls:
            with pytest.raises(RuntimeError, match=text):
                call()
        return x.sum().item()  # nothing is left hanging

    assert on_mesh((2,), program) == [4.0] * 2


def test_plain_tensors_are_not_mixed_with_distributed_ones():
    def program(mesh):
        x, plain = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]), torch.ones(4, 2)
        calls = (
            (lambda: plain @ x.t(), "got mixed torch.Tensor and DTensor"),
            (lambda: plain.add_(x), "got mixed torch.Tensor and DTensor"),
            (lambda: torch.where(x > 0, x, plain), "got mixed torch.Tensor and DTensor"),
            (lambda: x[torch.tensor([0, 1])], "got mixed torch.Tensor and DTensor"),
            (lambda: x.__setitem__(0, torch.ones(2)), "got mixed torch.Tensor and DTensor"),
            (lambda: torch.add(x, x, out=plain), "cannot write a DTensor to a tensor"),
            (lambda: torch.add(plain, plain, out=x), "cannot write a plain tensor to a DTensor"),
            (
                lambda: (x.clone().requires_grad_() * 1).backward(plain),
                "is a plain tensor, and what it is the gradient",
            ),
            (lambda: setattr(x, "grad", plain), "attempting to assign a plain tensor as the gradient of a DTensor"),
            (lambda: init_device_mesh("cpu", (3,)), "bigger than default world size 2, but found 3 ranks"),
        )
        for call, text in calls:
            with pytest.raises(RuntimeError, match=text):
                call()
        with pytest.raises(TypeError, match="distribute_tensor takes a tensor, but got a list"):
            distribute_tensor([1.0], mesh)
        leaf = x.detach().requires_grad_()
        leaf.grad = distribute_tensor(plain, mesh)
        assert leaf.grad.placements == (Replicate(),)
        return x.sum().item()

    assert on_mesh((2,), program) == [8.0] * 2


def test_plain_tensors_of_one_element_are_replicated():
    def program(mesh):
        x, one = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]), torch.tensor([3.0], requires_grad=True)
        results = [x + one, one + x, torch.where(x > 2, x, one), torch.ones(1, 1, 1) * x, x[torch.tensor([0])]]
        assert [tuple(d.shape) for d in results] == [(4, 2), (4, 2), (4, 2), (1, 4, 2), (1, 2)]
        assert all(isinstance(d, DTensor) for d in results)
        (x * one).sum().backward()
        scalar = distribute_tensor(torch.tensor(2.0), mesh) + torch.ones(1)
        assert isinstance(scalar, DTensor)
        x.copy_(torch.full((1,), 5.0))
        return results[0].full_tensor().tolist(), x.sum().item(), scalar.tolist(), one.grad.tolist()

    with pytest.warns(UserWarning, match="Found a non-scalar tensor with numel=1 and ndim!=0"):
        assert on_mesh((2,), program) == [([[4.0] * 2] * 4, 40, [3], [8])] * 2


def test_without_parts_in_common_an_error_says_what_to_do():
    def program(mesh):
        x = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
        with pytest.raises(RuntimeError, match=r"^add\(\) got mixed torch.Tensor and DTensor, need to convert all"):
            x + torch.ones(4)
        assert (x + torch.tensor(1.0)).full_tensor().tolist() == [2.0] * 4
        with pytest.raises(RuntimeError, match="all tensors must be on one mesh"):
            x + distribute_tensor(torch.ones(4), init_device_mesh("cpu", (1, 2)))
        with pytest.raises(RuntimeError, match=r"The size of tensor a \(4\) must match the size of tensor b \(3\)"):
            x + distribute_tensor(torch.ones(3), mesh)
        with pytest.raises(RuntimeError, match=r"got mixed torch\.Tensor and DTensor"):
            x.copy_(torch.ones(4))

    on_mesh((2,), program)


def test_bad_placements():
    def program(mesh):
        x = torch.ones(4, 2)
        text = (
            r"^`placements` must have the same length as `device_mesh.ndim`! Found placements length: 2, and "
            r"device_mesh.ndim: 1\.$"
        )
        with pytest.raises(ValueError, match=text):
            distribute_tensor(x, mesh, [Shard(0), Shard(1)])
        with pytest.raises(AssertionError, match=r"^Shard\(dim=2\): the tensor has 2 dims$"):
            distribute_tensor(x, mesh, [Shard(2)])
        with pytest.raises(ValueError, match=r"^Unrecognized reduce_op: foo; it is one of sum, "):
            DTensor.from_local(x, mesh, [Partial("foo")])
        with pytest.raises(TypeError, match="Shard takes the number of a dim, but got 'batch'; names go in a dict"):
            distribute_tensor(x, mesh, [Shard("batch")])
        with pytest.raises(ValueError, match="mesh dim 0 is given twice"):
            distribute_tensor(torch.ones(4, 2, names=("a", "b")), mesh, {"a": 0, "b": 0})
        with pytest.raises(RuntimeError, match="a placement is Shard"):
            distribute_tensor(x, mesh, ["Shard"])
        with pytest.raises(RuntimeError, match=r"^No device mesh is currently active!$"):
            distribute_tensor(x)
        with mesh:
            assert distribute_tensor(x).placements == (Replicate(),)
        y = distribute_tensor(x, mesh, [Shard(0)])
        with pytest.raises(RuntimeError, match=r"^placements is needed for redistribute!$"):
            y.redistribute()
        with pytest.raises(RuntimeError, match=r"^Can not redistribute from S\(0\) to P\(sum\), redistributing to "):
            y.redistribute(placements=[Partial()])
        with pytest.raises(RuntimeError, match=r"should be used to distribute leaf tensors! but found non-leaf"):
            distribute_tensor(x.requires_grad_() * 2, mesh)
        with pytest.raises(AttributeError):
            y.placements = (Replicate(),)

    on_mesh((2,), program)


def test_pending_sums_are_never_taken_for_the_sum():
    def program(mesh):
        def pending():
            return DTensor.from_local(torch.tensor([1.0, -2.0]), mesh, [Partial()])

        assert (pending() + 1).full_tensor().tolist() == [3.0, -3.0]
        assert (pending() > 1).full_tensor().tolist() == [True, False]
        assert pending().sum().item() == -2.0
        assert float(pending().norm()) == pytest.approx(20**0.5)
        assert pending().abs().full_tensor().tolist() == [2.0, 4.0]
        assert pending().tolist() == [2.0, -4.0]
        assert "tensor([ 2., -4.])" in repr(pending())
        assert bool((pending() == pending()).all())
        assert (pending() * 3 / 2).placements == (Partial(),)

    on_mesh((2,), program)


def test_tensors_are_written_and_viewed():
    def program(mesh):
        whole = numbered(4, 6)
        x = distribute_tensor(whole, mesh, [Shard(0)])
        x += 1
        x.mul_(distribute_tensor(numbered(6), mesh, [Shard(0)]))
        x[1] = 5.0
        x.view(2, 2, 6)[:, 0].zero_()
        whole += 1
        whole.mul_(numbered(6))
        whole[1] = 5.0
        whole.view(2, 2, 6)[:, 0].zero_()
        assert x.placements == (Shard(0),)
        assert torch.equal(x.full_tensor(), whole)
        assert x.t().shape == (6, 4)
        assert x.t().placements == (Shard(1),)
        assert x.t().stride() == (1, 6)
        assert x.view(2, 12).placements == (Shard(0),)

    on_mesh((2,), program)


def test_names_give_placements_and_are_kept():
    def program(mesh):
        x = torch.ones(4, 6, names=("batch", "hidden"))
        y = distribute_tensor(x, mesh, {"batch": "dp", "hidden": "tp"})
        total = y.sum("hidden")
        return y.placements, y.names, total.names, total.placements

    kept = (Shard(0), Shard(1)), ("batch", "hidden"), ("batch",), (Shard(0), Partial())
    assert on_mesh((2, 2), program, ("dp", "tp")) == [kept] * 4


def test_only_a_part_is_made():
    def program(mesh):
        with mesh:
            shapes = [f(8, 3, placements=[Shard(0)]).to_local().shape for f in (dt.zeros, dt.ones, dt.empty)]
            assert dt.full((2, 2), 7.0).full_tensor().tolist() == [[7.0, 7.0]] * 2
            assert dt.ones((4,), requires_grad=True).requires_grad
        return shapes

    assert on_mesh((4,), program) == [[(2, 3)] * 3] * 4


def test_random_numbers_are_those_of_one_device():
    def program(mesh):
        with mesh:
            torch.manual_seed(1)
            ours = dt.randn(5, 3, placements=[Shard(0)]), dt.rand(4, placements=[Shard(0)])
            torch.manual_seed(1)
            whole = torch.randn(5, 3), torch.rand(4)
            torch.manual_seed(2)
            dropped = nn.functional.dropout(ours[0]), torch.rand_like(ours[0])
            torch.manual_seed(2)
            expected = nn.functional.dropout(whole[0]), torch.rand_like(whole[0])
        for own, other in zip((*ours, *dropped), (*whole, *expected), strict=True):
            assert torch.equal(own.full_tensor(), other)
        assert dropped[1].placements == (Shard(0),)

    on_mesh((2,), program)


DRAWS = {
    "dropout": nn.functional.dropout,
    "dropout of channels": lambda x: nn.functional.dropout1d(x[None]),
    "alpha dropout": lambda x: nn.functional.feature_alpha_dropout(x[None], 0.3),
    "rrelu": lambda x: nn.functional.rrelu(x, training=True),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "binomial": lambda x: torch.binomial(torch.full_like(x, 50), x.sigmoid()),
    "normal": lambda x: torch.normal(x, x.abs()),
    "complex": lambda x: torch.randn_like(x, dtype=torch.complex64),
    "integers": lambda x: torch.randint_like(x, 100),
    "samples": lambda x: torch.multinomial(x.exp(), 2),
    "fills": lambda x: x.clone().normal_(1, 2).add_(x.clone().uniform_()).add_(x.clone().exponential_()),
    "xavier": lambda x: nn.init.xavier_uniform_(x.clone()),
    "orthogonal": lambda x: nn.init.orthogonal_(x.clone()),
    "sparse": lambda x: nn.init.sparse_(x.clone(), 0.3),
    "identity": lambda x: nn.init.eye_(x.clone()),
    "gamma": lambda x: torch._standard_gamma(x.exp()),
    "poisson": lambda x: torch.poisson(x.exp()),
}


@pytest.mark.parametrize("shape", [(2,), (2, 2)] if WHOLE else [(2,)], ids=str)
def test_every_draw_has_the_numbers_of_one_device_and_sends_nothing(shape):
    def program(mesh):
        torch.manual_seed(0)
        whole = torch.randn(5, 6)
        for placements in product([Shard(0), Shard(1), Replicate()], repeat=mesh.ndim):
            x = distribute_tensor(whole, mesh, placements)
            for name, draw in DRAWS.items():
                torch.manual_seed(1)
                expected = draw(whole)
                torch.manual_seed(1)
                with CommDebugMode() as mode, torch.no_grad():
                    drawn = draw(x)
                assert torch.equal(drawn.full_tensor(), expected), (name, placements)
                draws_all = name in ("binomial", "gamma", "poisson", "samples")
                assert draws_all or not mode.get_total_counts(), (name, placements)

    on_mesh(shape, program)


def test_dropped_elements_have_no_gradient():
    def program(mesh):
        whole = torch.ones(6, 4).requires_grad_()
        x = distribute_tensor(torch.ones(6, 4), mesh, [Shard(0)]).requires_grad_()
        for leaf in (whole, x):
            torch.manual_seed(3)
            (nn.functional.dropout(leaf) * 3).sum().backward()
        assert torch.equal(x.grad.full_tensor(), whole.grad)

    on_mesh((2,), program)


def test_new_tensors_lie_as_those_that_they_are_like():
    def program(mesh):
        x = distribute_tensor(numbered(4, 6), mesh, [Shard(1)])
        assert torch.zeros_like(x).placements == (Shard(1),)
        assert torch.full_like(x, 2, requires_grad=True).requires_grad
        assert x.new_ones(3).placements == (Replicate(),)
        assert x[x > 20].tolist() == [21, 22, 23]
        x[[0, 1]] = [1.0] * 6
        assert x.full_tensor()[:2].eq(1).all()
        assert copy.deepcopy(x).placements == (Shard(1),)

    on_mesh((2,), program)


def test_derivatives_of_derivatives_regions_and_mixed_precision():
    def program(mesh):
        x = distribute_tensor(numbered(4), mesh, [Shard(0)]).requires_grad_()
        (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(grad.sum(), x)
        assert second.full_tensor().tolist() == [0, 6, 12, 18]
        layer = distribute_module(nn.Linear(4, 2), mesh)
        batch = distribute_tensor(torch.ones(6, 4), mesh, [Shard(0)])
        checkpoint(layer, batch, use_reentrant=False).sum().backward()
        assert layer.weight.grad.full_tensor().tolist() == [[6.0] * 4] * 2
        assert float(nn.utils.clip_grad_norm_(layer.parameters(), 1.0)) == pytest.approx(6 * 10**0.5)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(batch)
        assert (y.dtype, y.placements) == (torch.bfloat16, (Shard(0),))

    on_mesh((2,), program)


def test_a_plan_that_sends_nothing_is_used_again():
    def program(mesh):
        x = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)]).requires_grad_()
        for _ in range(3):
            x.grad = None
            y = (x * x).tanh()
            assert (type(y), y.placements) == (DTensor, (Shard(0),))
            with CommDebugMode() as mode:
                (x * x).tanh().sum().backward()
            assert "tanh: " in mode.generate_comm_debug_tracing_table(3)
            assert "tanh: " not in mode.generate_comm_debug_tracing_table(0)
            assert type(x.grad) is DTensor
        with torch.no_grad():
            assert (x.amax().placements, (x + x).amax().item()) == ((Partial("max"),), 10)
        assert (x + x).amax().placements == (Replicate(),)

    on_mesh((2,), program)


def test_to_another_mesh():
    def program(mesh):
        line = DeviceMesh("cpu", [3, 1, 2, 0])
        whole = torch.arange(30, dtype=torch.float64).view(6, 5)
        for source in product(SOME, repeat=2):
            for target in ([Replicate()], [Shard(0)], [Shard(1)]):
                x = distribute_tensor(whole, mesh).requires_grad_()
                y = (x * 1).redistribute(placements=source) if Partial() not in source else as_partial(x, source)
                y = y.redistribute(line, target)
                assert (y.device_mesh, y.placements) == (line, tuple(target))
                assert torch.equal(y.full_tensor(), whole)
                (y * y).sum().backward()
                assert x.grad.device_mesh == mesh
                assert torch.equal(x.grad.full_tensor(), 2 * whole)

    on_mesh((2, 2), program)


def as_partial(x, placements):
    """The distributed tensor `x` as sums over the mesh dims with `Partial()`."""
    rest = [Replicate() if p == Partial() else p for p in placements]
    moved = (x * 1).redistribute(placements=rest)
    shares = [2 if p == Partial() else 1 for p in placements]
    local = moved.to_local(grad_placements=placements) / (shares[0] * shares[1])
    return DTensor.from_local(local, x.device_mesh, placements, shape=x.shape)


def test_results_whose_sizes_depend_on_values_are_replicated():
    def program(mesh):
        whole = torch.tensor([3, 0, 2, 3, 1, 0])
        x = distribute_tensor(whole, mesh, [Shard(0)])
        for function in (
            lambda x: x.nonzero(),
            lambda x: x.nonzero(as_tuple=True)[0],
            lambda x: x.unique(return_counts=True)[1],
            lambda x: torch.unique_consecutive(x),
            lambda x: torch.bincount(x),
            lambda x: x[x > 1],
        ):
            result = function(x)
            assert (type(result), result.placements) == (DTensor, (Replicate(),))
            assert torch.equal(result.full_tensor(), function(whole))

    on_mesh((2,), program)


def test_several_mesh_dims_for_one_name():
    def program(mesh):
        x = torch.ones(8, 4, names=("batch", "hidden"))
        y = distribute_tensor(x, mesh, {"batch": ("dp", "tp")})
        assert y.placements == (Shard(0), Shard(0))
        assert y.to_local().shape == (2, 4)
        with pytest.raises(TypeError, match="device_mesh must be a DeviceMesh, as init_device_mesh makes it, but got"):
            distribute_tensor(x, "cpu")
        with pytest.raises(RuntimeError, match=r"Expected one of .* device type at start of device string: gpuu"):
            init_device_mesh("gpuu", (4,))

    on_mesh((2, 2), program, ("dp", "tp"))


def test_parts_are_not_saved_as_the_whole(tmp_path):
    def program(mesh):
        x = distribute_tensor(torch.ones(4, names=("a",)), mesh, [Shard(0)])
        with pytest.raises(RuntimeError, match=r"a DTensor of size \[4\] cannot be saved: this process has a part"):
            save_file({"x": x}, tmp_path / "x")
        assert pickle.loads(pickle.dumps(x)).names == x.full_tensor().names == ("a",)
        assert f"{x.sum():.2f}" == "4.00"

    on_mesh((2,), program)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        batch, time, _ = x.shape
        q, k, v = (f(x).view(batch, time, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(mixed.transpose(1, 2).reshape(batch, time, -1))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.down(nn.functional.gelu(self.up(self.n2(x))))


class Language(nn.Module):
    def __init__(self, words=32, width=16, heads=4, layers=2):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens, targets):
        scores = self.head(self.norm(self.blocks(self.words(tokens))))
        return nn.functional.cross_entropy(scores.view(-1, scores.shape[-1]), targets.view(-1), ignore_index=0)


def trained(model, tokens, targets, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


COLUMN, ROW = {"q", "k", "v", "up"}, {"o", "down"}


def split_layers(name, module, mesh):
    """Every other layer column-wise, and the ones between row-wise, over the last mesh dim."""
    last = name.rpartition(".")[2]
    if last not in COLUMN | ROW:
        return
    ahead = [Replicate()] * (mesh.ndim - 1)
    weight, bias = ([*ahead, Shard(0)],) * 2 if last in COLUMN else ([*ahead, Shard(1)], None)
    module.weight = nn.Parameter(distribute_tensor(module.weight.detach(), mesh, weight))
    module.bias = nn.Parameter(distribute_tensor(module.bias.detach(), mesh, bias))


def shard_all(name, module, mesh):
    """Every parameter along its first dim, over all mesh dims."""
    del name
    for key, parameter in list(module.named_parameters(recurse=False)):
        sharded = distribute_tensor(parameter.detach(), mesh, [Shard(0)] * mesh.ndim)
        module.register_parameter(key, nn.Parameter(sharded))


@pytest.mark.parametrize(
    ("shape", "partition"),
    [((2,), None), ((2, 2), split_layers), pytest.param((3,), shard_all, marks=pytest.mark.soak)],
    ids=["data", "tensor", "sharded"],
)
def test_a_language_model_trains_as_on_one_device(shape, partition):
    def program(mesh):
        torch.manual_seed(0)
        plain = Language().double()
        tokens, targets = torch.randint(0, 32, (6, 8)), torch.randint(0, 32, (6, 8))
        model = distribute_module(copy.deepcopy(plain), mesh, partition)
        batch = [Shard(0), *[Replicate()] * (mesh.ndim - 1)]
        losses = trained(model, *(distribute_tensor(x, mesh, batch) for x in (tokens, targets)))
        assert losses == pytest.approx(trained(plain, tokens, targets), rel=1e-12)
        for (name, own), other in zip(model.named_parameters(), plain.parameters(), strict=True):
            assert isinstance(own, DTensor), name
            assert isinstance(own, nn.Parameter), name
            assert own.grad.placements == own.placements
            np.testing.assert_allclose(own.full_tensor().detach(), other.detach(), rtol=1e-9, atol=1e-12)

    on_mesh(shape, program)
