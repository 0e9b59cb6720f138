"""Real text that is on every machine: the source of Python's standard library."""

from __future__ import annotations

import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import weft as torch
from _gpt.ranks import Ranks
from weft.utils.data import DataLoader, Dataset, DistributedSampler

VOCABULARY = 128  # ASCII
_HELD_BACK = 20  # one file in this many is for validation


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
        """A number that differs between the texts of different Python versions."""
        return zlib.crc32(self.validation, zlib.crc32(self.training))

    def prompt(self, length: int) -> str:
        """A piece of the validation text that ends at the beginning of a method."""
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


def batches(windows: Windows, size: int, seed: int, ranks: Ranks) -> DataLoader:
    """This process's share of batches of `size` windows in random order, `uint8[size / processes, context + 1]`.

    The whole batches do not depend on the number of processes.
    """
    sampler = DistributedSampler(windows, ranks.size, ranks.rank, seed=seed, drop_last=True)
    return DataLoader(windows, size // ranks.size, sampler=sampler, drop_last=True, collate_fn=_stacked)


def _stacked(rows: list[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack(rows))
