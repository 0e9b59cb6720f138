"""Comparing a compiled function with the function itself."""

from __future__ import annotations

import weft
from weft._dynamo import OptimizedModule


def captures(compiled):
    """How often Python ran a compiled function."""
    return (compiled.forward if isinstance(compiled, OptimizedModule) else compiled)._runs


def agree(make, runs=None):
    """Check that a program gives the same with its function compiled.

    `make()` gives a function and what is done with it, which returns what can be compared. `runs` is how often Python
    runs the compiled function.
    """
    function, program = make()
    expected = program(function)
    function, program = make()
    compiled = weft.compile(function)
    assert program(compiled) == expected
    if runs is not None:
        assert captures(compiled) == runs


def row(*numbers):
    """A tensor of some numbers."""
    return weft.tensor([float(x) for x in numbers])
