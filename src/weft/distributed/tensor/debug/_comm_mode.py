"""Counting what this process sends, by module and by line."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from weft._autograd.engine import differentiated, is_running
from weft._base.site import user_site
from weft._base.state import ambient, enter, leave
from weft._base.types import PathLike
from weft._lazy.value import Value, tick
from weft._tensor.tensor import Tensor
from weft.distributed._observers import observe, observers, stop_observing
from weft.distributed.tensor._dtensor import DTensor
from weft.distributed.tensor._placements import Placements
from weft.distributed.tensor.debug import _reports as reports
from weft.distributed.tensor.debug._sections import PASSES, ReportSection, Sent, SentOperation, counts
from weft.errors import OptionError
from weft.nn import Module
from weft.nn._hooks import register_module_forward_hook, register_module_forward_pre_hook


class CommDebugMode:
    """Within its `with` block, records the collectives that this thread calls, and the operators, backward passes too.

    Collectives of distributed tensors and functional ones have PyTorch's names: "all_reduce", "broadcast",
    "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single". So have those of `weft.distributed`:
    "allreduce_", "broadcast_", "allgather_", "_allgather_base_", "_reduce_scatter_base_", "alltoall_base_", …

    What a backward pass does belongs to the module whose operator it differentiates. A block within a block counts for
    both. A mode may be used again, and then starts anew; `RuntimeError` if its block is still open.
    """

    def __init__(self) -> None:
        self._is_open = False
        self._reset()

    def _reset(self) -> None:
        self._root = ReportSection("Global", calls=1)
        self._open = [self._root]
        self._names: dict[Module, str] = {}
        self._begun: list[
            tuple[int, ReportSection]
        ] = []  # sections by the number of the recording with which they begin

    def __repr__(self) -> str:
        return f"CommDebugMode(get_total_counts()={self.get_total_counts()})"

    def __enter__(self) -> CommDebugMode:
        if self._is_open:
            raise OptionError("this CommDebugMode is in use already; make another one for a block within its block")
        self._is_open = True
        self._reset()
        self._hooks = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        ]
        observe(self)
        self._recording = enter(observers=(*ambient().watchers.observers, self._on_record))
        return self

    def __exit__(self, *exception: object) -> None:
        leave(self._recording)
        stop_observing(self)
        for hook in self._hooks:
            hook.remove()
        self._names.clear()
        self._is_open = False

    # --- recording ---

    def _enter_module(self, module: Module, args: object) -> None:
        del args
        if self not in observers() or is_running():  # hooks are those of all threads
            return
        if module not in self._names:
            root = type(module).__name__
            self._names |= {part: f"{root}.{name}" if name else root for name, part in module.named_modules()}
        name, kind = self._names[module], type(module)
        section = self._open[-1].children.setdefault(
            name, ReportSection(name, f"{kind.__module__}.{kind.__qualname__}")
        )
        section.calls += 1
        section.parameters = dict(module.named_parameters(recurse=False))
        self._begin(section)
        self._open.append(section)

    def _leave_module(self, module: Module, args: object, output: object) -> None:
        del module, args, output
        if self in observers() and not is_running() and len(self._open) > 1:
            self._open.pop()
            self._begin(self._open[-1])

    def _begin(self, section: ReportSection) -> None:
        self._begun.append((tick(), section))

    def on_collective(self, name: str, values: Sequence[Value], *, requested: bool) -> None:
        """Record a collective."""
        del requested
        types = tuple([value.aval for value in values])
        self._events().append(Sent(name, types, sum(aval.nbytes for aval in types), user_site()))

    def on_redistribution(self, text: str, *, sends: bool) -> None:
        """Nothing: what is sent is recorded as collectives."""

    def _on_record(self, results: tuple[Value, ...]) -> None:
        """Record an operator."""
        origin = results[0].origin if results else None
        if origin is None:
            return
        vertex, inputs = differentiated(), tuple(x.aval for x in results[0].inputs)
        aval = vertex.origin.aval if vertex is not None and vertex.origin is not None else results[0].aval
        avals, is_distributed = tuple(x.aval for x in results), aval.owner is not None
        signature = origin.signature
        self._events().append(
            SentOperation(signature.name, inputs, avals, user_site(), is_distributed, trivial=not signature.rounds)
        )

    def _events(self) -> list[Sent | SentOperation]:
        """Where to note what happens now."""
        if not is_running():
            return self._open[-1].forward
        vertex = differentiated()
        at = 0 if vertex is None else bisect_right(self._begun, vertex.time, key=itemgetter(0))
        return (self._begun[at - 1][1] if at else self._root).backward

    # --- results ---

    def get_comm_counts(self) -> Counter[str]:
        """How often each collective was called; 0 for those that were not."""
        return counts(self._root.sent(*PASSES))

    def get_total_counts(self) -> int:
        """How many collectives were called."""
        return len(self._root.sent(*PASSES))

    def get_bytes(self) -> int:
        """The bytes that this process has given to collectives."""
        return sum(event.nbytes for event in self._root.sent(*PASSES))

    def get_parameter_info(self) -> dict[str, dict[str, Tensor]]:
        """For each module that was called and has parameters, these by name, detached."""
        return {
            section.name: {name: parameter.detach() for name, parameter in section.parameters.items()}
            for section in self._root.walk()
            if section.parameters
        }

    def get_sharding_info(self) -> dict[str, Placements]:
        """The placements of each distributed parameter, by the names of the module and the parameter."""
        return {
            f"{name}.{key}": parameter.placements
            for name, parameters in self.get_parameter_info().items()
            for key, parameter in parameters.items()
            if isinstance(parameter, DTensor)
        }

    # --- reports ---

    def generate_comm_debug_tracing_table(self, noise_level: int = 3) -> str:
        """Modules with what they and those that they call have sent, in forward and backward passes apart.

        Level 1 adds each collective with its bytes and line, parameters with their placements, and operators on
        distributed tensors that compute; level 2 other operators that compute; and level 3 those that only move
        elements.
        """
        return reports.table(self._root, noise_level)

    def log_comm_debug_tracing_table_to_file(
        self, file_name: PathLike = "comm_mode_log.txt", noise_level: int = 3
    ) -> None:
        """Write the table to a file."""
        reports.write(file_name, self.generate_comm_debug_tracing_table(noise_level))

    def generate_json_dump(self, file_name: PathLike = "comm_mode_log.json", noise_level: int = 3) -> None:
        """Write the same as JSON, with PyTorch's keys and some more, which the page of `generate_html` can open."""
        reports.write(file_name, reports.as_json(self._root, noise_level))

    def generate_html(self, file_name: PathLike = "comm_mode_log.html", noise_level: int = 3) -> None:
        """Write a page that shows the same in a browser. It is one file, and loads nothing from elsewhere."""
        reports.write(file_name, reports.as_page(self._root, noise_level))
