"""Arrays of other libraries in place of tensors: what is said, and that what is advised works."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
from weft.nn import functional as F


class Buffer:
    """An array of some other library."""

    def __dlpack__(self, **options):
        return np.ones(2).__dlpack__(**options)

    def __dlpack_device__(self):
        return np.ones(2).__dlpack_device__()


ARRAYS = [
    (np.ones(2), "numpy.ndarray; make a tensor of it with weft.as_tensor(x)", weft.as_tensor),
    (jnp.ones(2), "jax.Array; make a tensor of it with weft.from_dlpack(x)", weft.from_dlpack),
    (Buffer(), "tests._tensor.test_foreign.Buffer; make a tensor of it with weft.from_dlpack(x)", weft.from_dlpack),
]
CALLS = [
    (lambda x: weft.relu(x), "relu(): argument 'input' must be Tensor, not {}"),
    (lambda x: weft.cat([weft.ones(2), x]), "expected Tensor as element 1 in argument 0, but got {}"),
    (lambda x: F.mse_loss(weft.ones(2), x), "mse_loss(): argument 'target' must be Tensor, not {}"),
    (lambda x: weft.ones(2).add(x), "add(): argument 'other' must be Tensor, not {}"),
    (lambda x: weft.nn.Parameter(x), "Parameter(): argument 'data' must be Tensor, not {}"),
    (lambda x: weft.relu(weft.ones(2), out=x), "argument 'out' must be Tensor, not {}"),
    (
        lambda x: setattr(weft.ones(2), "grad", x),
        "assigned grad expected to be a Tensor or None but got grad of type {}",
    ),
    (lambda x: weft.autograd.grad([x], weft.ones(2)), "expected Tensors or a sequence of Tensors, got {}"),
]


@pytest.mark.parametrize(("array", "said", "make"), ARRAYS)
def test_an_array_of_another_library_is_named_with_the_way_out(array, said, make):
    for call, text in CALLS:
        with pytest.raises(TypeError) as caught:
            call(array)
        assert str(caught.value) == text.format(said)
    assert weft.relu(make(array)).tolist() == [1, 1]


def test_a_foreign_array_is_not_assigned():
    x = weft.ones(2)
    with pytest.raises(TypeError, match=r"^can't assign a jax.Array to a torch.FloatTensor; make a tensor of it"):
        x[0] = jnp.ones(2)[0]
    assert x.tolist() == [1, 1]


def test_what_is_no_array_is_named_alone():
    with pytest.raises(TypeError, match=r"^relu\(\): argument 'input' must be Tensor, not str$"):
        weft.relu("a")


def test_under_a_transformation_of_jax_the_way_is_another():
    with pytest.raises(
        TypeError, match=r"not jax.Array; under a jax .* call the function that weft.to_jax\(fn\) makes"
    ):
        jax.eval_shape(weft.relu, jnp.ones(2))
    assert jax.eval_shape(weft.to_jax(weft.relu), jnp.ones(2)).shape == (2,)
