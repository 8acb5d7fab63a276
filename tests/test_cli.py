"""The command line: what it prints, where, and how it ends."""

import contextlib
import csv
import json
import math
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_files import entry, safetensors
from test_files_formats import FORMATS

import rmsfast
from rmsfast import __main__
from rmsfast._formats import CODES
from rmsfast.files import Summary, open_tensors

testing = pytest.importorskip("click.testing")
pytest.importorskip("rich")

from rmsfast.cli import _records, cli, main  # noqa: E402 - needs click

BFLOAT16 = safetensors(  # the rows (3, 4, 0, 0) and (6, 8, 0, 0)
    {"h": entry("BF16", [2, 4], 0, 16)},
    np.array([0x4040, 0x4080, 0, 0, 0x40C0, 0x4100, 0, 0], "<u2").tobytes(),
)
MIXED = safetensors(
    {
        "odd": entry("F4", [2], 0, 1),
        "vector": entry("U8", [2], 1, 3),
        "h": entry("U8", [2, 1], 3, 5),
    },
    bytes([0, 3, 3, 6, 8]),
)


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, content):
        if isinstance(content, np.ndarray):
            np.save(name, content)
        else:
            Path(name).write_bytes(content)
        return name

    return write


def printed(*arguments, columns=80, terminal=False):
    """Standard output of a command that succeeds and prints no error, without colours."""
    environment = {"COLUMNS": str(columns), "FORCE_COLOR": "1" if terminal else None}
    result = testing.CliRunner(env=environment).invoke(cli, arguments)
    assert (result.exception, result.exit_code, result.stderr) == (None, 0, "")
    return re.sub(r"\x1b\[[0-9;]*m", "", result.stdout) if terminal else result.stdout


def described(*arguments):
    """Read the JSON as strictly as other languages do: NaN and Infinity are no JSON."""
    return json.loads(printed("describe", *arguments, "--json"), parse_constant=pytest.fail)


def process(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(Path(rmsfast.__file__).parents[1])}
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, env=environment, text=True, **options)


