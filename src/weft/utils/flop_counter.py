"""Counting floating-point operations, by module and by operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from weft._autograd.engine import differentiated
from weft._autograd.node import node_name, snake_case
from weft._base.site import warn_user
from weft._base.state import ambient, enter, leave
from weft._base.types import AnyCallable, Arg
from weft._lazy.call import arguments_of
from weft._lazy.flops import flops_of
from weft._lazy.signature import Signature
from weft._lazy.value import Value
from weft._tensor.tensor import wrap
from weft.errors import RegistrationError, ValueRangeError
from weft.ops._aten import FormOfPacket
from weft.ops._namespaces import NAMESPACES, OpOverloadPacket
from weft.utils.module_tracker import ModuleTracker

Formula = Callable[..., int]
Count = Callable[[Signature, Sequence[Value], Sequence[Value]], int]
"""(signature, inputs, results) -> flops."""

# no cell: only who counts operations reads it
flop_registry: dict[Any, Count] = {}
"""The operators of `register_flop_formula`. All others are counted by what they compute."""

_SUFFIXES = ("", "K", "M", "B", "T")


def register_flop_formula(targets: Arg, get_raw: bool = False) -> Callable[[Formula], Formula]:
    """A decorator: the function gives the flops of one or several operators, named as `weft.ops.mylib.myop`.

    It is called with the operator's arguments, shapes in place of tensors, and `out_shape`; with `get_raw`, tensors
    stay, and the result is `out_val`. Derivatives are counted by what they compute. `ValueError` for what is no
    operator, `RuntimeError` for one that has a formula.
    """
    several = list(targets) if isinstance(targets, (list, tuple, set)) else [targets]

    def register(formula: Formula) -> Formula:
        counts = _counts(dict.fromkeys(several, formula), raw=get_raw)
        for target in counts:
            if target in flop_registry:
                raise RegistrationError(f"duplicate registrations for {target}")
        flop_registry.update(counts)
        return formula

    return register


def _counts(formulas: Mapping[object, Formula], *, raw: bool = False) -> dict[Any, Count]:
    for target in formulas:
        if not isinstance(target, OpOverloadPacket):
            raise ValueRangeError(
                "register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. "
                f"torch.ops.mylib.foo), got {target} which is of type {type(target)}"
            )
    return {
        target: _count(formula, raw=raw or getattr(formula, "_get_raw", False)) for target, formula in formulas.items()
    }


def _count(formula: Formula, *, raw: bool) -> Count:
    def count(signature: Signature, inputs: Sequence[Value], results: Sequence[Value]) -> int:
        assert signature.call is not None, "formulas are for operators"
        operands = [x.number if x.aval.weak else wrap(x) if raw else x.aval.shape for x in inputs]
        outs = [wrap(y) if raw else y.aval.shape for y in results]
        out = outs[0] if len(outs) == 1 else tuple(outs)
        return formula(*arguments_of(signature.call, operands), **{"out_val" if raw else "out_shape": out})

    return count


class FlopCounterMode:
    """Within its `with` block, counts the floating-point operations of what this thread records, backward passes too.

    Matrix products, convolutions and whatever consists of them count, as in PyTorch: two operations for each product
    that is added. Nothing needs to be computed for it, so a model on the device "meta" can be counted.

    `depth` is the number of levels of modules in the table, None for all; `display` prints it at the end of the block.
    `custom_mapping` has formulas as of `register_flop_formula`, by operator. A mode may be used again, and then starts
    anew; `RuntimeError` if its block is still open.
    """

    def __init__(
        self,
        mods: object = None,
        depth: int | None = 2,
        display: bool = True,
        custom_mapping: Mapping[object, Formula] | None = None,
    ) -> None:
        if mods is not None:
            warn_user("mods argument is not needed anymore, you can stop passing it")
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth = depth
        self.display = display
        self.flop_registry = {**flop_registry, **_counts(custom_mapping or {})}
        self.mod_tracker = ModuleTracker()

    def __enter__(self) -> Self:
        self.mod_tracker.__enter__()
        self.flop_counts.clear()
        self._token = enter(observers=(*ambient().watchers.observers, self._on_record))
        return self

    def __exit__(self, *exception: object) -> None:
        leave(self._token)
        self.mod_tracker.__exit__()
        if self.display:
            print(self.get_table(self.depth))

    def _on_record(self, results: tuple[Value, ...]) -> None:
        origin = results[0].origin if results else None
        if origin is None:
            return
        signature = origin.signature
        operator = _operator_of(signature)
        count = self.flop_registry.get(operator) if signature.call is not None else None
        flops = flops_of(signature) if count is None else count(signature, results[0].inputs, results)
        if flops or count is not None:
            for name in self.mod_tracker.parents:
                self.flop_counts[name][operator] += flops

    def get_total_flops(self) -> int:
        """The operations of everything in the block."""
        return sum(self.flop_counts["Global"].values()) if "Global" in self.flop_counts else 0

    def get_flop_counts(self) -> dict[str, dict[AnyCallable, int]]:
        """The operations by the name of the module, and then by operator, such as `weft.ops.aten.addmm`.

        "Global" has all, "Net" those of a module of this class and "Net.fc" those of its part. The derivative of an
        operator is one of its own: `addmm_backward`.
        """
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as text, up to a level of modules."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        suffix = _SUFFIXES[max(0, min(len(_SUFFIXES) - 1, (len(str(total)) - 2) // 3))]
        names = [
            name for name in sorted(self.flop_counts) if name != "Global" and (depth is None or name.count(".") < depth)
        ]
        has_all = any(sum(self.flop_counts[name].values()) >= total for name in names)
        rows: list[tuple[str, str, str]] = []
        if total and not has_all:
            rows += self._rows("Global", 0, total, suffix)
        for name in names:
            rows += self._rows(name, name.count(".") + bool(rows and not has_all), total, suffix)
        return _table([("Module", "FLOP", "% Total"), *(rows or [("Global", "0", "0%")])])

    def _rows(self, name: str, indent: int, total: int, suffix: str) -> list[tuple[str, str, str]]:
        counts, lead = self.flop_counts[name], " " * indent
        scale = 1000 ** _SUFFIXES.index(suffix)
        entries = [(name, sum(counts.values())), *[(f" - {operator}", flops) for operator, flops in counts.items()]]
        return [
            (lead + text, f"{flops / scale:.3f}{suffix}", f"{flops / total:.2%}" if total else "0%")
            for text, flops in entries
        ]


def _table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Columns, of which the first is aligned to the left; the first row is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), row[1].rjust(widths[1]), row[2].rjust(widths[2])]) for row in rows]
    lines.insert(1, "  ".join(["-" * width for width in widths]))
    return "\n".join(lines)


def _operator_of(signature: Signature) -> Any:
    """What counts are listed by: the operator, or the derivative of one."""
    call = signature.call
    if call is not None:
        namespace, _, name = call.op.name.partition("::")
        packets = getattr(NAMESPACES.get(namespace), "_packets", {})
        return packets.get(name) or FormOfPacket(snake_case(node_name(signature)))
    vertex = differentiated()
    if vertex is None or vertex.origin is None:
        return FormOfPacket(snake_case(node_name(signature)))
    return FormOfPacket(f"{snake_case(node_name(vertex.origin.signature))}_backward")
