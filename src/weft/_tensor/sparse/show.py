"""Printing of sparse tensors, in PyTorch's format."""

from __future__ import annotations

from collections.abc import Iterator

from weft._tensor.composed import AnyEncoding, encoding_of
from weft._tensor.display import body, place, place_in_graph, type_not_shown, with_suffixes
from weft._tensor.sparse.compressed import Compressed
from weft._tensor.tensor import Tensor

_LEAD = "tensor("


def show(x: Tensor) -> str:
    """The text of `repr(x)`. Waits for indices and elements."""
    encoding: AnyEncoding = encoding_of(x)
    by_row = isinstance(encoding, Compressed)
    if by_row:
        indices = dict(zip(encoding.names, (encoding.compressed, encoding.plain), strict=True))
    else:
        indices = {"indices": encoding.indices}
    parts = [_part(name, part.detach()) for name, part in {**indices, "values": encoding.values}.items()]
    text = _LEAD + (",\n" + " " * len(_LEAD)).join(parts)
    return with_suffixes(text, _suffixes(x, encoding), len(_LEAD), on_new_line=not by_row)


def _part(name: str, x: Tensor) -> str:
    lead = f"{name}=tensor("
    elements = body(x, len(_LEAD) + len(lead)) if x.numel() else f"[], size={tuple(x.shape)}"
    return f"{lead}{elements})"


def _suffixes(x: Tensor, encoding: AnyEncoding) -> Iterator[str]:
    yield from place(x)
    yield f"size={tuple(x.shape)}"
    yield f"nnz={encoding.count}"
    yield from type_not_shown(x)
    yield f"layout={encoding.layout!r}"
    yield from place_in_graph(x)
