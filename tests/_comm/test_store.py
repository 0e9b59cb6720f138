"""What holds for every store."""

from __future__ import annotations

import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from weft._comm.stores.file_store import FileStore
from weft._comm.stores.store import HashStore, PrefixStore, Store
from weft._comm.stores.tcp_store import TCPStore
from weft.errors import ArgumentError, DistStoreError, QueueEmptyError, ValueRangeError

_SHORT = timedelta(milliseconds=50)


@pytest.fixture(params=["hash", "file", "tcp", "prefix", "nested"])
def store(request, tmp_path):
    made = {
        "hash": HashStore,
        "file": lambda: FileStore(str(tmp_path / "store"), 1),
        "tcp": lambda: TCPStore("127.0.0.1", 0, 1, is_master=True),
        "prefix": HashStore,
        "nested": HashStore,
    }[request.param]()
    found: Store = made
    if request.param in {"prefix", "nested"}:
        found = PrefixStore("outer", found)
    if request.param == "nested":
        found = PrefixStore("inner", found)
    yield found
    made.close()


def test_set_and_get(store):
    store.set("text", "ä")
    store.set("bytes", b"\0\xff")
    store.set("", "empty key")
    store.set("none", "")
    assert store.get("text") == "ä".encode()
    assert store.multi_get(["bytes", "", "none"]) == [b"\0\xff", b"empty key", b""]
    assert store.multi_get([]) == []


def test_add(store):
    assert store.add("n", 3) == 3
    assert store.add("n", -5) == -2
    assert store.get("n") == b"-2"
    store.set("n", "12")
    assert store.add("n", 1) == 13


def test_add_to_what_is_no_number(store):
    store.set("n", "zwölf")
    with pytest.raises(ValueRangeError, match=r"^add: the value of key '(outer/(inner/)?|inner/outer/)?n' is b'zw"):
        store.add("n", 1)
    store.set("n", str((1 << 63) - 1))
    with pytest.raises(ValueRangeError, match=r"does not fit into 64 bits$"):
        store.add("n", 1)
    assert store.get("n") == b"%d" % ((1 << 63) - 1)


def test_append(store):
    store.append("a", "x")
    store.append("a", b"\0y")
    assert store.get("a") == b"x\0y"


def test_compare_set(store):
    assert store.compare_set("c", "other", "new") == b"other"
    assert not store.check(["c"])
    assert store.compare_set("c", "", "first") == b"first"
    assert store.compare_set("c", "wrong", "new") == b"first"
    assert store.compare_set("c", "first", "second") == b"second"
    assert store.get("c") == b"second"


def test_keys_are_deleted_counted_and_listed(store):
    own = store.num_keys()
    store.multi_set(["a", "b"], ["1", b"2"])
    assert store.num_keys() == own + 2
    assert sorted(store.list_keys()) == ["a", "b"]
    assert store.check(["a", "b"])
    assert store.check([])
    assert store.delete_key("a")
    assert not store.delete_key("a")
    assert not store.check(["a", "b"])
    assert store.num_keys() == own + 1


def test_a_wait_that_runs_out_names_the_missing_keys(store):
    store.set("there", "1")
    with pytest.raises(DistStoreError, match=r"^wait timeout after 50ms, keys: /\S*gone, /\S*lost; no process has set"):
        store.wait(["there", "gone", "lost"], _SHORT)
    store.set_timeout(_SHORT)
    assert store.timeout == _SHORT
    with pytest.raises(DistStoreError, match=r"^wait timeout after 50ms, keys: /\S*gone; "):
        store.get("gone")
    store.wait([])


def test_a_wait_ends_when_the_key_comes_and_keeps_nobody_from_working(store):
    with ThreadPoolExecutor(3) as threads:
        waits = [threads.submit(store.get, "late"), threads.submit(store.wait, ["late", "later"])]
        for number in range(20):
            store.add("n", number)
        store.set("late", "now")
        assert waits[0].result(timeout=10) == b"now"
        store.add("later", 1)
        waits[1].result(timeout=10)


