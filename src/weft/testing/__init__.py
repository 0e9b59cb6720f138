"""Comparing tensors in tests, and random tensors to test with."""

from weft.testing._comparison import assert_allclose as assert_allclose
from weft.testing._comparison import assert_close as assert_close
from weft.testing._creation import make_tensor as make_tensor
