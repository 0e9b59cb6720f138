"""What a program is bound by, in words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from weft._base.timeline import Phase
from weft.profiler._phases import PYTHON
from weft.utils.bottleneck._figures import Figures
from weft.utils.bottleneck._inferred import Inferred

PYTHON_BOUND, COMPILATION, DATA, COMMUNICATION, COMPUTATION, SMALL_OPERATORS = (
    "Python",
    "compilation",
    "data",
    "communication",
    "computation",
    "small operators",
)
_PARTS: dict[str, tuple[str, ...]] = {
    PYTHON_BOUND: (PYTHON, Phase.RECORDING, Phase.PLANNING),
    COMPILATION: (Phase.INFERENCE, Phase.TRACING, Phase.LOWERING, Phase.COMPILING, Phase.LOADING),
    DATA: (Phase.DATA,),
    COMMUNICATION: (Phase.COLLECTIVE, Phase.CALL),
    COMPUTATION: (Phase.INTERPRETING, Phase.RUNNING, Phase.WAITING, Phase.TRANSFER),
}
_CLOSE = 0.5  # of the largest share, from which a second cause is named
_SMALL = 20e-6  # seconds of an interpreted operator, of which most is Python's and NumPy's overhead
_WAITED = 0.1  # of the time, from which others wait for a rank
_WORTH_TELLING = 0.1  # of the time in Python, from which recording and planning are a part to be told of


def shares_of(figures: Sequence[Figures]) -> dict[str, float]:
    """The share of each cause in the time of some ranks, without what the profile itself took; the largest first."""
    seconds = {
        cause: sum(entry.seconds.get(phase, 0.0) for entry in figures for phase in phases)
        for cause, phases in _PARTS.items()
    }
    small = sum(entry.seconds.get(Phase.INTERPRETING, 0.0) for entry in figures if _has_small_operators(entry))
    if small:
        seconds |= {COMPUTATION: seconds[COMPUTATION] - small, SMALL_OPERATORS: small}
    whole = sum(seconds.values()) or 1.0
    return dict(sorted(((cause, part / whole) for cause, part in seconds.items()), key=lambda pair: -pair[1]))


def _has_small_operators(figures: Figures) -> bool:
    """Whether interpreted operators take so little time each that most of it is overhead."""
    return 0 < figures.seconds.get(Phase.INTERPRETING, 0.0) < _SMALL * figures.interpreted


def verdict(figures: Sequence[Figures]) -> str:
    """What the program is bound by, the figures that show it, and what to try; if most ranks wait for one, of that."""
    late = _waited_for(figures)
    if late is not None:
        others = median([_collective(entry) for entry in figures if entry is not late])
        lines = [
            f"The others wait for rank {late.rank}: it spent {_collective(late):.2f} of {late.wall:.2f} s in "
            f"collectives, they {others:.2f} s.",
            *_bound_by(f"Rank {late.rank}", [late], without=[COMMUNICATION]),
        ]
    else:
        lines = [*_bound_by("The program", figures), *_differences(figures)]
    return "\n".join(lines)


def _bound_by(who: str, figures: Sequence[Figures], without: Collection[str] = ()) -> list[str]:
    """The largest shares, and what to try; causes in `without` are not named as such."""
    shares = shares_of(figures)
    first, second, *_ = [cause for cause in shares if cause not in without]
    both = shares[second] > _CLOSE * shares[first]
    device = ", ".join(sorted({device for entry in figures for device in entry.devices})) or "cpu"
    names = {**{cause: cause for cause in shares}, COMPUTATION: f"computation on {device}"}
    if not both:
        lines = [f"{who} is bound by {names[first]}: {_percent(shares[first])} of its time."]
        causes = [first]
    else:
        lines = [
            f"{who} is bound by {names[first]}, {_percent(shares[first])} of its time, and by {names[second]}, "
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
    return lines


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _counted(count: int, noun: str) -> str:
    """With the verb of the past."""
    return f"{count} {noun} was" if count == 1 else f"{count} {noun}s were"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _of_python(figures: Figures) -> list[str]:
    own, recording = figures.seconds.get(PYTHON, 0.0), figures.seconds.get(Phase.RECORDING, 0.0)
    operators = recording + figures.seconds.get(Phase.PLANNING, 0.0)
    lines = [f"The program's own Python took {own:.2f} of {figures.wall:.2f} s."]
    if not figures.operators or operators < _WORTH_TELLING * (own + operators):
        return [
            *lines,
            f"Recording operators and planning took {operators:.2f} s; the rest are other functions, or what they wait",
            "for, such as files, locks and sleeps.",
            "Try: `python -m cProfile -s tottime SCRIPT`, which shows these functions.",
        ]
    each = 1e6 * recording / figures.operators
    return [
        *lines,
        f"{_counted(figures.operators, 'operator')} recorded in {recording:.2f} s ({each:.1f} us each). Most at:",
        *[f"  {line}: {count}" for line, count in figures.recorded_at],
        "Try: `torch.compile` on the training step, so that it is recorded once; larger batches; operators on",
        "whole tensors in place of loops over their elements; fewer `.item()` and prints.",
        "`python -m cProfile -s tottime SCRIPT` shows the program's own functions.",
    ]


def _of_compilation(figures: Figures) -> list[str]:
    inference = figures.seconds.get(Phase.INFERENCE, 0.0)
    compiling = sum(figures.seconds.get(phase, 0.0) for phase in _PARTS[COMPILATION]) - inference
    lines = [f"{inference:.2f} s went to inference: the types of results, at an operator's first use with some types."]
    if figures.inferred_at:
        lines += ["Most at (estimated):", *map(_inferred, figures.inferred_at)]
    if figures.compilations:
        lines.append(f"{_counted(figures.compilations, 'program')} compiled in {compiling:.2f} s. Most often at:")
        lines += [
            f"  {site}: {_times(count)}, {'the last one ' * (count > 1)}since: {cause}"
            for site, count, cause in figures.compiled_at
        ]
    return [
        *lines,
        "If the run is short, this is its beginning: a longer one does it once, and the folder of `WEFT_COMPILE_CACHE`",
        "keeps programs for the next process. If it goes on, try inputs of few different shapes (pad batches and",
        "sequences to multiples, `drop_last=True`), and tensors in place of Python numbers that change.",
        "`weft.explain()` lists compilations.",
    ]


def _inferred(entry: Inferred) -> str:
    text = f"  {entry.line}: {entry.seconds:.2f} s"
    if entry.inputs > 1:
        text += f", {entry.operator} in {entry.inputs} different ways"
    return text + (f": {', …, '.join(entry.changes)}" if entry.changes else "")


def _of_small_operators(figures: Figures) -> list[str]:
    seconds, count = figures.seconds.get(Phase.INTERPRETING, 0.0), figures.interpreted
    return [
        f"{_counted(count, 'operator')} interpreted in {seconds:.2f} s ({1e6 * seconds / count:.1f} us each), of which",
        "most is overhead: they have few elements. A faster device does not help. Most at:",
        *[f"  {line}: {count}" for line, count in figures.recorded_at],
        "Try: larger batches; fewer operators, on whole tensors in place of parts and elements; `torch.compile` on the",
        "training step, so that its operators are one program.",
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
    lines += [f"  {name}: {time:.1f} ms, {_times(count)}" for name, time, count in figures.computed]
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
    SMALL_OPERATORS: _of_small_operators,
}


def _collective(figures: Figures) -> float:
    return figures.seconds.get(Phase.COLLECTIVE, 0.0)


def _waited_for(figures: Sequence[Figures]) -> Figures | None:
    """The rank that most others wait for: they spend much more time in collectives."""
    if len(figures) < 2:
        return None
    late, *others = sorted(figures, key=_collective)
    waiting = [entry for entry in others if _is_much(_collective(entry) - _collective(late), figures)]
    return late if len(waiting) > len(others) / 2 else None


def _differences(figures: Sequence[Figures]) -> list[str]:
    """The ranks that wait least and most, if that differs much."""
    least, most = min(figures, key=_collective), max(figures, key=_collective)
    if not _is_much(_collective(most) - _collective(least), figures):
        return []
    return [
        "",
        f"Rank {most.rank} spent {_collective(most):.2f} s in collectives, rank {least.rank} "
        f"{_collective(least):.2f} s: rank {most.rank} waits for others.",
    ]


def _is_much(seconds: float, figures: Sequence[Figures]) -> bool:
    return seconds >= _WAITED * max(entry.wall for entry in figures)
