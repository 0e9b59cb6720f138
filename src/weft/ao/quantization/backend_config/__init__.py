"""What the target of a quantized model can compute with integers."""

from weft.ao.quantization.backend_config.native import BackendConfig as BackendConfig
from weft.ao.quantization.backend_config.native import get_fbgemm_backend_config as get_fbgemm_backend_config
from weft.ao.quantization.backend_config.native import get_native_backend_config as get_native_backend_config
