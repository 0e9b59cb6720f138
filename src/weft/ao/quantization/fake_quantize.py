"""Fake quantization, under PyTorch's import path."""

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
