"""Write `src/weft/ops/aten_schemas.txt`: the schemas of the operators of an installed PyTorch that Weft computes.

    python tools/aten_schemas.py

One line for each overload, as PyTorch prints it without "aten::". What follows from it is only named behind it:

    ; composite   PyTorch computes it by other operators, so modes do not see it
    ; inplace     there is one that writes to the first argument: the name has an underscore more
    ; out=NAME    there is an overload that writes to its last argument
"""

from __future__ import annotations

from pathlib import Path

import torch

from weft._interop.aten.overloads import function_of
from weft.ops._aten import inplace_text, out_text

TARGET = Path(__file__).resolve().parent.parent / "src/weft/ops/aten_schemas.txt"


def schemas() -> dict[str, dict[str, str]]:
    """The texts of all schemas that operators have, by packet and overload, in PyTorch's order."""
    packets: dict[str, dict[str, str]] = {}
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        full = f"{schema.name}.{schema.overload_name}".removesuffix(".")
        if namespace == "aten" and torch._C._dispatch_has_kernel(full) and "Dimname" not in str(schema):
            packets.setdefault(name, {})[schema.overload_name] = str(schema).removeprefix("aten::")
    return packets


def lines() -> list[str]:
    packets = schemas()
    derived: set[tuple[str, str]] = set()
    result: list[str] = []
    for name, overloads in sorted(packets.items()):
        for overload, text in overloads.items():
            if "out" in overload.split("_") or function_of(name) is None:
                continue
            marks: list[str] = []
            full = f"aten::{name}.{overload}".removesuffix(".")
            if torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd"):
                marks.append("composite")
            if packets.get(f"{name}_", {}).get(overload) == inplace_text(text):
                marks.append("inplace")
                derived.add((f"{name}_", overload))
            for out, own in overloads.items():
                if own == out_text(text, out):
                    marks.append(f"out={out}")
                    derived.add((name, out))
            result.append("; ".join([text, *marks]))
    names = [line.partition("(")[0] for line in result]
    return [
        line for line, name in zip(result, names, strict=True)
        if (name.partition(".")[0], name.partition(".")[2]) not in derived
    ]  # fmt: skip


if __name__ == "__main__":
    TARGET.write_text("".join(f"{line}\n" for line in lines()))
