"""Optimizers: steps, state and refusals. The numbers are PyTorch's."""

from __future__ import annotations

import copy
import math
import pickle
import re
import warnings

import pytest

import weft
from weft import nn, optim
from weft._base.state import ambient
from weft.errors import StateDictError
from weft.optim._fused import by_device


def two():
    return [
        nn.Parameter(weft.tensor([1.0, -2.0], dtype=weft.float64)),
        nn.Parameter(weft.tensor(3.0, dtype=weft.float64)),
    ]


def run(optimizer, params, steps=range(4)):
    for step in steps:
        for at, param in enumerate(params):
            param.grad = (param.detach() * (step + 1) + at).sin()
        if step == 1:
            params[1].grad = None
        optimizer.step()


STEPS = [
    ("SGD(p, lr=0.1)", [0.744347104089, -1.90922610322], 3.062157878736),
    (
        "SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1)",
        [0.299164501194, -1.702680840251],
        3.094543907941,
    ),
    ("SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True)", [1.219437322641, -2.210689023825], 2.610516697050),
    ("Adam(p, lr=0.1, weight_decay=0.1)", [0.609332990358, -1.820219380899], 3.178320992360),
    ("Adam(p, lr=0.1, amsgrad=True, maximize=True)", [1.246116160565, -2.126344845896], 2.725015573391),
    ("AdamW(p, lr=0.1)", [0.606631715576, -1.87670654992], 3.207030907499),
    (
        "AdamW([{'params': p[:1], 'lr': 0.5}, {'params': p[1:]}], betas=(0.5, 0.6), eps=0.1)",
        [-0.138676290531, -1.703826427218],
        3.001666016106,
    ),
    ("RMSprop(p, lr=0.1)", [-1.642415e-06, -0.242261876817], 2.932812584243),
    (
        "RMSprop(p, lr=0.1, alpha=0.9, momentum=0.5, centered=True, weight_decay=0.1)",
        [-0.213876998983, -1.593761211745],
        4.055889884403,
    ),
    (
        "Adagrad(p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.2, weight_decay=0.1)",
        [0.812295777489, -1.902626937734],
        3.051171761755,
    ),
    ("Adadelta(p, lr=0.5, rho=0.8, eps=0.01, maximize=True)", [1.004211053892, -2.074448556618], 2.797618025527),
    ("Adamax(p, lr=0.1, betas=(0.8, 0.9), weight_decay=0.1)", [0.627568960875, -1.843974751892], 3.180288925035),
    ("NAdam(p, lr=0.1, momentum_decay=0.1, weight_decay=0.1)", [0.722923835148, -1.861342030229], 3.090163945108),
    (
        "NAdam(p, lr=0.1, weight_decay=0.1, decoupled_weight_decay=True)",
        [0.681523176388, -1.839025303419],
        3.029612663796,
    ),
    ("RAdam(p, lr=0.1, betas=(0.5, 0.9), weight_decay=0.1)", [0.658617787122, -1.845902014592], 3.043252875929),
    (
        "RAdam(p, lr=0.1, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)",
        [1.166908558967, -2.026662652715],
        2.745853779251,
    ),
    ("ASGD(p, lr=0.1, lambd=0.1, t0=1, weight_decay=0.1)", [0.647201737241, -1.775069805265], 2.908062937118),
    ("Rprop(p, lr=0.1, etas=(0.4, 1.5), step_sizes=(0.05, 0.2))", [0.35, -1.95], 3.25),
    ("Adafactor(p, lr=0.1, d=1.5, weight_decay=0.1)", [0.3806608372, -1.797079482448], 3.402135332961),
    (
        "Adafactor(p, lr=0.1, eps=(0.5, 2.0), beta2_decay=-0.3, maximize=True)",
        [0.98796691082, -2.102780094158],
        2.828055518616,
    ),
]


@pytest.mark.parametrize(("text", "first", "second"), STEPS, ids=[case[0] for case in STEPS])
def test_four_steps_lead_to_the_known_point(text, first, second):
    p = two()
    run(eval(f"optim.{text}"), p)
    assert p[0].tolist() == pytest.approx(first, abs=1e-10)
    assert p[1].item() == pytest.approx(second, abs=1e-10)
    assert all(param.is_leaf and param.requires_grad for param in p)


