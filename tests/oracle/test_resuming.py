"""Trainings that one package has begun and the other goes on with: states and whole objects in checkpoints."""

from __future__ import annotations

import inspect
import io
import random
import warnings

import numpy as np
import pytest

import weft
from tests.oracle.test_checkpoints import assert_same

torch = pytest.importorskip("torch", reason="needs torch")

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings(
        "ignore:Sparse CSR", "ignore:torch.cuda.amp", "ignore:The PyTorch API of nested", "ignore:this RNG state"
    ),
]

WAYS = [(torch, weft), (weft, torch)]
by_way = pytest.mark.parametrize(("begun", "resumed"), WAYS, ids=["from_torch", "to_torch"])


def moved(obj, begun, resumed, *, weights_only=True):
    """An object saved by one package and loaded by the other."""
    file = io.BytesIO()
    begun.save(obj, file)
    file.seek(0)
    return resumed.load(file, weights_only=weights_only)


# --- optimizers ---

FLAGS = (
    *({"foreach": True}, {"foreach": False}, {"fused": True}, {"maximize": True}, {"amsgrad": True}),
    *({"momentum": 0.9, "nesterov": True}, {"momentum": 0.5, "centered": True}, {"decoupled_weight_decay": True}),
    *({"line_search_fn": "strong_wolfe"}, {"momentum_decay": 0.1, "weight_decay": 0.1}),
)


def _optimizers():
    cases = []
    for name, kind in sorted(vars(torch.optim).items()):
        if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer:
            known = inspect.signature(kind).parameters
            for flags in ({}, *(flags for flags in FLAGS if flags.keys() <= known.keys())):
                cases.append(pytest.param(name, flags, id="-".join((name, *flags))))
    return cases


def _params(lib, name):
    params = [lib.nn.Parameter(lib.tensor([[1.0, 2.0, -1.0], [0.5, 0.3, 0.2]]))]
    return params if name == "Muon" else [*params, lib.nn.Parameter(lib.tensor([0.5, -0.4]))]


def _step(optimizer, lib, steps):
    params = optimizer.param_groups[0]["params"]

    def closure():
        for param in params:
            param.grad = 2 * param.detach()
        return sum((param.detach() ** 2).sum() for param in params)

    for step in range(steps):
        for at, param in enumerate(params):
            grad = lib.arange(float(param.numel())).reshape(param.shape) * 0.1 * (step + 1) + 0.05 * (at + 1)
            param.grad = grad.to_sparse(1) if type(optimizer).__name__ == "SparseAdam" else grad
        if type(optimizer).__name__ == "LBFGS":
            optimizer.step(closure)
        else:
            optimizer.step()


def assert_equal_steps(optimizer, lib, other, other_lib):
    _step(optimizer, lib, 2)
    _step(other, other_lib, 2)
    for x, y in zip(optimizer.param_groups[0]["params"], other.param_groups[0]["params"], strict=True):
        np.testing.assert_allclose(x.tolist(), y.tolist(), rtol=1e-4, atol=1e-5)


@by_way
@pytest.mark.parametrize(("name", "flags"), _optimizers())
def test_optimizers_go_on(name, flags, begun, resumed):
    params = _params(begun, name)
    optimizer = getattr(begun.optim, name)(params, lr=0.1, **flags)
    _step(optimizer, begun, 2)
    state = moved({"params": params, "optimizer": optimizer.state_dict()}, begun, resumed)
    again = getattr(resumed.optim, name)(state["params"], lr=0.3)
    again.load_state_dict(state["optimizer"])
    for group, loaded in zip(optimizer.state_dict()["param_groups"], again.state_dict()["param_groups"], strict=True):
        assert_same(*((loaded, group) if begun is torch else (group, loaded)))
    for at, entries in optimizer.state_dict()["state"].items():
        loaded = again.state_dict()["state"][at]
        if name == "SparseAdam":  # whose count of steps is a tensor here, and a number there
            assert int(loaded["step"]) == int(entries["step"])
            continue
        assert {key: type(x).__name__ for key, x in loaded.items()} == {k: type(x).__name__ for k, x in entries.items()}
    assert_equal_steps(optimizer, begun, again, resumed)


