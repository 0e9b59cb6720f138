"""How a call is written in the program: what its bytecode says where values do not."""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType, FrameType


@lru_cache(maxsize=4096)  # key: the code and an offset in it
def _instruction(code: CodeType, offset: int) -> tuple[dis.Instruction | None, tuple[str, ...]]:
    """The instruction at an offset, or in whose cache it lies; and, if it is a call, the names of keyword arguments."""
    until = [instruction for instruction in dis.get_instructions(code) if instruction.offset <= offset]
    if not until:
        return None, ()
    at = next((before.arg for before in reversed(until[-3:-1]) if _gives_names(before, until[-1])), None)
    return until[-1], () if at is None else code.co_consts[at]


def _gives_names(previous: dis.Instruction, call: dis.Instruction) -> bool:
    """Whether an instruction before a call has the names: until Python 3.12 one of its own, then a constant."""
    return previous.opname == "KW_NAMES" or (call.opname == "CALL_KW" and previous.opname == "LOAD_CONST")


def written_arguments(frame: FrameType | None) -> tuple[int, tuple[str, ...]] | None:
    """How many positional arguments the call that a frame is at has, and the names of the others.

    None if this cannot be told, as with `f(*args)`. What calls from compiled code, such as `map`, is taken for the
    call, so the answer is only a hint.
    """
    if frame is None:
        return None
    instruction, names = _instruction(frame.f_code, frame.f_lasti)
    if instruction is None or instruction.opname not in ("CALL", "CALL_KW"):
        return None
    return (instruction.arg or 0) - len(names), names


def unpacked_count(frame: FrameType | None) -> int | None:
    """Into how many variables a frame unpacks an object now, as in `a, b = x`; None if it does something else."""
    instruction = None if frame is None else _instruction(frame.f_code, frame.f_lasti)[0]
    return instruction.arg if instruction is not None and instruction.opname == "UNPACK_SEQUENCE" else None
