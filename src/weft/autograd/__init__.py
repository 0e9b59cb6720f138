"""The public functions of automatic differentiation."""

from weft._tensor.gradients import backward as backward
from weft._tensor.gradients import grad as grad
from weft.autograd._function import Function as Function
from weft.autograd._function import FunctionCtx as FunctionCtx
from weft.autograd._function import once_differentiable as once_differentiable
from weft.autograd._gradcheck import gradcheck as gradcheck
from weft.autograd._gradcheck import gradgradcheck as gradgradcheck
from weft.autograd._modes import detect_anomaly as detect_anomaly
from weft.autograd._modes import enable_grad as enable_grad
from weft.autograd._modes import inference_mode as inference_mode
from weft.autograd._modes import is_grad_enabled as is_grad_enabled
from weft.autograd._modes import is_inference_mode_enabled as is_inference_mode_enabled
from weft.autograd._modes import no_grad as no_grad
from weft.autograd._modes import set_detect_anomaly as set_detect_anomaly
from weft.autograd._modes import set_grad_enabled as set_grad_enabled