def test_threads_share_a_store(store):
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: [store.add("n", 1) for _ in range(50)], range(4)))
    assert store.get("n") == b"200"


def test_barrier(store):
    passed = []
    threads = [threading.Thread(target=lambda: passed.append(store.barrier("here", 3))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert passed == [None] * 3
    with pytest.raises(DistStoreError, match=r"^wait timeout after 50ms"):
        store.barrier("there", 2, _SHORT)


def test_values_are_found_by_how_their_keys_begin(store):
    assert store.values_under("a/") == {}
    store.multi_set(["a/1", "a/2", "b", "a"], ["x", b"\xff", "z", "w"])
    assert store.values_under("a/") == {"a/1": b"x", "a/2": b"\xff"}
    assert store.values_under("a") == {"a/1": b"x", "a/2": b"\xff", "a": b"w"}
    assert sorted(store.values_under("")) == sorted(store.list_keys())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda store: store.set(1, "a"), r"^a key must be a str, not int$"),
        (lambda store: store.set("a", 1), r"^a value must be a str or bytes, not int$"),
        (lambda store: store.wait("abc"), r"^keys must be a sequence of str, got the str 'abc'; write \['abc'\]$"),
        (lambda store: store.add("a", 1.5), r"^add\(\): the amount must be an int of 64 bits, got 1\.5$"),
        (lambda store: store.add("a", 1 << 70), r"^add\(\): the amount must be an int of 64 bits"),
        (lambda store: store.wait(["a"], 5), r"^wait\(\): timeout must be a timedelta, or a float of seconds, not int"),
        (
            lambda store: store.set_timeout(5),
            r"^set_timeout\(\): timeout must be a timedelta, or a float of seconds, not int",
        ),
    ],
)
def test_wrong_arguments(store, call, message):
    with pytest.raises(ArgumentError, match=message):
        call(store)
    assert store.list_keys() == []


def test_unequal_numbers_of_keys_and_values(store):
    with pytest.raises(DistStoreError, match=r"^multi_set: .* got 2 keys and 1 values$"):
        store.multi_set(["a", "b"], ["1"])


def test_prefixes_part_a_store():
    below = HashStore()
    left, right = PrefixStore("l", below), PrefixStore("r", below)
    left.set("k", "1")
    right.set("k", "2")
    assert (left.get("k"), right.get("k")) == (b"1", b"2")
    assert sorted(below.list_keys()) == ["l/k", "r/k"]
    assert left.list_keys() == ["k"]
    assert left.num_keys() == 2
    assert left.delete_key("k")
    assert below.list_keys() == ["r/k"]
    assert right.underlying_store is below
    with pytest.raises(ArgumentError, match=r"^PrefixStore: store must be a Store, not int$"):
        PrefixStore("p", 1)  # pyright: ignore[reportArgumentType]


# --- against a dict ---

_KEYS = st.sampled_from(["a", "b", "ü"])
_VALUES = st.binary(max_size=6) | st.sampled_from([b"", b"1", b"-7"])


def _number(value):
    try:
        return int(value)
    except ValueError:
        return None


class _Machine(RuleBasedStateMachine):
    """Any sequence of operations does to a store what it does to a dict."""

    def __init__(self):
        super().__init__()
        self.model = {}
        self.stores = self.made()
        self.turn = 0

    @property
    def store(self):
        self.turn += 1
        return self.stores[self.turn % len(self.stores)]

    @rule(key=_KEYS, value=_VALUES)
    def set(self, key, value):
        self.store.set(key, value)
        self.model[key] = value

    @rule(key=_KEYS, value=_VALUES)
    def append(self, key, value):
        self.store.append(key, value)
        self.model[key] = self.model.get(key, b"") + value

    @rule(key=_KEYS, amount=st.integers(-1000, 1000))
    def add(self, key, amount):
        number = _number(self.model.get(key, b"0"))
        if number is None:
            with pytest.raises(ValueRangeError):
                self.store.add(key, amount)
        else:
            assert self.store.add(key, amount) == number + amount
            self.model[key] = b"%d" % (number + amount)

    @rule(key=_KEYS, expected=_VALUES, desired=_VALUES)
    def compare_set(self, key, expected, desired):
        present = self.model.get(key)
        swaps = expected == (present or b"") if present is None else expected == present
        if swaps:
            self.model[key] = desired
        assert self.store.compare_set(key, expected, desired) == self.model.get(key, expected)

    @rule(key=_KEYS)
    def delete(self, key):
        assert self.store.delete_key(key) == (self.model.pop(key, None) is not None)

    @invariant()
    def agrees(self):
        for store in self.stores:
            assert {key: store.get(key) for key in store.list_keys()} == self.model

    def teardown(self):
        for store in self.stores:
            store.close()


