"""Checkpoints of distributed programs: each rank writes and reads its own part, on any number of ranks."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.distributed.checkpoint.default_planner import DefaultLoadPlanner as DefaultLoadPlanner
from weft.distributed.checkpoint.default_planner import DefaultSavePlanner as DefaultSavePlanner
from weft.distributed.checkpoint.filesystem import FileSystemReader as FileSystemReader
from weft.distributed.checkpoint.filesystem import FileSystemWriter as FileSystemWriter
from weft.distributed.checkpoint.hf_storage import HuggingFaceStorageReader as HuggingFaceStorageReader
from weft.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter as HuggingFaceStorageWriter
from weft.distributed.checkpoint.metadata import BytesStorageMetadata as BytesStorageMetadata
from weft.distributed.checkpoint.metadata import ChunkStorageMetadata as ChunkStorageMetadata
from weft.distributed.checkpoint.metadata import Metadata as Metadata
from weft.distributed.checkpoint.metadata import TensorStorageMetadata as TensorStorageMetadata
from weft.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict as load_sharded_optimizer_state_dict
from weft.distributed.checkpoint.planner import LoadPlan as LoadPlan
from weft.distributed.checkpoint.planner import LoadPlanner as LoadPlanner
from weft.distributed.checkpoint.planner import ReadItem as ReadItem
from weft.distributed.checkpoint.planner import SavePlan as SavePlan
from weft.distributed.checkpoint.planner import SavePlanner as SavePlanner
from weft.distributed.checkpoint.planner import WriteItem as WriteItem
from weft.distributed.checkpoint.state_dict_loader import load as load
from weft.distributed.checkpoint.state_dict_loader import load_state_dict as load_state_dict
from weft.distributed.checkpoint.state_dict_saver import async_save as async_save
from weft.distributed.checkpoint.state_dict_saver import save as save
from weft.distributed.checkpoint.state_dict_saver import save_state_dict as save_state_dict
from weft.distributed.checkpoint.storage import StorageReader as StorageReader
from weft.distributed.checkpoint.storage import StorageWriter as StorageWriter
from weft.errors import CheckpointException as CheckpointException

_serve_below(__name__)
