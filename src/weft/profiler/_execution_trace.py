"""The operators of a run as nodes of a graph, in the JSON that PyTorch's execution traces have."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import count
from math import prod
from time import perf_counter_ns
from typing import Any, Self
from weakref import WeakKeyDictionary

from weft._autograd.engine import is_running
from weft._base.pending import watch
from weft._base.scopes import observe_scopes
from weft._base.types import Json
from weft._lazy.aval import Aval
from weft._lazy.value import Value, tick
from weft.ops._strides import row_major
from weft.ops._type_names import c_name
from weft.profiler._callbacks import RecordScope
from weft.profiler._chrome import write_json
from weft.profiler._names import operator_name

_SCHEMA = "1.1.1-chakra.0.0.4"
_NUMBERS = {bool: "Bool", int: "Int", float: "Double", complex: "ComplexDouble"}

Described = tuple[Any, Sequence[int], str, Sequence[int]]
"""Value, shape, type and strides of an operand or a result."""


class _OpenBlocks(threading.local):
    """The blocks that are open in a thread, by the numbers of their nodes."""

    def __init__(self) -> None:
        self.nodes: list[int] = []


class ExecutionTraceObserver:
    """Writes the operators and the blocks of `record_function` of a run to a file, as a graph in JSON.

    `register_callback` says to which file; between `start` and `stop` operators of all threads are noted when they are
    recorded. `profile(execution_trace_observer=...)` calls these two. Each tensor has a number, by which one finds the
    operator that has made it. `op_schema` and the places of storages are not known, and a tensor is its own storage.
    """

    def __init__(self) -> None:
        self._path: str | None = None
        self._ends: tuple[Callable[[], None], ...] = ()
        self._forget()

    def _forget(self) -> None:
        self._numbers = count(2)  # 1 is the process
        self._leaves: WeakKeyDictionary[Value, int] = WeakKeyDictionary()
        self._threads: dict[int, int] = {}
        self._open = _OpenBlocks()
        self._lock = threading.RLock()
        self._start = perf_counter_ns()
        self._nodes = [_node(1, 1, "[pytorch|profiler|execution_trace|process]", 0, RecordScope.USER_SCOPE)]

    @property
    def is_registered(self) -> bool:
        """Whether there is a file to write to."""
        return self._path is not None

    def is_running(self) -> bool:
        """Whether operators are being noted."""
        return bool(self._ends)

    @property
    def _execution_trace_running(self) -> bool:
        return self.is_running()

    def register_callback(self, output_file_path: str | os.PathLike[str]) -> Self:
        """Write to this file, compressed if it ends with `.gz`, from the next `start` on; `OSError` if that fails."""
        if self._path is None:
            self._forget()
            self._write(os.fspath(output_file_path))
            self._path = os.fspath(output_file_path)
        return self

    def get_output_file_path(self) -> str | None:
        """The file, or None without one."""
        return self._path

    def start(self) -> None:
        """Note what is recorded from here on. Nothing happens without a file, or if it is noted already."""
        if self._path is not None and not self._ends:
            self._ends = (watch(self, everywhere=True), observe_scopes(self._begin_block, everywhere=True))

    def stop(self) -> None:
        """Note nothing more, and write the file; `start` goes on."""
        ends, self._ends = self._ends, ()
        for end in ends:
            end()
        if ends and self._path is not None:
            self._write(self._path)

    def unregister_callback(self) -> None:
        """Stop, and let go of the file, which is complete."""
        self.stop()
        self._path = None

    cleanup = unregister_callback

    def _write(self, path: str) -> None:
        now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        head = {"schema": _SCHEMA, "pid": os.getpid(), "time": now, "start_ts": self._start // 1_000_000}
        with self._lock:
            nodes = [*self._nodes]
        write_json(path, {**head, "nodes": nodes, "finish_ts": perf_counter_ns() // 1_000_000})

    # --- called by what records, and by blocks ---

    def distance(self) -> int:
        """Every operator is noted."""
        return 1

    def show(self, value: Value) -> None:
        """Note an operator."""
        if value.origin is None:
            return
        signature = value.origin.signature
        outputs = [output.aval for output in signature.outputs[: signature.main]]
        self._add(
            operator_name(signature),
            RecordScope.BACKWARD_FUNCTION if is_running() else RecordScope.FUNCTION,
            [self._operand(x) for x in value.inputs],
            # they are recorded one after the other
            [_tensor(value.time + at, aval) for at, aval in enumerate(outputs)],
        )

    def _begin_block(self, name: str) -> Callable[[], None]:
        number, blocks = self._add(name, RecordScope.USER_SCOPE), self._open.nodes
        blocks.append(number)
        return lambda: blocks.remove(number)

    def _add(
        self, name: str, scope: RecordScope, inputs: Sequence[Described] = (), outputs: Sequence[Described] = ()
    ) -> int:
        """Add a node within the block that is open in this thread; returns its number."""
        with self._lock:
            thread, number = self._thread(), next(self._numbers)
            around = self._open.nodes[-1] if self._open.nodes else thread
            self._nodes.append(_node(number, around, name, thread, scope, inputs, outputs))
            return number

    def _thread(self) -> int:
        """The number of the node of this thread."""
        native = threading.get_native_id()
        if native not in self._threads:
            number = self._threads[native] = next(self._numbers)
            name = "[pytorch|profiler|execution_trace|thread]"
            self._nodes.append(_node(number, 1, name, number, RecordScope.USER_SCOPE))
        return self._threads[native]

    def _operand(self, x: Value) -> Described:
        if x.aval.weak:
            return x.number, (), _NUMBERS.get(type(x.number), "Scalar"), ()
        if x.origin is not None:
            return _tensor(x.time, x.aval)
        with self._lock:
            return _tensor(self._leaves.setdefault(x, tick()), x.aval)


def _tensor(number: int, aval: Aval) -> Described:
    shape, dtype = aval.shape, aval.dtype
    return (
        [number, number, 0, prod(shape), dtype.itemsize, str(aval.device)],
        list(shape),
        f"Tensor({c_name(dtype)})",
        list(row_major(shape)),
    )


def _node(
    number: int,
    around: int,
    name: str,
    thread: int,
    scope: RecordScope,
    inputs: Sequence[Described] = (),
    outputs: Sequence[Described] = (),
) -> dict[str, Json]:
    attributes: list[tuple[str, str, Any]] = [
        ("rf_id", "uint64", number),
        ("fw_parent", "uint64", 0),
        ("seq_id", "int64", -1),
        ("scope", "uint64", scope.value),
        ("tid", "uint64", thread),
        ("fw_tid", "uint64", 0),
        *[(name, "string", "") for name in ("op_schema", "kernel_backend", "kernel_file", "tensor_range")],
    ]
    return {
        "id": number,
        "name": name,
        "ctrl_deps": around,
        "inputs": _columns(inputs),
        "outputs": _columns(outputs),
        "attrs": [{"name": name, "type": kind, "value": value} for name, kind, value in attributes],
    }


def _columns(entries: Sequence[Described]) -> dict[str, list[Json]]:
    names = ("values", "shapes", "types", "strides")
    return {name: [entry[at] for entry in entries] for at, name in enumerate(names)}
