"""A reader of pickles that executes no code: it builds plain containers, and looks up everything else by name.

It supports the instructions that `torch.save` and Python's pickle write for tensors and plain objects. Memory and time
are proportional to the size of any pickle: copies are counted, and keys are checked before they are hashed.
"""

from __future__ import annotations

from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from pickletools import genops
from typing import IO, ClassVar

from weft._base.dtype import DType
from weft._base.guards import is_plain_list, is_plain_tuple
from weft._base.types import AnyCallable, Arg
from weft._checkpoint.keys import KeyChecker, Unpickled
from weft.errors import CheckpointError, PickleError

Fetch = Callable[[Unpickled], Unpickled]
"""A persistent id -> the tensor, array or storage that it refers to."""

_LITERALS = (
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
)  # fmt: skip
_DAMAGES = (
    ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError,
    Warning,  # pickletools may warn, and a program may turn warnings into errors
)  # fmt: skip
_DICTS = (dict, OrderedDict, Counter, defaultdict)


class Global:
    """A global that a pickle names: `build(*args)` stands for calling it, `new(*args)` for making an object of it.

    `build` is None if both are refused. Without `new`, `build` is used for both. `trusted` is the class or function
    itself, if the program trusts it.
    """

    def __init__(
        self,
        name: str,
        build: AnyCallable | None,
        new: AnyCallable | None = None,
        *,
        trusted: AnyCallable | None = None,
    ) -> None:
        self.name = name
        self.build = build
        self.new = build if new is None else new
        self.trusted = trusted

    def __call__(self, *args: Unpickled) -> Unpickled:
        """What a call stands for, for Python's own reader of pickles."""
        if self.build is None:
            raise PickleError(f"its pickle calls {self.name}, which is nothing to call")
        return self.build(*args)

    def __repr__(self) -> str:
        return self.name


class Unpickler:
    """Rebuilds objects from pickles.

    find      gives the object of a global name such as `torch._utils._rebuild_tensor_v2`, or raises
    stored    gives the object of a persistent id
    set_state sets the state of an object that was built, and returns the object
    named     gives what stands for a class or function that a call has given, if the program trusts it
    keys      checks the keys of containers
    encoding  of Python 2's strings; "bytes" leaves them bytes
    """

    def __init__(
        self,
        find: Callable[[str], Unpickled],
        stored: Callable[[Unpickled], Unpickled],
        set_state: Callable[[Unpickled, Unpickled], Unpickled],
        keys: KeyChecker,
        encoding: str = "utf-8",
        named: Callable[[Unpickled], Unpickled] = lambda x: x,
    ) -> None:
        self._find = find
        self._named = named
        self._stored = stored
        self._set_state = set_state
        self._checked_key = keys.checked
        self._encoding = encoding
        self._stack: list[Unpickled] = []
        self._below: list[list[Unpickled]] = []  # the stacks under each mark
        self._memo: dict[int, Unpickled] = {}

    def load(self, file: IO[bytes]) -> Unpickled:
        """The next object of a file, which is read up to the end of its pickle; `PickleError` if that is invalid."""
        self._stack, self._below, self._memo = [], [], {}
        try:
            for opcode, arg, _ in genops(file):
                step = self._STEPS.get(opcode.name)
                if step is None:
                    raise PickleError(
                        f"its pickle has the instruction {opcode.name}, which neither tensors nor containers need"
                    )
                step(self, arg)
            return self._stack.pop()
        except CheckpointError:
            raise
        except _DAMAGES as error:
            reason = str(error) or type(error).__name__
            raise PickleError(f"its pickle is damaged ({type(error).__name__}: {reason})") from error

    # --- the stack --------------------------------------------------------------------------------------------

    def _push(self, arg: Unpickled) -> None:
        self._stack.append(arg)

    def _push_text(self, arg: str) -> None:
        """Push a string of Python 2, which may hold text or bytes."""
        raw = arg.encode("latin-1")
        self._stack.append(raw if self._encoding == "bytes" else raw.decode(self._encoding))

    def _mark(self, _: object) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _since_mark(self) -> list[Unpickled]:
        items = self._stack
        self._stack = self._below.pop()
        return items

    def _pop(self, _: object) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._stack = self._below.pop()

    def _pop_mark(self, _: object) -> None:
        self._since_mark()

    def _dup(self, _: object) -> None:
        self._stack.append(self._stack[-1])

    def _put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def _memoize(self, _: object) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise ValueError(f"it refers to object {index}, which is not there")
        self._stack.append(self._memo[index])

    # --- containers -------------------------------------------------------------------------------------------

    def _tuple(self, _: object) -> None:
        items = self._since_mark()
        self._stack.append(tuple(items))

    def _tuple_of(self, count: int) -> None:
        items = self._stack[-count:]
        if len(items) < count:
            raise ValueError("a tuple of missing items")
        self._stack[-count:] = [tuple(items)]

    def _list(self, _: object) -> None:
        items = self._since_mark()
        self._stack.append(items)

    def _dict(self, _: object) -> None:
        items = self._since_mark()
        self._stack.append({})
        self._set(items)

    def _frozenset(self, _: object) -> None:
        items = self._since_mark()
        self._stack.append(frozenset(map(self._checked_key, items)))

    def _append(self, _: object) -> None:
        self._extend([self._stack.pop()])

    def _appends(self, _: object) -> None:
        self._extend(self._since_mark())

    def _extend(self, items: list[Unpickled]) -> None:
        target = self._stack[-1]
        if not is_plain_list(target):
            raise PickleError(f"its pickle appends to a {type(target).__name__}")
        target.extend(items)

    def _add_items(self, _: object) -> None:
        items = self._since_mark()
        target: set[Unpickled] = self._stack[-1]
        if type(target) is not set:
            raise PickleError(f"its pickle adds items to a {type(target).__name__}")
        target.update(map(self._checked_key, items))

    def _set_item(self, _: object) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set([key, value], "SETITEM")

    def _set_items(self, _: object) -> None:
        self._set(self._since_mark())

    def _set(self, items: list[Unpickled], instruction: str = "SETITEMS") -> None:
        target = self._stack[-1]
        if type(target) not in _DICTS:
            raise PickleError(
                f"its pickle sets items of a {type(target).__name__}. Can only {instruction} for dict, "
                f"collections.OrderedDict, collections.Counter, but got {type(target)}"
            )
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[self._checked_key(key)] = value

    # --- globals, calls and persistent ids --------------------------------------------------------------------

    def _global(self, arg: str) -> None:
        module, _, name = arg.partition(" ")
        self._stack.append(self._find(_name_today(module, name)))

    def _stack_global(self, _: object) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if type(name) is not str or type(module) is not str:
            raise PickleError("its pickle names a global by something else than strings")
        self._global(f"{module} {name}")

    def _reduce(self, _: object) -> None:
        args, function = self._stack.pop(), self._stack.pop()
        self._stack.append(self._named(_called(function, args, "build")))

    def _new_object(self, _: object) -> None:
        args, kind = self._stack.pop(), self._stack.pop()
        self._stack.append(_called(kind, args, "new"))

    def _build(self, _: object) -> None:
        state = self._stack.pop()
        self._stack[-1] = self._set_state(self._stack[-1], state)

    def _persistent(self, _: object) -> None:
        self._stack.append(self._stored(self._stack.pop()))

    _STEPS: ClassVar[dict[str, Callable[[Unpickler, Arg], None]]] = {
        **dict.fromkeys(_LITERALS, _push),
        **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), _push_text),
        **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda _, __: None),
        "NONE": lambda m, _: m._push(None),
        "NEWTRUE": lambda m, _: m._push(True), "NEWFALSE": lambda m, _: m._push(False),
        "EMPTY_TUPLE": lambda m, _: m._push(()), "EMPTY_LIST": lambda m, _: m._push([]),
        "EMPTY_DICT": lambda m, _: m._push({}), "EMPTY_SET": lambda m, _: m._push(set()),
        "MARK": _mark, "POP": _pop, "POP_MARK": _pop_mark, "DUP": _dup,
        "PUT": _put, "BINPUT": _put, "LONG_BINPUT": _put, "MEMOIZE": _memoize,
        "GET": _get, "BINGET": _get, "LONG_BINGET": _get,
        "TUPLE": _tuple, "LIST": _list, "DICT": _dict, "FROZENSET": _frozenset,
        "TUPLE1": lambda m, _: m._tuple_of(1), "TUPLE2": lambda m, _: m._tuple_of(2),
        "TUPLE3": lambda m, _: m._tuple_of(3),
        "APPEND": _append, "APPENDS": _appends, "ADDITEMS": _add_items,
        "SETITEM": _set_item, "SETITEMS": _set_items, "GLOBAL": _global,
        "STACK_GLOBAL": _stack_global, "REDUCE": _reduce, "NEWOBJ": _new_object,
        "BUILD": _build, "BINPERSID": _persistent,
    }  # fmt: skip


