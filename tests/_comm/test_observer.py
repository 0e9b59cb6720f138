"""Stores seen from outside."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest

from weft._comm.stores.file_store import FileStore
from weft._comm.stores.observer import observed
from weft._comm.stores.tcp_store import TCPStore

PATIENCE = timedelta(seconds=10)


def test_an_observer_of_a_tcp_store_is_no_client():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, fd = listener.getsockname()[1], listener.detach()
    store = TCPStore("127.0.0.1", port, is_master=True, master_listen_fd=fd, multi_tenant=True)
    store.set("key", "value")
    observer = observed(f"tcp://127.0.0.1:{port}", PATIENCE)
    assert observer.list_keys() == ["key"]
    assert observer.get("key") == b"value"
    with pytest.raises(RuntimeError, match=r"waiting for clients\. 2/3 clients joined"):  # `store` and this one
        TCPStore("127.0.0.1", port, 3, is_master=True, multi_tenant=True, timeout=timedelta(seconds=0.1))
    observer.close()
    store.close()


@pytest.mark.parametrize("users", [1, 2])
def test_an_observer_of_a_file_is_no_user(users, tmp_path):
    path = tmp_path / "store"
    stores = [FileStore(str(path), users) for _ in range(users)]
    stores[0].set("key", "value")
    observer = observed(f"file://{path}", PATIENCE)
    assert observer.list_keys() == ["key"]
    assert observer.get("key") == b"value"
    if users == 2:
        stores.pop().close()
    observer.close()
    assert path.exists()
    stores.pop().close()
    assert not path.exists()
