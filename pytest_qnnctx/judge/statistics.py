"""The statistics behind time gates: is a percentile of a duration within its limit?

An order-statistic (sign) test. It counts the samples above the limit and nothing else, so it needs
no assumption on the shape of the distribution and no outlier rule, and a clock with two states
does not fool it as a minimum would. Let ``q`` be the share of samples that may lie above the limit
(1 - percentile / 100). With the true percentile exactly at the limit, the number of samples above
it is Binomial(n, q):

* *pass* where so few above would then come with a probability of at most 5 %,
* *fail* where so many above would then come with a probability of at most 5 %,
* otherwise more samples are wanted, once; after that it is "too close to the limit".

For the median: 11 samples (at most 2 above pass, p = 0.033; 9 or more fail), then 31 (at most 10
pass, p = 0.035; 21 or more fail). For p95: 59 (none above), then 93 (at most one). Because there
are two looks, the chance of a false pass is about 7 % at the worst, not 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

#: Largest probability of a wrong pass (or a wrong fail) at one look.
ALPHA = 0.05

#: The median's two looks; no percentile is decided on fewer samples.
FIRST_LOOK, LAST_LOOK = 11, 31


class Ruling(StrEnum):
    """What a test of samples against a limit concluded."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    MORE_NEEDED = "more_needed"


@dataclass(frozen=True)
class Decision:
    """The result of a test.

    ``estimate`` is the sample percentile (None where the samples are no times), ``over`` how many
    of ``count`` samples lie above the limit. ``p_value`` belongs to the ruling: of a pass the
    probability of so few above the limit, of a fail of so many, else the smaller of both; None
    where it was not computed. ``wanted`` is the number of samples to have in all before asking
    again (``count`` where more would not help). ``reason`` is part of a sentence.
    """

    ruling: Ruling
    count: int
    over: int
    percentile: float
    estimate: float | None
    p_value: float | None
    wanted: int
    reason: str


def binomial_at_most(k: int, n: int, q: float) -> float:
    """P(X <= k) of X ~ Binomial(n, q), 0 < q < 1, by a sum of logarithms (no overflow)."""
    if k < 0:
        return 0.0
    if k >= n:
        return 1.0
    log_q, log_rest = math.log(q), math.log1p(-q)
    log_n = math.lgamma(n + 1)
    terms = (
        math.exp(
            log_n - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * log_q + (n - i) * log_rest
        )
        for i in range(k + 1)
    )
    return min(1.0, math.fsum(terms))


def binomial_at_least(k: int, n: int, q: float) -> float:
    """P(X >= k) of X ~ Binomial(n, q): the successes of one are the failures of the other."""
    return binomial_at_most(n - k, n, 1.0 - q)


def looks(percentile: float) -> tuple[int, int]:
    """How many samples the first and the last look take: (11, 31) for p50, (59, 93) for p95.

    The first is the smallest number that can pass with none above the limit, the last with one;
    never fewer than for the median. Raises ValueError unless 0 < percentile < 100.
    """
    if not 0.0 < percentile < 100.0:
        raise ValueError(f"a percentile lies between 0 and 100, not at {percentile}")
    tail = min(percentile, 100.0 - percentile) / 100.0
    first = math.ceil(math.log(ALPHA) / math.log1p(-tail))
    last = first
    while binomial_at_most(1, last, tail) > ALPHA:
        last += 1
    return max(FIRST_LOOK, first), max(LAST_LOOK, last)


def sample_percentile(samples: Sequence[float], percentile: float) -> float:
    """The percentile of a non-empty sample; the mean of the two middle values for a median.

    Other percentiles are the order statistic ceil(n * p): a value that was really measured.
    """
    ordered = sorted(samples)
    n = len(ordered)
    if percentile == 50.0:
        return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2.0
    return ordered[min(n, max(1, math.ceil(n * percentile / 100.0 - 1e-9))) - 1]


def sign_test(samples: Sequence[float], limit: float) -> Decision:
    """Is the median of ``samples`` within ``limit`` (same unit)? See the module's text."""
    return quantile_test(samples, limit, 50.0)


def quantile_test(samples: Sequence[float], limit: float, percentile: float = 50.0) -> Decision:
    """Is the ``percentile`` of ``samples`` within ``limit`` (same unit)? See the module's text.

    A sample at the limit is within it. Samples that are no time at all (not finite, zero or
    negative) make the whole set inconclusive: something went wrong in taking it.
    Raises ValueError unless 0 < percentile < 100.
    """
    first, last = looks(percentile)
    times = [float(sample) for sample in samples]
    n = len(times)
    bad = [time for time in times if not math.isfinite(time) or time <= 0.0]
    if bad or not math.isfinite(limit):
        what = f"{len(bad)} of {n} samples are no times (first: {bad[0]})" if bad else "no limit"
        return Decision(Ruling.INCONCLUSIVE, n, 0, percentile, None, None, n, what)
    over = sum(time > limit for time in times)
    estimate = sample_percentile(times, percentile) if times else None
    if n < first:
        reason = f"{n} of {first} samples"
        return Decision(Ruling.MORE_NEEDED, n, over, percentile, estimate, None, first, reason)
    share = 1.0 - percentile / 100.0
    so_few, so_many = binomial_at_most(over, n, share), binomial_at_least(over, n, share)
    counted = f"{over} of {n} over the limit"
    if so_few <= ALPHA:
        return Decision(Ruling.PASS, n, over, percentile, estimate, so_few, n, counted)
    if so_many <= ALPHA:
        return Decision(Ruling.FAIL, n, over, percentile, estimate, so_many, n, counted)
    p_value = min(so_few, so_many)
    if n < last:
        return Decision(Ruling.MORE_NEEDED, n, over, percentile, estimate, p_value, last, counted)
    reason = f"too close to the limit: {counted}"
    return Decision(Ruling.INCONCLUSIVE, n, over, percentile, estimate, p_value, n, reason)
