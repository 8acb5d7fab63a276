"""What calls allocate: nothing that grows with the arrays."""

import tracemalloc

import numpy as np
import pytest

from rmsfast import (
    apply_dose,
    compare,
    describe,
    measure_dose,
    relative_rmse,
    rms,
    rms_norm,
    rmse,
    unit_rms,
)

SHAPE = (1000, 4000)
LIMIT = 2 << 20  # bytes; one byte for each value of these arrays is twice as much


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(SHAPE)
    first, second = (np.ma.masked_array(x, rng.random(SHAPE) < 0.2) for _ in range(2))
    found = {"x": x, "z": x + 1j, "where": x > -1, "out": x.copy()}
    found |= {"h": x.astype(np.float32), "x32": x.astype(np.float32), "u": np.ones(SHAPE[1])}
    return found | {"first": first, "second": second}


CALLS = {
    "axis": lambda a: rms(a["x"], axis=0),
    "where": lambda a: rms(a["x"], where=a["where"]),
    "weights": lambda a: rmse(a["x"], 1, weights=a["where"], axis=0),
    "mask_and_where": lambda a: rms(a["first"], where=a["where"]),
    "two_masks": lambda a: rmse(a["first"], a["second"], axis=0),
    "two_masks_and_where": lambda a: rmse(a["first"], a["second"], where=a["where"], axis=None),
    "real_and_complex": lambda a: rmse(a["x"], a["z"]),
    "complex_mean": lambda a: relative_rmse(a["z"], a["x"], reference="mean"),
    "complex_std": lambda a: relative_rmse(a["z"], a["x"], reference="std"),
    "complex_max": lambda a: relative_rmse(a["z"], a["x"], reference="max"),
    "scaling": lambda a: unit_rms(a["x"], where=a["where"], out=a["out"]),
    "masked_scaling": lambda a: unit_rms(a["first"], where=a["where"], out=a["out"]),
    "describe": lambda a: describe(a["x"], axis=0, where=a["where"]),
    "compare": lambda a: compare(a["first"], a["second"]),
    "describe_complex": lambda a: describe(a["z"]),
    "compare_complex": lambda a: compare(a["x"], a["z"], axis=0),
    "dose": lambda a: apply_dose(a["h"], a["u"], 0.1, out=a["h"]),
    "dose_elsewhere": lambda a: apply_dose(a["h"].T, a["u"], 0.1, axis=0, out=a["x32"].T),
    "dose_measured": lambda a: measure_dose(
        a["h"], a["h"], direction=a["u"], alpha=0.1, measured_at="here", clean_source="here"
    ),
    "norm": lambda a: rms_norm(a["x"], axis=0, out=a["out"]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_call_on_large_arrays_allocates_little(call, arrays):
    call(arrays)  # compiles
    tracemalloc.start()
    try:
        call(arrays)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < LIMIT


def test_allocations_of_numpy_are_seen(arrays):
    tracemalloc.start()
    try:
        assert (arrays["x"] > 0).any()
        assert tracemalloc.get_traced_memory()[1] > LIMIT
    finally:
        tracemalloc.stop()