def run(*arguments, **options):
    """Exit code, standard output and standard error of a real process."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with process("-m", "rmsfast", *arguments, **pipes) as running:
        output, errors = running.communicate(timeout=120)
    return running.returncode, output, errors


# describe ---------------------------------------------------------------------------------------


def test_describe_json_holds_every_number(write):
    found = described(write("m.safetensors", BFLOAT16))
    worst = found["tensors"][0].pop("worst")
    assert found == {
        "file": "m.safetensors",
        "tensors": [
            {
                "name": "h",
                "shape": [2, 4],
                "dtype": "bfloat16",
                "axis": -1,
                "rows": 2,
                "rms": math.sqrt(15.625),
                "row_rms_min": 2.5,
                "row_rms_median": 3.75,
                "row_rms_max": 5.0,
                "zero_rows": 0,
                "nan_rows": 0,
                "inf_rows": 0,
                "peak": 8.0,
                "peak_index": [1, 1],
                "peak_share_max": pytest.approx(0.64, rel=1e-15),
                "count": 8,
                "mean": 2.625,
                "std": pytest.approx(math.sqrt(15.625 - 2.625**2), rel=1e-15),
                "min": 0.0,
                "max": 8.0,
                "peak_share": pytest.approx(64 / 125, rel=1e-15),
                "crest": pytest.approx(8 / math.sqrt(15.625), rel=1e-15),
                "n_nan": 0,
                "n_inf": 0,
                "n_zero": 4,
            }
        ],
    }
    share = pytest.approx(0.64, rel=1e-15)
    assert worst == [
        {"row": 1, "rms": 5.0, "peak": 8.0, "peak_index": 1, "peak_share": share},
        {"row": 0, "rms": 2.5, "peak": 4.0, "peak_index": 1, "peak_share": share},
    ]


def test_describe_json_writes_numbers_that_are_not_finite_as_null(write):
    rows = np.array([[math.nan, 1], [math.inf, 1], [3, 3], [0, 0]])
    [tensor] = described(write("x.npy", rows))["tensors"]
    assert {name: tensor[name] for name in tensor if name.startswith(("r", "row_rms"))} == {
        "rows": 4,
        "rms": None,
        "row_rms_min": 0.0,
        "row_rms_median": 3.0,
        "row_rms_max": None,
    }
    assert (tensor["zero_rows"], tensor["nan_rows"], tensor["inf_rows"]) == (1, 1, 1)


def test_describe_json_lists_unreadable_tensor_with_reason(write):
    odd, vector, h = described(write("m.safetensors", MIXED))["tensors"]
    assert odd == {
        "name": "odd",
        "shape": [2],
        "dtype": "F4",
        "error": "dtype F4 is not supported",
    }
    assert (vector["rms"], h["row_rms_median"]) == (3.0, 7.0)


@pytest.mark.parametrize(
    ("options", "names"), [((), ["odd", "vector", "h"]), (("--tensor", "h"), ["h"])]
)
def test_describe_tensor_option_chooses_one(write, options, names):
    tensors = described(write("m.safetensors", MIXED), *options)["tensors"]
    assert [tensor["name"] for tensor in tensors] == names


def test_describe_axis_option_chooses_rows(write):
    [tensor] = described(write("x.npy", np.array([[3, 0], [3, 0], [3, 0]])), "--axis", "0")[
        "tensors"
    ]
    assert (tensor["axis"], tensor["rows"], tensor["rms"]) == (0, 2, math.sqrt(4.5))
    assert (tensor["row_rms_max"], tensor["zero_rows"]) == (3.0, 1)


def test_describe_format_option_reads_codes(write):
    codes = np.array([0x4040, 0xC040], np.uint16)
    [tensor] = described(write("x.npy", codes), "--format", "bfloat16")["tensors"]
    assert (tensor["dtype"], tensor["rms"]) == ("bfloat16", 3.0)


def test_describe_format_option_takes_every_storage_format():
    [option] = (option for option in cli.commands["describe"].params if option.name == "format")
    assert set(option.type.choices) == set(CODES)


def test_describe_empty_tensors_have_no_numbers(write):
    path = write("m.safetensors", safetensors({"e": entry("F32", [5, 0], 0, 0)}))
    [tensor] = described(path)["tensors"]
    assert (tensor["rows"], tensor["rms"], tensor["row_rms_median"]) == (5, None, None)
    assert printed("describe", path).splitlines()[-2].split() == ["e", "5", *"----", *"000", *"---"]


def test_describe_table_shows_every_number(write):
    _, *lines, last = printed("describe", write("m.safetensors", BFLOAT16)).splitlines()
    assert last == "largest row RMS: 5 in row 1: coordinate 1 holds 64 % of its squares"
    assert [line.split() for line in lines] == [
        ["row", "RMS", "zero", "NaN", "Inf", "peak", "share"],
        [
            "tensor",
            *[
                "rows",
                "RMS",
                "min",
                "median",
                "max",
                "rows",
                "rows",
                "rows",
                "peak",
                "index",
                "max",
            ],
        ],
        ["h", "2", "3.953", "2.5", "3.75", "5", "0", "0", "0", "8", "1,1", "0.64"],
        ["bfloat16", "2x4"],
    ]


def test_describe_names_the_coordinate_that_is_infinite(write):
    path = write("x.npy", np.float32([[1, 2], [3, np.inf]]))
    last = printed("describe", path).splitlines()[-1]
    assert last == "largest row RMS: inf in row 1: coordinate 1 is infinite"


def test_describe_of_records_without_a_format_names_the_option(write, capsys):
    assert main(["describe", write("x.npy", np.zeros(3, "V1"))]) == 2
    assert capsys.readouterr().err.endswith(
        "; name its format, for example --format float8_e4m3fn\n"
    )


def test_rms_of_a_pattern_that_fits_several_tells_how_many(write, capsys):
    header = {name: entry("U8", [1], i, i + 1) for i, name in enumerate("ab")}
    path = write("m.safetensors", safetensors(header, bytes(2)))
    assert main(["rms", path, "--tensor", "?"]) == 2
    expected = f"rmsfast: {path}: tensor must be one of 'a', 'b', '?' fits 2\n"
    assert capsys.readouterr().err == expected


def test_describe_table_lists_unreadable_tensor_with_reason(write):
    output = printed("describe", write("m.safetensors", MIXED))
    assert output.splitlines()[-1] == "not read: odd (F4 2): dtype F4 is not supported"


def test_describe_table_of_no_tensors_says_so(write):
    assert printed("describe", write("m.safetensors", safetensors({}))).endswith("no tensors\n")


@pytest.mark.parametrize("columns", [20, 80, 200])
def test_describe_table_folds_names_and_never_cuts_numbers(write, columns):
    name = "model.layers.0.block_sparse_moe.experts.7.down_proj.weight_日本"
    values = np.array([[-1.25e-300], [-2.25e-300], [-9.75e-299]])
    content = safetensors({name: entry("F64", [3, 1], 0, 24)}, values.tobytes())
    path = write("m.safetensors", content)
    _, *lines = printed("describe", path, columns=columns, terminal=True).splitlines()
    first = lines[2].split()
    assert first[1:9] == ["3", "5.631e-299", "1.25e-300", "2.25e-300", "9.75e-299", "0", "0", "0"]
    assert first[9:] == (["9.75e-299", "2,0", "1"] if columns == 200 else [])
    assert "".join(line.split(" ")[0] for line in lines[2:]).startswith(name)


def test_describe_table_fits_80_columns(write):
    name = "model.layers.0.block_sparse_moe.experts.7.down_proj.weight"
    values = np.array([1.2345e-05, 1.2345e-05, 9.8765e-05, 0] * 100_000, "<f4")
    content = safetensors({name: entry("F32", [400_000, 1], 0, values.nbytes)}, values.tobytes())
    output = printed("describe", write("m.safetensors", content), terminal=True)
    assert max(map(len, output.splitlines())) <= 80


def test_describe_table_in_a_pipe_has_whole_names_and_no_trailing_blanks(write):
    name = "model.layers.0.block_sparse_moe.experts.7.down_proj.weight" * 3
    lines = printed("describe", write("m.safetensors", safetensors({name: entry("U8", [1], 0, 1)},
                    b"\3"))).splitlines()  # fmt: skip
    assert lines[3].split()[:3] == [name, "1", "3"]
    assert [line.rstrip() for line in lines] == lines


def test_describe_names_cannot_act_on_the_terminal(write):
    name = "\x1b[2J\nx[red]\u202e"
    content = safetensors({name: entry("U8", [1], 0, 1), "odd": entry(name, [0], 1, 1)}, b"\3")
    output = printed("describe", write("m.safetensors", content), columns=200)
    escaped = r"\x1b[2J\nx[red]\u202e"
    assert output.count(escaped) == 4  # a name, twice, a dtype and a reason
    assert all(line.isprintable() for line in output.splitlines())


def test_describe_patterns_choose_tensors(write):
    found = described(write("m.safetensors", MIXED), "--tensor", "v*", "--tensor", "h")
    assert [tensor["name"] for tensor in found["tensors"]] == ["vector", "h"]


def test_describe_pattern_that_fits_nothing_is_refused(write, capsys):
    assert main(["describe", write("m.safetensors", MIXED), "--tensor", "x*"]) == 2
    expected = "rmsfast: m.safetensors: tensor must be one of 'odd', 'vector', 'h', got 'x*'\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("shape", ["2x2", "-1,2"])
def test_describe_reads_raw_binary(write, shape):
    path = write("x.raw", np.array([[3, 3], [6, 6]], "<i2").tobytes())
    [tensor] = described(path, "--dtype", "int16", "--shape", shape)["tensors"]
    assert (tensor["shape"], tensor["row_rms_min"], tensor["row_rms_max"]) == ([2, 2], 3.0, 6.0)


@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_describe_reads_every_format(tmp_path, make):
    [tensor] = described(str(make(tmp_path, np.array([[3, 3], [6, 6]], "int16"))))["tensors"]
    assert (tensor["rows"], tensor["row_rms_max"]) == (2, 6.0)


def test_describe_csv_has_a_line_for_each_tensor(write):
    printed("describe", write("m.safetensors", MIXED), "--csv", "x.csv")
    lines = list(csv.DictReader(Path("x.csv").read_text().splitlines()))
    assert [line["name"] for line in lines] == ["odd", "vector", "h"]
    assert (lines[0]["error"], lines[0]["rms"]) == ("dtype F4 is not supported", "")
    assert (lines[2]["row_rms_median"], lines[2]["peak_index"]) == ("7.0", "1,0")


def test_describe_threads_option_holds_for_the_command_alone(write):
    before = rmsfast.get_num_threads()
    described(write("x.npy", np.ones((2, 2))), "--threads", "1")
    assert rmsfast.get_num_threads() == before


# rms --------------------------------------------------------------------------------------------


def test_rms_writes_row_rms(write):
    output = printed("rms", write("m.safetensors", BFLOAT16), "-o", "out.npy")
    assert output == "Wrote out.npy: float32 2\n"
    np.testing.assert_array_equal(np.load("out.npy"), np.float32([2.5, 5]), strict=True)


def test_rms_options_choose_tensor_axis_and_format(write):
    codes = np.array([[0x4040, 0x40C0], [0x4040, 0x40C0]], "<u2").tobytes()
    header = {"a": entry("U8", [1], 0, 1), "h": entry("U16", [2, 2], 1, 9)}
    path = write("m.safetensors", safetensors(header, b"\0" + codes))
    options = ("--tensor", "h", "--axis", "0", "--format", "bfloat16")
    printed("rms", path, *options, "-o", "out.npy")
    np.testing.assert_array_equal(np.load("out.npy"), np.float32([3, 6]), strict=True)


def test_rms_existing_output_is_replaced(write):
    write("out.npy", b"old")
    printed("rms", write("x.npy", np.array([[3.0, 3.0]])), "-o", "out.npy")
    assert np.load("out.npy").tolist() == [3.0]
    assert sorted(os.listdir()) == ["out.npy", "x.npy"]


@pytest.mark.parametrize("suffix", [".safetensors", ".h5", ".zarr"])
def test_rms_writes_any_format_under_the_name_of_the_tensor(write, suffix):
    path = write("m.safetensors", MIXED)
    printed("rms", path, "--tensor", "h", "-o", f"y{suffix}")
    [tensor] = open_tensors(f"y{suffix}")
    assert (tensor.name, tensor.read().tolist()) == ("h", [6.0, 8.0])


def test_rms_without_output_prints_a_number_a_line(write):
    assert printed("rms", write("x.npy", np.array([[1.0, 1], [0.1, 0.1]]))) == "1.0\n0.1\n"


def test_rms_json_has_the_shape_of_the_rows(write):
    output = printed("rms", write("x.npy", np.array([[[3.0], [np.nan]]])), "--json")
    expected = {"file": "x.npy", "name": "x", "dtype": "float64", "axis": -1, "shape": [1, 2]}
    assert json.loads(output) == {**expected, "rms": [[3.0, None]]}


@pytest.mark.parametrize(
    ("path", "options", "fault"),
    [
        ("x.npy", ["-o", "x.npy"], "x.npy: output must not be the input file"),
        ("x.npy", ["-o", "link.npy"], "link.npy: output must not be the input file"),
        (
            "x.npy",
            ["-o", "y.csv"],
            "y.csv: suffix must be .npy, .safetensors, .h5, .hdf5 or .zarr, got '.csv'",
        ),
        ("x.npy", ["-o", "absent/y.npy"], "absent/y.npy: no such folder"),
        ("x.npy", ["-o", "dir.npy"], "dir.npy: Is a directory"),
        ("absent.npy", ["-o", "y.npy"], "absent.npy: No such file or directory"),
        (
            "m.safetensors",
            ["-o", "y.npy"],
            "m.safetensors: tensor must be one of 'odd', 'vector', 'h', none was named",
        ),
        (
            "m.safetensors",
            ["--tensor", "odd", "-o", "y.npy"],
            "m.safetensors: tensor 'odd': dtype F4 is not supported",
        ),
    ],
)
def test_rms_refusal_is_one_line_and_writes_nothing(write, capsys, path, options, fault):
    write("x.npy", np.array([3.0]))
    write("m.safetensors", MIXED)
    os.link("x.npy", "link.npy")
    os.mkdir("dir.npy")
    before = {name: Path(name).read_bytes() for name in os.listdir() if name != "dir.npy"}
    assert main(["rms", path, *options]) == 2
    assert capsys.readouterr() == ("", f"rmsfast: {fault}\n")
    assert {name: Path(name).read_bytes() for name in os.listdir() if name != "dir.npy"} == before


# compare ----------------------------------------------------------------------------------------


def compared(*arguments):
    return json.loads(printed("compare", *arguments, "--json"), parse_constant=pytest.fail)


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two files; b is further from what it was than a, c is only in the first."""
    x = {"a": np.float32([[3, 4], [6, 8]]), "b": np.float32([[2, 2]]), "c": np.float32([[1]])}
    y = {"b": np.float16([[2, 1]]), "a": np.float64([[3, 4], [6, 9]])}
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", **x)
    np.savez("y.npz", **y)


