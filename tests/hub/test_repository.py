"""Repositories: in a folder, and on a server that is laid out as GitHub is."""

from __future__ import annotations

import io
import json
import random
import shutil
import struct
import sys
import time
import zipfile
from contextlib import suppress

import pytest

from tests.hub.site import left, zipped
from tests.mutating import damage
from weft import hub
from weft.errors import DownloadError, HubError, ValueRangeError
from weft.hub import _repository
from weft.hub._archive_limits import excess
from weft.hub._repository import _extract

HUBCONF = '''
dependencies = ["json"]
from helper import scaled as _scaled
import weft as torch

def net(width, scale=1):
    """A layer."""
    return _scaled(torch.nn.Linear(width, 1), scale)

class Tokens:
    pass

_hidden = print
number = 3
'''
HELPER = "def scaled(layer, scale):\n    layer.scale = scale\n    return layer\n"
REPOSITORY = {"hubconf.py": HUBCONF, "helper.py": HELPER}


# --- local repositories ---


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "local"
    path.mkdir()
    for name, text in REPOSITORY.items():
        (path / name).write_text(text)
    return path


def test_a_local_repository_is_run(folder):
    before = list(sys.path)
    net = hub.load(str(folder), "net", 4, source="LOCAL", scale=3)
    assert (net.weight.shape, net.scale) == ((1, 4), 3)
    assert sys.path == before


def test_what_a_local_repository_lacks(folder, tmp_path):
    def load(model="net"):
        return hub.load(str(folder), model, source="local")

    for model in ("nothing", "number"):
        with pytest.raises(HubError, match=rf"^Cannot find callable {model} in hubconf$"):
            load(model)
    with pytest.raises(ValueRangeError, match=r"^Invalid input: model should be a string of function name$"):
        load(3)
    (folder / "hubconf.py").write_text("dependencies = ['os', 'no_such', 'json.tool', 'no.such']")
    with pytest.raises(RuntimeError, match=r"^Missing dependencies: no_such, no\.such$"):
        load()
    (folder / "hubconf.py").write_text("def net(): raise KeyError('inside')")
    with pytest.raises(KeyError, match="inside"):
        load()
    with pytest.raises(FileNotFoundError, match=r"hubconf\.py"):
        hub.load(str(tmp_path / "none"), "net", source="local")
    with pytest.raises(ValueRangeError, match=r'^Unknown source: "web". Allowed values: "github" \| "local".$'):
        hub.load(str(folder), "net", source="web")
    assert not [path for path in sys.path if path.startswith(str(tmp_path))]


# --- repositories on GitHub ---


@pytest.fixture
def github(site, monkeypatch):
    """`me/nets` with the branches `main` and `a/b`, and the tag `v1`, which is also a branch."""
    monkeypatch.setattr(_repository, "_GITHUB", site.url)
    monkeypatch.setattr(_repository, "_GITHUB_API", f"{site.url}/api")
    archive = zipped({"me-nets-0123456/": "", **{f"me-nets-0123456/{k}": v for k, v in REPOSITORY.items()}})
    branches = [{"name": name, "commit": {"sha": "f00d" * 10}} for name in ("main", "a/b")]
    tags = [{"name": "v1", "commit": {"sha": "beef" * 10}}]
    for kind, found in {"branches": branches, "tags": tags}.items():
        site.pages[f"/api/repos/me/nets/{kind}?per_page=100&page=1"] = json.dumps(found).encode()
        site.pages[f"/api/repos/me/nets/{kind}?per_page=100&page=2"] = b"[]"
    site.pages |= {
        "/me/nets/tree/main/": b"<html>",
        "/archive.zip": archive,
        "/me/nets/zipball/a/b": archive,
        "/me/nets/zipball/main": (302, {"Location": "/archive.zip"}, b""),
        "/me/nets/zipball/v1": (300, {}, b""),
        "/me/nets/zipball/refs/heads/v1": archive,
        "/me/nets/zipball/beef": archive,
    }
    return site


def test_a_repository_is_fetched_once(github, cache, capsys):
    net = hub.load("me/nets", "net", 2, trust_repo=True)
    assert net.weight.shape == (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f'Downloading: "{github.url}/me/nets/zipball/main" to {cache}')
    assert err.endswith("/main.zip\n")
    assert left(cache) == ["me_nets_main", "trusted_list"]
    assert (cache / "trusted_list").read_text() == "me/nets\n"
    asked = len(github.asked)

    assert hub.list("me/nets:main") == ["Tokens", "net"]
    assert hub.help("me/nets:main", "net") == "A layer."
    assert capsys.readouterr().err == f"Using cache found in {cache}/me_nets_main\n" * 2
    hub.load("me/nets:main", "net", 2, verbose=False)
    assert capsys.readouterr() == ("", "")
    assert len(github.asked) == asked

    (cache / "me_nets_main" / "stale").touch()
    hub.list("me/nets:main", force_reload=True)
    assert left(cache / "me_nets_main") == sorted(REPOSITORY)
    assert left(cache) == ["me_nets_main", "trusted_list"]


