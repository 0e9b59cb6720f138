"""Imports what training programs use, so that a process forked later has it already."""

from weft import nn as nn
from weft import optim as optim
from weft._tensor import assemble as assemble
from weft.distributed import _collectives as _collectives
from weft.distributed import _world as _world
from weft.nn import parallel as parallel
from weft.utils import data as data