@by_way
@pytest.mark.parametrize(("name", "flags"), _optimizers())
def test_whole_optimizers_go_on(name, flags, begun, resumed):
    params = _params(begun, name)
    optimizer = getattr(begun.optim, name)(params, lr=0.1, **flags)
    if name != "LBFGS":  # of which PyTorch, too, saves no more than it says
        _step(optimizer, begun, 2)
    loaded, again = moved((params, optimizer), begun, resumed, weights_only=False)
    assert type(again) is getattr(resumed.optim, name)
    assert again.param_groups[0]["params"][0] is loaded[0]
    if name != "LBFGS":
        assert_equal_steps(optimizer, begun, again, resumed)


# --- schedules ---


def slower(epoch):
    return 0.9**epoch


SCHEDULES = {
    "LambdaLR": lambda s, o: s.LambdaLR(o, slower),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, slower),
    "StepLR": lambda s, o: s.StepLR(o, 2),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [2, 4, 4]),
    "ConstantLR": lambda s, o: s.ConstantLR(o),
    "LinearLR": lambda s, o: s.LinearLR(o),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, power=2),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 5),
    "SequentialLR": lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, total_iters=2), s.ExponentialLR(o, 0.9)], [2]),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler([s.ConstantLR(o), s.ExponentialLR(o, 0.9)], optimizer=o),
    "ReduceLROnPlateau": lambda s, o: s.ReduceLROnPlateau(o, patience=0),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "CyclicLR-exp_range": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=2, mode="exp_range", gamma=0.9),
    "CyclicLR-scale_fn": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=2, scale_fn=slower),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=12),
    "OneCycleLR-linear": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=12, anneal_strategy="linear", three_phase=True),
    "SWALR": None,
    "SWALR-linear": None,
}


def _schedule(lib, name):
    optimizer = lib.optim.SGD([lib.nn.Parameter(lib.ones(2))], lr=0.1, momentum=0.9)
    if name.startswith("SWALR"):
        strategy = "linear" if name.endswith("linear") else "cos"
        return optimizer, lib.optim.swa_utils.SWALR(optimizer, 0.05, anneal_epochs=4, anneal_strategy=strategy)
    return optimizer, SCHEDULES[name](lib.optim.lr_scheduler, optimizer)


def _rates(optimizer, schedule, steps):
    found = []
    for step in range(steps):
        optimizer.step()
        schedule.step(*([1.0 + step] if type(schedule).__name__ == "ReduceLROnPlateau" else []))
        group = optimizer.param_groups[0]
        found += [float(group["lr"]), float(group["momentum"]), *map(float, schedule.get_last_lr())]
    return found


@by_way
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_go_on(name, begun, resumed):
    optimizer, schedule = _schedule(begun, name)
    _rates(optimizer, schedule, 3)
    states = moved([optimizer.state_dict(), schedule.state_dict()], begun, resumed)
    _, *whole = moved([optimizer.param_groups[0]["params"], optimizer, schedule], begun, resumed, weights_only=False)
    again = _schedule(resumed, name)
    for part, state in zip(again, states, strict=True):
        part.load_state_dict(state)
    assert set(again[1].state_dict()) == set(schedule.state_dict())
    assert type(whole[1]) is type(again[1])
    rates = _rates(optimizer, schedule, 5)
    for found in (again, whole):
        np.testing.assert_allclose(_rates(*found, 5), rates, rtol=1e-6)


# --- scalers ---


