"""A page for browsers that shows what is in memory. It is one file, and loads nothing from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from weft._base.device import DeviceLike
from weft._base.files import write_output
from weft._lazy.ledger import MeasuredRun, ledger_of
from weft._lazy.living import size_text
from weft.utils.memory._figures import target_of
from weft.utils.memory._holders import KINDS, Allocation, allocations

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .15em .6em; vertical-align: top; }
th { border-bottom: 1px solid #999; } td.n, th.n { text-align: right; white-space: nowrap; }
code { font-size: 13px; } summary { cursor: pointer; padding: .2em 0; border-top: 1px solid #ddd; }
summary b { display: inline-block; min-width: 7em; text-align: right; margin-right: 1em; }
.bar { background: #4a7fb5; height: .8em; } .none { color: #777; }
@media (prefers-color-scheme: dark) { body { background: #1b1b1b; color: #ddd; } summary { border-color: #444; } }
"""
_HEIGHT, _WIDTH = 160, 900  # of the chart


def write_memory_page(path: str | os.PathLike[str], device: DeviceLike | None = None) -> None:
    """Write a page with the arrays that are alive on a device: by what keeps them, and by the line that made them.

    Lines, and the memory after each program, are there for what was made after `record_history()`.
    """
    target = target_of(device)
    ledger = ledger_of(target)
    now = ledger.current()
    entries = allocations(target)
    text = "\n".join(_page(str(target), now, ledger.peak, entries, list(ledger.runs)))
    write_output(path, text.encode())


def _page(
    device: str, now: int, peak: int, entries: Sequence[Allocation], runs: Sequence[MeasuredRun]
) -> Iterator[str]:
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Memory of {escape(device)}</title>'
    yield f"<style>{_STYLE}</style></head><body><h1>Memory of {escape(device)}</h1>"
    total = sum([one.nbytes for one in entries])
    arrays = f"{len(entries)} arrays of tensors, {size_text(total)}"
    yield f"<p>{size_text(now)} in use, {size_text(peak)} at most. {arrays}.</p>"
    yield "<h2>What keeps it</h2>" + _totals(entries, total)
    if runs:
        yield "<h2>After each program</h2>" + _chart(runs)
    yield "<h2>Which line made it</h2>"
    for site, group in _grouped(entries, lambda one: one.site):
        name = f"<code>{escape(site)}</code>" if site else '<span class="none">no line was recorded</span>'
        count = f"{len(group)} array{'s' * (len(group) > 1)}"
        yield f"<details><summary><b>{size_text(_size(group))}</b>{name}, {count}</summary>{_table(group)}</details>"
    yield "</body></html>"


def _size(group: Iterable[Allocation]) -> int:
    return sum([one.nbytes for one in group])


def _grouped(entries: Iterable[Allocation], key: Callable[[Allocation], str]) -> list[tuple[str, list[Allocation]]]:
    """Groups with equal keys, the largest first."""
    groups: dict[str, list[Allocation]] = {}
    for one in entries:
        groups.setdefault(key(one), []).append(one)
    return sorted(groups.items(), key=lambda entry: -_size(entry[1]))


def _totals(entries: Sequence[Allocation], total: int) -> str:
    sizes = {kind: _size([one for one in entries if one.kind == kind]) for kind in KINDS}
    rows = [
        f'<tr><td>{kind}</td><td class="n">{size_text(size)}</td>'
        f'<td style="width:60%"><div class="bar" style="width:{100 * size / max(total, 1):.1f}%"></div></td></tr>'
        for kind, size in sizes.items()
        if size
    ]
    return f"<table>{''.join(rows)}</table>"


def _table(group: Iterable[Allocation]) -> str:
    rows = [
        f'<tr><td class="n">{size_text(one.nbytes)}</td><td><code>{escape(one.type)}</code></td>'
        f"<td>{escape(one.operator)}</td><td>{one.kind}</td><td><code>{escape(one.name)}</code></td></tr>"
        for one in group
    ]
    head = '<tr><th class="n">bytes</th><th>type</th><th>made by</th><th>kept as</th><th>name</th></tr>'
    return f"<table>{head}{''.join(rows)}</table>"


def _chart(runs: Sequence[MeasuredRun]) -> str:
    """A bar for each program: its peak, and within it what was alive afterwards."""
    top = max([run.peak for run in runs]) or 1
    width = _WIDTH / len(runs)
    bars: list[str] = []
    for at, run in enumerate(runs):
        text = escape(f"{run.site}: {size_text(run.nbytes)}, at most {size_text(run.peak)}, {run.operators} operators")
        for size, color in ((run.peak, "#b9cfe4"), (run.nbytes, "#4a7fb5")):
            height = _HEIGHT * size / top
            bars.append(
                f'<rect x="{at * width:.2f}" y="{_HEIGHT - height:.1f}" width="{width:.2f}" height="{height:.1f}" '
                f'fill="{color}"><title>{text}</title></rect>'
            )
    legend = f"Dark: alive after the program. Light: its peak, {size_text(top)} at most. Bars tell their lines."
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%">{"".join(bars)}</svg><p>{legend}</p>'