MATRIX_STEPS = [
    (
        "Adafactor([x], lr=0.1)",
        [[0.587828323508, -2.073957033486], [0.017147838232, 3.075427106578], [-0.471107479585, -0.001502404059]],
        1e-10,
    ),
    (
        "Muon([x], lr=0.1)",
        [[0.837108055038, -1.947989096091], [0.328528312539, 2.813829271119], [-0.798212011785, 0.096024051165]],
        2e-3,
    ),
    (
        "Muon([x], lr=0.1, nesterov=False, adjust_lr_fn='match_rms_adamw')",
        [[0.931461891175, -1.935772465855], [0.436608843776, 2.874512356717], [-0.925461671377, 0.198020506814]],
        2e-3,
    ),
]


@pytest.mark.parametrize(("text", "expected", "close"), MATRIX_STEPS, ids=[case[0] for case in MATRIX_STEPS])
def test_three_steps_of_a_matrix_lead_to_the_known_point(text, expected, close):
    x = nn.Parameter(weft.tensor([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.25]], dtype=weft.float64))
    optimizer = eval(f"optim.{text}")
    for step in range(3):
        x.grad = (x.detach() * (step + 1)).sin()
        optimizer.step()
    assert weft.allclose(x, weft.tensor(expected, dtype=weft.float64), atol=close, rtol=0)


def test_sparse_adam_leaves_rows_without_gradient_alone():
    x = nn.Parameter(weft.tensor([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.25]], dtype=weft.float64))
    optimizer = optim.SparseAdam([x], lr=0.1)
    for step in range(3):
        before, grad = x.tolist(), (x.detach() * (step + 1)).sin()
        grad[step] = 0
        x.grad = grad.to_sparse(1)
        optimizer.step()
        assert x.tolist()[step] == before[step]
    assert x.reshape(-1).tolist() == pytest.approx(
        [0.848698530534, -2.136799639468, 0.316886376024, 2.82554723589, -0.799885736447, 0.049930405489], abs=1e-10
    )
    assert optimizer.state[x]["exp_avg"][1].tolist() == pytest.approx([0.136352214241, 0.078997673406], abs=1e-10)


def test_half_precision_and_complex_parameters_step_in_their_own_type():
    half = nn.Parameter(weft.ones(1, dtype=weft.bfloat16))
    wide = nn.Parameter(weft.tensor([1 + 1j]))
    half.grad, wide.grad = weft.ones(1, dtype=weft.bfloat16), weft.tensor([1 - 1j])
    for kind in (optim.AdamW, optim.SGD, optim.Adagrad, optim.NAdam, optim.Rprop):
        kind([half, wide], lr=0.1).step()
    assert (half.dtype, wide.dtype) == (weft.bfloat16, weft.complex64)
    assert wide.real.item() < 1 < wide.imag.item()


def test_state_is_laid_out_as_in_pytorch():
    p = two()
    optimizer = optim.AdamW([{"params": p[:1], "lr": 0.5}, {"params": p[1:]}])
    run(optimizer, p)
    state = optimizer.state_dict()
    assert [list(entry) for entry in state["state"].values()] == [["step", "exp_avg", "exp_avg_sq"]] * 2
    step = state["state"][0]["step"]
    assert (step.dtype, step.item(), state["state"][1]["step"].item()) == (weft.float32, 4, 3)
    assert state["param_groups"][0] == {
        "lr": 0.5,
        "betas": (0.9, 0.999),
        "eps": 1e-08,
        "weight_decay": 0.01,
        "amsgrad": False,
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "fused": None,
        "decoupled_weight_decay": True,
        "params": [0],
    }
    assert list(optim.SGD(p, lr=1).state_dict()["param_groups"][0]) == [
        "lr",
        "momentum",
        "dampening",
        "weight_decay",
        "nesterov",
        "maximize",
        "foreach",
        "differentiable",
        "fused",
        "params",
    ]


