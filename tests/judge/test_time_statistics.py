from __future__ import annotations

import math
from fractions import Fraction
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnnctx.judge.statistics import (
    ALPHA,
    Ruling,
    binomial_at_least,
    binomial_at_most,
    looks,
    quantile_test,
    sample_percentile,
    sign_test,
)


def times(under: int, over: int) -> list[float]:
    return [50.0] * under + [150.0] * over


def exact_at_most(k: int, n: int, q: Fraction) -> Fraction:
    return sum((comb(n, i) * q**i * (1 - q) ** (n - i) for i in range(k + 1)), Fraction(0))


@pytest.mark.parametrize(
    ("count", "over", "ruling"),
    [
        (11, 0, Ruling.PASS),
        (11, 2, Ruling.PASS),
        (11, 3, Ruling.MORE_NEEDED),
        (11, 8, Ruling.MORE_NEEDED),
        (11, 9, Ruling.FAIL),
        (11, 11, Ruling.FAIL),
        (31, 10, Ruling.PASS),
        (31, 11, Ruling.INCONCLUSIVE),
        (31, 20, Ruling.INCONCLUSIVE),
        (31, 21, Ruling.FAIL),
    ],
)
def test_the_medians_table(count, over, ruling):
    assert sign_test(times(count - over, over), 100.0).ruling is ruling


@pytest.mark.parametrize(
    ("count", "over", "ruling"),
    [
        (58, 0, Ruling.MORE_NEEDED),
        (59, 0, Ruling.PASS),
        (59, 1, Ruling.MORE_NEEDED),
        (92, 1, Ruling.MORE_NEEDED),
        (93, 1, Ruling.PASS),
        (93, 2, Ruling.INCONCLUSIVE),
        (93, 12, Ruling.FAIL),
    ],
)
def test_p95s_table(count, over, ruling):
    assert quantile_test(times(count - over, over), 100.0, 95).ruling is ruling


def test_p_values_are_the_exact_binomials():
    half = Fraction(1, 2)
    assert sign_test(times(9, 2), 100).p_value == pytest.approx(float(exact_at_most(2, 11, half)))
    assert sign_test(times(21, 10), 100).p_value == pytest.approx(
        float(exact_at_most(10, 31, half))
    )
    p95 = quantile_test(times(92, 1), 100, 95).p_value
    assert p95 == pytest.approx(float(exact_at_most(1, 93, Fraction(1, 20))))


def test_looks_are_the_smallest_that_can_pass():
    assert looks(50) == (11, 31)
    assert looks(95) == (59, 93)
    assert looks(99) == (299, 473)
    for percentile, share in ((90, Fraction(1, 10)), (95, Fraction(1, 20))):
        first, last = looks(percentile)
        assert exact_at_most(0, first, share) <= ALPHA < exact_at_most(0, first - 1, share)
        assert exact_at_most(1, last, share) <= ALPHA < exact_at_most(1, last - 1, share)


@pytest.mark.parametrize("percentile", [0, 100, -1, 101, math.nan])
def test_no_percentile(percentile):
    with pytest.raises(ValueError, match="percentile"):
        quantile_test([1.0], 1.0, percentile)


def test_two_looks_pass_a_bad_median_in_about_seven_percent_at_the_worst():
    """With the true median at the limit: pass at 11, or undecided there and pass at 31."""
    at_first = sum(comb(11, i) for i in range(3)) / 2**11
    later = sum(
        comb(11, i) / 2**11 * binomial_at_most(10 - i, 20, 0.5) for i in range(3, 9) if i <= 10
    )
    assert 0.05 < at_first + later < 0.07


def test_a_sample_at_the_limit_is_within_it():
    assert sign_test([100.0] * 11, 100.0).ruling is Ruling.PASS


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, 0.0])
def test_what_is_no_time_decides_nothing(bad):
    decision = sign_test([1.0] * 40 + [bad], 100.0)
    assert decision.ruling is Ruling.INCONCLUSIVE
    assert decision.wanted == 41
    assert "no times" in decision.reason


def test_a_limit_that_is_no_number_decides_nothing():
    assert sign_test([1.0] * 11, math.nan).ruling is Ruling.INCONCLUSIVE


def test_no_samples_want_the_first_look():
    decision = sign_test([], 100.0)
    assert (decision.ruling, decision.wanted, decision.estimate) == (Ruling.MORE_NEEDED, 11, None)


def test_too_close_wants_no_more():
    decision = sign_test(times(16, 15), 100.0)
    assert decision.wanted == 31
    assert decision.reason.startswith("too close to the limit")


def test_a_clock_with_two_states_is_not_hidden():
    """The minimum, and the mean, would pass."""
    assert sign_test([10.0] * 2 + [101.0] * 9, 100.0).ruling is Ruling.FAIL


def test_percentiles_of_a_sample():
    assert sample_percentile([4, 1, 3, 2], 50) == 2.5
    assert sample_percentile([3, 1, 2], 50) == 2
    assert sample_percentile(range(1, 101), 95) == 95
    assert sample_percentile(range(1, 101), 99.9) == 100


@settings(max_examples=50)
@given(n=st.integers(1, 120), q=st.fractions(Fraction(1, 100), Fraction(99, 100)), data=st.data())
def test_binomials_are_exact(n, q, data):
    k = data.draw(st.integers(0, n))
    assert binomial_at_most(k, n, float(q)) == pytest.approx(
        float(exact_at_most(k, n, q)), abs=1e-9
    )
    above = 1 - exact_at_most(k - 1, n, q)
    assert binomial_at_least(k, n, float(q)) == pytest.approx(float(above), abs=1e-9)


def test_large_counts_do_not_overflow():
    assert binomial_at_most(50_000, 100_000, 0.5) == pytest.approx(0.5, abs=0.01)
    assert quantile_test(times(100_000, 0), 100, 99).ruling is Ruling.PASS


BETTER = {Ruling.FAIL: 0, Ruling.MORE_NEEDED: 1, Ruling.INCONCLUSIVE: 1, Ruling.PASS: 2}
SAMPLES = st.lists(st.floats(1.0, 200.0), min_size=11, max_size=70)


@settings(max_examples=50)
@given(SAMPLES, st.data(), st.sampled_from([50, 90, 95]))
def test_a_slower_sample_never_helps(samples, data, percentile):
    index = data.draw(st.integers(0, len(samples) - 1))
    slower = list(samples)
    slower[index] += data.draw(st.floats(0.0, 500.0))
    before = quantile_test(samples, 100.0, percentile).ruling
    assert BETTER[quantile_test(slower, 100.0, percentile).ruling] <= BETTER[before]


@settings(max_examples=50)
@given(SAMPLES, st.floats(1.0, 200.0), st.floats(0.0, 100.0), st.sampled_from([50, 90, 95]))
def test_a_looser_limit_never_hurts(samples, limit, more, percentile):
    strict = quantile_test(samples, limit, percentile).ruling
    assert BETTER[quantile_test(samples, limit + more, percentile).ruling] >= BETTER[strict]


@settings(max_examples=50)
@given(SAMPLES)
def test_the_order_of_samples_does_not_count(samples):
    assert sign_test(sorted(samples), 100.0) == sign_test(samples, 100.0)


@settings(max_examples=50)
@given(SAMPLES)
def test_a_ruling_agrees_with_its_estimate(samples):
    decision = sign_test(samples, 100.0)
    if decision.ruling is Ruling.PASS:
        assert decision.estimate <= 100.0
    if decision.ruling is Ruling.FAIL:
        assert decision.estimate > 100.0
