"""Downloads. A file is replaced as a whole, or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pooch import HTTPDownloader
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from weft._base.files import atomic_write
from weft.errors import CheckpointError, DownloadError, ValueRangeError

READ_DATA_CHUNK = 128 * 1024
# Without compression, a body has as many bytes as its header says.
_HEADERS = {"User-Agent": "weft.hub", "Accept-Encoding": "identity"}


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Download an `http`, `https` or `file` URL into the file `dst`.

    The file is replaced in one step when the download is complete; a failed or interrupted download leaves it as it
    was. If `hash_prefix` is given, the SHA256 digest must start with it, else `CheckpointError` is raised.
    `DownloadError` gives the reason of a failed download. With `progress`, a bar is shown if stderr is a terminal.
    """
    with atomic_write(Path(os.path.expanduser(dst))) as file:
        _fetch(url, file, {}, progress=progress)
        if hash_prefix is not None:
            file.seek(0)
            check_digest(file, hash_prefix)


def check_digest(file: BufferedIOBase, prefix: str, of: str = "") -> None:
    """Raise `CheckpointError` unless the SHA256 digest of the rest of a file starts with the prefix."""
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if not digest.startswith(prefix):
        raise CheckpointError(f'invalid hash value{of} (expected "{prefix}", got "{digest}")')


def read(url: str, headers: Mapping[str, str]) -> bytes:
    """The content of a URL, for small contents."""
    file = io.BytesIO()
    _fetch(url, file, headers, progress=False)
    return file.getvalue()


def _fetch(url: str, file: IO[bytes], headers: Mapping[str, str], *, progress: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme == "file":
        try:
            with open(url2pathname(parts.path), "rb") as source:
                shutil.copyfileobj(source, file, READ_DATA_CHUNK)
        except OSError as error:
            raise DownloadError(f"cannot download {url}: {error}") from error
    elif parts.scheme in ("http", "https"):
        with _bar(os.path.basename(parts.path), visible=progress and sys.stderr.isatty()) as bar:
            _request(url, file, headers, bar)
    else:
        raise ValueRangeError(f"unknown url type: {url!r}; use an http, https or file URL")


def _request(url: str, file: IO[bytes], headers: Mapping[str, str], bar: Any) -> None:
    answers: list[Any] = []  # includes redirections

    def note(answer: object, **_: object) -> None:
        answers.append(answer)

    get = HTTPDownloader(bar, READ_DATA_CHUNK, headers={**_HEADERS, **headers}, hooks={"response": note})
    try:
        get(url, file, None)
        _check_whole(url, file, answers[-1])
    except DownloadError:
        raise
    except OSError as error:  # the base of all exceptions of requests
        if answers and answers[-1].status_code >= 300:
            raise _refusal(url, answers[-1]) from error
        raise DownloadError(f"cannot download {url}: {error}") from error
    finally:
        for answer in answers:
            answer.close()


def _check_whole(url: str, file: IO[bytes], answer: Any) -> None:
    if answer.status_code >= 300:  # for instance 300, which requests does not treat as an error
        raise _refusal(url, answer)
    length = answer.headers.get("Content-Length")
    if length is not None and "Content-Encoding" not in answer.headers and file.tell() != int(length):
        raise DownloadError(f"cannot download {url}: {file.tell()} of {length} bytes came before the connection ended")


def _refusal(url: str, answer: Any) -> DownloadError:
    return DownloadError(f"HTTP Error {answer.status_code}: {answer.reason} ({url})", answer.status_code)


class _Bar:
    """A progress bar on a terminal, which pooch updates."""

    def __init__(self, display: Progress, name: str) -> None:
        self._display = display
        self._task = display.add_task(name, total=None)
        self._total: int | None = None

    @property
    def total(self) -> int | None:
        """Bytes in total, or None if the server does not say."""
        return self._total

    @total.setter
    def total(self, size: int) -> None:
        self._total = size or None
        self._display.update(self._task, total=self._total)

    def update(self, size: int) -> None:
        """Add received bytes."""
        self._display.update(self._task, advance=size)

    def reset(self) -> None:
        """Start at 0 again: pooch counts whole chunks, and then corrects the count once it knows the sum."""
        if self._total is not None:
            self._display.update(self._task, completed=0)

    def close(self) -> None:
        """Does nothing: `_bar` closes the display."""


@contextmanager
def _bar(name: str, *, visible: bool) -> Iterator[_Bar | bool]:
    if not visible:
        yield False
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as display:
        yield _Bar(display, name)
