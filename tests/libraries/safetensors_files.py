"""safetensors: tensors and modules written and read."""

import tempfile
from pathlib import Path

import torch
from common import fill, show, waves
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
from torch import nn

tensors = {"a": waves(2, 3), "b": torch.arange(4), "half": waves(3).to(torch.bfloat16), "flags": torch.tensor([True])}
again = load(save(tensors))
show("bytes", *[torch.equal(again[name], tensor) for name, tensor in tensors.items()])
with tempfile.TemporaryDirectory() as folder:
    path = str(Path(folder) / "x.safetensors")
    save_file(tensors, path, metadata={"by": "test"})
    show("file", *[torch.equal(load_file(path)[name], tensor) for name, tensor in tensors.items()])
    with safe_open(path, framework="pt", device="cpu") as file:
        show("slice", file.get_slice("a")[:, 1:], file.get_tensor("b"))
    model = fill(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3)))
    model[1].bias = model[1].bias
    save_model(model, path)
    other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3))
    load_model(other, path)
show("model", torch.equal(other(waves(2, 3)), model(waves(2, 3))))
