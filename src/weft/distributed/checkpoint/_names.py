"""Names of parameters in the model that one process has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from weft._tensor.tensor import Tensor
from weft.nn import Module
from weft.nn.parallel import DistributedDataParallel

_FSDP = "_fsdp_wrapped_module."


class ParameterNames:
    """The names of a model's parameters, without the prefixes of replicas (`module.`) and of sharded modules.

    parameters  all parameters by name; one that several modules share has several names
    """

    def __init__(self, model: Module) -> None:
        self._model = model
        replicas = [name for name, module in model.named_modules() if isinstance(module, DistributedDataParallel)]
        # inner ones first, since their own names have the outer prefixes
        self._wrappers = sorted([f"{name}." if name else "" for name in replicas], key=len, reverse=True)
        self.parameters = {
            self.canonical(name): parameter for name, parameter in model.named_parameters(remove_duplicate=False)
        }
        self._names: dict[Tensor, list[str]] = defaultdict(list)
        for name, parameter in self.parameters.items():
            self._names[parameter].append(name)

    def canonical(self, key: str) -> str:
        """The name of what the model has under a name with prefixes, in its state dict or among its parameters."""
        for wrapper in self._wrappers:
            if key.startswith(f"{wrapper}module."):
                key = wrapper + key[len(wrapper) + len("module.") :]
        return key.replace(_FSDP, "")

    def of(self, parameter: Tensor) -> list[str]:
        """The names of a parameter; none if it is not the model's."""
        return self._names.get(parameter, [])

    def prefixes_of(self, modules: Collection[Module]) -> list[str]:
        """With what the names of these modules' parameters begin."""
        return [self.canonical(f"{name}.") for name, module in self._model.named_modules() if module in modules]
