"""Every row of the operator table, and its derivative: interpreted as compiled."""

from __future__ import annotations

import pytest

from tests._lazy.interpreter.check import Case, check
from tests._lazy.interpreter.rows import programs, samples
from weft._base.dtype import DTYPES, float8_e8m0fnu
from weft._lazy.interpreter import missing
from weft._lazy.precision import is_half

MISSING = {"igamma_grad_a", "random_gamma"}
"""Primitives that are only compiled. This set only shrinks."""

GROUPS = range(16)
SOME = [group if group % 4 == 0 else pytest.param(group, marks=pytest.mark.soak) for group in GROUPS]


def cases(names, dtypes, *, derivatives):
    for name in names:
        sample = samples()[name]
        is_step = sample.op.impl.__module__.startswith("weft.ops.optimizer")  # its counts and rates are real
        able = [dtype for dtype in dtypes if dtype is None or not (is_step and dtype.is_complex)]
        for program in programs(sample, able, derivatives=derivatives):
            signature = program.signature
            lacking = missing(signature.trace)
            assert lacking <= MISSING
            if not lacking:
                ulps = 16 if any(is_half(output.aval.dtype.numpy) for output in signature.outputs) else 4096
                yield Case(program.name, signature.fn, program.arrays, ulps, False)


@pytest.mark.parametrize("group", SOME)  # tests/oracle has recorded answers for all rows
def test_rows(group):
    check(cases(list(samples())[group :: len(GROUPS)], (None,), derivatives=False))


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:Casting from complex to real")  # rows are tried in types that have no meaning there
@pytest.mark.parametrize("group", GROUPS)
def test_derivatives_and_other_types(group):
    with_zero = [dtype for dtype in DTYPES if dtype is not float8_e8m0fnu]  # which gradients and windows start from
    check(cases(list(samples())[group :: len(GROUPS)], (None, *with_zero), derivatives=True))
