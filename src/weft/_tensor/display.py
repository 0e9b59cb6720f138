"""Printing of tensors, in PyTorch's format."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np

from weft._base.dtype import bool_, int64
from weft._base.state import ambient, default_dtype
from weft._base.types import Arg, SavedState
from weft._lazy.checks import report
from weft._tensor.tensor import Tensor


@dataclass
class _Options:
    """The print options of the whole process. With `sci_mode` None, the elements determine the notation."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


# no cell: only texts and reports depend on it
_PROFILES = {
    "default": _Options(),
    "short": _Options(precision=2, edgeitems=2),
    "full": _Options(threshold=math.inf),
}
# no cell: only texts and reports depend on it
_options = PRINT_OPTS = _Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set print options: those of a profile ("default", "short", "full") first, then those given by name.

    As in PyTorch, a profile of another name sets nothing.
    Every call sets `sci_mode`, by default to None (the elements determine the notation).
    """
    options = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    wanted = asdict(_PROFILES[profile]) if profile in _PROFILES else {}
    wanted |= {name: value for name, value in options.items() if value is not None}
    for name, value in (wanted | {"sci_mode": sci_mode}).items():
        setattr(_options, name, value)


def get_printoptions() -> SavedState:
    """The current options, as keywords of `set_printoptions`."""
    return asdict(_options)


@contextmanager
def printoptions(**options: Arg) -> Generator[None]:
    """Set options within a block, as `set_printoptions` does."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


# --- single elements ------------------------------------------------------------------------------------------


class _Real:
    """The format of a tensor's real elements: one notation for all, in columns of equal width."""

    def __init__(self, elements: np.ndarray) -> None:
        self.style = "float" if elements.dtype.kind == "f" else ""
        self.width = 1
        if self.style:
            elements = elements[np.isfinite(elements) & (elements != 0)]
            self.style = _float_style(elements)
        for element in elements.ravel().tolist():
            self.width = max(self.width, len(self._bare(element)))

    def _bare(self, element: Arg) -> str:
        match self.style:
            case "":
                return str(element)
            case "scientific":
                return f"{element:.{_options.precision}e}"
            case "whole":
                return f"{element:.0f}" + "." * math.isfinite(element)
            case _:
                return f"{element:.{_options.precision}f}"

    def __call__(self, element: object) -> str:
        return self._bare(element).rjust(self.width)


def _float_style(elements: np.ndarray) -> str:
    """The notation of float64 numbers, which are all finite and nonzero."""
    if not elements.size:
        return "whole"
    sizes = np.abs(elements)
    least, most = sizes.min(), sizes.max()
    scientific = bool(most / least > 1000 or most > 1e8 or least < 1e-4)
    if scientific if _options.sci_mode is None else _options.sci_mode:
        return "scientific"
    return "whole" if (elements == np.ceil(elements)).all() else "fixed"


class _Complex:
    """The format of complex elements: each part as the real elements of a tensor."""

    def __init__(self, elements: np.ndarray) -> None:
        self.real = _Real(np.real(elements))
        self.imag = _Real(np.imag(elements))
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, element: complex) -> str:
        imag = self.imag(element.imag).lstrip()
        return self.real(element.real) + ("" if imag[0] in "+-" else "+") + imag + "j"


# --- all elements ---------------------------------------------------------------------------------------------


def _printed_elements(tensor: Tensor, cut: tuple[bool, ...]) -> np.ndarray:
    """The elements that are printed: for each cut dim, those at both ends. Only these are copied from the device."""
    array = tensor._array()
    if tensor.device.type == "cpu":
        array = np.asarray(array)  # shares the memory
    edge = _options.edgeitems
    ends = [
        [*range(edge), *range(size - edge, size)] if is_cut else range(size)
        for size, is_cut in zip(tensor.shape, cut, strict=True)
    ]
    elements = np.asarray(array[np.ix_(*ends)] if any(cut) else array)
    report(ambient().pending)
    dtype = tensor.dtype
    wide = np.float64 if dtype.is_floating_point else np.complex128 if dtype.is_complex else dtype.numpy
    return elements.astype(wide)


def body(tensor: Tensor, indent: int) -> str:
    """The elements in brackets."""
    summarised = tensor.numel() > _options.threshold
    cut = tuple([summarised and size > 2 * _options.edgeitems for size in tensor.shape])
    elements = _printed_elements(tensor, cut)
    spell = _Complex(elements) if tensor.dtype.is_complex else _Real(elements)
    return _nested(elements.tolist(), cut, indent, spell) if cut else spell(elements.item())


