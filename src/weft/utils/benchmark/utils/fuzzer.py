"""Random inputs, under PyTorch's import path."""

from weft.utils.benchmark._fuzzer import FuzzedParameter as FuzzedParameter
from weft.utils.benchmark._fuzzer import FuzzedTensor as FuzzedTensor
from weft.utils.benchmark._fuzzer import Fuzzer as Fuzzer
from weft.utils.benchmark._fuzzer import ParameterAlias as ParameterAlias
