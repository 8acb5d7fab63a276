"""Refusals: which exception, and the whole message in one line."""

import inspect
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from numpy.exceptions import AxisError

import rmsfast
from rmsfast import rms, rmse

X = np.ones((2, 3))
ANY_DTYPE = "must have a boolean, integer, floating or complex dtype"
RULE = re.compile(r"\w+: \w+(\[\w+\])?( and \w+)? must .+, got .+")


def read_only(array):
    array.flags.writeable = False
    return array


def assert_refused(call, exception, message):
    """The call raises just this, in one line of the common form."""
    with pytest.raises(exception) as refusal:
        call()
    assert type(refusal.value) is exception
    assert str(refusal.value) == message
    assert RULE.fullmatch(message)


# Input arrays -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "actual"),
    [
        (np.array([1, "a"], object), "object; use .astype(float)"),
        (np.array(["x", "y"]), "<U1"),
        ("abc", "<U3"),
        (np.array([b"x"]), "|S1"),
        (np.array(["2020-01-01"], "M8[D]"), "datetime64[D]"),
        (np.array([1], "m8[s]"), "timedelta64[s]"),
        (np.zeros(2, [("a", "<f4")]), "[('a', '<f4')]"),
        (np.zeros(2, [("bfloat16", "<i2")]), "[('bfloat16', '<i2')]"),
        (np.zeros(3, "V2"), "|V2; name its format, for example format='bfloat16'"),
        (np.zeros(3, "V3"), "|V3"),
    ],
    ids=["mixed", "text", "string", "bytes", "dates", "durations", "records", "signed",
         "codes", "void"],
)  # fmt: skip
def test_rms_dtype_it_cannot_take_is_refused_with_the_remedy(x, actual):
    assert_refused(lambda: rms(x), TypeError, f"rms: x {ANY_DTYPE}, got {actual}")


@pytest.mark.parametrize("x", [None, iter([1.0]), {1.0}], ids=lambda x: type(x).__name__)
def test_rms_object_that_is_no_array_is_refused_by_its_type(x):
    assert_refused(lambda: rms(x), TypeError, f"rms: x must be an array, got {type(x).__name__}")


@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble], ids=["real", "complex"])
def test_rms_long_double_is_refused_with_the_remedy(dtype):
    if np.dtype(dtype) in (np.float64, np.complex128):
        assert rms(np.ones(3, dtype)) == 1
    else:
        name = np.dtype(dtype).name
        remedy = "float64" if name.startswith("float") else "complex128"
        expected = f"rms: x {ANY_DTYPE}, got {name}; use .astype('{remedy}')"
        assert_refused(lambda: rms(np.ones(3, dtype)), TypeError, expected)


@pytest.mark.parametrize("name", ["int4", "float8_e4m3b11fnuz", "float6_e2m3fn"])
def test_rms_other_small_formats_are_refused_without_a_remedy_that_fails(name):
    with pytest.raises(TypeError) as refusal:
        rms(np.ones(3).astype(getattr(ml_dtypes, name)))
    assert RULE.fullmatch(str(refusal.value))
    assert name in str(refusal.value)
    assert "format=" not in str(refusal.value)


def test_rms_ragged_list_is_refused():
    message = "rms: x must be an array, got rows of different lengths"
    assert_refused(lambda: rms([[1, 2], [3]]), ValueError, message)


def test_rmse_names_the_array_that_it_cannot_take():
    expected = f"rmse: x_hat {ANY_DTYPE}, got <U1"
    assert_refused(lambda: rmse(X, np.array(["a"])), TypeError, expected)
    message = "rmse: x_hat must be an array, got rows of different lengths"
    assert_refused(lambda: rmse(X, [[1, 2], [3]]), ValueError, message)


def test_rms_torch_tensor_elsewhere_is_refused():
    torch = pytest.importorskip("torch")
    message = "rms: x must be a CPU tensor, got one on meta (use .cpu())"
    assert_refused(lambda: rms(torch.ones(3, device="meta")), TypeError, message)


def test_rms_sparse_torch_tensor_is_refused_by_its_layout():
    torch = pytest.importorskip("torch")
    message = "rms: x must be a dense real or complex tensor, got torch.sparse_coo"
    assert_refused(lambda: rms(torch.eye(3).to_sparse()), TypeError, message)


@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 0), -1), ((0,), -1), ((0, 4), 0), ((0, 0), None), ((2, 0, 3), (1, 2))]
)
def test_rms_empty_vector_is_refused(shape, axis):
    message = f"rms: x must have a coordinate along axis, got shape {shape}"
    assert_refused(lambda: rms(np.empty(shape), axis=axis), ValueError, message)


