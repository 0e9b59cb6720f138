"""Observers, under PyTorch's import path."""

from weft.ao._observing.observer import FixedQParamsObserver as FixedQParamsObserver
from weft.ao._observing.observer import HistogramObserver as HistogramObserver
from weft.ao._observing.observer import MinMaxObserver as MinMaxObserver
from weft.ao._observing.observer import MovingAverageMinMaxObserver as MovingAverageMinMaxObserver
from weft.ao._observing.observer import MovingAveragePerChannelMinMaxObserver as MovingAveragePerChannelMinMaxObserver
from weft.ao._observing.observer import NoopObserver as NoopObserver
from weft.ao._observing.observer import ObserverBase as ObserverBase
from weft.ao._observing.observer import PerChannelMinMaxObserver as PerChannelMinMaxObserver
from weft.ao._observing.observer import PlaceholderObserver as PlaceholderObserver
from weft.ao._observing.observer import RecordingObserver as RecordingObserver
from weft.ao._observing.observer import ReuseInputObserver as ReuseInputObserver
from weft.ao._observing.observer import UniformQuantizationObserverBase as UniformQuantizationObserverBase
from weft.ao._observing.observer import default_affine_fixed_qparams_observer as default_affine_fixed_qparams_observer
from weft.ao._observing.observer import default_debug_observer as default_debug_observer
from weft.ao._observing.observer import default_dynamic_quant_observer as default_dynamic_quant_observer
from weft.ao._observing.observer import (
    default_fixed_qparams_range_0to1_observer as default_fixed_qparams_range_0to1_observer,
)
from weft.ao._observing.observer import (
    default_fixed_qparams_range_neg1to1_observer as default_fixed_qparams_range_neg1to1_observer,
)
from weft.ao._observing.observer import default_float_qparams_observer as default_float_qparams_observer
from weft.ao._observing.observer import default_histogram_observer as default_histogram_observer
from weft.ao._observing.observer import default_observer as default_observer
from weft.ao._observing.observer import default_per_channel_weight_observer as default_per_channel_weight_observer
from weft.ao._observing.observer import default_placeholder_observer as default_placeholder_observer
from weft.ao._observing.observer import default_reuse_input_observer as default_reuse_input_observer
from weft.ao._observing.observer import (
    default_symmetric_fixed_qparams_observer as default_symmetric_fixed_qparams_observer,
)
from weft.ao._observing.observer import default_weight_observer as default_weight_observer
from weft.ao._observing.observer import get_observer_state_dict as get_observer_state_dict
from weft.ao._observing.observer import load_observer_state_dict as load_observer_state_dict
from weft.ao._observing.observer import (
    per_channel_weight_observer_range_neg_127_to_127 as per_channel_weight_observer_range_neg_127_to_127,
)
from weft.ao._observing.observer import weight_observer_range_neg_127_to_127 as weight_observer_range_neg_127_to_127
