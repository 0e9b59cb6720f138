"""Bad values: indices outside of what they index, singular matrices. Who raises, when, and what can still be read."""

import re
import threading

import pytest

import weft
from weft import linalg, nn
from weft._base.state import ambient, using
from weft._lazy import flushing
from weft.nn import functional as F


def computed(values):
    """A tensor whose elements are not known until its program runs."""
    return weft.tensor(values) + 0


def here(test):
    """The line of a test's `def`."""
    return test.__code__.co_firstlineno


BAD_NUMBERS = [
    (lambda x, of, bad: x[of(bad)], 9, "index 9 is out of bounds for dimension 0 with size 3"),
    (lambda x, of, bad: x[0, of(bad)], -5, "index -5 is out of bounds for dimension 0 with size 4"),
]
BAD_INDICES = [
    (lambda x, of, bad: x[of([0, bad])], -4, "index -4 is out of bounds for dimension 0 with size 3"),
    (lambda x, of, bad: x[:, of([bad])], 2**40, "index 1099511627776 is out of bounds for dimension 1 with size 4"),
    (
        lambda x, of, bad: x[of([-3]), of([bad])],
        -5,
        "index -5 is out of bounds for dimension 0 with size 3 or dimension 1 with size 4",
    ),
    (lambda x, of, bad: x.gather(1, of([[bad]])), -1, "index -1 is out of bounds for dimension 1 with size 4"),
    (
        lambda x, of, bad: x.index_fill(1, of([bad], dtype=weft.int64), 0),
        -(2**63),
        "index -9223372036854775808 is out of bounds for dimension 1 with size 4",
    ),
    (lambda x, of, bad: x[:0].index_fill(0, of([bad]), 0), 0, "index 0 is out of bounds for dimension 0 with size 0"),
    (lambda x, of, bad: x.take(of([bad])), 12, "out of range: tried to access index 12 on a tensor of 12 elements"),
    (
        lambda x, of, bad: x.index_select(0, of([bad])),
        3,
        "index out of range in self: 3 is out of bounds for dimension 0 with size 3",
    ),
    (
        lambda x, of, bad: F.embedding(of([bad]), x),
        -1,
        "index out of range in self: -1 is out of bounds for dimension 0 with size 3",
    ),
    (lambda x, of, bad: F.cross_entropy(x, of([-100, 0, bad])), 4, "Target 4 is out of bounds."),
    (lambda x, of, bad: F.nll_loss(x, of([0, bad, 0]), ignore_index=0), -100, "Target -100 is out of bounds."),
]


@pytest.mark.parametrize(("read", "bad", "text"), BAD_INDICES)
def test_an_index_that_is_at_hand_is_refused_by_the_call(read, bad, text):
    with pytest.raises(IndexError, match=rf"^\w+\(\): {re.escape(text)} \(inputs"):
        read(weft.ones(3, 4), weft.tensor, bad)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (lambda: weft.tensor(9), "index 9 is out of bounds for dimension 0 with size 3"),
        (lambda: (0, weft.tensor(-5)), "index -5 is out of bounds for dimension 1 with size 4"),
    ],
)
def test_a_number_that_is_at_hand_is_refused_as_one_of_pythons(index, text):
    with pytest.raises(IndexError, match=f"^{text}$"):
        weft.ones(3, 4)[index()]


@pytest.mark.parametrize(("read", "bad", "text"), BAD_NUMBERS + BAD_INDICES)
def test_a_computed_index_is_refused_by_every_read_of_the_result(read, bad, text):
    y = read(weft.ones(3, 4), lambda values, **options: weft.tensor(values, **options) + 0, bad)
    for _ in range(2):
        with pytest.raises(IndexError, match=rf"^.*test_checks\.py:\d+: \w+\(\): {re.escape(text)} \(inputs"):
            y.tolist()


def test_the_message_leads_with_the_line_of_the_call():
    y = weft.ones(3)[computed([0, 3])]
    line = here(test_the_message_leads_with_the_line_of_the_call) + 1
    with pytest.raises(IndexError, match=rf"^\S*test_checks\.py:{line}: index\(\): index 3 is out of bounds"):
        y.tolist()


def test_a_refused_call_records_nothing():
    before = len(ambient().pending)
    with pytest.raises(IndexError):
        weft.ones(3)[weft.tensor([3])]
    assert len(ambient().pending) - before <= 1  # the ones
    assert not ambient().pending.checks


def test_what_has_nothing_to_do_with_a_bad_index_can_be_read():
    x = weft.arange(3.0)
    y = x[computed([7])]
    assert (x * 2).tolist() == [0, 2, 4]
    with pytest.raises(IndexError):
        y.item()
    assert (x * 3).tolist() == [0, 3, 6]


