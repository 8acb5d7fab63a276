"""Commands that write files: what they write, when they refuse, and what they leave behind."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from test_files import entry, safetensors
from test_files_formats import FORMATS
from test_files_writing import write as write_as

import rmsfast
from rmsfast.files import open_tensors, save_npy

pytest.importorskip("h5py")
testing = pytest.importorskip("click.testing")
pytest.importorskip("rich")

from rmsfast.cli import cli, main  # noqa: E402 - needs click

SUFFIXES = (".npy", ".safetensors", ".h5", ".hdf5", ".zarr")
ROWS = np.array([[3.0, 4.0, 0.0, 0.0], [6.0, 8.0, 0.0, 0.0]])  # of RMS 2.5 and 5


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_npy("x.npy", ROWS)
    save_npy("u.npy", np.array([1.0, -1.0, 1.0, 1.0]))
    return tmp_path


def printed(*arguments):
    """Standard output of a command that succeeds and prints no error."""
    result = testing.CliRunner().invoke(cli, arguments)
    assert (result.exception, result.exit_code, result.stderr) == (None, 0, "")
    return result.stdout


def only(path):
    [tensor] = open_tensors(path)
    return np.array(tensor.read())


def refused(capsys, *arguments):
    """The one line of a command that fails, and leaves the folder as it was."""
    before = sorted(Path().rglob("*"))
    assert main(arguments) == 2
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert sorted(Path().rglob("*")) == before
    return errors


# normalize --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_normalize_writes_any_format(suffix):
    output = printed("normalize", "x.npy", "-o", f"y{suffix}")
    assert output == f"Wrote y{suffix}: float64 2x4\n"
    assert only(f"y{suffix}").tolist() == [[1.2, 1.6, 0, 0]] * 2


@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_normalize_reads_any_format(tmp_path, make):
    path = make(tmp_path, np.array([[3, -3], [2, 2]], "int16"))
    printed("normalize", str(path), "-o", "y.npy")
    assert only("y.npy").tolist() == [[1, -1], [1, 1]]


def test_normalize_target_is_the_rms_of_every_row():
    printed("normalize", "x.npy", "-o", "y.npy", "--target", "5")
    assert only("y.npy").tolist() == [[6, 8, 0, 0]] * 2


@pytest.mark.parametrize(("zero", "row"), [("zero", [0, 0]), ("nan", [np.nan, np.nan])])
def test_normalize_zero_option_writes_zero_rows(zero, row):
    save_npy("z.npy", np.array([[0.0, 0.0], [1.0, 1.0]]))
    printed("normalize", "z.npy", "-o", "y.npy", "--zero", zero)
    np.testing.assert_array_equal(only("y.npy"), [row, [1, 1]])


def test_normalize_zero_row_is_refused_and_nothing_written(capsys):
    save_npy("z.npy", np.zeros((2, 2)))
    errors = refused(capsys, "normalize", "z.npy", "-o", "y.npy")
    assert errors.startswith("rmsfast: z.npy: tensor 'z': x must be nonzero ")
    expected = "nonzero without --zero zero or --zero nan, got a zero row at index (0,)\n"
    assert errors.endswith(expected)


def test_normalize_refusal_leaves_existing_output(capsys):
    save_npy("z.npy", np.zeros((2, 2)))
    before = Path("x.npy").read_bytes()
    refused(capsys, "normalize", "z.npy", "-o", "x.npy")
    assert Path("x.npy").read_bytes() == before


def test_normalize_may_replace_its_input():
    printed("normalize", "x.npy", "-o", "x.npy")
    assert only("x.npy").tolist() == [[1.2, 1.6, 0, 0]] * 2


def test_normalize_patterns_choose_tensors():
    header = {f"{name}.{i}": entry("F32", [1], 4 * k, 4 * k + 4)
              for k, (name, i) in enumerate([("a", 0), ("b", 0), ("a", 1)])}  # fmt: skip
    Path("m.safetensors").write_bytes(safetensors(header, np.float32([2, 3, 4]).tobytes()))
    printed("normalize", "m.safetensors", "--tensor", "a.*", "-o", "y.safetensors")
    assert [each.name for each in open_tensors("y.safetensors")] == ["a.0", "a.1"]


def test_normalize_reads_raw_binary():
    ROWS.astype("<i2").tofile("x.raw")
    printed("normalize", "x.raw", "--dtype", "int16", "--shape", "-1x4", "-o", "y.npy")
    assert only("y.npy").tolist() == [[1.2, 1.6, 0, 0]] * 2


@pytest.mark.parametrize(
    ("rows", "text"),
    [([[np.nan, 1], [0, 0]], "1 row holds"), ([[np.nan, 1], [1, -np.inf], [2, 2]], "2 rows hold")],
)
@pytest.mark.parametrize("command", ["normalize --zero nan", "rms-norm"])
def test_command_that_scales_tells_of_rows_that_are_not_finite(capsys, command, rows, text):
    save_npy("z.npy", np.array(rows, float))
    assert main([*command.split(), "z.npy", "-o", "y.npy"]) == 0
    expected = f"rmsfast: z.npy: {text} NaN or Inf, and NaN is written there\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["x.npy", "-o", "y.csv"], "y.csv: suffix must be .npy, "),
        (["x.npy", "-o", "absent/y.npy"], "absent/y.npy: no such folder"),
        (["x.npy"], "Missing option '-o' / '--output' (see rmsfast normalize --help)"),
        (["x.npy", "-o", "y.npy", "--tensor", "y*"], "x.npy: tensor must be one of 'x', got 'y*'"),
        (["x.npy", "-o", "y.npy", "--target", "inf"], "normalize: target must be finite, got inf"),
        (["x.npy", "-o", "y.npy", "--shape", "2x"], "Invalid value for '--shape': must be like "),
        (["x.npy", "-o", "y.npy", "--threads", "0"], "Invalid value for '--threads': "),
    ],
)
def test_normalize_refusal_is_one_line(capsys, arguments, fault):
    assert refused(capsys, "normalize", *arguments).startswith(f"rmsfast: {fault}")


# rms-norm ---------------------------------------------------------------------------------------


def test_rms_norm_options_are_those_of_the_function():
    gain = np.array([1.0, 2.0, 3.0, 4.0])
    save_npy("g.npy", gain)
    options = ("--gain", "g.npy", "--gain-offset", "1", "--eps", "0.25", "--eps-mode", "outside")
    printed("rms-norm", "x.npy", *options, "--cast", "before_gain", "-o", "y.npy")
    expected = rmsfast.rms_norm(
        ROWS, gain, gain_offset=1.0, eps=0.25, eps_mode="outside", cast="before_gain"
    )
    np.testing.assert_array_equal(only("y.npy"), expected, strict=True)


def test_rms_norm_without_gain_keeps_the_format():
    write_as(Path("x.safetensors"), ROWS.astype("float16"))
    printed("rms-norm", "x.safetensors", "--eps", "0", "-o", "y.safetensors")
    np.testing.assert_array_equal(
        only("y.safetensors"), np.float16([[1.2, 1.6, 0, 0]] * 2), strict=True
    )


def test_rms_norm_gain_of_other_length_is_one_line(capsys):
    save_npy("g.npy", np.ones(3))
    errors = refused(capsys, "rms-norm", "x.npy", "--gain", "g.npy", "-o", "y.npy")
    assert errors.startswith("rmsfast: x.npy: tensor 'x': gain must be a number or have shape (4,)")


# dose -------------------------------------------------------------------------------------------


def test_dose_writes_the_edited_rows_and_their_report():
    save_npy("h.npy", np.float32([[2, -2, 2, 2]]))
    options = ("--direction", "u.npy", "--alpha", "0.03", "--storage", "bfloat16")
    output = printed("dose", "h.npy", *options, "-o", "y.npy", "--csv", "y.csv")
    [tensor] = open_tensors("y.npy")
    assert (tensor.dtype, rmsfast.rms(tensor.read(), format="bfloat16")) == ("bfloat16", 2.0625)
    assert output.splitlines()[-1] == "Wrote y.npy: bfloat16 1x4"
    [row] = csv.DictReader(Path("y.csv").read_text().splitlines())
    assert (row["tensor"], row["row"], row["alpha_requested"]) == ("h", "0", "0.03")
    assert (row["rms_requested"], row["rms_realised"]) == ("0.06", "0.0625")


def test_dose_without_output_predicts_every_dose():
    save_npy("h.npy", np.float32([[2, -2, 2, 2]]))
    options = ("--direction", "u.npy", "--storage", "bfloat16", "--alpha", "0.03", "--alpha", "-1")
    found = json.loads(printed("dose", "h.npy", *options, "--json"), parse_constant=pytest.fail)
    [tensor] = found["tensors"]
    assert [dose["rms_requested"]["p50"] for dose in tensor["doses"]] == [0.06, 2.0]
    assert [dose["rms_realised"]["p50"] for dose in tensor["doses"]] == [0.0625, 2.0]
    assert tensor["header"]["formats"]["storage"] == "bfloat16"
    floor = rmsfast.dose_floor([[2, -2, 2, 2.0]])[0]
    assert tensor["floor"] == {"min": floor, "p50": floor, "max": floor}
    assert sorted(os.listdir()) == ["h.npy", "u.npy", "x.npy"]


def test_dose_with_a_seed_predicts_what_it_writes():
    save_npy("h.npy", np.random.default_rng(0).normal(size=(3, 4)).astype("f4"))
    options = ("--direction", "u.npy", "--storage", "bfloat16", "--alpha", "0.03")
    options += ("--rounding", "stochastic", "--seed", "7")
    printed("dose", "h.npy", *options, "--csv", "predicted.csv")
    printed("dose", "h.npy", *options, "-o", "y.npy", "--csv", "written.csv")
    assert Path("predicted.csv").read_text() == Path("written.csv").read_text()


def test_dose_floor_of_an_even_number_of_rows_is_the_median_as_in_the_plot():
    rows = np.float32([[2, -2, 2, 2], [3, 5, -7, 11]])
    save_npy("h.npy", rows)
    options = ("--direction", "u.npy", "--storage", "bfloat16", "--alpha", "1", "--json")
    [tensor] = json.loads(printed("dose", "h.npy", *options))["tensors"]
    low, high = np.sort(rmsfast.dose_floor(rows))
    assert tensor["floor"] == {"min": low, "p50": (low + high) / 2, "max": high}
    assert low < high


def test_dose_zero_rows_are_refused_with_the_option_that_keeps_them(capsys):
    save_npy("h.npy", np.zeros((1, 4), np.float32))
    errors = refused(capsys, "dose", "h.npy", "--direction", "u.npy")
    assert "nonzero without --zero keep, got " in errors


def test_dose_several_tensors_have_a_line_each():
    header = {name: entry("F32", [2, 2], 16 * k, 16 * k + 16) for k, name in enumerate("ab")}
    content = np.float32([1, 1, 1, 1, 2, 2, 2, 2]).tobytes()
    Path("m.safetensors").write_bytes(safetensors(header, content))
    save_npy("d.npy", np.ones(2))
    options = ("--direction", "d.npy", "--alpha", "0.5", "-o", "y.safetensors")
    lines = printed("dose", "m.safetensors", *options).splitlines()
    assert [line.split()[:4] for line in lines if line[:2] in ("a ", "b ")] == [
        ["a", "0.5", "0.5", "0.5"],
        ["b", "0.5", "1", "1"],
    ]


def write_checkpoint():
    """One tensor that a dose can be given, and two that it cannot."""
    header = {
        "h": entry("F32", [1, 2], 0, 8),
        "step": entry("I64", [], 8, 16),
        "z": entry("C64", [1], 16, 24),
    }
    content = np.float32([1, 1]).tobytes() + np.int64(7).tobytes() + np.complex64([2j]).tobytes()
    Path("m.safetensors").write_bytes(safetensors(header, content))
    save_npy("d.npy", np.ones(2))


NO_DOSE = [
    "no dose: step (int64 scalar): must have a real floating dtype, got int64",
    "no dose: z (complex64 1): must have a real floating dtype, got complex64",
]


@pytest.mark.parametrize("command", ["predict", "apply", "measure"])
def test_dose_lists_tensors_that_are_not_floating_with_the_reason(command):
    write_checkpoint()
    told = ("--measured-at", "m", "--clean-source", "m")
    arguments = {
        "predict": ("dose", "m.safetensors", "--direction", "d.npy"),
        "apply": ("dose", "m.safetensors", "--direction", "d.npy", "--alpha", "1", "-o", "m.h5"),
        "measure": ("measure-dose", "m.safetensors", "m.safetensors", *told),
    }[command]
    lines = printed(*arguments).splitlines()
    assert [line for line in lines if line.startswith("no dose")] == NO_DOSE
    names = [each["name"] for each in json.loads(printed(*arguments, "--json"))["tensors"]]
    assert names == ["h", "step", "z"]


def test_dose_writes_tensors_that_are_not_floating_as_they_are():
    write_checkpoint()
    printed("dose", "m.safetensors", "--direction", "d.npy", "--alpha", "1", "-o", "m.safetensors")
    found = {each.name: each.read().tolist() for each in open_tensors("m.safetensors")}
    assert found == {"h": [[2, 2]], "step": 7, "z": [2j]}


def test_dose_of_no_tensors_is_refused(capsys):
    Path("m.safetensors").write_bytes(safetensors({}, b""))
    errors = refused(capsys, "dose", "m.safetensors", "--direction", "u.npy")
    assert errors == "rmsfast: m.safetensors: holds no tensors\n"


def test_dose_of_a_named_tensor_that_is_not_floating_is_refused(capsys):
    write_checkpoint()
    errors = refused(capsys, "dose", "m.safetensors", "--direction", "d.npy", "--tensor", "step")
    fault = "must have a real floating dtype, got int64"
    assert errors == f"rmsfast: m.safetensors: tensor 'step': {fault}\n"


def test_dose_keeps_zero_rows_if_told():
    save_npy("h.npy", np.float32([[0, 0], [1, 1]]))
    save_npy("d.npy", np.ones(2))
    options = ("--direction", "d.npy", "--alpha", "1", "--zero", "keep")
    printed("dose", "h.npy", *options, "-o", "y.npy")
    assert only("y.npy").tolist() == [[0, 0], [2, 2]]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["-o", "y.npy"], "dose: --alpha must be given once with --output, got 0"),
        (["--rounding", "stochastic"], "dose: --seed must be given with --rounding "),
        (["--direction", "x.npy"], "predict_dose: direction must have one axis, got shape (2, 4)"),
        (["--direction", "absent.npy"], "absent.npy: No such file or directory"),
    ],
)
def test_dose_refusal_is_one_line(capsys, options, fault):
    options = [*options, *(["--direction", "u.npy"] if "--direction" not in options else [])]
    errors = refused(capsys, "dose", "x.npy", "--storage", "float32", *options)
    assert errors.startswith(f"rmsfast: {fault}")


def test_measure_dose_reports_what_rows_received():
    save_npy("a.npy", np.float32([[2, -2, 2, 2]]))
    save_npy("b.npy", np.float32([[2.5, -2.5, 2.5, 2.5]]))
    told = ("--measured-at", "in b.npy", "--clean-source", "a.npy")
    options = ("--direction", "u.npy", "--alpha", "0.5")
    found = json.loads(printed("measure-dose", "a.npy", "b.npy", *options, *told, "--json"))
    [tensor] = found["tensors"]
    assert tensor["header"]["measured_at"] == "in b.npy"
    assert tensor["doses"][0]["alpha_projected"]["p50"] == 0.25
    assert tensor["doses"][0]["relative_rmse_realised"]["p50"] == 0.5


def test_measure_dose_without_a_direction_has_columns_of_what_is_known():
    save_npy("a.npy", np.float32([[2, 0]]))
    save_npy("b.npy", np.float32([[2, 2]]))
    told = ("--measured-at", "in b.npy", "--clean-source", "a.npy")
    lines = printed("measure-dose", "a.npy", "b.npy", *told).splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["RMS", "angle", "RMS"],
        ["tensor", "realised", "degrees", "clean"],
        ["a", "1.414", "45", "1.414"],
    ]


def test_measure_dose_of_a_named_tensor_takes_the_only_one_of_the_other_file():
    header = {name: entry("F32", [1, 2], 8 * k, 8 * k + 8) for k, name in enumerate("ab")}
    Path("m.safetensors").write_bytes(safetensors(header, np.float32([1, 1, 2, 2]).tobytes()))
    save_npy("after.npy", np.float32([[2.5, 2.5]]))
    told = ("--measured-at", "after.npy", "--clean-source", "m")
    arguments = ("m.safetensors", "after.npy", "--tensor", "b", *told, "--json")
    [tensor] = json.loads(printed("measure-dose", *arguments))["tensors"]
    assert (tensor["name"], tensor["doses"][0]["rms_realised"]["max"]) == ("b", 0.5)


def test_measure_dose_needs_to_be_told_where_states_come_from(capsys):
    errors = refused(capsys, "measure-dose", "x.npy", "x.npy", "--direction", "u.npy")
    assert errors.startswith("rmsfast: Missing option '--measured-at'")
