"""`weft.compiler`: a function can ask whether it is recorded."""

from __future__ import annotations

import weft as torch
from weft import jit
from weft.compiler import is_compiling, is_dynamo_compiling, is_exporting
from weft.export import export


def asked(found):
    def function(x):
        found.append((is_compiling(), is_dynamo_compiling(), is_exporting(), jit.is_tracing()))
        return x + 1

    return function


def test_it_knows_who_records():
    found = []
    asked(found)(torch.ones(2))
    torch.compile(lambda x: (x, is_compiling(), is_exporting()))(torch.ones(2))
    export(asked(found), (torch.ones(2),))
    assert found == [(False,) * 4, (True,) * 4]
    assert torch.compile(lambda x: (x, is_compiling(), is_exporting()))(torch.ones(2))[1:] == (True, False)


def test_in_a_branch():
    found = []
    export(lambda x: torch.cond(x.sum() > 0, asked(found), torch.neg, (x,)), (torch.ones(2),))
    assert found == [(True,) * 4]
