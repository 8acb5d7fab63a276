"""Every command on every format, good and damaged, in a pipe and on a terminal."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_files_formats import FORMATS, as_npy

import rmsfast

pytest.importorskip("click")
pytest.importorskip("rich")

ROWS = np.float32([[3, 4, 0, 0], [6, 8, 0, 0]])  # of RMS 2.5 and 5


def as_raw(folder, x):
    x.tofile(folder / "x.bin")
    return folder / "x.bin"


MAKERS = {**FORMATS, "raw": as_raw}
TOLD = ("--measured-at", "after", "--clean-source", "before")
# For each command the arguments around a FILE of ROWS, of which DOUBLE holds twice as much; what
# then stands in the table, and in the JSON or the file that is written.
COMMANDS = {
    "describe": (["FILE"], "largest row RMS: 5 in row 1: coordinate 1"),
    "rms": (["FILE"], "2.5"),
    "compare": (["DOUBLE", "FILE"], "relative RMSE over the RMS of x"),
    "normalize": (["FILE", "-o", "out.npy"], "Wrote out.npy: float32 2x4"),
    "rms-norm": (["FILE", "--eps", "0", "-o", "out.npy"], "Wrote out.npy: float32 2x4"),
    "dose": (["FILE", "--direction", "u.npy", "--alpha", "1", "-o", "out.npy"], "Wrote out.npy"),
    "measure-dose": (["DOUBLE", "FILE", *TOLD], "measured at: after"),
    "windows": (["FILE", "--window", "2"], "window of 2, hop 2, 4 channels"),
}
FOUND = {
    "describe": lambda found: found["tensors"][0]["row_rms_max"] == 5,
    "rms": lambda found: found["rms"] == [2.5, 5],
    "compare": lambda found: found["tensors"][0]["relative_rmse"] == 0.5,
    "measure-dose": lambda found: found["tensors"][0]["doses"][0]["rms_realised"]["max"] == 5,
    "windows": lambda found: np.allclose(found["rms"], [[22.5**0.5, 40**0.5, 0, 0]]),
}
WRITTEN = {
    "normalize": ROWS / np.float32([[2.5], [5]]),
    "rms-norm": ROWS / np.float32([[2.5], [5]]),
    "dose": ROWS + np.float32([[2.5], [5]]),
}

# Commands one after the other, each a line of JSON, for starting Python takes most of their time.
SHELL = """
import contextlib, io, json, os, sys
from rmsfast.cli import main
for line in sys.stdin:
    folder, arguments = json.loads(line)
    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        with contextlib.redirect_stderr(io.StringIO()) as err:
            code = main(arguments)
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


def process(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(Path(rmsfast.__file__).parents[1])}
    environment |= {"COLUMNS": "80", "TERM": "xterm"}
    return subprocess.Popen([sys.executable, *arguments], env=environment, **options)


