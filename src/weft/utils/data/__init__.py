"""Datasets, samplers, and the loader that makes batches."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.utils.data._bucket import BucketBatchSampler as BucketBatchSampler
from weft.utils.data._bucket import pad_to_buckets as pad_to_buckets
from weft.utils.data._datapipes import IterDataPipe as IterDataPipe
from weft.utils.data._datapipes import MapDataPipe as MapDataPipe
from weft.utils.data._datapipes import functional_datapipe as functional_datapipe
from weft.utils.data._prefetch import prefetch_to as prefetch_to
from weft.utils.data._utils.collate import collate as collate
from weft.utils.data._utils.collate import default_collate as default_collate
from weft.utils.data._utils.collate import default_collate_fn_map as default_collate_fn_map
from weft.utils.data._utils.collate import default_convert as default_convert
from weft.utils.data._utils.info import get_worker_info as get_worker_info
from weft.utils.data.dataloader import DataLoader as DataLoader
from weft.utils.data.dataloader import _DatasetKind as _DatasetKind
from weft.utils.data.dataset import ChainDataset as ChainDataset
from weft.utils.data.dataset import ConcatDataset as ConcatDataset
from weft.utils.data.dataset import Dataset as Dataset
from weft.utils.data.dataset import IterableDataset as IterableDataset
from weft.utils.data.dataset import StackDataset as StackDataset
from weft.utils.data.dataset import Subset as Subset
from weft.utils.data.dataset import TensorDataset as TensorDataset
from weft.utils.data.dataset import random_split as random_split
from weft.utils.data.distributed import DistributedSampler as DistributedSampler
from weft.utils.data.sampler import BatchSampler as BatchSampler
from weft.utils.data.sampler import RandomSampler as RandomSampler
from weft.utils.data.sampler import Sampler as Sampler
from weft.utils.data.sampler import SequentialSampler as SequentialSampler
from weft.utils.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from weft.utils.data.sampler import WeightedRandomSampler as WeightedRandomSampler

_serve_below(__name__)
