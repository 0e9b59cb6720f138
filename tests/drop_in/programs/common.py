"""What the programs share: weights and data that are the same under every library, since NumPy draws them."""

import numpy as np
import torch


def fill(module, seed=0):
    """Give a module weights that do not depend on a generator of the library's."""
    generator = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            bound = 1 / np.sqrt(max(parameter[0].numel() if parameter.dim() > 1 else parameter.numel(), 1))
            drawn = generator.uniform(-bound, bound, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(drawn).to(parameter.dtype))
    return module


def drawn(*shape, seed=0):
    """Normal numbers."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def labels(count, classes, seed=0):
    """Numbers of classes."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, classes, count))


def report(first, last):
    print(f"first {float(first):.8f} last {float(last):.8f}")
