"""What a program is bound by, in words."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.timeline import Phase
from weft._profile.phases import PYTHON
from weft.utils.bottleneck._figures import Figures

PYTHON_BOUND, COMPILATION, DATA, COMMUNICATION, COMPUTATION = (
    "Python",
    "compilation",
    "data",
    "communication",
    "computation",
)
_PARTS: dict[str, tuple[str, ...]] = {
    PYTHON_BOUND: (PYTHON, Phase.RECORDING, Phase.PLANNING),
    COMPILATION: (Phase.INFERENCE, Phase.TRACING, Phase.LOWERING, Phase.COMPILING, Phase.LOADING),
    DATA: (Phase.DATA,),
    COMMUNICATION: (Phase.COLLECTIVE, Phase.CALL),
    COMPUTATION: (Phase.INTERPRETING, Phase.RUNNING, Phase.WAITING, Phase.TRANSFER),
}
_CLOSE = 0.5  # of the largest share, from which a second cause is named


def shares_of(figures: Sequence[Figures]) -> dict[str, float]:
    """The share of each cause in the time of some ranks, without what the profile itself took; the largest first."""
    seconds = {
        cause: sum(entry.seconds.get(phase, 0.0) for entry in figures for phase in phases)
        for cause, phases in _PARTS.items()
    }
    whole = sum(seconds.values()) or 1.0
    return dict(sorted(((cause, part / whole) for cause, part in seconds.items()), key=lambda pair: -pair[1]))


def verdict(figures: Sequence[Figures]) -> str:
    """What the program is bound by, the figures that show it, and what to try."""
    shares = shares_of(figures)
    first, second = list(shares)[:2]
    both = shares[second] > _CLOSE * shares[first]
    device = ", ".join(sorted({device for entry in figures for device in entry.devices})) or "cpu"
    names = {**{cause: cause for cause in shares}, COMPUTATION: f"computation on {device}"}
    if not both:
        lines = [f"The program is bound by {names[first]}: {_percent(shares[first])} of its time."]
        causes = [first]
    else:
        lines = [
            f"The program is bound by {names[first]}, {_percent(shares[first])} of its time, and by {names[second]}, "
            f"{_percent(shares[second])}."
        ]
        causes = [first, second]
    rest = [f"{names[cause]} {_percent(share)}" for cause, share in shares.items() if cause not in causes]
    lines += [
        f"The rest: {', '.join(rest)}.",
        "(Of the time without the profile itself. Recording and planning count as Python, inference as compilation.)",
    ]
    for cause in causes:
        lines += ["", *_ADVICE[cause](figures[0])]
    return "\n".join([*lines, *_stragglers(figures)])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _of_python(figures: Figures) -> list[str]:
    own, recording = figures.seconds.get(PYTHON, 0.0), figures.seconds.get(Phase.RECORDING, 0.0)
    lines = [f"The program's own Python took {own:.2f} of {figures.wall:.2f} s."]
    if figures.operators:
        each = 1e6 * recording / figures.operators
        lines += [
            f"{figures.operators} operators were recorded in {recording:.2f} s ({each:.1f} us each). Most at:",
            *[f"  {line}: {count}" for line, count in figures.recorded_at],
            "Try: `torch.compile` on the training step, so that it is recorded once; larger batches; operators on",
            "whole tensors in place of loops over their elements; fewer `.item()` and prints.",
        ]
    return [*lines, "`python -m cProfile -s tottime SCRIPT` shows the program's own functions."]


def _of_compilation(figures: Figures) -> list[str]:
    inference = figures.seconds.get(Phase.INFERENCE, 0.0)
    compiling = sum(figures.seconds.get(phase, 0.0) for phase in _PARTS[COMPILATION]) - inference
    lines = [f"{inference:.2f} s went to inference: the types of results, at an operator's first use with some types."]
    if figures.compilations:
        lines.append(f"{figures.compilations} programs were compiled in {compiling:.2f} s. Most often at:")
        lines += [f"  {site}: {count} times, the last one since: {cause}" for site, count, cause in figures.compiled_at]
    return [
        *lines,
        "If the run is short, this is its beginning: a longer one does it once, and the folder of `WEFT_COMPILE_CACHE`",
        "keeps programs for the next process. If it goes on, try inputs of few different shapes (pad batches and",
        "sequences to multiples, `drop_last=True`), and tensors in place of Python numbers that change.",
        "`weft.explain()` lists compilations.",
    ]


def _of_data(figures: Figures) -> list[str]:
    return [
        f"The program waited {figures.seconds.get(Phase.DATA, 0.0):.2f} of {figures.wall:.2f} s for its DataLoader.",
        "Try: `num_workers` (or more of them, with `persistent_workers=True`); `prefetch_factor`; less work for each",
        "sample in the dataset, or once, before the training; larger files in place of many small ones.",
    ]


def _of_communication(figures: Figures) -> list[str]:
    collectives = figures.seconds.get(Phase.COLLECTIVE, 0.0)
    calls = figures.seconds.get(Phase.CALL, 0.0)
    return [
        f"{collectives:.2f} of {figures.wall:.2f} s went to collectives, {calls:.2f} s to remote calls.",
        "Try: fewer and larger exchanges (DDP's `bucket_cap_mb`, `no_sync` with gradients of several batches);",
        "`async_op=True`, and `wait()` later; compressed gradients (DDP's communication hooks).",
    ]


def _of_computation(figures: Figures) -> list[str]:
    lines = ["Programs took most for (estimated shares):"]
    lines += [f"  {name}: {time:.1f} ms, {count} times" for name, time, count in figures.computed]
    return [
        *lines,
        "Try: bfloat16 (`torch.autocast`), or `set_float32_matmul_precision` on accelerators; a device that is faster;",
        "`scaled_dot_product_attention` in place of products and softmax; smaller models.",
    ]


_ADVICE = {
    PYTHON_BOUND: _of_python,
    COMPILATION: _of_compilation,
    DATA: _of_data,
    COMMUNICATION: _of_communication,
    COMPUTATION: _of_computation,
}


def _stragglers(figures: Sequence[Figures]) -> list[str]:
    """Which rank the others wait for, if their times for collectives differ much."""
    waits = {entry.rank: entry.seconds.get(Phase.COLLECTIVE, 0.0) for entry in figures}
    if len(waits) < 2:
        return []
    least, most = min(waits, key=waits.__getitem__), max(waits, key=waits.__getitem__)
    wall = max(entry.wall for entry in figures)
    if waits[most] - waits[least] < 0.1 * wall:
        return []
    return [
        "",
        f"Rank {least} spent {waits[least]:.2f} s in collectives, rank {most} {waits[most]:.2f} s: the others wait for "
        f"rank {least}.",
    ]