def test_refs(github, cache):
    hub.list("me/nets:a/b", trust_repo=True)
    hub.list("me/nets:beef")
    with pytest.warns(UserWarning, match=r"^The ref v1 is ambiguous\. Perhaps it is both a tag and a branch"):
        hub.list("me/nets:v1")
    with pytest.raises(ValueRangeError, match=rf"^Cannot find v2 in {github.url}/me/nets\. If it's a commit from"):
        hub.list("me/nets:v2")
    with pytest.raises(DownloadError, match=r"^HTTP Error 404"):
        hub.list("me/nets:v2", skip_validation=True)
    assert left(cache) == ["me_nets_a%2Fb", "me_nets_beef", "me_nets_v1", "trusted_list"]


@pytest.mark.parametrize("text", ["nets", "me/nets/tree", "me/", "me/nets:"])
def test_what_names_no_repository(text):
    with pytest.raises(ValueRangeError, match=r"^expected a repository as 'owner/name' or 'owner/name:ref', got"):
        hub.load(text, "net")


def test_the_default_branch(github, cache, closed_port, monkeypatch):
    github.pages["/me/nets/zipball/master"] = github.pages["/archive.zip"]
    github.pages["/me/nets/tree/main/"] = (404, {}, b"")
    hub.list("me/nets", skip_validation=True, trust_repo=True)
    assert left(cache) == ["me_nets_master", "trusted_list"]
    github.pages["/me/nets/tree/main/"] = (503, {}, b"")
    with pytest.raises(DownloadError, match=r"^HTTP Error 503: Service Unavailable"):
        hub.list("me/nets")
    monkeypatch.setattr(_repository, "_GITHUB", closed_port)
    assert hub.list("me/nets") == ["Tokens", "net"]
    with pytest.raises(HubError, match=r"^It looks like there is no internet connection and the repo could not be"):
        hub.list("me/other")


def test_a_token_is_tried_first(github, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    hub.list("me/nets:main", trust_repo=True)
    api = [headers.get("Authorization") for path, headers in github.asked if path.startswith("/api")]
    assert api == ["token secret"]
    github.pages["/api/repos/me/nets/branches?per_page=100&page=1"] = (401, {}, b"")
    with pytest.raises(DownloadError, match=r"^HTTP Error 401"):
        hub.list("me/nets:main", force_reload=True)
    assert [headers.get("Authorization") for _, headers in github.asked[-2:]] == ["token secret", None]


# --- trust ---


@pytest.fixture
def answer(monkeypatch):
    """Set the user's answers; `asked` has the questions."""
    asked = []

    def use(*answers):
        given = iter(answers)
        monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or next(given))
        return asked

    return use


def test_the_user_is_asked_about_an_unknown_repository(github, cache, answer):
    asked = answer("n", "", "perhaps", "Yes")
    for _ in range(2):
        with pytest.raises(HubError, match=r"^Untrusted repository\.$"):
            hub.list("me/nets:main")
    with pytest.raises(ValueRangeError, match=r"^Unrecognized response perhaps\.$"):
        hub.list("me/nets:main")
    assert left(cache) == ["trusted_list"]
    assert hub.list("me/nets:main") == ["Tokens", "net"]
    hub.list("me/nets:main")
    assert len(asked) == 4
    assert asked[0] == (
        "The repository me/nets does not belong to the list of trusted repositories and as such cannot be downloaded. "
        "Do you trust this repository and wish to add it to the trusted list of repositories (y/N)?"
    )


def test_false_always_asks(github, cache, answer, capsys):
    asked = answer("y", "y")
    hub.list("me/nets:main", trust_repo=False)
    assert capsys.readouterr().out == ""
    hub.list("me/nets:main", trust_repo=False)
    assert capsys.readouterr().out == "The repository is already trusted.\n"
    assert len(asked) == 2
    assert (cache / "trusted_list").read_text() == "me/nets\n"


def test_who_is_trusted_without_a_question(github, cache, answer):
    asked = answer()
    (cache / "me_nets_main").mkdir(parents=True)  # fetched before there was a list
    with pytest.raises(FileNotFoundError):
        hub.list("me/nets:main")
    with pytest.raises(DownloadError):
        hub.list("pytorch/vision:main", skip_validation=True)
    assert asked == []
    with pytest.raises(ValueRangeError, match=r"^trust_repo is True, False or 'check', got 'yes'$"):
        hub.list("me/nets:main", trust_repo="yes")


