"""State dicts of modules: what is in them, and what happens to those that do not fit."""

from __future__ import annotations

import copy

import pytest

import weft
from weft import nn
from weft.errors import StateDictError


def test_a_state_dict_names_all_that_is_saved():
    net = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    state = net.state_dict()
    assert list(state) == [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    ]
    assert state._metadata == {"": {"version": 1}, "0": {"version": 1}, "1": {"version": 2}}
    assert not state["0.weight"].requires_grad
    assert net.state_dict(keep_vars=True)["0.weight"] is net[0].weight
    assert list(net[0].state_dict(prefix="x.")) == ["x.weight", "x.bias"]
    with weft.no_grad():
        net[0].weight.fill_(7)
    assert state["0.weight"].tolist() == [[7]]  # it is a view


def test_loading_copies_into_the_tensors_there():
    a, b = nn.Linear(2, 2), nn.Linear(2, 2).double()
    weight = b.weight
    assert repr(b.load_state_dict(a.state_dict())) == "<All keys matched successfully>"
    assert b.weight is weight
    assert (b.weight.dtype, b.weight.requires_grad) == (weft.float64, True)
    assert b.weight.tolist() == a.weight.tolist()


def test_assigning_puts_the_given_tensors_in_place():
    net = nn.BatchNorm1d(2)
    given = {name: tensor.clone() for name, tensor in net.double().state_dict().items()}
    net.float()
    net.load_state_dict(given, assign=True)
    assert net.running_mean is given["running_mean"]
    assert isinstance(net.weight, nn.Parameter)
    assert net.weight.dtype is weft.float64


BAD = [
    ({}, 'Missing key(s) in state_dict: "weight", "bias". '),
    ({"weight": (2, 2), "bias": (2,), "x": (1,), "y.z": (1,)}, 'Unexpected key(s) in state_dict: "x", "y.z". '),
    (
        {"weight": (3, 2), "x": (1,)},
        'Missing key(s) in state_dict: "bias". \n\tUnexpected key(s) in state_dict: "x". \n\t'
        "size mismatch for weight: copying a param with shape torch.Size([3, 2]) from checkpoint, the shape in current "
        "model is torch.Size([2, 2]).",
    ),
]


@pytest.mark.parametrize(("shapes", "expected"), BAD)
def test_what_does_not_fit_is_reported_and_nothing_is_written(shapes, expected):
    layer = nn.Linear(2, 2)
    before = [p.tolist() for p in layer.parameters()]
    with pytest.raises(StateDictError) as error:
        layer.load_state_dict({name: weft.zeros(shape) for name, shape in shapes.items()})
    assert isinstance(error.value, RuntimeError)
    assert str(error.value) == f"Error(s) in loading state_dict for Linear:\n\t{expected}"
    assert [p.tolist() for p in layer.parameters()] == before


def test_an_error_deep_in_a_tree_keeps_what_loaded_before_it():
    net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    good = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    good["0.weight"] = weft.full((1, 1), 7.0)
    good["1.weight"] = weft.zeros(5)
    with pytest.raises(StateDictError, match=r"size mismatch for 1.weight"):
        net.load_state_dict(good)
    assert net[0].weight.tolist() != [[7]]


def test_keys_may_differ_when_not_strict_but_shapes_may_not():
    layer = nn.Linear(1, 1)
    found = layer.load_state_dict({"weight": weft.full((1, 1), 3.0), "x": 1}, strict=False)
    assert (found.missing_keys, found.unexpected_keys) == (["bias"], ["x"])
    assert layer.weight.tolist() == [[3]]
    with pytest.raises(StateDictError, match="size mismatch for weight"):
        layer.load_state_dict({"weight": weft.ones(2, 2)}, strict=False)
    with pytest.raises(TypeError, match=r"^Expected state_dict to be dict-like, got <class 'int'>\.$"):
        layer.load_state_dict(3)
    with pytest.raises(StateDictError, match=r'While copying the parameter named "bias", expected torch.Tensor'):
        layer.load_state_dict({"weight": weft.ones(1, 1), "bias": 3})


