"""Test suites of others, run from their installed copies on Euclidean norms and known residuals.

Padding with zeros to 4**k coordinates makes a norm of an RMS without a further rounding:
norm(x) = 2**k * rms(padded x), and distance(p, q) = 2**k * rmse(padded p, padded q).
"""

import importlib.resources
import math
from array import array
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from exact import ulp_error

from rmsfast import rms, rmse


def coordinates(values):
    """Anything that has a float value, as `math` takes it: strings have none."""
    return array("d", values).tolist()


def padded(values):
    k = 0
    while 4**k < len(values):
        k += 1
    return k, np.pad(np.array(values, np.float64), (0, 4**k - len(values)))


def hypot(*given):
    values = coordinates(given)
    k, x = padded(values)
    # The norm of C99 is infinite beside any infinity; an RMS with a NaN in it is NaN.
    return math.inf if math.inf in map(abs, values) else 2.0**k * float(rms(x))


def dist(p, q, /):
    p, q = coordinates(tuple(p)), coordinates(tuple(q))
    if len(p) != len(q):
        raise ValueError("both points must have the same number of dimensions")
    if any(math.isinf(a - b) for a, b in zip(p, q, strict=True)):
        return math.inf
    k, x = padded(p)
    return 2.0**k * float(rmse(x, padded(q)[1]))


@pytest.mark.parametrize("method", ["testHypot", "testHypotAccuracy", "testDist"])
def test_rms_and_rmse_as_norms_pass_the_tests_of_the_standard_library(method, monkeypatch):
    suite = pytest.importorskip("test.test_math", reason="this Python comes without its tests")
    stand_in = SimpleNamespace(**vars(math) | {"hypot": hypot, "dist": dist})
    monkeypatch.setattr(suite, "math", stand_in)
    suite.MathTests(method).debug()


def test_rmse_certified_fit_of_norris_gives_certified_residual():
    pytest.importorskip("scipy")
    data = importlib.resources.files("scipy") / "stats/tests/data/nist_linregress/Norris.dat"
    lines = data.read_text().splitlines()[60:96]
    y, x = np.array([line.split() for line in lines], np.float64).T
    fit = -0.262323073774029 + 1.00211681802045 * x
    # The certified sum has 15 digits; the coefficients it belongs to shift it by rounding only.
    assert float(rmse(y, fit)) == pytest.approx(math.sqrt(26.6173985294224 / 36), rel=1e-12)


@pytest.mark.parametrize(
    ("values", "square"),
    [
        ([2.4e-322, 4.4e-323], Fraction(2.4e-322) ** 2 + Fraction(4.4e-323) ** 2),
        ([7.457008414e-310] * 28, 28 * Fraction(7.457008414e-310) ** 2),
        ([5e-324, -5e-324], 2 * Fraction(5e-324) ** 2),
    ],
)
def test_rms_as_norm_of_subnormals_is_within_an_ulp(values, square):
    """Vectors whose norm other libraries gave as infinity or 0."""
    k, x = padded(values)
    assert ulp_error(rms(x), square / 4**k) <= 0.76
    assert ulp_error(np.float64(hypot(*values)), square) <= 2.0**k * 0.76


def test_rms_as_norm_of_zeros_and_one_infinity_is_infinite():
    x = np.zeros(29)
    x[-1] = -np.inf
    assert rms(x) == np.inf
