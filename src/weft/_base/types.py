"""Names for what annotations say where an object may be of any type, and for common types that are long to write.

`Any` switches a checker's questions off and does not tell a reader why. These names tell why.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO, Any, TypeAlias

Arg: TypeAlias = Any
"""An argument that is passed on: only the function that gets it knows the type."""

Args: TypeAlias = tuple[Arg, ...]
"""The positional arguments of a call that is passed on."""

Kwargs: TypeAlias = dict[str, Arg]
"""The keyword arguments of a call that is passed on, or options, by name."""

Result: TypeAlias = Any
"""What a user's function, module or object returns: only its author knows the type."""

AnyCallable: TypeAlias = Callable[..., Result]
"""A function of which nothing is known but that it can be called."""

AttributeValue: TypeAlias = Any
"""The value of an attribute that is read or set by its name, as in `__getattr__`."""

AnyArray: TypeAlias = Any
"""An array of jax's or of NumPy's, or a tracer: what is done with it all of them can, and they have no common type."""

PyTree: TypeAlias = Any
"""Tensors and other objects in containers, which may be in containers again; or just one such object."""

SavedState: TypeAlias = dict[str, Any]
"""What `state_dict` and `__getstate__` return: by name, tensors and whatever else an object needs to go on."""

Annotation: TypeAlias = Any
"""The annotation of a parameter or a result: a type, or what stands for one."""

Json: TypeAlias = Any
"""What JSON can describe: a number, a text, None, or lists and dicts of these. Whoever reads it checks it."""

PathLike: TypeAlias = str | os.PathLike[str]
"""What names a file."""

FileLike: TypeAlias = PathLike | IO[bytes]
"""A path, or a file that is open."""
