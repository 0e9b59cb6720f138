"""Averages of models now and then, for ranks that train on their own in between."""

from weft.distributed.algorithms.model_averaging import averagers as averagers
from weft.distributed.algorithms.model_averaging import hierarchical_model_averager as hierarchical_model_averager
from weft.distributed.algorithms.model_averaging import utils as utils
