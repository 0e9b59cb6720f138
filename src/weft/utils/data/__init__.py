"""Datasets, the order in which they are read, and batches of them."""

from weft.utils.data._collate import default_collate as default_collate
from weft.utils.data._collate import default_convert as default_convert
from weft.utils.data._dataset import ChainDataset as ChainDataset
from weft.utils.data._dataset import ConcatDataset as ConcatDataset
from weft.utils.data._dataset import Dataset as Dataset
from weft.utils.data._dataset import IterableDataset as IterableDataset
from weft.utils.data._dataset import StackDataset as StackDataset
from weft.utils.data._dataset import Subset as Subset
from weft.utils.data._dataset import TensorDataset as TensorDataset
from weft.utils.data._dataset import random_split as random_split
from weft.utils.data._loader import DataLoader as DataLoader
from weft.utils.data._sampler import BatchSampler as BatchSampler
from weft.utils.data._sampler import RandomSampler as RandomSampler
from weft.utils.data._sampler import Sampler as Sampler
from weft.utils.data._sampler import SequentialSampler as SequentialSampler
from weft.utils.data._sampler import SubsetRandomSampler as SubsetRandomSampler
from weft.utils.data._sampler import WeightedRandomSampler as WeightedRandomSampler
