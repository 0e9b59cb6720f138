"""The default planners: every key is saved once, and loaded into whatever part of it a rank has."""

from __future__ import annotations

import io
from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

from weft._base.guards import is_dict
from weft._base.size import Size
from weft._base.state import using
from weft._base.types import Arg, Result, SavedState
from weft._tensor.composite.create import empty
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import own
from weft.distributed.checkpoint._chunks import chunk_of, faults_of, local_part_of, narrowed, overlap, relative
from weft.distributed.checkpoint._nested_dict import Path, check_paths, flatten_state_dict, set_element
from weft.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from weft.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from weft.distributed.tensor import DTensor
from weft.errors import CheckpointError, StateDictError, ValueRangeError
from weft.nn._lazy_parameter import is_lazy
from weft.serialization import load, save_plain

_LONGEST_TEXT = 500  # characters of the faults of a plan


# --- saving -----------------------------------------------------------------------------------------------------


class DefaultSavePlanner(SavePlanner):
    """Saves every key once: what several ranks have is written by one of them, so that all write about as much.

    Of objects that are no tensors, the lowest rank's is saved. With `dedup_save_to_lowest_rank`, the same holds for
    tensors. `flatten_state_dict` takes nested dicts apart. The other options are accepted for compatibility.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        del flatten_sharded_tensors, dedup_replicated_tensors, enable_plan_caching
        self.flatten_state_dict = flatten_state_dict
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.mappings: dict[str, Path] = {}

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = state_dict
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> SavePlan:
        self.plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            self.plan = replace(self.plan, planner_data=self.mappings)
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        _require_same_kinds(all_plans)
        deduplicated = dedup_save_plans(all_plans, self.dedup_save_to_lowest_rank)
        self.global_plan, self.metadata = create_default_global_save_plan(deduplicated)
        if self.flatten_state_dict:
            self.metadata.planner_data = dict(ChainMap(*(plan.planner_data for plan in self.global_plan)))
        _require_whole(self.metadata)
        return self.global_plan, self.metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> object:
        """What the state dict has for an item: this rank's part of a tensor, or an object."""
        value = self.state_dict[index.fqn]
        return local_part_of(value) if isinstance(value, Tensor) else value

    def transform_object(self, write_item: WriteItem, object: Arg) -> Result:
        """What is stored for what `lookup_object` returns: tensors as they are, objects as `save_plain` writes them."""
        if write_item.type is not WriteItemType.BYTE_IO:
            return object
        content = io.BytesIO()
        save_plain(object, content)
        return content


def create_default_local_save_plan(state_dict: SavedState, is_coordinator: bool) -> SavePlan:
    """What a rank has of a flat state dict."""
    del is_coordinator
    return SavePlan([item for key, value in state_dict.items() for item in _write_items(key, value)])


def _write_items(key: str, value: object) -> Iterator[WriteItem]:
    if not isinstance(value, Tensor):
        yield WriteItem(MetadataIndex(key), WriteItemType.BYTE_IO)
        return
    _require_elements(key, value)
    chunk = chunk_of(value)
    if chunk is None or (value.numel() and not chunk.numel):
        return
    data = TensorWriteData(chunk, TensorProperties.create_from_tensor(value), Size(value.shape))
    kind = WriteItemType.SHARD if isinstance(value, DTensor) else WriteItemType.TENSOR
    yield WriteItem(MetadataIndex(key, chunk.offsets), kind, tensor_data=data)


def dedup_save_plans(all_plans: list[SavePlan], save_to_lowest_rank: bool = False) -> list[SavePlan]:
    """The plans with each item in one of them.

    The largest items are given away first, each to the rank that has it and has least to write so far.
    """
    owners: dict[MetadataIndex, list[int]] = defaultdict(list)
    sizes: dict[MetadataIndex, int | None] = {}
    for rank, plan in enumerate(all_plans):
        for item in plan.items:
            owners[item.index].append(rank)
            sizes[item.index] = item.tensor_storage_size()
    loads = [0] * len(all_plans)
    writer: dict[MetadataIndex, int] = {}
    # Largest first, as a greedy choice is then close to the best division of the work.
    for index in sorted(owners, key=lambda index: -(sizes[index] or 0)):
        lowest = save_to_lowest_rank or sizes[index] is None
        writer[index] = owners[index][0] if lowest else min(owners[index], key=lambda rank: loads[rank])
        loads[writer[index]] += sizes[index] or 0
    return [
        replace(plan, items=[item for item in plan.items if writer[item.index] == rank])
        for rank, plan in enumerate(all_plans)
    ]