def test_rmse_empty_vector_is_refused():
    message = "rmse: x must have a coordinate along axis, got shape (2, 0)"
    assert_refused(lambda: rmse(np.ones((2, 0)), np.ones((2, 0))), ValueError, message)


# Axes and shapes --------------------------------------------------------------------------------


@pytest.mark.parametrize(("axis", "actual"), [(2, 2), (-3, -3), ((0, 2), 2), ((-5, 0), -5)])
@pytest.mark.parametrize("call", [rms, lambda x, **k: rmse(x, x, **k)], ids=["rms", "rmse"])
def test_axis_out_of_range_is_refused(call, axis, actual):
    name = "rms" if call is rms else "rmse"
    message = f"{name}: axis must be in [-2, 2), got {actual}"
    with pytest.raises(AxisError) as refusal:
        call(X, axis=axis)
    assert str(refusal.value) == message


@pytest.mark.parametrize("axis", [1, -2, (0, 1)])
def test_axis_of_a_number_is_refused_beyond_the_first(axis):
    with pytest.raises(AxisError, match=r"^rms: axis must be in \[-1, 1\), got -?\d$"):
        rms(3.0, axis=axis)


def test_axis_of_a_number_may_be_an_empty_tuple():
    assert rms(-3.0, axis=()).shape == ()
    assert rmse(1.0, 4.0, axis=(), keepdims=True) == 3.0


@pytest.mark.parametrize("axis", [(0, 0), (0, -2), (1, 0, -1)])
def test_axis_named_twice_is_refused(axis):
    message = f"rms: axis must name each axis once, got {axis}"
    assert_refused(lambda: rms(X, axis=axis), ValueError, message)


@pytest.mark.parametrize(
    "axis", [1.0, "0", [0], (0, "1"), np.array([0, 1]), (0, 1.0), ([0],)], ids=repr
)
def test_axis_that_is_no_int_is_refused(axis):
    assert rms(X, axis=1).shape + rms(X, axis=(0, 1)).shape == X.shape[:1]  # equal keys of ints
    message = f"rms: axis must be an int, a tuple of ints or None, got {axis!r}"
    assert_refused(lambda: rms(X, axis=axis), TypeError, message)


@pytest.mark.parametrize(
    ("left", "right", "axis"), [((100, 1), (100,), -1), ((4, 5), (5,), 0), ((4, 5), (1, 5), None)]
)
def test_rmse_unequal_lengths_along_reduced_axes_are_refused(left, right, axis):
    message = (
        "rmse: x and x_hat must have equal lengths along the reduced axes, "
        f"got shapes {left} and {right}"
    )
    call = lambda: rmse(np.ones(left), np.ones(right), axis=axis)  # noqa: E731
    assert_refused(call, ValueError, message)


def test_rmse_other_axes_that_do_not_match_are_refused():
    message = "rmse: x and x_hat must match, got shapes (3, 4) and (2, 4)"
    assert_refused(lambda: rmse(np.ones((3, 4)), np.ones((2, 4))), ValueError, message)


# Options ----------------------------------------------------------------------------------------


