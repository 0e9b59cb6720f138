"""Plans: schedules with the messages between ranks, checked by running them without computing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from weft.distributed.pipelining._actions import COMPUTATIONS, Action, Kind, Orders
from weft.errors import ValueRangeError

Event = tuple[str, int, int]  # what is there now, of which stage, for which microbatch

_BACKWARDS = (Kind.FULL_BACKWARD, Kind.BACKWARD_INPUT)


def rank_by_stage(orders: Iterable[Sequence[Action]]) -> dict[int, int]:
    """The rank of each stage; `ValueError` if several ranks have actions of one, or a stage has none."""
    ranks: dict[int, int] = {}
    for rank, actions in enumerate(orders):
        for action in actions:
            other = ranks.setdefault(action.stage_index, rank)
            if other != rank:
                raise ValueRangeError(f"schedule: {action} is on rank {rank}, but the stage is on rank {other}")
    if sorted(ranks) != list(range(len(ranks))):
        raise ValueRangeError(f"schedule: there must be actions of the stages 0, 1, …, but they are of {sorted(ranks)}")
    return ranks


def with_messages(orders: Orders) -> Orders:
    """Computations with sends right after what they send, and receives right before what needs them.

    A stage hands its results over without a message to a stage of the same rank.
    """
    ranks = rank_by_stage(orders)
    return [
        [step for action in actions for step in _surrounded(action, ranks, rank)] for rank, actions in enumerate(orders)
    ]


def _surrounded(action: Action, ranks: dict[int, int], rank: int) -> list[Action]:
    """An action with its receive and its send, where it has any."""
    stage, kind = action.stage_index, action.computation_type
    if kind is Kind.FORWARD:
        source, target, receive, send = stage - 1, stage + 1, Kind.RECV_F, Kind.SEND_F
    elif kind in _BACKWARDS:
        source, target, receive, send = stage + 1, stage - 1, Kind.RECV_B, Kind.SEND_B
    else:
        return [action]
    before = [action._replace(computation_type=receive)] if ranks.get(source, rank) != rank else []
    after = [action._replace(computation_type=send)] if ranks.get(target, rank) != rank else []
    return [*before, action, *after]


def forwards_of(orders: Orders) -> Orders:
    """The forward computations of a schedule."""
    return [[action for action in actions if action.computation_type is Kind.FORWARD] for actions in orders]


def computations_of(plan: Orders) -> Orders:
    """A plan without its messages."""
    return [[action for action in actions if action.computation_type in COMPUTATIONS] for actions in plan]


def check(plan: Orders, microbatches: int, *, training: bool) -> None:
    """`ValueError` unless each stage computes each microbatch once, and the plan comes to its end.

    Without `training`, there may be no backwards at all.
    """
    ranks = rank_by_stage(plan)
    counts = Counter(action for actions in plan for action in actions)
    if repeated := [action for action, count in counts.items() if count > 1]:
        raise ValueRangeError(f"schedule: {repeated[0]} is there more than once")
    for action in counts:
        if action.microbatch_index >= microbatches:
            raise ValueRangeError(f"schedule: {action} is there, but there are {microbatches} microbatches")
    backward = training or any(action.computation_type in _BACKWARDS for action in counts)
    for stage in ranks:
        for m in range(microbatches):
            _require_computed(counts, stage, m, backward)
    # Orders may be read from files: one in which ranks wait for each other would only show as a hang.
    timetable(plan)


def _require_computed(counts: Counter[Action], stage: int, microbatch: int, backward: bool) -> None:
    kinds = tuple(kind for kind in COMPUTATIONS if Action(stage, kind, microbatch) in counts)
    forward, *backwards = COMPUTATIONS
    allowed = [(forward, backwards[0]), (forward, *backwards[1:])] if backward else [(forward,)]
    if kinds not in allowed:
        there = ", ".join(str(Action(stage, kind, microbatch)) for kind in kinds) or "nothing"
        raise ValueRangeError(
            f"schedule: stage {stage} needs a forward for microbatch {microbatch}, and in training a backward (B, or I "
            f"and W), but there is {there}"
        )


def timetable(plan: Orders) -> list[list[Action | None]]:
    """When each rank computes what, if a computation takes a unit of time and a message none; None where it is idle.

    Sends do not wait for their receives. `ValueError` if ranks would wait for ever, with the action that each waits at.
    """
    ranks = rank_by_stage(plan)
    waiting = [list(actions[::-1]) for actions in plan]
    events: set[Event] = set()
    table: list[list[Action | None]] = [[] for _ in plan]
    while any(waiting):
        while sum(_pass_messages(actions, events, ranks) for actions in waiting):
            pass
        steps = [actions[-1] if actions and _is_ready(actions[-1], events, ranks) else None for actions in waiting]
        if not any(steps) and any(waiting):
            stuck = {rank: actions[-1] for rank, actions in enumerate(waiting) if actions}
            raise ValueRangeError(f"schedule: ranks would wait for ever, at these actions by rank: {stuck}")
        for row, actions, step in zip(table, waiting, steps, strict=True):
            row.append(step)
            if step is not None:
                events |= _results_of(actions.pop(), ranks)
    # Messages after the last computation take no time.
    while table and all(row and row[-1] is None for row in table):
        table = [row[:-1] for row in table]
    return table


def _pass_messages(actions: list[Action], events: set[Event], ranks: dict[int, int]) -> bool:
    """Send and receive what a rank can before its next computation; whether it was anything."""
    count = len(actions)
    while actions and actions[-1].computation_type not in COMPUTATIONS and _is_ready(actions[-1], events, ranks):
        events |= _results_of(actions.pop(), ranks)
    return len(actions) < count


def _is_ready(action: Action, events: set[Event], ranks: dict[int, int]) -> bool:
    return _needs_of(action, ranks) <= events


def _needs_of(action: Action, ranks: dict[int, int]) -> set[Event]:
    """What must be there before an action."""
    stage, kind, m = action
    match kind:
        case Kind.FORWARD:
            return {("input", stage, m)} if stage else set()
        case Kind.FULL_BACKWARD | Kind.BACKWARD_INPUT:
            own: set[Event] = {("output", stage, m)}
            return own | ({("output gradient", stage, m)} if stage + 1 in ranks else set())
        case Kind.BACKWARD_WEIGHT:
            return {("split backward", stage, m)}
        case Kind.SEND_F:
            return {("output", stage, m)}
        case Kind.SEND_B:
            return {("input gradient", stage, m)}
        case Kind.RECV_F:
            return {("sent output", stage - 1, m)}
        case Kind.RECV_B:
            return {("sent gradient", stage + 1, m)}


def _results_of(action: Action, ranks: dict[int, int]) -> set[Event]:
    """What is there after an action."""
    stage, kind, m = action
    match kind:
        case Kind.FORWARD:
            local = ranks.get(stage + 1) == ranks[stage]
            return {("output", stage, m), *([("input", stage + 1, m)] if local else [])}
        case Kind.FULL_BACKWARD | Kind.BACKWARD_INPUT:
            local = ranks.get(stage - 1) == ranks[stage]
            split = [("split backward", stage, m)] if kind is Kind.BACKWARD_INPUT else []
            return {
                ("input gradient", stage, m),
                *split,
                *([("output gradient", stage - 1, m)] if local else []),
            }
        case Kind.BACKWARD_WEIGHT:
            return set()
        case Kind.SEND_F:
            return {("sent output", stage, m)}
        case Kind.SEND_B:
            return {("sent gradient", stage, m)}
        case Kind.RECV_F:
            return {("input", stage, m)}
        case Kind.RECV_B:
            return {("output gradient", stage, m)}
