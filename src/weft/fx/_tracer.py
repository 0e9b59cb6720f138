"""The tracer: runs a function or module on proxies, which note in a graph what it does."""

# Graphs, their nodes and what works on them know each other, by names of PyTorch's.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import copy
import inspect
import math
import operator
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from types import CodeType, FunctionType, ModuleType
from typing import Any

from weft._assertions import _assert
from weft._base.guards import is_tuple
from weft._base.overriding import has_handler
from weft._base.own_names import own_form
from weft._base.types import AnyCallable, Arg, Args, AttributeValue, Kwargs, PyTree, Result
from weft._tensor.tensor import Tensor
from weft.errors import OutOfRangeError, PreconditionError, ValueRangeError
from weft.fx._annotations import annotation_of
from weft.fx._wrapping import Patches, first_proxy
from weft.fx.graph import Graph, PyTreeCodeGen, PyTreeInfo
from weft.fx.node import Argument, Node, base_types, has_side_effect
from weft.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase
from weft.nn import _hooks
from weft.nn._containers import Sequential
from weft.nn._module import Module
from weft.nn._parameter import Parameter
from weft.utils import _pytree as pytree
from weft.utils._pytree import is_namedtuple_instance
from weft.utils._pytree.spec import TreeSpec

# no cell: set only while a program is traced
_TRACING: ContextVar[bool] = ContextVar("weft_fx_tracing", default=False)


def is_fx_tracing() -> bool:
    """Whether this thread traces a program."""
    return _TRACING.get()


class PHBase:
    """Stands for an input within the trees that `concrete_args` gives for arguments.

    The node of the input has the attributes of an object of a subclass, where nodes have none of these names.
    """

    def __repr__(self) -> str:
        return "PH"


class PHWithMeta(PHBase):
    """An input whose node has a key, `node.ph_key`."""

    def __init__(self, ph_key: str | None = None) -> None:
        super().__init__()
        self.ph_key = ph_key


PH = PHBase()
"""The usual `PHBase`: `concrete_args={"x": {"a": PH, "b": 3}}`."""


@has_side_effect
def _assert_is_none(value: AttributeValue, msg: str) -> AttributeValue:
    """Raise `AssertionError` unless the value is None. For a proxy, a node that does so."""
    if isinstance(value, Proxy):
        return value.tracer.create_proxy("call_function", _assert_is_none, (value, msg), {})
    if value is not None:
        raise PreconditionError(msg)


