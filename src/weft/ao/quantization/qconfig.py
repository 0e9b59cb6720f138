"""Pairs of observers, under PyTorch's import path."""

from weft.ao._observing.qconfig import QConfig as QConfig
from weft.ao._observing.qconfig import QConfigAny as QConfigAny
from weft.ao._observing.qconfig import QConfigDynamic as QConfigDynamic
from weft.ao._observing.qconfig import default_activation_only_qconfig as default_activation_only_qconfig
from weft.ao._observing.qconfig import default_debug_qconfig as default_debug_qconfig
from weft.ao._observing.qconfig import default_dynamic_qat_qconfig as default_dynamic_qat_qconfig
from weft.ao._observing.qconfig import default_dynamic_qconfig as default_dynamic_qconfig
from weft.ao._observing.qconfig import default_embedding_qat_qconfig as default_embedding_qat_qconfig
from weft.ao._observing.qconfig import default_per_channel_qconfig as default_per_channel_qconfig
from weft.ao._observing.qconfig import (
    default_per_channel_symmetric_qnnpack_qat_qconfig as default_per_channel_symmetric_qnnpack_qat_qconfig,
)
from weft.ao._observing.qconfig import (
    default_per_channel_symmetric_qnnpack_qconfig as default_per_channel_symmetric_qnnpack_qconfig,
)
from weft.ao._observing.qconfig import default_qat_qconfig as default_qat_qconfig
from weft.ao._observing.qconfig import default_qat_qconfig_v2 as default_qat_qconfig_v2
from weft.ao._observing.qconfig import default_qconfig as default_qconfig
from weft.ao._observing.qconfig import default_quint8_weight_qconfig as default_quint8_weight_qconfig
from weft.ao._observing.qconfig import default_reuse_input_qconfig as default_reuse_input_qconfig
from weft.ao._observing.qconfig import default_symmetric_qnnpack_qat_qconfig as default_symmetric_qnnpack_qat_qconfig
from weft.ao._observing.qconfig import default_symmetric_qnnpack_qconfig as default_symmetric_qnnpack_qconfig
from weft.ao._observing.qconfig import default_weight_only_qconfig as default_weight_only_qconfig
from weft.ao._observing.qconfig import float16_dynamic_qconfig as float16_dynamic_qconfig
from weft.ao._observing.qconfig import float16_static_qconfig as float16_static_qconfig
from weft.ao._observing.qconfig import float_qparams_weight_only_qconfig as float_qparams_weight_only_qconfig
from weft.ao._observing.qconfig import get_default_qat_qconfig as get_default_qat_qconfig
from weft.ao._observing.qconfig import get_default_qconfig as get_default_qconfig
from weft.ao._observing.qconfig import per_channel_dynamic_qconfig as per_channel_dynamic_qconfig
from weft.ao._observing.qconfig import qconfig_equals as qconfig_equals
from weft.ao.quantization.qconfig_mapping import get_default_qat_qconfig_dict as get_default_qat_qconfig_dict
from weft.ao.quantization.qconfig_mapping import get_default_qconfig_dict as get_default_qconfig_dict
