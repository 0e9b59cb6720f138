"""`DataParallel`, for programs written for several GPUs in one process. Here a process has one device."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.device import DeviceLike
from weft._base.types import Arg, Args, Kwargs, PyTree, Result
from weft._base.usage import log_api_usage_once
from weft.errors import OptionError
from weft.nn._module import Module


class DataParallel(Module):
    """Runs `module` on its device. It is a child named `module`, so the keys of state dicts are PyTorch's.

    A process has one device, so several `device_ids` are refused; use `DistributedDataParallel` for several devices.
    """

    # Of the class, too: PyTorch saves neither where it has no GPU.
    output_device: DeviceLike | None = None
    dim: int = 0

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
    ) -> None:
        log_api_usage_once("torch.nn.parallel.DataParallel")
        super().__init__()
        require_one(device_ids)
        self.module = module
        self.device_ids = list(device_ids or ())
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs: Arg, **kwargs: Arg) -> Result:
        """The module's results."""
        parts, named = self.scatter(inputs, kwargs, self.device_ids)
        return self.gather(
            self.parallel_apply(self.replicate(self.module, self.device_ids), parts, named), self.output_device
        )

    # The steps of `forward`, which subclasses may override; there is one replica.

    def replicate(self, module: Module, device_ids: Sequence[DeviceLike]) -> list[Module]:
        """The replicas: the module itself."""
        del device_ids
        return [module]

    def scatter(
        self, inputs: Args, kwargs: Kwargs | None, device_ids: Sequence[DeviceLike]
    ) -> tuple[list[Args], list[Kwargs]]:
        """The arguments of each replica, by position and by name."""
        del device_ids
        return [tuple(inputs)], [kwargs or {}]

    def parallel_apply(
        self, replicas: Sequence[Module], inputs: Sequence[Args], kwargs: Sequence[Kwargs]
    ) -> list[Result]:
        """The result of each replica."""
        return [replica(*part, **named) for replica, part, named in zip(replicas, inputs, kwargs, strict=True)]

    def gather(self, outputs: list[Result], output_device: DeviceLike | None) -> Result:
        """The results of all replicas as one result."""
        del output_device
        return outputs[0]


def data_parallel(
    module: Module,
    inputs: PyTree,
    device_ids: Sequence[DeviceLike] | None = None,
    output_device: DeviceLike | None = None,
    dim: int = 0,
    module_kwargs: Kwargs | None = None,
) -> Result:
    """`module(*inputs, **module_kwargs)`, as `DataParallel` runs it. `inputs` is a tuple, or one argument."""
    del output_device, dim
    require_one(device_ids)
    if not isinstance(inputs, tuple):
        inputs = () if inputs is None else (inputs,)
    return module(*inputs, **(module_kwargs or {}))


def require_one(device_ids: Sequence[DeviceLike] | None) -> None:
    """Raise for several devices."""
    if device_ids is not None and len(device_ids) > 1:
        raise OptionError(
            f"DataParallel runs on one device, but got device_ids {list(device_ids)}; start one process for each "
            "device with `weft run`, and wrap the module in DistributedDataParallel"
        )