@pytest.mark.usefixtures("pair")
def test_compare_pairs_tensors_by_name_and_the_worst_comes_first():
    found = compared("x.npz", "y.npz")
    assert (found["file"], found["file_hat"], found["reference"]) == ("x.npz", "y.npz", "x")
    b, a, c = found["tensors"]
    assert (b["name"], b["relative_rmse"]) == ("b", math.sqrt(0.5) / 2)
    assert (a["name"], a["rmse"], a["equal_rows"]) == ("a", 0.5, 1)
    assert (a["dtype"], a["dtype_hat"]) == ("float32", "float64")
    assert c == {"name": "c", "shape": [1, 1], "dtype": "float32", "error": "is not in the "
                 "second file"}  # fmt: skip


def test_compare_only_tensors_go_together_whatever_their_names(write):
    write("x.npy", np.array([[3.0, 4.0]]))
    write("y.npy", np.array([[0.0, 0.0]]))
    [found] = compared("x.npy", "y.npy")["tensors"]
    assert (found["name"], found["relative_rmse"]) == ("x", 1.0)


def test_compare_reference_chooses_the_denominator(write):
    write("x.npy", np.array([[2.0, 2.0]]))
    write("y.npy", np.array([[4.0, 4.0]]))
    [found] = compared("x.npy", "y.npy", "--reference", "x_hat")["tensors"]
    assert (found["rmse"], found["relative_rmse"]) == (2.0, 0.5)


