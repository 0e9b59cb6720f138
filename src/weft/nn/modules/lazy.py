"""Modules that take sizes from their first input, under PyTorch's import path."""

from weft.nn._lazy_module import LazyModuleMixin as LazyModuleMixin