def create_default_global_save_plan(all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
    """The plans, and the metadata of all their items."""
    entries: dict[str, STORAGE_TYPES] = {}
    for item in (item for plan in all_plans for item in plan.items):
        data = item.tensor_data
        if data is None:
            entries[item.index.fqn] = BytesStorageMetadata()
            continue
        entry = entries.setdefault(item.index.fqn, TensorStorageMetadata(data.properties, data.size, []))
        assert isinstance(entry, TensorStorageMetadata), "a key has one kind of value"
        entry.chunks.append(data.chunk)
    return all_plans, Metadata(entries)


def _require_same_kinds(all_plans: list[SavePlan]) -> None:
    """`ValueError` if ranks have different kinds of value for a key."""
    kinds: dict[str, str] = {}
    for item in (item for plan in all_plans for item in plan.items):
        kind = _kind_of(item)
        first = kinds.setdefault(item.index.fqn, kind)
        if first != kind:
            raise ValueRangeError(
                f"key:{item.index.fqn} is not the same on all ranks: {first} on one, {kind} on another"
            )


def _kind_of(item: WriteItem) -> str:
    data = item.tensor_data
    return "no tensor" if data is None else f"a tensor of size {list(data.size)} and type {data.properties.dtype}"


def _require_whole(metadata: Metadata) -> None:
    faults = [
        fault
        for key, entry in metadata.state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata)
        for fault in faults_of(key, entry)
    ]
    if faults:
        text = "; ".join(faults)
        raise ValueRangeError(
            f"Failed to validate global plan: {text[:_LONGEST_TEXT]}{'...' if len(text) > _LONGEST_TEXT else ''}"
        )


def _require_elements(key: str, value: Tensor) -> None:
    if is_lazy(value):
        raise ValueRangeError(f"{key} has no size yet: call the module once before its parameters are saved or loaded")
    if isinstance(value, DTensor) and any(placement.is_partial() for placement in value.placements):
        raise ValueRangeError(
            f"{key} has the placements {list(map(str, value.placements))}, so sums are pending: save, or load into, "
            "x.redistribute(placements=...) with Shard and Replicate"
        )


# --- loading ----------------------------------------------------------------------------------------------------


class DefaultLoadPlanner(LoadPlanner):
    """Loads what the state dict has keys for, into the tensors that are there.

    Nothing in the state dict changes before all ranks have read all that they need. With `allow_partial_load`, keys
    that the checkpoint lacks are left as they are. `flatten_sharded_tensors` is accepted for compatibility.
    """

    def __init__(
        self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False
    ) -> None:
        del flatten_sharded_tensors
        self.flatten_state_dict = flatten_state_dict
        self.allow_partial_load = allow_partial_load
        self.original_state_dict: STATE_DICT_TYPE = {}
        self.mappings: dict[str, Path] = {}

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = state_dict
        self.metadata = metadata
        self.is_coordinator = is_coordinator
        self._parts: dict[str, Tensor] = {}  # what this rank has of tensors, as it is read
        self._read: set[str] = set()
        self._objects: SavedState = {}

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None, "set_up_planner comes first"
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        self._objects[read_item.dest_index.fqn] = load(value)

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """A copy of what this rank has of a tensor, which replaces it when everything has been read."""
        if index.fqn not in self._parts:
            self._parts[index.fqn] = wrap(own(local_part_of(self.state_dict[index.fqn])._read()))
        return self._parts[index.fqn]

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """The box of a tensor that an item is read into."""
        return narrowed(tensor, read_item.dest_offsets, read_item.lengths)

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        self._read.add(read_item.dest_index.fqn)

    def commit(self) -> None:
        with using(grad=False):
            for key in self.state_dict:  # all ranks write to distributed tensors, in one order
                if key in self._read or self._is_empty(key):
                    _write(self.state_dict[key], self.lookup_tensor(MetadataIndex(key)))
        for key, value in self._objects.items():
            if self.flatten_state_dict:
                set_element(self.original_state_dict, self.mappings[key], value)
            else:
                self.original_state_dict[key] = value

    def _is_empty(self, key: str) -> bool:
        """Whether this rank has no elements of a distributed tensor that is loaded."""
        assert self.metadata is not None, "set_up_planner comes first"
        value, entry = self.state_dict[key], self.metadata.state_dict_metadata.get(key)
        chunk = chunk_of(value) if isinstance(value, DTensor) and isinstance(entry, TensorStorageMetadata) else None
        return chunk is not None and not chunk.numel


