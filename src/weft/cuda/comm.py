"""Copies and sums of tensors between the devices of one process."""

from weft.nn.parallel.comm import broadcast as broadcast
from weft.nn.parallel.comm import broadcast_coalesced as broadcast_coalesced
from weft.nn.parallel.comm import gather as gather
from weft.nn.parallel.comm import reduce_add as reduce_add
from weft.nn.parallel.comm import reduce_add_coalesced as reduce_add_coalesced
from weft.nn.parallel.comm import scatter as scatter
