"""tensordict: nested tensors stacked, indexed, changed, on disk; modules over them; a functional call of parameters."""

import tempfile

import torch
from common import fill, show, train, waves
from tensordict import LazyStackedTensorDict, MemoryMappedTensor, TensorDict, from_module, lazy_stack, tensorclass
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn

one = TensorDict({"a": waves(3, 2), "b": {"c": torch.arange(3)}}, batch_size=[3])
two = one.apply(lambda x: x + 1)
both = torch.stack([one, two])
show("stack", both["a"], both["b", "c"], *both.shape)
show("index", both[0, 1]["a"], both[:, 1:]["b", "c"])
both[0, 0] = two[2]
show("written", both["a"])
show("cat", torch.cat([one, two])["b", "c"], one.reshape(3, 1).shape, both.permute(1, 0)["a"])
flat = one.flatten_keys(".")
show("keys", len(flat.keys()), flat["b.c"], one.select("a").numel())
lazy = lazy_stack([one, two])
show("lazy", isinstance(lazy, LazyStackedTensorDict), lazy["a"].sum(0))
with tempfile.TemporaryDirectory() as folder:
    one.memmap(folder)
    loaded = TensorDict.load_memmap(folder)
    show("memmap", isinstance(loaded["a"], MemoryMappedTensor), loaded["a"], loaded["b", "c"])


@tensorclass
class Data:
    images: torch.Tensor
    labels: torch.Tensor


data = Data(images=waves(4, 2), labels=torch.arange(4), batch_size=[4])
show("tensorclass", data[1:3].images, torch.stack([data, data]).labels)


def network() -> TensorDictSequential:
    return TensorDictSequential(
        TensorDictModule(fill(nn.Linear(2, 4)), in_keys=["a"], out_keys=["hidden"]),
        TensorDictModule(fill(nn.Linear(4, 1)), in_keys=["hidden"], out_keys=["out"]),
    )


net = network()
show("module", net(one.clone())["out"])
params = from_module(net)
with params.apply(lambda x: x * 2).to_module(net):
    show("functional", net(one.clone())["out"])
stacked = torch.stack([params, params * 0.5])


def call(params, batch):
    with params.to_module(net):
        return net(batch)["out"]


show("vmap", torch.vmap(call, (0, None))(stacked.data, one))
model = network()
train(model, lambda: model(one.clone())["out"].square().mean())
