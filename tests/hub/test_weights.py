"""Weights from URLs, and the folder that keeps them."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile

import pytest

import weft
from tests.hub.site import left, saved, zipped
from weft import hub
from weft.errors import CheckpointError, ValueRangeError
from weft.utils import model_zoo


def test_the_folder_is_read_off_the_environment(tmp_path, monkeypatch):
    assert hub.get_dir() == str(tmp_path / "cache" / "hub")
    monkeypatch.delenv("WEFT_HOME")
    monkeypatch.setenv("TORCH_HOME", "/torch")
    assert hub.get_dir() == "/torch/hub"
    monkeypatch.delenv("TORCH_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert hub.get_dir() == "/xdg/weft/hub"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert hub.get_dir() == os.path.expanduser("~/.cache/weft/hub")
    hub.set_dir("~/elsewhere")
    assert hub.get_dir() == os.path.expanduser("~/elsewhere")
    monkeypatch.setenv("TORCH_HUB", "/old")
    with pytest.warns(UserWarning, match=r"^TORCH_HUB is deprecated, please use env TORCH_HOME instead$"):
        assert hub.get_dir() == os.path.expanduser("~/elsewhere")


def test_weights_are_downloaded_once(site, cache, capsys):
    body = saved({"w": weft.arange(3)})
    name = f"net-{hashlib.sha256(body).hexdigest()[:8]}.weft"
    site.pages[f"/{name}"] = body
    url = f"{site.url}/{name}?raw=1"
    site.pages[f"/{name}?raw=1"] = body
    for _ in range(2):
        state = hub.load_state_dict_from_url(url, check_hash=True, map_location="cpu")
        assert state["w"].tolist() == [0, 1, 2]
    assert len(site.asked) == 1
    assert capsys.readouterr() == ("", f'Downloading: "{url}" to {cache}/checkpoints/{name}\n')
    assert left(cache / "checkpoints") == [name]
    assert model_zoo.load_url is hub.load_state_dict_from_url


def test_weights_under_another_name(site, tmp_path, capsys):
    site.pages["/x"] = saved({"step": 4})  # one member, and a checkpoint all the same
    folder = tmp_path / "deep" / "er"
    assert hub.load_state_dict_from_url(f"{site.url}/x", str(folder), file_name="y.weft") == {"step": 4}
    assert left(folder) == ["y.weft"]
    assert f'Downloading: "{site.url}/x" to {folder}/y.weft' in capsys.readouterr().err


def test_weights_with_a_wrong_hash(site, cache):
    site.pages["/net-00000000.weft"] = saved({})
    with pytest.raises(RuntimeError, match=r'^invalid hash value \(expected "00000000", got "[0-9a-f]{64}"\)$'):
        hub.load_state_dict_from_url(f"{site.url}/net-00000000.weft", check_hash=True)
    assert left(cache / "checkpoints") == []
    assert hub.load_state_dict_from_url(f"{site.url}/net-00000000.weft") == {}


@pytest.mark.parametrize("name", ["net.weft", "net-.weft", "net-1.2.weft", "net-5c106cd.weft", "net-5C106CDE.weft"])
def test_a_hash_that_is_not_in_the_name_cannot_be_checked(name, site, cache):
    site.pages[f"/{name}"] = saved({})
    with pytest.raises(
        ValueRangeError, match=rf"^check_hash=True takes a name with .*, got '{name}'; give such a file"
    ):
        hub.load_state_dict_from_url(f"{site.url}/{name}", check_hash=True)
    assert site.asked == []
    assert left(cache) == []


def test_the_hash_of_a_file_that_is_there_is_checked(site, cache):
    site.pages["/net-00000000.weft"] = saved({})
    hub.load_state_dict_from_url(f"{site.url}/net-00000000.weft")
    with pytest.raises(
        CheckpointError,
        match=r"^invalid hash value of .*/net-00000000\.weft, which an earlier download has left; remove it \(expected",
    ):
        hub.load_state_dict_from_url(f"{site.url}/net-00000000.weft", check_hash=True)
    assert left(cache / "checkpoints") == ["net-00000000.weft"]


def test_a_zip_file_that_would_fill_the_memory_is_not_unpacked(site, cache):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.weft", bytes((1 << 26) + 1))
    site.pages["/bomb.zip"] = file.getvalue()
    with pytest.raises(
        CheckpointError, match=r"^cannot load .*bomb\.zip: its \d+ bytes would unpack to 67108865, more"
    ):
        hub.load_state_dict_from_url(f"{site.url}/bomb.zip")


def test_a_zip_file_around_weights_is_unpacked(site, cache):
    site.pages["/one.zip"] = zipped({"inner.weft": saved({"w": weft.ones(2)})})
    assert hub.load_state_dict_from_url(f"{site.url}/one.zip")["w"].tolist() == [1, 1]
    site.pages["/two.zip"] = zipped({"a": b"", "b": b""})
    site.pages["/folder.zip"] = zipped({"a/": b""})
    for name in ("two.zip", "folder.zip"):
        with pytest.raises(CheckpointError, match=r"^Only one file\(not dir\) is allowed in the zipfile$"):
            hub.load_state_dict_from_url(f"{site.url}/{name}")


def test_what_is_no_checkpoint(site, cache):
    damaged = bytearray(zipped({"inner.weft": b"content"}))
    damaged[40] ^= 255
    site.pages |= {"/page.weft": b"<html>", "/damaged.zip": bytes(damaged)}
    with pytest.raises(CheckpointError, match=r"page\.weft: "):
        hub.load_state_dict_from_url(f"{site.url}/page.weft")
    with pytest.raises(CheckpointError, match=r"^cannot load .*damaged\.zip: it is damaged \(Bad CRC-32"):
        hub.load_state_dict_from_url(f"{site.url}/damaged.zip")


def test_a_url_without_a_file(cache):
    with pytest.raises(ValueRangeError, match=r"^the URL 'http://x/' names no file; give a file_name$"):
        hub.load_state_dict_from_url("http://x/")
    assert left(cache) == []


def test_the_old_name_of_the_folder_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_MODEL_ZOO", "/old")
    (tmp_path / "x.weft").write_bytes(saved([1]))
    with pytest.warns(UserWarning, match=r"^TORCH_MODEL_ZOO is deprecated, please use env TORCH_HOME instead$"):
        assert hub.load_state_dict_from_url((tmp_path / "x.weft").as_uri()) == [1]
