"""Names of dims: which a tensor may have, how they change, where a dim is found by name, and which results have."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from math import prod

import pytest

import weft
from weft import Tensor, nn
from weft.nn import functional as F

Make = Callable[[], Tensor]


def _numbered(shape: tuple[int, ...], *names: str | None) -> Tensor:
    return weft.arange(float(prod(shape))).reshape(shape).rename(*names)


@pytest.fixture
def x() -> Tensor:
    """[[0, 1, 2], [3, 4, 5]] with dims N and C."""
    return _numbered((2, 3), "N", "C")


# --- tensors that are made with names ---

_FACTORIES: dict[str, Callable[..., Tensor]] = {
    "empty": lambda **options: weft.empty(2, 3, **options),
    "ones": lambda **options: weft.ones(2, 3, **options),
    "zeros": lambda **options: weft.zeros((2, 3), **options),
    "full": lambda **options: weft.full((2, 3), 1.0, **options),
    "rand": lambda **options: weft.rand(2, 3, **options),
    "randn": lambda **options: weft.randn((2, 3), **options),
    "randint": lambda **options: weft.randint(0, 3, (2, 3), **options),
    "eye": lambda **options: weft.eye(2, 3, **options),
    "tensor": lambda **options: weft.tensor([[1, 2, 3], [4, 5, 6]], **options),
    "new_ones": lambda **options: weft.ones(1, names=("A",)).new_ones(2, 3, **options),
}


@pytest.mark.parametrize("factory", _FACTORIES)
def test_factories_take_names(factory):
    make = _FACTORIES[factory]
    assert make(names=("N", None)).names == ("N", None)
    assert make(names=["N", "C"]).names == ("N", "C")
    assert make().names == make(names=None).names == (None, None)
    with pytest.raises(RuntimeError, match=r"^Number of names \(1\) and number of dimensions in tensor \(2\) do not"):
        make(names=("N",))


@pytest.mark.parametrize("factory", ["arange", "randperm", "hann_window"])
def test_factories_of_one_dim_take_names(factory):
    assert getattr(weft, factory)(3, names=("N",)).names == ("N",)


@pytest.mark.parametrize("factory", ["linspace", "logspace"])
def test_sequences_take_names(factory):
    assert getattr(weft, factory)(0, 1, 3, names=("N",)).names == ("N",)


@pytest.mark.filterwarnings("ignore:To copy construct")
def test_a_copy_of_a_tensor_keeps_its_names(x):
    assert weft.tensor(x).names == weft.tensor(x, names=("N", "C")).names == ("N", "C")
    assert weft.tensor(x.rename(None), names=("A", "B")).names == ("A", "B")
    with pytest.raises(RuntimeError, match=r"^Name mismatch: "):
        weft.tensor(x, names=("A", "C"))


@pytest.mark.parametrize("factory", ["empty_like", "zeros_like", "ones_like", "rand_like", "randn_like"])
def test_what_is_made_like_a_tensor_has_its_names(x, factory):
    assert getattr(weft, factory)(x).names == ("N", "C")
    assert getattr(weft, factory)(x, names=("A", "B")).names == ("A", "B")


def test_full_like_has_the_names_of_its_model(x):
    assert weft.full_like(x, 2.0).names == ("N", "C")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("N", "N"), r"^Cannot construct a tensor with duplicate names\. Got names: \['N', 'N'\]\.$"),
        (("1a", "C"), r"^Invalid name: a valid identifier contains only .* starts with a non-digit\. got: '1a'\.$"),
        (("a b", "C"), r"^Invalid name: .* got: 'a b'\.$"),
        (("ñ", "C"), r"^Invalid name: "),
        ((), r"^Number of names \(0\) and number of dimensions in tensor \(2\) do not match\. Attempted to create a "),
    ],
)
def test_what_is_no_name_is_refused(names, text):
    with pytest.raises(RuntimeError, match=text):
        weft.zeros(2, 3, names=names)


def test_a_name_is_a_string():
    with pytest.raises(TypeError, match=r"^names must be str or None, not int: \[3\]$"):
        weft.zeros(2, names=(3,))


# --- other names ---


def test_names_are_a_tuple_of_one_entry_for_each_dim(x):
    assert (x.names, x.has_names()) == (("N", "C"), True)
    plain = weft.zeros(2, 3)
    assert (plain.names, plain.has_names()) == ((None, None), False)
    assert weft.tensor(1.0).names == ()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda x: x.rename("A", "B"), ("A", "B")),
        (lambda x: x.rename("A", None), ("A", None)),
        (lambda x: x.rename("A", ...), ("A", "C")),
        (lambda x: x.rename(..., "B"), ("N", "B")),
        (lambda x: x.rename("A", "..."), ("A", "C")),
        (lambda x: x.rename("..."), ("N", "C")),
        (lambda x: x.rename("A", "...", "B"), ("A", "B")),
        (lambda x: x.rename(N="A"), ("A", "C")),
        (lambda x: x.rename(N="C", C="N"), ("C", "N")),
        (lambda x: x.rename(N=None), (None, "C")),
        (lambda x: x.rename(None), (None, None)),
        (lambda x: x.refine_names("N", "C"), ("N", "C")),
        (lambda x: x.rename(None).refine_names("A", None), ("A", None)),
        (lambda x: x.rename(N=None).refine_names("A", ...), ("A", "C")),
        (lambda x: x.rename(C=None).refine_names(..., "B"), ("N", "B")),
        (lambda x: x.rename(C=None).refine_names("...", "B"), ("N", "B")),
    ],
)
def test_renamed_tensors_are_views_with_other_names(x, change, names):
    view = change(x)
    assert (view.names, x.names) == (names, ("N", "C"))
    view.zero_()
    assert x.sum().item() == 0
    assert (view.names, x.names) == (names, ("N", "C"))


def test_rename_in_place(x):
    transposed = x.t()
    assert x.rename_(N="A") is x
    assert (x.names, transposed.names) == (("A", "C"), ("C", "N"))
    assert x.rename_("A", "B").names == ("A", "B")
    x.names = ("P", None)
    assert x.names == ("P", None)
    x.names = None
    assert not x.has_names()


def test_tensors_with_and_without_names_are_renamed_in_any_order(x):
    assert x.rename("first", "second").names == ("first", "second")
    assert weft.zeros(2, 3).rename("first", "second").names == ("first", "second")
    assert x.rename("first", "second").names == ("first", "second")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda x: x.rename(Q="A"),
            r"^rename: Tried to rename dim 'Q' to dim A in Tensor\[\('N', 'C'\)\] but dim 'Q' does not exist$",
        ),
        (lambda x: x.rename("A", N="B"), r"^rename: This function takes either positional args or keyword args, but "),
        (lambda x: x.rename_("A", N="B"), r"^rename_: This function takes either positional args or keyword args, "),
        (lambda x: x.rename("A"), r"^Number of names \(1\) and number of dimensions in tensor \(2\) do not match\. "),
        (lambda x: x.rename(N="C"), r"^Cannot construct a tensor with duplicate names\. Got names: \['C', 'C'\]\.$"),
        (lambda x: x.rename(..., "A", ...), r"^rename: More than one Ellipsis \('\.\.\.'\) found in names "),
        (lambda x: x.rename("...", "A", ...), r"^rename: More than one Ellipsis \('\.\.\.'\) found in names "),
        (lambda x: x.rename("A", ..., "B", "D"), r"^Number of names \(3\) and number of dimensions in tensor \(2\) "),
        (
            lambda x: x.refine_names("N", "C", "H"),
            r"^refine_names: cannot coerce Tensor\['N', 'C'\] to Tensor\['N', 'C', 'H'\] because they have a different "
            r"number of dims \(2 and 3\)$",
        ),
        (
            lambda x: x.refine_names("A", "C"),
            r"^refine_names: cannot coerce Tensor\['N', 'C'\] to Tensor\['A', 'C'\] because 'N' is different from "
            r"'A' at index 0$",
        ),
        (
            lambda x: x.refine_names(None, "C"),
            r"^refine_names: cannot coerce .* because 'N' is more specific than None at index 0$",
        ),
    ],
)
def test_what_cannot_be_renamed(x, change, text):
    with pytest.raises(RuntimeError, match=text):
        change(x)


# --- alignment ---


@pytest.mark.parametrize(
    ("order", "shape", "names"),
    [
        (("C", "N"), (3, 2), ("C", "N")),
        (("C", ...), (3, 2), ("C", "N")),
        ((..., "N"), (3, 2), ("C", "N")),
        (("C", "H", "N"), (3, 1, 2), ("C", "H", "N")),
        (("H", ...), (1, 2, 3), ("H", "N", "C")),
        (("H", "...", "N"), (1, 3, 2), ("H", "C", "N")),
        (("N", ..., "H", "C"), (2, 1, 3), ("N", "H", "C")),
    ],
)
def test_align_to(x, order, shape, names):
    aligned = x.align_to(*order)
    assert (aligned.shape, aligned.names) == (shape, names)
    aligned.zero_()  # it is a view
    assert x.sum().item() == 0


def test_a_tensor_is_aligned_as_one_with_dims_without_names(x):
    assert weft.ones(3).rename("C").align_as(x.rename(N=None)).shape == (1, 3)


def test_dims_without_names_stay_in_order_when_others_are_aligned():
    x = _numbered((2, 3, 4, 5), None, "C", None, "W")
    aligned = x.align_to("W", ..., "H")
    assert (aligned.shape, aligned.names) == ((5, 2, 3, 4, 1), ("W", None, "C", None, "H"))


def test_aligned_tensors_broadcast_by_name(x):
    scale = weft.tensor([10.0, 100.0], names=("N",))
    assert (x * scale.align_as(x)).tolist() == [[0, 10, 20], [300, 400, 500]]
    assert x.T.align_as(x).tolist() == x.tolist()


@pytest.mark.parametrize(
    ("align", "text"),
    [
        (
            lambda x: x.align_to("N", "H"),
            r"^align_to: Cannot find dim 'C' from Tensor\['N', 'C'\] in desired alignment \['N', 'H'\]\.$",
        ),
        (
            lambda x: x.rename(None).align_to("N", "C"),
            r"^align_to: All input dims must be named\. Found unnamed dim at index 0 of Tensor\[None, None\]$",
        ),
        (lambda x: x.align_to(..., "N", ...), r"^align_to: More than one Ellipsis "),
        (lambda x: x.align_to(..., None), r"^align_to: the desired order of dimensions cannot contain a None name"),
        (lambda x: x.align_to(..., "N", "N"), r"^Cannot construct a tensor with duplicate names\. Got names: "),
    ],
)
def test_what_cannot_be_aligned(x, align, text):
    with pytest.raises(RuntimeError, match=text):
        align(x)


# --- dims that are joined and split ---


def test_the_dim_of_diagonals_takes_a_name():
    x = _numbered((2, 3, 3), "N", "H", "W")
    diagonals = x.diagonal(outdim="D", dim1="H", dim2="W", offset=1)
    assert (diagonals.shape, diagonals.names) == ((2, 2), ("N", "D"))
    assert weft.diagonal(x, 0, 1, 2).names == ("N", None)


def test_flatten_by_name():
    x = _numbered((2, 3, 4, 5), "N", "C", "H", "W")
    joined = x.flatten(["C", "H", "W"], "features")
    assert (joined.shape, joined.names) == ((2, 60), ("N", "features"))
    assert x.flatten("C", "H", "features").names == ("N", "features", "W")
    assert x.flatten(0, 1, "both").names == x.flatten(start_dim="N", end_dim="C", out_dim="both").names
    assert x.flatten(dims=("H", "W"), out_dim="place").names == ("N", "C", "place")


def test_unflatten_by_name():
    x = _numbered((2, 12), "N", "F")
    for sizes in ((("C", 3), ("H", 4)), [("C", 3), ("H", -1)], {"C": 3, "H": 4}):
        split = x.unflatten("F", sizes)
        assert (split.shape, split.names) == ((2, 3, 4), ("N", "C", "H"))
    assert split.flatten(["C", "H"], "F").tolist() == x.tolist()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda x: x.flatten(["N", "H"], "F"),
            r"^flatten\(tensor, dims, out_dim\): dims \['N', 'H'\] must be consecutive in Tensor\['N', 'C', 'H'\]$",
        ),
        (lambda x: x.flatten(["C", "N"], "F"), r"must be consecutive in"),
        (lambda x: x.flatten([], "F"), r"^flatten\(tensor, dims, out_dim\): dims cannot be empty$"),
        (lambda x: x.flatten(["N", "C"], "H"), r"^Cannot construct a tensor with duplicate names\. Got names: "),
        (
            lambda x: x.unflatten("H", (("A", 3), ("B", 2))),
            r"^unflatten: Provided sizes \[3, 2\] don't multiply up to the size of dim 2 \('H': 4\) in Tensor\['N', ",
        ),
        (
            lambda x: x.unflatten("H", (("A", 3), ("B", -1))),
            r"^unflatten: Provided sizes \[3, -1\] don't multiply up to the size of dim 2 \('H': 4\) in Tensor\['N', ",
        ),
        (lambda x: x.unflatten("H", {}), r"^unflatten: sizes must be non-empty"),
        (lambda x: x.unflatten("H", None), r"^unflatten: sizes must be non-empty"),
        (lambda x: x.unflatten("Q", (("A", 3),)), r"^Name 'Q' not found in Tensor\['N', 'C', 'H'\]\.$"),
    ],
)
def test_what_cannot_be_joined_or_split(call, text):
    with pytest.raises(RuntimeError, match=text):
        call(_numbered((2, 3, 4), "N", "C", "H"))


def test_dims_joined_by_name_need_a_name():
    with pytest.raises(TypeError, match=r"^flatten\(\): dims that are given by name need `out_dim`"):
        _numbered((2, 3), "N", "C").flatten("N", "C")


# --- dims by name ---

_BY_NAME: dict[str, tuple[Callable[[Tensor, str | int], Tensor], tuple[str, ...]]] = {
    "sum": (lambda x, dim: x.sum(dim), ("N",)),
    "sum of several": (lambda x, dim: x.sum([dim]), ("N",)),
    "kept": (lambda x, dim: x.mean(dim, keepdim=True), ("N", "C")),
    "var": (lambda x, dim: x.var(dim), ("N",)),
    "prod": (lambda x, dim: x.prod(dim), ("N",)),
    "all": (lambda x, dim: x.all(dim), ("N",)),
    "amax": (lambda x, dim: x.amax(dim), ("N",)),
    "argmax": (lambda x, dim: x.argmax(dim), ("N",)),
    "max": (lambda x, dim: x.max(dim).indices, ("N",)),
    "median": (lambda x, dim: x.median(dim).values, ("N",)),
    "kthvalue": (lambda x, dim: x.kthvalue(1, dim).values, ("N",)),
    "norm": (lambda x, dim: x.norm(dim=dim), ("N",)),
    "logsumexp": (lambda x, dim: x.logsumexp(dim), ("N",)),
    "softmax": (lambda x, dim: x.softmax(dim), ("N", "C")),
    "log_softmax": (lambda x, dim: F.log_softmax(x, dim), ("N", "C")),
    "cumsum": (lambda x, dim: x.cumsum(dim), ("N", "C")),
    "sort": (lambda x, dim: x.sort(dim=dim, descending=True).values, ("N", "C")),
    "select": (lambda x, dim: x.select(dim, 1), ("N",)),
    "unbind": (lambda x, dim: x.unbind(dim)[1], ("N",)),
    "cat": (lambda x, dim: weft.cat([x, x], dim), ("N", "C")),
    "squeeze": (lambda x, dim: x[:, :1].squeeze(dim), ("N",)),
}


@pytest.mark.parametrize("call", _BY_NAME)
def test_a_dim_may_be_given_by_its_name(x, call):
    function, names = _BY_NAME[call]
    result = function(x, "C")
    assert result.names == names
    assert result.tolist() == function(x.rename(None), 1).tolist() == function(x, 1).tolist()
    with pytest.raises(RuntimeError, match=r"^Name 'Q' not found in Tensor\['N', 'C'\]\.$"):
        function(x, "Q")


def test_sizes_and_strides_by_name(x):
    assert (x.size("C"), x.stride("N")) == (3, 3)
    for ask in (x.size, x.stride):
        with pytest.raises(RuntimeError, match=r"^Name 'Q' not found in Tensor\['N', 'C'\]\.$"):
            ask("Q")


def test_lists_of_names():
    x = _numbered((2, 3, 4, 5), "N", "C", "H", "W")
    assert x.sum(["N", "C"]).names == ("H", "W")
    assert x.sum(("N", "C"), keepdim=True).names == ("N", "C", "H", "W")
    assert x.std(["H", "W"]).names == ("N", "C")
    with pytest.raises(RuntimeError, match=r"^Please look up dimensions by name, got: name = None\.$"):
        x.sum(["N", None])
    with pytest.raises(RuntimeError, match=r"^dim 0 appears multiple times in the list of dims$"):
        x.sum(["N", "N"])


def test_dims_change_places_by_name(x):
    assert x.transpose("N", "C").names == x.T.names == x.t().names == x.mT.names == ("C", "N")
    assert x.swapaxes("C", "N").tolist() == x.rename(None).T.tolist()
    assert x.movedim("N", -1).names == x.moveaxis(["C", "N"], [0, 1]).names == ("C", "N")
    turned = x.rot90(1, ("N", "C"))
    assert turned.names == ("C", "N")
    assert turned.tolist() == x.rename(None).rot90().tolist()


def test_norms_over_dims_by_name():
    x = _numbered((2, 3, 4), "N", "C", "W")
    norms = weft.linalg.matrix_norm(x, dim=("N", "W"))
    assert norms.names == ("C",)
    assert norms.tolist() == weft.linalg.matrix_norm(x.rename(None), dim=(0, 2)).tolist()


# --- copies and conversions keep names, and so do files ---

_COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": lambda x: x.clone(),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "contiguous": lambda x: x.contiguous(),
    "double": lambda x: x.double(),
    "to": lambda x: x.to("cpu", weft.int32),
    "type": lambda x: x.type(weft.float64),
    "requires_grad_": lambda x: x.requires_grad_(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "Parameter": nn.Parameter,
    "view": lambda x: x.view(2, 3),
    "expand": lambda x: x.expand(2, 3),
    "dropout": lambda x: F.dropout(x, 0.5),
    "pad": lambda x: F.pad(x, (1, 1)),
}


@pytest.mark.parametrize("copied", _COPIES)
def test_copies_have_the_names(x, copied):
    assert _COPIES[copied](x).names == ("N", "C")


def test_files_keep_names(x, tmp_path):
    weft.save({"x": x}, tmp_path / "x.pt")
    assert weft.load(tmp_path / "x.pt")["x"].names == ("N", "C")


def test_names_are_printed(x):
    assert repr(x[:1]) == "tensor([[0., 1., 2.]], names=('N', 'C'))"


def test_conversions_to_python_have_no_names(x):
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.numpy().shape == (2, 3)
    assert [row.names for row in x] == [("C",), ("C",)]


def test_subscripts(x):
    assert [part.names for part in (x[0], x[:, 0], x[..., 0], x[1:], x[None], x[0, 0])] == [
        ("C",), ("N",), ("N",), ("N", "C"), (None, "N", "C"), (),
    ]  # fmt: skip
    assert x[x > 2].names == x.masked_select(x > 2).names == (None,)


def test_resize_keeps_the_shape_of_a_tensor_with_names(x):
    assert x.resize_(2, 3).names == x.resize_as_(weft.zeros_like(x)).names == ("N", "C")
    assert weft.zeros(1).resize_as_(x).names == ("N", "C")
    with pytest.raises(RuntimeError, match=r"^Name mismatch: .* computed output names \[None, None\]\. "):
        x.resize_as_(weft.zeros(2, 3))
    with pytest.raises(RuntimeError, match=r"^Cannot resize named tensor with resize_ or resize_as_ \(tried to "):
        _numbered((2, 3), "N", "C").resize_(6)


def test_code_without_names_says_nothing_of_them():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
        loss = F.mse_loss(model(weft.ones(2, 3)), weft.zeros(2, 2))
        loss.backward()
        assert "names" not in repr(loss)
        x = weft.zeros(2, 3, names=("N", "C"))  # nor is there a warning where names are used
        assert (x + 1).names == ("N", "C")


def test_a_parameter_takes_names_in_place():
    layer = weft.nn.Linear(3, 2)
    weight = layer.weight
    shared = weight.detach()
    assert weight.rename_("out", "in") is weight
    assert layer.weight.names == ("out", "in")
    assert weight.is_leaf
    assert weight.requires_grad
    assert shared.names == (None, None)
    layer(weft.ones(4, 3, names=("N", "in"))).sum().backward()
    assert weight.grad.names == ("out", "in")
    weft.optim.SGD([weight], 0.1).step()
    assert weight.names == ("out", "in")
    assert weft.equal(shared, weight.detach().rename(None))


def test_an_assigned_gradient_has_the_names_of_its_tensor_or_none(x):
    x = x.clone().requires_grad_(True)
    for grad in (weft.ones(2, 3), weft.ones(2, 3, names=("N", "C"))):
        x.grad = grad
        assert x.grad is grad
        (x * 2).sum().backward()
        assert x.grad.names == ("N", "C")
    with pytest.raises(RuntimeError, match=r"^attempting to assign a gradient with the names \['C', 'N'\] to Tensor\["):
        x.grad = weft.ones(2, 3, names=("C", "N"))


def test_gradcheck_keeps_the_names_of_inputs():
    x = weft.rand(2, 3, names=("N", "C"), dtype=weft.float64).requires_grad_(True)
    assert weft.autograd.gradcheck(lambda x: x.softmax("C") * x.align_to("C", "N").mean("N"), x)
