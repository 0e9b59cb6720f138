"""Counting what distributed tensors send, by module and by line."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from weft._base.site import user_site
from weft._base.state import ambient, enter, leave
from weft._lazy.value import Value
from weft.distributed.tensor._dtensor import DTensor
from weft.distributed.tensor._observers import observers
from weft.distributed.tensor._sharding import Sharding
from weft.errors import ValueRangeError
from weft.nn import Module
from weft.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

_TRIVIAL = frozenset({"detach", "alias", "view", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "expand"})
"""Operators that compute nothing."""


@dataclass
class Event:
    """A collective with the bytes that this process gives to it, or (without) an operator; and the user's line."""

    name: str
    text: str
    site: str
    nbytes: int = 0
    is_collective: bool = False


@dataclass
class Section:
    """What a module has done by itself, and the modules that it has called."""

    name: str
    kind: str
    events: list[Event] = field(default_factory=list)
    children: list[Section] = field(default_factory=list)

    def counts(self) -> Counter[str]:
        """How often each collective was called, by the module and those that it has called."""
        own = Counter(event.name for event in self.events if event.is_collective)
        return sum((child.counts() for child in self.children), own)


class CommDebugMode:
    """Within its `with` block, records the collectives of distributed tensors in this thread, backward passes included.

    Collectives have PyTorch's names: "all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor",
    "all_to_all_single".
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._root = Section("Global", "")
        self._open = [self._root]
        self._names: dict[Module, str] = {}

    def __enter__(self) -> CommDebugMode:
        self._reset()
        self._hooks = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        ]
        observers().append(self)
        self._recording = enter(observers=(*ambient().observers, self._on_record))
        return self

    def __exit__(self, *exception: object) -> None:
        leave(self._recording)
        observers().remove(self)
        for hook in self._hooks:
            hook.remove()

    # --- recording ---

    def _enter_module(self, module: Module, args: object) -> None:
        del args
        if self not in observers():  # hooks are those of all threads
            return
        if module not in self._names:
            root = type(module).__name__
            self._names |= {part: f"{root}.{name}" if name else root for name, part in module.named_modules()}
        section = Section(self._names[module], type(module).__name__)
        self._open[-1].children.append(section)
        self._open.append(section)

    def _leave_module(self, module: Module, args: object, output: object) -> None:
        del module, args, output
        if self in observers():
            self._open.pop()

    def on_transfer(self, collective: str, part: Value, *, requested: bool) -> None:
        """Record a collective."""
        del requested
        self._open[-1].events.append(
            Event(collective, str(part.aval), user_site(), part.aval.nbytes, is_collective=True)
        )

    def _on_record(self, results: tuple[Value, ...]) -> None:
        """Record an operator."""
        origin = results[0].origin
        if origin is None or origin.signature.call is None or results[0].aval.sharding is None:
            return
        arrow = f"{', '.join(map(_placed, results[0].inputs))} -> {', '.join(map(_placed, results))}"
        self._open[-1].events.append(Event(origin.signature.name, arrow, user_site()))

    # --- results ---

    def get_comm_counts(self) -> dict[str, int]:
        """How often each collective was called."""
        return dict(self._root.counts())

    def get_total_counts(self) -> int:
        """How many collectives were called."""
        return self._root.counts().total()

    def get_bytes(self) -> int:
        """The bytes that this process has given to collectives."""
        return sum(event.nbytes for section in _all(self._root) for event in section.events)

    def get_parameter_info(self) -> dict[str, dict[str, Any]]:
        """For each module that was called, the sizes of its parameters by name."""
        return self._parameters(lambda parameter: tuple(parameter.shape))

    def get_sharding_info(self) -> dict[str, dict[str, Any]]:
        """For each module that was called, the placements of its distributed parameters by name."""
        placements = self._parameters(lambda p: p.placements if isinstance(p, DTensor) else None)
        return {
            name: kept for name, own in placements.items() if (kept := {k: v for k, v in own.items() if v is not None})
        }

    def _parameters(self, what: Any) -> dict[str, dict[str, Any]]:
        parameters = {
            name: {key: what(parameter) for key, parameter in module.named_parameters(recurse=False)}
            for module, name in self._names.items()
        }
        return {name: own for name, own in parameters.items() if own}

    # --- reports ---

    def generate_comm_debug_tracing_table(self, noise_level: int = 3) -> str:
        """Modules with the collectives that they have called.

        Level 1 adds the placements of parameters, level 2 operators that compute, and level 3 all operators.
        """
        _require_level(noise_level)
        return "\n".join(self._lines(self._root, 0, noise_level))

    def log_comm_debug_tracing_table_to_file(self, file_name: str = "comm_mode_log.txt", noise_level: int = 3) -> None:
        """Write the table to a file."""
        Path(file_name).write_text(self.generate_comm_debug_tracing_table(noise_level) + "\n", encoding="utf-8")

    def generate_json_dump(self, file_name: str = "comm_mode_log.json", noise_level: int = 3) -> None:
        """Write the same as JSON: for each module its `name`, `kind`, `counts`, `events` and `children`."""
        _require_level(noise_level)
        text = json.dumps(self._as_json(self._root, noise_level), indent=1)
        Path(file_name).write_text(text + "\n", encoding="utf-8")

    def _lines(self, section: Section, depth: int, level: int) -> list[str]:
        indent = "  " * depth
        counts = ", ".join(f"{name}: {count}" for name, count in sorted(section.counts().items()))
        lines = [f"{indent}{section.name}{f'  ({counts})' if counts else ''}"]
        if level >= 1:
            placed = self.get_sharding_info().get(section.name, {})
            lines += [f"{indent}  *{name}: {tuple(map(str, placements))}" for name, placements in placed.items()]
        for event in section.events:
            if _is_shown(event, level):
                size = f"  {event.nbytes} bytes" if event.is_collective else ""
                lines.append(f"{indent}  {event.name}: {event.text}{size}  at {event.site}")
        for child in section.children:
            lines += self._lines(child, depth + 1, level)
        return lines

    def _as_json(self, section: Section, level: int) -> dict[str, Any]:
        placed = self.get_sharding_info().get(section.name, {}) if level >= 1 else {}
        return {
            "name": section.name,
            "kind": section.kind,
            "counts": dict(section.counts()),
            "placements": {name: list(map(str, placements)) for name, placements in placed.items()},
            "events": [asdict(event) for event in section.events if _is_shown(event, level)],
            "children": [self._as_json(child, level) for child in section.children],
        }


def _all(section: Section) -> list[Section]:
    return [section, *(part for child in section.children for part in _all(child))]


def _is_shown(event: Event, level: int) -> bool:
    if event.is_collective:
        return level >= 1
    return level >= 3 or (level == 2 and event.name not in _TRIVIAL)


def _placed(value: Value) -> str:
    sharding = value.aval.sharding
    size = f"{value.aval.dtype.name}{list(value.aval.size)}"
    return f"{size} ({', '.join(map(str, sharding.placements))})" if isinstance(sharding, Sharding) else size


def _require_level(level: int) -> None:
    if level not in range(4):
        raise ValueRangeError(f"noise_level is 0, 1, 2 or 3, but got {level!r}")
