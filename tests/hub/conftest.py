"""A server, and a cache of its own for every test."""

from __future__ import annotations

import socket
import sys
import threading

import pytest

from tests.hub.site import Site
from weft.hub import _folder


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join(60)
        assert not thread.is_alive(), "the server does not end"


@pytest.fixture
def closed_port():
    """The address of a port at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The folder of downloads: new, and forgotten afterwards."""
    monkeypatch.setattr(_folder._HubFolder, "folder", None)
    for name in ("TORCH_HUB", "TORCH_HOME", "TORCH_MODEL_ZOO", "XDG_CACHE_HOME", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WEFT_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path / "cache" / "hub"
    sys.modules.pop("helper", None)  # which a `hubconf.py` imports