@pytest.mark.parametrize(
    ("reference", "size"), [("mean", 2.0), ("range", 8.0), ("std", math.sqrt(10)), ("max", 6.0)]
)
def test_compare_reference_of_the_values_of_x(write, reference, size):
    write("x.npy", np.array([[-2.0, 0.0], [4.0, 6.0]]))
    write("y.npy", np.array([[-2.0, 0.0], [4.0, 8.0]]))
    [found] = compared("x.npy", "y.npy", "--reference", reference)["tensors"]
    assert found["relative_rmse"] == pytest.approx(1 / size, rel=1e-15)


def test_compare_json_has_every_field_and_the_worst_rows(write):
    write("x.npy", np.array([[1.0, 1.0], [2.0, 2.0]]))
    write("y.npy", np.array([[1.0, 1.0], [2.0, 0.0]]))
    [found] = compared("x.npy", "y.npy")["tensors"]
    assert (found["max_abs_error"], found["max_error_index"], found["n_equal"]) == (2.0, [1, 1], 3)
    assert (found["bias"], found["sqnr_db"]) == (-0.5, pytest.approx(10 * math.log10(2.5)))
    assert [(row["row"], row["max_error_index"]) for row in found["worst"]] == [(1, 1), (0, 0)]


@pytest.mark.parametrize(("axis", "row"), [(-1, [1, 2]), (0, [2, 3]), (1, [1, 3])])
def test_compare_json_index_of_a_tensor_is_a_place_in_it(write, axis, row):
    x = np.zeros((3, 4, 5), np.float32)
    y = x.copy()
    y[1, 2, 3] = 1
    write("x.npy", x)
    [found] = compared("x.npy", write("y.npy", y), "--axis", str(axis))["tensors"]
    assert found["max_error_index"] == [1, 2, 3]
    assert (found["worst"][0]["row"], found["worst"][0]["max_error_index"]) == (row, 6 - sum(row))


