"""Periodic averaging of models, for ranks that train separately in between."""

from weft.distributed.algorithms.model_averaging import averagers as averagers
from weft.distributed.algorithms.model_averaging import hierarchical_model_averager as hierarchical_model_averager
from weft.distributed.algorithms.model_averaging import utils as utils
