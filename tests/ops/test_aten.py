"""PyTorch's operators by name: schemas, which overload takes what, calls, and comparison of names."""

from __future__ import annotations

import pickle

import pytest

import weft
from weft import ops
from weft.ops._aten import FormOfPacket

aten = ops.aten
X = weft.arange(12.0).view(3, 4)


def test_a_schema_says_what_an_operator_takes():
    schema = aten.add.Tensor._schema
    assert str(schema) == "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    assert (schema.name, schema.overload_name) == ("aten::add", "Tensor")
    alpha = schema.arguments[2]
    assert (alpha.name, alpha.type, alpha.default_value, alpha.kwarg_only) == ("alpha", "number", 1, True)
    assert alpha.has_default_value()
    assert not schema.arguments[0].has_default_value()
    assert [x.type for x in schema.returns] == ["Tensor"]


@pytest.mark.parametrize(
    ("overload", "types"),
    [
        (aten.index.Tensor, ["Tensor", "List[Optional[Tensor]]"]),
        (aten.sum.dim_IntList, ["Tensor", "Optional[List[int]]", "bool", "Optional[int]"]),
        (aten.gelu.default, ["Tensor", "str"]),
    ],
)  # fmt: skip
def test_types_are_printed_as_pytorch_prints_them(overload, types):
    assert [x.type for x in overload._schema.arguments] == types


def test_types_of_constants_have_names_of_their_own():
    assert aten.sum.default._schema.arguments[1].real_type == "Optional[ScalarType]"


def test_forms_that_follow_from_others_have_schemas():
    assert str(aten.add_.Tensor._schema) == (
        "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
    )
    out = aten.mm.out._schema
    assert str(out) == "aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)"
    assert out.is_mutable
    assert out.arguments[-1].is_out
    assert not aten.mm.default._schema.is_mutable
    assert aten.t.default._schema.is_view
    assert aten.t.default._schema.returns[0].alias_info.before_set == {"a"}
    assert aten.add.overloads() == ["Tensor", "out", "Scalar", "Scalar_out"]


@pytest.mark.parametrize(
    ("operator", "args", "kwargs", "result"),
    [
        (aten.add.Tensor, (X, X), {"alpha": 2}, 3 * X),
        (aten.add.Tensor, (X, 1), {}, X + 1),
        (aten.sum.dim_IntList, (X, [1], True), {}, X.sum(1, keepdim=True)),
        (aten.sum, (X, 1), {}, X.sum(1)),
        (aten.max, (X, X + 1), {}, X + 1),
        (aten.view, (X, [12]), {}, X.reshape(-1)),
        (aten.slice.Tensor, (X, 1, 1, 9223372036854775807), {}, X[:, 1:]),
        (aten.index.Tensor, (X, [None, weft.tensor([0, 2])]), {}, X[:, [0, 2]]),
        (aten._to_copy, (X,), {"dtype": weft.int32}, X.int()),
        (aten._softmax, (X, 1, False), {}, X.softmax(1)),
        (aten.native_layer_norm, (X, [4], None, None, 1e-5), {}, weft.nn.functional.layer_norm(X, (4,))),
        (aten.mse_loss, (X, X + 2, 2), {}, weft.tensor(48.0)),
        (aten.nll_loss_forward, (X, weft.tensor([0, 1, 2]), None, 1, -100), {}, weft.tensor(-5.0)),
        (aten.empty.memory_format, ([0, 2],), {"dtype": weft.int8, "pin_memory": False}, weft.empty(0, 2).char()),
        (aten.arange.start_step, (0, 6, 2), {}, weft.tensor([0, 2, 4])),
        (aten.linalg_vector_norm, (X,), {}, X.norm()),
        (aten.unfold, (X, 1, 2, 2), {}, X.view(3, 2, 2)),
        (aten.reflection_pad1d, (X, [1, 1]), {}, weft.nn.functional.pad(X, (1, 1), "reflect")),
        (aten.threshold_backward, (X, X - 5, 0), {}, X * (X > 5)),
    ],
)
def test_calls(operator, args, kwargs, result):
    given = operator(*args, **kwargs)
    given = given if isinstance(given, weft.Tensor) else given[0]
    assert given.dtype is result.dtype
    assert weft.equal(given, result)


def test_convolution_is_one_operator():
    x, weight = weft.randn(1, 2, 5, 5), weft.randn(3, 2, 3, 3)
    y = aten.convolution(x, weight, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1)
    assert weft.equal(y, weft.nn.functional.conv2d(x, weight, stride=2, padding=1))
    y = aten.convolution.default(x, weight.transpose(0, 1), None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1)
    assert y.shape == (1, 3, 7, 7)


def test_forms_that_write():
    x, out = X.clone(), weft.empty(3, 4)
    assert aten.add_.Tensor(x, 1) is x
    assert weft.equal(x, X + 1)
    assert aten.add.out(X, X, out=out) is out
    assert weft.equal(out, 2 * X)


def test_a_call_that_no_overload_takes_is_refused():
    with pytest.raises(TypeError, match=r"torch\.ops\.aten\.mm\.default does not take \(Tensor\); expected aten::mm\("):
        aten.mm.default(X)
    with pytest.raises(TypeError, match=r"torch\.ops\.aten\.mm does not take \(Tensor, int\)"):
        aten.mm(X, 1)


def test_a_name_that_is_not_computed_here_can_be_compared_and_not_called():
    assert aten._cudnn_rnn.default is aten._cudnn_rnn.default
    with pytest.raises(TypeError, match=r"aten\._cudnn_rnn is the name of an operator that is not computed here"):
        aten._cudnn_rnn(X)


def test_names_are_objects():
    add = aten.add.Tensor
    assert (add.name(), add.__name__, add.namespace) == ("aten::add.Tensor", "add.Tensor", "aten")
    assert add.overloadpacket is aten.add
    assert str(add) == "aten.add.Tensor"
    assert pickle.loads(pickle.dumps(add)) is add
    assert pickle.loads(pickle.dumps(aten.add)) is aten.add
    table = {aten.add.Tensor: 1, aten.add_.Tensor: 2, aten.add.Scalar: 3, aten.relu: 4, aten.relu_: 5}
    assert len(table) == 5
    assert table[aten.add_.Tensor] == 2


def test_a_form_is_equal_to_all_forms_of_its_operator():
    form = FormOfPacket("add").default
    assert form == aten.add.Tensor == form
    assert form in [aten.add_.Scalar]
    assert {aten.add_.Tensor: 1}[form] == 1
    assert FormOfPacket("scaled_dot_product_attention").default == aten._scaled_dot_product_flash_attention.default
    assert FormOfPacket("mm") == aten.mm != aten.bmm


def test_the_namespace_of_quantized_operators_says_where_functions_are():
    text = r"^'_OpNamespace' 'quantized' object has no attribute 'add': .* in torch\.ao\.nn\.quantized\.QFunctional$"
    with pytest.raises(AttributeError, match=text):
        weft.ops.quantized.add
    assert not hasattr(weft.ops.quantized, "linear_dynamic")
