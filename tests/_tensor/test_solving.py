"""Linear algebra composed of factorisations, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import linalg

RNG = np.random.default_rng(7)
A = RNG.standard_normal((2, 3, 3))
TALL, RIGHT = RNG.standard_normal((5, 3)), RNG.standard_normal((5, 2))
SINGULAR = weft.tensor([[1.0, 2.0], [2.0, 4.0]])
INDEFINITE = weft.tensor([[1.0, 2.0], [2.0, 1.0]])


def test_lu_gives_the_matrix_back():
    a = weft.tensor(A)
    P, L, U = linalg.lu(a)
    np.testing.assert_allclose((P @ L @ U).numpy(), A)
    packed, pivots = linalg.lu_factor(a)
    assert all(weft.equal(x, y) for x, y in zip(weft.lu_unpack(packed, pivots), (P, L, U), strict=True))
    assert weft.lu_unpack(packed, pivots, unpack_data=False).L.shape == (0,)
    assert len(a.lu()) == 2
    assert weft.lu(a, get_infos=True)[2].tolist() == [0, 0]


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_packed_factors_solve(left, adjoint):
    a = A + 1j * A[::-1]
    b = RNG.standard_normal((2, 3, 3)) + 0j
    x = (
        linalg.lu_solve(*linalg.lu_factor(weft.tensor(a)), weft.tensor(b), left=left, adjoint=adjoint)
        .resolve_conj()
        .numpy()
    )
    m = np.conj(a.swapaxes(-1, -2)) if adjoint else a
    np.testing.assert_allclose(m @ x if left else x @ m, b, atol=1e-12)


def test_refusals_of_lu():
    with pytest.raises(RuntimeError, match=r"^linalg\.lu_factor: LU without pivoting is not implemented on the CPU$"):
        linalg.lu_factor(SINGULAR, pivot=False)
    with pytest.raises(RuntimeError, match=r"^torch\.lu_factor: Expected tensor with 2 or more dimensions\. Got size:"):
        linalg.lu_factor(weft.ones(2))
    with pytest.raises(RuntimeError, match=r"^linalg\.lu_solve: pivots should be a Tensor of scalar type torch\.int32"):
        weft.lu_solve(SINGULAR, SINGULAR, weft.tensor([1, 2]))
    with pytest.raises(RuntimeError, match=r"^torch\.lu_unpack: LU_pivots is expected to be a contiguous tensor"):
        weft.lu_unpack(SINGULAR, weft.tensor([1, 2]))


def test_errors_are_told_by_number_or_raised():
    assert linalg.inv_ex(SINGULAR).info == linalg.lu_factor_ex(SINGULAR).info == 2
    assert linalg.solve_ex(SINGULAR, SINGULAR).info == 2
    assert linalg.cholesky_ex(INDEFINITE).info == 2
    assert linalg.cholesky_ex(weft.eye(2)).info == linalg.inv_ex(weft.eye(2)).info == 0
    for call, text in (
        (lambda: linalg.inv_ex(SINGULAR, check_errors=True), r"^linalg\.inv_ex: The diagonal element 2 is zero"),
        (lambda: linalg.lu_factor_ex(SINGULAR, check_errors=True), r"U\[2,2\] is zero"),
        (lambda: linalg.solve_ex(SINGULAR, SINGULAR, check_errors=True), r"the input matrix is singular\.$"),
        (lambda: linalg.cholesky_ex(INDEFINITE, check_errors=True), r"the leading minor of order 2 is not positive"),
    ):
        with pytest.raises(linalg.LinAlgError, match=text):
            call()
    assert issubclass(linalg.LinAlgError, RuntimeError)


def test_eigenvectors_and_their_gradient():
    a = weft.tensor(A[0], requires_grad=True)
    values, vectors = linalg.eig(a)
    np.testing.assert_allclose((a.to(values.dtype) @ vectors - values * vectors).abs().max().item(), 0, atol=1e-12)
    assert weft.autograd.gradcheck(lambda x: linalg.eig(x).eigenvectors.abs(), a)
    assert weft.autograd.gradcheck(lambda x: linalg.eigvals(x).abs(), a)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4)])
def test_pseudo_inverses_of_lower_rank(shape):
    factors = RNG.standard_normal((shape[0], 2)), RNG.standard_normal((2, shape[1]))
    low = factors[0] @ factors[1]
    np.testing.assert_allclose(linalg.pinv(weft.tensor(low)).numpy(), np.linalg.pinv(low), atol=1e-10)
    assert linalg.matrix_rank(weft.tensor(low)) == 2
    assert linalg.matrix_rank(weft.tensor(low), 1e3) == 0
    left, right = (weft.tensor(x, requires_grad=True) for x in factors)
    assert weft.autograd.gradcheck(lambda x, y: linalg.pinv(x @ y), (left, right))


@pytest.mark.parametrize("p", [None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc"])
def test_condition_numbers(p):
    np.testing.assert_allclose(linalg.cond(weft.tensor(A), p).numpy(), np.linalg.cond(A, p))


def test_refusals_of_condition_numbers():
    assert linalg.cond(SINGULAR, 1) == np.inf
    with pytest.raises(RuntimeError, match=r"^linalg\.cond got an invalid norm type: 3$"):
        linalg.cond(SINGULAR, 3)
    with pytest.raises(
        RuntimeError, match=r"^linalg\.cond\(ord=1\): A must be batches of square matrices, but they ar"
    ):
        linalg.cond(weft.ones(2, 3), 1)


@pytest.mark.parametrize(("order", "dim"), [(None, None), (3, 1), ("fro", (0, 2)), (1, (1, 2)), ("nuc", (-1, 0))])
def test_norms(order, dim):
    found = linalg.norm(weft.tensor(A), order, dim)
    wanted = np.linalg.norm(A.ravel()) if dim is None else np.linalg.norm(A, order, dim)
    np.testing.assert_allclose(found.numpy(), wanted)


def test_refusals_of_norms():
    with pytest.raises(RuntimeError, match=r"the input must be 1D or 2D\. Got 3D\.$"):
        linalg.norm(weft.tensor(A), 1)
    with pytest.raises(RuntimeError, match=r"it must be of length 1 or 2\. Got \[0, 1, 2\]$"):
        linalg.norm(weft.tensor(A), 1, (0, 1, 2))


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
def test_least_squares(driver):
    found = linalg.lstsq(weft.tensor(TALL), weft.tensor(RIGHT), driver=driver)
    solution, residuals, rank, singular = np.linalg.lstsq(TALL, RIGHT)
    np.testing.assert_allclose(found.solution.numpy(), solution)
    assert found.rank.tolist() == ([] if driver == "gels" else rank)
    np.testing.assert_allclose(found.residuals.numpy(), [] if driver in (None, "gelsy") else residuals)
    np.testing.assert_allclose(found.singular_values.numpy(), singular if driver in ("gelsd", "gelss") else [])


def test_refusals_of_least_squares():
    with pytest.raises(RuntimeError, match=r"^torch\.linalg\.lstsq: input\.size\(-2\) should match other\.size\(-2\)$"):
        linalg.lstsq(SINGULAR, weft.ones(3, 2))
    with pytest.raises(RuntimeError, match=r"should be one of \(gels, gelsy, gelsd, gelss\)$"):
        linalg.lstsq(SINGULAR, SINGULAR, driver="best")


def test_triangular_systems_and_older_names():
    upper = np.triu(A[0]) + 2 * np.eye(3)
    b = weft.tensor(A[1])
    found = linalg.solve_triangular(weft.tensor(A[0] + 2 * np.eye(3)), b, upper=True)
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(upper, A[1]))
    older = b.triangular_solve(weft.tensor(A[0] + 2 * np.eye(3)), transpose=True)
    np.testing.assert_allclose(older.solution.numpy(), np.linalg.solve(upper.T, A[1]))
    with pytest.raises(RuntimeError, match=r"for the equation AX = B \(3x3 and 2x2\)$"):
        linalg.solve_triangular(weft.eye(3), weft.eye(2), upper=True)


def test_cholesky_factors_solve_and_invert():
    spd = A[0] @ A[0].T + np.eye(3)
    factor, b = weft.cholesky(weft.tensor(spd)), weft.tensor(A[1])
    for upper, given in ((False, factor), (True, factor.mT)):
        np.testing.assert_allclose(b.cholesky_solve(given, upper).numpy(), np.linalg.solve(spd, A[1]))
        np.testing.assert_allclose(weft.cholesky_inverse(given, upper).numpy(), np.linalg.inv(spd))
    with pytest.raises(RuntimeError, match=r"each A matrix is 3 by 3 but each b matrix is 2 by 2$"):
        weft.cholesky_solve(weft.eye(2), weft.eye(3))


def test_pivots_that_are_no_rows_are_refused():
    packed, pivots = linalg.lu_factor(weft.eye(2))
    for wrong in (0, 3):
        pivots[0] = wrong
        for call, text in (
            (lambda: linalg.lu_solve(packed, pivots, weft.ones(2, 1)), "Pivots given to lu_solve must all be greater"),
            (lambda: weft.lu_unpack(packed, pivots).P, "pivots passed to lu_unpack must be between 1 and LU.size"),
        ):
            with pytest.raises(RuntimeError, match=text):
                call().tolist()


def test_factors_without_a_derivative_say_so():
    for shape, mode, text in (
        ((2, 3), "r", r"^The derivative of linalg\.qr depends on Q, which is not computed when mode='r'"),
        ((4, 3), "complete", r"^The QR decomposition is not differentiable when mode='complete' and nrows > ncols"),
    ):
        r = linalg.qr(weft.tensor(RNG.standard_normal(shape), requires_grad=True), mode=mode).R
        assert r.isfinite().all()  # reading it asks for no derivative
        with pytest.raises(RuntimeError, match=text):
            r.sum().backward()
    square = weft.tensor(A, requires_grad=True)
    linalg.qr(square, mode="complete").R.sum().backward()
    assert square.grad.isfinite().all()


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_norms_of_nothing(shape):
    for order in (1, 2, float("inf"), "fro", "nuc"):
        assert linalg.norm(weft.empty(shape), order).item() == 0


def test_results_go_where_out_says():
    a = weft.tensor(A[0])
    out = weft.empty(3, 3, dtype=weft.float64)
    assert linalg.pinv(a, out=out) is out
    assert weft.equal(out, linalg.pinv(a))
    assert linalg.matrix_rank(a, out=weft.empty(())).item() == 3
    both = weft.empty(3, dtype=weft.float64), weft.empty(3, dtype=weft.int64)
    assert weft.max(a, dim=0, out=both) is both
    assert all(map(weft.equal, both, a.max(0)))
    with pytest.raises(RuntimeError, match=r"^Expected out tensor to have dtype double, but got float instead$"):
        weft.max(a, dim=0, out=(weft.empty(3), both[1]))


def test_older_decompositions():
    U, S, V = weft.svd(weft.tensor(TALL))
    np.testing.assert_allclose((U * S @ V.mT).numpy(), TALL, atol=1e-12)
    assert weft.svd(weft.tensor(TALL), some=False).U.shape == (5, 5)
    assert not weft.svd(weft.tensor(TALL), compute_uv=False).V.any()
    Q, R = weft.tensor(TALL).qr(some=False)
    assert (Q.shape, R.shape) == ((5, 5), (5, 3))
    reflectors, tau = weft.geqrf(weft.tensor(TALL))
    whole = weft.ormqr(reflectors, tau, weft.eye(5, dtype=weft.float64))
    np.testing.assert_allclose(whole[:, :3].numpy(), weft.orgqr(reflectors, tau).numpy())


def test_factors_of_reflectors_have_one_dim_less():
    with pytest.raises(RuntimeError, match="Expected tau to have one dimension less than input"):
        weft.linalg.householder_product(weft.ones(5, 3), weft.ones(5, 3))
    with pytest.raises(RuntimeError, match=r"Expected batch dimensions of tau to be .* but got \[2\]$"):
        weft.linalg.householder_product(weft.ones(3, 5, 3), weft.ones(2, 3))


@pytest.mark.parametrize("shape", [(8, 6), (6, 8)])
def test_approximations_of_low_rank(shape):
    low = RNG.standard_normal((shape[0], 3)) @ RNG.standard_normal((3, shape[1]))
    U, S, V = weft.svd_lowrank(weft.tensor(low), 3)
    np.testing.assert_allclose((U * S @ V.mT).numpy(), low, atol=1e-10)
    U, S, V = weft.pca_lowrank(weft.tensor(low), 3)
    np.testing.assert_allclose((U * S @ V.mT).numpy(), low - low.mean(0), atol=1e-10)
    with pytest.raises(ValueError, match=r"^q\(=9\) must be non-negative integer and not greater than min\(m, n\)=6$"):
        weft.pca_lowrank(weft.tensor(low), 9)
    assert weft.svd_lowrank(weft.tensor(low), 9)[1].shape == weft.svd_lowrank(weft.tensor(low))[1].shape == (6,)
    with pytest.raises(ValueError, match=r"^svd_lowrank: q must be a non-negative integer, got -1$"):
        weft.svd_lowrank(weft.tensor(low), -1)


def test_vectors_and_tensors():
    x = weft.tensor([1 + 2j, 3j])
    assert linalg.vecdot(x, x).item() == 14
    assert linalg.vander(weft.tensor([2, 3]), N=3).tolist() == [[1, 2, 4], [1, 3, 9]]
    t = weft.tensor(RNG.standard_normal((2, 3, 6)))
    np.testing.assert_allclose(linalg.tensorinv(t).numpy(), np.linalg.tensorinv(t.numpy(), 2))
    b = weft.tensor(A[0][:2])
    np.testing.assert_allclose(linalg.tensorsolve(t, b).numpy(), np.linalg.tensorsolve(t.numpy(), b.numpy()))
    assert weft.equal(linalg.diagonal(weft.tensor(A)), weft.tensor(A).diagonal(0, 1, 2))
    with pytest.raises(RuntimeError, match=r"^N must be greater than 1\.$"):
        linalg.vander(weft.tensor(1.0))
    with pytest.raises(RuntimeError, match=r"^Expected a strictly positive integer for 'ind', but got 0$"):
        linalg.tensorinv(t, 0)
    with pytest.raises(RuntimeError, match=r"but got 3 != 2$"):
        linalg.tensorinv(weft.ones(2, 3), 1)
