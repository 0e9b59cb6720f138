"""Functions and modules as graphs that are given to compilers before they run.

The graph is that of the forward pass, and gradients flow through what computes it: through operators of this package,
each by its own derivative. So `bw_compiler`, which would get a graph of the backward pass, is accepted and not called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._base.types import AnyCallable, Arg, Result
from weft._dynamo._compiled import BackendCompiled
from weft._tensor.tensor import Tensor
from weft.nn._module import Module
from weft.nn._optimized import OptimizedModule

Compiler = Callable[[Any, list[Tensor]], AnyCallable]
"""Gets a graph module and its inputs, and returns a function of these, or of a list of them (`make_boxed_func`)."""


def make_boxed_func(f: AnyCallable) -> AnyCallable:
    """A function of a list of inputs, which compilers may return, of one that takes them one by one."""

    def boxed(args: Sequence[Arg]) -> Result:
        return f(*args)

    boxed._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return boxed


def make_boxed_compiler(compiler: Compiler) -> Compiler:
    """A compiler whose results take a list of inputs."""

    def boxed(fx_g: Any, inps: list[Tensor]) -> AnyCallable:
        return make_boxed_func(compiler(fx_g, inps))

    return boxed


def aot_autograd(**options: Any) -> AnyCallable:
    """A backend for `weft.compile` that has `fw_compiler` compile graphs. Other options are accepted."""
    compiler: Compiler = options["fw_compiler"]

    def backend(gm: Any, example_inputs: list[Tensor], **_: object) -> AnyCallable:
        return _unboxed(compiler(gm, example_inputs))

    return backend


def _unboxed(compiled: Arg) -> AnyCallable:
    if not getattr(compiled, "_boxed_call", False):
        return compiled
    return lambda *args: compiled(list(args))


def aot_function(fn: AnyCallable, fw_compiler: Compiler, bw_compiler: object = None, **options: object) -> AnyCallable:
    """A function whose graph `fw_compiler` compiles when it is called, again for other kinds of inputs.

    `Unsupported` where it is no single graph: where it reads a value.
    """
    return BackendCompiled(fn, True, aot_autograd(fw_compiler=fw_compiler))


def aot_module(mod: Module, *args: Any, **options: Any) -> Module:
    """A module whose graph is compiled as by `aot_function`; the original is its child."""
    return OptimizedModule(mod, aot_function(mod, *args, **options))


def aot_module_simplified(
    mod: AnyCallable, args: Sequence[Tensor], fw_compiler: Compiler, bw_compiler: object = None, **options: object
) -> AnyCallable:
    """What `fw_compiler` makes of a graph module, which takes `args`, as a function of these one by one."""
    return aot_autograd(fw_compiler=fw_compiler)(mod, list(args))


def nop(fx_g: Any, _: object) -> AnyCallable:
    """A compiler that returns the graph as a function of a list of inputs."""
    return make_boxed_func(fx_g.forward)


def print_compile(fx_g: Any, _: object) -> AnyCallable:
    """A compiler that prints the graph's code, and returns the graph."""
    print(fx_g.code)
    return fx_g
