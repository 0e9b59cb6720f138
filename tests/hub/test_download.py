"""Files from URLs: whole or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import sys
from types import SimpleNamespace
from urllib.error import URLError

import pytest

from tests.hub.site import left
from weft import hub
from weft.errors import CheckpointError, DownloadError, ValueRangeError
from weft.hub import _download


def test_a_download_stands_at_its_place(site, tmp_path):
    body = bytes(range(256)) * 2000
    site.pages["/x.bin"] = (302, {"Location": "/y.bin"}, b"moved")
    site.pages["/y.bin"] = body
    digest = hashlib.sha256(body).hexdigest()
    hub.download_url_to_file(f"{site.url}/x.bin", str(tmp_path / "got.bin"), hash_prefix=digest[:8], progress=False)
    assert (tmp_path / "got.bin").read_bytes() == body
    assert [path for path, _ in site.asked] == ["/x.bin", "/y.bin"]
    assert left(tmp_path) == ["got.bin"]
    hub.download_url_to_file((tmp_path / "got.bin").as_uri(), str(tmp_path / "again.bin"), digest)
    assert (tmp_path / "again.bin").read_bytes() == body


@pytest.mark.parametrize("length", [None, "800000"])
def test_a_terminal_shows_a_bar(length, site, tmp_path, monkeypatch):
    site.pages["/big.bin"] = (200, {"Content-Length": length}, bytes(800_000))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    master, slave = os.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen, os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        hub.download_url_to_file(f"{site.url}/big.bin", str(tmp_path / "big.bin"))
        shown = screen.read(65536).decode()
    assert "big.bin" in shown
    assert ("800.0/800.0 kB" in shown) == (length is not None)


def test_no_terminal_no_bar(site, tmp_path, capsys):
    site.pages["/x"] = b"1"
    hub.download_url_to_file(f"{site.url}/x", str(tmp_path / "x"))
    assert capsys.readouterr() == ("", "")


def failing(site, url, tmp_path, error, match, **options):
    """The download fails, and leaves what was there before."""
    target = tmp_path / "target.bin"
    target.write_bytes(b"before")
    with pytest.raises(error, match=match) as caught:
        hub.download_url_to_file(url, str(target), progress=False, **options)
    assert target.read_bytes() == b"before"
    assert left(tmp_path) == ["target.bin"]
    return caught.value


def test_what_the_server_refuses(site, tmp_path):
    site.pages["/choose"] = (300, {}, b"which?")
    refused = failing(site, f"{site.url}/none", tmp_path, URLError, r"^HTTP Error 404: Not Found \(http://.*/none\)$")
    assert (type(refused), refused.code) == (DownloadError, 404)
    assert failing(site, f"{site.url}/choose", tmp_path, OSError, r"^HTTP Error 300: Multiple Choices").code == 300


def test_an_unreachable_server(closed_port, site, tmp_path):
    url = f"{closed_port}/x"
    refused = failing(site, url, tmp_path, DownloadError, rf"^cannot download {url}: .*Connection refused")
    assert refused.code is None


def test_a_download_that_ends_early(site, tmp_path):
    site.pages["/short"] = (200, {"Content-Length": "100"}, b"only this")
    short = failing(site, f"{site.url}/short", tmp_path, DownloadError, r"^cannot download http://.*/short: ")
    assert short.code is None
    site.pages["/garbled"] = (200, {"Content-Length": None, "Transfer-Encoding": "chunked"}, b"5\r\nhel")
    failing(site, f"{site.url}/garbled", tmp_path, DownloadError, r"^cannot download http://.*/garbled: ")


def test_a_short_body_that_the_transport_lets_pass():
    """As urllib3 1.26 does, which is not what these tests run with."""
    short = SimpleNamespace(status_code=200, headers={"Content-Length": "9"})
    with pytest.raises(DownloadError, match=r"^cannot download u: 0 of 9 bytes came before the connection ended$"):
        _download._check_whole("u", io.BytesIO(), short)
    short.headers["Content-Encoding"] = "gzip"  # the length is that of something else
    _download._check_whole("u", io.BytesIO(), short)


def test_a_wrong_hash(site, tmp_path):
    site.pages["/x"] = b"content"
    digest = hashlib.sha256(b"content").hexdigest()
    text = rf'^invalid hash value \(expected "0123", got "{digest}"\)$'
    failing(site, f"{site.url}/x", tmp_path, CheckpointError, text, hash_prefix="0123")


def test_urls_that_lead_nowhere(site, tmp_path):
    failing(site, "file:///no/such", tmp_path, DownloadError, r"^cannot download file:///no/such: .*No such file")
    for url in ("what", "gopher://x/y"):
        failing(site, url, tmp_path, ValueRangeError, rf"^unknown url type: '{url}'; use an http, https or file URL$")


def test_an_interrupt_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    (tmp_path / "source").write_bytes(b"1")
    monkeypatch.setattr(os, "fsync", interrupt)  # after the bytes, before the rename
    with pytest.raises(KeyboardInterrupt):
        hub.download_url_to_file((tmp_path / "source").as_uri(), str(tmp_path / "target"))
    assert left(tmp_path) == ["source"]