def test_compare_json_index_of_what_has_none_is_null(write):
    write("x.npy", np.zeros((2, 0)))
    [found] = compared("x.npy", "x.npy")["tensors"]
    assert found.get("max_error_index") is None


@pytest.mark.parametrize(
    ("command", "title"), [(["describe", "x.npy"], "x.npy"), (["compare", "x.npy", "y.npy"], "y")]
)
def test_plot_option_writes_a_picture(write, command, title):
    pytest.importorskip("matplotlib")
    write("x.npy", np.array([[1.0, 1.0], [2.0, 2.0]]))
    write("y.npy", np.array([[1.0, 1.0], [2.0, 0.0]]))
    assert title in printed(*command, "--plot", "x.png")
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")


def test_plot_of_many_tensors_counts_them_in_the_title():
    found = [Summary(f"t{i}", (1,), "uint8", -1, row_rms_max=float(i)) for i in range(45)]
    shown, title = _records.drawn(found, "row_rms_max", "x.npz")
    assert [each.name for each in shown] == [f"t{i}" for i in range(5, 45)]
    assert title == "x.npz\n40 of 45 tensors"


def test_plot_option_without_rows_is_refused(write, capsys):
    pytest.importorskip("matplotlib")
    assert main(["describe", write("x.npy", np.zeros((0, 2))), "--plot", "x.png"]) == 2
    assert capsys.readouterr() == ("", "rmsfast: x.npy: plot must have rows to show, got none\n")


@pytest.mark.parametrize(("limit", "code"), [("0.5", 0), ("0.25", 0), ("0.2", 1)])
def test_compare_fail_over_is_exit_code_1(write, capsys, limit, code):
    write("x.npy", np.array([[4.0, 4.0]]))
    write("y.npy", np.array([[5.0, 5.0]]))
    assert main(["compare", "x.npy", "y.npy", "--fail-over", limit]) == code
    told = f"rmsfast: --fail-over: relative RMSE is more than {limit}: 0.25 in 'x'\n"
    assert capsys.readouterr().err == told * code


def test_compare_fail_over_counts_what_is_not_a_number_and_says_so(write, capsys):
    write("x.npy", np.array([[np.nan, 1.0]]))
    assert main(["compare", "x.npy", "x.npy", "--fail-over", "1"]) == 1
    expected = "rmsfast: --fail-over: relative RMSE is NaN in 'x'\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("reference", ["x", "mean", "range"])
def test_compare_fail_over_lets_equal_zeros_pass(write, capsys, reference):
    write("x.npy", np.zeros((2, 2)))
    options = ["--reference", reference, "--fail-over", "0"]
    assert main(["compare", "x.npy", "x.npy", *options]) == 0
    assert capsys.readouterr().err == ""


