"""`Library`, schemas, and the parts of operators that are registered one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import weft
from weft import Tensor, library
from weft.library import Library, custom_op, infer_schema, opcheck


@pytest.fixture
def lib():
    with library._scoped_library("scoped", "DEF") as made:
        yield made


# --- names ----------------------------------------------------------------------------------------------------------


@custom_op("library_tests::sine", mutates_args=())
def sine(x: Tensor) -> Tensor:
    return weft.from_numpy(np.sin(x.numpy()))


sine.register_fake(weft.empty_like)


def test_operators_are_found_by_name():
    packet = weft.ops.library_tests.sine
    x = weft.randn(3)
    assert weft.equal(packet(x), sine(x))
    assert weft.equal(packet.default(x), sine(x))
    assert (str(packet), repr(packet)) == ("library_tests.sine", "<OpOverloadPacket(op='library_tests.sine')>")
    assert (str(packet.default), packet.default.name()) == ("library_tests.sine.default", "library_tests::sine")
    assert repr(packet.default) == "<OpOverload(op='library_tests.sine', overload='default')>"
    assert packet.default._schema == "library_tests::sine(Tensor x) -> Tensor"
    assert "sine" in dir(weft.ops.library_tests)


@pytest.mark.parametrize(
    ("look", "text"),
    [
        (lambda: weft.ops.nobodys.name, "'_OpNamespace' 'nobodys' does not exist: no operators were defined in it"),
        (lambda: weft.ops.library_tests.tan, "'_OpNamespace' 'library_tests' object has no attribute 'tan'"),
        (lambda: weft.ops.library_tests.sine.out, "of 'library_tests.sine' has no overload name 'out'"),
    ],
)
def test_names_that_are_not_there(look, text):
    with pytest.raises(AttributeError, match=text):
        look()


# --- Library --------------------------------------------------------------------------------------------------------


def test_a_library_defines_and_implements(lib):
    assert lib.define("scale(Tensor x, float by=2.0, *, int? plus=None) -> Tensor") == "scale"
    lib.impl("scale", lambda x, by=2.0, *, plus=None: x * by + (plus or 0), "CPU")
    x = weft.ones(2)
    assert weft.ops.scoped.scale(x).tolist() == [2, 2]
    assert weft.ops.scoped.scale(x, by=3).tolist() == [3, 3]
    assert weft.ops.scoped.scale(x, 3.0, plus=1).tolist() == [4, 4]
    with pytest.raises(TypeError, match="argument 'by' must be float, not str"):
        weft.ops.scoped.scale(x, "two")


def test_overloads_are_tried_in_order(lib):
    lib.define("over.Tensor(Tensor x, Tensor y) -> Tensor")
    lib.define("over.Scalar(Tensor x, Scalar y) -> Tensor")
    lib.impl("over.Tensor", lambda x, y: x + y)
    lib.impl("over.Scalar", lambda x, y: x * y)
    x, over = weft.ones(2), weft.ops.scoped.over
    assert (over(x, x).tolist(), over(x, 3).tolist(), over.Scalar(x, 5).tolist()) == ([2, 2], [3, 3], [5, 5])
    assert over.overloads() == ["Tensor", "Scalar"]
    assert over.Scalar.name() == "scoped::over.Scalar"


def test_a_kernel_for_gradients_comes_first(lib):
    class Twice(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return weft.ops.scoped.twice(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * 5

    lib.define("twice(Tensor x) -> Tensor")
    lib.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
    lib.impl("twice", Twice.apply, "Autograd")
    x = weft.ones(2, requires_grad=True)
    out = weft.ops.scoped.twice(x)
    out.sum().backward()
    assert (out.tolist(), x.grad.tolist()) == ([2, 2], [5, 5])


def test_what_a_schema_marks_is_written_to(lib):
    lib.define("add_one_(Tensor(a!) x) -> ()")

    def add_one(x):
        x.add_(1)

    lib.impl("add_one_", add_one, "CompositeExplicitAutograd")
    x = weft.zeros(1)
    assert weft.ops.scoped.add_one_(x) is None
    assert x.tolist() == [1]


def test_fallthrough_sets_no_kernel(lib):
    lib.define("through(Tensor x) -> Tensor")
    lib.impl("through", lambda x: x + 1, "CompositeImplicitAutograd")
    lib.impl("through", library.fallthrough_kernel, "CPU")
    assert weft.ops.scoped.through(weft.zeros(1)).item() == 1
    with pytest.raises(NotImplementedError, match="should never be called"):
        library.fallthrough_kernel()


def test_kernels_are_replaced_only_on_purpose(lib):
    lib.define("one(Tensor x) -> Tensor")
    lib.impl("one", weft.sin, "CPU")
    with pytest.raises(RuntimeError, match="already a kernel registered from python overriding scoped::one's behavior"):
        lib.impl("one", weft.cos, "CPU")
    lib.impl("one", weft.cos, "CPU", allow_override=True)
    assert weft.ops.scoped.one(weft.zeros(1)).item() == 1


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda lib: Library("scoped", "DEF"), RuntimeError, r"^Only a single Library\('scoped', 'DEF'\) can exist"),
        (lambda lib: Library("scoped", "ALL"), ValueError, "^Unsupported library type: ALL"),
        (lambda lib: Library("prim", "FRAGMENT"), ValueError, "^'prim' is no namespace for libraries"),
        (lambda lib: Library("scoped", "IMPL").define("a() -> Tensor"), RuntimeError, "kind IMPL defines no operators"),
        (lambda lib: lib.define("known(Tensor x) -> Tensor"), RuntimeError, "with the same name twice$"),
        (lambda lib: lib.define("other::a(Tensor x) -> Tensor"), ValueError, "an operator of the namespace 'scoped'"),
        (lambda lib: lib.define("a Tensor x"), RuntimeError, "^expected a schema such as"),
        (
            lambda lib: lib.define("a(Matrix x) -> Tensor"),
            RuntimeError,
            "such as 'Tensor x' or 'int n=1', got 'Matrix x'",
        ),
        (lambda lib: lib.define("a(Tensor x, int n=1+) -> Tensor"), RuntimeError, "^a default is None, a bool"),
        (lambda lib: lib.define("a(Tensor x) -> Tensor", "SOME"), RuntimeError, "^Invalid alias_analysis type SOME$"),
        (lambda lib: lib.impl("unknown", abs), RuntimeError, "^operator scoped::unknown does not exist"),
        (lambda lib: lib.impl("other::known", abs), RuntimeError, "has operators of the namespace 'scoped' only"),
        (lambda lib: lib.impl("known", 3), ValueError, "required to be a callable but found type <class 'int'>"),
        (lambda lib: lib.impl("known", abs, "Functionalize"), NotImplementedError, "no dispatch key 'Functionalize'"),
        (lambda lib: lib.impl("known", abs, with_keyset=True), NotImplementedError, "no sets of dispatch keys"),
        (lambda lib: lib.fallback(abs, "CPU"), NotImplementedError, "no kernel can be set for all operators at once"),
        (
            lambda lib: weft.ops.scoped.known(weft.ones(1)),
            NotImplementedError,
            "'scoped::known' with arguments from the 'CPU'",
        ),
        (lambda lib: library.define("scoped::b", "b(Tensor x) -> Tensor"), ValueError, "expected a schema like"),
        (lambda lib: library.define("b", "(Tensor x) -> Tensor"), ValueError, "of the form namespace::name, got 'b'"),
        (lambda lib: library.triton_op("a::b", mutates_args=()), NotImplementedError, "jax's Pallas"),
        (lambda lib: library.wrap_triton(abs), NotImplementedError, "jax's Pallas"),
        (lambda lib: library.get_ctx().new_dynamic_size(), NotImplementedError, "XLA's programs have known sizes"),
        (lambda lib: sine.register_torch_dispatch(dict), NotImplementedError, "__torch_function__ in the class"),
        (lambda lib: opcheck(sine, (), test_utils="test_luck"), ValueError, r"unknown tests \['test_luck'\]"),
    ],
)
def test_mistakes_are_named(lib, call, error, text):
    lib.define("known(Tensor x) -> Tensor")
    with pytest.raises(error, match=text):
        call(lib)


def test_a_namespace_cannot_hide_a_module():
    def body(x: Tensor) -> Tensor:
        return x

    with pytest.raises(
        RuntimeError, match=r"^linalg::a: the namespace 'linalg' is one of weft\.ops itself; choose another$"
    ):
        custom_op("linalg::a", body)


def test_a_library_that_ends_takes_its_operators_away():
    with library._scoped_library("short", "DEF") as lib:
        lib.define("a(Tensor x) -> Tensor")
        assert weft.ops.short.a
    with pytest.raises(AttributeError):
        _ = weft.ops.short.a


# --- parts by name --------------------------------------------------------------------------------------------------


def test_an_operator_is_put_together_by_name(lib):
    library.define("scoped::tangent", "(Tensor x) -> Tensor", lib=lib)

    @library.impl("scoped::tangent", "cpu")
    def _(x):
        return weft.from_numpy(np.tan(x.numpy()))

    @library.register_fake("scoped::tangent")
    def _(x):
        return weft.empty_like(x)

    library.register_autograd(
        "scoped::tangent",
        lambda ctx, grad: grad * (1 + ctx.saved_tensors[0] ** 2),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
    )
    library.register_autocast("scoped::tangent", "cpu", weft.bfloat16)
    x = weft.tensor([0.5, 1.0], dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradcheck(weft.ops.scoped.tangent, (x,))
    np.testing.assert_allclose(weft.ops.scoped.tangent(x).detach().numpy(), np.tan([0.5, 1.0]))
    with weft.autocast("cpu"):
        assert weft.ops.scoped.tangent.default.operator.row.types.autocast.cpu is weft.bfloat16
    assert set(opcheck(weft.ops.scoped.tangent, (x,)).values()) == {"SUCCESS"}
    assert library.get_kernel("scoped::tangent", "CPU")(None, weft.zeros(1)).item() == 0


def test_kernels_for_devices_are_switched():
    @custom_op("library_tests::which", mutates_args=())
    def which(x: Tensor) -> Tensor:
        return weft.zeros(1)

    x = weft.ones(1)
    assert which(x).item() == 0

    @which.register_kernel("cpu")
    def _(x):
        return weft.ones(1)

    assert which(x).item() == 1
    with which.set_kernel_enabled("cpu", enabled=False):
        assert which(x).item() == 0
    assert which(x).item() == 1
    which.set_kernel_enabled("cpu", False)
    assert which(x).item() == 0

    elsewhere = custom_op("library_tests::elsewhere", which.__wrapped__, mutates_args=(), device_types="cuda")
    with pytest.raises(NotImplementedError, match=r"from the 'CPU' backend: it has kernels for cuda; register"):
        elsewhere(x)


def test_a_rule_batches():
    calls = []

    @custom_op("library_tests::mul", mutates_args=())
    def mul(x: Tensor, y: Tensor) -> Tensor:
        return weft.tensor(x.numpy() * y.numpy())

    mul.register_fake(lambda x, y: weft.empty_like(x))

    @mul.register_vmap
    def _(info, in_dims, x, y):
        calls.append((info.batch_size, in_dims))
        x = x.unsqueeze(-1) if in_dims[0] is None else x.movedim(in_dims[0], -1)
        y = y.unsqueeze(-1) if in_dims[1] is None else y.movedim(in_dims[1], -1)
        return x * y, -1

    x, y = weft.arange(6.0).reshape(2, 3), weft.arange(3.0)
    assert weft.vmap(mul)(x, x).tolist() == (x * x).tolist()
    assert weft.vmap(mul, (0, None))(x, y).tolist() == (x * y).tolist()
    assert weft.vmap(mul, (1, 0))(x, y).tolist() == (x.T * y.unsqueeze(1)).tolist()
    assert calls == [(2, (0, 0)), (2, (0, None)), (3, (0, 0))]


def test_a_bad_rule_is_named():
    @custom_op("library_tests::ruled", mutates_args=())
    def ruled(x: Tensor) -> Tensor:
        return x + 1

    ruled.register_vmap(lambda info, in_dims, x: x)
    with pytest.raises(
        RuntimeError, match=r"^library_tests::ruled: the rule of register_vmap must return .*, got a Tensor"
    ):
        weft.vmap(ruled)(weft.ones(2))


def test_operators_of_subclasses_are_overridden():
    class Logged(Tensor):
        names = []  # noqa: RUF012

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.names.append(weft.overrides.resolve_name(func))
            return super().__torch_function__(func, types, args, kwargs)

    x = weft.ones(1).as_subclass(Logged)
    assert type(weft.ops.library_tests.sine(x)) is Logged
    assert type(sine(x)) is Logged
    assert Logged.names == ["library_tests.sine", "library_tests.sine.default"]


# --- opcheck --------------------------------------------------------------------------------------------------------


def test_opcheck_finds_faults():
    @custom_op("library_tests::shares", mutates_args=(), device_types=None)
    def fine(x: Tensor) -> Tensor:
        return x * 2

    fine.register_fake(lambda x: weft.empty(3))
    outcome = opcheck(fine, (weft.ones(2),), raise_exception=False)
    assert str(outcome.pop("test_faketensor")).endswith("gives float32[2], and its fake says float32[3]")
    assert set(outcome.values()) == {"SUCCESS"}
    with pytest.raises(AssertionError, match="its fake says"):
        opcheck(fine, (weft.ones(2),))

    @custom_op("library_tests::no_formula", mutates_args=())
    def no_formula(x: Tensor) -> Tensor:
        return weft.from_numpy(x.numpy() + 1)

    no_formula.register_fake(weft.empty_like)
    outcome = opcheck(no_formula, (weft.ones(2, requires_grad=True),), raise_exception=False)
    assert "no autograd formula was registered" in str(outcome["test_autograd_registration"])


# --- schemas --------------------------------------------------------------------------------------------------------


def several(
    x: Tensor, y: list[Tensor], z: Tensor | None = None, n: int = 3, *, s: str = "a", d: weft.dtype | None = None
) -> tuple[Tensor, Tensor]: ...
def numbers(
    x: Tensor, a: float = 1.5, b: bool = True, c: Sequence[int] = (1, 2), e: int | float | bool = 2
) -> None: ...
def bare(x): ...
def table(x: dict) -> Tensor: ...
def starred(*x: Tensor) -> Tensor: ...


@pytest.mark.parametrize(
    ("function", "mutates", "schema"),
    [
        (
            several,
            ("x",),
            '(Tensor(a0!) x, Tensor[] y, Tensor? z=None, SymInt n=3, *, str s="a", ScalarType? d=None) -> '
            "(Tensor, Tensor)",
        ),
        (numbers, (), "(Tensor x, float a=1.5, bool b=True, SymInt[] c=[1, 2], Scalar e=2) -> ()"),
        (numbers, "unknown", "(Tensor(a0!) x, float a=1.5, bool b=True, SymInt[] c=[1, 2], Scalar e=2) -> ()"),
    ],
)
def test_schemas_of_functions(function, mutates, schema):
    assert infer_schema(function, mutates_args=mutates) == schema
    assert infer_schema(function, mutates_args=mutates, op_name="foo") == f"foo{schema}"


@pytest.mark.parametrize(
    ("function", "mutates", "text"),
    [
        (bare, (), r"^infer_schema\(func\): Parameter x must have a type annotation\. Got func with signature \(x\)$"),
        (table, (), "Parameter x has unsupported type <class 'dict'>"),
        (starred, (), "We do not support positional-only args, varargs, or varkwargs"),
        (several, ("q",), r"\['q'\] are no parameters"),
        (several, ("n",), "only Tensors can be mutated"),
    ],
)
def test_functions_without_schemas(function, mutates, text):
    with pytest.raises(ValueError, match=text):
        infer_schema(function, mutates_args=mutates)


def test_a_schema_in_place_of_annotations():
    def body(x, n=2):
        return x * n

    operator = custom_op("library_tests::by_schema", body, mutates_args=(), schema="(Tensor x, int n=2) -> Tensor")
    assert operator(weft.ones(1)).item() == 2
    assert operator.schema == "library_tests::by_schema(Tensor x, int n=2) -> Tensor"


def test_rules_may_be_stated_before_the_operator_is_there():
    @library.register_fake("early::twice")
    def shape(x):
        return weft.empty_like(x)

    library.register_autograd("early::twice", lambda ctx, grad: grad * 2)

    @library.custom_op("early::twice", mutates_args=())
    def twice(x: weft.Tensor) -> weft.Tensor:
        return weft.tensor(x.detach().numpy() * 2)

    x = weft.ones(3, requires_grad=True)
    weft.ops.early.twice(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
