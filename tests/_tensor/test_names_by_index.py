"""Names of dims under indices and masks, of what is written there, and where a name would come twice."""

from __future__ import annotations

from math import prod

import pytest

import weft
from weft import Tensor
from weft.errors import DimNameError
from weft.nn import functional as F


def numbered(shape: tuple[int, ...], *names: str | None) -> Tensor:
    return weft.arange(float(prod(shape))).reshape(shape).rename(*names)


X = numbered((2, 3), "n", "c")
SQUARE = numbered((3, 3), "n", "c")
PLACES = weft.tensor([0, 1, 0])
LEFT = weft.tensor([True, False])


@pytest.mark.parametrize(
    ("index", "names"),
    [
        ([0, 1], ("n", "c")),
        (PLACES, ("n", "c")),
        ((slice(None), [0, 2]), ("n", "c")),
        (PLACES.rename("k"), ("k", "c")),
        (PLACES.rename("c"), (None, "c")),
        ((PLACES, [0, 1, 2]), (None,)),
        (weft.zeros(2, 2, dtype=weft.int64), (None, None, "c")),
        (LEFT, ("n", "c")),
        (LEFT.rename("n"), ("n", "c")),
        (X > 2, (None,)),
    ],
)
def test_one_index_of_one_dim_keeps_the_name(index, names):
    assert X[index].names == names


def test_a_mask_gives_its_name():
    assert X.rename(None)[LEFT.rename("n")].names == ("n", None)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, mask: x[mask],
        lambda x, mask: x.__setitem__(mask, weft.ones(9)),
        lambda x, mask: x.__setitem__(mask, 1.0),
        lambda x, mask: x.index_put((mask,), weft.ones(9)),
        lambda x, mask: x.masked_scatter(mask, weft.ones(9)),
        lambda x, mask: x.masked_select(mask),
    ],
)
def test_a_mask_has_the_names_of_the_dims_that_it_covers(use):
    use(SQUARE.clone(), SQUARE >= 0)
    use(SQUARE.clone(), (SQUARE >= 0).rename(None))
    with pytest.raises(DimNameError, match=r"\['c', 'n'\]"):
        use(SQUARE.clone(), SQUARE.T >= 0)


def test_what_is_written_at_indices_has_the_names_of_what_is_read_there():
    def write(index, values):
        target = SQUARE.clone()
        target[index] = values
        assert target.names == ("n", "c")
        assert target.index_put((index,), values).names == ("n", "c")
        assert target.index_put_((index,), values).names == ("n", "c")
        return target

    for values in (numbered((3, 3), "n", "c"), numbered((3, 3), None, None), numbered((3,), "c"), numbered((3,), None)):
        write(PLACES, values)
    write(PLACES.rename("k"), numbered((3, 3), "k", "c"))
    for index, names in ((PLACES, ("c", "n")), (PLACES, ("n",)), (PLACES.rename("k"), ("n", "c"))):
        with pytest.raises(DimNameError, match=r"index_put: Expected '.' \(index . of .*\) to match"):
            write(index, numbered((3,) * len(names), *names))
    plain = SQUARE.rename(None).clone()
    plain[PLACES] = numbered((3, 3), "n", "c")
    assert plain.names == (None, None)


def test_masked_scatter_keeps_names_and_ignores_those_of_the_source():
    assert SQUARE.masked_scatter(SQUARE > 1, numbered((9,), "q")).names == ("n", "c")


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: weft.einsum("ij,jk->ki", X, numbered((3, 2), "d", "n")), (None, "n")),
        (lambda: weft.tensordot(X, numbered((3, 2), "d", "n"), 1), ("n", None)),
        (lambda: F.embedding(weft.zeros(2, 3, dtype=weft.int64, names=("n", "t")), numbered((4, 5), "v", "t")), "nt-"),
        (lambda: F.conv1d(numbered((1, 2, 4), "n", "c", "t"), numbered((2, 2, 1), "t", None, None)), "n-t"),
        (lambda: weft.cdist(X, numbered((4, 3), "n", "c")), ("n", None)),
    ],
)
def test_where_a_name_would_come_twice_the_first_tensor_keeps_it(call, names):
    assert call().names == tuple(None if name == "-" else name for name in names)
