"""Probability distributions with PyTorch's names: draws with gradients, densities, divergences, transforms."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.distributions import constraints as constraints
from weft.distributions._categorical import Categorical as Categorical
from weft.distributions._categorical import Multinomial as Multinomial
from weft.distributions._categorical import OneHotCategorical as OneHotCategorical
from weft.distributions._categorical import OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough
from weft.distributions._counts import Bernoulli as Bernoulli
from weft.distributions._counts import Binomial as Binomial
from weft.distributions._counts import Geometric as Geometric
from weft.distributions._counts import NegativeBinomial as NegativeBinomial
from weft.distributions._counts import Poisson as Poisson
from weft.distributions._dirichlet import Beta as Beta
from weft.distributions._dirichlet import Dirichlet as Dirichlet
from weft.distributions._elementwise_transforms import AbsTransform as AbsTransform
from weft.distributions._elementwise_transforms import AffineTransform as AffineTransform
from weft.distributions._elementwise_transforms import (
    CumulativeDistributionTransform as CumulativeDistributionTransform,
)
from weft.distributions._elementwise_transforms import ExpTransform as ExpTransform
from weft.distributions._elementwise_transforms import PowerTransform as PowerTransform
from weft.distributions._elementwise_transforms import SigmoidTransform as SigmoidTransform
from weft.distributions._elementwise_transforms import SoftplusTransform as SoftplusTransform
from weft.distributions._elementwise_transforms import TanhTransform as TanhTransform
from weft.distributions._gamma import Chi2 as Chi2
from weft.distributions._gamma import Exponential as Exponential
from weft.distributions._gamma import FisherSnedecor as FisherSnedecor
from weft.distributions._gamma import Gamma as Gamma
from weft.distributions._gamma import StudentT as StudentT
from weft.distributions._interval import ContinuousBernoulli as ContinuousBernoulli
from weft.distributions._interval import GeneralizedPareto as GeneralizedPareto
from weft.distributions._interval import Uniform as Uniform
from weft.distributions._line import Cauchy as Cauchy
from weft.distributions._line import Laplace as Laplace
from weft.distributions._line import Normal as Normal
from weft.distributions._line import VonMises as VonMises
from weft.distributions._matrices import LKJCholesky as LKJCholesky
from weft.distributions._matrices import Wishart as Wishart
from weft.distributions._nested import Independent as Independent
from weft.distributions._nested import MixtureSameFamily as MixtureSameFamily
from weft.distributions._nested import TransformedDistribution as TransformedDistribution
from weft.distributions._normal_vectors import LogisticNormal as LogisticNormal
from weft.distributions._normal_vectors import LowRankMultivariateNormal as LowRankMultivariateNormal
from weft.distributions._normal_vectors import MultivariateNormal as MultivariateNormal
from weft.distributions._relaxed import RelaxedBernoulli as RelaxedBernoulli
from weft.distributions._relaxed import RelaxedOneHotCategorical as RelaxedOneHotCategorical
from weft.distributions._sequence_transforms import CatTransform as CatTransform
from weft.distributions._sequence_transforms import StackTransform as StackTransform
from weft.distributions._transform import ComposeTransform as ComposeTransform
from weft.distributions._transform import IndependentTransform as IndependentTransform
from weft.distributions._transform import Transform as Transform
from weft.distributions._transform import identity_transform as identity_transform
from weft.distributions._transformed import Gumbel as Gumbel
from weft.distributions._transformed import HalfCauchy as HalfCauchy
from weft.distributions._transformed import HalfNormal as HalfNormal
from weft.distributions._transformed import InverseGamma as InverseGamma
from weft.distributions._transformed import Kumaraswamy as Kumaraswamy
from weft.distributions._transformed import LogNormal as LogNormal
from weft.distributions._transformed import Pareto as Pareto
from weft.distributions._transformed import Weibull as Weibull
from weft.distributions._vector_transforms import CorrCholeskyTransform as CorrCholeskyTransform
from weft.distributions._vector_transforms import LowerCholeskyTransform as LowerCholeskyTransform
from weft.distributions._vector_transforms import PositiveDefiniteTransform as PositiveDefiniteTransform
from weft.distributions._vector_transforms import ReshapeTransform as ReshapeTransform
from weft.distributions._vector_transforms import SoftmaxTransform as SoftmaxTransform
from weft.distributions._vector_transforms import StickBreakingTransform as StickBreakingTransform
from weft.distributions.constraint_registry import biject_to as biject_to
from weft.distributions.constraint_registry import transform_to as transform_to
from weft.distributions.distribution import Distribution as Distribution
from weft.distributions.exp_family import ExponentialFamily as ExponentialFamily
from weft.distributions.kl import kl_divergence as kl_divergence
from weft.distributions.kl import register_kl as register_kl

_serve_below(__name__)