@pytest.mark.parametrize("text", [STEPS[1][0], STEPS[4][0], STEPS[6][0]])
def test_a_loaded_optimizer_goes_on_where_the_other_stopped(text):
    def make(p):
        return eval(f"optim.{text}", {"optim": optim, "p": p})

    whole, parts = two(), two()
    run(make(whole), whole)
    first = make(parts)
    run(first, parts, range(2))
    second = make(parts)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    run(second, parts, range(2, 4))
    assert [x.tolist() for x in parts] == [x.tolist() for x in whole]


def test_loading_casts_state_but_not_steps():
    p = [nn.Parameter(weft.ones(2))]
    source = optim.Adam(p)
    p[0].grad = weft.ones(2)
    source.step()
    target = optim.Adam([nn.Parameter(weft.ones(2, dtype=weft.float64))])
    target.load_state_dict(source.state_dict())
    (state,) = target.state.values()
    assert (state["exp_avg"].dtype, state["step"].dtype) == (weft.float64, weft.float32)


def test_loading_moves_state_and_steps_to_the_device():
    p = [nn.Parameter(weft.ones(2))]
    source = optim.Adam(p)
    p[0].grad = weft.ones(2)
    source.step()
    there = nn.Parameter(weft.ones(2, device="xla"))
    target = optim.Adam([there])
    target.load_state_dict(source.state_dict())
    assert {tensor.device.type for tensor in target.state[there].values()} == {"xla"}
    there.grad, p[0].grad = weft.ones(2, device="xla"), weft.ones(2)
    there.data.copy_(p[0].detach())
    target.step()
    source.step()
    assert there.tolist() == p[0].tolist()


OF_OTHER_SHAPE = [
    ("SGD(p, lr=0.1, momentum=0.9)", "momentum_buffer", (2, 3), (3, 2)),
    ("AdamW(p)", "exp_avg", (2, 3), (3, 2)),
    ("Adafactor(p)", "row_var", (2, 1), (3, 1)),
    ("Adagrad(p)", "sum", (2, 3), (3, 2)),
    ("LBFGS(p)", "d", (7,), (9,)),
]


@pytest.mark.parametrize(("text", "name", "given", "needed"), OF_OTHER_SHAPE, ids=[case[0] for case in OF_OTHER_SHAPE])
def test_state_of_other_shapes_is_refused_before_anything_changes(text, name, given, needed):
    def trained(*shapes):
        p = [nn.Parameter(weft.ones(shape)) for shape in shapes]
        optimizer = eval(f"optim.{text}", {"optim": optim, "p": p})

        def closure():
            for x in p:
                x.grad = x.detach().clone()
            return sum((x**2).sum() / 2 for x in p)

        optimizer.step(closure)
        return optimizer

    source = trained((1,), (2, 3)).state_dict()
    target = trained((1,), (3, 2)) if name != "d" else trained((1,), (4, 2))
    before = repr(target.state_dict())
    at, shape = (0, (1,)) if name == "d" else (1, (3, 2))
    text = (
        f"loaded state dict does not fit parameter {at} of group 0, of shape {shape}: its state '{name}' has shape "
        f"{given}, expected {needed}. Load the state of an optimizer of the same parameters in the same order, or "
        "start without one"
    )
    with pytest.raises(StateDictError, match=f"^{re.escape(text)}$"):
        target.load_state_dict(source)
    assert repr(target.state_dict()) == before


def test_an_optimizer_with_a_step_of_its_own_may_keep_state_of_any_shape():
    class LowRank(optim.Adam):
        def step(self):
            for param in self.param_groups[0]["params"]:
                self.state[param]["exp_avg"] = param.detach().mean(0)

    source, target = [LowRank([nn.Parameter(weft.ones(3, 2))]) for _ in range(2)]
    source.step()
    target.load_state_dict(source.state_dict())
    assert next(iter(target.state.values()))["exp_avg"].shape == (2,)


def test_state_dicts_without_newer_options_are_loaded():
    p = two()
    source = optim.AdamW(p)
    run(source, p, range(1))
    state = source.state_dict()
    del state["param_groups"][0]["amsgrad"]
    target = optim.AdamW(two())
    target.load_state_dict(state)
    assert target.param_groups[0]["amsgrad"] is False


