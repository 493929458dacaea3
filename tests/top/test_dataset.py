"""The data that a test gives is checked before it costs a run."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_qnnctx.binary.info import BinaryInfo, GraphInfo, TensorInfo
from pytest_qnnctx.dataset import as_sample, read_dataset
from pytest_qnnctx.errors import UsageError


def binary(*inputs: TensorInfo) -> BinaryInfo:
    return BinaryInfo("0" * 64, 1, graphs=(GraphInfo("g", inputs=inputs),))


ONE = binary(TensorInfo("x", "ufixed8", (1, 3)))
TWO = binary(TensorInfo("x", "ufixed8", (1, 3)), TensorInfo("y", "ufixed8", (1, 2)))


def test_a_bare_array_stands_for_the_only_input():
    assert list(as_sample(np.zeros((1, 3)), ONE, "i")) == ["x"]


def test_the_leading_one_of_the_batch_may_be_left_out():
    assert as_sample({"x": np.zeros(3)}, ONE, "i")["x"].shape == (1, 3)


@pytest.mark.parametrize(
    ("info", "inputs", "said"),
    [
        (TWO, np.zeros((1, 3)), "2 inputs"),
        (ONE, {"z": np.zeros((1, 3))}, "these came: z"),
        (TWO, {"x": np.zeros((1, 3))}, "these came: x"),
        (ONE, np.zeros((1, 4)), r"shape \[1, 4\], the graph wants \[1, 3\]"),
        (ONE, np.array([["a", "b", "c"]]), "no array of numbers"),
        (ONE, np.array([[1, np.nan, 2]]), "NaN"),
        (ONE, None, "no array of numbers"),
    ],
)
def test_what_does_not_fit_is_named(info, inputs, said):
    with pytest.raises(UsageError, match=f"item 7.*{said}"):
        as_sample(inputs, info, "item 7")


def test_a_generator_is_read_once():
    samples, targets = read_dataset(((np.zeros((1, 3)), n) for n in range(3)), ONE)
    assert (len(samples), targets) == (3, [0, 1, 2])


@pytest.mark.parametrize(
    ("pairs", "said"), [([], "empty"), ([1], "item 0 is no pair"), ([(1, 2, 3)], "no pair")]
)
def test_what_is_no_dataset(pairs, said):
    with pytest.raises(UsageError, match=said):
        read_dataset(pairs, ONE)


def test_a_binary_with_several_graphs_or_none():
    several = BinaryInfo("0" * 64, 1, graphs=(GraphInfo("a"), GraphInfo("b")))
    with pytest.raises(UsageError, match=r"2 graphs \(a, b\)"):
        as_sample(np.zeros(1), several, "i")
    with pytest.raises(UsageError, match="no library"):
        as_sample(np.zeros(1), BinaryInfo("0" * 64, 1, unknown={"graphs": "no library"}), "i")
