"""Counts of operations; `tests/oracle/test_flops.py` compares them with PyTorch's."""

import pytest

import weft as torch
import weft.nn.functional as F
from weft import nn
from weft.utils.checkpoint import checkpoint
from weft.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula


def flops(function):
    """(forward, backward) of a function of nothing, whose result is a tensor with a gradient."""
    with FlopCounterMode(display=False) as counter:
        y = function()
        forward = counter.get_total_flops()
        y.sum().backward()
    return forward, counter.get_total_flops() - forward


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.body = nn.Sequential(nn.Linear(256, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        return self.body(self.conv(x).flatten(1))


def test_modules_and_operators_of_both_passes():
    net, x = Net(), torch.ones(2, 3, 8, 8)
    aten = torch.ops.aten
    with FlopCounterMode(display=False) as counter:
        net(x).sum().backward()
    counts = counter.get_flop_counts()
    assert counts["Net.conv"] == {aten.convolution: 27_648, aten.convolution_backward: 27_648}
    assert counts["Net.body"] == {aten.addmm: 8_256, aten.addmm_backward: 16_512}
    assert counts["Net.body.2"] == {aten.addmm: 64, aten.addmm_backward: 128}
    assert counts["Net"] == counts["Global"]
    assert counter.get_total_flops() == 80_064 == sum(counts["Global"].values())


def test_the_table(capsys):
    with FlopCounterMode(depth=1) as counter:
        Net()(torch.ones(2, 3, 8, 8))
        torch.ones(300, 300) @ torch.ones(300, 300)
    assert capsys.readouterr().out.rstrip("\n") == counter.get_table()
    lines = [line.split() for line in counter.get_table().splitlines()]
    assert lines[0] == ["Module", "FLOP", "%", "Total"]
    assert [line[0] for line in lines if line[0] not in ("-", "Module")][1:] == ["Global", "Net"]
    assert ["-", "aten.mm", "54.000M", "99.93%"] in lines
    assert "Net.body" in counter.get_table(depth=2)
    with FlopCounterMode(display=False) as empty:
        pass
    assert empty.get_table().splitlines()[-1].split() == ["Global", "0", "0%"]


def test_nothing_is_computed():
    model = nn.Linear(1 << 20, 1 << 20, device="meta")
    with FlopCounterMode(display=False) as counter:
        model(torch.empty(1 << 10, 1 << 20, device="meta"))
    assert counter.get_total_flops() == 2 << 50


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (1, 1, 1, 2), (3, 2, 1, 4)]
)
def test_each_gradient_of_a_convolution_costs_what_the_convolution_does(stride, padding, dilation, groups):
    def convolved():
        return F.conv2d(leaf(2, 4, 9, 9), leaf(8, 4 // groups, 3, 3), None, stride, padding, dilation, groups)

    def transposed():
        return F.conv_transpose2d(leaf(2, 8, 5, 5), leaf(8, 4, 3, 3), None, stride, 1, 0, groups)

    places = convolved().shape[2] ** 2
    assert flops(convolved) == (each := 2 * 2 * 8 * 4 // groups * places * 9, 2 * each)
    assert flops(transposed)[1] == 2 * flops(transposed)[0]


def test_an_image_smaller_than_the_kernel():
    assert flops(lambda: F.conv2d(leaf(2, 3, 1, 1), leaf(4, 3, 3, 3), padding=1)) == (432, 864)


def test_attention_computes_its_probabilities_again():
    forward, backward = flops(
        lambda: F.scaled_dot_product_attention(leaf(2, 3, 5, 8), leaf(2, 3, 7, 8), leaf(2, 3, 7, 8))
    )
    assert (forward, backward) == (2 * 2 * 2 * 3 * 5 * 7 * 8, 5 * 2 * 2 * 3 * 5 * 7 * 8)


def test_only_wanted_gradients_count():
    x, w = torch.ones(3, 4), leaf(4, 5)
    assert flops(lambda: x @ w) == (120, 120)


def test_element_wise_products_are_not_counted():
    assert flops(lambda: leaf(3, 4) * leaf(3, 4)) == (0, 0)
    assert flops(lambda: torch.einsum("i,j->ij", leaf(3), torch.ones(4)))[0] == 0


def test_a_checkpoint_is_counted_once_and_its_recomputation_again():
    net, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), leaf(3, 4)
    plain, again = flops(lambda: net(x)), flops(lambda: checkpoint(net, x, use_reentrant=False))
    assert again[0] == plain[0]
    assert again[1] == plain[1] + 2 * 3 * 4 * 8  # the last product is not needed again


def test_captured_and_mapped_functions():
    step = torch.compile(lambda a, b: (a @ b).relu())
    a, b = leaf(3, 4), leaf(4, 5)
    assert flops(lambda: step(a, b)) == (120, 240)
    assert flops(lambda: step(a, b)) == (120, 240)  # counting is a mode, under which functions run uncaptured
    with FlopCounterMode(display=False) as counter:
        torch.func.vmap(torch.matmul)(torch.ones(5, 3, 4), torch.ones(5, 4, 2))
    assert counter.get_total_flops() == 240


def test_loops_count_each_round():
    layer = nn.RNN(5, 6, bias=False)
    with FlopCounterMode(display=False) as counter:
        layer(torch.ones(4, 3, 5))
    assert counter.get_total_flops() == 4 * 2 * 3 * 6 * (5 + 6)


@pytest.fixture
def operator():
    @torch.library.custom_op("flops_test::powers", mutates_args=())
    def powers(x: torch.Tensor, n: int) -> torch.Tensor:
        for _ in range(n):
            x = x @ x
        return x

    yield torch.ops.flops_test.powers
    flop_registry.clear()


def test_formulas(operator):
    x = torch.ones(3, 3)
    with FlopCounterMode(display=False) as counted:
        operator(x, 2)
        operator(x, 2)
    assert counted.get_flop_counts() == {"Global": {operator: 2 * 2 * 54}}

    register_flop_formula(operator)(lambda x, n, out_shape=None: 7 * n * x[0] * out_shape[1])
    with FlopCounterMode(display=False) as counted:
        operator(x, 2)
    assert counted.get_total_flops() == 126

    mapping = {operator: lambda x, n, out_shape=None: 1, torch.ops.aten.mm: lambda a, b, out_shape=None: 10}
    with FlopCounterMode(display=False, custom_mapping=mapping) as counted:
        operator(x, 2)
        x @ x
    assert counted.get_total_flops() == 11
    with pytest.raises(RuntimeError, match=r"^duplicate registrations for flops_test\.powers$"):
        register_flop_formula(operator)(len)


def test_formulas_of_tensors(operator):
    register_flop_formula([operator], get_raw=True)(lambda x, n, out_val=None: int(x.sum()) + out_val.numel())
    with FlopCounterMode(display=False) as counted:
        operator(torch.ones(3, 3), 2)
    assert counted.get_total_flops() == 18


def test_refusals():
    with pytest.raises(ValueError, match=r"expected each target to be OpOverloadPacket .* got mm which is of type"):
        register_flop_formula("mm")(len)
    mode = FlopCounterMode(display=False)
    with mode, pytest.raises(RuntimeError, match="in use already"), mode:
        pass
    with mode:
        torch.ones(2, 2) @ torch.ones(2, 2)
    with mode:
        pass
    assert mode.get_total_flops() == 0
    with pytest.warns(UserWarning, match="mods argument is not needed anymore"):
        FlopCounterMode(nn.Linear(1, 1))
