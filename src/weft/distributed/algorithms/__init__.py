"""Algorithms for training with several ranks: uneven inputs, communication hooks, model averaging."""

from weft.distributed.algorithms.join import Join as Join
from weft.distributed.algorithms.join import Joinable as Joinable
from weft.distributed.algorithms.join import JoinHook as JoinHook
