"""State dicts by the names that parameters have in one process."""

from __future__ import annotations

import pytest

import weft as torch
import weft.distributed as dist
import weft.distributed.checkpoint as dcp
from tests.distributed.checkpoint.test_save_load import in_ranks
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from weft.distributed.tensor import DTensor, Shard, distribute_module, distribute_tensor
from weft.nn.parallel import DistributedDataParallel

FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)
FROM_FIRST = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


def plain_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def sharded(model, mesh):
    """The model with the parameters of its linear layers distributed."""

    def partition(name, module, mesh):
        if isinstance(module, nn.Linear):
            for key, parameter in list(module.named_parameters(recurse=False)):
                module.register_parameter(key, nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Shard(0)])))

    return distribute_module(model, mesh, partition)


def optimizers_of(model):
    return torch.optim.AdamW(model.parameters(), lr=0.1), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def trained(model, optimizer, x):
    model(x).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def whole(value):
    """A state dict, or a part of one, as plain numbers."""
    if isinstance(value, dict):
        return {key: whole(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [whole(entry) for entry in value]
    if isinstance(value, DTensor):
        value = value.full_tensor()
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("kind", [0, 1])
def test_replicas_continue_as_shards_and_in_one_process(kind, tmp_path):
    def replicas(rank):
        model = DistributedDataParallel(plain_model())
        optimizer = optimizers_of(model)[kind]
        trained(model, optimizer, torch.ones(4, 5) * torch.arange(4.0)[:, None])
        states = get_state_dict(model, optimizer)
        assert set(states[0]) == set(plain_model().state_dict())
        assert set(states[1]["state"]) == {name for name, _ in plain_model().named_parameters()}
        dcp.save({"model": states[0], "optimizer": states[1]}, checkpoint_id=tmp_path)
        return whole(states)

    expected = in_ranks(2, replicas)[0]

    def continued(model):
        optimizer = optimizers_of(model)[kind]
        before = whole(model.state_dict())
        model_state, state = get_state_dict(model, optimizer)
        assert not optimizer.state
        assert whole(model.state_dict()) == before
        dcp.load({"model": model_state, "optimizer": state}, checkpoint_id=tmp_path)
        keys = set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=state)
        assert not any(keys)
        assert whole(get_state_dict(model, optimizer)) == expected

    on_mesh((3,), lambda mesh: continued(sharded(plain_model(1), mesh)))
    continued(plain_model(1))


def test_rank_0_has_all_of_it_and_gives_parts_to_the_others():
    def program(mesh):
        model = sharded(plain_model(), mesh)
        optimizer = optimizers_of(model)[0]
        state = get_optimizer_state_dict(model, optimizer, options=FULL)
        full = get_model_state_dict(model, options=FULL)
        if mesh.get_rank():
            assert full == state == {}
        else:
            assert not any(isinstance(value, DTensor) for value in full.values())
            state["state"]["0.bias"]["exp_avg"] += 1
            state["param_groups"][0]["lr"] = 0.5
        other = sharded(plain_model(1), mesh)
        again = optimizers_of(other)[0]
        set_model_state_dict(other, full, options=FROM_FIRST)
        set_optimizer_state_dict(other, again, state, options=FROM_FIRST)
        assert whole(other.state_dict()) == whole(model.state_dict())
        moment = again.state[other[0].bias]["exp_avg"]
        assert moment.placements == (Shard(0),)
        assert moment.full_tensor().tolist() == [1, 1, 1]
        assert again.param_groups[0]["lr"] == 0.5
        with pytest.raises(
            RuntimeError, match=r"broadcast_from_rank0: rank 0 has a part of '0\.weight'; give it the who"
        ):
            set_model_state_dict(other, model.state_dict(), options=FROM_FIRST)

    on_mesh((2,), program)


def test_whole_state_dicts_are_loaded_into_shards():
    plain = plain_model()
    optimizer = optimizers_of(plain)[0]
    trained(plain, optimizer, torch.ones(4, 5) * torch.arange(4.0)[:, None])
    states = get_state_dict(plain, optimizer)
    expected = whole(states)

    def program(mesh):
        model = sharded(plain_model(1), mesh)
        again = optimizers_of(model)[0]
        options = StateDictOptions(full_state_dict=True)
        set_state_dict(model, again, model_state_dict=states[0], optim_state_dict=states[1], options=options)
        assert again.state[model[0].weight]["exp_avg"].placements == (Shard(0),)
        assert whole(get_state_dict(model, again, options=options)) == expected

    on_mesh((2,), program)


def test_states_of_optimizers_as_one_dict():
    model = plain_model()
    optimizer = optimizers_of(model)[0]
    trained(model, optimizer, torch.ones(4, 5) * torch.arange(4.0)[:, None])
    flat = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    assert flat["state.0.weight.step"].item() == 1
    assert flat["param_groups.2.bias.betas"] == (0.9, 0.999)
    other = plain_model(1)
    again = torch.optim.AdamW(other.parameters(), lr=3)
    set_optimizer_state_dict(other, again, flat)
    assert whole(get_optimizer_state_dict(other, again)) == whole(get_optimizer_state_dict(model, optimizer))
    del flat["param_groups.0.weight.lr"]
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in the optimizer's state dict: param_groups.0.weight.lr"):
        set_optimizer_state_dict(other, again, flat)
    optimizer.state[model[0].weight]["note"] = "text"
    with pytest.raises(NotImplementedError, match=r"only supports tensor, int, float, dict states now\. Type is <cl"):
        get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))


