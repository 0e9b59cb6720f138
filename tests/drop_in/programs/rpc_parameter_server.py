"""A parameter server: a trainer runs its layers and has the server's run by remote calls, with one backward pass."""

import os
import tempfile

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from common import drawn, fill, labels, report
from torch import optim
from torch.distributed.optim import DistributedOptimizer


class ParameterServer(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = fill(nn.Sequential(nn.Linear(6, 12), nn.ReLU()))

    def forward(self, inp):
        return self.model(inp)

    def get_param_rrefs(self):
        return [rpc.RRef(param) for param in self.model.parameters()]


class TrainerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.param_server_rref = rpc.remote("parameter_server", ParameterServer)
        self.head = fill(nn.Linear(12, 3), 1)

    def get_global_param_rrefs(self):
        remote_params = self.param_server_rref.rpc_sync().get_param_rrefs()
        return remote_params + [rpc.RRef(param) for param in self.head.parameters()]

    def forward(self, x):
        return self.head(self.param_server_rref.rpc_sync().forward(x))


def run_training_loop():
    net = TrainerNet()
    opt = DistributedOptimizer(optim.SGD, net.get_global_param_rrefs(), lr=0.3)
    data, target = drawn(24, 6), labels(24, 3)
    losses = []
    for _ in range(6):
        with dist_autograd.context() as cid:
            loss = F.nll_loss(F.log_softmax(net(data), dim=1), target)
            losses.append(loss.item())
            dist_autograd.backward(cid, [loss])
            opt.step(cid)
    report(losses[0], losses[-1])


def run_worker(rank, world_size, folder):
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, init_method=f"file://{folder}/store")
    name = "parameter_server" if rank == 0 else f"trainer_{rank}"
    rpc.init_rpc(name, rank=rank, world_size=world_size, rpc_backend_options=options)
    if rank != 0:
        run_training_loop()
    rpc.shutdown()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_worker, args=(2, folder), nprocs=2, join=True)
