"""Real text that is on every machine: the source of Python's standard library."""

from __future__ import annotations

import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import weft as torch
from weft.utils.data import DataLoader, Dataset, Sampler

VOCABULARY = 128  # ASCII
_HELD_BACK = 20  # every so manieth file is for validation


@dataclass(frozen=True)
class Text:
    """Tokens, `uint8` codes of ASCII characters, to train and to validate with."""

    training: np.ndarray
    validation: np.ndarray

    @classmethod
    def of_standard_library(cls) -> Text:
        """The top level modules' source in order of their names; other characters than ASCII become `?`."""
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        held_back = files[::_HELD_BACK]
        return cls(_tokens(file for file in files if file not in held_back), _tokens(held_back))

    def checksum(self) -> int:
        """A number that tells texts of different Python versions apart."""
        return zlib.crc32(self.validation, zlib.crc32(self.training))

    def prompt(self, length: int) -> str:
        """A piece of the validation text that ends where a method begins."""
        text = decode(self.validation.tolist())
        start = "\n    def "
        end = text.index(start, length) + len(start)
        return text[end - length : end]


def _tokens(files: Iterator[Path] | list[Path]) -> np.ndarray:
    text = "\n".join(file.read_text("utf-8", errors="replace") for file in files)
    return np.frombuffer(text.encode("ascii", errors="replace"), np.uint8)


def encode(text: str) -> list[int]:
    """The tokens of ASCII text."""
    return list(text.encode("ascii"))


def decode(tokens: list[int]) -> str:
    """The text of tokens."""
    return bytes(tokens).decode("ascii")


class Windows(Dataset):
    """The text cut into windows of `context` tokens, each with the token that follows."""

    def __init__(self, tokens: np.ndarray, context: int) -> None:
        self._tokens = tokens
        self._context = context

    def __len__(self) -> int:
        return (len(self._tokens) - 1) // self._context

    def __getitem__(self, at: int) -> np.ndarray:
        start = at * self._context
        return self._tokens[start : start + self._context + 1]


class Shuffled(Sampler):
    """Numbers of windows without end, in another order in every epoch, from `position` on.

    The order depends on seed and epoch alone, so the position is all that a checkpoint must hold of the data.
    """

    def __init__(self, windows: Windows, seed: int, position: int) -> None:
        self._size = len(windows)
        self._seed = seed
        self._position = position

    def __iter__(self) -> Iterator[int]:
        epoch, start = divmod(self._position, self._size)
        while True:
            order = np.random.default_rng((self._seed, epoch)).permutation(self._size)
            yield from order[start:].tolist()
            epoch, start = epoch + 1, 0


def batches(windows: Windows, sampler: Sampler, size: int) -> DataLoader:
    """Batches of windows, `uint8[size, context + 1]`."""
    own = (
        torch.Generator()
    )  # a loader draws a seed for each pass; drawn here, it leaves the model's random numbers alone
    return DataLoader(
        windows, size, sampler=sampler, generator=own, collate_fn=lambda rows: torch.from_numpy(np.stack(rows))
    )