def test_an_optimizer_is_pickled_with_its_parameters():
    layer = nn.Linear(1, 1)
    twin = pickle.loads(pickle.dumps(optim.SGD(layer.parameters(), lr=0.5)))
    assert twin.param_groups[0]["lr"] == 0.5
    assert twin.param_groups[0]["params"][0].tolist() == layer.weight.tolist()
    twin.step()


REFUSED = [
    ("optim.SGD([], lr=1)", ValueError, "optimizer got an empty parameter list"),
    (
        "optim.SGD(x, lr=1)",
        TypeError,
        "params argument given to the optimizer should be an iterable of Tensors or dicts",
    ),
    ("optim.SGD([x], lr=-1)", ValueError, "Invalid learning rate: -1"),
    ("optim.SGD([x], lr=math.nan)", ValueError, "Invalid learning rate: nan"),
    ("optim.SGD([x], momentum=-1)", ValueError, "Invalid momentum value: -1"),
    ("optim.SGD([x], weight_decay=-1)", ValueError, "Invalid weight_decay value: -1"),
    ("optim.SGD([x], nesterov=True)", ValueError, "Nesterov momentum requires a momentum and zero dampening"),
    ("optim.Adam([x], eps=-1.0)", ValueError, "Invalid epsilon value: -1.0"),
    ("optim.Adam([x], betas=(1.0, 0.1))", ValueError, "Invalid beta parameter at index 0: 1.0"),
    ("optim.AdamW([x], betas=(0.1, math.nan))", ValueError, "Invalid beta parameter at index 1: nan"),
    ("optim.RMSprop([x], momentum=-1)", ValueError, "Invalid momentum value: -1"),
    ("optim.RMSprop([x], alpha=math.nan)", ValueError, "Invalid alpha value: nan"),
    ("optim.Adagrad([x], lr_decay=-0.5)", ValueError, "Invalid lr_decay value: -0.5"),
    ("optim.Adagrad([x], initial_accumulator_value=-1)", ValueError, "Invalid initial_accumulator_value value: -1"),
    ("optim.Adadelta([x], rho=1.1)", ValueError, "Invalid rho value: 1.1"),
    ("optim.Adamax([x], betas=(0.0, 1.0))", ValueError, "Invalid beta parameter at index 1: 1.0"),
    ("optim.NAdam([x], momentum_decay=-0.2)", ValueError, "Invalid momentum_decay value: -0.2"),
    ("optim.RAdam([x], lr=math.nan)", ValueError, "Invalid learning rate: nan"),
    ("optim.ASGD([x], weight_decay=-0.5)", ValueError, "Invalid weight_decay value: -0.5"),
    ("optim.Rprop([x], etas=(1.0, 0.5))", ValueError, "Invalid eta values: 1.0, 0.5"),
    ("optim.SparseAdam([x], lr=0)", ValueError, "Invalid learning rate: 0"),
    (
        "optim.SparseAdam([weft.ones(1, dtype=weft.complex64)])",
        ValueError,
        r"Complex params at indices \[\[0, 0\]\]: SparseAdam does not support complex parameters",
    ),
    ("optim.Adafactor([x], lr=-1)", ValueError, "Learning rate should be >= 0 but is: -1"),
    ("optim.Adafactor([x], beta2_decay=0.8)", ValueError, "beta2_decay should be <= 0 but is: 0.8"),
    ("optim.Adafactor([x], eps=(-1, 1))", ValueError, "epsilon1 should be >= 0 but is: -1"),
    ("optim.Adafactor([x], eps=(None, -1))", ValueError, "epsilon2 should be >= 0 but is: -1"),
    ("optim.Adafactor([x], d=0.5)", ValueError, "Clipping threshold d should be >= 1 but is: 0.5"),
    ("optim.Adafactor([x], weight_decay=math.nan)", ValueError, "weight_decay should be >= 0 but is: nan"),
    ("optim.Muon([x])", ValueError, "Muon only supports 2D parameters whereas we found a parameter with size: "),
    ("optim.Muon([x], momentum=-1)", ValueError, "momentum should be >= 0 but is: -1"),
    ("optim.Muon([x], weight_decay=-1)", ValueError, "weight decay should be >= 0 but is: -1"),
    ("optim.Muon([x], adjust_lr_fn='no')", ValueError, "Adjust learning rate function no is not supported"),
    ("optim.Adam([x], lr=x)", ValueError, "Tensor lr must be 1-element"),
    (
        "optim.Adam([x], lr=x.sum(), foreach=True)",
        ValueError,
        "lr as a Tensor is not supported for capturable=False and foreach=True",
    ),
    ("optim.Adam([x], betas=(0.5, x.sum()))", ValueError, "betas must be either both floats or both Tensors"),
    ("optim.Adam([x], betas=(x, x))", ValueError, r"Tensor betas\[0\] must be 1-element"),
    (
        "optim.Adam([x], betas=(x.sum(), x.sum()), foreach=True)",
        ValueError,
        r"betas\[0\] as a Tensor is not supported for capturable=False and foreach=True",
    ),
    ("optim.Adam([x], fused=True, differentiable=True)", RuntimeError, "`fused` does not support `differentiable`"),
    ("optim.SGD([x], fused=True, foreach=True)", RuntimeError, "`fused` and `foreach` cannot be `True` together."),
    (
        "optim.Optimizer([{'params': x}], {'lr': optim.optimizer.required})",
        ValueError,
        "parameter group didn't specify a value of required optimization parameter lr",
    ),
    ("optim.SGD([3], lr=1)", TypeError, "optimizer can only optimize Tensors, but one of the params is int"),
    ("optim.SGD([weft.ones(1, requires_grad=True) * 2], lr=1)", ValueError, "can't optimize a non-leaf Tensor"),
    (
        "optim.SGD([{'params': {x}}], lr=1)",
        TypeError,
        "optimizer parameters need to be organized in ordered collections",
    ),
    (
        "optim.SGD([{'params': x}, {'params': x}])",
        ValueError,
        "some parameters appear in more than one parameter group",
    ),
    ("optim.SGD([x]).add_param_group(3)", TypeError, "param_group must be a dict, but got <class 'int'>"),
    ("optim.SGD([('x', x), weft.ones(1)])", ValueError, "all optimizer params should be with/without names. Some"),
    (
        "optim.SGD([('x', x)]).add_param_group({'params': weft.ones(1)})",
        ValueError,
        "all optimizer param groups should be with/without names. cannot add param group without names",
    ),
    (
        "optim.SGD([x]).load_state_dict({'state': {}, 'param_groups': []})",
        StateDictError,
        "loaded state dict has a different number of parameter groups",
    ),
    (
        "optim.SGD([x]).load_state_dict({'state': {}, 'param_groups': [{'params': [1, 2]}]})",
        ValueError,
        "loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
    ),
]


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_does_not_fit_is_refused(text, kind, message):
    x = weft.ones(2)
    assert x is not None
    assert math is not None
    with pytest.raises(kind, match=f"^{message}"):
        eval(text)


