"""Repositories on GitHub: parsing their names, trust, and copies in the cache."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import struct
import sys
import warnings
import zipfile
import zlib
from dataclasses import dataclass, replace
from errno import EINVAL
from itertools import count
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from weft._base.files import doubt
from weft._base.temporary import remove_folder, temporary_folder
from weft._base.types import Json
from weft.errors import DownloadError, HubError, ValueRangeError, WeftError
from weft.hub._archive_limits import excess
from weft.hub._download import download_url_to_file, read
from weft.hub._folder import get_dir

Trust = bool | Literal["check"]
ENV_GITHUB_TOKEN = "GITHUB_TOKEN"

_GITHUB = "https://github.com"
_GITHUB_API = "https://api.github.com"
_NAME = re.compile(r"(?P<owner>[^/:]+)/(?P<name>[^/:]+)(?::(?P<ref>[^:]+))?")
_TRUSTED_OWNERS = frozenset({"facebookresearch", "facebookincubator", "pytorch", "fairinternal"})
_MOST_UNPACKED = 1 << 32  # bytes of an unpacked repository
_AMBIGUOUS = 300  # the HTTP status for a ref that is both a branch and a tag


@dataclass(frozen=True)
class _Repository:
    owner: str
    name: str
    ref: str

    @property
    def url(self) -> str:
        return f"{_GITHUB}/{self.owner}/{self.name}"

    @property
    def list_line(self) -> str:
        """The repository's line in the list of trusted repositories."""
        return f"{self.owner}/{self.name}"

    @property
    def folder(self) -> Path:
        """The folder in the cache. It is unique for a repository and ref: `a/b_c` and `a_b/c` have different ones."""
        parts = (quote(part, safe="").replace("_", "%5F") for part in (self.owner, self.name, self.ref))
        return Path(get_dir(), "_".join(parts))


def cached(github: str, *, force_reload: bool, trust_repo: Trust, verbose: bool, skip_validation: bool) -> str:
    """The folder with a copy of the repository, which is downloaded unless it is cached."""
    os.makedirs(get_dir(), exist_ok=True)
    repository = _parse(github)
    _require_own(repository)
    _check_trust(repository, trust_repo)
    if repository.folder.exists() and not force_reload:
        if verbose:
            print(f"Using cache found in {repository.folder}", file=sys.stderr)
    else:
        if not skip_validation:
            _check_ref(repository)
        _install(repository)
    return str(repository.folder)


# --- which repository -------------------------------------------------------------------------------------------


def _parse(github: str) -> _Repository:
    match = _NAME.fullmatch(github)
    if match is None:
        raise ValueRangeError(f"expected a repository as 'owner/name' or 'owner/name:ref', got {github!r}")
    owner, name, ref = match["owner"], match["name"], match["ref"]
    return _Repository(owner, name, ref) if ref else _on_default_branch(_Repository(owner, name, "main"))


def _on_default_branch(main: _Repository) -> _Repository:
    """`main` if there is such a branch, else `master`; without a network, the one that is cached."""
    master = replace(main, ref="master")
    try:
        read(f"{main.url}/tree/main/", {})
        return main
    except DownloadError as error:
        if error.code == 404:
            return master
        if error.code is not None:
            raise
        for repository in (main, master):
            if repository.folder.exists():
                return repository
        raise HubError(
            f"It looks like there is no internet connection and the repo could not be found in the cache ({get_dir()})"
        ) from error


def _check_ref(repository: _Repository) -> None:
    """Raise unless the ref is a branch or tag of the repository. GitHub also serves the commits of its forks."""
    for kind in ("branches", "tags"):
        pages = f"{_GITHUB_API}/repos/{repository.owner}/{repository.name}/{kind}?per_page=100"
        for page in count(1):
            entries = _ask(f"{pages}&page={page}")
            if any(e["name"] == repository.ref or e["commit"]["sha"].startswith(repository.ref) for e in entries):
                return
            if not entries:
                break
    raise ValueRangeError(
        f"Cannot find {repository.ref} in {repository.url}. If it's a commit from a forked repo, please call "
        "hub.load() with forked repo directly."
    )


def _ask(url: str) -> list[dict[str, Json]]:
    headers = {"Accept": "application/vnd.github.v3+json"}
    token = os.environ.get(ENV_GITHUB_TOKEN)
    if token is not None:
        try:
            return json.loads(read(url, {**headers, "Authorization": f"token {token}"}))
        except DownloadError as error:
            if error.code is None:
                raise
    return json.loads(read(url, headers))  # with a token, a request may be refused that is allowed without


