"""`python -m bench [ROW …]`: measure, print, and write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import calls, checkpoints, first, kernels, launches, loading, measure, ranks
from bench.measure import Side
from bench.planning import planning
from bench.programs import drop_in
from bench.special import special
from weft import cuda

_OURS, _COMPILED = ("weft",), ("weft", "compiled")
_EAGER, _TORCH_COMPILED = ("torch",), ("torch", "compiled")
_PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"

Row = tuple[str, Side, Side, float]
"""What is compared, ours, the peer's, the goal for the ratio of medians (0: none, the figures are reported alone)."""


def _simple(name: str, text: str, goal: float) -> list[Row]:
    ours, peer = measure.workload(name, [_OURS, _EAGER])
    return [(text, ours, peer, goal)]


def _training(
    name: str, text: str, goal: float, peers: Sequence[tuple[str, ...]] = (_EAGER, _TORCH_COMPILED)
) -> list[Row]:
    """A training step, recorded and compiled, against the best of its peers."""
    ours, compiled, *others = measure.workload(name, [_OURS, _COMPILED, *peers])
    best = min(others, key=lambda side: side.median)
    return [(f"{text}, recorded", ours, best, goal), (f"{text}, `weft.compile`", compiled, best, goal)]


def _names() -> list[Row]:
    """A training step where all dims have names, against one where none has."""
    pairs = [("", ("weft", "named"), _OURS), (", `weft.compile`", ("weft", "compiled", "named"), _COMPILED)]
    rows: list[Row] = []
    for text, ours, peer in pairs:
        named, plain = measure.workload("mlp", [ours, peer])
        rows.append((f"MLP training step{text}, with names of all dims", named, plain, 0.98))
    return rows


def _callbacks() -> list[Row]:
    """With a callback that sees 1 % of the operators, against none."""
    rows: list[Row] = []
    for name, text in (
        ("watched_rec", "20,000 × `a + b` on 4×4, recorded"),
        ("watched_mlp", "20 MLP training steps"),
    ):
        sampled, plain = measure.paired(name, "sampled", "plain")
        rows.append((f"{text}, 1 % of the operators seen by a callback", sampled, plain, 0.98))
    return rows


def _import() -> list[Row]:
    sides = [("import weft", ["-c", "import weft"]), ("import torch", ["-c", "import torch"])]
    ours, peer = measure.processes(sides)
    return [("`import`", ours, peer, 2.0)]


def _warm() -> list[Row]:
    ours, eager, compiled = measure.processes(
        [
            ("weft", ["-m", "bench.first_step", "weft"]),
            ("torch", ["-m", "bench.first_step", "torch"]),
            ("torch compiled", ["-m", "bench.first_step", "torch", "compiled"]),
        ],
        repeats=7,
    )
    text = "new process to the first finished `gpt` step, warm cache"
    return [(f"{text}, against eager", ours, eager, 1.0), (f"{text}, against `torch.compile`", ours, compiled, 5.0)]


def _several(name: str, cases: Iterable[str], goal: float) -> list[Row]:
    """Single kernels, each case against the better of PyTorch's ways."""
    sides = measure.several(name, cases, [_COMPILED, _EAGER, _TORCH_COMPILED])
    return [(text, ours, min(peers, key=lambda side: side.median), goal) for text, (ours, *peers) in sides.items()]


def _gpu() -> list[Row]:
    """A training step on a GPU against the best of PyTorch, and against jax without a framework."""
    if not cuda.is_available():
        return []
    sides: list[tuple[str, ...]] = [_OURS, _COMPILED, _EAGER, _TORCH_COMPILED, ("jax",)]
    # one after the other: while XLA tries kernels, five of them have no room beside each other
    ours, compiled, *torchs, plain = [measure.workload("gpt2", [side])[0] for side in sides]
    best = min(torchs, key=lambda side: side.median)
    text = f"GPT-2 124 M training step, 16 × 1024 tokens, {cuda.get_device_name()}"
    return [
        (f"{text}, {how}", side, peer, 1.0)
        for how, side in (("recorded", ours), ("`weft.compile`", compiled))
        for peer in (best, plain)
    ]


