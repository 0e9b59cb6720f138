"""Pruning: which elements go, how masks add up, and what is left of a module."""

from __future__ import annotations

import copy
import pickle

import pytest

import weft
from weft import nn
from weft.nn.utils import prune

VALUES = [[1.0, -6.0, 3.0], [-4.0, 5.0, 2.0]]


def layer():
    made = nn.Linear(3, 2)
    with weft.no_grad():
        made.weight.copy_(weft.tensor(VALUES))
        made.bias.copy_(weft.tensor([7.0, -8.0]))
    return made


def test_a_pruned_parameter_becomes_a_product():
    pruned = layer()
    weight = pruned.weight
    assert prune.l1_unstructured(pruned, "weight", 2) is pruned
    assert pruned.weight.tolist() == [[0, -6, 3], [-4, 5, 0]]
    assert pruned.weight_mask.tolist() == [[0, 1, 1], [1, 1, 0]]
    assert pruned.weight_orig is weight
    assert list(pruned.state_dict()) == ["bias", "weight_orig", "weight_mask"]
    assert prune.is_pruned(nn.Sequential(pruned))
    pruned(weft.ones(3)).sum().backward()
    assert weight.grad.tolist() == [[0, 1, 1], [1, 1, 0]]


def test_each_call_multiplies_anew():
    pruned = prune.l1_unstructured(layer(), "weight", 5)
    with weft.no_grad():
        pruned.weight_orig.fill_(2)
        pruned.bias.zero_()
    assert pruned(weft.ones(3)).tolist() == [2, 0]


def test_removal_makes_it_an_ordinary_parameter():
    pruned = layer()
    weight = pruned.weight
    prune.remove(prune.l1_unstructured(pruned, "weight", 2), "weight")
    assert pruned.weight is weight
    assert weight.tolist() == [[0, -6, 3], [-4, 5, 0]]
    assert list(pruned.state_dict()) == ["bias", "weight"]
    assert not prune.is_pruned(pruned)
    with pytest.raises(ValueError, match=r"^Parameter 'weight' of module Linear\(.*\) has to be pruned before pruning"):
        prune.remove(pruned, "weight")


MASKS = [
    (lambda m: prune.identity(m, "weight"), [[1, 1, 1], [1, 1, 1]]),
    (lambda m: prune.l1_unstructured(m, "weight", 0.5), [[0, 1, 0], [1, 1, 0]]),
    (lambda m: prune.l1_unstructured(m, "weight", 0), [[1, 1, 1], [1, 1, 1]]),
    (
        lambda m: prune.l1_unstructured(
            m, "weight", 1, weft.tensor([[1.0, 0.0, 1.0]] * 2) + weft.tensor([[0.0], [1.0]])
        ),
        [[1, 0, 1], [1, 1, 1]],
    ),
    (lambda m: prune.ln_structured(m, "weight", 1, 2, 1), [[1, 1, 0], [1, 1, 0]]),
    (lambda m: prune.ln_structured(m, "weight", 1, n=float("inf"), dim=0), [[1, 1, 1], [0, 0, 0]]),
    (lambda m: prune.custom_from_mask(m, "weight", weft.tensor([[1, 0, 1], [0, 1, 0]])), [[1, 0, 1], [0, 1, 0]]),
]


@pytest.mark.parametrize(("apply", "mask"), MASKS)
def test_what_each_method_prunes(apply, mask):
    assert apply(layer()).weight_mask.tolist() == mask


def test_random_methods_prune_as_many_as_asked():
    assert prune.random_unstructured(layer(), "weight", 4).weight_mask.sum().item() == 2
    mask = prune.random_structured(layer(), "weight", 2, 1).weight_mask
    assert mask.sum(0).sort().values.tolist() == [0, 0, 2]


def test_pruning_again_adds_to_the_mask():
    pruned = prune.l1_unstructured(layer(), "weight", 2)
    prune.l1_unstructured(pruned, "weight", 1)
    assert pruned.weight_mask.tolist() == [[0, 1, 0], [1, 1, 0]]
    prune.ln_structured(pruned, "weight", 1, 2, 0)
    assert pruned.weight_mask.tolist() == [[0, 0, 0], [1, 1, 0]]
    (hook,) = pruned._forward_pre_hooks.values()
    assert [type(method).__name__ for method in hook] == ["L1Unstructured", "L1Unstructured", "LnStructured"]
    assert (len(hook), hook[0].amount, hook._tensor_name) == (3, 2, "weight")


def test_parameters_are_pruned_as_if_they_were_one():
    first, second = layer(), layer()
    prune.custom_from_mask(second, "weight", weft.zeros(2, 3))
    prune.global_unstructured([(first, "weight"), (first, "bias"), (second, "weight")], prune.L1Unstructured, amount=3)
    assert first.weight_mask.tolist() == [[0, 1, 0], [1, 1, 0]]
    assert first.bias_mask.tolist() == [1, 1]
    scores = {(first, "bias"): weft.tensor([0.0, 1.0])}
    prune.global_unstructured([(first, "bias")], prune.L1Unstructured, scores, amount=1)
    assert first.bias_mask.tolist() == [0, 1]