def _nested(elements: list[Arg], cut: tuple[bool, ...], indent: int, spell: _Real | _Complex) -> str:
    edge = _options.edgeitems
    inner = len(cut) == 1
    if not inner:
        parts = [_nested(row, cut[1:], indent + 1, spell) for row in elements]
        between = "," + "\n" * (len(cut) - 1) + " " * (indent + 1)
    else:
        parts = [spell(element) for element in elements]
        between = ", "
    if cut[0]:
        parts.insert(edge, " ..." if inner and edge else "...")
    if not inner:
        return f"[{between.join(parts)}]"
    per_line = max(1, (_options.linewidth - indent) // (spell.width + 2))
    lines = [between.join(parts[at : at + per_line]) for at in range(0, len(parts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


# --- the whole text -------------------------------------------------------------------------------------------


def place(tensor: Tensor) -> Iterator[str]:
    """The text that names a device other than the first CPU."""
    if tensor.device.type != "cpu" or tensor.device.index:
        yield f"device='{tensor.device}'"


def type_not_shown(tensor: Tensor, *, by_elements: bool = True) -> Iterator[str]:
    """The text that names an element type, unless it is the default one, or seen in the elements that are printed."""
    expected = {default_dtype()}
    if by_elements:
        expected |= {default_dtype().to_complex(), int64, bool_}
    if tensor.dtype not in expected:
        yield f"dtype={tensor.dtype}"


def place_in_graph(tensor: Tensor) -> Iterator[str]:
    """The text that names what has made a tensor, or says that it requires a gradient."""
    if tensor.grad_fn is not None:
        yield f"grad_fn=<{type(tensor.grad_fn).__name__}>"
    elif tensor.requires_grad:
        yield "requires_grad=True"


def _suffixes(tensor: Tensor) -> Iterator[str]:
    """The texts after the elements, such as the dtype."""
    yield from place(tensor)
    empty, hidden = not tensor.numel(), tensor.device.type == "meta"
    if hidden or (tensor.ndim != 1 if empty else not _options.edgeitems):
        yield f"size={tuple(tensor.shape)}"
    yield from type_not_shown(tensor, by_elements=not (empty or hidden))
    yield from place_in_graph(tensor)
    names = tensor._read().aval.names
    if names is not None:
        yield f"names={names}"


def show(tensor: Tensor) -> str:
    """The text of `repr(tensor)`. Waits for the elements; a capture may show what a tensor stands for."""
    shown_by = getattr(ambient().capture, "show", None)
    if shown_by is not None:
        return shown_by(tensor, show)
    name = type(tensor).__name__
    prefix = "tensor(" if name in ("Tensor", "Parameter", "Buffer") else f"{name}("
    indent = len(prefix)
    elements = "..." if tensor.device.type == "meta" else body(tensor, indent) if tensor.numel() else "[]"
    return with_suffixes(prefix + elements, _suffixes(tensor), indent)


def with_suffixes(text: str, suffixes: Iterable[str], indent: int, *, on_new_line: bool = False) -> str:
    """A text with others after it, as many on each line as fit; the first of them on a new line if asked for."""
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if on_new_line or column + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
            on_new_line = False
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def formatted(tensor: Tensor, spec: str) -> str:
    """`format(tensor, spec)`: for a zero-dim tensor, that of the number; otherwise `spec` must be empty."""
    if not tensor.ndim and type(tensor) is Tensor:
        return format(tensor.detach().item(), spec)
    return object.__format__(tensor, spec)


# --- for classes of libraries that print themselves ---------------------------------------------------------------


def _tensor_str(self: Tensor, indent: int) -> str:
    """The elements in brackets."""
    return body(self, indent) if self.numel() else "[]"


def _add_suffixes(tensor_str: str, suffixes: Iterable[str], indent: int, force_newline: bool) -> str:
    """A text with others after it, and a closing parenthesis."""
    return with_suffixes(tensor_str, suffixes, indent, on_new_line=force_newline)


def _str_intern(inp: Tensor, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor, with another text in place of its elements."""
    if tensor_contents is None:
        return show(inp)
    prefix = f"{type(inp).__name__}("
    return with_suffixes(prefix + tensor_contents, _suffixes(inp), len(prefix))