class Counted(nn.Linear):
    def __init__(self):
        super().__init__(1, 1)
        self.count = 0

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, state):
        self.count = state["count"]


def test_extra_state_travels_along():
    a, b = Counted(), Counted()
    a.count = 5
    b.load_state_dict(a.state_dict())
    assert b.count == 5
    with pytest.raises(StateDictError, match=r'Missing key.* "_extra_state"'):
        b.load_state_dict(nn.Linear(1, 1).state_dict())
    with pytest.raises(StateDictError, match=r'Unexpected key.* "_extra_state"'):
        nn.Linear(1, 1).load_state_dict(a.state_dict())


def test_hooks_see_state_dicts_on_both_ways():
    layer, calls = nn.Linear(1, 1), []
    layer.register_state_dict_pre_hook(lambda module, prefix, keep_vars: calls.append("before saving"))
    layer.register_state_dict_post_hook(lambda module, state, prefix, metadata: state.pop(f"{prefix}bias") and None)

    def rename(module, state, prefix, *rest):
        calls.append("before loading")
        state[f"{prefix}weight"] = state.pop(f"{prefix}old")

    layer.register_load_state_dict_pre_hook(rename)
    layer.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.remove("bias"))
    assert list(layer.state_dict()) == ["weight"]
    layer.load_state_dict({"old": weft.full((1, 1), 4.0)})
    assert layer.weight.tolist() == [[4]]
    assert calls == ["before saving", "before loading"]


def test_batch_norms_of_old_files_have_no_count():
    norm = nn.BatchNorm1d(1)
    state = norm.state_dict()
    del state["num_batches_tracked"]
    with pytest.raises(StateDictError, match=r'Missing key.* "num_batches_tracked"'):
        norm.load_state_dict(state)
    state._metadata[""]["version"] = 1
    norm.num_batches_tracked.fill_(3)
    norm.load_state_dict(state)
    assert norm.num_batches_tracked.item() == 3


def test_hooks_may_see_the_module_or_not_and_copies_have_their_own():
    layer, seen = nn.Linear(1, 1), []
    layer._register_load_state_dict_pre_hook(lambda *given: seen.append(len(given)))
    layer._register_load_state_dict_pre_hook(lambda module, *given: seen.append(module), with_module=True)
    twin = copy.deepcopy(layer)
    twin.load_state_dict(layer.state_dict())
    assert seen == [7, twin]


def test_only_the_older_hooks_may_replace_a_state_dict():
    layer = nn.Linear(1, 1)
    handle = layer._register_state_dict_hook(lambda module, state, prefix, metadata: {"only": 1})
    assert layer.state_dict() == {"only": 1}
    handle.remove()
    layer.register_state_dict_post_hook(lambda module, state, prefix, metadata: 3)
    with pytest.raises(RuntimeError, match=r"^state_dict post-hook must return None$"):
        layer.state_dict()


class Renamed(nn.Module):
    _version = 2

    def __init__(self):
        super().__init__()
        self.new = nn.Parameter(weft.ones(1))

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if local_metadata.get("version", 1) < 2:
            state_dict[prefix + "new"] = state_dict.pop(prefix + "old")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def test_modules_may_load_older_versions():
    model = nn.Sequential(Renamed())
    model.load_state_dict({"0.old": weft.full((1,), 5.0)})
    assert model[0].new.tolist() == [5]
    assert model.state_dict()._metadata == {"": {"version": 1}, "0": {"version": 2}}
    model.load_state_dict(model.state_dict())


def test_one_module_can_be_loaded_by_itself():
    layer, missing, unexpected = nn.Linear(1, 1), [], []
    state = {"weight": weft.full((1, 1), 3.0), "x": 1}
    layer._load_from_state_dict(state, "", {}, True, missing, unexpected, [])
    assert layer.weight.tolist() == [[3]]
    assert (missing, unexpected) == (["bias"], ["x"])


def test_a_destination_may_be_given():
    layer, found = nn.Linear(1, 1), {}
    with pytest.warns(FutureWarning, match=r"^Positional args are being deprecated, use kwargs instead\."):
        assert layer.state_dict(found, "a.", True) is found
    assert found["a.weight"] is layer.weight
