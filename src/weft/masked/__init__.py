"""Elements with a mask: functions that take one, and tensors that have one."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.masked._functions import amax as amax
from weft.masked._functions import amin as amin
from weft.masked._functions import argmax as argmax
from weft.masked._functions import argmin as argmin
from weft.masked._functions import cumprod as cumprod
from weft.masked._functions import cumsum as cumsum
from weft.masked._functions import log_softmax as log_softmax
from weft.masked._functions import logaddexp as logaddexp
from weft.masked._functions import logsumexp as logsumexp
from weft.masked._functions import mean as mean
from weft.masked._functions import median as median
from weft.masked._functions import norm as norm
from weft.masked._functions import normalize as normalize
from weft.masked._functions import prod as prod
from weft.masked._functions import softmax as softmax
from weft.masked._functions import softmin as softmin
from weft.masked._functions import std as std
from weft.masked._functions import sum as sum
from weft.masked._functions import var as var
from weft.masked._masked_tensor import MaskedTensor as MaskedTensor
from weft.masked._masked_tensor import as_masked_tensor as as_masked_tensor
from weft.masked._masked_tensor import is_masked_tensor as is_masked_tensor
from weft.masked._masked_tensor import masked_tensor as masked_tensor

_serve_below(__name__)