ROWS: dict[str, Callable[[], list[Row]]] = {
    "rec": lambda: [
        *_simple("rec_plain", "`a + b` on 4×4, recorded", 1.0),
        *_simple("rec_grad", "`a + b` on 4×4, recorded with gradient", 1.0),
    ],
    "tape": lambda: _simple("tape", "10 × (matmul, tanh) on 4×4, forward and backward", 3.0),
    "small": lambda: [
        *_simple("small_item", "a number read from three operators on 4×4", 3.0),
        *_simple("small_step", "Adam step of a small classifier, loss read", 2.0),
        *_simple("small_inference", "its inference, classes read", 2.0),
    ],
    "char-rnn": lambda: _simple("character_rnn", "32 characters of a GRU cell, each read", 1.5),
    "decode": lambda: _simple("decode", "32 tokens of attention with a growing cache", 1.5),
    "rollout": lambda: _simple("rollout", "64 steps of acting by two small networks, each read", 1.5),
    "reinforce": lambda: _simple("reinforce", "four episodes of REINFORCE, a step of Adam after each", 1.5),
    "iterate": lambda: _simple("iterate", "elements and rows of tensors, read and written one by one", 1.0),
    "chain": lambda: _simple("chain", "`tanh(x * 0.5 + 1) * x`, 10 M float32", 4.0),
    "mlp": lambda: _training("mlp", "MLP training step", 1.25),
    "numpy": lambda: _simple("numpy_step", "MLP training step, from an array that is filled again to an array", 1.0),
    "names": _names,
    "callbacks": _callbacks,
    "gpt": lambda: _training("gpt", "GPT training step", 1.3),
    "resnet": lambda: _training("resnet", "ResNet-20 training step", 1.2),
    "lstm": lambda: _training("lstm", "LSTM training step", 1.3, [_EAGER]),
    "vit": lambda: _training("vit", "ViT training step", 1.0),
    "unet": lambda: _training("unet", "U-Net training step", 1.0),
    "conv": lambda: _several("conv", kernels.convolutions(), 1.0),
    "gemm": lambda: _several("gemm", kernels.gemm_names(), 0.95),
    "attention": lambda: _several("attention", kernels.ATTENTIONS, 1.5),
    "gpu": _gpu,
    "import": _import,
    "warm": _warm,
    "first-gru": lambda: first.pattern([(f"first-gru {t}", f"GRUCell, {t} steps in a loop") for t in (100, 500)], 0.5),
    "first-adam": lambda: first.pattern([(f"first-adam {n}", f"Adam, {n} parameters") for n in (200, 1000)], 0.5),
    "branch": lambda: first.pattern([("branch", "REINFORCE, 10 episodes of different lengths")], 0.5),
    "item": lambda: first.pattern([("item", "2,000 numbers read from tiny graphs")], 0.333),
    "mask": lambda: first.pattern([("mask", "`x[mask]`, 12 lengths")], 0.333),
    "grow": lambda: first.pattern([("grow", "`cat`, growing by a row, 20 times")], 0.333),
    "shapes": lambda: first.pattern(
        [(f"shapes {m}", f"64 lengths, training, {m}") for m in ("lstm", "gpt", "bucketed")], 1.0
    ),
    "first-step": first.first_step,
    "drop-in": drop_in,
    "special": special,
    "loader": loading.loader,
    "save": checkpoints.save,
    "load": checkpoints.load,
    "allreduce": ranks.allreduce,
    "ddp": ranks.ddp,
    "dtensor": lambda: [*ranks.dtensor(), *planning()],
    "rpc": calls.rpc,
    "tls": calls.tls,
    "rref": calls.rref,
    "dist-autograd": calls.dist_autograd,
    "recover": launches.recover,
    "launch": launches.launch,
}


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _goal(goal: float) -> str:
    return f"≥ {goal:g}" if goal else "–"


def _line(name: str, row: Row) -> str:
    text, ours, peer, goal = row
    ratio = peer.median / ours.median
    verdict = "–" if not goal else "met" if ratio >= goal else "not met"
    return (
        f"| {name} | {text} | {_time(ours.median)} | {_time(peer.median)} ({peer.name}) | {ratio:.2f} "
        f"| {_goal(goal)} | {verdict} |"
    )


def _write(lines: dict[str, list[str]]) -> None:
    """Replace the measured rows in the page; rows that were not measured now stay."""
    page = _PAGE.read_text()
    table = re.search(r"(?<=<!-- rows -->\n).*?(?=<!-- end -->)", page, re.DOTALL)
    assert table is not None, "docs/benchmarks.md has lost its markers"
    kept = [line for line in table[0].splitlines() if line.split(" | ")[0].removeprefix("| ") not in lines]
    head, body = kept[:2], kept[2:]
    order = list(ROWS)
    merged = [*body, *(line for listed in lines.values() for line in listed)]
    merged.sort(key=lambda line: order.index(line.split(" | ")[0].removeprefix("| ")))
    page = page.replace(table[0], "\n".join([*head, *merged]) + "\n")
    stamp = (
        f"Measured on {datetime.date.today().isoformat()}: {os.cpu_count()} cores ({platform.machine()}), Python "
        f"{platform.python_version()}, jax {version('jax')}, torch {version('torch')}; medians of {measure.REPEATS}."
    )
    page = re.sub(r"(?<=<!-- stamp -->\n).*?(?=\n<!-- end stamp -->)", stamp, page, flags=re.DOTALL)
    _PAGE.write_text(page)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all by default")
    names = parser.parse_args().rows or list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    console = Console()
    lines: dict[str, list[str]] = {}
    for name in names:
        rows = ROWS[name]()
        lines[name] = [_line(name, row) for row in rows]
        table = Table(title=name)
        for column in ("", "ours", "peer", "ratio", "goal"):
            table.add_column(column)
        for text, ours, peer, goal in rows:
            ratio = f"{peer.median / ours.median:.2f}"
            table.add_row(text, _time(ours.median), f"{_time(peer.median)} ({peer.name})", ratio, _goal(goal))
        console.print(table)
        _write(lines)


if __name__ == "__main__":
    main()
