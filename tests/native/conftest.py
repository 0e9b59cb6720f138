import pytest

from weft.ops import _kernels


@pytest.fixture(autouse=True)
def kernels():
    if not _kernels.available():
        pytest.skip(f"the native kernels are {_kernels.status()}")
