"""What training with several ranks is made of: uneven inputs, and the hooks of replicas."""

from weft.distributed.algorithms.join import Join as Join
from weft.distributed.algorithms.join import Joinable as Joinable
from weft.distributed.algorithms.join import JoinHook as JoinHook
