"""One module makes the keys that the processes of a job share, so that all of them can be read in one place."""

from __future__ import annotations

import ast

import pytest

from tests.test_layers import FILES, name_of, parsed
from weft._comm.stores import keys

_OPERATIONS = {
    *("set", "get", "add", "append", "check", "wait", "compare_set", "delete_key", "multi_get", "multi_set"),
    *("queue_push", "queue_pop", "queue_len", "barrier", "values_under"),
}

_RECEIVERS = ("store", "_place", "PrefixStore")  # ends of what has such operations, and the class that takes a key


def written_keys(tree):
    """The lines with a key that begins with a text, in operations of stores and in `PrefixStore`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        receiver, _, operation = ast.unparse(node.func).rpartition(".")
        is_store = receiver.endswith(_RECEIVERS[:2]) and operation in _OPERATIONS
        if is_store or operation == "PrefixStore":
            key = node.args[0]
            key = key.elt if isinstance(key, ast.ListComp) else key.elts[0] if isinstance(key, ast.List) else key
            start = key.values[0] if isinstance(key, ast.JoinedStr) else key
            if isinstance(start, ast.Constant):
                yield node.lineno


def test_no_other_module_makes_keys():
    naming = [path for path in FILES if any(name in path.read_text(encoding="utf-8") for name in _RECEIVERS)]
    assert not [f"{name_of(path)}:{line}" for path in naming for line in written_keys(parsed(path))]


def test_the_check_finds_keys():
    source = "store.set(f'a/{rank}', b'')\nself._store.wait([f'b/{peer}' for peer in ranks])\nPrefixStore('c', store)"
    assert list(written_keys(ast.parse(source))) == [1, 2, 3]


@pytest.mark.parametrize("before", ["", "workers/3/"])
def test_a_worker_is_recognised_by_its_key(before, monkeypatch):
    monkeypatch.setenv("WEFT_RENDEZVOUS_ROUND", "3")
    start = f"{before}{keys.remote_workers()}"
    for job in (keys.RPC_ANY, keys.meeting(4, 2)):
        assert keys.worker_of(f"{start}/{job}/{keys.worker_number(7)}") == (start, f"{start}/{job}", 7)
    assert keys.worker_of(f"{start}/{keys.RPC_ANY}/{keys.worker_name('w')}") is None
