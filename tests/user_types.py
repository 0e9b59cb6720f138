"""What type checkers make of a user's program. `make lint` checks it; nothing runs it."""

from __future__ import annotations

from typing import assert_type

import weft
import weft.nn.functional as F
from weft import Tensor, linalg


def results(x: Tensor) -> None:
    assert_type(x + 1, Tensor)
    assert_type(x.sum(dim=(0, 1)), Tensor)
    assert_type(weft.zeros(2, 3, dtype=weft.float32, device="cpu"), Tensor)
    assert_type(x.stride(), tuple[int, ...])
    assert_type(x.stride(0), int)
    assert_type(x.type(), str)
    assert_type(weft.split(x, 1), tuple[Tensor, ...])
    assert_type(F.conv2d(x, x, padding="same", stride=(1, 1)), Tensor)


def named_results(x: Tensor) -> None:
    assert_type(weft.sort(x).values, Tensor)
    assert_type(x.max(0).indices, Tensor)
    assert_type(linalg.lu(x).P, Tensor)
    assert_type(weft.linalg.slogdet(x).logabsdet, Tensor)
    values, vectors = linalg.eigh(x)
    assert_type(values @ vectors, Tensor)


def results_by_argument(x: Tensor) -> None:
    assert_type(weft.max(x), Tensor)
    assert_type(weft.max(x, x), Tensor)
    assert_type(weft.where(x > 0, x, 0.0), Tensor)
    assert_type(weft.where(x > 0), tuple[Tensor, ...])
    assert_type(x.nonzero(as_tuple=True), tuple[Tensor, ...])
    assert_type(F.max_pool2d(x, 2), Tensor)
    assert_type(F.max_pool2d(x, 2, return_indices=True), tuple[Tensor, Tensor])


@weft.no_grad()
def halved(x: Tensor) -> Tensor:
    return x / 2


@weft.inference_mode
def counted(x: Tensor) -> int:
    return x.numel()


def decorated(x: Tensor) -> None:
    assert_type(halved(x), Tensor)
    assert_type(counted(x), int)
    with weft.no_grad(), weft.inference_mode(False):
        assert_type(x.detach(), Tensor)


def mistakes(x: Tensor) -> None:
    linalg.norm("x")  # pyright: ignore[reportArgumentType]
    weft.linalg.norm(x, keepdim="yes")  # pyright: ignore[reportArgumentType]
    linalg.nothing(x)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    weft.sort(x).valuse  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
