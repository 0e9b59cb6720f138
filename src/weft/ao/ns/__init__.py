"""The numeric suite: where a quantized model departs from the float one."""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(__name__, {}, ("_numeric_suite", "_numeric_suite_fx", "fx"))
