"""Where the output and the error files of a group of processes go."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from weft._base.temporary import remove_folder, temporary_folder
from weft.distributed.elastic.multiprocessing._std import Std, checked, to_map
from weft.errors import DistError

_log = logging.getLogger(__name__)
_CONSOLE = ""
Streams = Std | Mapping[int, Std]


@dataclass
class LogsDest:
    """Paths by local rank; an empty path is the console. The `tee_*` files are also shown on the console.

    `temporary` is a folder that can be removed when the processes have ended.
    """

    stdouts: dict[int, str] = field(default_factory=dict[int, str])
    stderrs: dict[int, str] = field(default_factory=dict[int, str])
    tee_stdouts: dict[int, str] = field(default_factory=dict[int, str])
    tee_stderrs: dict[int, str] = field(default_factory=dict[int, str])
    error_files: dict[int, str] = field(default_factory=dict[int, str])
    filtered_stdout: str = ""
    filtered_stderr: str = ""
    temporary: str = ""


class LogsSpecs(ABC):
    """Which streams are redirected to files below `log_dir`, and which are also shown (`tee`).

    With `local_ranks_filter`, only those local ranks are shown on the console.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Streams = Std.NONE,
        tee: Streams = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        self._root_log_dir = log_dir
        self._redirects = checked(redirects, "redirects")
        self._tee = checked(tee, "tee")
        self._local_ranks_filter = local_ranks_filter

    @abstractmethod
    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Create the folders, set `TORCHELASTIC_ERROR_FILE` in the environments, and return all paths."""

    @property
    @abstractmethod
    def root_log_dir(self) -> str:
        """The folder that holds all logs."""

    def _lay_out(self, folder: str, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Create a folder for each rank below an existing one; returns the paths."""
        redirects, tee = to_map(self._redirects, len(envs)), to_map(self._tee, len(envs))
        out = LogsDest(
            filtered_stdout=os.path.join(folder, "filtered_stdout.log"),
            filtered_stderr=os.path.join(folder, "filtered_stderr.log"),
        )
        for rank in range(len(envs)):
            own = os.path.join(folder, str(rank))
            os.mkdir(own)
            is_tailed = not self._local_ranks_filter or rank in self._local_ranks_filter
            for std, name, files, teed in (
                (Std.OUT, "stdout.log", out.stdouts, out.tee_stdouts),
                (Std.ERR, "stderr.log", out.stderrs, out.tee_stderrs),
            ):
                to_file = std in redirects[rank] | tee[rank]
                files[rank] = os.path.join(own, name) if to_file else _CONSOLE if is_tailed else os.devnull
                if std in tee[rank] and is_tailed:
                    teed[rank] = files[rank]
            out.error_files[rank] = envs[rank]["TORCHELASTIC_ERROR_FILE"] = os.path.join(own, "error.json")
        return out


class DefaultLogsSpecs(LogsSpecs):
    """Logs at `<log_dir>/<run id>_<unique>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json}`.

    `log_dir` is created if necessary. None creates a temporary folder, which is removed when the interpreter ends,
    unless streams are redirected to it. With `os.devnull` there are no files at all.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Streams = Std.NONE,
        tee: Streams = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        super().__init__(None, redirects, tee, local_ranks_filter)
        self._temporary = ""
        self._unasked = not log_dir and bool(redirects or tee)  # the user must be told where the output is
        if not log_dir:
            if self._unasked:
                log_dir = tempfile.mkdtemp(prefix="torchelastic_")
            else:  # it has only error files, which the agent will have read
                self._temporary = _temporary_root(os.getpid())
                log_dir = tempfile.mkdtemp(dir=self._temporary)
        elif log_dir != os.devnull:
            if os.path.isfile(log_dir):
                raise NotADirectoryError(f"log_dir: {log_dir} is a file")
            os.makedirs(log_dir, exist_ok=True)
        self._root_log_dir = log_dir
        self._run_log_dir: str | None = None

    @property
    def root_log_dir(self) -> str:
        """The folder that holds all logs."""
        return str(self._root_log_dir)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Create the folders of the next attempt; its number and the run id are read from the environments."""
        if self._root_log_dir == os.devnull:
            return _nowhere(envs)
        env = envs.get(0, {})
        if not self._run_log_dir:
            run_id = env.get("TORCHELASTIC_RUN_ID", "test_run_id").replace(os.sep, "_")
            self._run_log_dir = tempfile.mkdtemp(prefix=f"{run_id}_", dir=self._root_log_dir)
            level = logging.WARNING if self._unasked else logging.INFO
            _log.log(level, "log directory set to: %s", self._run_log_dir)
        attempt = os.path.join(self._run_log_dir, f"attempt_{env.get('TORCHELASTIC_RESTART_COUNT', '0')}")
        shutil.rmtree(attempt, ignore_errors=True)
        os.makedirs(attempt)
        return replace(self._lay_out(attempt, envs), temporary=self._temporary)

    def __repr__(self) -> str:
        return (
            f"DefaultLogsSpecs(root_log_dir={self._root_log_dir}, redirects={self._redirects}, "
            f"tee={self._tee}, local_ranks_filter={self._local_ranks_filter})"
        )

    def _settings(self) -> tuple[object, ...]:
        return self._root_log_dir, self._redirects, self._tee, self._local_ranks_filter

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DefaultLogsSpecs) and self._settings() == other._settings()

    __hash__ = None  # type: ignore[assignment]


class FolderLogs(LogsSpecs):
    """Logs at `<log_dir>/<local rank>/`, in a folder that exists and is empty."""

    def __init__(self, log_dir: str, redirects: Streams = Std.NONE, tee: Streams = Std.NONE) -> None:
        if not os.path.exists(log_dir):
            raise FileNotFoundError(f"log_dir: {log_dir} does not exist, please create it first")
        if not os.path.isdir(log_dir):
            raise NotADirectoryError(f"log_dir: {log_dir} is a file")
        if os.listdir(log_dir):
            raise DistError(f"log_dir: {log_dir} is not empty, please provide an empty log_dir")
        super().__init__(log_dir, redirects, tee)

    @property
    def root_log_dir(self) -> str:
        """The folder that holds all logs."""
        return str(self._root_log_dir)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Create a folder for each rank."""
        return self._lay_out(self.root_log_dir, envs)


def _nowhere(envs: dict[int, dict[str, str]]) -> LogsDest:
    """Show everything on the console, without error files."""
    for env in envs.values():
        env["TORCHELASTIC_ERROR_FILE"] = ""
    console, none = dict.fromkeys(envs, _CONSOLE), dict.fromkeys(envs, os.devnull)
    return LogsDest(console, dict(console), {}, {}, none, os.devnull, os.devnull)


@cache
def _temporary_root(owner: int) -> str:
    """The folder of all temporary files of this process."""
    folder = temporary_folder("torchelastic_agent_")
    atexit.register(_remove, folder, owner)
    return folder


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        remove_folder(folder)
