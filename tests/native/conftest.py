import pytest

from weft.ops._kernels import library


@pytest.fixture(autouse=True)
def kernels():
    if not library.available():
        pytest.skip(f"the native kernels are {library.status()}")
