"""Programs as people write them with transforms of functions."""

from __future__ import annotations

import pytest

import weft
from weft import nn
from weft.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap
from weft.nn import functional as F


@pytest.fixture(autouse=True)
def seeded():
    weft.manual_seed(0)


def network():
    return nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 2))


def test_gradients_of_each_sample():
    model, x, y = network().eval(), weft.randn(5, 3), weft.tensor([0, 1, 1, 0, 1])
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def loss(parameters, buffers, sample, target):
        predictions = functional_call(model, (parameters, buffers), (sample.unsqueeze(0),))
        return F.cross_entropy(predictions, target.unsqueeze(0))

    together = vmap(grad(loss), in_dims=(None, None, 0, 0))(parameters, buffers, x, y)
    assert list(together) == list(parameters)
    for at in range(5):
        model.zero_grad()
        F.cross_entropy(model(x[at : at + 1]), y[at : at + 1]).backward()
        for name, p in model.named_parameters():
            assert weft.allclose(together[name][at], p.grad, atol=1e-6)
    norms = weft.stack([g.flatten(1).norm(dim=1) for g in together.values()]).norm(dim=0)
    assert norms.shape == (5,)


def test_dropout_differs_between_samples():
    model = network().train()
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    run = vmap(lambda p, a: functional_call(model, p, (a,)), (None, 0), randomness="different")
    rows = run(parameters, weft.ones(6, 3))
    assert rows.unique(dim=0).shape[0] > 1


def test_ensembles():
    models, x = [network().eval() for _ in range(3)], weft.randn(4, 3)
    parameters, buffers = stack_module_state(models)
    run = lambda p, b, data: functional_call(models[0], (p, b), (data,))  # noqa: E731
    assert weft.allclose(vmap(run, (0, 0, None))(parameters, buffers, x), weft.stack([m(x) for m in models]), atol=1e-6)
    batches = weft.randn(3, 4, 3)
    expected = weft.stack([m(data) for m, data in zip(models, batches, strict=True)])
    assert weft.allclose(vmap(run)(parameters, buffers, batches), expected, atol=1e-6)


def test_an_ensemble_trains_by_an_optimizer_of_stacked_parameters():
    models, x = [nn.Linear(3, 1) for _ in range(4)], weft.randn(16, 3)
    y = x.sum(1, keepdim=True)
    parameters, buffers = stack_module_state(models)
    optimizer = weft.optim.Adam(parameters.values(), lr=0.1)
    losses = []
    for _ in range(40):
        predictions = vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(parameters, buffers)
        loss = ((predictions - y) ** 2).mean(dim=(1, 2))
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
        losses.append(loss)
    assert (losses[-1] < 0.05 * losses[0]).all()


def test_model_agnostic_meta_learning():
    meta = {"w": weft.randn(1, 8, requires_grad=True), "v": weft.randn(8, 1, requires_grad=True)}
    predict = lambda p, x: (x @ p["w"]).tanh() @ p["v"]  # noqa: E731
    loss = lambda p, x, y: F.mse_loss(predict(p, x), y)  # noqa: E731

    def adapted_loss(x, y, x_test, y_test):
        gradients = grad(loss)(meta, x, y)
        fast = {name: p - 0.1 * gradients[name] for name, p in meta.items()}
        return loss(fast, x_test, y_test)

    tasks = [weft.randn(6, 4, 1) for _ in range(4)]
    vmap(adapted_loss)(*tasks).mean().backward()
    together = [p.grad for p in meta.values()]
    for p in meta.values():
        p.grad = None
    for task in zip(*tasks, strict=True):
        gradients = weft.autograd.grad(loss(meta, *task[:2]), list(meta.values()), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(meta.items(), gradients, strict=True)}
        (loss(fast, *task[2:]) / 6).backward()
    assert all(weft.allclose(g, p.grad, atol=1e-5) for g, p in zip(together, meta.values(), strict=True))


def test_neural_tangent_kernels_by_jacobians_and_by_products():
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    run = lambda p, x: functional_call(model, p, (x,))  # noqa: E731
    one, two = weft.randn(4, 3), weft.randn(3, 3)

    def by_jacobians():
        first, second = (vmap(jacrev(run), (None, 0))(parameters, x) for x in (one, two))
        pairs = zip(first.values(), second.values(), strict=True)
        return sum(weft.einsum("naf,mbf->nmab", a.flatten(2), b.flatten(2)) for a, b in pairs)

    def by_products(a, b):
        pullback = vjp(lambda p: run(p, a), parameters)[1]
        return vmap(lambda v: jvp(lambda p: run(p, b), (parameters,), pullback(v))[1])(weft.eye(2))

    kernel = vmap(vmap(by_products, (None, 0)), (0, None))(one, two)
    assert weft.allclose(kernel, by_jacobians(), atol=1e-5)


def test_products_with_hessians_forward_over_reverse():
    model, x = network().eval(), weft.randn(4, 3)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    loss = lambda p: functional_call(model, p, (x,)).square().mean()  # noqa: E731
    direction = {name: weft.randn_like(p) for name, p in parameters.items()}
    forward = jvp(grad(loss), (parameters,), (direction,))[1]
    reverse = vjp(grad(loss), parameters)[1](direction)[0]
    assert all(weft.allclose(forward[name], reverse[name], atol=1e-6) for name in parameters)
    table = hessian(loss)(parameters)
    product = sum((block * direction[name]).flatten(1).sum(1) for name, block in table["4.bias"].items())
    assert weft.allclose(product, forward["4.bias"], atol=1e-6)


def test_jacobians_of_each_sample():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), weft.randn(5, 3)
    one = vmap(jacrev(model))(x)
    assert one.shape == (5, 2, 3)
    assert weft.allclose(one, vmap(jacfwd(model))(x), atol=1e-6)
    assert one.requires_grad
    one.square().sum().backward()  # a penalty on the model's sensitivity
    assert model[0].weight.grad.abs().sum() > 0


def test_an_optimizer_as_a_function():
    def train(start, target, steps=5):
        w, momentum = start, weft.zeros_like(start)
        for _ in range(steps):
            momentum = 0.5 * momentum + grad(lambda w: ((w - target) ** 2).sum())(w)
            w = w - 0.1 * momentum
        return w

    starts, targets = weft.randn(3, 2), weft.randn(3, 2)
    expected = weft.stack([train(*each) for each in zip(starts, targets, strict=True)])
    assert weft.allclose(vmap(train)(starts, targets), expected, atol=1e-6)
    through = jacrev(train)(starts[0], targets[0])
    assert weft.allclose(through, through[0, 0] * weft.eye(2), atol=1e-6)
