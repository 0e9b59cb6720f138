"""Classes that would run a graph node by node."""

from weft.fx._absent import Absent


class Interpreter(Absent):
    """Would run a graph node by node. Making one raises `NotImplementedError`."""


class Transformer(Interpreter):
    """Would make a graph of another one. Making one raises `NotImplementedError`."""
