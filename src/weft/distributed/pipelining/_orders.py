"""The schedules: which computations each rank makes, in which order. Pure functions, one for each schedule.

They take the numbers of ranks, of stages on each rank, and of microbatches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from weft.distributed.pipelining._actions import Action, Kind, Orders
from weft.errors import ValueRangeError

F, B, I, W = Kind.FORWARD, Kind.FULL_BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT  # noqa: E741  as schedules are written


def looped_stages(ranks: int, local: int) -> list[list[int]]:
    """The stages of each rank, if the stages go round the ranks."""
    return [list(range(rank, ranks * local, ranks)) for rank in range(ranks)]


def v_stages(ranks: int, local: int) -> list[list[int]]:
    """The stages of each rank, if the stages go through the ranks to and fro."""
    rounds = [range(start, start + ranks) for start in range(0, ranks * local, ranks)]
    columns = [stages if at % 2 == 0 else stages[::-1] for at, stages in enumerate(rounds)]
    return [list(stages) for stages in zip(*columns, strict=True)]


def gpipe(ranks: int, local: int, microbatches: int) -> Orders:
    """All forwards, then all backwards (Huang et al., 2019)."""
    return [
        [Action(stage, kind, m) for kind in (F, B) for m in range(microbatches)]
        for (stage,) in looped_stages(ranks, local)
    ]


def one_forward_one_backward(ranks: int, local: int, microbatches: int) -> Orders:
    """Backwards as early as possible, so that a stage holds at most as many microbatches as stages follow it, and one.

    PipeDream-Flush (Narayanan et al., 2021).
    """
    if microbatches < ranks:
        raise ValueRangeError(
            f"Number of microbatches ({microbatches}) must be greater than or equal to the number of stages ({ranks})."
        )
    return [
        _steady(_each(F, [stage], microbatches), _each(B, [stage], microbatches), ranks - 1 - stage)
        for (stage,) in looped_stages(ranks, local)
    ]


def looped_bfs(ranks: int, local: int, microbatches: int) -> Orders:
    """All microbatches through a stage before the rank's next one (Lamy-Poirier, 2022)."""
    return [
        _each(F, stages, microbatches) + _each(B, stages, microbatches)[::-1] for stages in looped_stages(ranks, local)
    ]


def interleaved(ranks: int, local: int, microbatches: int) -> Orders:
    """1F1B with several stages on each rank, which take microbatches by rounds (Narayanan et al., 2021)."""
    return _interleaved(ranks, local, microbatches, B, 2)


def interleaved_zero_bubble(ranks: int, local: int, microbatches: int) -> Orders:
    """`interleaved` with split backwards: weight gradients are computed where ranks would be idle (Qi et al., 2024)."""
    return [_with_weights(actions, rank) for rank, actions in enumerate(_interleaved(ranks, local, microbatches, I, 1))]


def zero_bubble_v(ranks: int, local: int, microbatches: int) -> Orders:
    """Split backwards over stages that go to and fro: ZB-V (Qi et al., 2024). Each rank has two stages."""
    if local != 2:
        raise ValueRangeError(f"ZBV requires exactly 2 stages per rank, but got {local}.")
    rounds = max(2 * ranks - 1, microbatches)
    orders: Orders = []
    for rank, (down, up) in enumerate(v_stages(ranks, local)):
        phases = [
            ([(down, F)], 2 * (ranks - rank) - 1),
            ([(up, F), (down, F)], rank),
            ([(up, F), (up, I), (up, W)], ranks - rank),
            ([(down, F), (down, I), (down, W), (up, F), (up, I), (up, W)], rounds - ranks),
            ([(down, I), (up, I)], rank),
            ([(down, I), (down, W)], ranks - rank),
            ([(up, W)], rounds),
            ([(down, W)], rounds),
        ]
        orders.append(_numbered([step for steps, count in phases for step in steps * count], microbatches))
    return orders


def _numbered(steps: Sequence[tuple[int, Kind]], microbatches: int) -> list[Action]:
    """Steps as actions: those of one stage and kind are for its microbatches, and those without one are left out."""
    counts: Counter[tuple[int, Kind]] = Counter()
    actions: list[Action] = []
    for stage, kind in steps:
        if counts[stage, kind] < microbatches:
            actions.append(Action(stage, kind, counts[stage, kind]))
        counts[stage, kind] += 1
    return actions


def _each(kind: Kind, stages: Sequence[int], microbatches: int) -> list[Action]:
    """An action for each microbatch, stage by stage."""
    return [Action(stage, kind, m) for stage in stages for m in range(microbatches)]


def _steady(forwards: list[Action], backwards: list[Action], warmup: int) -> list[Action]:
    """So many forwards; then a forward and a backward alternate; then the backwards that remain."""
    pairs = zip(forwards[warmup:], backwards, strict=False)
    actions = forwards[:warmup] + [action for pair in pairs for action in pair]
    return actions + backwards[len(forwards[warmup:]) :]


def _interleaved(ranks: int, local: int, microbatches: int, backward: Kind, delay: int) -> Orders:
    """1F1B by rounds; each rank begins with `delay` more forwards than the one after it."""
    rounds = max(1, microbatches // ranks)
    if microbatches % rounds:
        raise ValueRangeError(
            f"interleaved schedules require the number of microbatches to be a multiple of the number of rounds "
            f"({rounds}), but got {microbatches}."
        )
    size = microbatches // rounds
    orders: Orders = []
    for rank, stages in enumerate(looped_stages(ranks, local)):
        starts = range(0, microbatches, size)
        forwards = [Action(s, F, m) for start in starts for s in stages for m in range(start, start + size)]
        backwards = [
            Action(s, backward, m) for start in starts for s in stages[::-1] for m in range(start, start + size)
        ]
        # As many forwards as must be under way before the first gradient can come back.
        warmup = min((local - 1) * size + delay * (ranks - 1 - rank), len(forwards))
        orders.append(_steady(forwards, backwards, warmup))
    return orders


def _with_weights(actions: Sequence[Action], lag: int) -> list[Action]:
    """Actions with the second part of each split backward, which follows `lag` first parts later."""
    inputs = [action for action in actions if action.computation_type is I]
    weights = [action._replace(computation_type=W) for action in inputs]
    result, count = list[Action](), 0
    for action in actions:
        result.append(action)
        if action.computation_type is I:
            count += 1
            result += weights[count - lag - 1 : count - lag] if count > lag else []
    return result + weights[max(0, count - lag) :]
