"""Datasets and functions that worker processes import."""

from __future__ import annotations

import os
import random
import threading
from collections import namedtuple

import ml_dtypes
import numpy as np

import weft
from weft._base import config
from weft.utils import data

Sample = namedtuple("Sample", "index worker draws")


class Asked(data.Dataset):
    """What a sample is depends on its index: a number is given back, and a word says what to do."""

    def __init__(self, **named):
        self.named = named
        self.numbers = weft.arange(6).reshape(2, 3)
        self.array = np.arange(4.0)

    def __len__(self):
        return 8

    def __getitem__(self, asked):
        return getattr(self, asked)() if isinstance(asked, str) else asked

    def who(self):
        info = data.get_worker_info()
        return info.id, info.num_workers, info.seed, type(info.dataset).__name__, os.environ["JAX_PLATFORMS"]

    def draws(self):
        return random.random(), float(np.random.rand()), weft.rand(1).item()

    def kinds(self):
        self.array[0] = 7  # private to this worker
        return {
            "tensor": self.numbers[1],
            "array": self.array,
            "half": weft.ones(2, dtype=weft.bfloat16),
            "odd": np.ones(3, ml_dtypes.bfloat16),
            "empty": weft.zeros(0, 3),
            "flags": weft.tensor([True, False]),
            "leaf": weft.nn.Parameter(weft.ones(1)),
            "text": "text",
            "none": None,
        }

    def initialised(self):
        return self.named["said"]

    def pending(self):
        return weft.arange(3) * 2

    def notices(self):
        return weft.explain()[-1].site, config.SLOW_COMPILE_SECONDS

    def wrong_value(self):
        raise ValueError("no such sample")

    def wrong_key(self):
        return {}["absent"]

    def wrong_two(self):
        raise TwoArguments("first", "second")

    def wrong_batch(self):
        return lambda: None

    def exit(self):
        os._exit(3)

    def wait(self):
        self.named["event"].wait()
        return os.getpid()

    def tell(self):
        self.named["event"].set()
        return os.getpid()


class TwoArguments(Exception):
    def __init__(self, first, second):
        super().__init__(first, second)


class Shared(data.IterableDataset):
    """Every worker has its share of the numbers below `end`; 0 is `None` for ever."""

    def __init__(self, end):
        self.end = end

    def __iter__(self):
        info = data.get_worker_info()
        return iter(range(info.id, self.end, info.num_workers))


class Pids(data.IterableDataset):
    """This worker's process number for ever."""

    def __iter__(self):
        while True:
            yield os.getpid()


class Stuck(data.IterableDataset):
    """This worker's process number, then nothing, for ever."""

    def __iter__(self):
        yield os.getpid()
        threading.Event().wait()


def kept(batch):
    return batch


def say_hello(worker):
    data.get_worker_info().dataset.named["said"] = f"hello from {worker}"


def fail_to_start(worker):
    raise KeyError(f"no drive {worker}")
