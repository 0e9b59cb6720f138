"""Quantization of models: observers, grids, and the steps of eager mode (`prepare`, run, `convert`)."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.ao._observing.fake_quantize import FakeQuantize as FakeQuantize
from weft.ao._observing.fake_quantize import FakeQuantizeBase as FakeQuantizeBase
from weft.ao._observing.fake_quantize import FixedQParamsFakeQuantize as FixedQParamsFakeQuantize
from weft.ao._observing.fake_quantize import FusedMovingAvgObsFakeQuantize as FusedMovingAvgObsFakeQuantize
from weft.ao._observing.fake_quantize import (
    default_affine_fixed_qparams_fake_quant as default_affine_fixed_qparams_fake_quant,
)
from weft.ao._observing.fake_quantize import default_dynamic_fake_quant as default_dynamic_fake_quant
from weft.ao._observing.fake_quantize import default_embedding_fake_quant as default_embedding_fake_quant
from weft.ao._observing.fake_quantize import default_fake_quant as default_fake_quant
from weft.ao._observing.fake_quantize import (
    default_fixed_qparams_range_0to1_fake_quant as default_fixed_qparams_range_0to1_fake_quant,
)
from weft.ao._observing.fake_quantize import (
    default_fixed_qparams_range_neg1to1_fake_quant as default_fixed_qparams_range_neg1to1_fake_quant,
)
from weft.ao._observing.fake_quantize import default_fused_act_fake_quant as default_fused_act_fake_quant
from weft.ao._observing.fake_quantize import (
    default_fused_per_channel_wt_fake_quant as default_fused_per_channel_wt_fake_quant,
)
from weft.ao._observing.fake_quantize import default_fused_wt_fake_quant as default_fused_wt_fake_quant
from weft.ao._observing.fake_quantize import default_histogram_fake_quant as default_histogram_fake_quant
from weft.ao._observing.fake_quantize import (
    default_per_channel_weight_fake_quant as default_per_channel_weight_fake_quant,
)
from weft.ao._observing.fake_quantize import (
    default_symmetric_fixed_qparams_fake_quant as default_symmetric_fixed_qparams_fake_quant,
)
from weft.ao._observing.fake_quantize import default_weight_fake_quant as default_weight_fake_quant
from weft.ao._observing.fake_quantize import disable_fake_quant as disable_fake_quant
from weft.ao._observing.fake_quantize import disable_observer as disable_observer
from weft.ao._observing.fake_quantize import enable_fake_quant as enable_fake_quant
from weft.ao._observing.fake_quantize import enable_observer as enable_observer
from weft.ao._observing.fake_quantize import (
    fused_per_channel_wt_fake_quant_range_neg_127_to_127 as fused_per_channel_wt_fake_quant_range_neg_127_to_127,
)
from weft.ao._observing.fake_quantize import (
    fused_wt_fake_quant_range_neg_127_to_127 as fused_wt_fake_quant_range_neg_127_to_127,
)
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
from weft.ao._observing.quant_type import QuantType as QuantType
from weft.ao.quantization.fuse_modules import fuse_known_modules as fuse_known_modules
from weft.ao.quantization.fuse_modules import fuse_modules as fuse_modules
from weft.ao.quantization.fuse_modules import fuse_modules_qat as fuse_modules_qat
from weft.ao.quantization.fuser_method_mappings import (
    DEFAULT_OP_LIST_TO_FUSER_METHOD as DEFAULT_OP_LIST_TO_FUSER_METHOD,
)
from weft.ao.quantization.fuser_method_mappings import fuse_conv_bn as fuse_conv_bn
from weft.ao.quantization.fuser_method_mappings import fuse_conv_bn_relu as fuse_conv_bn_relu
from weft.ao.quantization.fuser_method_mappings import fuse_convtranspose_bn as fuse_convtranspose_bn
from weft.ao.quantization.fuser_method_mappings import fuse_linear_bn as fuse_linear_bn
from weft.ao.quantization.fuser_method_mappings import get_fuser_method as get_fuser_method
from weft.ao.quantization.qconfig_mapping import QConfigMapping as QConfigMapping
from weft.ao.quantization.qconfig_mapping import get_default_qat_qconfig_dict as get_default_qat_qconfig_dict
from weft.ao.quantization.qconfig_mapping import get_default_qat_qconfig_mapping as get_default_qat_qconfig_mapping
from weft.ao.quantization.qconfig_mapping import get_default_qconfig_dict as get_default_qconfig_dict
from weft.ao.quantization.qconfig_mapping import get_default_qconfig_mapping as get_default_qconfig_mapping
from weft.ao.quantization.quantization_mappings import (
    DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS as DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
)
from weft.ao.quantization.quantization_mappings import (
    DEFAULT_MODULE_TO_ACT_POST_PROCESS as DEFAULT_MODULE_TO_ACT_POST_PROCESS,
)
from weft.ao.quantization.quantization_mappings import DEFAULT_QAT_MODULE_MAPPINGS as DEFAULT_QAT_MODULE_MAPPINGS
from weft.ao.quantization.quantization_mappings import (
    DEFAULT_STATIC_QUANT_MODULE_MAPPINGS as DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
)
from weft.ao.quantization.quantization_mappings import (
    get_default_compare_output_module_list as get_default_compare_output_module_list,
)
from weft.ao.quantization.quantization_mappings import (
    get_default_dynamic_quant_module_mappings as get_default_dynamic_quant_module_mappings,
)
from weft.ao.quantization.quantization_mappings import (
    get_default_qat_module_mappings as get_default_qat_module_mappings,
)
from weft.ao.quantization.quantization_mappings import (
    get_default_qconfig_propagation_list as get_default_qconfig_propagation_list,
)
from weft.ao.quantization.quantization_mappings import (
    get_default_static_quant_module_mappings as get_default_static_quant_module_mappings,
)
from weft.ao.quantization.quantization_mappings import get_dynamic_quant_module_class as get_dynamic_quant_module_class
from weft.ao.quantization.quantization_mappings import (
    get_embedding_qat_module_mappings as get_embedding_qat_module_mappings,
)
from weft.ao.quantization.quantization_mappings import (
    get_embedding_static_quant_module_mappings as get_embedding_static_quant_module_mappings,
)
from weft.ao.quantization.quantization_mappings import get_static_quant_module_class as get_static_quant_module_class
from weft.ao.quantization.quantization_mappings import no_observer_set as no_observer_set
from weft.ao.quantization.quantize import add_quant_dequant as add_quant_dequant
from weft.ao.quantization.quantize import convert as convert
from weft.ao.quantization.quantize import default_eval_fn as default_eval_fn
from weft.ao.quantization.quantize import get_default_custom_config_dict as get_default_custom_config_dict
from weft.ao.quantization.quantize import prepare as prepare
from weft.ao.quantization.quantize import prepare_qat as prepare_qat
from weft.ao.quantization.quantize import propagate_qconfig_ as propagate_qconfig_
from weft.ao.quantization.quantize import quantize as quantize
from weft.ao.quantization.quantize import quantize_dynamic as quantize_dynamic
from weft.ao.quantization.quantize import quantize_qat as quantize_qat
from weft.ao.quantization.quantize import swap_module as swap_module
from weft.ao.quantization.stubs import DeQuantStub as DeQuantStub
from weft.ao.quantization.stubs import QuantStub as QuantStub
from weft.ao.quantization.stubs import QuantWrapper as QuantWrapper

_serve_below(__name__)