def test_compare_equal_zeros_are_not_the_worst(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", a=np.zeros(2), b=np.ones(2))
    np.savez("y.npz", a=np.zeros(2), b=np.zeros(2))
    assert [each["name"] for each in compared("x.npz", "y.npz")["tensors"]] == ["b", "a"]


@pytest.mark.usefixtures("pair")
def test_compare_fail_over_counts_tensors_without_a_pair():
    assert main(["compare", "x.npz", "y.npz", "--fail-over", "10"]) == 1
    assert main(["compare", "x.npz", "y.npz", "--fail-over", "10", "--tensor", "[ab]"]) == 0


@pytest.mark.usefixtures("pair")
def test_compare_table_shows_the_worst_first():
    lines = [line.split() for line in printed("compare", "x.npz", "y.npz").splitlines()]
    assert [line[0] for line in lines if line[1:2] and line[1].isdigit()] == ["b", "a"]
    assert lines[3][:5] == ["b", "1", "0.3536", "0.7071", "2"]
    assert lines[-1][:4] == ["not", "compared:", "c", "(float32"]


def test_compare_nothing_alike_is_an_error(write, capsys):
    write("x.npy", np.ones((2, 3)))
    write("y.npy", np.ones((2, 4)))
    assert main(["compare", "x.npy", "y.npy"]) == 2
    expected = "rmsfast: y.npy: tensor 'x': has shape (2, 4) in the second file\n"
    assert capsys.readouterr() == ("", expected)


# Faults -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("x.npy", b"", "file is empty"),
        ("m.safetensors", BFLOAT16[:-1], "truncated: data of 1 tensors takes 16 bytes, 15 follow"),
        ("m.safetensors", b"PK\3\4 archive", "truncated or not safetensors: "),
        ("x.csv", b"1,2", "suffix must be .npy, .npz, .safetensors, .json, "),
    ],
)
def test_describe_bad_file_is_one_line_on_standard_error(
    write, capsys, name, content, fault, options
):
    assert main(["describe", write(name, content), *options]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"rmsfast: {name}: {fault}")
    assert errors.count("\n") == 1


def test_describe_fault_of_long_path_is_not_wrapped(tmp_path, capsys):
    path = tmp_path / ("n" * 200) / "x.npy"
    assert main(["describe", str(path)]) == 2
    assert capsys.readouterr() == ("", f"rmsfast: {path}: No such file or directory\n")


def test_describe_fault_of_path_with_line_break_is_one_line(capsys):
    assert main(["describe", "a\nb.npy"]) == 2
    assert capsys.readouterr().err == "rmsfast: a\\nb.npy: No such file or directory\n"


def test_describe_axis_out_of_range_of_named_tensor_is_one_line(write, capsys):
    assert main(["describe", write("x.npy", np.zeros(3)), "--tensor", "x", "--axis", "1"]) == 2
    assert re.fullmatch(r"rmsfast: x\.npy: tensor 'x': axis must .*\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("values", "options", "fault"),
    [
        (np.zeros(3), ["--axis", "1"], "axis must "),
        (np.array(["a", "b"]), [], "x must have a boolean, "),
    ],
    ids=["axis", "strings"],
)
def test_describe_of_a_file_without_a_tensor_that_can_be_read_is_an_error(
    write, capsys, values, options, fault
):
    assert main(["describe", write("x.npy", values), *options]) == 2
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert errors.startswith(f"rmsfast: x.npy: tensor 'x': {fault}")