def _write(target: Tensor, part: Tensor) -> None:
    """Make `part` this rank's part of a tensor."""
    if isinstance(target, DTensor):
        part = DTensor.from_local(part, target.device_mesh, target.placements, shape=target.shape)
    target.copy_(part)


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Loads all keys, or those for which `wanted` is true, into an empty state dict, which gets the form of the saved.

    Every rank that uses it loads whole tensors.
    """

    def __init__(self, wanted: Callable[[str], bool] = lambda key: True, **options: Arg) -> None:
        super().__init__(**options)
        self._wanted = wanted

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        assert metadata is not None, "set_up_planner is called with what the checkpoint holds"
        assert not state_dict, "all that is there is loaded into an empty dict"
        data: object = metadata.planner_data if self.flatten_state_dict else None
        paths: dict[str, Path] = data if is_dict(data) else {}
        try:
            # Before anything is made from them, since a single large position would make a list that fills the memory.
            check_paths(paths)
            for key, entry in metadata.state_dict_metadata.items():
                if self._wanted(key):
                    is_tensor = isinstance(entry, TensorStorageMetadata)
                    value = empty(entry.size, dtype=entry.properties.dtype) if is_tensor else None
                    set_element(state_dict, paths.get(key, (key,)), value, exact=True)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise CheckpointError(f"what it says of its nested keys is damaged: {error}") from error
        super().set_up_planner(state_dict, metadata, is_coordinator)


EmptyStateDictLoadPlanner = _EmptyStateDictLoadPlanner  # for other modules: PyTorch has it as a private class


def create_default_local_load_plan(state_dict: SavedState, metadata: Metadata, strict: bool = True) -> LoadPlan:
    """What a rank has to read for a flat state dict.

    `RuntimeError` for a key that the checkpoint lacks, unless `strict` is False; `ValueError` for another size.
    """
    items: list[ReadItem] = []
    for key, value in state_dict.items():
        entry = metadata.state_dict_metadata.get(key)
        if entry is not None:
            items += _read_items(key, entry, value)
        elif strict:
            raise StateDictError(
                f"Missing key in checkpoint state_dict: {key}. It has {len(metadata.state_dict_metadata)} others; to "
                "load without it, give planner=DefaultLoadPlanner(allow_partial_load=True)"
            )
    return LoadPlan(items)


def _read_items(key: str, entry: STORAGE_TYPES, value: object) -> list[ReadItem]:
    if isinstance(entry, BytesStorageMetadata):
        index, nothing = MetadataIndex(key), Size([0])
        return [ReadItem(LoadItemType.BYTE_IO, index, nothing, index, nothing, nothing)]
    if not isinstance(value, Tensor):
        raise ValueRangeError(
            f"Invalid checkpoint metadata for {key}, expected BytesStorageMetadata but found {type(entry)}: the "
            f"checkpoint has a tensor of size {list(entry.size)} there, and the state dict a {type(value).__name__}"
        )
    _require_elements(key, value)
    if tuple(entry.size) != tuple(value.shape):
        raise ValueRangeError(f"Size mismatch between saved {entry.size} and current: {value.size()} for {key}")
    chunk = chunk_of(value)
    return [] if chunk is None else create_read_items_for_chunk_list(key, entry, [chunk])


def create_read_items_for_chunk_list(
    fqn: str, checkpoint_md: TensorStorageMetadata, local_chunks: list[ChunkStorageMetadata]
) -> list[ReadItem]:
    """The boxes of stored chunks that make up the local chunks."""
    return [
        ReadItem(
            LoadItemType.TENSOR,
            MetadataIndex(fqn, local.offsets, number),
            relative(box, local),
            MetadataIndex(fqn, stored.offsets, at),
            relative(box, stored),
            box.sizes,
        )
        for number, local in enumerate(local_chunks)
        for at, stored in enumerate(checkpoint_md.chunks)
        if (box := overlap(local, stored)) is not None
    ]