class _HashMachine(_Machine):
    def made(self):
        return [HashStore()]


class _FileMachine(_Machine):
    def made(self):
        self.path = Path(tempfile.mkdtemp()) / "store"
        return [FileStore(str(self.path), 2), FileStore(str(self.path), 2)]

    def teardown(self):
        super().teardown()
        self.path.parent.rmdir()  # the stores have removed the file


TestHashAsDict = _HashMachine.TestCase
TestFileAsDict = _FileMachine.TestCase
TestHashAsDict.settings = TestFileAsDict.settings = settings(stateful_step_count=30)


# --- queues ---


def test_queues(store):
    if isinstance(store, FileStore):
        for call in (lambda: store.queue_push("q", "v"), lambda: store.queue_pop("q"), lambda: store.queue_len("q")):
            with pytest.raises(NotImplementedError, match=r"^queue support is not implemented\. "):
                call()
        return
    assert store.queue_len("q") == 0
    store.queue_push("q", "first")
    store.queue_push("q", b"\0")
    store.set("q", "value")
    assert (store.queue_len("q"), store.check(["q"]), store.get("q")) == (2, True, b"value")
    assert [store.queue_pop("q"), store.queue_pop("q", False)] == [b"first", b"\0"]
    with pytest.raises(QueueEmptyError, match=r"^queue is empty$"):
        store.queue_pop("q", block=False)
    store.set_timeout(_SHORT)
    with pytest.raises(DistStoreError, match=r"^wait timeout after 50ms, keys: /.*q"):
        store.queue_pop("q")
    assert store.get("q") == b"value"


def test_a_queue_wakes_those_who_wait(store):
    if isinstance(store, FileStore):
        return
    with ThreadPoolExecutor(2) as pool:
        popped, waited = pool.submit(store.queue_pop, "q"), pool.submit(store.wait, ["p"])
        store.queue_push("p", "stays")
        store.queue_push("q", "goes")
        assert (popped.result(20), waited.result(20)) == (b"goes", None)
    assert (store.queue_len("q"), store.queue_len("p")) == (0, 1)


def test_a_store_written_in_python_has_the_extended_calls_that_it_defines():
    class Plain(Store):
        def get(self, key):
            return b""

    class Extended(Plain):
        def append(self, key, value):
            pass

        def multi_get(self, keys):
            return []

        def multi_set(self, keys, values):
            pass

    assert not Plain().has_extended_api()
    assert not PrefixStore("p", Plain()).has_extended_api()
    assert Extended().has_extended_api()
    assert PrefixStore("p", Extended()).has_extended_api()


def test_timeouts_are_timedeltas_or_floats_of_seconds(store):
    store.set_timeout(2.5)
    assert store.timeout == timedelta(seconds=2.5)
    with pytest.raises(DistStoreError, match="wait timeout after 50ms"):
        store.wait(["nobody sets this"], 0.05)
    for wrong in (1, "1"):
        with pytest.raises(TypeError, match=r"timeout must be a timedelta, or a float of seconds, not"):
            store.set_timeout(wrong)
    TCPStore("127.0.0.1", 0, 1, is_master=True, timeout=5.0).close()
