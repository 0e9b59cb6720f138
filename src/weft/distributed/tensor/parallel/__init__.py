"""Tensor parallelism: styles in which the parameters and inputs of modules are distributed, and losses."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.distributed.tensor._split_classes import loss_parallel as loss_parallel
from weft.distributed.tensor.parallel.api import parallelize_module as parallelize_module
from weft.distributed.tensor.parallel.style import ColwiseParallel as ColwiseParallel
from weft.distributed.tensor.parallel.style import ParallelStyle as ParallelStyle
from weft.distributed.tensor.parallel.style import PrepareModuleInput as PrepareModuleInput
from weft.distributed.tensor.parallel.style import PrepareModuleInputOutput as PrepareModuleInputOutput
from weft.distributed.tensor.parallel.style import PrepareModuleOutput as PrepareModuleOutput
from weft.distributed.tensor.parallel.style import RowwiseParallel as RowwiseParallel
from weft.distributed.tensor.parallel.style import SequenceParallel as SequenceParallel

_serve_below(__name__)
