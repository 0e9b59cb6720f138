"""What distributed tensors send, and how they lie."""

from weft.distributed.tensor.debug._comm_mode import CommDebugMode as CommDebugMode
from weft.distributed.tensor.debug._explicit import ExplicitRedistributionContext as ExplicitRedistributionContext
from weft.distributed.tensor.debug._visualize import visualize_sharding as visualize_sharding