class EveryOther(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


def test_methods_may_be_written_by_users():
    pruned = layer()
    EveryOther.apply(pruned, "weight")
    assert pruned.weight_mask.tolist() == [[0, 1, 0], [1, 0, 1]]
    EveryOther.apply(pruned, "weight")  # sees the three elements that are left
    assert pruned.weight_mask.tolist() == [[0, 0, 0], [1, 0, 0]]
    assert EveryOther().prune(weft.tensor([1.0, 2.0, 3.0])).tolist() == [0, 2, 0]


def test_pickled_modules_stay_pruned():
    pruned = prune.l1_unstructured(layer(), "weight", 2)
    other = pickle.loads(pickle.dumps(pruned))
    assert other(weft.ones(3)).tolist() == pruned(weft.ones(3)).tolist()
    fresh = prune.identity(layer(), "weight")
    fresh.load_state_dict(pruned.state_dict())
    assert fresh(weft.ones(3)).tolist() == pruned(weft.ones(3)).tolist()


def test_copies_compute_their_own_product():
    pruned = prune.random_unstructured(prune.l1_unstructured(layer(), "weight", 2), "weight", 1)
    for twin in (copy.deepcopy(pruned), pickle.loads(pickle.dumps(pruned))):
        assert twin.weight.tolist() == pruned.weight.tolist()
        twin.weight.sum().backward()
        assert twin.weight_orig.grad.tolist() == twin.weight_mask.tolist()
        assert pruned.weight_orig.grad is None
        with weft.no_grad():
            twin.weight_orig.fill_(2)
        assert prune.remove(twin, "weight").weight.tolist() == (twin.weight != 0).mul(2).tolist()
        assert prune.is_pruned(pruned)


def test_weights_of_a_recurrent_layer_are_pruned():
    net = nn.LSTM(1, 1)
    prune.custom_from_mask(net, "weight_hh_l0", weft.zeros(4, 1))
    with weft.no_grad():
        other = copy.deepcopy(net)
        other.weight_hh_l0_orig.zero_()
        assert net(weft.ones(3, 1))[0].tolist() == other(weft.ones(3, 1))[0].tolist()


REFUSED = [
    (lambda m: prune.l1_unstructured(m, "weight", "a"), TypeError, "^Invalid type for amount: a. Must be int or float"),
    (
        lambda m: prune.l1_unstructured(m, "weight", -1),
        ValueError,
        r"^amount=-1 should either be a float in the range \[0, 1\] or a non-negative integer$",
    ),
    (lambda m: prune.l1_unstructured(m, "weight", 1.5), ValueError, "^amount=1.5 should either be a float"),
    (
        lambda m: prune.l1_unstructured(m, "weight", 7),
        ValueError,
        "^amount=7 should be smaller than the number of parameters to prune=[64]$",
    ),
    (
        lambda m: prune.ln_structured(m, "bias", 1, 2, 0),
        ValueError,
        r"^Structured pruning can only be applied to multidimensional tensors. Found tensor of shape torch.Size",
    ),
    (lambda m: prune.ln_structured(m, "weight", 1, 2, 5), IndexError, "^Invalid index 5 for tensor of size torch.Size"),
    (lambda m: prune.custom_from_mask(m, "weight", weft.ones(3)), AssertionError, "^default_mask shape torch.Size"),
    (
        lambda m: prune.l1_unstructured(m, "weight", 1, weft.ones(3)),
        AssertionError,
        "^importance_scores should have the same shape as parameter weight of Linear",
    ),
    (
        lambda m: prune.L1Unstructured(1).prune(weft.ones(3), importance_scores=weft.ones(2)),
        AssertionError,
        "^importance_scores should have the same shape as tensor t",
    ),
    (
        lambda m: prune.global_unstructured(3, prune.L1Unstructured),
        TypeError,
        r"^global_unstructured\(\): parameters is not an Iterable$",
    ),
    (
        lambda m: prune.global_unstructured([(m, "weight")], prune.L1Unstructured, 3),
        TypeError,
        r"^global_unstructured\(\): importance_scores must be of type dict$",
    ),
    (
        lambda m: prune.global_unstructured([(m, "weight")], prune.LnStructured, amount=1, n=2),
        TypeError,
        '^Only "unstructured" PRUNING_TYPE supported for the `pruning_method`.',
    ),
    (
        lambda m: prune.PruningContainer().add_pruning_method(3),
        TypeError,
        "^<class 'int'> is not a BasePruningMethod subclass$",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED)
def test_a_refusal_changes_nothing(call, kind, text):
    for module in (layer(), prune.l1_unstructured(layer(), "weight", 2)):
        keys, hooks = list(module.state_dict()), list(module._forward_pre_hooks.values())
        with pytest.raises(kind, match=text):
            call(module)
        assert (list(module.state_dict()), list(module._forward_pre_hooks.values())) == (keys, hooks)


def test_containers_hold_methods_of_one_parameter():
    methods = [prune.L1Unstructured(1), prune.L1Unstructured(1)]
    for method, name in zip(methods, ("weight", "bias"), strict=True):
        method._tensor_name = name
    with pytest.raises(
        ValueError, match=r"^Can only add pruning methods acting on the parameter named 'weight' to Prun"
    ):
        prune.PruningContainer(*methods)
