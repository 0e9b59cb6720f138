"""What all distributions share: shapes, expansion, validation, and nesting."""

from __future__ import annotations

import copy
import pickle

import pytest

import weft
from weft import distributions as dist
from weft.distributions import constraints
from weft.distributions.utils import broadcast_all, lazy_property, tril_matrix_to_vec, vec_to_tril_matrix

X = weft.tensor([0.3, 0.4, 0.6])
EXAMPLES = {
    "Bernoulli": dist.Bernoulli(logits=X),
    "Beta": dist.Beta(X, X),
    "Binomial": dist.Binomial(3, X),
    "Categorical": dist.Categorical(X.expand(3, 3)),
    "Cauchy": dist.Cauchy(X, X),
    "Chi2": dist.Chi2(X),
    "ContinuousBernoulli": dist.ContinuousBernoulli(X),
    "Dirichlet": dist.Dirichlet(X.expand(3, 3)),
    "ExpRelaxed": dist.RelaxedOneHotCategorical(weft.tensor(0.5), X.expand(3, 3)),
    "Gumbel": dist.Gumbel(X, X),
    "HalfNormal": dist.HalfNormal(X),
    "Independent": dist.Independent(dist.Normal(X.expand(3, 3), 1.0), 1),
    "LKJCholesky": dist.LKJCholesky(3, X),
    "LogNormal": dist.LogNormal(X, X),
    "LogisticNormal": dist.LogisticNormal(X.expand(3, 3), X),
    "LowRank": dist.LowRankMultivariateNormal(X.expand(3, 3), X.unsqueeze(-1), X),
    "Mixture": dist.MixtureSameFamily(dist.Categorical(X.expand(3, 3)), dist.Normal(X.expand(3, 3), 1.0)),
    "Multinomial": dist.Multinomial(4, X.expand(3, 3)),
    "MultivariateNormal": dist.MultivariateNormal(X.expand(3, 3), weft.eye(3)),
    "NegativeBinomial": dist.NegativeBinomial(3, X),
    "OneHotCategorical": dist.OneHotCategorical(X.expand(3, 3)),
    "Pareto": dist.Pareto(X, X),
    "RelaxedBernoulli": dist.RelaxedBernoulli(0.5, X),
    "StudentT": dist.StudentT(X),
    "Uniform": dist.Uniform(X, X + 1),
    "VonMises": dist.VonMises(X, X),
    "Weibull": dist.Weibull(X, X),
    "Wishart": dist.Wishart(X + 3, weft.eye(3)),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_expansion(name):
    d = EXAMPLES[name]
    assert d.batch_shape == (3,)
    wide = d.expand((2, 3))
    assert wide.batch_shape == (2, 3)
    assert wide.event_shape == d.event_shape
    assert type(wide) is type(d)
    draws = wide.sample((4,))
    assert draws.shape == (4, 2, 3, *d.event_shape)
    assert d.support.check(draws).all()
    assert wide.log_prob(draws).shape == (4, 2, 3)
    assert wide.log_prob(draws[:, :1]).isclose(d.log_prob(draws[:, :1])).all()
    for copied in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        assert copied.log_prob(draws[0, 0]).tolist() == d.log_prob(draws[0, 0]).tolist()


def test_numbers_as_parameters():
    d = dist.Normal(0, 1)
    assert d.batch_shape == d.sample().shape == ()
    assert d.loc.dtype == weft.float32
    assert dist.Normal(0, weft.ones(2, dtype=weft.float64)).sample().dtype == weft.float64
    with pytest.raises(ValueError, match=r"^Input arguments must all be instances of Number"):
        broadcast_all("a")


def test_representations():
    assert repr(dist.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert repr(dist.Bernoulli(X)) == "Bernoulli(probs: torch.Size([3]))"
    assert repr(dist.Independent(dist.Normal(X, 1.0), 1)) == (
        "Independent(Normal(loc: torch.Size([3]), scale: torch.Size([3])), 1)"
    )
    shown = [constraints.unit_interval, constraints.greater_than(1), constraints.real_vector, constraints.simplex]
    assert list(map(repr, shown)) == [
        "Interval(lower_bound=0.0, upper_bound=1.0)",
        "GreaterThan(lower_bound=1)",
        "IndependentConstraint(Real(), 1)",
        "Simplex()",
    ]


PARAMETER = (
    r"^Expected parameter scale \(Tensor of shape \(2,\)\) of distribution Normal\(loc: torch\.Size\(\[2\]\), scale: "
    r"torch\.Size\(\[2\]\)\) to satisfy the constraint GreaterThan\(lower_bound=0\.0\), but found invalid values:\n"
    r"tensor\(\[ 1\., -1\.\]\)$"
)
VALUE = (
    r"^Expected value argument \(Tensor of shape \(2,\)\) to be within the support "
    r"\(GreaterThanEq\(lower_bound=0\.0\)\) of the distribution Exponential\(rate: 1\.0\), "
    r"but found invalid values:\ntensor\(\[ 1\., -1\.\]\)$"
)
PAIR = weft.tensor([1.0, -1.0])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: dist.Normal(0.0, PAIR), PARAMETER),
        (lambda: dist.Exponential(1.0).log_prob(PAIR), VALUE),
        (lambda: dist.Exponential(1.0).cdf(PAIR), VALUE),
        (lambda: dist.Normal(0.0, 1.0).log_prob(1.0), "^The value argument to log_prob must be a Tensor$"),
        (lambda: dist.Dirichlet(X).log_prob(PAIR), r"^The right-most size of value must match event_shape: "),
        (lambda: dist.Normal(X, 1.0).log_prob(PAIR), r"^Value is not broadcastable with batch_shape\+event_shape: "),
        (lambda: dist.Bernoulli(), "^Either `probs` or `logits` must be specified, but not both.$"),
        (lambda: dist.Categorical(weft.tensor(1.0)), "^`probs` parameter must be at least one-dimensional.$"),
        (
            lambda: dist.Geometric(weft.zeros(1)),
            r"^Expected parameter probs \(Tensor of shape \(1,\)\) .* to be positive",
        ),
        (lambda: dist.Uniform(1.0, 0.0), r"^Expected parameter low \(Tensor of shape \(\)\)"),
        (lambda: dist.Dirichlet(weft.tensor(1.0)), "^`concentration` parameter must be at least one-dimensional.$"),
        (lambda: dist.MultivariateNormal(X), "^Exactly one of covariance_matrix or precision_matrix or scale_tril may"),
        (lambda: dist.MultivariateNormal(X, X), "^covariance_matrix must be at least two-dimensional"),
        (lambda: dist.MultivariateNormal(PAIR, weft.ones(2, 2)), r"^Expected parameter covariance_matrix "),
        (lambda: dist.LowRankMultivariateNormal(X, weft.ones(2, 1), X), "^cov_factor must be a batch of matrices with"),
        (lambda: dist.Wishart(1.0, weft.eye(3)), r"^Value of df=1\.0 expected to be greater than ndim - 1 = 2\.$"),
        (lambda: dist.LKJCholesky(1), "^Expected dim to be an integer greater than or equal to 2. Found dim=1.$"),
        (lambda: dist.Independent(dist.Normal(0.0, 1.0), 1), "^Expected reinterpreted_batch_ndims <= len"),
        (
            lambda: dist.TransformedDistribution(dist.Normal(0.0, 1.0), 3),
            "^transforms must be a Transform or list, but",
        ),
        (
            lambda: dist.MixtureSameFamily(dist.Normal(X, X), dist.Normal(X, X)),
            "^ The Mixture distribution needs to be an",
        ),
        (
            lambda: dist.MixtureSameFamily(dist.Categorical(X), dist.Normal(PAIR, 1.0)),
            "^`mixture_distribution component`",
        ),
        (lambda: dist.Distribution.set_default_validate_args("no"), "^set_default_validate_args expects True or False"),
    ],
)
def test_errors(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_what_is_not_defined():
    with pytest.raises(NotImplementedError, match=r"Cauchy'> does not implement enumerate_support$"):
        dist.Cauchy(0.0, 1.0).enumerate_support()
    with pytest.raises(NotImplementedError, match=r"Multinomial'> does not implement mode$"):
        _ = dist.Multinomial(2, X).mode
    with pytest.raises(NotImplementedError, match=r"Poisson'> does not implement rsample$"):
        dist.Poisson(1.0).rsample()
    with pytest.raises(NotImplementedError, match=r"^Enumeration over cartesian product is not implemented$"):
        dist.Independent(dist.Bernoulli(X), 1).enumerate_support()
    with pytest.raises(NotImplementedError, match=r"^Inhomogeneous total count not supported by `entropy`"):
        dist.Binomial(weft.tensor([1.0, 2.0]), weft.tensor(0.5)).entropy()


def test_validation_can_be_left_out():
    assert dist.Normal(0.0, -1.0, validate_args=False).scale == -1
    dist.Distribution.set_default_validate_args(False)
    try:
        assert dist.Exponential(1.0).log_prob(weft.tensor(-1.0)).item() == 1
    finally:
        dist.Distribution.set_default_validate_args(True)
    assert dist.Normal(0.0, 1.0, validate_args=False).expand((2,))._validate_args is False


def test_compiled_functions_do_not_validate():
    @weft.compile
    def log_prob(loc, x):
        return dist.Normal(loc, 1.0).log_prob(x)

    for _ in range(2):
        assert log_prob(X, X + 1).tolist() == dist.Normal(X, 1.0).log_prob(X + 1).tolist()


def test_own_distributions():
    class Shifted(dist.Normal):
        def __init__(self, loc, offset):
            self.offset = offset
            super().__init__(loc + offset, 1.0)

    with pytest.raises(
        NotImplementedError, match=r"^Subclass Shifted of Normal that defines a custom __init__ method must "
    ):
        Shifted(X, 1.0).expand((2, 3))

    class Expandable(Shifted):
        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Expandable, _instance)
            new.offset = self.offset
            return super().expand(batch_shape, _instance=new)

    wide = Expandable(X, 1.0).expand((2, 3))
    assert wide.loc.shape == (2, 3)
    assert wide.offset == 1

    class Bare(dist.Distribution):
        def log_prob(self, value):
            self._validate_sample(value)
            return value

    with pytest.warns(UserWarning, match="does not define `arg_constraints`"):
        bare = Bare()
    with pytest.warns(UserWarning, match="does not define `support` to enable sample validation"):
        bare.log_prob(X)
    with pytest.warns(FutureWarning, match=r"^`sample_n\(n\)` will be deprecated"):
        assert dist.Normal(0.0, 1.0).sample_n(3).shape == (3,)


