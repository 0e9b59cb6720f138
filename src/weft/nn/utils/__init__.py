"""Helpers for parameters and gradients."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.nn.utils import parametrizations as parametrizations
from weft.nn.utils import parametrize as parametrize
from weft.nn.utils import prune as prune
from weft.nn.utils import rnn as rnn
from weft.nn.utils import stateless as stateless
from weft.nn.utils.clip_grad import clip_grad_norm as clip_grad_norm
from weft.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from weft.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from weft.nn.utils.clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from weft.nn.utils.clip_grad import get_total_norm as get_total_norm
from weft.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from weft.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters
from weft.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from weft.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from weft.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from weft.nn.utils.fusion import fuse_linear_bn_weights as fuse_linear_bn_weights
from weft.nn.utils.init import skip_init as skip_init
from weft.nn.utils.memory_format import convert_conv2d_weight_memory_format as convert_conv2d_weight_memory_format
from weft.nn.utils.memory_format import convert_conv3d_weight_memory_format as convert_conv3d_weight_memory_format
from weft.nn.utils.spectral_norm import remove_spectral_norm as remove_spectral_norm
from weft.nn.utils.spectral_norm import spectral_norm as spectral_norm
from weft.nn.utils.weight_norm import remove_weight_norm as remove_weight_norm
from weft.nn.utils.weight_norm import weight_norm as weight_norm

_serve_below(__name__)
