"""How processes would be bound to parts of the machine. They are not: the system places them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class AffinityMode(Enum):
    """To what a process would be bound."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclass(frozen=True)
class NumaOptions:
    """Options that programs make; they have no effect."""

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False