def test_properties_that_depend_on_instances():
    assert constraints.is_dependent(dist.Uniform.support)
    assert not constraints.is_dependent(dist.Normal.support)
    assert dist.Uniform.support.event_dim == 0
    assert not dist.Uniform.support.is_discrete
    with pytest.raises(NotImplementedError, match=r"^\.event_dim cannot be determined statically$"):
        _ = constraints.dependent.event_dim
    assert constraints.dependent(is_discrete=True, event_dim=1).event_dim == 1
    with pytest.raises(ValueError, match=r"^Cannot determine validity of dependent constraint$"):
        constraints.dependent.check(X)
    assert isinstance(dist.Bernoulli.logits, (property, lazy_property))


@pytest.mark.parametrize(
    ("constraint", "valid", "invalid"),
    [
        (constraints.boolean, 1.0, 0.5),
        (constraints.real, 3.0, float("nan")),
        (constraints.nonnegative_integer, 2.0, -1.0),
        (constraints.positive_integer, 1.0, 0.0),
        (constraints.integer_interval(1, 3), 3.0, 2.5),
        (constraints.half_open_interval(0, 1), 0.0, 1.0),
        (constraints.one_hot, [0.0, 1.0], [1.0, 1.0]),
        (constraints.simplex, [0.4, 0.6], [0.4, 0.7]),
        (constraints.lower_triangular, [[1.0, 0.0], [2.0, 0.0]], [[1.0, 1.0], [2.0, 0.0]]),
        (constraints.lower_cholesky, [[1.0, 0.0], [2.0, 1.0]], [[1.0, 0.0], [2.0, 0.0]]),
        (constraints.corr_cholesky, [[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.9]]),
        (constraints.square, [[1.0, 0.0], [2.0, 1.0]], [[1.0, 0.0]]),
        (constraints.symmetric, [[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [2.0, 1.0]]),
        (constraints.positive_semidefinite, [[1.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]]),
        (constraints.positive_definite, [[1.0, 0.5], [0.5, 1.0]], [[1.0, 1.0], [1.0, 1.0]]),
    ],
    ids=repr,
)
def test_constraints(constraint, valid, invalid):
    assert constraint.check(weft.tensor(valid)).all()
    assert not constraint.check(weft.tensor(invalid)).any()


def test_triangles():
    vector = weft.arange(1.0, 7.0)
    matrix = vec_to_tril_matrix(vector)
    assert matrix.tolist() == [[1, 0, 0], [2, 3, 0], [4, 5, 6]]
    assert tril_matrix_to_vec(matrix).tolist() == vector.tolist()
    assert vec_to_tril_matrix(vector, -1).shape == (4, 4)
    with pytest.raises(ValueError, match=r"^The size of last dimension is 5 which cannot be expressed as the lower"):
        vec_to_tril_matrix(vector[:5])
    with pytest.raises(ValueError, match=r"^diag \(3\) provided is outside \[-3, 2\]\.$"):
        tril_matrix_to_vec(matrix, 3)
