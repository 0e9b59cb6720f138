"""Checkpoints as single files, and back: `python -m weft.distributed.checkpoint.format_utils MODE SOURCE TARGET`.

The modes are `dcp_to_torch`, `torch_to_dcp` and `dcp_to_safetensors`. One process holds all tensors meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from weft._base.guards import is_dict
from weft._base.types import SavedState
from weft.distributed.checkpoint._exchange import StepExchange
from weft.distributed.checkpoint.default_planner import EmptyStateDictLoadPlanner
from weft.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner as _EmptyStateDictLoadPlanner
from weft.distributed.checkpoint.filesystem import FileSystemReader
from weft.distributed.checkpoint.metadata import TensorStorageMetadata
from weft.distributed.checkpoint.state_dict_loader import _load_state_dict as _load_state_dict
from weft.distributed.checkpoint.state_dict_loader import load_planned
from weft.distributed.checkpoint.state_dict_saver import save as save_checkpoint
from weft.distributed.checkpoint.storage import CheckpointId, StorageReader
from weft.errors import CheckpointError, CheckpointException
from weft.serialization import load, save, save_file


def dcp_to_torch_save(dcp_checkpoint_dir: CheckpointId, torch_save_path: str | os.PathLike[str]) -> None:
    """Write all that a checkpoint holds as one file, which `weft.load` reads.

    The checkpoint may be one of PyTorch's.
    """
    state: SavedState = {}
    load_planned(state, FileSystemReader(dcp_checkpoint_dir), EmptyStateDictLoadPlanner(), StepExchange(None))
    save(state, torch_save_path)


def torch_save_to_dcp(torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: CheckpointId) -> None:
    """Write what a file holds, which may be one of PyTorch's, as a checkpoint."""
    state: object = load(torch_save_path, map_location="cpu")
    if not is_dict(state):
        raise CheckpointError(f"{torch_save_path} holds a {type(state).__name__}, and a checkpoint is made of a dict")
    save_checkpoint(state, checkpoint_id=dcp_checkpoint_dir, no_dist=True)


def dcp_to_safetensors(
    dcp_checkpoint_dir: CheckpointId, path: str | os.PathLike[str], storage_reader: StorageReader | None = None
) -> None:
    """Write the tensors of a checkpoint as one safetensors file, under the checkpoint's keys; objects are left out.

    A `storage_reader` reads the checkpoint from elsewhere, such as parts in safetensors without further metadata.
    """
    reader = storage_reader or FileSystemReader(dcp_checkpoint_dir)
    entries = reader.read_metadata().state_dict_metadata
    planner = EmptyStateDictLoadPlanner(
        lambda key: isinstance(entries[key], TensorStorageMetadata), flatten_state_dict=False
    )
    state: SavedState = {}
    load_planned(state, reader, planner, StepExchange(None))
    save_file(state, path, {"format": "pt"})


_MODES: dict[str, Callable[[str, str], None]] = {
    "dcp_to_torch": dcp_to_torch_save,
    "torch_to_dcp": torch_save_to_dcp,
    "dcp_to_safetensors": dcp_to_safetensors,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert as the command line says; returns the exit code."""
    parser = argparse.ArgumentParser("python -m weft.distributed.checkpoint.format_utils", description=__doc__)
    parser.add_argument("mode", choices=_MODES, help="what is converted into what")
    parser.add_argument("src", help="the checkpoint's folder, or a file")
    parser.add_argument("dst", help="the file, or the folder, to write")
    options = parser.parse_args(arguments)
    try:
        _MODES[options.mode](options.src, options.dst)
    except (CheckpointError, OSError) as error:
        failures = list(error.failures.values()) if isinstance(error, CheckpointException) else [(error, None)]
        sys.stderr.write(f"{failures[0][0]}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
