"""The tree over numbered processes."""

from hypothesis import given
from hypothesis import strategies as st

from weft._comm.tree import FAN_OUT, children, parent


@given(st.integers(1, 2000))
def test_everybody_but_the_root_is_one_ones_child(size):
    below = {child: number for number in range(size) for child in children(number, size)}
    assert sorted(below) == list(range(1, size))
    assert all(parent(child) == number for child, number in below.items())
    assert all(len(children(number, size)) <= FAN_OUT for number in range(size))
    assert parent(0) == -1
