"""Optimizations that PyTorch applies to scripted modules. XLA makes its own, so these return what they are given."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from weft.errors import ArgumentError, ModuleError
from weft.nn._module import Module


def freeze(
    mod: Module,
    preserved_attrs: list[str] | None = None,
    optimize_numerics: bool = True,
    preserve_parameters: bool = False,
) -> Module:
    """The module, which must be in evaluation mode."""
    del preserved_attrs, optimize_numerics, preserve_parameters
    if not isinstance(mod, Module):
        raise ArgumentError(f"jit.freeze: expected a module, got {type(mod).__name__}")
    if mod.training:
        raise ModuleError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module "
            "before freezing."
        )
    return mod


def optimize_for_inference(mod: Module, other_methods: list[str] | None = None) -> Module:
    """The module, in evaluation mode."""
    del other_methods
    return freeze(mod.eval()) if isinstance(mod, Module) else freeze(mod)


def run_frozen_optimizations(
    mod: Module, optimize_numerics: bool = True, preserved_methods: list[str] | None = None
) -> None:
    """Nothing to do."""
    del mod, optimize_numerics, preserved_methods


def set_fusion_strategy(strategy: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Accepted and ignored: XLA decides what to fuse. Returns what was set before, which is nothing."""
    del strategy
    return []


def enable_onednn_fusion(enabled: bool) -> None:
    """Accepted and ignored."""
    del enabled


def onednn_fusion_enabled() -> bool:
    """False."""
    return False


@contextmanager
def optimized_execution(should_optimize: bool) -> Generator[None]:
    """A block without effect: programs are always optimized."""
    del should_optimize
    yield


@contextmanager
def strict_fusion() -> Generator[None]:
    """A block without effect."""
    yield
