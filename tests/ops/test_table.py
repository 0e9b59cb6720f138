"""What must hold for each row of the operator table.

That split runs equal the whole run, as the dim rule says, is tested in `tests/distributed/tensor/test_operators.py`.
"""

from __future__ import annotations

import inspect
import re
import traceback
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import weft
from tests.samples import Sample, sample_of
from weft._tensor import assemble
from weft._tensor.assemble import PUBLIC
from weft._tensor.codegen import function_of
from weft.errors import ShapeError, WeftError
from weft.ops import slicing
from weft.ops._kinds import TENSOR_KINDS
from weft.ops._table import TABLE, Promote, defop

NO_RULE: set[str] = set()
"""Rows whose dims carry no names and no shardings: none."""

STEPS = ("weft.ops.optimizer", "weft.ops.optimizer_adam", "weft.ops.optimizer_scaling")
"""Files of rows that take a whole list of parameters, of any shapes."""

NO_SAMPLE: set[str] = set()
"""Rows with a rule that nothing below looks at. This set only shrinks."""

NO_LETTERS = {"arange", "linspace", "logspace", "randperm", "tril_indices", "triu_indices"}
"""Factories whose rule does not know how many dims they make. This set only shrinks."""

ROWS = [name for name, op in TABLE.items() if op.impl.__module__ not in STEPS]


def outputs_of(sample: Sample, arrays):
    """The operator's own outputs on flat tensor inputs, as a tuple."""
    args, kwargs = sample.arguments(arrays)
    found = sample.op.impl(*args, **kwargs)
    listed = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    return listed[: len(listed) - sample.op.derivative.aux]


def factors_of(sample: Sample):
    return sample.op.dims([a.shape for a in sample.arrays], sample.static)


def test_rows_without_a_rule_only_get_fewer():
    assert {name for name, op in TABLE.items() if op.dims is None} == NO_RULE


def test_rows_without_a_sample_only_get_fewer():
    lacking = {name for name in ROWS if sample_of(TABLE[name]) is None}
    assert lacking == NO_SAMPLE, f"give {sorted(lacking - NO_SAMPLE)} entries in GIVEN of tests/samples.py"


@pytest.mark.parametrize("name", [name for name in ROWS if name not in NO_SAMPLE])
def test_the_letters_of_the_rule_fit_the_shapes(name):
    sample = sample_of(TABLE[name])
    factors = factors_of(sample)
    outputs = jax.eval_shape(lambda arrays: outputs_of(sample, arrays), sample.arrays)
    assert [len(dims) for dims in factors.ins] == [a.ndim for a in sample.arrays]
    assert ([len(dims) for dims in factors.outs] == [o.ndim for o in outputs]) is (sample.op.name not in NO_LETTERS)
    sizes: dict = {}
    for dims, array in zip(factors.ins, sample.arrays, strict=True):
        for letter, size in zip(dims, array.shape, strict=True):
            assert sizes.setdefault(letter, size) in (size, 1) or size == 1, f"{letter!r} has two sizes"
            sizes[letter] = max(sizes[letter], size)
    for dims in factors.outs:
        assert len(set(dims)) == len(dims), "an output has a letter twice"


@pytest.mark.parametrize("op", TABLE.values(), ids=TABLE)
def test_a_row_is_well_formed(op):
    names = [p.name for p in op.params]
    assert op.doc or op.impl.__doc__, "a row says what it computes"
    assert len(set(names)) == len(names)
    assert callable(op.shards.partial) or op.shards.partial in ("", "sum", "avg", "prod", "min", "max")
    assert op.shards.linear in ("", "first", "each", "all")
    assert bool(op.check.elements) == bool(op.check.text), "a check says what is wrong"
    takes_tensors = any(p.kind in TENSOR_KINDS for p in op.params)
    assert op.types.promote is Promote.NONE or takes_tensors
    assert op.public.factory is not takes_tensors, "what takes no tensor makes one"
    assert op.public.module not in op.public.also
    assert not (op.public.attribute and op.public.method)
    assert op.public.inplace or not op.public.inplace_argument
    if op.check.elements is not None:
        inspect.signature(op.check.elements).bind(**dict.fromkeys(names))
    if op.view is not None and op.view.write is not None:
        assert list(inspect.signature(op.view.write).parameters)[2:] == names[1:]


def test_public_functions_are_found_by_name():
    assert PUBLIC[""]["add"] is weft.add
    assert all(callable(function) for functions in PUBLIC.values() for function in functions.values())


