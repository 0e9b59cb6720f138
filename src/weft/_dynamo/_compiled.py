"""Functions that a backend of the user's compiles: it gets graphs, and what it returns is called in their place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from weft._base.cell import settings
from weft._base.logs import ARTIFACTS
from weft._base.site import warn_user
from weft._base.state import ambient
from weft._base.types import AnyCallable, Arg, Args, Kwargs, Result
from weft._dynamo import config
from weft._dynamo._adopt import adopt
from weft._dynamo._backends import lookup_backend
from weft._dynamo._calls import graph_of
from weft._dynamo._counters import counters
from weft._dynamo._names import names_of_inputs
from weft._dynamo._recorder import GraphBreak, Recorder, Recording, Undone
from weft._dynamo.exc import BackendCompilerFailed, FailOnRecompileLimitHit, RecompileError, Unsupported
from weft._tensor.compile.compiled import Compiled, is_watched
from weft._tensor.compile.stance import Stance
from weft._tensor.tensor import Tensor
from weft.errors import CompileError, PreconditionError
from weft.fx.graph_module import GraphModule
from weft.nn._module import Module

_recompiles, _graph_breaks = (logging.getLogger(ARTIFACTS[name]) for name in ("recompiles", "graph_breaks"))

Backend = Callable[..., AnyCallable]
"""Gets a graph module and its inputs, and returns what computes the same, for these and for other inputs like them."""


class _CompiledGraph:
    """What a backend has returned for a graph, and the numbers of those inputs that the graph uses."""

    def __init__(self, function: AnyCallable, inputs: Sequence[int]) -> None:
        self._function = function
        self._inputs = inputs

    def __call__(self, inputs: Sequence[Tensor]) -> Result:
        return self._function(*[inputs[number] for number in self._inputs])


class BackendCompiled(Compiled):
    """A function whose graphs are compiled by a backend.

    Its Python code runs in every call, and is recorded. The backend gets each graph that has not occurred before: with
    other operators, constants or modes, or other kinds of inputs. `breaks` are the ends of graphs in the last call.
    """

    def __init__(self, function: AnyCallable, fullgraph: bool, backend: object, options: Kwargs | None = None) -> None:
        super().__init__(function, fullgraph)
        self.__dict__.update(_backend=backend, _options=options or {}, breaks=[], _compiled_at={})

    def _called(self, args: Args, kwargs: Kwargs) -> Result:
        if is_watched(ambient()) or Stance.current == "force_eager" or config.disable:
            return self._function(*args, **kwargs)
        call = _Call(self, args, kwargs)
        self.__dict__["breaks"] = call.recorder.breaks
        return call.recorder.run(self._function, args, kwargs)

    def reset(self) -> None:
        """Forget all graphs."""
        super().reset()
        self._compiled_at.clear()

    def __reduce__(self) -> str | Args:
        named = super().__reduce__()
        return named if isinstance(named, str) else (
            BackendCompiled, (self._function, self._fullgraph, self._backend, self._options)
        )  # fmt: skip


class _Call:
    """One call: it takes the recordings in turn."""

    def __init__(self, function: Arg, args: Args, kwargs: Kwargs) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._position = 0  # of the next graph in the call
        self.recorder = Recorder(self._take, self._refusal if function._fullgraph else None)

    def _refusal(self, one: GraphBreak) -> Exception:
        name, at = self._function._name, one.user_stack
        location = f" at {at[0].filename}:{at[0].lineno}" if at else ""
        return Unsupported(
            f"{name}: the function {one.reason}{location}, so it is no single graph; move that out of it, or compile "
            "with fullgraph=False",
            real_stack=at,
        )

    def _take(self, recording: Recording) -> None:
        """Compute a recording by what the backend makes of it, unless there is a reason to leave it as it is."""
        position, self._position = self._position, self._position + 1
        for one in self.recorder.breaks[position:]:
            counters["graph_break"][one.reason] += 1
            _graph_breaks.debug("%s %s; a graph ends there", self._function._name, one.reason)
        if recording.spoilt:
            self._function._warn_once("spoilt", f"a part of {self._function._name} runs as Python: {recording.spoilt}")
            return
        living = recording.living()
        results = [at for _, at in living]
        key = (
            *[call.key for call in recording.calls],
            *[kind for _, _, kind in recording.inputs],
            tuple(results), ambient().grad, ambient().inference, ambient().autocast, settings(),
        )  # fmt: skip
        entries = self._function._entries
        if key not in entries and not self._may_compile(position):
            return
        undone = Undone(recording)
        inputs = [tensor for tensor, _, _ in recording.inputs]
        try:
            if key not in entries:
                entries[key] = self._compiled(recording, results, inputs)
            if entries[key] is None:
                undone.redo()
                return
            outputs = entries[key](inputs)
            _require_outputs(self._function, outputs, len(results))
        except BaseException:
            undone.redo()
            raise
        adopt([tensor for tensor, _ in living], outputs, inputs)

    def _may_compile(self, position: int) -> bool:
        function = self._function
        count = function._compiled_at.get(position, 0)
        if count and Stance.current == "fail_on_recompile":
            raise CompileError(f"Detected recompile when torch.compile stance is 'fail_on_recompile': {function._name}")
        if count and config.error_on_recompile:
            raise RecompileError(f"{function._name} needs another graph, and config.error_on_recompile is set")
        if Stance.current == "eager_on_recompile":
            return False
        if count >= config.recompile_limit:
            text = f"{function._name} has needed {count} graphs, which is config.recompile_limit"
            if function._fullgraph or config.fail_on_recompile_limit_hit:
                raise FailOnRecompileLimitHit(f"{text}; raise that, or keep shapes and numbers of arguments few")
            function._warn_once("limit", f"{text}; where it needs further ones, it runs as Python")
            return False
        function._compiled_at[position] = count + 1
        if count:
            _recompiles.debug("%s is compiled again: its operators, numbers or types have changed", function._name)
        return True

    def _compiled(self, recording: Recording, results: Sequence[Any], inputs: Sequence[Tensor]) -> AnyCallable | None:
        """What the backend makes of a recording; None if that does nothing, or the backend's error counts not."""
        names = names_of_inputs(inputs, self._function._function, self._args, self._kwargs, self.recorder.modules)
        graph = graph_of(recording.calls, names, [aval for _, aval, _ in recording.inputs], results)
        # Only now is it known which inputs the graph reads: calls that nobody uses have been left out of it.
        placeholders = graph.find_nodes(op="placeholder")
        used = [number for number, node in enumerate(placeholders) if node.users]
        for node in placeholders:
            if not node.users:
                graph.erase_node(node)
        operators = [node for node in graph.nodes if node.op.startswith("call_")]
        if not operators and not results:
            return None
        counters["stats"]["unique_graphs"] += 1
        counters["stats"]["calls_captured"] += len(operators)
        backend = lookup_backend(self._function._backend)
        try:
            compiled = backend(
                GraphModule(Module(), graph), [inputs[number] for number in used], **self._function._options
            )
            if not callable(compiled):
                raise PreconditionError("compiler_fn did not return callable")
        except Exception as error:
            failure = BackendCompilerFailed(backend, error)
            if not config.suppress_errors:
                raise failure from error
            warn_user(f"weft.compile: {failure}; {self._function._name} runs as Python")
            return None
        return _CompiledGraph(compiled, used)


def _require_outputs(function: Arg, outputs: object, count: int) -> None:
    if (
        not isinstance(outputs, (tuple, list))
        or len(outputs) != count
        or not all(isinstance(x, Tensor) for x in outputs)
    ):
        got = f"{len(outputs)} entries" if isinstance(outputs, (tuple, list)) else type(outputs).__name__
        raise CompileError(
            f"{function._name}: what the backend returned for a graph must return a tuple of {count} tensors, as "
            f"the graph module does, but returned {got}"
        )


def compiled_by(
    function: AnyCallable, fullgraph: bool, backend: object, mode: str | None = None, options: Arg = None
) -> BackendCompiled:
    """A function that is compiled by a backend, given itself or by its name; `InvalidBackend` for unknown ones."""
    if isinstance(backend, str):
        lookup_backend(backend)
    extra = {"mode": mode, "options": options}
    return BackendCompiled(function, fullgraph, backend, {name: x for name, x in extra.items() if x is not None})
