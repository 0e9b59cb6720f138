"""Trees of containers. Answers were compared with PyTorch's."""

from __future__ import annotations

import pickle
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass

import pytest

import weft as torch
from weft.utils import _pytree as pytree

Point = namedtuple("Point", "x y")
TREE = {"x": [1, (2, None)], "a": Point(3, OrderedDict(q=4)), "d": defaultdict(list, k=5), "e": deque([6], maxlen=3)}


def test_there_and_back():
    leaves, spec = pytree.tree_flatten(TREE)
    assert leaves == [1, 2, None, 3, 4, 5, 6] == pytree.tree_leaves(TREE)
    assert (spec.num_leaves, spec.num_nodes, spec.num_children) == (7, 14, 4)
    again = pytree.tree_unflatten(leaves, spec)
    assert again == TREE
    assert (list(again), again["d"].default_factory, again["e"].maxlen) == (list(TREE), list, 3)
    assert spec == pytree.tree_structure(TREE) != pytree.tree_structure(dict(reversed(TREE.items())))
    assert hash(spec) == hash(pytree.tree_structure(TREE))


def test_structures_print_as_in_pytorch():
    assert str(pytree.tree_structure([[1, 2], 3])) == (
        "TreeSpec(list, None, [TreeSpec(list, None, [*,\n    *]),\n  *])"
    )
    assert pytree.treespec_pprint(pytree.tree_structure((1, {"a": None}))) == "(*, {'a': *})"


def test_paths():
    paths = [(pytree.keystr(path), leaf) for path, leaf in pytree.tree_leaves_with_path(TREE)]
    assert paths[2:5] == [("['x'][1][1]", None), ("['a'].x", 3), ("['a'].y['q']", 4)]
    path = pytree.tree_leaves_with_path(TREE)[4][0]
    assert pytree.key_get(TREE, path) == 4
    assert pytree.tree_map_with_path(lambda p, x: pytree.keystr(p) + x, {"k": ["v"]}) == {"k": ["['k'][0]v"]}


def test_maps():
    assert pytree.tree_map(lambda x, y: [x, *y], [5, 6], [[7, 9], [1]]) == [[5, 7, 9], [6, 1]]
    assert pytree.tree_map_only(int, lambda x: x + 1, [1, "a", (2.0, 3)]) == [2, "a", (2.0, 4)]
    assert pytree.tree_map_only(lambda x: x == 1, str, [1, 2]) == ["1", 2]
    assert pytree.tree_map(lambda x: x, [1, [2]], is_leaf=lambda x: x == [2]) == [1, [2]]
    assert (pytree.tree_all(bool, [1, 0]), pytree.tree_any_only(int, bool, ["a", 0, 1])) == (False, True)
    seen = []
    assert pytree.tree_map_(seen.append, [1, 2]) == [1, 2] == seen
    values, indices = pytree.tree_map(lambda x: x + 1, torch.tensor([3.0, 5.0]).max(0))
    assert (values.item(), indices.item()) == (6.0, 2)


def test_shorter_trees_stand_for_longer_ones():
    spec = pytree.tree_structure([(1, 2), 3])
    assert pytree._broadcast_to_and_flatten([0, 1], spec) == [0, 0, 1]
    assert pytree._broadcast_to_and_flatten((0, 1), spec) is None


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: pytree.tree_unflatten([1], pytree.tree_structure([1, 2])), r"has length 1 but .* holds 2 items"),
        (lambda: pytree.tree_map(max, [1], [1, 2]), r"^Node arity mismatch; expected 1, but got 2.$"),
        (
            lambda: pytree.tree_map(max, [1], (1,)),
            r"^Node type mismatch; expected <class 'list'>, but got <class 'tuple",
        ),
        (lambda: pytree.tree_map(max, {"a": 1}, {"b": 2}), r"missing key\(s\): {'a'}; extra key\(s\): {'b'}.$"),
        (lambda: pytree.register_pytree_node(list, list, list), "^<class 'list'> is already registered"),
    ],
)
def test_trees_that_do_not_fit(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_arguments_of_other_types():
    with pytest.raises(TypeError, match=r"^Expected `treespec` to be an instance of PyTreeSpec but got item of type"):
        pytree.tree_unflatten(1, 2)
    with pytest.raises(TypeError, match=r"^Argument must be a type, a tuple of types, or a callable.$"):
        pytree.map_only(3)


@dataclass
class Pair:
    left: int
    right: int | None = None


class Box:
    def __init__(self, content):
        self.content = content


@dataclass(frozen=True)
class Config:
    norm: str


@pytest.fixture
def registered():
    pytree.register_dataclass(Pair)
    pytree.register_pytree_node(Box, lambda box: ([box.content], None), lambda parts, _: Box(*parts))
    pytree.register_constant(Config)
    yield
    for cls in (Pair, Box, Config):
        del pytree.SUPPORTED_NODES[cls]


def test_registered_types(registered):
    leaves, spec = pytree.tree_flatten([Pair(1), Pair(2, 3), Config("l2")])
    assert leaves == [1, 2, 3]
    assert spec.unflatten([4, 5, 6]) == [Pair(4), Pair(5, 6), Config("l2")]
    assert pytree.tree_map(str, Box([1])).content == ["1"]
    with pytest.raises(
        ValueError, match=r"^Did not find a flatten_with_keys_fn for type: <class '.*Box'>. Please pass"
    ):
        pytree.tree_leaves_with_path(Box(1))
    with pytest.raises(TypeError, match="expects `cls` to have a non-default `__eq__` implementation"):
        pytree.register_constant(Box)


def test_the_state_of_a_structure_is_that_of_files_of_pytorch():
    spec = pytree.tree_structure({"a": 1, "b": [2, 3]})
    assert spec.__getstate__()[:2] + spec.__getstate__()[3:] == [dict, ["a", "b"], 5, 3, 2]
    assert pickle.loads(pickle.dumps(spec)) == spec