@by_way
@pytest.mark.parametrize("enabled", [True, False])
def test_scalers_go_on(enabled, begun, resumed):
    scaler = begun.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2, enabled=enabled)

    def train(lib, scaler):
        param = lib.nn.Parameter(lib.ones(2))
        optimizer = lib.optim.SGD([param], lr=0.1)
        scaler.scale((param * param).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    train(begun, scaler)
    again = resumed.amp.GradScaler("cpu", enabled=enabled)
    again.load_state_dict(moved(scaler.state_dict(), begun, resumed))
    whole = moved(scaler, begun, resumed, weights_only=False)
    assert type(whole) is resumed.amp.GradScaler
    train(begun, scaler)
    for other in (again, whole):
        train(resumed, other)
        assert other.state_dict() == scaler.state_dict()
    assert scaler.get_scale() == (32 if enabled else 1)


# --- random numbers ---


@by_way
def test_a_checkpoint_of_a_training_goes_on(begun, resumed):
    net = begun.nn.Linear(2, 1)
    optimizer = begun.optim.AdamW(net.parameters(), lr=0.01, foreach=False)
    schedule = begun.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
    net(begun.ones(1, 2)).sum().backward()
    optimizer.step()
    schedule.step()
    order = begun.Generator().manual_seed(5)
    begun.randperm(3, generator=order)
    checkpoint = {
        "epoch": 1,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": net.state_dict(),
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [schedule.state_dict()],
        "MixedPrecision": begun.amp.GradScaler("cpu").state_dict(),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 1}}}},
        "callbacks": {"EarlyStopping{'monitor': 'loss'}": {"best_score": begun.tensor(1.0), "wait_count": 0}},
        "rng_states": {
            "torch": begun.get_rng_state(),
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "torch.cuda": [begun.tensor(range(16), dtype=begun.uint8)],
        },
        "sampler": {"generator": order.get_state(), "yielded": 3},
    }
    loaded = moved(checkpoint, begun, resumed, weights_only=resumed is weft)  # PyTorch refuses NumPy's by default
    states = loaded["rng_states"]
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    resumed.set_rng_state(states["torch"])
    resumed.cuda.set_rng_state_all(states["torch.cuda"])
    resumed.Generator().set_state(loaded["sampler"]["generator"])
    assert_same(*((loaded, checkpoint) if begun is torch else (checkpoint, loaded)))


def test_a_state_of_pytorchs_gives_one_seed():
    generator = torch.Generator().manual_seed(2**40 + 3)
    torch.rand(5, generator=generator)
    state = moved(generator.get_state(), torch, weft)
    with pytest.warns(
        UserWarning, match=r"PyTorch's mt19937 generator \(started with the seed 1099511627779\)"
    ) as seen:
        weft.set_rng_state(state)
    assert [warning.filename for warning in seen] == [__file__]
    ours = weft.Generator()
    ours.set_state(state)
    assert (weft.initial_seed(), ours.get_offset()) == (ours.initial_seed(), 0)
    assert f"the seed {ours.initial_seed()}, which is derived" in str(seen[0].message)
    assert weft.rand(3).tolist() == weft.rand(3, generator=ours).tolist()
    torch.rand(1, generator=generator)
    other = weft.Generator()
    other.set_state(moved(generator.get_state(), torch, weft))
    assert other.initial_seed() != ours.initial_seed()


def test_states_of_ours_set_pytorchs_generator():
    ours, theirs = weft.Generator().manual_seed(-7), torch.Generator()
    theirs.set_state(moved(ours.get_state(), weft, torch))
    assert theirs.initial_seed() == ours.initial_seed() == 2**64 - 7
    assert torch.equal(torch.rand(4, generator=theirs), torch.rand(4, generator=torch.Generator().manual_seed(-7)))
    weft.rand(1, generator=ours)
    theirs.set_state(moved(ours.get_state(), weft, torch))
    later = torch.randn(3, generator=theirs)
    assert not torch.equal(later, torch.randn(3, generator=torch.Generator().manual_seed(-7)))
    again = weft.Generator()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.set_state(moved(moved(ours.get_state(), weft, torch), torch, weft))
        theirs = moved(ours, weft, torch, weights_only=False)
    assert again.state() == ours.state()
    assert torch.equal(torch.randn(3, generator=theirs), later)


# --- whole objects ---


def _pairs(lib):
    return lib.utils.data.TensorDataset(lib.arange(6.0), lib.arange(6))


def _seeded(lib):
    return lib.Generator().manual_seed(3)


def _half(lib):
    return lib.tensor([0.3, 0.7])


def _matrix(lib):
    return lib.arange(6.0).reshape(2, 3)


def _lists(tensors):
    return [x.tolist() for x in tensors]


def _state(generator):
    return generator.get_state().tolist()[:5016]  # of all that PyTorch keeps


def _order(loaded):
    return _state(loaded.generator)