def test_all_that_was_computed_from_a_bad_index_is_refused_in_any_later_program():
    x = weft.arange(3.0)
    y = x[computed([7])]
    flushing.flush(ambient().pending)
    z = y + 1
    flushing.flush(ambient().pending)
    w, good = (z * x).sum(), x.sum()
    for _ in range(2):
        with pytest.raises(IndexError, match="index 7 is out of bounds"):
            w.item()
    for read in (z.tolist, z.numpy, z.detach().tolist, lambda: str(z), lambda: weft.save(z, "never"), z.__dlpack__):
        with pytest.raises(IndexError, match="index 7 is out of bounds"):
            read()
    assert good.item() == 3


@pytest.mark.parametrize("flush_between", [False, True])
def test_gradients_that_pass_a_bad_index_are_refused(flush_between):
    w = weft.ones(3, 2, requires_grad=True)
    v = weft.ones(2, requires_grad=True)
    (F.embedding(computed([1, 5]), w).sum() + (v * v).sum()).backward()
    if flush_between:
        flushing.flush(ambient().pending)
    assert v.grad.tolist() == [2, 2]
    for _ in range(2):
        with pytest.raises(IndexError, match="index out of range in self: 5"):
            w.grad.tolist()
    with weft.no_grad():
        w -= w.grad
    with pytest.raises(IndexError, match="index out of range in self: 5"):
        w.sum().item()


def test_second_derivatives_through_a_bad_index_are_refused():
    x = weft.ones(3, requires_grad=True)
    (first,) = weft.autograd.grad((x[computed([1, 5])] ** 3).sum(), x, create_graph=True)
    (second,) = weft.autograd.grad(first.sum(), x)
    with pytest.raises(IndexError, match="index 5"):
        second.tolist()


def test_a_bad_index_whose_result_nobody_holds_is_told_once_by_the_next_read():
    y = weft.ones(3)[computed([-4])]
    del y
    with pytest.raises(IndexError, match="index -4 is out of bounds"):
        (weft.ones(2) + 1).tolist()
    assert (weft.ones(2) + 1).tolist() == [2, 2]


def test_an_error_that_a_read_has_raised_is_not_told_again():
    y = weft.ones(3)[computed([-4])]
    with pytest.raises(IndexError):
        y.tolist()
    del y
    assert (weft.ones(2) + 1).tolist() == [2, 2]


def test_a_write_by_a_bad_index_spoils_the_target():
    x = weft.zeros(3)
    x[computed([4])] = 1.0
    with pytest.raises(IndexError, match="index 4"):
        x.tolist()


def test_a_good_index_leaves_no_doubt():
    x = weft.arange(3.0)
    y = x[computed([2])]
    assert y.item() == 2
    assert not ambient().pending.checks
    assert not ambient().pending.unread
    assert type(y._value.content) is type(x._value.content)


def test_another_thread_is_told_too():
    y = weft.ones(3)[computed([9])]
    raised = []

    def read():
        try:
            y.tolist()
        except IndexError as error:
            raised.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert "index 9 is out of bounds" in raised[0]
    with pytest.raises(IndexError):
        y.tolist()


def test_eager_mode_refuses_at_the_call():
    with using(eager=True):
        index = computed([7])
        with pytest.raises(IndexError, match="out of bounds"):
            weft.ones(3)[index]


def test_a_bad_index_in_a_compiled_function_names_the_call():
    @weft.compile
    def pick(x, index):
        return x[index] * 2

    x = weft.ones(3)
    assert pick(x, weft.tensor([0, 2])).tolist() == [2, 2]
    y = pick(x, weft.tensor([0, 5]))
    line = here(test_a_bad_index_in_a_compiled_function_names_the_call) + 7
    with pytest.raises(IndexError, match=rf"^\S*test_checks\.py:{line}: index\(\): index 5 is out of bounds"):
        y.tolist()


def test_a_bad_index_in_a_checkpoint_is_told():
    w = weft.ones(3, 2, requires_grad=True)
    weft.utils.checkpoint.checkpoint(lambda index: F.embedding(index, w).exp().sum(), computed([3])).backward()
    with pytest.raises(IndexError, match="index out of range in self: 3"):
        w.grad.tolist()


def test_indices_at_hand_and_in_doubt_share_a_program(compilations):
    table, window = weft.ones(5, 5), weft.tensor([[1, 2, 3]])
    table.tolist()
    compilations()
    for _ in range(3):  # the window is at hand, then comes from a draw that is in doubt
        token = weft.multinomial(F.embedding(window, table).exp().sum(1), 1)
        window = weft.cat([window[:, 1:], token], 1)
        token.item()
    assert len(compilations()) == 1


def test_unread_checks_are_bounded():
    x, index = weft.ones(3), computed([1])
    for _ in range(100):
        y = x[index]
        flushing.flush(ambient().pending)
    assert not ambient().pending.checks
    assert len(ambient().pending.unread) <= 64
    assert y.tolist() == [1]


