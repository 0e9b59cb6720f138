"""Questions about observers and grids, under PyTorch's import path."""

from weft.ao._observing.utils import activation_dtype as activation_dtype
from weft.ao._observing.utils import activation_is_dynamically_quantized as activation_is_dynamically_quantized
from weft.ao._observing.utils import activation_is_int8_quantized as activation_is_int8_quantized
from weft.ao._observing.utils import activation_is_int32_quantized as activation_is_int32_quantized
from weft.ao._observing.utils import activation_is_statically_quantized as activation_is_statically_quantized
from weft.ao._observing.utils import calculate_qmin_qmax as calculate_qmin_qmax
from weft.ao._observing.utils import check_min_max_valid as check_min_max_valid
from weft.ao._observing.utils import get_combined_dict as get_combined_dict
from weft.ao._observing.utils import get_qconfig_dtypes as get_qconfig_dtypes
from weft.ao._observing.utils import get_qparam_dict as get_qparam_dict
from weft.ao._observing.utils import get_quant_type as get_quant_type
from weft.ao._observing.utils import get_swapped_custom_module_class as get_swapped_custom_module_class
from weft.ao._observing.utils import getattr_from_fqn as getattr_from_fqn
from weft.ao._observing.utils import (
    has_no_children_ignoring_parametrizations as has_no_children_ignoring_parametrizations,
)
from weft.ao._observing.utils import is_per_channel as is_per_channel
from weft.ao._observing.utils import is_per_tensor as is_per_tensor
from weft.ao._observing.utils import op_is_int8_dynamically_quantized as op_is_int8_dynamically_quantized
from weft.ao._observing.utils import to_underlying_dtype as to_underlying_dtype
from weft.ao._observing.utils import validate_qmin_qmax as validate_qmin_qmax
from weft.ao._observing.utils import weight_dtype as weight_dtype
from weft.ao._observing.utils import weight_is_quantized as weight_is_quantized
from weft.ao._observing.utils import weight_is_statically_quantized as weight_is_statically_quantized