class ProxyableClassMeta(type):
    """The metaclass of classes of which a graph can make objects: from proxies, a call of the class is a node."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, AttributeValue]) -> None:
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Arg, **kwargs: Arg) -> Result:
        proxy = first_proxy(args, kwargs)
        if proxy is None or not is_fx_tracing():
            return super().__call__(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", cls, args, kwargs)


class Tracer(TracerBase):
    """Makes a graph of a module or function. `symbolic_trace` does so with this class; subclasses change how.

    A subclass may override `is_leaf_module` (which modules are single nodes), `call_module`, `create_arg`,
    `create_node`, `proxy`, `to_bool`, `iter` and `keys`. The functions of `autowrap_modules`, and
    `autowrap_functions`, are single nodes as if by `wrap`. With `param_shapes_constant` the program may depend on
    shapes of parameters. After `trace`, `node_name_to_scope` says for each node in which module it was made: its path
    and its class.
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., object], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root: Module = Module()
        self.scope = Scope("", None)
        self.module_stack: OrderedDict[str, tuple[str, type]] = OrderedDict()
        self.node_name_to_scope: dict[str, tuple[str, type | None]] = {}
        self.tensor_attrs: dict[Arg, str] = {}
        self._patches = Patches(autowrap_modules, autowrap_functions)
        self._attributes: dict[int, str] = {}
        self._proxies: dict[str, Proxy] = {}

    # --- what subclasses change -------------------------------------------------------------------------------

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether calls of a module are single nodes. By default those of `torch.nn` are, except `Sequential`."""
        del module_qualified_name
        return own_form(m.__module__).startswith(("weft.nn", "weft.ao.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The dotted path of a module below the root; `NameError` if it is not there."""
        paths = self.submodule_paths or {}
        if mod not in paths:
            raise NameError(
                f"module is not installed as a submodule: {type(mod).__name__} is called and no attribute of "
                f"{type(self.root).__name__} or of a module below it; assign it to one"
            )
        return paths[mod]

    def call_module(self, m: Module, forward: AnyCallable, args: Args, kwargs: Kwargs) -> Result:
        """The result of a call of a module: a node if it is a leaf, or what `forward(*args, **kwargs)` returns."""
        path = self.path_of_module(m)
        key = path if path not in self.module_stack else f"{path}@{len(self.module_stack)}"
        self.module_stack[key] = (path, type(m))
        with ScopeContextManager(self.scope, Scope(path, type(m))):
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack.popitem()

    def getattr(self, attr: str, attr_val: AttributeValue, parameter_proxy_cache: dict[str, Proxy]) -> AttributeValue:
        """What the program gets that reads a parameter, buffer or child: a proxy for parameters."""
        is_traced = isinstance(attr_val, Parameter) or (self.proxy_buffer_attributes and isinstance(attr_val, Tensor))
        path = self._attributes.get(id(attr_val)) if is_traced else None
        if path is None:
            return attr_val
        if path not in parameter_proxy_cache:
            options: Kwargs = {}  # only where needed: subclasses may override `create_proxy` without it
            if self.param_shapes_constant and isinstance(attr_val, Parameter):

                def proxy_of(node: Node) -> ParameterProxy:
                    return ParameterProxy(self, node, path, attr_val)

                options["proxy_factory_fn"] = proxy_of
            parameter_proxy_cache[path] = self.create_proxy("get_attr", path, (), {}, **options)
        return parameter_proxy_cache[path]

    def create_node(self, *args: Arg, **kwargs: Arg) -> Node:
        """Add a node to the graph; it notes in which modules the program is (`meta["nn_module_stack"]`)."""
        node = super().create_node(*args, **kwargs)
        self.node_name_to_scope[node.name] = self.scope.module_path, self.scope.module_type
        if self.module_stack:
            node.meta["nn_module_stack"] = copy.copy(self.module_stack)
        return node

    def create_arg(self, a: PyTree) -> Argument:
        """What stands for an object among the arguments of a node.

        Parameters, buffers and modules of the root are uses of its attributes. Other tensors become such attributes,
        called `_tensor_constant0` and so on.
        """
        if isinstance(a, Tensor | Module):
            path = self._attributes.get(id(a))
            if path is None and isinstance(a, Parameter | Module):
                kind = "parameter" if isinstance(a, Parameter) else "module"
                raise NameError(
                    f"{kind} is not a member of this module: a {type(a).__name__} is used that is no attribute of "
                    f"{type(self.root).__name__} or of a module below it; assign it to one"
                )
            return self.create_node("get_attr", self._constant(a) if path is None else path, (), {})
        if is_namedtuple_instance(a) and first_proxy(a) is not None:
            return self.create_node("call_function", type(a), tuple([self.create_arg(part) for part in a]), {})
        # Made while tracing, from no proxy: a constant of the graph.
        if isinstance(type(a), ProxyableClassMeta):
            return self.create_node("get_attr", self._constant(a), (), {})
        return super().create_arg(a)

    def _constant(self, a: PyTree) -> str:
        """The path of an attribute of the root that is this tensor or object."""
        if a not in self.tensor_attrs:
            path = self.get_fresh_qualname(
                "_tensor_constant" if isinstance(a, Tensor) else f"_{type(a).__name__}_constant_"
            )
            setattr(self.root, path, a)
            self.tensor_attrs[a] = path
        return self.tensor_attrs[a]

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name that begins with `prefix`, and that no attribute of the root has."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    # --- tracing ----------------------------------------------------------------------------------------------

    def trace(self, root: Module | AnyCallable, concrete_args: PyTree = None) -> Graph:
        """The graph of what a module or function does.

        `concrete_args` gives values of arguments that the program may decide by. They, and trees of values and `PH`,
        are what the function gets; the generated code checks that later calls have the same values.
        """
        is_module = isinstance(root, Module)
        function: Any = getattr(type(root), self.traced_func_name, None) if is_module else root
        if function is None:
            raise PreconditionError(f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}")
        self.root = root if is_module else Module()
        if not isinstance(inspect.unwrap(function), FunctionType) or has_handler(function):
            kind = "a function of this package" if has_handler(function) else str(function.__class__)
            raise PreconditionError(
                f"Expected FunctionType, got {kind}: what is traced is a module, or a function in Python"
            )
        self.graph = Graph(tracer_cls=type(self))
        code: CodeType = inspect.unwrap(function).__code__
        if not code.co_filename.startswith("<"):  # a file
            self.graph._origin = f" from {code.co_filename}:{code.co_firstlineno} in {code.co_name}"
        self.submodule_paths = {module: path for path, module in self.root.named_modules()}
        self.tensor_attrs = _tensor_attributes(self.root, "")
        members = (*self.root.named_modules(), *self.root.named_buffers(), *self.root.named_parameters())
        self._attributes = {id(member): path for path, member in members}
        self._proxies, self.node_name_to_scope = {}, {}
        token = _TRACING.set(True)
        self._outermost = sys._getframe()
        try:
            with self._patches.applied(), _hooks.intercepting(_Interception(self)):
                fn, args = self.create_args_for_root(function, is_module, concrete_args)
                self._patches.search(inspect.unwrap(function).__globals__)
                result = fn(*args)
                annotation = annotation_of(fn, "return")
                self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=annotation)
        finally:
            _TRACING.reset(token)
            self._outermost = None
            self.submodule_paths = None
        return self.graph

    def create_args_for_root(
        self, root_fn: AnyCallable, is_module: bool, concrete_args: PyTree = None
    ) -> tuple[AnyCallable, list[Arg]]:
        """The function to call, and its arguments: the root if it is a module, and a placeholder for each input."""
        # Parameters are those of the function below decorators, which take `*args`.
        function: Any = inspect.unwrap(root_fn)
        code: CodeType = function.__code__
        names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        if is_module and not names:
            raise OutOfRangeError("``self`` argument cannot be part of *args expansion!")
        fixed: list[Arg] = [self.root] if is_module else []
        names = names[len(fixed) :]
        takes_any = not names and code.co_flags & inspect.CO_VARARGS
        if takes_any and concrete_args and is_tuple(concrete_args):
            return root_fn, [*fixed, *[self._input(f"input_{at}", (), x) for at, x in enumerate(concrete_args)]]
        concrete_args = _by_name(concrete_args, names, function.__name__)
        signature, starred = inspect.signature(function), _starred(code)
        args = [self._placeholder(name, concrete_args, signature, function) for name in names]
        args += [self.create_proxy("placeholder", name, (), {}) for name in starred]
        if starred or code.co_kwonlyargcount:
            # A proxy cannot be unpacked by `*` or `**`; with plain parameters each stands for all that belongs to it.
            root_fn = _with_plain_parameters(function, len(fixed) + len(args))
        leaves, spec = pytree.tree_flatten(tuple(args))
        if concrete_args is None or all(child.is_leaf() for child in spec.children()):
            return root_fn, fixed + args
        return self._flat_function(root_fn, fixed, names, spec), leaves

    def _placeholder(self, name: str, concrete: PyTree, signature: inspect.Signature, function: AnyCallable) -> PyTree:
        """The argument of this name: a proxy, or what `concrete_args` says, with a check in the graph."""
        default = signature.parameters[name].default
        args = () if default is inspect.Parameter.empty else (default,)
        if concrete is None or name not in concrete:
            return self.create_proxy("placeholder", name, args, {}, type_expr=annotation_of(function, name))
        number = 0

        def input_or_value(value: AttributeValue) -> Arg:
            nonlocal number
            # Each leaf of the structure is an input of its own, as the flattened graph takes them.
            number += 1
            proxy = self._input(f"{name}_{number}", args, value)
            if isinstance(value, PHBase):
                return proxy
            text = f"{name} has been specialized to have value {value} but got another value"
            if value is None:
                self.create_proxy("call_function", _assert_is_none, (proxy, text), {})
            elif isinstance(value, base_types) and not isinstance(value, Tensor):
                self.create_proxy("call_function", _assert, (operator.eq(proxy, value), text), {})
            else:
                warnings.warn(
                    f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is "
                    "up to the user to make sure that your inputs match the inputs you specialized the function with.",
                    stacklevel=2,
                )
            return value

        return pytree.tree_map(input_or_value, concrete[name])

    def _input(self, name: str, args: Args, stand_in: object) -> Proxy:
        """A placeholder for what `concrete_args` has there; its node gets the attributes of a `PHBase`."""
        proxy = self.create_proxy("placeholder", name, args, {})
        if isinstance(stand_in, PHBase):
            for attribute in dir(stand_in):
                if not hasattr(proxy.node, attribute):
                    setattr(proxy.node, attribute, getattr(stand_in, attribute))
        return proxy

    def _flat_function(self, function: AnyCallable, fixed: list[Arg], names: list[str], spec: TreeSpec) -> AnyCallable:
        """The function of the leaves of arguments; the graph's code takes the arguments apart, and its result."""

        def flat(*leaves: Arg) -> Result:
            result = function(*fixed, *pytree.tree_unflatten(list(leaves), spec))
            outputs, out_spec = pytree.tree_flatten(result)
            self.graph.set_codegen(PyTreeCodeGen(PyTreeInfo(names, spec, out_spec)))
            return outputs

        return flat


