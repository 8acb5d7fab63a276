"""Many threads, many calls of everything, and the answers of one thread."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rmsfast

THREADS, CALLS = 4, 2000
SETTINGS = {"get_num_threads", "set_num_threads", "show_config", "warmup"}
RESULTS = {"Comparison", "Description"}
FUNCTIONS = {
    "rms": lambda x, _y, axis: rmsfast.rms(x, axis=axis),
    "rmse": lambda x, y, axis: rmsfast.rmse(x, y, axis=axis),
    "relative_rmse": lambda x, y, axis: rmsfast.relative_rmse(x, y, axis=axis, reference="x"),
    "unit_rms": lambda x, _y, axis: rmsfast.unit_rms(x, axis=axis),
    "scale_to_rms": lambda x, _y, axis: rmsfast.scale_to_rms(x, 2.0, axis=axis),
    "apply_dose": lambda x, y, axis: (
        rmsfast.apply_dose(x, y, 0.1, axis=axis, storage="float32").after
    ),
    "measure_dose": lambda x, y, axis: (
        rmsfast.measure_dose(x, y, axis=axis, measured_at="here", clean_source="here").rms_realised
    ),
    "predict_dose": lambda x, y, axis: (
        rmsfast.predict_dose(x, y, [0.1, 0.2], axis=axis, storage="float32").cosine
    ),
    "dose_floor": lambda x, _y, axis: rmsfast.dose_floor(x, axis=axis),
    "round_to": lambda x, _y, _axis: rmsfast.round_to(x, "float16"),
    "rms_norm": lambda x, _y, axis: rmsfast.rms_norm(x, axis=axis),
    "RunningRMS": lambda x, _y, axis: rmsfast.RunningRMS(axis and 0).update(x).value(),
    "RunningRMSE": lambda x, y, axis: rmsfast.RunningRMSE(axis and 0).update(x, y).value(),
    "describe": lambda x, _y, axis: rmsfast.describe(x, axis=axis).to_records(),
    "compare": lambda x, y, axis: rmsfast.compare(x, y, axis=axis).to_records(),
    "rms_windows": lambda x, _y, axis: rmsfast.rms_windows(x, 1, axis=axis or 0),
    "agc": lambda x, _y, axis: rmsfast.agc(x, 3, axis=axis or 0),
}


def call(seed):
    """The bits of the answer to a random call: a function, shape, axis, order and dtype."""
    rng = np.random.default_rng(seed)
    name = rng.choice(sorted(FUNCTIONS))
    large = rng.random() < 0.02  # for several threads
    shape = rng.integers(1, 9, 3) * ((8, 32, 8) if large else (1, 1, 7))
    x, y = rng.normal(size=(2, *shape)).astype(rng.choice(["float32", "float64"]))
    if rng.random() < 0.3:
        x, y = np.asfortranarray(x), y[..., ::-1]
    return np.asarray(FUNCTIONS[name](x, y, [-1, 1, None][rng.integers(3)])).tobytes()


def test_soak_calls_every_public_function():
    assert set(FUNCTIONS) == set(rmsfast.__all__) - SETTINGS - RESULTS


def test_soak_of_four_threads_gives_the_answers_of_one(one_thread_answers):
    def answers(thread):
        order = np.random.default_rng(thread).permutation(CALLS)
        return all(call(int(seed)) == one_thread_answers[seed] for seed in order)

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(answers, range(THREADS)))


@pytest.fixture(scope="module")
def one_thread_answers():
    rmsfast.set_num_threads(1)
    try:
        return [call(seed) for seed in range(CALLS)]
    finally:
        rmsfast.set_num_threads(None)
