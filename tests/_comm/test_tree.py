"""The tree over numbered processes."""

from hypothesis import given
from hypothesis import strategies as st

from weft._comm.tree import FAN_OUT, children


@given(st.integers(1, 2000))
def test_each_but_the_root_is_the_child_of_one_before_it(size):
    pairs = [(number, child) for number in range(size) for child in children(number, size)]
    assert sorted(child for _, child in pairs) == list(range(1, size))
    assert all(number < child for number, child in pairs)
    assert all(len(children(number, size)) <= FAN_OUT for number in range(size))
