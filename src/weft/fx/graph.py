"""Graphs of exported programs, under PyTorch's import path."""

from weft.export._graph import Graph as Graph
from weft.fx._absent import Absent


class CodeGen(Absent):
    """Would write a graph as Python code; `Graph.code` does."""
