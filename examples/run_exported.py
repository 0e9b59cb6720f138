"""Go on with an exported training step. This program needs jax, NumPy and flatbuffers, and no weft."""

from __future__ import annotations

import argparse
import json

import jax
import jax.export
import numpy as np

jax.config.update("jax_enable_x64", True)  # tokens are int64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()

    file = np.load(options.file)
    about = json.loads(file["about.json"])
    step = jax.export.deserialize(bytearray(file["program"]))
    state = {name: file[f"state/{name}"].view(jax.numpy.dtype(kind["dtype"])) for name, kind in about["state"].items()}

    draw = np.random.default_rng(0)
    for number in range(options.steps):
        tokens = draw.integers(0, 8, (4, 1)) + np.arange(9)  # the task: count on from a random number
        (loss,), changed = step.call(state, tokens[:, :-1], tokens[:, 1:])
        state |= changed
        print(f"step {number}: loss {float(loss):.6f}")


if __name__ == "__main__":
    main()
