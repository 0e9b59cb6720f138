"""What every distribution has: shapes, validation, expansion and samples."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from weft._base.cell import DerivedCell
from weft._base.own_names import own_form
from weft._base.site import warn_user
from weft._base.size import Size
from weft._base.state import ambient, using
from weft._base.types import Arg
from weft._tensor.kind_names import advice
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.utils import Undefined, lazy_property, undefined
from weft.errors import NotDefinedError, PreconditionError, ValueRangeError

Shape = Sequence[int]
_SCALAR = Size()


# no cell: `_validates` tells its attribute
class Distribution:
    """A batch of distributions. Values have the shape `sample_shape + batch_shape + event_shape`.

    A subclass says in `arg_constraints` which parameters it has, and in `support` where its values lie. It defines
    `rsample`, if its draws have derivatives with respect to the parameters, or `sample`; and `_log_prob` and `_cdf`,
    which get validated values.

    Parameters and values are validated unless `validate_args` is false; this reads them. It is not done while a
    function is recorded, by `weft.compile` or for export.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args: bool = __debug__

    arg_constraints: ClassVar[Any] = Undefined()
    support: Any = Undefined()
    mean: Any = Undefined()
    mode: Any = Undefined()
    variance: Any = Undefined()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions are validated that do not say it; by default they are, except in `python -O`."""
        if value not in (True, False):
            raise ValueRangeError(f"set_default_validate_args expects True or False, but got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Shape = _SCALAR, event_shape: Shape = _SCALAR, validate_args: bool | None = None
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one value of one distribution."""
        return self._event_shape

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    # --- draws

    def sample(self, sample_shape: Shape = _SCALAR) -> Tensor:
        """Draws without gradients."""
        with using(grad=False):
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Shape = _SCALAR) -> Tensor:
        """Draws that are functions of the parameters, with gradients."""
        raise undefined(self, "rsample")

    def sample_n(self, n: int) -> Tensor:
        """Deprecated: `sample((n,))`."""
        text = "`sample_n(n)` will be deprecated. Use `sample((n,))` instead."
        warnings.warn(text, FutureWarning, stacklevel=2)
        return self.sample((n,))

    def _extended_shape(self, sample_shape: Shape = _SCALAR) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    # --- functions of values

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, of each event."""
        if self._validate_args:
            self._validate_sample(value)
        return self._log_prob(value)

    def _log_prob(self, value: Tensor) -> Tensor:
        raise undefined(self, "log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to each of these."""
        if self._validate_args:
            self._validate_sample(value)
        return self._cdf(value)

    def _cdf(self, value: Tensor) -> Tensor:
        raise undefined(self, "cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """Quantiles: the inverse of `cdf`."""
        raise undefined(self, "icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first dim; with `expand`, for each of the batch."""
        raise undefined(self, "enumerate_support")

    def entropy(self) -> Tensor:
        """The entropy of each distribution of the batch, in nats."""
        raise undefined(self, "entropy")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    # --- expansion

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> Self:
        """The same distributions with a larger batch: parameters are expanded, and share their elements.

        Subclasses that define `__init__` define `expand`, too, and may pass the instance that they have begun to fill.
        """
        library = next(cls for cls in type(self).__mro__ if own_form(cls.__module__).startswith(__package__ or ""))
        new = self._get_checked_instance(library, _instance)
        for name, value in self.__dict__.items():
            if name in self.arg_constraints:
                event = value.shape[value.dim() - self._event_dim_of(name) :]
                setattr(new, name, value.expand((*batch_shape, *event)))
            elif not isinstance(getattr(type(self), name, None), lazy_property):
                new.__dict__.setdefault(name, value)
        new._batch_shape = Size(batch_shape)
        return new

    def _event_dim_of(self, parameter: str) -> int:
        return self.arg_constraints[parameter].event_dim

    def _get_checked_instance(self, cls: type, _instance: Arg = None) -> Self:
        if _instance is None and type(self).__init__ is not cls.__init__:
            raise NotDefinedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also "
                "define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    # --- validation

    def _validate_parameters(self) -> None:
        try:
            arg_constraints = self.arg_constraints
        except NotImplementedError:
            warn_user(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize "
                "the distribution with `validate_args=False` to turn off validation."
            )
            return
        for name, constraint in arg_constraints.items():
            is_computed = name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property)
            if not constraints.is_dependent(constraint) and not is_computed:
                self._validate_parameter(name, constraint)

    def _validate_parameter(self, name: str, constraint: constraints.Constraint) -> None:
        value = getattr(self, name)
        if not all_true(constraint.check(value)):
            raise ValueRangeError(
                f"Expected parameter {name} ({_described(value)}) of distribution {self!r} to satisfy the constraint "
                f"{constraint!r}, but found invalid values:\n{value}"
            )

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ValueRangeError(f"The value argument to log_prob must be a Tensor{advice(value)}")
        self._validate_shape(value.shape)
        try:
            support = self.support
        except NotImplementedError:
            warn_user(
                f"{type(self)} does not define `support` to enable sample validation. Please initialize the "
                "distribution with `validate_args=False` to turn off validation."
            )
            return
        if support is None:
            raise PreconditionError("support is unexpectedly None")
        if not all_true(support.check(value)):
            raise ValueRangeError(
                f"Expected value argument ({_described(value)}) to be within the support ({support!r}) of the "
                f"distribution {self!r}, but found invalid values:\n{value}"
            )

    def _validate_shape(self, actual: Size) -> None:
        if actual[max(len(actual) - len(self._event_shape), 0) :] != self._event_shape:
            raise ValueRangeError(
                f"The right-most size of value must match event_shape: {actual} vs {self._event_shape}."
            )
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(actual), reversed(expected), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueRangeError(
                    f"Value is not broadcastable with batch_shape+event_shape: {actual} vs {expected}."
                )

    def __repr__(self) -> str:
        parameters = {name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__}
        fields = [f"{name}: {x if x.numel() == 1 else x.size()}" for name, x in parameters.items()]
        return f"{type(self).__name__}({', '.join(fields)})"


_validates = DerivedCell("whether distributions are validated", lambda: Distribution._validate_args)


def all_true(valid: Tensor) -> bool:
    """Whether all elements are true. While a function is recorded, numbers are not known, and it is assumed."""
    return ambient().capture is not None or bool(valid.all())


def _described(value: Tensor) -> str:
    return f"{type(value).__name__} of shape {tuple(value.shape)}"
