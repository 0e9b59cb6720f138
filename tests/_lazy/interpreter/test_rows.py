"""Every row of the operator table, and its derivative: interpreted as compiled."""

from __future__ import annotations

import numpy as np
import pytest

from tests._lazy.interpreter.check import Case, check
from tests._lazy.interpreter.rows import programs, samples
from weft._base.dtype import bfloat16, float32
from weft._lazy.interpreter import missing

MISSING = {"igamma_grad_a", "random_gamma"}
"""Primitives that are only compiled."""

GROUPS = 24
LOOSE = {"matrix_exp", "det", "slogdet", "logdet"}
"""Rows whose programs amplify the last bits."""


def cases(names, dtypes):
    for name in names:
        for program in programs(samples()[name], dtypes):
            if lacking := missing(program.closed):
                assert lacking <= MISSING
                continue
            halves = any(o.aval.dtype is bfloat16 for o in program.signature.outputs)
            ulps = 4 if halves else 1e5 if name in LOOSE else 4096
            yield Case(program.name, program.signature.fn, program.arrays, ulps, False)


@pytest.mark.parametrize("group", range(GROUPS))
def test_rows(group):
    check(cases(list(samples())[group::GROUPS], (None,)))


@pytest.mark.soak
@pytest.mark.parametrize("group", range(GROUPS))
def test_rows_in_every_type(group):
    from weft._base.dtype import DTYPES
    check(cases(list(samples())[group::GROUPS], DTYPES))