def test_groups_print_their_options():
    assert repr(optim.SGD([{"params": weft.ones(1)}, {"params": weft.ones(1), "lr": 2}], lr=1)) == (
        "SGD (\nParameter Group 0\n    dampening: 0\n    differentiable: False\n    foreach: None\n    fused: None\n"
        "    lr: 1\n    maximize: False\n    momentum: 0\n    nesterov: False\n    weight_decay: 0\n\n"
        "Parameter Group 1\n    dampening: 0\n    differentiable: False\n    foreach: None\n    fused: None\n"
        "    lr: 2\n    maximize: False\n    momentum: 0\n    nesterov: False\n    weight_decay: 0\n)"
    )


def test_a_closure_is_computed_with_gradients():
    x = nn.Parameter(weft.ones(1))
    optimizer = optim.SGD([("x", x)], lr=0.5)
    assert optimizer.param_groups[0]["param_names"] == ["x"]

    def closure():
        optimizer.zero_grad()
        loss = (x * 2).sum()
        loss.backward()
        return loss

    with weft.no_grad():
        assert optimizer.step(closure).item() == 2
    assert x.tolist() == [0]
    optimizer.zero_grad(set_to_none=False)
    assert x.grad.tolist() == [0]
    optimizer.zero_grad()
    assert x.grad is None
    assert optimizer.step() is None


