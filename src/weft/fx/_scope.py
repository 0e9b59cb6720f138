"""In which module of a model a program is while it is traced."""

from __future__ import annotations


class Scope:
    """The path and the class of the module whose `forward` runs; "" and None in that of the root."""

    def __init__(self, module_path: str, module_type: type | None) -> None:
        self.module_path = module_path
        self.module_type = module_type


class ScopeContextManager:
    """Lets `scope` be `current_scope` until the end of a `with` block."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._scope = scope
        self._previous = scope.module_path, scope.module_type
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *args: object) -> None:
        self._scope.module_path, self._scope.module_type = self._previous
