"""Real images that need no download: the handwritten digits that come with scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from sklearn.datasets import load_digits

from weft.utils.data import Dataset


class Digits(Dataset):
    """1,797 images of digits, `float32[1, 8, 8]` from 0 to 1, each with its label; or only those of some `classes`.

    Samples are NumPy arrays: batches of them are put together on the host, and XLA compiles nothing for it.
    """

    def __init__(self, classes: Iterable[int] = range(10)) -> None:
        found = load_digits()
        chosen = np.isin(found.target, list(classes))
        self.images = (found.images[chosen, None] / 16).astype(np.float32)
        self.labels = found.target[chosen].astype(np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, at: int) -> tuple[np.ndarray, np.int64]:
        return self.images[at], self.labels[at]