def test_hooks_run_around_steps_and_state_dicts():
    x, calls = nn.Parameter(weft.ones(1)), []
    optimizer = optim.SGD([x], lr=1)
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.register_state_dict_pre_hook(lambda _: calls.append("saving"))
    optimizer.register_state_dict_post_hook(lambda _, state: {**state, "more": 1})
    optimizer.register_load_state_dict_pre_hook(lambda _, state: calls.append(state["more"]))
    optimizer.register_load_state_dict_post_hook(lambda _: calls.append("loaded"))
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["before", "after", "saving", 1, "loaded"]
    optimizer.register_step_pre_hook(lambda _, args, kwargs: ((*args, lambda: 5.0), kwargs))
    assert optimizer.step() == 5.0
    optimizer.register_step_pre_hook(lambda *_: 3)
    with pytest.raises(
        RuntimeError, match=r"^step must return None or a tuple of \(new_args, new_kwargs\), but got 3\.$"
    ):
        optimizer.step()


def test_a_hook_may_come_before_the_others():
    optimizer, calls = optim.SGD([weft.ones(1)]), []
    optimizer.register_state_dict_pre_hook(lambda _: calls.append("second"))
    optimizer.register_state_dict_pre_hook(lambda _: calls.append("first"), prepend=True)
    optimizer.state_dict()
    assert calls == ["first", "second"]


def test_views_of_parameters_see_the_step():
    x = nn.Parameter(weft.ones(2))
    seen = x.detach()
    x.grad = weft.ones(2)
    optim.SGD([x], lr=1.0).step()
    assert seen.tolist() == [0, 0]


class SignDescent(optim.Optimizer):
    """What users write."""

    @weft.no_grad()
    def step(self, closure=None):
        """Move by the sign of the gradient."""
        for group in self.param_groups:
            for param in group["params"]:
                param.sub_(param.grad.sign() * group["lr"])
        return closure


class Twice(SignDescent):
    def step(self, closure=None):
        """Move twice."""
        super().step()
        return super().step(closure)


@pytest.mark.parametrize(("kind", "expected"), [(SignDescent, [0.5]), (Twice, [0.0])])
def test_an_optimizer_of_the_user_runs_hooks_once_and_computes_its_step(kind, expected):
    x, calls = nn.Parameter(weft.ones(1)), []
    optimizer = kind([x], {"lr": 0.5})
    x.grad = weft.ones(1)
    optimizer.register_step_post_hook(lambda _, args, kwargs: calls.append((args, kwargs)))
    with optim.optimizer.register_optimizer_step_pre_hook(lambda *_: calls.append("every")):
        assert optimizer.step(3) == 3
    with optim.optimizer.register_optimizer_step_post_hook(lambda *_: None):
        assert optimizer.step(closure=4) == 4
    assert calls == ["every", ((optimizer, 3), {}), ((optimizer,), {"closure": 4})]
    assert not ambient().pending
    assert x.tolist() == [2 * expected[0] - 1]


def test_the_base_does_not_step():
    with pytest.raises(NotImplementedError):
        optim.Optimizer([weft.ones(1)], {}).step()


