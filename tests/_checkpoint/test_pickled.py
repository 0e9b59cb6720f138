"""The reader of pickles, against Python's own on plain objects."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests._checkpoint.crafted import number, tuple_of
from weft._checkpoint.torch_files import _NameResolver
from weft.errors import PickleError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
KEYS = SCALARS | st.tuples(SCALARS, SCALARS)
OBJECTS = st.recursive(
    SCALARS | st.sets(KEYS) | st.frozensets(SCALARS) | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.lists(inner).map(tuple),
    max_leaves=20,
)


def read(content: bytes):
    return _NameResolver(len(content)).load(io.BytesIO(content), "utf-8")


@given(OBJECTS, st.integers(0, 5))
def test_plain_objects_are_read_as_pythons_pickle_does(obj, protocol):
    found = read(pickle.dumps(obj, protocol))
    assert found == obj
    assert type(found) is type(obj)


@pytest.mark.parametrize("protocol", range(6))
def test_sharing_and_cycles_are_kept(protocol):
    shared = [1]
    loop = {"a": shared, "b": shared}
    loop["self"] = loop
    found = read(pickle.dumps(loop, protocol))
    assert found["a"] is found["b"]
    assert found["self"] is found


def test_the_file_is_left_behind_the_pickle():
    file = io.BytesIO(pickle.dumps(1) + pickle.dumps("x"))
    assert [_NameResolver(9).load(file, "utf-8") for _ in range(2)] == [1, "x"]


REFUSED = [
    (b"", r"its pickle is damaged \(ValueError: pickle exhausted before seeing STOP\)"),
    (b"N", r"its pickle is damaged \(ValueError: pickle exhausted before seeing STOP\)"),
    (b".", r"its pickle is damaged \(IndexError: pop from empty list\)"),
    (b"e.", r"its pickle is damaged \(IndexError"),
    (b"\xff.", r"its pickle is damaged \(ValueError: at position 0, opcode b'\\xff' unknown\)"),
    (b"X\xff\xff\xff\x7fab.", r"its pickle is damaged \(ValueError: expected 2147483647 bytes in a unicodestring4"),
    (b"\x8e" + b"\xff" * 7 + b"\x7fab.", r"its pickle is damaged \(ValueError: expected 9223372036854775807 bytes"),
    (b"I" + b"9" * 5000 + b"\n.", r"its pickle is damaged \(ValueError: Exceeds the limit"),
    (b"h\x05.", r"its pickle is damaged \(ValueError: it refers to object 5, which is not there\)"),
    (b"Np2147483647\n0g7\n.", r"its pickle is damaged \(ValueError: it refers to object 7"),
    (b"N\x85\x86.", r"its pickle is damaged \(ValueError: a tuple of missing items\)"),
    (b"NNa.", "its pickle appends to a NoneType"),
    (b"](NNu.", "its pickle sets items of a list"),
    (b"](N\x90.", "its pickle adds items to a list"),
    (b"}(Nu.", r"its pickle is damaged \(ValueError"),
    (b"}]Ns.", "its pickle has a key or an item of a set of type list; such may be"),
    (b"\x8f(}\x90.", "its pickle has a key or an item of a set of type dict"),
    (b"\x82\x01.", "its pickle has the instruction EXT1, which neither tensors nor containers need"),
    (b"Pabc\n.", "its pickle has the instruction PERSID"),
    (b"(i" + b"os\nsystem\n.", "its pickle has the instruction INST"),
    (b"\x97.", "its pickle has the instruction NEXT_BUFFER"),
    (b"NN\x93.", "its pickle names a global by something else than strings"),
]


@pytest.mark.parametrize(("content", "reason"), REFUSED)
def test_damaged_and_hostile_pickles_are_refused(content, reason):
    with pytest.raises(PickleError, match=f"^{reason}"):
        read(content)


def test_keys_that_take_for_ever_to_hash_are_refused():
    doubled = number(1) + b"\x85q\x00" + b"0h\x00h\x00\x86q\x00" * 60
    with pytest.raises(PickleError, match=r"^its pickle has a key or an item of a set of type tuple"):
        read(b"}" + doubled + b"Ns.")
    assert read(b"}" + tuple_of(number(1), number(2)) + b"Ns.") == {(1, 2): None}


DEEP = """
import io
from weft._checkpoint.torch_files import _NameResolver
from weft.errors import PickleError

def read(content):
    return _NameResolver(len(content)).load(io.BytesIO(content), "utf-8")

depth = 100_000
print(type(read(b"]" * depth + b"a" * (depth - 1) + b".")).__name__, len(read(b")" + b"\\x85" * depth + b".")))
try:
    read(b"}" + b")" + b"\\x85" * depth + b"Ns.")
except PickleError as error:
    print(error)
"""


@pytest.mark.slow
def test_depth_is_no_danger():
    found = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("list 1\nits pickle has a key or an item of a set of type tuple")
