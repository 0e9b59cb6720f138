"""Files as PyTorch writes them: `python -m tests._checkpoint.record` writes them again (it needs torch)."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

FOLDER = Path(__file__).parent / "files"


def training() -> dict[str, Any]:
    """A checkpoint of a small network and its optimizer after one step."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.5)
    net(torch.tensor([[1.0, 2.0], [3.0, 5.0]])).sum().backward()
    optimizer.step()
    return {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": 0.5}


def kinds() -> dict[str, Any]:
    """One of each kind of object that can be loaded."""
    marked = torch.ones(1)
    marked.tag = "mine"
    base = torch.arange(6.0).reshape(2, 3)
    names = (
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    )
    return {
        "types": {name: torch.tensor([0, 1, 1]).to(getattr(torch, name)) for name in names},
        "parameter": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "buffer": torch.nn.Buffer(torch.ones(1), persistent=False),
        "marked": marked,
        "leaf": torch.ones(1, requires_grad=True),
        "twice": [marked, marked],
        "base": base,
        "transposed": base.t(),
        "again": base.t(),
        "slice": torch.arange(10)[2:8:2],
        "expanded": torch.ones(1).expand(3),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(3.0),
        "conj": torch.tensor([1 + 2j]).conj(),
        "neg": torch.tensor([1 + 2j]).conj().imag,
        "numpy": (np.float64(2.5), np.int32(-3), np.bool_(True), np.arange(6.0).reshape(2, 3).T, np.arange(3)),
        "plain": [
            None,
            True,
            1,
            2**80,
            -1.5,
            "ä",
            b"\xff\x00",
            bytearray(b"12"),
            1 - 2j,
            {1, 2},
            frozenset([3]),
            (4, ()),
        ],
        "named": [torch.float16, torch.device("cuda", 1), torch.Size([1, 2]), Counter("aab")],
    }


def layouts() -> dict[str, torch.Tensor]:
    """Tensors that are sparse or nested."""
    dense = torch.tensor([[0.0, 0, 3], [4, 0, 5]])
    return {
        "coo": torch.sparse_coo_tensor([[1, 0, 1]], [[1.0, 2], [3, 4], [5, 6]], (2, 2)),
        "coalesced": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "csc": dense.double().to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((1, 3)),
        "nested": torch.nested.nested_tensor([torch.ones(2, 1), torch.zeros(1, 3)]),
    }


def whole() -> tuple[torch.nn.Module, torch.Tensor]:
    """A module, and what it computes from ones."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3))
    net = nn.Sequential(*layers).eval()
    return net, net(torch.ones(1, 1, 6, 6))


def quantized():
    """Quantized tensors, and the state dict of a quantized layer."""
    x = torch.tensor([[0.5, -1.0], [2.0, 0.0]])
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([1, 0])
    layer = torch.ao.nn.quantized.Linear(2, 2)
    layer.set_weight_bias(torch.quantize_per_channel(x, scales, zeros * 0, 0, torch.qint8), torch.ones(2))
    return {
        "tensor": torch.quantize_per_tensor(x, 0.1, 10, torch.quint8).t(),
        "channels": torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8),
        "layer": layer.state_dict(),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    warnings.simplefilter("ignore")
    torch.save(training(), FOLDER / "training.pt")
    (FOLDER / "training.json").write_text(json.dumps(training(), default=torch.Tensor.tolist, indent=1) + "\n")
    torch.save(training(), FOLDER / "training_legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(whole(), FOLDER / "whole.pt")
    torch.save(whole(), FOLDER / "whole_legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(kinds(), FOLDER / "kinds.pt")
    torch.save(kinds(), FOLDER / "kinds_protocol_5.pt", pickle_protocol=5)
    torch.save(layouts(), FOLDER / "layouts.pt")
    torch.save({"x": torch.empty(1, device="meta")}, FOLDER / "meta.pt")
    torch.save(quantized(), FOLDER / "quantized.pt")
    torch.save({"x": torch.zeros(1, dtype=torch.complex32)}, FOLDER / "complex32.pt")
    refused = {
        "storage": torch.ones(1).untyped_storage(),
        "class": Counter,
        "module": torch.nn.Identity(),
        "strings": np.array(["a"]),
    }
    for name, x in refused.items():
        torch.save({"x": x}, FOLDER / f"refused_{name}.pt")
    torch.jit.save(torch.jit.script(torch.nn.Identity()), str(FOLDER / "refused_script.pt"))
    (FOLDER / "net.safetensors").write_bytes(save(training()["net"], metadata={"from": "torch"}))


if __name__ == "__main__":
    main()