WHOLE = {
    "Generator": (_seeded, _state),
    "RandomSampler": (lambda lib: lib.utils.data.RandomSampler(range(5), generator=_seeded(lib)), _order),
    "WeightedRandomSampler": (lambda lib: lib.utils.data.WeightedRandomSampler([0.25, 0.75], 3), lambda x: len(x)),
    "BatchSampler": (
        lambda lib: lib.utils.data.BatchSampler(lib.utils.data.SequentialSampler(range(5)), 2, drop_last=True),
        list,
    ),
    "DistributedSampler": (
        lambda lib: lib.utils.data.DistributedSampler(range(5), 2, 1, shuffle=False),
        list,
    ),
    "Subset": (lambda lib: lib.utils.data.Subset(_pairs(lib), [0, 2]), lambda x: _lists(x[1])),
    "ConcatDataset": (lambda lib: lib.utils.data.ConcatDataset([_pairs(lib)] * 2), lambda x: _lists(x[7])),
    "max": (lambda lib: _matrix(lib).max(0), _lists),
    "topk": (lambda lib: _matrix(lib).topk(1), lambda x: (_lists(x), x.indices.tolist())),
    "slogdet": (lambda lib: lib.linalg.slogdet(lib.eye(2)), _lists),
    "histogram": (lambda lib: _matrix(lib).histogram(2), lambda x: x.bin_edges.tolist()),
    "Size": (lambda lib: _matrix(lib).shape, tuple),
    "Normal": (lambda lib: lib.distributions.Normal(_half(lib), _half(lib)), lambda x: x.mean.tolist()),
    "Categorical": (lambda lib: lib.distributions.Categorical(_half(lib)), lambda x: len(x.sample((3,)))),
    "Gumbel": (lambda lib: lib.distributions.Gumbel(_half(lib), _half(lib)), lambda x: x.loc.tolist()),
    "transforms": (lambda lib: lib.distributions.transforms.ComposeTransform([]).inv, repr),
    "independent": (lambda lib: lib.distributions.constraints.real_vector, lambda x: x.event_dim),
    "dependent": (lambda lib: lib.distributions.constraints.dependent, lambda x: None),
    "stack": (
        lambda lib: lib.distributions.constraints.stack([lib.distributions.constraints.real]),
        lambda x: x.event_dim,
    ),
    "interval": (lambda lib: lib.distributions.constraints.interval(0.0, 1.0), repr),
    "tanh": (lambda lib: lib.tanh, lambda x: x.__name__),
    "gelu": (lambda lib: lib.nn.functional.gelu, lambda x: x.__name__),
    "Tensor.add": (lambda lib: lib.Tensor.add, lambda x: x.__name__),
    "Tensor": (lambda lib: lib.Tensor, lambda x: x.__name__),
    "AveragedModel": (
        lambda lib: lib.optim.swa_utils.AveragedModel(lib.nn.Linear(2, 2)),
        lambda x: x.n_averaged.item(),
    ),
    "PackedSequence": (
        lambda lib: lib.nn.utils.rnn.pack_sequence([lib.ones(3), lib.ones(2)]),
        lambda x: x.data.tolist(),
    ),
    "PairwiseDistance": (lambda lib: lib.nn.PairwiseDistance(), lambda x: x.norm),
    "DataParallel": (lambda lib: lib.nn.DataParallel(lib.nn.Softmax(0)), repr),
    "jagged": (
        lambda lib: lib.nested.nested_tensor([lib.ones(2), lib.ones(3)], layout=lib.jagged, requires_grad=True),
        lambda x: (x.requires_grad, _lists(x.unbind())),
    ),
}
"""Objects that programs hold besides modules and optimizers, and what must be the same of them afterwards."""


@by_way
@pytest.mark.parametrize("name", WHOLE)
def test_whole_objects_go_both_ways(name, begun, resumed):
    make, facts = WHOLE[name]
    obj = make(begun)
    loaded = moved(obj, begun, resumed, weights_only=False)
    wanted = make(resumed)
    assert type(loaded) is type(wanted) or name == "slogdet"  # whose type has two names
    if not (begun is torch and facts in (_order, _state)):  # a derived seed
        assert facts(loaded) == facts(obj) == facts(wanted)


def test_attributes_of_tensors_of_all_layouts_go_both_ways():
    for begun, resumed in WAYS:
        for make in (lambda x: x.to_sparse(), lambda x: x.to_sparse_csr(), lambda x: x):
            x = make(begun.eye(2))
            x.note = "mine"
            loaded = moved(x, begun, resumed)
            assert (loaded.note, loaded.to_dense().tolist()) == ("mine", [[1.0, 0.0], [0.0, 1.0]])


def test_facts_and_formats_are_read_by_pytorch():
    facts = moved(
        [weft.finfo(weft.float16), weft.iinfo(weft.int8), weft.channels_last], weft, torch, weights_only=False
    )
    assert facts == [torch.finfo(torch.float16), torch.iinfo(torch.int8), torch.channels_last]
    assert moved([weft.channels_last], weft, weft) == [weft.channels_last]
