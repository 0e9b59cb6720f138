"""Cases of workers with several devices: `python -m … cases RANK SIZE ADDRESS`, where XLA has four of them."""

from __future__ import annotations

import gc
import sys

import pytest

import weft as torch
from tests.distributed.processes import Cases
from tests.distributed.rpc import job
from weft import nn
from weft.distributed import autograd, rpc
from weft.distributed.nn.api.remote_module import RemoteModule

case = Cases()
_kept = {}


def on_both(x):
    """The worked example's function: its argument has come to the first device of the map."""
    assert str(x.device) == "xla:1"
    return x + 1, (x + 1).to("xla:2")


def where(*tensors):
    return [str(x.device) for x in tensors]


def same(x):
    return x


def at(device):
    return torch.ones(2, device=device)


def add(x, y):
    return x + y


class Holder:
    def __init__(self, x):
        self.x = x

    def get(self):
        return self.x

    @rpc.functions.async_execution
    def later(self):
        return rpc.rpc_async("w1", at, ("cpu",)).then(lambda done: self.x + done.wait().to(self.x.device))


class Double(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((2,), 2.0))

    def forward(self, x):
        return self.weight * x


def keep_weight(device):
    _kept["weight"] = torch.full((2,), 3.0, device=device, requires_grad=True)


def weighted(x):
    return _kept["weight"] * x


def weight_grad(context_id):
    grad = autograd.get_gradients(context_id)[_kept["weight"]]
    return str(grad.device), grad.tolist()


def onward(x):
    """To w2 and back; this worker's own map for it is another one."""
    return rpc.rpc_sync("w2", add, (x, x))


@case
def tensors_go_through_the_map_and_back():
    """The worked example of the specification."""
    x, y = rpc.rpc_sync("w1", on_both, (torch.ones(2, device="xla:0"),))
    assert where(x, y) == ["xla:0", "xla:1"]
    assert x.tolist() == y.tolist() == [2, 2]


@case
def arguments_go_by_the_map_in_every_way_of_calling():
    x, y = torch.ones(2, device="xla:0"), torch.ones(2, device="xla:1")
    assert rpc.rpc_sync("w1", where, (x, y, torch.ones(2))) == ["xla:1", "xla:2", "cpu"]
    assert rpc.rpc_async("w1", where, (x, y)).wait() == ["xla:1", "xla:2"]
    assert rpc.remote("w1", where, (x, y)).to_here() == ["xla:1", "xla:2"]


@case
def answers_come_back_by_the_map_in_every_way_of_calling():
    x = torch.ones(2, device="xla:0")
    for found in (
        rpc.rpc_sync("w1", same, (x,)),
        rpc.rpc_async("w1", same, (x,)).wait(),
        rpc.remote("w1", same, (x,)).to_here(),
        rpc.remote("w1", Holder, (x,)).rpc_sync().get(),
        rpc.remote("w1", Holder, (x,)).rpc_async().get().wait(),
        rpc.remote("w1", Holder, (x,)).remote().get().to_here(),
    ):
        assert where(found) == ["xla:0"]
        assert found.tolist() == [1, 1]


@case
def values_of_futures_come_back_by_the_map():
    later = rpc.remote("w1", Holder, (torch.ones(2, device="xla:0"),))
    for found in (later.rpc_sync().later(), later.rpc_async().later().wait(), later.remote().later().to_here()):
        assert where(found) == ["xla:0"]
        assert found.tolist() == [2, 2]


@case
def a_value_of_this_worker_stays_where_it_is():
    x = torch.ones(2, device="xla:0")
    mine = rpc.RRef(x)
    assert mine.to_here() is x
    assert rpc.rpc_sync("w1", lambda ref: str(ref.owner().name), (mine,)) == "w0"


@case
def a_long_tensor_which_is_lent_goes_by_the_map():
    long = torch.arange(1 << 17, dtype=torch.float32).to("xla:1")
    found = rpc.rpc_sync("w1", add, (long, long))
    assert where(found) == ["xla:1"]
    assert torch.equal(found, 2 * long)


@case
def a_map_begins_at_the_cpu():
    x = torch.ones(2)
    assert rpc.rpc_sync("w2", where, (x, torch.ones(2, device="xla:2"))) == ["xla:3", "cpu"]
    assert where(rpc.rpc_sync("w2", same, (x,))) == ["cpu"]


@case
def a_map_ends_at_the_cpu():
    assert where(rpc.rpc_sync("w2", at, ("cpu",))) == ["xla:2"]
    assert where(rpc.rpc_sync("w2", at, ("xla:3",))) == ["cpu"]


@case
def a_worker_has_a_map_for_itself():
    assert rpc.rpc_sync("w0", where, (torch.ones(2, device="xla:0"),)) == ["xla:1"]
    assert where(rpc.rpc_sync("w0", at, ("xla:1",))) == ["xla:0"]


@case
def tensors_of_a_worker_without_a_map_for_itself_stay_where_they_are():
    assert rpc.rpc_sync("w1", rpc_to_itself) == ["xla:2"]


def rpc_to_itself():
    return rpc.rpc_sync("w1", where, (torch.ones(2, device="xla:2"),))


@case
def each_pair_of_workers_has_maps_of_its_own():
    found = rpc.rpc_sync("w1", onward, (torch.ones(2, device="xla:0"),))
    assert where(found) == ["xla:0"]
    assert found.tolist() == [2, 2]