@pytest.mark.parametrize(("name", "expected"), [("SGD", 0.36), ("Adam", 0.6030201), ("Adagrad", 0.7335674)])
def test_a_parameter_that_comes_twice_is_updated_twice(name, expected):
    """The numbers are PyTorch's."""
    x, y = (weft.ones(1, requires_grad=True) for _ in range(2))
    with pytest.warns(UserWarning, match="^optimizer contains a parameter group with duplicate parameters"):
        optimizer = getattr(optim, name)([x, y, x], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = getattr(optim, name)([y.detach().clone().requires_grad_()], lr=0.1)
    other = alone.param_groups[0]["params"][0]
    for _ in range(2):
        for each in (optimizer, alone):
            each.zero_grad()
        (x.square() + y.square() + other.square()).sum().backward()
        for each in (optimizer, alone):
            each.step()
    assert x.item() == pytest.approx(expected, abs=1e-6)
    assert y.item() == other.item()


PARTS = {
    "ranges": lambda base: [base[:4], base[2:6], base[5:]],
    "another order": lambda base: [base, base.view(2, 4).t(), base[3:5]],
    "columns": lambda base: [base.view(4, 2)[:, 0], base.view(4, 2)[:, 1]],
}
OPTIONS = {
    "SGD": {"momentum": 0.9, "weight_decay": 0.1},
    "Adam": {},
    "Adafactor": {},  # updates vectors and matrices separately
}
OVERLAPS = [  # the numbers are PyTorch's
    ("ranges", "SGD", [-0.024319, -0.018239, 0.286762, 0.143381, 0.0, -0.143381, 0.01216, 0.018239]),
    ("ranges", "Adam", [-0.701586, -0.452457, 0.060417, 0.173593, 0.0, -0.173593, 0.204871, 0.452457]),
    ("ranges", "Adafactor", [-0.818789, -0.570681, -0.272066, -0.05181, 0.0, 0.07464, 0.360033, 0.607639]),
    ("another order", "SGD", [0.573525, 0.430144, 0.286762, 0.215007, 0.0, -0.143381, -0.286762, -0.430144]),
    ("another order", "Adam", [-0.409743, -0.166788, 0.060417, 0.17637, 0.0, -0.173593, -0.060417, 0.166788]),
    ("another order", "Adafactor", [-0.704251, -0.466193, -0.259429, -0.067363, 0.0, 0.068044, 0.215925, 0.399297]),
    ("columns", "SGD", [-0.024319, -0.018239, -0.01216, -0.00608, 0.0, 0.00608, 0.01216, 0.018239]),
    ("columns", "Adam", [-0.701586, -0.452457, -0.204871, 0.030208, 0.0, -0.030208, 0.204871, 0.452457]),
    ("columns", "Adafactor", [-0.834798, -0.601048, -0.339636, -0.113006, 0.0, 0.113006, 0.339636, 0.601048]),
]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("parts", "name", "expected"), OVERLAPS)
def test_parameters_that_share_elements_are_updated_one_after_the_other(parts, name, expected, compiled):
    base = weft.arange(8.0) / 4 - 1
    params = [nn.Parameter(part) for part in PARTS[parts](base)]
    optimizer = getattr(optim, name)(params, lr=0.1, **OPTIONS[name])

    def step():
        optimizer.zero_grad()
        sum(param.square().sum() for param in params).backward()
        optimizer.step()

    run = weft.compile(step) if compiled else step
    for _ in range(3):
        run()
    assert base.tolist() == pytest.approx(expected, abs=1e-5)


def test_lbfgs_moves_shared_elements_by_the_sum_of_their_parts():
    base = weft.arange(8.0) / 4 - 1
    params = [nn.Parameter(base[:5]), nn.Parameter(base[3:])]
    optimizer = optim.LBFGS(params, lr=0.1, max_iter=4)

    def closure():
        optimizer.zero_grad()
        loss = sum(((param - 0.3) ** 4).sum() for param in params)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    expected = [-0.56836, -0.41331, -0.26065, -0.08701, 0.05977, 0.25026, 0.48597, 0.65506]
    assert base.tolist() == pytest.approx(expected, abs=1e-4)


def together(*params):
    """The places of parameters that one application updates."""
    places = {id(param): at for at, param in enumerate(params)}
    return [[places[id(param)] for param in group] for group in by_device(params, lambda param: None)]


def test_parts_of_one_buffer_that_share_no_elements_are_updated_together():
    first, second, third = [nn.Parameter(part) for part in weft.ones(8).split(3)]
    assert together(third, first, second) == [[0, 1, 2]]
    assert together(third, second, nn.Parameter(second.data), first) == [[0, 1, 3], [2]]


def test_a_parameter_whose_place_depends_on_an_index_tensor_may_share_any_element():
    base = weft.ones(4)
    position = weft.tensor(1) + 1  # which is not known yet
    params = [nn.Parameter(base[:1]), nn.Parameter(base[position]), nn.Parameter(base[1:])]
    assert together(*params) == [[0], [1], [2]]