REFUSED = [
    ({"threads": 0}, ValueError, "threads must be None or an int >= 1, got 0"),
    ({"threads": -1}, ValueError, "threads must be None or an int >= 1, got -1"),
    ({"threads": 1.5}, TypeError, "threads must be None or an int >= 1, got 1.5"),
    ({"threads": True}, TypeError, "threads must be None or an int >= 1, got True"),
    ({"threads": "2"}, TypeError, "threads must be None or an int >= 1, got '2'"),
    (
        {"nan_policy": "skip"},
        ValueError,
        "nan_policy must be one of 'propagate', 'omit', 'raise', got 'skip'",
    ),
    (
        {"nan_policy": None},
        ValueError,
        "nan_policy must be one of 'propagate', 'omit', 'raise', got None",
    ),
    (
        {"dtype": "int32"},
        TypeError,
        "dtype must be a real floating dtype of at most 64 bits, got int32",
    ),
    (
        {"dtype": "complex128"},
        TypeError,
        "dtype must be a real floating dtype of at most 64 bits, got complex128",
    ),
    ({"dtype": "nope"}, TypeError, "dtype must be a real floating dtype, got 'nope'"),
    ({"dtype": 5}, TypeError, "dtype must be a real floating dtype, got 5"),
    (
        {"format": "float32"},
        ValueError,
        "format must be None or one of float16, bfloat16, float8_e4m3fn, float8_e5m2, "
        "got 'float32'",
    ),
    (
        {"format": 16},
        ValueError,
        "format must be None or one of float16, bfloat16, float8_e4m3fn, float8_e5m2, got 16",
    ),
    (
        {"format": "bfloat16"},
        TypeError,
        "x must hold codes of 16 bits (uint16) for format='bfloat16', got float64",
    ),
    (
        {"format": "float8_e5m2"},
        TypeError,
        "x must hold codes of 8 bits (uint8) for format='float8_e5m2', got float64",
    ),
    ({"out": [0, 0]}, TypeError, "out must be a numpy array, got list"),
    ({"out": np.zeros(3)}, ValueError, "out must have shape (2,), got (3,)"),
    ({"out": np.zeros((2, 1))}, ValueError, "out must have shape (2,), got (2, 1)"),
    ({"out": np.zeros(2, "f4")}, TypeError, "out must have dtype float64, got float32"),
    ({"out": np.ones(2), "dtype": "f4"}, TypeError, "out must have dtype float32, got float64"),
    (
        {"out": np.zeros(2), "keepdims": True},
        ValueError,
        "out must have shape (2, 1), got (2,)",
    ),
    (
        {"out": read_only(np.zeros(2))},
        ValueError,
        "out must be writeable, got a read-only array",
    ),
    (
        {"out": np.lib.stride_tricks.as_strided(np.zeros(1), (2,), (0,))},
        ValueError,
        "out must have a place for each element, got strides (0,)",
    ),
    ({"where": [1, 0, 1]}, TypeError, "where must be boolean, got dtype int64"),
    ({"where": "x"}, TypeError, "where must be boolean, got dtype <U1"),
    (
        {"where": np.ones(4, bool)},
        ValueError,
        "where must be broadcastable to shape (2, 3), got shape (4,)",
    ),
    (
        {"where": np.ones((2, 2, 3), bool)},
        ValueError,
        "where must be broadcastable to shape (2, 3), got shape (2, 2, 3)",
    ),
    (
        {"where": [[True], [True, False]]},
        ValueError,
        "where must be a boolean array, got rows of different lengths",
    ),
    (
        {"weights": [1, 2]},
        ValueError,
        "weights must be broadcastable to shape (2, 3), got shape (2,)",
    ),
    ({"weights": [1j, 1, 1]}, TypeError, "weights must have a real dtype, got complex128"),
    ({"weights": ["a"]}, TypeError, f"weights {ANY_DTYPE}, got <U1"),
    (
        {"weights": [[1], [2, 3]]},
        ValueError,
        "weights must be an array, got rows of different lengths",
    ),
]


@pytest.mark.parametrize(
    ("options", "exception", "expected"), REFUSED, ids=[expected for *_, expected in REFUSED]
)
@pytest.mark.parametrize("function", [rms, rmse])
def test_option_that_does_not_fit_is_refused(function, options, exception, expected):
    arrays = (X,) if function is rms else (X, X + 1)
    message = f"{function.__name__}: {expected}"
    assert_refused(lambda: function(*arrays, **options), exception, message)


@pytest.mark.parametrize(
    ("dtype", "format"), [(np.uint8, "bfloat16"), (np.uint16, "float8_e5m2"), (np.int16, "float16")]
)
def test_format_that_codes_cannot_hold_is_refused(dtype, format):
    bits = 8 if format.startswith("float8") else 16
    name = np.dtype(dtype).name
    held = f"codes of {bits} bits (uint{bits})"
    message = f"rms: x must hold {held} for format={format!r}, got {name}"
    assert_refused(lambda: rms(np.ones(3, dtype), format=format), TypeError, message)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf, -np.inf, -5e-324])
@pytest.mark.parametrize("function", [rms, rmse])
def test_weight_that_is_none_is_refused(function, value):
    arrays = (X,) if function is rms else (X, X + 1)
    message = (
        f"{function.__name__}: weights must be non-negative and finite, "
        "got a negative, infinite or NaN weight"
    )
    assert_refused(lambda: function(*arrays, weights=[1, value, 2]), ValueError, message)


@pytest.mark.parametrize("value", [-1.0, np.inf])
def test_weight_that_is_none_is_refused_under_omit_too(value):
    message = "rms: weights must be non-negative and finite, got a negative, infinite or NaN weight"
    call = lambda: rms(X, weights=[1, value, 2], nan_policy="omit")  # noqa: E731
    assert_refused(call, ValueError, message)