def test_describe_typo_in_a_name_gets_eight_names_and_the_nearest(write, capsys):
    header = {f"layer.{i}.weight": entry("U8", [1], i, i + 1) for i in range(20)}
    path = write("m.safetensors", safetensors(header, bytes(20)))
    assert main(["describe", path, "--tensor", "layer.17.wieght"]) == 2
    listed = ", ".join(f"'layer.{i}.weight'" for i in range(8))
    expected = (
        f"rmsfast: m.safetensors: tensor must be one of {listed} and 12 more, "
        "got 'layer.17.wieght', did you mean 'layer.17.weight'\n"
    )
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (
            [],
            r"x\.bin: suffix must be .*, or --dtype and --shape be given for raw binary, got .*",
        ),
        (["--dtype", "int61"], "--dtype must be one of NumPy or a storage format, got 'int61'"),
        (["--shape", "2x2"], "--dtype must be given for raw binary, got None"),
    ],
)
def test_describe_of_raw_binary_names_the_options_it_needs(write, capsys, options, fault):
    assert main(["describe", write("x.bin", bytes(8)), *options]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(f"rmsfast: {fault}\n", errors)


def test_describe_unknown_option_names_it(capsys):
    assert main(["describe", "x.npy", "--jsn"]) == 2
    assert "--jsn" in capsys.readouterr().err


def test_main_bad_file_ends_process_with_2_and_no_traceback(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY")
    code, output, errors = run("describe", "x.npy", cwd=tmp_path)
    assert (code, output) == (2, "")
    assert re.fullmatch("rmsfast: x.npy: not a valid .npy header: EOF.*\n", errors)


COMMANDS = {
    "describe": ["x.npy"],
    "rms": ["x.npy", "-o", "out.npy"],
    "compare": ["y.npy", "x.npy"],
    "normalize": ["x.npy", "-o", "out.npy"],
    "rms-norm": ["y.npy", "--gain", "x.npy", "-o", "out.npy"],
    "dose": ["y.npy", "--direction", "x.npy", "--alpha", "1", "-o", "out.npy"],
    "measure-dose": ["y.npy", "x.npy", "--measured-at", "a", "--clean-source", "b"],
    "windows": ["x.npy", "--window", "2", "-o", "out.npy"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_main_damaged_file_ends_any_process_with_2_and_one_line(write, command):
    write("y.npy", np.ones((2, 2)))
    content = Path("y.npy").read_bytes()
    Path("x.npy").write_bytes(content[:-1])
    code, output, errors = run(command, *COMMANDS[command])
    assert (code, output) == (2, "")
    assert errors.startswith("rmsfast: x.npy: ")
    assert errors.count("\n") == 1
    assert sorted(os.listdir()) == ["x.npy", "y.npy"]


@pytest.mark.parametrize("count", [1, 500], ids=["short", "long"])
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_main_closed_pipe_is_quiet(write, options, count):
    header = {f"tensor{i}": entry("U8", [1], i, i + 1) for i in range(count)}
    path = write("m.safetensors", safetensors(header, bytes(count)))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with process("-m", "rmsfast", "describe", path, *options, **pipes) as running:
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 128 + signal.SIGPIPE


def test_main_full_disk_behind_standard_output_is_one_line(write):
    with open("/dev/full", "w") as full:
        code, _, errors = run("describe", write("m.safetensors", BFLOAT16), stdout=full)
    assert (code, errors) == (2, "rmsfast: standard output: No space left on device\n")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_main_name_beyond_the_encoding_of_the_pipe_is_printed(write, monkeypatch, encoding):
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    content = safetensors({"日": entry("U8", [1], 0, 1)}, b"\3")
    code, output, errors = run("describe", write("m.safetensors", content), encoding="utf-8")
    assert (code, errors) == (0, "")
    assert ("日" if encoding == "utf-8" else r"\u65e5") in output


SHOWN = """
import time
from rmsfast.cli import _output
_output.PATIENCE = 0.0
with _output.progress("describe x.npy") as told:
    for k in range(5):
        time.sleep(0.02)
        if told:
            told(k * 10**6, 4 * 10**6)
print("done")
"""


def shown(monkeypatch, terminal):
    """What progress leaves on a terminal of this name."""
    master, slave = pty.openpty()
    monkeypatch.setenv("TERM", terminal)
    running = process("-c", SHOWN, stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    found = b""
    with contextlib.suppress(OSError):  # at the end, on Linux
        while part := os.read(master, 1 << 16):
            found += part
    os.close(master)
    output, _ = running.communicate(timeout=120)
    assert (running.returncode, output) == (0, "done\n")
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", found.decode())


@pytest.mark.parametrize("columns", [60, 80])
def test_progress_on_a_terminal_shows_share_rate_and_time_left(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    found = shown(monkeypatch, "xterm")
    assert re.search(r"describe x\.npy .*100%.* [0-9.]+ MB/s.* 0:00:00", found)


def test_csv_that_does_not_end_so_is_refused(write, capsys):
    assert main(["describe", write("x.npy", np.ones(2)), "--csv", "-"]) == 2
    assert capsys.readouterr().err == "rmsfast: -: a table must end in .csv, got ''\n"


def test_progress_on_a_dumb_terminal_is_nothing(monkeypatch):
    assert shown(monkeypatch, "dumb") == ""


def test_progress_in_a_pipe_is_nothing():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with process("-c", SHOWN, **pipes) as running:
        assert running.communicate(timeout=120) == ("done\n", "")


# The command stops while the output is being written, after the temporary file exists. What a
# shell runs in the background, as these tests may be, would ignore SIGINT.
STOPPED = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from rmsfast import __main__
from rmsfast._formats import CODES
from rmsfast.files import Summary, open_tensors
def fsync(_):
    print(len(os.listdir()), flush=True)
    time.sleep(60)
os.fsync = fsync
sys.argv[1:] = ["rms", "x.npy", "-o", "out.npy"]
__main__.main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_main_stopped_while_writing_leaves_old_output(write, number, code):
    write("x.npy", np.array([3.0]))
    write("out.npy", b"old")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with process("-c", STOPPED, **pipes) as running:
        assert running.stdout.readline() == "3\n"
        running.send_signal(number)
        _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors.strip()) == (code, "")
    assert Path("out.npy").read_bytes() == b"old"
    assert sorted(os.listdir()) == ["out.npy", "x.npy"]


# The rest ---------------------------------------------------------------------------------------


def test_main_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr() == (f"rmsfast {rmsfast.__version__}\n", "")


def test_main_without_a_command_prints_help(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("Usage: rmsfast")


@pytest.mark.parametrize("name", cli.commands)
def test_help_of_a_command_ends_in_an_example_that_parses(name):
    *_, example = " ".join(printed(name, "--help").split()).partition("Example: rmsfast ")
    words = shlex.split(example)
    assert words[0] == name
    cli.commands[name].make_context(name, words[1:], resilient_parsing=False)


def test_help_fits_80_columns():
    lines = [line for name in cli.commands for line in printed(name, "--help").splitlines()]
    assert max(map(len, [*lines, *printed("--help").splitlines()])) <= 80
    assert not any(line.endswith("...") for line in printed("--help").splitlines()[1:])


def test_main_wrong_usage_is_one_line(capsys):
    assert main(["describe"]) == 2
    expected = "rmsfast: Missing argument 'FILE' (see rmsfast describe --help)\n"
    assert capsys.readouterr() == ("", expected)


def test_main_completes_names_of_tensors(write):
    path = write("m.safetensors", MIXED)
    command = cli.commands["describe"]
    [option] = (option for option in command.params if option.name == "tensor")
    context = command.make_context("describe", [path])
    assert [item.value for item in option.shell_complete(context, "v")] == ["vector"]


def test_main_completes_commands(monkeypatch):
    environment = {
        "_RMSFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": "rmsfast no",
        "COMP_CWORD": "1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run() == (0, "plain,normalize\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["describe", "--help"]])
def test_main_that_tells_of_itself_loads_no_heavy_library(tmp_path, arguments):
    script = (
        f"import sys; from rmsfast.cli import main; main({arguments});"
        "heavy = {'numpy', 'numba', 'rich', 'matplotlib', 'ml_dtypes', 'torch', 'dask'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    with process("-c", script, stdout=subprocess.PIPE, cwd=tmp_path) as running:
        output, _ = running.communicate(timeout=60)
    assert "rmsfast" in output
    assert output.endswith("\n[]\n")


@pytest.mark.parametrize("library", ["click", "rich"])
def test_main_without_library_names_remedy(monkeypatch, capsys, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SystemExit) as caught:
        __main__.main()
    assert caught.value.code == 2
    remedy = 'rmsfast: needs click and rich, try: pip install "rmsfast[cli]"\n'
    assert capsys.readouterr() == ("", remedy)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    place = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tempfile.tempdir", str(place))
        output = printed("demo", columns=200)
    [folder] = place.iterdir()
    return output, folder


def test_demo_prints_each_command_before_what_it_prints(demo, monkeypatch):
    output, folder = demo
    monkeypatch.chdir(folder)
    first, *blocks = output.partition("\nTry next")[0].split("\n$ rmsfast ")
    assert first.endswith(f"\n$ cd {folder}\n")
    found = [block.split("\n", 1) for block in blocks]
    assert {line.split()[0] for line, _ in found} == {
        "describe", "rms", "compare", "normalize", "rms-norm", "dose", "windows",
    }  # fmt: skip
    for line, text in found[:2]:
        assert text == printed(*line.split(), columns=200)


def test_demo_ends_with_commands_that_run(demo, monkeypatch, capsys):
    output, folder = demo
    monkeypatch.chdir(folder)
    _, _, last = output.partition("\nTry next, in that folder:\n")
    lines = [line for line in last.splitlines() if "|" not in line and line.islower()]
    assert len(lines) == 2
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    assert {"errors.csv", "errors.png"} <= set(os.listdir(folder))


def test_demo_activations_grow_and_have_one_zero_row(demo):
    _, folder = demo
    tensors = described(str(folder / "activations.safetensors"))["tensors"]
    sizes = [tensor["rms"] for tensor in tensors]
    assert sizes == sorted(sizes)
    assert {(tensor["dtype"], *tensor["shape"]) for tensor in tensors} == {("bfloat16", 256, 512)}
    assert [tensor["zero_rows"] for tensor in tensors] == [0, 0, 0, 1, 0, 0]


def test_demo_activations_have_two_massive_coordinates(demo):
    _, folder = demo
    options = ("--tensor", "resid.5", "--axis", "0")
    printed("rms", str(folder / "activations.safetensors"), *options, "-o", str(folder / "c.npy"))
    sizes = np.load(folder / "c.npy")
    assert np.count_nonzero(sizes > 10 * np.median(sizes)) == 2


def test_demo_activations_are_the_same_each_time(demo, tmp_path, monkeypatch):
    _, folder = demo
    (tmp_path / "again").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "again"))
    printed("demo")
    [again] = (tmp_path / "again").iterdir()
    name = "activations.safetensors"
    assert (again / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (1.0, 0x3F80),
        (1 + 2**-8, 0x3F80),  # a tie, to even
        (1 + 2**-8 + 2**-20, 0x3F81),
        (1 + 3 * 2**-8, 0x3F82),  # a tie, to even
        (-1 - 3 * 2**-8, 0xBF82),
        (2 - 2**-20, 0x4000),  # into the next power of two
        (0.0, 0),
        (-0.0, 0x8000),
        (2.0**-133, 1),  # the smallest
        (2.0**-134, 0),  # a tie, to even
    ],
)
def test_bfloat16_codes_are_rounded_to_nearest_even(value, code):
    from rmsfast.cli._demo import bfloat16_codes

    assert bfloat16_codes(np.float32([value])).tolist() == [code]