@pytest.fixture(scope="module")
def shell():
    """What calls a command in a process that goes on, with its exit code and what it printed."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with process("-c", SHELL, text=True, **pipes) as running:

        def call(folder, arguments):
            running.stdin.write(json.dumps([str(folder), arguments]) + "\n")
            running.stdin.flush()
            return json.loads(running.stdout.readline())

        yield call
        running.stdin.close()


def arguments_of(folder, command, make):
    """The arguments of a command on files that it finds in this folder."""
    (folder / "in").mkdir()
    np.save(folder / "u.npy", np.ones(4))
    raw = make is as_raw  # so are both then
    paths = {
        "FILE": make(folder / "in", ROWS),
        "DOUBLE": (make if raw else as_npy)(folder, 2 * ROWS),
    }
    given = [os.path.relpath(paths[w], folder) if w in paths else w for w in COMMANDS[command][0]]
    return [command, *given, *(["--dtype", "float32", "--shape", "-1x4"] if raw else [])]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("command", COMMANDS)
def test_command_reads_every_format(shell, tmp_path, command, make):
    arguments = arguments_of(tmp_path, command, make)
    code, output, errors = shell(tmp_path, arguments + ["--json"] * (command in FOUND))
    assert (code, errors) == (0, "")
    if command in FOUND:
        assert FOUND[command](json.loads(output))
    else:
        np.testing.assert_allclose(np.load(tmp_path / "out.npy"), WRITTEN[command], rtol=1e-7)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("command", COMMANDS)
def test_command_refuses_every_damaged_format_in_one_line(shell, tmp_path, command, make):
    arguments = arguments_of(tmp_path, command, make)
    largest = max((tmp_path / "in").rglob("*"), key=lambda p: p.is_file() and p.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    before = sorted(tmp_path.rglob("*"))
    code, output, errors = shell(tmp_path, arguments)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("rmsfast: in/")
    assert sorted(tmp_path.rglob("*")) == before


def on_a_terminal(*arguments, cwd):
    """Exit code of a real process and all that a terminal shows of it, without colours."""
    master, slave = pty.openpty()
    with process(*arguments, cwd=cwd, stdin=slave, stdout=slave, stderr=slave) as running:
        os.close(slave)
        found = b""
        with contextlib.suppress(OSError):  # at the end, on Linux
            while part := os.read(master, 1 << 16):
                found += part
        os.close(master)
    return running.returncode, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", found.decode())


def in_a_pipe(*arguments, cwd):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with process(*arguments, cwd=cwd, text=True, **pipes) as running:
        output, errors = running.communicate(timeout=120)
    assert errors == ""
    return running.returncode, output


# Each format is read by a real process in one of the two ways at least.
PAIRS = [
    (run, command, list(MAKERS.values())[(2 * k + (run is in_a_pipe)) % len(MAKERS)])
    for run in (on_a_terminal, in_a_pipe)
    for k, command in enumerate(COMMANDS)
]


@pytest.mark.parametrize(
    ("run", "command", "make"),
    PAIRS,
    ids=lambda value: getattr(value, "__name__", value),
)
def test_command_prints_its_table_in_a_pipe_and_on_a_terminal(tmp_path, run, command, make):
    arguments = arguments_of(tmp_path, command, make)
    code, output = run("-m", "rmsfast", *arguments, cwd=tmp_path)
    assert code == 0
    assert COMMANDS[command][1] in output
    assert "Traceback" not in output


def test_information_is_the_same_in_a_pipe_and_on_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # nobody adds to it meanwhile
    _, shown = on_a_terminal("-m", "rmsfast", "info", cwd=tmp_path)
    assert in_a_pipe("-m", "rmsfast", "info", cwd=tmp_path) == (0, shown.replace("\r", ""))


@pytest.mark.parametrize("run", [on_a_terminal, in_a_pipe])
def test_demo_ends_with_what_to_try_next_in_a_pipe_and_on_a_terminal(tmp_path, monkeypatch, run):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code, output = run("-m", "rmsfast", "demo", cwd=tmp_path)
    assert (code, output.split()[-3:]) == (0, ["rmsfast", "COMMAND", "--help"])


@pytest.mark.parametrize("run", [on_a_terminal, in_a_pipe])
def test_warmup_in_a_pipe_and_on_a_terminal_is_silent(tmp_path, run):
    assert run("-m", "rmsfast", "warmup", "complex64", cwd=tmp_path) == (0, "")


# `rmsfast bench --quick` of one problem in one small working set.
SHORT_BENCH = """
import sys
from rmsfast import roofline
from rmsfast.cli import main
roofline.is_quick = lambda problem: problem.name == "rms float32 rows"
roofline.working_sets = lambda quick: [1 << 18]
sys.exit(main(["bench", "--quick", "--json", "x.json"]))
"""


@pytest.mark.parametrize("run", [on_a_terminal, in_a_pipe])
def test_bench_in_a_pipe_and_on_a_terminal_prints_what_it_stores(tmp_path, run):
    code, output = run("-c", SHORT_BENCH, cwd=tmp_path)
    report = json.loads((tmp_path / "x.json").read_text())
    assert code == int(not all(row["right"] for row in report["rows"])) == 0
    assert "working set 256 KiB" in output
    printed = re.findall(r"^(\S+ float32 rows) +(\d+) ", output, re.MULTILINE)
    assert printed == [(row["problem"], str(row["threads"])) for row in report["rows"]]
    assert set(dict(printed)) == {"rms float32 rows"}
    assert "Traceback" not in output


@pytest.mark.parametrize("run", [on_a_terminal, in_a_pipe])
def test_bench_of_stored_runs_in_a_pipe_and_on_a_terminal_prints_ratios(tmp_path, run):
    row = {"problem": "rms float32 rows", "working_set": 1 << 20, "threads": 1, "gb_per_s": 10.0}
    row["quiet"] = True
    for name, share in (("old.json", 0.5), ("new.json", 0.25)):
        figures = dict.fromkeys(("share", "p10", "p90"), share)
        (tmp_path / name).write_text(json.dumps({"rows": [row | figures]}))
    code, output = run("-m", "rmsfast", "bench", "--compare", "old.json", "new.json", cwd=tmp_path)
    assert code == 0
    assert "median of 1 ratios of shares of the ceiling, new over old: 0.500" in output
