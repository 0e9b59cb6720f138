"""Starting copies of a function or a program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from multiprocessing import get_all_start_methods

from weft._base.types import AnyCallable, Args, Kwargs
from weft.distributed.elastic.multiprocessing._binary import SubprocessContext
from weft.distributed.elastic.multiprocessing._context import PContext
from weft.distributed.elastic.multiprocessing._function import MultiprocessContext
from weft.distributed.elastic.multiprocessing._logs import DefaultLogsSpecs, FolderLogs, LogsSpecs, Streams
from weft.distributed.elastic.multiprocessing._std import Std, require_all_ranks
from weft.errors import ArgumentError, ValueRangeError


def start_processes(
    name: str,
    entrypoint: AnyCallable | str,
    args: dict[int, Args],
    envs: dict[int, dict[str, str]],
    logs_specs: LogsSpecs | str | os.PathLike[str] | None = None,
    log_line_prefixes: Mapping[int, str] | None = None,
    start_method: str = "spawn",
    numa_options: None = None,
    duplicate_stdout_filters: list[str] | None = None,
    duplicate_stderr_filters: list[str] | None = None,
    *,
    log_dir: str | os.PathLike[str] | None = None,
    redirects: Streams = Std.NONE,
    tee: Streams = Std.NONE,
) -> PContext:
    """Start one copy of a function or a program for each entry of `args`.

    `args` and `envs` are by local rank, with the same keys 0, 1, …; an environment is added to that of this process. A
    string as `entrypoint` is a program, whose arguments are converted to text.

    Output is configured either by `logs_specs`, or by an existing, empty `log_dir` with `redirects` (to files) and
    `tee` (to files and to the console). On the console each line begins with `[{name}{rank}]:`, or with the rank's
    entry of `log_line_prefixes`. Teed lines that contain any of the filters are also written to `filtered_stdout.log`
    and `filtered_stderr.log`.

    `start_method` is for functions. A script must start them below `if __name__ == "__main__":`, since their processes
    import it. If a copy cannot be started, the others are ended. `numa_options` must be None.
    """
    require_all_ranks(args, len(args), "args")
    require_all_ranks(envs, len(args), "envs")
    _check(envs, log_line_prefixes or {}, start_method)
    options: Kwargs = {"start_method": start_method} if callable(entrypoint) else {}
    kind = MultiprocessContext if callable(entrypoint) else SubprocessContext
    context = kind(
        name=name,
        entrypoint=entrypoint,
        args=args,
        envs=envs,
        logs_specs=_specs(logs_specs, log_dir, redirects, tee),
        log_line_prefixes=log_line_prefixes,
        numa_options=numa_options,
        duplicate_stdout_filters=duplicate_stdout_filters,
        duplicate_stderr_filters=duplicate_stderr_filters,
        **options,
    )
    try:
        context.start()
    except BaseException:
        context.close()
        raise
    return context


def _check(envs: dict[int, dict[str, str]], prefixes: Mapping[int, str], start_method: str) -> None:
    """Refuse arguments that would have no effect, or whose errors would not name them."""
    for rank, env in envs.items():
        for name, value in env.items():
            _require_text(name, value, rank)
    if absent := sorted(prefixes.keys() - envs.keys()):
        raise ValueRangeError(f"log_line_prefixes: there is no local rank {absent[0]}; args has {sorted(envs)}")
    if start_method not in (methods := get_all_start_methods()):
        raise ValueRangeError(f"start_method must be one of {', '.join(methods)}, got {start_method!r}")


def _require_text(name: object, value: object, rank: int) -> None:
    if not (isinstance(name, str) and isinstance(value, str)):
        kinds = f"{type(name).__name__} and {type(value).__name__}"  # the value may be a secret
        raise ArgumentError(f"envs: names and values must be text, got {kinds} at {name!r} for rank {rank}")


def _specs(
    logs: LogsSpecs | str | os.PathLike[str] | None,
    log_dir: str | os.PathLike[str] | None,
    redirects: Streams,
    tee: Streams,
) -> LogsSpecs:
    if isinstance(logs, LogsSpecs):
        if log_dir is not None or redirects or tee:
            raise ArgumentError("logs_specs already says where output goes; leave log_dir, redirects and tee out")
        return logs
    folder = log_dir if logs is None else logs
    return DefaultLogsSpecs(None, redirects, tee) if folder is None else FolderLogs(os.fspath(folder), redirects, tee)
