"""Recurrent networks and cells against a plain NumPy account of them."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest

import weft
from tests.nn.test_layers import cosines, filled
from weft import nn
from weft.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_step(x, h, weights):
    (h, c), (w_ih, w_hh, b_ih, b_hh, w_hr) = h, weights
    i, f, g, o = np.split(w_ih @ x + b_ih + w_hh @ h + b_hh, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return (h if w_hr is None else w_hr @ h), c


def gru_step(x, h, weights):
    (h,), (w_ih, w_hh, b_ih, b_hh, _) = h, weights
    (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(w_ih @ x + b_ih, 3), np.split(w_hh @ h + b_hh, 3)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    return ((1 - z) * np.tanh(x_n + r * h_n) + z * h,)


def rnn_step(activation):
    def step(x, h, weights):
        w_ih, w_hh, b_ih, b_hh, _ = weights
        return (activation(w_ih @ x + b_ih + w_hh @ h[0] + b_hh),)

    return step


STEPS = {
    "LSTM": lstm_step,
    "GRU": gru_step,
    "RNN_TANH": rnn_step(np.tanh),
    "RNN_RELU": rnn_step(lambda z: np.maximum(z, 0)),
}


def expected(net, x, states):
    """Outputs (length, features) and last states of one sequence (length, features), in NumPy."""
    ends = []
    for layer in range(net.num_layers):
        outputs = []
        for direction in range(1 + net.bidirectional):
            names = [
                f"{n}_l{layer}{'_reverse' * direction}"
                for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
            ]
            own = [getattr(net, n, None) for n in names]
            weights = [
                0.0 if w is None and "bias" in n else None if w is None else w.detach().numpy()
                for n, w in zip(names, own, strict=True)
            ]
            h = tuple(s[len(ends)] for s in states)
            found = []
            for row in x[:: -1 if direction else 1]:
                h = STEPS[net.mode](row, h, weights)
                found.append(h[0])
            outputs.append(np.stack(found[:: -1 if direction else 1]))
            ends.append(h)
        x = np.concatenate(outputs, -1)
    return x, [np.stack(s) for s in zip(*ends, strict=True)]


NETS = [
    pytest.param(lambda: nn.LSTM(3, 4, 2, bidirectional=True), id="lstm"),
    pytest.param(lambda: nn.LSTM(3, 4, 2, bias=False, bidirectional=True, proj_size=2), id="projected"),
    pytest.param(lambda: nn.GRU(3, 4, 2, bidirectional=True), id="gru"),
    pytest.param(lambda: nn.RNN(3, 4, 2, bidirectional=True), id="tanh"),
    pytest.param(lambda: nn.RNN(3, 4, nonlinearity="relu", bias=False), id="relu"),
]


def states_of(net, batch):
    layers = net.num_layers * (1 + net.bidirectional)
    h = cosines(layers, batch, net.proj_size or 4)
    return (h, cosines(layers, batch, 4) * 0.5) if net.mode == "LSTM" else h


def listed(states):
    return list(states) if isinstance(states, tuple) else [states]


def arrays(*tensors):
    return [t.detach().numpy() for t in tensors]


@pytest.mark.parametrize("make", NETS)
def test_batches_packed_sequences_and_single_sequences_follow_the_equations(make):
    net = filled(make())
    x, lengths = cosines(5, 3, 3), [2, 5, 4]
    hx = states_of(net, 3)
    y, ends = net(x, hx)
    packed, packed_ends = net(pack_padded_sequence(x, lengths, enforce_sorted=False), hx)
    padded, found_lengths = pad_packed_sequence(packed)
    assert isinstance(packed, PackedSequence)
    assert found_lengths.tolist() == lengths
    (x_all, y, padded), states = arrays(x, y, padded), arrays(*listed(hx))
    ends, packed_ends = arrays(*listed(ends)), arrays(*listed(packed_ends))
    for at, length in enumerate(lengths):
        for steps, outputs, last in ((5, y, ends), (length, padded, packed_ends)):
            rows, expected_ends = expected(net, x_all[:steps, at], [s[:, at] for s in states])
            np.testing.assert_allclose(outputs[:steps, at], rows, rtol=1e-10)
            for a, b in zip(last, expected_ends, strict=True):
                np.testing.assert_allclose(a[:, at], b, rtol=1e-10)
        assert not padded[length:, at].any()
    rows, _ = expected(net, x_all[:, 1], [np.zeros_like(s[:, 0]) for s in states])
    np.testing.assert_allclose(net(x[:, 1])[0].detach().numpy(), rows, rtol=1e-10)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: nn.LSTM(1, 2, bidirectional=True, proj_size=1), id="lstm"),
        pytest.param(lambda: nn.GRU(1, 2, bidirectional=True), id="gru"),
        pytest.param(lambda: nn.RNN(1, 2, bidirectional=True), id="tanh"),
    ],
)
def test_derivatives_of_packed_sequences(make):
    net = filled(make())
    x = cosines(2, 2, 1).requires_grad_()

    def of(x):
        packed, ends = net(pack_padded_sequence(x, [2, 1]))
        return packed.data, listed(ends)[-1]

    assert weft.autograd.gradcheck(of, (x,))


@pytest.mark.parametrize("make", [lambda: nn.LSTM(1, 1), lambda: nn.GRU(1, 1), lambda: nn.RNN(1, 1)])
def test_second_derivatives(make):
    net = filled(make())
    x = cosines(2, 1).requires_grad_()
    assert weft.autograd.gradgradcheck(lambda x: net(x)[0], (x,))


def test_gradients_of_weights_of_a_relu_network_on_a_hand_computed_case():
    net = nn.RNN(1, 1, nonlinearity="relu", dtype=weft.float64)
    with weft.no_grad():
        for parameter, value in zip(net.parameters(), (2.0, 0.5, 1.0, 0.0), strict=True):
            parameter.fill_(value)
    y, h = net(weft.tensor([[1.0], [-4.0], [3.0]], dtype=weft.float64))  # sums: 3, -5.5, 7
    y.sum().backward()
    assert y.squeeze(1).tolist() == [3.0, 0.0, 7.0]
    assert h.tolist() == [[7.0]]
    assert [p.grad.item() for p in net.parameters()] == [4.0, 0.0, 2.0, 2.0]


def test_batch_first_and_default_states():
    net = nn.GRU(3, 4, batch_first=True)
    x = cosines(2, 5, 3).float()
    y, h = net(x)
    packed, _ = net(pack_padded_sequence(x, [5, 5], batch_first=True), weft.zeros(1, 2, 4))
    y, h, unpacked = arrays(y, h, pad_packed_sequence(packed, batch_first=True)[0])
    assert y.shape == (2, 5, 4)
    assert (y[:, -1] == h[0]).all()
    np.testing.assert_allclose(unpacked, y, rtol=1e-6)


def test_dropout_lies_between_the_layers_and_only_in_training():
    net = nn.RNN(3, 4, 2, dropout=1.0)
    x = cosines(2, 1, 3).float()
    with weft.no_grad():
        net.weight_hh_l1.zero_()
    biases = weft.tanh(net.bias_ih_l1 + net.bias_hh_l1).expand(2, 1, 4)
    dropped, whole, biases = arrays(net(x)[0], net.eval()(x)[0], biases)
    np.testing.assert_allclose(dropped, biases, rtol=1e-6)
    assert not np.allclose(whole, biases)


def test_a_network_in_one_step_at_a_time_is_its_cell():
    for net, cell in ((nn.LSTM(3, 4), nn.LSTMCell(3, 4)), (nn.GRU(3, 4), nn.GRUCell(3, 4))):
        net, cell, x, h = filled(net), filled(cell), cosines(3, 2, 3), None
        for row in x:
            h = cell(row, h)
        _, last = net(x)
        weft.cat(listed(h)).cos().sum().backward()
        weft.cat(listed(last)).cos().sum().backward()
        ours = arrays(*(s[0] for s in listed(last)), *(p.grad for p in net.parameters()))
        for a, b in zip(ours, arrays(*listed(h), *(p.grad for p in cell.parameters())), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "step"), [("GRUCell", "GRU"), ("RNNCell", "RNN_TANH")])
def test_cells_follow_the_equations(name, step):
    cell = filled(getattr(nn, name)(3, 4, bias=False))
    x, h = cosines(2, 3), cosines(2, 4)
    weights = [cell.weight_ih.detach().numpy(), cell.weight_hh.detach().numpy(), 0.0, 0.0, None]
    for at, y in enumerate(cell(x, h).detach().numpy()):
        np.testing.assert_allclose(y, STEPS[step](x[at].numpy(), (h[at].numpy(),), weights)[0], rtol=1e-10)
    assert cell(x[0]).shape == (4,)
    assert weft.autograd.gradcheck(cell, (x.requires_grad_(), h.requires_grad_()))


OPTIONS = ("params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")


def test_functions_of_the_package_are_the_networks():
    x, lengths = cosines(5, 2, 3), weft.tensor([2, 2, 1, 1, 1])
    for name, net in (("lstm", nn.LSTM(3, 4, proj_size=2)), ("gru", nn.GRU(3, 4)), ("rnn_tanh", nn.RNN(3, 4))):
        net, function, hx = filled(net), getattr(weft, name), states_of(net, 2)
        options = (net._flat_weights, True, 1, 0.0, False, False)
        by_name = dict(zip(OPTIONS, (*options, True), strict=True))
        first = function(input=x.transpose(0, 1), hx=hx, **by_name)[0].transpose(0, 1)
        data, *ends = function(x.flatten(0, 1)[:7], lengths, hx, *options)
        found, last = net(PackedSequence(x.flatten(0, 1)[:7], lengths), hx)
        pairs = arrays(first, net(x, hx)[0], function(x, hx, *options, False)[0], first, data, found.data)
        pairs += [a for pair in zip(ends, listed(last), strict=True) for a in arrays(*pair)]
        for a, b in zip(pairs[::2], pairs[1::2], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)


def test_a_compiled_training_step_learns():
    weft.manual_seed(0)
    net = nn.LSTM(2, 3)
    optimizer = weft.optim.SGD(net.parameters(), lr=0.5)
    x, y = cosines(4, 2, 2).float(), cosines(4, 2, 3).float() * 0.5

    @weft.compile
    def step():
        optimizer.zero_grad()
        loss = ((net(x)[0] - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step().item() for _ in range(6)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.95 * losses[0]


def test_lengths_are_no_part_of_the_program(compilations):
    net = nn.GRU(2, 3)
    x = cosines(4, 3, 2).float()

    def run(lengths):
        packed, _ = net(pack_padded_sequence(x, lengths))
        return pad_packed_sequence(packed)[0]

    run([4, 4, 2]).sum().item()  # with the parameters' first values
    run([4, 4, 2]).sum().item()
    compilations()
    run([4, 2, 1]).sum().item()
    run([4, 4, 4]).sum().item()
    assert not compilations()


def test_options_show_in_the_text_and_the_names():
    net = nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2, bias=False, batch_first=True, dropout=0.5)
    assert repr(net) == (
        "LSTM(3, 4, proj_size=2, num_layers=2, bias=False, batch_first=True, dropout=0.5, bidirectional=True)"
    )
    kinds = ("weight_ih", "weight_hh", "weight_hr")
    names = [f"{kind}_l{layer}{end}" for layer in (0, 1) for end in ("", "_reverse") for kind in kinds]
    assert list(net.state_dict()) == names
    assert [tuple(p.shape) for p in net.all_weights[2]] == [(16, 4), (16, 2), (2, 4)]
    assert net.all_weights[0][0] is net.weight_ih_l0
    assert repr(nn.RNN(3, 4, 1, "relu")) == "RNN(3, 4)"
    assert repr(nn.RNNCell(3, 4, False, "relu")) == "RNNCell(3, 4, bias=False, nonlinearity=relu)"
    assert repr(nn.GRUCell(3, 4)) == "GRUCell(3, 4)"
    assert nn.RNNCellBase(3, 4, True, 2).weight_ih.shape == (8, 3)
    assert nn.LSTM(3, 4).flatten_parameters() is None


def test_parameters_are_uniform_within_the_root_of_the_size():
    for net in (nn.RNN(1, 16, bias=False), nn.RNNCell(1, 16, bias=False)):
        largest = max(float(p.abs().max()) for p in net.parameters())
        assert 0.2 < largest <= 0.25


def test_copies_are_independent_and_equal():
    net = nn.GRU(3, 4, 2)
    x = cosines(2, 1, 3).float()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert weft.equal(twin(x)[0], net(x)[0])
        assert twin.all_weights[0][0] is twin.weight_ih_l0
        assert twin.weight_ih_l0 is not net.weight_ih_l0


Z = weft.zeros
REFUSED = [
    (lambda: nn.LSTM(3, 4)(Z(2, 2, 5)), RuntimeError, "input.size(-1) must be equal to input_size. Expected 3, got 5"),
    (lambda: nn.LSTM(3, 4)(Z(3)), ValueError, "LSTM: Expected input to be 2D or 3D, got 1D instead"),
    (lambda: nn.RNN(3, 4)(Z(3)), ValueError, "RNN: Expected input to be 2D or 3D, got 1D tensor instead"),
    (
        lambda: nn.GRU(3, 4)(Z(2, 2, 3, dtype=weft.float64)),
        ValueError,
        "RNN input dtype (torch.float64) does not match weight dtype (torch.float32). Convert input: "
        "input.to(torch.float32), or convert model: model.to(torch.float64)",
    ),
    (
        lambda: nn.LSTM(3, 4)(Z(2, 2, 3), (Z(1, 3, 4), Z(1, 2, 4))),
        RuntimeError,
        "Expected hidden[0] size (1, 2, 4), got [1, 3, 4]",
    ),
    (
        lambda: nn.LSTM(3, 4)(Z(2, 2, 3), (Z(1, 2, 4), Z(1, 2, 5))),
        RuntimeError,
        "Expected hidden[1] size (1, 2, 4), got [1, 2, 5]",
    ),
    (
        lambda: nn.LSTM(3, 4)(Z(2, 2, 3), (Z(2, 4), Z(2, 4))),
        RuntimeError,
        "For batched 3-D input, hx and cx should also be 3-D but got (2-D, 2-D) tensors",
    ),
    (
        lambda: nn.LSTM(3, 4)(Z(2, 3), (Z(1, 2, 4), Z(1, 2, 4))),
        RuntimeError,
        "For unbatched 2-D input, hx and cx should also be 2-D but got (3-D, 3-D) tensors",
    ),
    (lambda: nn.LSTM(3, 4)(Z(2, 2, 3), Z(1, 2, 4)), IndexError, "index 1 is out of bounds for dimension 0 with size 1"),
    (
        lambda: nn.LSTM(3, 4)(Z(2, 2, 3), Z(2, 1, 2, 4)),
        TypeError,
        "lstm(): argument 'hx' must be tuple of Tensors, not Tensor",
    ),
    (
        lambda: nn.LSTM(3, 4)(Z(2, 2, 3), [Z(1, 2, 4)]),
        TypeError,
        "LSTM: hx must be a pair (h_0, c_0) of tensors, got list",
    ),
    (
        lambda: nn.GRU(3, 4)(Z(2, 2, 3), Z(2, 4)),
        RuntimeError,
        "For batched 3-D input, hx should also be 3-D but got 2-D tensor",
    ),
    (
        lambda: nn.GRU(3, 4)(Z(2, 3), Z(1, 2, 4)),
        RuntimeError,
        "For unbatched 2-D input, hx should also be 2-D but got 3-D tensor",
    ),
    (lambda: nn.GRU(3, 4)(Z(2, 2, 3), Z(1, 3, 4)), RuntimeError, "Expected hidden size (1, 2, 4), got [1, 3, 4]"),
    (
        lambda: nn.GRU(3, 4)(Z(2, 2, 3), Z(1, 2, 4, dtype=weft.float64)),
        RuntimeError,
        "mat1 and mat2 must have the same dtype, but got Double and Float",
    ),
    (lambda: nn.RNN(3, 4)(Z(0, 2, 3)), RuntimeError, "Expected sequence length to be larger than 0 in RNN"),
    (
        lambda: nn.RNN(3, 4)(PackedSequence(Z(3), weft.tensor([2, 1]))),
        RuntimeError,
        "input must have 2 dimensions, got 1",
    ),
    (lambda: nn.GRU(3, 4, proj_size=2), ValueError, "proj_size argument is only supported for LSTM, not RNN or GRU"),
    (lambda: nn.RNN(3, 4, nonlinearity="x"), ValueError, "Unknown nonlinearity 'x'. Select from 'tanh' or 'relu'."),
    (
        lambda: nn.LSTM(3, 4, dropout=2),
        ValueError,
        "dropout should be a number in range [0, 1] representing the probability of an element being zeroed",
    ),
    (lambda: nn.LSTM(3, 4, bias=1), TypeError, "bias should be of type bool, got: int"),
    (lambda: nn.LSTM(0, 4), ValueError, "input_size must be greater than zero"),
    (
        lambda: nn.LSTM(3, 4, proj_size=-1),
        ValueError,
        "proj_size should be a positive integer or zero to disable projections",
    ),
    (lambda: nn.LSTM(3, 4, proj_size=4), ValueError, "proj_size has to be smaller than hidden_size"),
    (lambda: nn.RNNBase("x", 3, 4), ValueError, "Unrecognized RNN mode: x"),
    (lambda: nn.RNNCell(3, 4)(Z(2, 2, 3)), ValueError, "RNNCell: Expected input to be 1D or 2D, got 3D instead"),
    (
        lambda: nn.RNNCell(3, 4)(Z(2, 3), Z(2, 2, 4)),
        ValueError,
        "RNNCell: Expected hidden to be 1D or 2D, got 3D instead",
    ),
    (lambda: nn.RNNCell(3, 4, nonlinearity="x")(Z(2, 3)), RuntimeError, "Unknown nonlinearity: x"),
    (lambda: nn.GRUCell(3, 4)(Z(2, 5)), RuntimeError, "input has inconsistent input_size: got 5 expected 3"),
    (
        lambda: nn.LSTMCell(3, 4)(Z(2, 3), (Z(2, 4), Z(3, 4))),
        RuntimeError,
        "Input batch size 2 doesn't match hidden1 batch size 3",
    ),
    (
        lambda: nn.LSTMCell(3, 4)(Z(2, 3), (Z(2, 5), Z(2, 4))),
        RuntimeError,
        "hidden0 has inconsistent hidden_size: got 5, expected 4",
    ),
    (
        lambda: nn.LSTMCell(3, 4)(Z(2, 3), (Z(2, 4), Z(2, 2, 4))),
        ValueError,
        "LSTMCell: Expected hx[1] to be 1D or 2D, got 3D instead",
    ),
    (
        lambda: nn.LSTMCell(3, 4)(Z(2, 3), Z(2, 4)),
        TypeError,
        "lstm_cell(): argument 'hx' (position 2) must be tuple of Tensors, not Tensor",
    ),
    (
        lambda: weft.lstm(Z(2, 2, 3), (Z(1, 2, 4),), [], False, 1, 0.0, False, False, False),
        RuntimeError,
        "lstm expects two hidden states",
    ),
    (
        lambda: weft.gru(Z(2, 2, 3), Z(1, 2, 4), [Z(12, 3)], False, 1, 0.0, False, False, False),
        RuntimeError,
        "GRU: expected 1 x 2 parameters, one group per layer and direction, but got 1",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED, ids=[text[:40] for *_, text in REFUSED])
def test_what_does_not_fit_is_refused(call, kind, text):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text


def test_useless_dropout_is_warned_of():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nn.GRU(3, 4, dropout=0.5)
    assert [str(w.message) for w in caught] == [
        "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
        "greater than 1, but got dropout=0.5 and num_layers=1"
    ]
    assert caught[0].filename == __file__


def test_empty_batches_give_empty_outputs():
    y, (h, c) = nn.LSTM(3, 4)(Z(2, 0, 3))
    assert (y.shape, h.shape, c.shape) == ((2, 0, 4), (1, 0, 4), (1, 0, 4))
    assert nn.GRUCell(3, 4)(Z(0, 3)).shape == (0, 4)
