"""NumPy's names of parameters, which PyTorch accepts as keywords."""

from __future__ import annotations

import pytest

import weft as torch

CALLS = [
    "A.max({dim}=1, {keepdim}=True)[0]",
    "A.cumsum({dim}=0)",
    "A.sum({dim}=0, {keepdim}=True)",
    "torch.softmax(A, {dim}=0)",
    "torch.logsumexp(A, {dim}=0, {keepdim}=True)",
    "torch.var(A, {dim}=0, {keepdim}=True)",
    "torch.var_mean(A, {dim}=1)[1]",
    "torch.unbind(A, {dim}=1)[0]",
    "torch.chunk(A, 2, {dim}=1)[0]",
    "A.unsqueeze({dim}=1)",
    "torch.fft.fft(A, {dim}=0)",
    "torch.linalg.norm(A, {dim}=0, {keepdim}=True)",
]


@pytest.mark.parametrize("call", CALLS)
def test_both_names_are_the_same(call):
    A = torch.arange(6.0).reshape(2, 3)
    ours, theirs = (call.format(dim=dim, keepdim=keep) for dim, keep in (("dim", "keepdim"), ("axis", "keepdims")))
    names = {"torch": torch, "A": A}
    assert eval(theirs, names).tolist() == eval(ours, names).tolist()