_REFUSED = (
    r"TensorPipe RPC backend only supports CPU tensors by default, please move your tensors to CPU before sending them "
    r"over RPC, or call `set_device_map` on `TensorPipeRpcBackendOptions` to explicitly configure device mapping\. "
)


@case
def an_argument_whose_device_no_map_has_is_refused():
    x = torch.ones(2, device="xla:3")
    no_request = rf"^{_REFUSED}Request device mapping is not available for destination w1, but found tensor on device: "
    for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
        with pytest.raises(RuntimeError, match=no_request + "xla:3$"):
            call("w1", same, (x,))


@case
def an_answer_whose_device_no_map_has_is_refused():
    no_answer = rf"(?s)^On WorkerInfo\(id=1, name=w1\):.*{_REFUSED}Response device mapping is not available for "
    for use in (lambda: rpc.rpc_sync("w1", at, ("xla:3",)), lambda: rpc.remote("w1", at, ("xla:3",)).to_here()):
        with pytest.raises(RuntimeError, match=no_answer + "destination w0, but found tensor on device: xla:3"):
            use()


@case
def a_map_is_for_the_calls_of_its_own_worker():
    with pytest.raises(RuntimeError, match=r"(?s)On WorkerInfo\(id=1, name=w1\).*Request device mapping .* w0, but"):
        rpc.rpc_sync("w1", ask_back, (torch.ones(2, device="xla:0"),))
    assert rpc.rpc_sync("w1", where, (torch.ones(1),)) == ["cpu"]


def ask_back(x):
    return rpc.rpc_sync("w0", same, (x,))


@case
def gradients_go_back_the_ways_that_their_tensors_came():
    """Whatever maps the callees have."""
    rpc.rpc_sync("w1", keep_weight, ("xla:1",))
    a = torch.ones(2, device="xla:0", requires_grad=True)
    b = torch.ones(2, device="xla:1", requires_grad=True)
    for smart in (False, True):
        with autograd.context() as context_id:
            once = rpc.rpc_sync("w1", weighted, (a,))
            twice = rpc.rpc_sync("w1", onward, (once,)) + rpc.remote("w1", same, (a,)).to_here()
            other = rpc.rpc_sync("w1", add, (b, b)).to("xla:0")
            loss = (twice + other).sum()
            assert where(once, twice, loss) == ["xla:0"] * 3
            autograd.backward(context_id, [loss], **({"mode": "smart"} if smart else {}))
            found = autograd.get_gradients(context_id)
            assert where(found[a], found[b]) == ["xla:0", "xla:1"]
            assert (found[a].tolist(), found[b].tolist()) == ([7, 7], [2, 2])
            assert rpc.rpc_sync("w1", weight_grad, (context_id,)) == ("xla:1", [2, 2])


@case
def gradients_go_back_to_the_cpu():
    c = torch.ones(2, requires_grad=True)
    with autograd.context() as context_id:
        loss = rpc.rpc_sync("w2", add, (c, c)).sum()  # on the CPU here, on xla:3 there
        autograd.backward(context_id, [loss])
        assert where(autograd.get_gradients(context_id)[c]) == ["cpu"]


@case
def what_a_remote_module_gives_comes_back_by_the_map():
    x = torch.ones(2, device="xla:0")
    module = RemoteModule("w1/xla:1", Double)
    for found in (module(x), module.forward_async(x).wait()):
        assert where(found) == ["xla:0"]
        assert found.tolist() == [2, 2]
    assert where(module(torch.ones(2))) == ["xla:0"]


@case
def what_a_remote_module_gives_comes_to_the_cpu_without_a_map():
    assert rpc.rpc_sync("w2", module_without_map) == ["cpu"]


def module_without_map():
    return where(RemoteModule("w1/xla:1", Double)(torch.ones(2)))


@case
def gradients_of_a_remote_module_go_back_by_the_map():
    x = torch.ones(2, device="xla:0", requires_grad=True)
    module = RemoteModule("w1/xla:1", Double)
    with autograd.context() as context_id:
        autograd.backward(context_id, [module(x).sum()])
        grad = autograd.get_gradients(context_id)[x]
        assert (where(grad), grad.tolist()) == (["xla:0"], [2, 2])


def listed(options):
    return [str(one) for one in options.devices]


def main():
    _, rank, size, address = sys.argv[1:]
    options = rpc.TensorPipeRpcBackendOptions(init_method=address)
    if rank == "0":
        options = rpc.TensorPipeRpcBackendOptions(init_method=address, device_maps={"w1": {0: 1}})
        options.set_device_map("w1", {1: 2})
        options.set_device_map("w2", {"cpu": "xla:3", "xla:2": "cpu"})
        options.set_device_map("w0", {"xla:0": "xla:1"})
    if rank == "1":
        options.set_device_map("w2", {"xla:1": "xla:0", "xla:2": "xla:1"})
    assert listed(options) == []
    gc.freeze()  # as in `job.join`
    rpc.init_rpc(f"w{rank}", rank=int(rank), world_size=int(size), rpc_backend_options=options)
    named = {"0": ["xla:0", "xla:1", "xla:2"], "1": ["xla:1", "xla:2"], "2": ["xla:0", "xla:1", "xla:3"]}
    assert listed(options) == named[rank]
    if rank == "0":
        job.serve_cases(case, int(size))
    rpc.shutdown()


if __name__ == "__main__":
    main()
