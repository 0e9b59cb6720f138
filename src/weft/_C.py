"""What libraries take from PyTorch's extension module, under these names."""

from weft._extension import DispatchKey as DispatchKey
from weft._extension import DispatchKeySet as DispatchKeySet
from weft._extension import PyTorchFileReader as PyTorchFileReader
from weft._extension import _ExcludeDispatchKeyGuard as _ExcludeDispatchKeyGuard
from weft._extension import _get_accelerator as _get_accelerator
from weft._extension import _get_tracing_state as _get_tracing_state
from weft._extension import _log_api_usage_once as _log_api_usage_once
from weft._extension import _nn as _nn
from weft._extension import _TensorMeta as _TensorMeta
