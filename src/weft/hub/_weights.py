"""Weights from a URL, cached in a folder."""

from __future__ import annotations

import io
import os
import re
import sys
import warnings
import zipfile
import zlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from weft._base.types import SavedState
from weft.errors import CheckpointError, ValueRangeError
from weft.hub._archive_limits import excess
from weft.hub._download import check_digest, download_url_to_file
from weft.hub._folder import get_dir
from weft.serialization import load

if TYPE_CHECKING:
    from weft._checkpoint.map_location import MapLocation

HASH_REGEX = re.compile(r"-([a-f0-9]{8,64})\.")  # `bfd8deac` of `resnet18-bfd8deac.weft`


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: MapLocation = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> SavedState:
    """`weft.load` of the file at a URL, which is downloaded unless it is in `model_dir` already.

    `model_dir` defaults to the folder `checkpoints` in `get_dir()`, and `file_name` to the name in the URL. With
    `check_hash` the name must contain the start of the SHA256 digest, as `net-5c106cde.weft` does; the file is checked
    whether it is new or cached, and `CheckpointError` is raised if it differs. A zip file that contains one checkpoint
    is unpacked. For `map_location` and `weights_only`, which is True by default here, see `weft.load`.
    """
    if os.environ.get("TORCH_MODEL_ZOO"):
        warnings.warn("TORCH_MODEL_ZOO is deprecated, please use env TORCH_HOME instead", stacklevel=2)
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    name = os.path.basename(urlsplit(url).path) if file_name is None else file_name
    if not name:
        raise ValueRangeError(f"the URL {url!r} names no file; give a file_name")
    expected = _hash_in(name) if check_hash else None
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        print(f'Downloading: "{url}" to {path}', file=sys.stderr)
        download_url_to_file(url, path, expected, progress=progress)
    elif expected is not None:
        with open(path, "rb") as file:
            check_digest(file, expected, of=f" of {path}, which an earlier download has left; remove it")
    return load(_unpacked(path), map_location, weights_only=weights_only)


def _hash_in(name: str) -> str:
    match = HASH_REGEX.search(name)
    if match is None:
        raise ValueRangeError(
            f"check_hash=True takes a name with at least 8 digits of the SHA256 digest, such as net-5c106cde.weft, got "
            f"{name!r}; give such a file_name, or leave check_hash out"
        )
    return match[1]


def _unpacked(path: str) -> str | io.BytesIO:
    """The path, or the content of the one file in a zip file that is not a checkpoint itself."""
    if not zipfile.is_zipfile(path):
        return path
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if any(member.filename == "weft.json" or member.filename.endswith("/data.pkl") for member in members):
                return path
            # Before anything is unpacked: a small archive can hold more than the memory.
            if much := excess(members, os.path.getsize(path)):
                raise CheckpointError(f"cannot load {path}: {much}")
            if len(members) == 1 and not members[0].is_dir():
                return io.BytesIO(archive.read(members[0]))
    except (zipfile.BadZipFile, EOFError, NotImplementedError, zlib.error) as error:
        raise CheckpointError(f"cannot load {path}: it is damaged ({error})") from error
    raise CheckpointError("Only one file(not dir) is allowed in the zipfile")
