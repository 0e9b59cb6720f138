"""The suites: what PyTorch's wheel holds, put together as its test programs do."""

from __future__ import annotations

import importlib
import os
from typing import Any

from tests.oracle.distributed import stand_ins

_FOLDER = "torch.testing._internal.distributed"
_RPC = {
    "rpc.rpc_test": ("RpcTest", "TensorPipeAgentRpcTest"),
    "rpc.dist_autograd_test": ("DistAutogradTest", "TensorPipeAgentDistAutogradTest"),
    "rpc.dist_optimizer_test": ("DistOptimizerTest",),
    "rpc.examples.parameter_server_test": ("ParameterServerTest",),
    "rpc.examples.reinforcement_learning_rpc_test": ("ReinforcementLearningRpcTest",),
    "nn.api.remote_module_test": ("RemoteModuleTest", "ThreeWorkersRemoteModuleTest"),
    "ddp_under_dist_autograd_test": ("DdpUnderDistAutogradTest", "DdpComparisonTest"),
}
WORLD_SIZE = 3  # of the suites of collectives


def suites() -> list[type[Any]]:
    """The classes of tests; `imports.install()` comes first."""
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(WORLD_SIZE))
    fixture = _module("rpc.tensorpipe_rpc_agent_test_fixture").TensorPipeRpcAgentTestFixture
    classes = []
    for module, names in _RPC.items():
        for name in names:
            tests = getattr(_module(module), name)
            classes.append(type(name, (tests, fixture, stand_ins.MultiProcessTestCase), {}))
    collectives = _module("distributed_test")
    for name in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
        setattr(collectives, name, [])  # the events of a profile are another subject
    tests = collectives.DistributedTest._DistTestBase
    classes.append(type("DistributedTest", (collectives.TestDistBackend, tests), {}))
    return classes


def _module(name: str) -> Any:
    return importlib.import_module(f"{_FOLDER}.{name}")