def test_several_optimizers_share_one_state_dict():
    def both(model):
        return [torch.optim.AdamW(model[0].parameters(), lr=0.1), torch.optim.SGD(model[2].parameters(), lr=0.2)]

    model = plain_model()
    optimizers = both(model)
    for optimizer in optimizers:
        trained(model, optimizer, torch.ones(4, 5) * torch.arange(4.0)[:, None])
    state = get_optimizer_state_dict(model, optimizers)
    assert list(state["state"]) == ["0.weight", "0.bias"]
    assert [group["params"] for group in state["param_groups"]] == [["0.weight", "0.bias"], ["2.weight", "2.bias"]]
    other = plain_model()
    again = both(other)
    again[1].param_groups[0]["lr"] = 7
    set_optimizer_state_dict(other, reversed(again), state)
    assert again[1].param_groups[0]["lr"] == 0.2
    assert whole(get_optimizer_state_dict(other, again)) == whole(state)


def test_what_is_left_out_of_state_dicts():
    model = plain_model()
    model[0].weight.requires_grad_(False)
    keys = get_model_state_dict(model, options=StateDictOptions(ignore_frozen_params=True))
    assert "0.weight" not in keys
    assert "0.bias" in keys


def test_parts_of_models_are_deprecated():
    model, short = plain_model(), StateDictOptions(keep_submodule_prefixes=False)
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.warns(FutureWarning, match="Getting submodules only model/optim state_dict is deprecated"):
        assert list(get_model_state_dict(model, submodules={model[2]})) == ["2.weight", "2.bias"]
    with pytest.warns(FutureWarning, match="Getting submodules only"):
        part = get_model_state_dict(model, submodules={model[2]}, options=short)
    assert list(part) == ["weight", "bias"]
    with pytest.warns(FutureWarning, match="Getting submodules only"):
        state = get_optimizer_state_dict(model, optimizer, submodules={model[2]})["state"]
    assert list(state) == ["2.weight", "2.bias"]
    part["bias"] = torch.ones_like(part["bias"])
    with pytest.warns(FutureWarning, match="Passing model_state_dict as a "):
        missing, _ = set_model_state_dict(model, {model[2]: part}, options=StateDictOptions(strict=False))
    assert "0.weight" in missing
    assert torch.equal(model[2].bias, torch.ones_like(model[2].bias))


def test_there_may_be_no_optimizer():
    model = plain_model()
    state, optimizer_state = get_state_dict(model, [])
    assert optimizer_state == {"state": {}, "param_groups": []}
    assert not any(set_state_dict(model, [], model_state_dict=state, optim_state_dict={}))


def test_tied_parameters_have_one_state():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    model["b"].weight = model["a"].weight
    optimizer = torch.optim.AdamW(model.parameters())
    state = get_optimizer_state_dict(model, optimizer)
    assert list(state["state"]) == ["a.weight", "a.bias", "b.bias"]
    state["state"]["b.weight"] = state["state"].pop("a.weight")
    state["param_groups"][0]["params"] = ["b.weight", "a.bias", "b.bias"]
    set_optimizer_state_dict(model, optimizer, state)
    assert len(optimizer.state) == 3