@pytest.mark.parametrize("other", ["me_nets/x:main", "me/nets_x_main:y", "me/nets:x_main"])
def test_trust_is_in_a_pair_of_owner_and_name(other, github, cache, answer):
    """Not in what the two look like side by side."""
    kind = "/api/repos/me/nets_x"
    github.pages |= {
        f"{kind}/{path[len('/api/repos/me/nets/') :]}": page
        for path, page in github.pages.items()
        if path.startswith("/api/repos/me/nets/")
    }
    github.pages["/me/nets_x/zipball/main"] = github.pages["/archive.zip"]
    asked = answer("n")
    assert hub.list("me/nets_x:main", trust_repo=True) == ["Tokens", "net"]
    with pytest.raises(HubError, match=r"^Untrusted repository\.$"):
        hub.list(other)
    assert len(asked) == 1
    assert hub.list("me/nets_x:main") == ["Tokens", "net"]
    assert left(cache) == ["me_nets%5Fx_main", "trusted_list"]


# --- archives ---


def packed(size, count=1):
    """An archive that claims, truthfully, to unpack to much."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(count):
            archive.writestr(f"a/{number}", bytes(size))
    return file.getvalue()


def claiming(size):
    """An archive whose directory says that a member has so many bytes."""
    content = bytearray(zipped({"a/x": bytes(100)}))
    entry = content.rindex(b"PK\x01\x02")
    struct.pack_into("<I", content, entry + 24, size)
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (lambda: packed(0, 100_001), r"it has 100001 members, and may have 100000$"),
        (lambda: packed((1 << 26) + 1), r"its \d+ bytes would unpack to 67108865, more than 100 times as many$"),
        (lambda: claiming((1 << 32) - 2), r"its \d+ bytes would unpack to 4294967294, more than 100 times as many$"),
    ],
)
def test_archives_that_would_fill_the_disk_are_not_unpacked(content, text, github, cache):
    github.pages["/archive.zip"] = content()
    with pytest.raises(HubError, match=f"^the archive of the repository is not unpacked: {text}"):
        hub.list("me/nets:main", trust_repo=True)
    assert left(cache) == ["trusted_list"]


def test_the_sum_of_what_is_unpacked_has_a_limit():
    listed = [zipfile.ZipInfo(str(number)) for number in range(3)]
    for each in listed:
        each.file_size = 1 << 31
    assert excess(listed, 1 << 30) is None
    assert excess(listed, 1 << 30, 1 << 32) == "it would unpack to 6442450944 bytes, and may to 4294967296"


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"/etc/x": ""}, r"^Archive entry has absolute path: /etc/x$"),
        ({"C:\\x": ""}, r"^Archive entry has absolute path: C:"),
        ({"a/ok": "", "a/../../x": ""}, r"^Archive entry contains directory traversal: a/\.\./\.\./x$"),
        ({"a/x": "", "b/x": ""}, r"^expected an archive of one folder, got one with 2$"),
        ({}, r"^expected an archive of one folder, got one with 0$"),
        (None, r"^what was downloaded is no zip file, or is damaged \("),
    ],
)
def test_archives_that_are_not_unpacked(files, text, github, cache, tmp_path):
    hub.list("me/nets:main", trust_repo=True)
    github.pages["/archive.zip"] = b"<html>" if files is None else zipped(files)
    with pytest.raises((HubError, ValueRangeError), match=text):
        hub.list("me/nets:main", force_reload=True)
    assert left(cache) == ["me_nets_main", "trusted_list"]
    assert hub.list("me/nets:main") == ["Tokens", "net"]
    assert left(tmp_path) == ["cache"]


def deflated(files):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return file.getvalue()


@pytest.mark.parametrize("seeds", [range(300), pytest.param(range(300, 30_000), marks=pytest.mark.soak)], ids=len)
@pytest.mark.parametrize("archive", [zipped, deflated])
def test_damaged_archives(archive, seeds, tmp_path):
    """They are unpacked into their folder, or refused with the documented errors, and quickly."""
    content = archive({"a/hubconf.py": "x = 1\n" * 50, "a/b/c.py": "y"})
    for seed in seeds:
        path = tmp_path / "archive.zip"
        path.write_bytes(damage(content, random.Random(seed)))
        start = time.process_time()
        with suppress(HubError, ValueRangeError):
            _extract(str(path), tmp_path / "fresh")
        assert time.process_time() - start < 2, seed
        assert left(tmp_path) in (["archive.zip"], ["archive.zip", "fresh"])
        shutil.rmtree(tmp_path / "fresh", ignore_errors=True)
