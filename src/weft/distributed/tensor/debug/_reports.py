"""What a `CommDebugMode` has recorded as a table, as JSON, and as a page for browsers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from os import PathLike

from weft._base.files import write_output
from weft._base.types import Json
from weft._lazy.aval import Aval
from weft.distributed.tensor._dtensor import DTensor
from weft.distributed.tensor._sharding import Sharding, type_text
from weft.distributed.tensor.debug._sections import PASSES, ReportSection, Sent, SentOperation, counts, nbytes
from weft.errors import ValueRangeError


def write(file_name: str | PathLike[str], text: str) -> None:
    """Write a report to a file."""
    write_output(file_name, (text.removesuffix("\n") + "\n").encode())


# --- a table ----------------------------------------------------------------------------------------------------


def table(root: ReportSection, noise_level: int) -> str:
    """The report as text."""
    require_level(noise_level)
    return "\n".join(_lines(root, "", noise_level)) + "\n"


def _lines(section: ReportSection, indent: str, level: int) -> Iterator[str]:
    yield f"{indent}{section.name}" + (f" ({section.calls} calls)" if section.calls > 1 else "")
    if level >= 1 and section.kind:
        yield f"{indent}*module type: {section.kind}"
    if level >= 1 and section.parameters:
        yield f"{indent}*Parameter List"
        for name, parameter in section.parameters.items():
            yield f"{indent} *{name}: {type_text(parameter._read().aval)}"
    for which in PASSES:
        lines = list(_lines_of_pass(section, which, level))
        if lines:
            yield f"{indent}  {which.upper()} PASS"
        yield from (f"{indent}    {line}" for line in lines)
    for child in section.children.values():
        yield from _lines(child, indent + "    ", level)


def _lines_of_pass(section: ReportSection, which: str, level: int) -> Iterator[str]:
    sent = section.sent(which)
    sizes = nbytes(sent)
    for name, count in counts(sent).items():
        yield f"*{name}: {count}, {sizes[name]} bytes"
    for event in getattr(section, which):
        if isinstance(event, SentOperation) and event.noise_level <= level:
            yield f"**{event.name}: {_texts(event.inputs)} -> {_texts(event.results)}  at {event.site}"
        elif isinstance(event, Sent) and level >= 1:
            yield f"**{event.name}: {_texts(event.types)}, {event.nbytes} bytes  at {event.site}"


def _texts(types: tuple[Aval, ...]) -> str:
    return ", ".join(map(type_text, types))


# --- JSON -------------------------------------------------------------------------------------------------------


def as_json(root: ReportSection, noise_level: int) -> str:
    """The report as JSON."""
    require_level(noise_level)
    return json.dumps(_node(root, noise_level), indent=1)


def _node(section: ReportSection, level: int) -> Json:
    """A module: PyTorch's keys, beside `calls`, and `sent_…`, which has each collective."""
    node: Json = {
        "fqn": section.name,
        "module_type": section.kind if level >= 1 else "",
        "calls": section.calls,
        "parameters": [[name, _placements(p)] for name, p in section.parameters.items()] if level >= 1 else [],
        "children": [_node(child, level) for child in section.children.values()],
    }
    for which in PASSES:
        sent = section.sent(which)
        sizes = nbytes(sent)
        own = [event for event in getattr(section, which) if isinstance(event, Sent)]
        node[f"collectives_{which}"] = [[name, count, sizes[name]] for name, count in counts(sent).items()]
        node[f"sent_{which}"] = [_collective(event) for event in own] if level >= 1 else []
        node[f"operations_{which}"] = [_operation(o, which) for o in section.operations(which, level)]
    return node


def _placements(parameter: object) -> str:
    return str(parameter.placements) if isinstance(parameter, DTensor) else "plain"


def _collective(event: Sent) -> Json:
    return {"name": event.name, "types": [*map(type_text, event.types)], "bytes": event.nbytes, "site": event.site}


def _operation(operation: SentOperation, which: str) -> Json:
    shardings = [aval.owner for aval in operation.inputs if isinstance(aval.owner, Sharding)]
    return {
        "name": operation.name,
        "input_shape": [str(list(sharding.size)) for sharding in shardings],
        "input_sharding": [str(sharding.placements) for sharding in shardings],
        "device_mesh": str(shardings[0].mesh) if shardings else "",
        "is_bw": which == "backward",
        "inputs": [*map(type_text, operation.inputs)],
        "results": [*map(type_text, operation.results)],
        "site": operation.site,
        "noise_level": operation.noise_level,
    }


# --- a page -----------------------------------------------------------------------------------------------------

_EMPTY = "null</script>"


def as_page(root: ReportSection, noise_level: int) -> str:
    """The viewer with the report in it."""
    data = as_json(root, noise_level).replace("<", "\\u003c")  # a text with "</script>" must not end the element
    before, after = viewer().split(_EMPTY)
    return f"{before}{data}</script>{after}"


def viewer() -> str:
    """The page without a report; it opens those that it is given."""
    return files(__package__ or "").joinpath("viewer.html").read_text(encoding="utf-8")


def require_level(level: int) -> None:
    """Raise `ValueError` for what is no noise level."""
    if level not in range(4):
        raise ValueRangeError(f"noise_level is 0, 1, 2 or 3, but got {level!r}")
