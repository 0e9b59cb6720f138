"""Actions: the steps of which schedules consist, and their short texts, such as `2F0`.

A schedule is data: for each rank, the list of its actions.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from weft.errors import OutOfRangeError


class Kind(StrEnum):
    """What an action does. A backward is full, or split in two: input gradients first, weight gradients later."""

    FORWARD = "F"
    FULL_BACKWARD = "B"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"


COMPUTATIONS = (Kind.FORWARD, Kind.FULL_BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)


class Action(NamedTuple):
    """An action of one stage for one microbatch.

    `SEND_F` sends the outputs of the stage to the next one, whose `RECV_F` receives them as its inputs; `SEND_B` sends
    the gradients of its inputs to the previous one, whose `RECV_B` receives them as those of its outputs.
    """

    stage_index: int
    computation_type: Kind
    microbatch_index: int

    def __str__(self) -> str:
        return f"{self.stage_index}{self.computation_type}{self.microbatch_index}"

    __repr__ = __str__


Orders = list[list[Action]]
"""The actions of each rank, in order."""

_PATTERN = re.compile(rf"(\d+)({'|'.join(sorted(Kind, key=len, reverse=True))})(\d+)")


def action_of(text: str) -> Action:
    """The action that a text stands for; `RuntimeError` if it is none."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise OutOfRangeError(
            f"Invalid action string: {text}, should be formatted as [stage][action type][(microbatch)] e.g. 2F0; "
            f"action types are {', '.join(Kind)}"
        )
    stage, kind, microbatch = match.groups()
    return Action(int(stage), Kind(kind), int(microbatch))


def read_orders(file: str | Path) -> Orders:
    """The actions in a CSV file, which has a row for each rank; empty cells are idle steps, and are left out."""
    with Path(file).open(newline="") as rows:
        return [[action_of(cell) for cell in row if cell.strip()] for row in csv.reader(rows)]


def write_orders(orders: Iterable[Sequence[Action]], file: str | Path) -> None:
    """Write actions to a CSV file that `read_orders` reads."""
    with Path(file).open("w", newline="") as rows:
        csv.writer(rows).writerows(orders)
