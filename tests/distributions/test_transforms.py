"""Transforms: inverses, Jacobians against derivatives, shapes, caches; and the registries of constraints."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import weft
from weft import distributions as dist
from weft.distributions import constraints, transforms
from weft.distributions.constraint_registry import ConstraintRegistry


def t(x):
    return weft.tensor(x, dtype=weft.float64)


VECTOR = t([0.3, -1.2, 0.8])
BIJECTIONS = {
    "exp": (transforms.ExpTransform(), VECTOR),
    "softplus": (transforms.SoftplusTransform(), VECTOR),
    "sigmoid": (transforms.SigmoidTransform(), VECTOR),
    "tanh": (transforms.TanhTransform(), VECTOR),
    "power": (transforms.PowerTransform(t(1.7)), VECTOR.abs()),
    "affine": (transforms.AffineTransform(t(0.5), t([2.0, -3.0, 0.4])), VECTOR),
    "affine_numbers": (transforms.AffineTransform(0.5, -2.0), VECTOR),
    "affine_event": (transforms.AffineTransform(0.5, -2.0, event_dim=1), VECTOR),
    "cdf": (transforms.CumulativeDistributionTransform(dist.Normal(t(0.2), t(1.4))), VECTOR),
    "compose": (transforms.ComposeTransform([transforms.AffineTransform(0.0, 2.0), transforms.ExpTransform()]), VECTOR),
    "independent": (transforms.IndependentTransform(transforms.ExpTransform(), 1), VECTOR),
    "reshape": (transforms.ReshapeTransform((4,), (2, 2)), t([0.3, -1.2, 0.8, 2.0])),
    "stick": (transforms.StickBreakingTransform(), VECTOR),
    "correlation": (transforms.CorrCholeskyTransform(), VECTOR),
    "cat": (
        transforms.CatTransform([transforms.ExpTransform(), transforms.AffineTransform(1, 3)], lengths=[1, 2]),
        VECTOR,
    ),
    "stack": (transforms.StackTransform([transforms.ExpTransform(), transforms.AffineTransform(1, 3)]), VECTOR[:2]),
    "inverse": (transforms.ExpTransform().inv, VECTOR.exp()),
    "identity": (transforms.identity_transform, VECTOR),
}


def independent_values(name, y):
    """The elements of a value that determine the others."""
    if name == "stick":
        return y[..., :-1]
    return y[..., *np.tril_indices(y.shape[-1], -1)] if name == "correlation" else y.reshape(-1)


def log_det(name, transform, x):
    """Of the matrix of derivatives, one row of it at a time."""
    x = x.clone().requires_grad_()
    values = independent_values(name, transform(x))
    rows = [weft.autograd.grad(value, x, retain_graph=True)[0].reshape(-1) for value in values.unbind()]
    return weft.linalg.slogdet(weft.stack(rows)).logabsdet.item()


@pytest.mark.parametrize("name", BIJECTIONS)
def test_bijections(name):
    transform, x = BIJECTIONS[name]
    y = transform(x)
    assert transform.bijective
    assert transform.codomain.check(y).all()
    np.testing.assert_allclose(transform.inv(y).numpy(), x.numpy(), rtol=1e-9)
    assert tuple(transform.forward_shape(x.shape)) == tuple(y.shape)
    assert tuple(transform.inverse_shape(y.shape)) == tuple(x.shape)
    terms = transform.log_abs_det_jacobian(x, y)
    assert terms.sum().item() == pytest.approx(log_det(name, transform, x), abs=1e-9)
    back = transform.inv.log_abs_det_jacobian(y, x)
    np.testing.assert_allclose(back.numpy(), -terms.numpy())


@pytest.mark.parametrize(
    ("transform", "x"),
    [
        (transforms.AbsTransform(), VECTOR),
        (transforms.SoftmaxTransform(), VECTOR),
        (transforms.LowerCholeskyTransform(), t([[0.3, 9.0], [-1.2, 0.8]])),
        (transforms.PositiveDefiniteTransform(), t([[0.3, 9.0], [-1.2, 0.8]])),
    ],
)
def test_maps_without_inverse(transform, x):
    y = transform(x)
    assert not transform.bijective
    assert transform.codomain.check(y).all()
    np.testing.assert_allclose(transform(transform.inv(y)).numpy(), y.numpy())
    with pytest.raises(NotImplementedError, match=r"does not implement log_abs_det_jacobian$"):
        transform.log_abs_det_jacobian(x, y)


CONSTRAINTS = [
    constraints.real, constraints.positive, constraints.nonnegative, constraints.greater_than(2.0),
    constraints.less_than(-1.0), constraints.interval(-1.0, 3.0), constraints.interval(t(-1.0), t(3.0)),
    constraints.half_open_interval(0.0, 1.0), constraints.unit_interval, constraints.simplex, constraints.real_vector,
    constraints.corr_cholesky, constraints.independent(constraints.positive, 1),
    constraints.cat([constraints.positive, constraints.real], lengths=[1, 2]),
    constraints.stack([constraints.positive, constraints.real, constraints.unit_interval]),
]  # fmt: skip


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=repr)
def test_registries(constraint):
    for registry in (dist.biject_to, dist.transform_to):
        transform = registry(constraint)
        y = transform(VECTOR)
        assert constraint.check(y).all()
        np.testing.assert_allclose(transform(transform.inv(y)).numpy(), y.numpy())
    assert dist.biject_to(constraint).bijective


def test_own_constraints():
    class Even(constraints.Constraint):
        pass

    registry = ConstraintRegistry()
    with pytest.raises(NotImplementedError, match=r"^Cannot transform Even constraints$"):
        registry(Even())
    registry.register(Even)(lambda constraint: transforms.ExpTransform())
    assert registry(Even()) == transforms.ExpTransform()
    with pytest.raises(
        TypeError, match=r"^Expected constraint to be either a Constraint subclass or instance, but got 3$"
    ):
        registry.register(3, transforms.ExpTransform)
    matrix = dist.transform_to(constraints.positive_definite)(t([[0.3, 9.0], [-1.2, 0.8]]))
    assert constraints.positive_definite.check(matrix)
    assert constraints.positive_semidefinite.check(matrix)


def test_caches():
    cached = transforms.TanhTransform(cache_size=1)
    x = t([30.0])  # whose tangent is 1
    y = cached(x)
    assert cached.inv(y) is x
    assert cached(x) is y
    assert transforms.TanhTransform().inv(transforms.TanhTransform()(x)).isinf()
    affine = transforms.AffineTransform(1.0, 2.0)
    assert affine.with_cache(0) is affine
    assert affine.with_cache(1) == affine
    whole = transforms.ComposeTransform([affine, transforms.StackTransform([cached, affine])]).with_cache(1)
    pair = t([0.1, 0.2])
    assert whole.inv(whole(pair)) is pair
    with pytest.raises(ValueError, match=r"^cache_size must be 0 or 1$"):
        transforms.ExpTransform(cache_size=2)


def test_equality_and_copies():
    assert transforms.ExpTransform() == transforms.ExpTransform() != transforms.TanhTransform()
    assert transforms.ExpTransform().inv == transforms.ExpTransform().inv
    assert transforms.AffineTransform(t(1.0), 2.0) == transforms.AffineTransform(t(1.0), 2.0)
    assert transforms.AffineTransform(1.0, 2.0) != transforms.AffineTransform(1.0, 3.0)
    assert transforms.PowerTransform(2.0) == transforms.PowerTransform(2.0)
    transform = transforms.ExpTransform()
    assert transform.inv.inv is transform
    assert pickle.loads(pickle.dumps(transform)) == copy.deepcopy(transform) == transform
    assert repr(transforms.ExpTransform().inv) == "_InverseTransform(ExpTransform())"


def test_signs():
    assert transforms.AffineTransform(0.0, -2.0).sign == -1
    assert transforms.ComposeTransform([transforms.AffineTransform(0.0, -2.0), transforms.ExpTransform()]).sign == -1
    assert transforms.AffineTransform(0.0, t([2.0, -1.0])).sign.tolist() == [1, -1]
    with pytest.raises(NotImplementedError, match=r"does not implement sign$"):
        _ = transforms.AbsTransform().sign
    falling = dist.TransformedDistribution(dist.Exponential(t(1.0)), transforms.AffineTransform(0.0, -1.0))
    assert falling.cdf(t(-1.0)).item() == pytest.approx(np.exp(-1))
    assert falling.icdf(t(np.exp(-1))).item() == pytest.approx(-1)


def test_events_of_composed_transforms():
    """Parts of different dims: the whole has the most, and terms are summed over those that a part lacks."""
    whole = transforms.ComposeTransform([transforms.ExpTransform(), transforms.StickBreakingTransform()])
    assert (whole.domain.event_dim, whole.codomain.event_dim) == (1, 1)
    x = VECTOR.expand(2, 3)
    assert whole.log_abs_det_jacobian(x, whole(x)).shape == (2,)
    corr = transforms.CorrCholeskyTransform()
    assert (corr.domain.event_dim, corr.codomain.event_dim) == (1, 2)
    with pytest.raises(ValueError, match=r"^Please use either \.domain\.event_dim or \.codomain\.event_dim$"):
        _ = corr.event_dim


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: transforms.ReshapeTransform((3,), (2,)), ValueError, "in_shape, out_shape have different numbers"),
        (lambda: transforms.ReshapeTransform((4,), (2, 2))(VECTOR), ValueError, "Shape mismatch: expected "),
        (
            lambda: transforms.IndependentTransform(transforms.ExpTransform(), 2)(VECTOR),
            ValueError,
            "Too few dimensions",
        ),
        (lambda: transforms.CorrCholeskyTransform().forward_shape((4,)), ValueError, "Input is not a flattened lower-"),
        (lambda: transforms.CorrCholeskyTransform().inverse_shape((4, 3)), ValueError, "Input is not square"),
        (lambda: transforms.StackTransform([transforms.ExpTransform()])(VECTOR), AssertionError, r"x\.size\(0\) = 3"),
        (lambda: transforms.CatTransform([transforms.ExpTransform()])(VECTOR), AssertionError, r"x\.size\(0\) = 3"),
        (
            lambda: transforms.CatTransform([transforms.ExpTransform()], lengths=[1, 2]),
            AssertionError,
            r"lengths \(2\)",
        ),
        (lambda: transforms.StackTransform([3]), AssertionError, "All elements of tseq must be Transform instances"),
    ],
)
def test_errors(call, kind, text):
    with pytest.raises(kind, match=f"^{text}"):
        call()
