"""The command `windows`: lengths and rates, channels, and what it refuses."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from rmsfast.files import open_tensors, save_npy

testing = pytest.importorskip("click.testing")
pytest.importorskip("rich")

from rmsfast.cli import cli, main  # noqa: E402 - needs click


@pytest.fixture(autouse=True)
def recording(tmp_path, monkeypatch):
    """8 samples of 3 channels: one dead, one that grows."""
    monkeypatch.chdir(tmp_path)
    values = np.stack([np.full(8, 3), np.zeros(8), np.repeat([1, 2, 4, 8], 2)], axis=-1)
    values.astype("<i2").tofile("x.bin")
    save_npy("x.npy", values.astype("<i2"))


RAW = ("x.bin", "--dtype", "int16", "--shape", "-1x3")


def printed(*arguments):
    result = testing.CliRunner().invoke(cli, ["windows", *arguments])
    assert (result.exception, result.exit_code, result.stderr) == (None, 0, "")
    return result.stdout


def refused(capsys, *arguments):
    assert main(["windows", *arguments]) == 2
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    return errors


@pytest.mark.parametrize(
    ("options", "window", "hop", "start"),
    [
        (["--window", "2"], 2, 2, [0, 2, 4, 6]),
        (["--window", "4", "--hop", "2"], 4, 2, [0, 2, 4]),
        (["--window", "2s", "--rate", "2"], 4, 4, [0.0, 2.0]),
        (["--window", "1000ms", "--hop", "1.5s", "--rate", "2"], 2, 3, [0.0, 1.5, 3.0]),
        (["--window", "4", "--hop", "4", "--edge", "centered"], 4, 4, [-2, 2]),
    ],
)
def test_windows_lengths_are_samples_or_times(options, window, hop, start):
    found = json.loads(printed(*RAW, *options, "--json"))
    assert (found["window"], found["hop"], found["start"]) == (window, hop, start)
    assert found["unit"] == ("seconds" if "--rate" in options else "samples")
    assert np.shape(found["rms"]) == (len(start), 3)


def test_windows_json_holds_windows_by_channels():
    found = json.loads(printed("x.npy", "--window", "2", "--json"))
    assert found["rms"] == [[3, 0, 1], [3, 0, 2], [3, 0, 4], [3, 0, 8]]


def test_windows_axis_option_is_the_axis_of_time():
    save_npy("t.npy", np.array([[3, 3, 4, 4], [0, 0, 0, 0]], np.int16))
    found = json.loads(printed("t.npy", "--axis", "1", "--window", "2", "--json"))
    assert found["rms"] == [[3, 4], [0, 0]]


def test_windows_table_has_dead_channels_first_and_noisy_ones_last():
    title, _, _, *lines = printed("x.npy", "--window", "2").splitlines()
    assert title == "x.npy: x, 4 windows of 2, hop 2, 3 channels"
    assert [line.split() for line in lines] == [
        ["1", "0", "0", "0", "4", "0"],
        ["0", "3", "3", "3", "0", "0"],
        ["2", "1", "3", "8", "0", "0"],
    ]


def test_windows_table_of_many_channels_shows_both_ends():
    save_npy("m.npy", np.arange(1, 41, dtype=np.int16)[np.newaxis].repeat(2, 0))
    title, *_, last = printed("m.npy", "--window", "2").splitlines()
    assert title == "m.npy: m, 1 window of 2, hop 2, 40 channels"
    assert last == "and 24 channels between the first 8 and the last 8"
    lines = printed("m.npy", "--window", "2").splitlines()[3:-1]
    assert [int(line.split()[0]) for line in lines] == [*range(8), *range(32, 40)]


def test_windows_writes_all_windows_and_a_line_for_each():
    printed("x.npy", "--window", "1s", "--rate", "2", "-o", "y.safetensors", "--csv", "y.csv")
    [tensor] = open_tensors("y.safetensors")
    assert (tensor.name, tensor.shape) == ("x", (4, 3))
    titles, *lines = csv.reader(Path("y.csv").read_text().splitlines())
    assert titles == ["start, seconds", "0", "1", "2"]
    assert lines[1] == ["1.0", "3.0", "0.0", "2.0"]


def test_windows_plot_is_written():
    pytest.importorskip("matplotlib")
    printed("x.npy", "--window", "2", "--plot", "map.png")
    assert Path("map.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--window", "3s"], "windows: --window 3s needs a --rate above 0, got None"),
        (["--window", "3s", "--rate", "-1"], "windows: --window 3s needs a --rate above 0, got -1"),
        (["--window", "0.5"], "windows: --window must be at least one whole sample, got '0.5'"),
        (["--window", "1ms", "--rate", "1"], "windows: --window must be at least one whole"),
        (["--window", "0"], "windows: --window must be samples, or a time as 3s, got '0'"),
        (["--window", "3 days"], "windows: --window must be samples, or a time as 3s, got '3 day"),
        (["--window", "2", "--hop", "x"], "windows: --hop must be samples, or a time as 3s, got"),
        (["--window", "9"], "x.npy: tensor 'x': window must be at most the length of the axis, 8"),
        (["--window", "2", "-o", "y.csv"], "y.csv: suffix must be .npy, "),
        (["--window", "2", "--plot", "y.jpg"], "y.jpg: a plot must end in .png, got '.jpg'"),
    ],
)
def test_windows_refusal_is_one_line(capsys, options, fault):
    assert refused(capsys, "x.npy", *options).startswith(f"rmsfast: {fault}")