# --- trust ------------------------------------------------------------------------------------------------------


def _check_trust(repository: _Repository, trust_repo: Trust) -> None:
    """Ask the user if necessary, and add the repository to the list of trusted ones."""
    if trust_repo not in (True, False, "check"):
        raise ValueRangeError(f"trust_repo is True, False or 'check', got {trust_repo!r}")
    listing = Path(get_dir(), "trusted_list")
    listing.touch()
    trusted = (
        repository.list_line in (line.strip() for line in listing.read_text().splitlines())
        or repository.folder.is_dir()
        or repository.owner in _TRUSTED_OWNERS
    )
    if trust_repo is False or (trust_repo == "check" and not trusted):
        _ask_for_trust(repository, trusted)
    if not trusted:
        with listing.open("a") as file:
            file.write(f"{repository.list_line}\n")


def _require_own(repository: _Repository) -> None:
    """Refuse a cache in which anybody could put code, and say that it is trusted; groups and root may share one."""
    for path in (Path(get_dir()), Path(get_dir(), "trusted_list"), repository.folder):
        if path.exists() and (reason := doubt(path.stat(), root_too=True, writers=stat.S_IWOTH)):
            raise HubError(
                f"{path} {reason}, so its code could be anybody's; set another folder, by TORCH_HOME or hub.set_dir"
            )


def _ask_for_trust(repository: _Repository, trusted: bool) -> None:
    answer = input(
        f"The repository {repository.list_line} does not belong to the list of trusted repositories and as such cannot "
        "be downloaded. Do you trust this repository and wish to add it to the trusted list of repositories (y/N)?"
    )
    if answer.lower() in ("n", "no", ""):
        raise HubError("Untrusted repository.")
    if answer.lower() not in ("y", "yes"):
        raise ValueRangeError(f"Unrecognized response {answer}.")
    if trusted:
        print("The repository is already trusted.")


# --- the copy ---------------------------------------------------------------------------------------------------


def _install(repository: _Repository) -> None:
    """Put the repository into the cache, in place of an old copy, completely or not at all."""
    work = temporary_folder(".part-", get_dir())
    try:
        archive = os.path.join(work, f"{repository.ref.replace('/', '_')}.zip")
        _download(repository, archive)
        fresh = _extract(archive, Path(work, "fresh"))
        if repository.folder.exists():
            shutil.move(repository.folder, Path(work, "old"))
        os.replace(fresh, repository.folder)
    finally:
        remove_folder(work)


def _download(repository: _Repository, archive: str) -> None:
    url = f"{repository.url}/zipball/{repository.ref}"
    print(f'Downloading: "{url}" to {archive}', file=sys.stderr)
    try:
        download_url_to_file(url, archive, progress=False)
    except DownloadError as error:
        if error.code != _AMBIGUOUS:
            raise
        warnings.warn(
            f"The ref {repository.ref} is ambiguous. Perhaps it is both a tag and a branch in the repo? Torchhub will "
            "now assume that it's a branch. You can disambiguate tags and branches by explicitly passing "
            "refs/heads/branch_name or refs/tags/tag_name as the ref. That might require using skip_validation=True.",
            stacklevel=2,
        )
        download_url_to_file(f"{repository.url}/zipball/refs/heads/{repository.ref}", archive, progress=False)


_DAMAGE = (zipfile.BadZipFile, EOFError, RuntimeError, ValueError, LookupError, struct.error, zlib.error)
"""What `zipfile` raises for a file that is damaged."""


def _extract(archive: str, into: Path) -> Path:
    """Unpack an archive that contains one folder; returns its path. Nothing is written if a member's path is unsafe."""
    try:
        with zipfile.ZipFile(archive) as opened:
            if much := excess(opened.infolist(), os.path.getsize(archive), _MOST_UNPACKED):
                raise HubError(f"the archive of the repository is not unpacked: {much}")
            names = [member.filename for member in opened.infolist()]
            for name in names:
                _check_member(name)
            tops = {name.split("/")[0] for name in names}
            if len(tops) != 1:
                raise HubError(f"expected an archive of one folder, got one with {len(tops)}")
            opened.extractall(into)
            return into / tops.pop()
    except WeftError:
        raise
    except (*_DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno != EINVAL:  # of the disk, and not of a place before the file
            raise
        raise HubError(f"what was downloaded is no zip file, or is damaged ({error})") from error


def _check_member(name: str) -> None:
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        raise ValueRangeError(f"Archive entry has absolute path: {name}")
    if ".." in re.split(r"[/\\]", name):
        raise ValueRangeError(f"Archive entry contains directory traversal: {name}")
