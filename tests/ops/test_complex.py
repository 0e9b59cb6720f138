"""Complex numbers, and bools, where few operators expect them: PyTorch's numbers, and the errors that it raises."""

from __future__ import annotations

import cmath
import math

import pytest

import weft as torch

LAST = cmath.log(cmath.exp(1 + 1j) + cmath.exp(2))
C = torch.tensor([1 + 1j, 1 + 1j, 2])


def test_logcumsumexp():
    inf = math.inf
    x = torch.tensor([1 + 1j, 2])
    torch.testing.assert_close(x.logcumsumexp(0), torch.tensor([1 + 1j, LAST]))
    torch.testing.assert_close(x[None].logcumsumexp(1), x.logcumsumexp(0)[None])
    y = torch.tensor([complex(-inf), complex(-inf), 1, 2 + 1j]).logcumsumexp(0)
    torch.testing.assert_close(
        y, torch.tensor([complex(-inf), complex(-inf), 1, cmath.log(cmath.exp(1) + cmath.exp(2 + 1j))])
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: torch.mode(C), '"mode_cpu" not implemented for'),
        (lambda: torch.kthvalue(C, 1), '"kthvalue_cpu" not implemented for'),
        (lambda: torch.searchsorted(C, C), '"searchsorted_out_cpu" not implemented for'),
        (lambda: torch.unique(C), '"unique" not implemented for'),
        (lambda: torch.unique_consecutive(C, dim=0), '"unique" not implemented for'),
        (lambda: torch.arange(0, 5, 2, dtype=torch.bool), "\"arange_cpu\" not implemented for 'Bool'"),
        (lambda: torch.linspace(0, 1, 3, dtype=torch.bool), "\"linspace_cpu\" not implemented for 'Bool'"),
        (lambda: torch.logspace(0, 1, 3, dtype=torch.bool), "\"logspace_cpu\" not implemented for 'Bool'"),
    ],
)
def test_refused(call, text):
    with pytest.raises(NotImplementedError, match=text):
        call()


def test_single_numbers_have_no_slices_to_compare():
    for call in (torch.unique, torch.unique_consecutive):
        with pytest.raises(IndexError, match=r"^Dimension specified as -1 but tensor has no dimensions$"):
            call(torch.tensor(3.0), dim=-1)
