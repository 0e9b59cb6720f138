"""What the package logs: levels of components, from the environment or `set_logs`, and the form of lines on stderr.

Until one of both is used, the package's loggers are as Python makes them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weft._base import config
from weft._base.own_names import own_form
from weft.errors import ValueRangeError

_log = logging.getLogger(__name__)

COMPONENTS = {
    "all": ("weft",),
    "distributed": ("weft.distributed", "weft._tools", "weft._comm"),
    "c10d": ("weft.distributed._work", "weft.distributed._subgroups", "weft.distributed.rendezvous", "weft._comm"),
    "ddp": ("weft.distributed.algorithms", "weft.distributed._ddp", "weft.distributed._reducer"),
    "dtensor": ("weft.distributed.tensor",),
    "fsdp": ("weft.distributed.fsdp",),
    "pp": ("weft.distributed.pipelining",),
}
"""The loggers of each component, under PyTorch's names."""

ARTIFACTS = {
    "recompiles": "weft._tensor.compile.compiled.__recompiles",
    "graph_breaks": "weft._tensor.compile.compiled.__graph_breaks",
}
"""The loggers of what is either logged or not."""

_LEVELS = {"+": logging.DEBUG, "": logging.INFO, "-": logging.ERROR}
_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass
class _State:
    """What is set: the handler on the package's logger, the levels of loggers, and what tells this thread's rank."""

    handler: logging.Handler | None = None
    levels: Mapping[str, int] = field(default_factory=dict[str, int])
    rank: Callable[[], int | None] = lambda: None


# no cell: only texts and reports depend on it
_state = _State()


def set_rank(rank: Callable[[], int | None]) -> None:
    """Set what tells the rank with which lines begin, or None outside of jobs."""
    _state.rank = rank


# --- levels -----------------------------------------------------------------------------------------------------


def set_logs(
    *,
    all: int | None = None,
    distributed: int | None = None,
    c10d: int | None = None,
    ddp: int | None = None,
    dtensor: int | None = None,
    fsdp: int | None = None,
    pp: int | None = None,
    recompiles: bool = False,
    graph_breaks: bool = False,
    modules: Mapping[str, int | bool] | None = None,
) -> None:
    """Set the levels of components, such as `logging.DEBUG`, and log to stderr; others go back to the default.

    all            everything, unless said otherwise
    recompiles     log what makes `weft.compile` capture a function again
    graph_breaks   log what keeps it from capturing a function
    modules        the same by name; also modules of this package, such as "weft.distributed.elastic"

    If the environment has WEFT_LOGS or TORCH_LOGS, that is what holds: the call only logs a warning. `ValueError` for
    what is no level, or no name.
    """
    if config.LOGS or config.TORCH_LOGS:
        name = "WEFT_LOGS" if config.LOGS else "TORCH_LOGS"
        _log.warning("Using %s environment variable for log settings, ignoring call to set_logs", name)
        return
    components = {"all": all, "distributed": distributed, "c10d": c10d, "ddp": ddp, "dtensor": dtensor}
    components |= {"fsdp": fsdp, "pp": pp, "recompiles": recompiles, "graph_breaks": graph_breaks, **(modules or {})}
    levels: dict[str, int] = {}
    for name, level in components.items():
        if level is not None:
            levels |= dict.fromkeys(_loggers_of(name), _checked(name, level))
    _apply(levels)


def _checked(name: str, level: int | bool) -> int:
    """The level of a logger, as it is given for a component, or whether an artifact is logged."""
    if name in ARTIFACTS:
        if not isinstance(level, bool):
            raise ValueRangeError(f"Expected bool to enable artifact {name}, received {level}")
        return logging.DEBUG if level else logging.NOTSET
    if isinstance(level, bool) or level not in logging.getLevelNamesMapping().values():
        words = ", ".join(f"logging.{word}" for word in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))
        raise ValueRangeError(f"Unrecognized log level for log {name}: {level!r}; it is one of {words}")
    return level


def _loggers_of(name: str) -> tuple[str, ...]:
    """The names of the loggers of a component, an artifact or a module; `ValueError` if there are none."""
    if name in ARTIFACTS:
        return (ARTIFACTS[name],)
    name = own_form(name)
    if name not in COMPONENTS and not _is_module(name):
        raise ValueRangeError(
            f"unrecognized log or artifact name {name!r}; there are {', '.join((*COMPONENTS, *ARTIFACTS))}, and "
            "modules of this package, such as weft.distributed.elastic"
        )
    return COMPONENTS.get(name, (name,))


def _is_module(name: str) -> bool:
    package, *parts = name.split(".")
    path = _PACKAGE.joinpath(*parts)
    return package == "weft" and (path.is_dir() or path.with_suffix(".py").is_file())


def _apply(levels: Mapping[str, int]) -> None:
    """Set the levels of these loggers, and the default for all that were set before."""
    if _state.handler is None:
        _state.handler = logging.StreamHandler()
        _state.handler.setFormatter(_Formatter())
        logging.getLogger("weft").addHandler(_state.handler)
        logging.getLogger("weft").propagate = False
    for name in _state.levels:
        logging.getLogger(name).setLevel(logging.NOTSET)
    _state.levels = {"weft": logging.WARNING, **levels}
    for name, level in _state.levels.items():
        logging.getLogger(name).setLevel(level)


# --- the environment --------------------------------------------------------------------------------------------


def levels_in(text: str) -> tuple[dict[str, int], list[str]]:
    """The levels of loggers in a setting such as "+dtensor,-c10d,recompiles", and the names that do not exist."""
    levels: dict[str, int] = {}
    unknown: list[str] = []
    for entry in filter(None, re.split(r"[\s,]+", text)):
        sign, name = (entry[0], entry[1:]) if entry[0] in "+-" else ("", entry)
        try:
            names = _loggers_of(name)
        except ValueRangeError:
            unknown.append(name)
            continue
        levels |= dict.fromkeys(names, logging.DEBUG if name in ARTIFACTS else _LEVELS[sign])
    return levels, unknown


def set_from_environment() -> None:
    """Set the levels that WEFT_LOGS gives or, without it, TORCH_LOGS.

    `ValueError` for unknown names in WEFT_LOGS. In TORCH_LOGS they may be PyTorch's, so there is only a warning.
    """
    levels, unknown = levels_in(config.LOGS or config.TORCH_LOGS)
    if unknown and config.LOGS:
        _loggers_of(unknown[0])
    if levels:
        _apply(levels)
    if unknown:
        _log.warning("TORCH_LOGS has names that say nothing here: %s", ", ".join(unknown))


# --- lines ------------------------------------------------------------------------------------------------------


class _Formatter(logging.Formatter):
    """Lines as PyTorch has them: the rank, the level's letter, the time, the process, and the line that logs."""

    def format(self, record: logging.LogRecord) -> str:
        rank = _state.rank()
        letter = "V" if record.levelno == logging.DEBUG else record.levelname[0]
        moment = f"{self.formatTime(record, '%m%d %H:%M:%S')}.{int(record.msecs * 1000):06}"
        lead = "" if rank is None else f"[rank{rank}]:"
        path = record.pathname.removeprefix(f"{_PACKAGE.parent}/")
        artifact = f" [{record.name.rpartition('.')[2]}]" if record.name in ARTIFACTS.values() else ""
        lead += f"{letter}{moment} {record.process} {path}:{record.lineno}]{artifact}"
        return "\n".join(f"{lead} {line}" for line in super().format(record).splitlines())