@pytest.mark.parametrize(("axis", "rows"), [(-1, "1 of 2"), (0, "1 of 3"), (None, "1 of 1")])
def test_rms_nan_is_refused_on_request(axis, rows):
    x = X.copy()
    x[1, 2] = np.nan
    message = f"rms: x must hold no NaN under nan_policy='raise', got NaN in {rows} rows"
    assert_refused(lambda: rms(x, axis=axis, nan_policy="raise"), ValueError, message)


@pytest.mark.parametrize("position", [0, 1])
def test_rmse_nan_in_either_array_is_refused_on_request(position):
    pair = [X.copy(), X.copy()]
    pair[position][0, 1] = np.nan
    with pytest.raises(
        ValueError, match=r"^rmse: x and x_hat must hold no NaN .+, got NaN in 1 of 2 rows$"
    ):
        rmse(*pair, nan_policy="raise")


# Before any work --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"nan_policy": "raise"},
        {"weights": [1.0, -1.0, 1.0]},
        {"weights": [1.0, np.nan, 1.0]},
        {"where": np.ones(4, bool)},
        {"threads": 0},
    ],
    ids=str,
)
def test_failed_call_leaves_out_untouched(options):
    x, out = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, np.nan]]), np.full(2, -7.0)
    with pytest.raises(ValueError, match=r"^rms: "):
        rms(x, out=out, **options)
    assert out.tolist() == [-7.0, -7.0]


@pytest.mark.parametrize(
    "overlapping",
    [
        lambda m: (m[:, :4], m[:, 2]),
        lambda m: (m[:, :4], m[0, :4]),
        lambda m: (m[:, :1], m[:, :1][::-1]),
        lambda m: (m[1:4, :1], m[:3, :1]),
    ],
    ids=["column", "row", "reversed", "shifted"],
)
def test_out_that_overlaps_the_input_in_part_is_refused(overlapping):
    memory = np.arange(24.0).reshape(4, 6)
    before = memory.copy()
    x, out = overlapping(memory)
    with pytest.raises(ValueError, match=r"^rms: out must .+, got .*overlap"):
        rms(x, out=out, keepdims=out.ndim == 2)
    np.testing.assert_array_equal(memory, before)


def test_out_between_the_elements_of_the_input_is_taken():
    """Memory bounds that overlap, elements that do not."""
    memory = np.arange(8.0).reshape(4, 2)
    expected = rms(memory[:, :1].copy())
    out = memory[:, 1]
    rms(memory[:, :1], out=out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("package", "call", "what", "extra"),
    [
        ("ml_dtypes", "rmsfast.rms([3.0], dtype='bfloat16')", "rms: a bfloat16 array", "formats"),
        ("matplotlib", "rmsfast.reference.describe([[3.0]]).plot('x.png')", "a picture", "plot"),
        ("dask", "import rmsfast.dask", "rmsfast.dask", "dask"),
        ("xarray", "import rmsfast.xarray", "rmsfast.xarray", "xarray"),
    ],
    ids=lambda text: text if text.isidentifier() else "",
)
def test_call_without_the_package_it_needs_is_refused_with_the_remedy(package, call, what, extra):
    program = (
        f"import sys; sys.modules['{package}'] = None; import rmsfast\n"
        f"try: {call}\nexcept ImportError as error: print(error)"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert run.stdout == f"{what} needs the package {package} (pip install 'rmsfast[{extra}]')\n"


# Signatures -------------------------------------------------------------------------------------

OPTIONS = {
    "axis": -1,
    "keepdims": False,
    "where": None,
    "weights": None,
    "nan_policy": "propagate",
    "dtype": None,
    "out": None,
    "format": None,
    "threads": None,
}
PAIR = ["x", "x_hat"]
SUMMARY_OPTIONS = ("axis", "where", "nan_policy", "format", "threads")


@pytest.mark.parametrize(
    ("name", "arrays", "options"),
    [
        ("rms", PAIR[:1], OPTIONS),
        ("rmse", PAIR, OPTIONS),
        ("relative_rmse", PAIR, {"reference": inspect.Parameter.empty, "zero": "raise"} | OPTIONS),
        ("describe", PAIR[:1], {name: OPTIONS[name] for name in SUMMARY_OPTIONS}),
        ("compare", PAIR, {name: OPTIONS[name] for name in SUMMARY_OPTIONS}),
    ],
)
def test_signature_takes_arrays_by_position_and_all_else_by_name(name, arrays, options):
    parameters = inspect.signature(getattr(rmsfast, name)).parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    named = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert positional == arrays
    assert named == options
    assert len(parameters) == len(arrays) + len(options)