def test_a_read_looks_at_no_check_that_is_not_computed_yet():
    x, known = weft.ones(3), weft.tensor(1.0)
    kept = [x[computed([1])] for _ in range(1_000)]
    before = ambient().pending.checks
    assert known.item() == 1  # which is in memory, so that nothing is computed for it
    assert ambient().pending.checks is before
    assert len(before) == len(kept)


SINGULAR, INDEFINITE = weft.tensor([[1.0, 2.0], [2.0, 4.0]]), weft.tensor([[1.0, 2.0], [2.0, 1.0]])
BATCH = weft.stack([weft.eye(2), SINGULAR])
NAN = weft.full((2, 2), float("nan"))

FAILURES = [
    (lambda: linalg.inv(SINGULAR), r"linalg\.inv: The diagonal element 2 is zero, the inversion could not be"),
    (lambda: weft.inverse(BATCH), r"linalg\.inv: \(Batch element 1\): The diagonal element 2 is zero"),
    (lambda: linalg.matrix_power(SINGULAR, -1), r"linalg\.inv: The diagonal element 2 is zero"),
    (lambda: linalg.solve(SINGULAR, weft.ones(2)), r"torch\.linalg\.solve: The solver failed because"),
    (lambda: linalg.solve(BATCH, weft.ones(2, 2, 1)), r"torch\.linalg\.solve: \(Batch element 1\): The solver failed"),
    (lambda: linalg.cholesky(INDEFINITE), r"linalg\.cholesky: .* \(the leading minor of order 2 is not"),
    (lambda: weft.cholesky(-BATCH), r"linalg\.cholesky: \(Batch element 0\): .* \(the leading minor of order 1"),
    (lambda: linalg.lu_factor(SINGULAR), r"torch\.linalg\.lu_factor: U\[2,2\] is zero and using it on lu_solve"),
    (lambda: linalg.svdvals(NAN), r"linalg\.svd: The algorithm failed to converge because the input"),
    (lambda: linalg.pinv(NAN), r"linalg\.svd: The algorithm failed to converge"),
    (lambda: linalg.eigvals(NAN), r"torch\.linalg\.eig: input tensor should not contain infs or NaNs\."),
]


@pytest.mark.parametrize(("call", "text"), FAILURES)
def test_a_factorisation_that_fails_is_an_error_of_the_call(call, text):
    with pytest.raises(linalg.LinAlgError, match=f"^{text}"):
        call()
    assert weft.ones(1).item() == 1


def test_a_failed_factorisation_can_be_tried_again_with_another_matrix():
    def factor(matrix):
        for jitter in (0.0, 2.0):
            try:
                return jitter, linalg.cholesky(matrix + jitter * weft.eye(2))
            except linalg.LinAlgError:
                continue
        raise AssertionError

    jitter, lower = factor(INDEFINITE)
    assert jitter == 2.0
    assert weft.allclose(lower @ lower.T, INDEFINITE + 2 * weft.eye(2))


def test_what_tells_of_failures_by_itself_does_not_raise():
    assert linalg.inv_ex(SINGULAR).info.item() == 2
    assert linalg.cholesky_ex(INDEFINITE).info.item() == 2
    assert linalg.solve_ex(SINGULAR, weft.ones(2)).info.item() == 2
    assert linalg.lu_factor_ex(SINGULAR).info.item() == 2
    assert linalg.det(SINGULAR).item() == 0
    assert linalg.cond(SINGULAR, 1).item() == float("inf")


@pytest.mark.parametrize("at_hand", [True, False])
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda bad: F.one_hot(bad - 2, 3), "Class values must be non-negative."),
        (lambda bad: F.one_hot(bad + 1, 3), "Class values must be smaller than num_classes."),
        (lambda bad: F.embedding_bag(bad, weft.ones(9, 2), bad - 1), "start from position 0. However, got -1"),
        (lambda bad: F.embedding_bag(bad, weft.ones(9, 2), bad * 7), "input's length 3 but got offsets[-1] of 14"),
        (lambda bad: F.embedding_bag(bad * -5, weft.ones(9, 2), bad), "found idx to be -5"),
        (lambda bad: nn.AdaptiveLogSoftmaxWithLoss(4, 2, [1])(weft.ones(3, 4), bad - 1).loss, "range [-1, 1] were"),
        (lambda bad: F.max_unpool1d(weft.ones(1, 1, 3), bad.view(1, 1, 3) * 9, 1), "index: 18 (output volu"),
    ],
)
def test_a_check_says_which_of_several_things_it_has_found(call, text, at_hand):
    bad = weft.tensor([0, 1, 2]) if at_hand else computed([0, 1, 2])
    with pytest.raises(RuntimeError) as caught:
        call(bad).tolist()
    assert text in str(caught.value)
    assert next(kind for kind in type(caught.value).__mro__ if kind.__module__ == "builtins") is RuntimeError