def test_a_name_has_one_row():
    with pytest.raises(ValueError, match=r"^operator 'add' has two rows; give one of them another name$"):
        defop("add")(TABLE["add"].impl)


def test_a_body_has_annotations_as_text():
    def body(x):
        return x

    with pytest.raises(TypeError, match=r"body: parameter 'x' has no annotation; kinds are read off them$"):
        defop("no_such_row")(body)
    body.__annotations__ = {"x": int}
    with pytest.raises(TypeError, match=r"must use `from __future__ import annotations`: kinds are read off them$"):
        defop("no_such_row")(body)
    body.__annotations__ = {"x": "Operands"}
    with pytest.raises(TypeError, match=r"body: parameter 'x' has the annotation 'Operands', which is none of Array, "):
        defop("no_such_row")(body)
    assert "no_such_row" not in TABLE


def test_a_row_is_exported_by_a_module_that_exists():
    with pytest.raises(TypeError, match=r"^no_such_row: no module 'nn.functionals' exports rows; the modules are ''"):
        assemble._publish("nn.functionals", "no_such_row", lambda: None)


def test_shapes_are_refused_by_the_rule():
    with pytest.raises(ShapeError, match="must match the size of tensor b"):
        TABLE["add"].dims([(2,), (3,)], {})


def test_the_row_that_the_documentation_adds(monkeypatch):
    page = (Path(weft.__file__).parents[2] / "CONTRIBUTING.md").read_text()
    (block,) = re.findall(r"```python\n(def _entry_dims.*?)```", page, re.DOTALL)
    monkeypatch.setattr("weft.ops._table.TABLE", dict(TABLE))
    scope = dict(vars(slicing))
    exec(compile(f"from __future__ import annotations\n{block}", "<documented>", "exec"), scope)
    entry = function_of(scope["entry"])
    x = weft.arange(6.0).reshape(3, 2)
    part = entry(x, 1)
    assert (part.tolist(), part.stride(), part.storage_offset(), part._base is x._base) == ([2, 3], (1,), 2, True)
    part.fill_(9)
    assert x.tolist() == [[0, 1], [9, 9], [4, 5]]
    assert entry(x, weft.tensor(2)).tolist() == [4, 5]
    with pytest.raises(IndexError, match=r"^entry\(\): index 3 is out of bounds for dimension 0 with size 3"):
        entry(x, 3).tolist()
    x.requires_grad_()
    entry(x, 2).sum().backward()
    assert x.grad.tolist() == [[0, 0], [0, 0], [1, 1]]


def _mistaken(compute):
    """The function of a row that computes this."""
    return function_of(replace(TABLE["neg"], name="mistaken", impl=compute))


def _twice(x):
    return jnp.add(x, x)


MISTAKES = {
    "name": (lambda x: no_such_name(x), NameError, "no_such_name"),  # noqa: F821
    "attribute": (lambda x: x.shapes, AttributeError, "has no attribute shapes"),
    "number of arguments": (lambda x: _twice(x, x), TypeError, "takes 1 positional argument but 2 were given"),
    "number of jax's arguments": (lambda x: jnp.add(x), TypeError, "missing 1 required positional argument: 'y'"),
    "within a function that jax calls": (lambda x: jax.vmap(lambda row: _twice())(x), TypeError, "missing 1 required"),
    "a decision by a value": (lambda x: x if x.sum() else -x, jax.errors.TracerBoolConversionError, "Attempted bool"),
    "another": (lambda x: {}[x.shape], KeyError, "2, 3"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_body_is_no_error_of_its_inputs(name):
    compute, kind, text = MISTAKES[name]
    with pytest.raises(kind, match=text) as caught:
        _mistaken(compute)(weft.ones(2, 3))
    assert not isinstance(caught.value, WeftError)
    assert compute.__code__ in [frame.f_code for frame, _ in traceback.walk_tb(caught.value.__traceback__)]


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: jnp.matmul(x, x),
        lambda x: lax.add(x, jnp.ones(7)),
        lambda x: jax.vmap(lambda row: lax.concatenate([row, x], 0))(x),
        lambda x: jnp.bitwise_and(x, x),
    ],
    ids=["matmul", "add", "within vmap", "types"],
)
def test_what_jax_refuses_is_said_of_the_inputs(compute):
    with pytest.raises(WeftError, match=r"^mistaken\(\): cannot be applied to \(float32\[2, 3\]\): "):
        _mistaken(compute)(weft.ones(2, 3))