class _Interception:
    """Hands what a program does with modules to its tracer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def module_called(self, module: Module, args: Args, kwargs: Kwargs) -> Result:
        self._tracer._patches.search(getattr(type(module).forward, "__globals__", {}))

        def forward(*args: Arg, **kwargs: Arg) -> Result:
            return _hooks.call_with_hooks(module, args, kwargs)

        return self._tracer.call_module(module, forward, args, kwargs)

    def attribute_read(self, module: Module, name: str, value: AttributeValue) -> AttributeValue:
        del module
        return self._tracer.getattr(name, value, self._tracer._proxies)


def _tensor_attributes(module: Module, prefix: str) -> dict[Tensor, str]:
    """The paths of tensors that are plain attributes of a module and of those below it."""
    own = {value: prefix + name for name, value in module.__dict__.items() if isinstance(value, Tensor)}
    for name, child in module.named_children():
        own |= _tensor_attributes(child, f"{prefix}{name}.")
    return own


def _by_name(concrete_args: PyTree, names: list[str], function: str) -> PyTree:
    """Concrete arguments by the names of parameters; None if there are none."""
    if is_tuple(concrete_args):
        if len(names) != len(concrete_args):
            raise OutOfRangeError(
                f"Tracing expected {len(names)} arguments but got {len(concrete_args)} concrete arguments"
            )
        return dict(zip(names, concrete_args, strict=True))
    if concrete_args and (unknown := set(concrete_args).difference(names)):
        raise ValueRangeError(f"concrete_args: {function} has no parameter {min(unknown)!r}, but {names}")
    return concrete_args


def _starred(code: CodeType) -> list[str]:
    """The parameters `*args` and `**kwargs` of a function, with their stars."""
    stars = [("*", inspect.CO_VARARGS), ("**", inspect.CO_VARKEYWORDS)]
    names = iter(code.co_varnames[code.co_argcount + code.co_kwonlyargcount :])
    return [mark + next(names) for mark, flag in stars if code.co_flags & flag]


def _with_plain_parameters(function: FunctionType, count: int) -> FunctionType:
    """The same function with `*args` and `**kwargs` as parameters like others, so that they can be proxies."""
    flags = function.__code__.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    code = function.__code__.replace(co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=flags)
    plain = FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)
    plain.__dict__.update(function.__dict__)
    return plain
