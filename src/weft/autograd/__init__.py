"""The public functions of automatic differentiation."""

from weft._absent.ignored import _disable_profiler as _disable_profiler
from weft._absent.ignored import _enable_profiler as _enable_profiler
from weft._base.exports import on_first_use as _on_first_use
from weft._import_paths.finder import serve_below as _serve_below
from weft._tensor.gradients import backward as backward
from weft._tensor.gradients import grad as grad
from weft._tensor.saved import SavedTensor as SavedTensor
from weft.autograd import forward_ad as forward_ad
from weft.autograd import functional as functional
from weft.autograd import grad_mode as grad_mode
from weft.autograd import graph as graph
from weft.autograd.anomaly_mode import detect_anomaly as detect_anomaly
from weft.autograd.anomaly_mode import set_detect_anomaly as set_detect_anomaly
from weft.autograd.function import Function as Function
from weft.autograd.function import FunctionCtx as FunctionCtx
from weft.autograd.function import once_differentiable as once_differentiable
from weft.autograd.grad_mode import enable_grad as enable_grad
from weft.autograd.grad_mode import inference_mode as inference_mode
from weft.autograd.grad_mode import is_grad_enabled as is_grad_enabled
from weft.autograd.grad_mode import is_inference_mode_enabled as is_inference_mode_enabled
from weft.autograd.grad_mode import is_multithreading_enabled as is_multithreading_enabled
from weft.autograd.grad_mode import no_grad as no_grad
from weft.autograd.grad_mode import set_grad_enabled as set_grad_enabled
from weft.autograd.grad_mode import set_multithreading_enabled as set_multithreading_enabled
from weft.autograd.gradcheck import gradcheck as gradcheck
from weft.autograd.gradcheck import gradgradcheck as gradgradcheck
from weft.autograd.variable import Variable as Variable
from weft.autograd.variable import variable as variable

__getattr__, __dir__ = _on_first_use(
    __name__,
    {
        "weft._extension": ("_is_checkpoint_valid",),
        "weft.profiler._event": ("DeviceType",),
        "weft.profiler._block": ("_profiler_enabled",),
    },
    ("profiler",),
)
_serve_below(__name__)