def test_an_optimizer_without_steps_begins_as_if_nobody_had_asked():
    def run(asked):
        model = nn.Linear(3, 2)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=0.1)
        state = get_optimizer_state_dict(model, optimizer) if asked else None
        if asked == "loaded":
            set_optimizer_state_dict(model, optimizer, state)
        for _ in range(2):
            trained(model, optimizer, torch.arange(3.0))
        return model.weight.tolist()

    assert run(None) == run("asked") == run("loaded")


def test_state_dicts_that_do_not_fit():
    model, other = plain_model(), nn.Linear(2, 2)
    optimizer = optimizers_of(model)[0]
    state = get_optimizer_state_dict(model, optimizer)
    with pytest.raises(ValueError, match=r"^full_state_dict must be True when broadcast_from_rank0 is True\.$"):
        get_model_state_dict(model, options=StateDictOptions(broadcast_from_rank0=True))
    with pytest.raises(RuntimeError, match=r"^Optimizers are not passed in"):
        get_optimizer_state_dict(model, [])
    with pytest.raises(RuntimeError, match=r"^parameter 0 of the optimizer, of size \[3, 5\], is not the model's$"):
        get_optimizer_state_dict(other, optimizer)
    with pytest.raises(
        RuntimeError, match=r"^The option indicates that model state_dict is required to load, but it i"
    ):
        set_model_state_dict(model, {})
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0\.weight"'):
        set_model_state_dict(model, {"0.bias": torch.zeros(3)})
    loose = StateDictOptions(strict=False)
    keys = set_model_state_dict(model, {"0.bias": torch.ones(3), "new": torch.ones(1)}, options=loose)
    assert "0.weight" in keys.missing_keys
    assert keys.unexpected_keys == ["new"]
    assert model[0].bias.tolist() == [1, 1, 1]
    del state["state"]["0.bias"]
    with pytest.raises(
        RuntimeError, match=r"^Missing optimizer state for parameter '0.bias' in checkpoint\. The param"
    ):
        set_optimizer_state_dict(model, optimizer, state)
    set_optimizer_state_dict(model, optimizer, state, options=loose)
    assert model[0].bias not in optimizer.state
    with pytest.raises(RuntimeError, match=r"no parameter group of the loaded state dict has the parameter '0\.we"):
        set_optimizer_state_dict(model, optimizer, {"state": state["state"] | {"0.bias": {}}, "param_groups": []})


def test_replicas_within_a_model():
    def program(rank):
        model = nn.ModuleDict({"inner": DistributedDataParallel(nn.Linear(2, 1)), "module": nn.Linear(1, 1)})
        state = get_model_state_dict(model)
        assert list(state) == ["inner.weight", "inner.bias", "module.weight", "module.bias"]
        state["inner.weight"] = torch.ones(1, 2)
        set_model_state_dict(model, state)
        assert dist.get_world_size() == 2
        return model["inner"].module.weight.tolist()

    assert in_ranks(2, program) == [[[1, 1]]] * 2


def test_names_are_those_without_wrappers():
    model = nn.ModuleDict({"layer": nn.ModuleDict({"_fsdp_wrapped_module": nn.Linear(2, 1)})})
    state, optimizer_state = get_state_dict(model, torch.optim.AdamW(model.parameters()))
    assert list(state) == list(optimizer_state["state"]) == ["layer.weight", "layer.bias"]
    assert not any(set_model_state_dict(model, state))


@pytest.mark.parametrize("steps", [0, 1])
def test_an_optimizers_own_state_dict_can_be_set(steps):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    other = nn.Linear(2, 2)
    loaded = torch.optim.Adam(other.parameters(), lr=1.0)
    set_optimizer_state_dict(other, loaded, optimizer.state_dict())
    assert loaded.param_groups[0]["lr"] == 0.001
    if steps:
        assert loaded.state[other.weight]["exp_avg"].tolist() == optimizer.state[model.weight]["exp_avg"].tolist()
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        set_optimizer_state_dict(other, torch.optim.Adam([other.weight]), optimizer.state_dict())