def short_repr(x: object) -> str:
    """An object in the text of an error. A container's own `repr` may take for ever: it may hold itself twice."""
    return repr(x)[:80] if isinstance(x, (str, int, bytes, type(None), Global, DType)) else f"a {type(x).__name__}"


def _called(function: Unpickled, args: Unpickled, how: str) -> Unpickled:
    if type(function) is not Global or getattr(function, how) is None:
        of = getattr(function, "__self__", None)
        advice = "" if of is None else f" (unrecognized function {function} which belongs to {of})"
        raise PickleError(f"its pickle calls {short_repr(function)}, which is nothing to call{advice}")
    if not is_plain_tuple(args):
        raise PickleError(f"its pickle calls {function.name} with a {type(args).__name__} instead of arguments")
    arguments: Sequence[Unpickled] = args if function.trusted is None else [itself(arg) for arg in args]
    return getattr(function, how)(*arguments)


def itself(x: Unpickled) -> Unpickled:
    """The class or function that the program trusts, in place of what stands for it; all else as it is."""
    return x.trusted if isinstance(x, Global) and x.trusted is not None else x


def _name_today(module: str, name: str) -> str:
    """The name of a global, which protocols before 3 give as Python 2 had it."""
    module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
    return f"{module}.{name}"


def globals_named(file: IO[bytes]) -> set[str]:
    """The globals that a pickle names, such as `collections.OrderedDict`; nothing is built."""
    names: set[str] = set()
    memo: dict[int, Unpickled] = {}
    last: list[Unpickled] = [None, None]  # the two objects on top, as far as they are strings
    for opcode, arg, _ in genops(file):
        name = opcode.name
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if arg is None else arg] = last[1]
            continue
        if name == "GLOBAL" or name == "STACK_GLOBAL":
            module, _, called = arg.partition(" ") if arg is not None else (last[0], "", last[1])
            names.add(_name_today(module, called))
        last = [last[1], memo.get(int(arg or 0)) if name in ("GET", "BINGET", "LONG_BINGET") else arg]
    return names
