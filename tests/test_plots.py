"""Pictures: what stands in them, for data of every kind."""

import subprocess
import sys

import numpy as np
import pytest

from rmsfast import reference
from rmsfast._dose_report import DosePrediction, DoseReport

pytest.importorskip("matplotlib")

from rmsfast import plots
from rmsfast.plots import _figure

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(50, 8)) * np.exp2(np.arange(50.0) % 7)[:, np.newaxis]
ALPHAS = np.array([0.1, 0.001, 0.01, -0.03])


def special(rows):
    """The rows with one of zeros, one with NaN and one with Inf."""
    rows = rows.copy()
    rows[3], rows[5, 2], rows[7, 1] = 0, np.nan, np.inf
    return rows


def doses(kind, shape):
    """A report whose relative RMSE is 0.001 / |alpha|."""
    few = ALPHAS[: shape[-1]]
    alphas = np.broadcast_to(few, shape) if kind is DosePrediction else np.full(shape, 0.02)
    fields = {name: np.ones(shape) for name in kind.names()}
    fields |= {"alpha_requested": alphas, "relative_rmse_realised": 0.001 / np.abs(alphas)}
    fields |= {"rms_clean": np.exp2(np.arange(np.prod(shape)) % 5).reshape(shape)}
    return kind({}, **fields)


def ticks(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def texts(axes):
    return " ".join(text.get_text() for text in axes.texts)


MADE = {
    "describe": lambda: reference.describe(special(ROWS)),
    "compare": lambda: reference.compare(special(ROWS), np.round(special(ROWS), 2)),
    "predict_dose": lambda: doses(DosePrediction, (20, 4)),
    "measure_dose": lambda: doses(DoseReport, (20,)),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_plot_writes_a_png_800_pixels_wide(tmp_path, make):
    make().plot(tmp_path / "x.png")
    content = (tmp_path / "x.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert int.from_bytes(content[16:20]) == 800
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_plot_labels_every_axis(make):
    drawn = make().plot()
    assert all(axes.get_ylabel() for axes in drawn.axes)
    assert all(axes.get_xlabel() for axes in drawn.axes if ticks(axes.xaxis))


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_plot_of_several_tensors_names_each(make):
    drawn = getattr(plots, make()._picture)({"first": make(), "second": make()})
    named = {text.get_text() for legend in drawn.legends for text in legend.get_texts()}
    named |= {axes.get_title() for axes in drawn.axes}
    assert {"first", "second"} <= named


@pytest.mark.parametrize("name", ["describe", "compare"])
def test_plot_marks_rows_without_a_place_on_a_logarithmic_axis(name):
    above, _ = MADE[name]().plot().axes
    assert ticks(above.xaxis)[-1] == "NaN\nInf"
    assert ticks(above.xaxis)[0] == "0"  # the row of zeros, which is equal in a pair of tables
    assert [text.get_text() for text in above.texts] == ["1", "2"]


def test_describe_plot_names_the_largest_row_and_its_coordinate():
    rows = np.ones((6, 4))
    rows[4, 3] = 100
    _, below = reference.describe(rows).plot().axes
    assert texts(below) == "row 4: coordinate 3"


def test_describe_plot_names_a_row_by_its_place():
    rows = np.ones((6, 5, 4))
    rows[4, 3, 2] = 100
    _, below = reference.describe(rows).plot().axes
    assert texts(below) == "row 4,3: coordinate 2"


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_describe_plot_names_the_largest_row_beside_its_point(share):
    rows = np.vstack([np.eye(8) + 0.1, np.full(8, 2.0)]) if share < 0.5 else np.eye(8) + 0.01
    rows[-1] *= 2
    _, below = reference.describe(rows).plot().axes
    [text] = below.texts
    point = (text.xy[1] - below.get_ylim()[0]) / np.diff(below.get_ylim()).item()
    assert abs(text.get_position()[1] - point) > 0.3


def test_plot_of_few_rows_counts_whole_rows():
    above, below = reference.compare(ROWS[:3], np.round(ROWS[:3], 2)).plot().axes
    assert set(ticks(below.xaxis)) <= {"-1", "0", "1", "2", "3", "\N{MINUS SIGN}1"}
    assert all("." not in text for text in ticks(above.yaxis))


def test_describe_plot_of_many_tensors_shows_the_largest():
    tables = {f"t{i}": reference.describe(np.full((2, 2), i + 1.0)) for i in range(45)}
    drawn = plots.describe(tables, title="x.npy")
    above, *panels = drawn.axes
    expected = "x.npy\n40 of 45 tensors, 9 of them below, those of the largest row RMS"
    assert above.get_title() == expected
    assert [axes.get_title() for axes in panels] == [f"t{i}" for i in range(36, 45)]
    assert ticks(above.yaxis) == [f"t{i}" for i in range(44, 4, -1)]


def test_describe_plot_of_several_tensors_gives_a_panel_to_each():
    tables = {f"t{i}": reference.describe(ROWS * 2.0**i) for i in range(4)}
    _, *panels = plots.describe(tables).axes
    assert [bool(ticks(axes.xaxis)) for axes in panels] == [False, True, True, True]
    x = [max(line.get_xdata().max() for line in axes.lines if line.get_marker() == "o")
         for axes in panels]  # fmt: skip
    np.testing.assert_allclose(np.diff(x), np.log10(2))


def test_measure_dose_plot_of_many_tensors_names_those_of_the_largest_errors():
    tables = {f"t{i}": doses(DoseReport, (20,)) for i in range(6)}
    for i, table in enumerate(tables.values()):
        table.relative_rmse_realised[:] = 0.001 * (i + 1)
    [legend] = plots.measure_dose(tables).legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named == ["the other 2, of smaller errors", "t2", "t3", "t4", "t5"]


def test_measure_dose_plot_without_a_request_draws_sizes_and_angles():
    table = doses(DoseReport, (20,))
    for name in ("relative_rmse_realised", "cosine"):
        getattr(table, name)[:] = np.nan
    drawn = plots.measure_dose({"": table}, tolerance=0.1)
    above, below = drawn.axes
    assert (above.get_ylabel(), below.get_ylabel()) == (
        "RMS of the realised edit,\nover that of the clean row",
        "angle of the clean and\nthe edited row, degrees",
    )
    [sizes], [angles] = above.lines, below.lines
    np.testing.assert_allclose(sizes.get_ydata(), -np.log10(table.rms_clean))
    assert set(angles.get_ydata()) == {1}


def test_measure_dose_plot_marks_a_tolerance_that_is_given():
    [legend] = plots.measure_dose({"a": doses(DoseReport, (20,))}, tolerance=0.2).legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "tolerance 0.2"]


def test_predict_dose_plot_of_many_tensors_names_those_of_the_largest_errors():
    tables = {f"t{i}": doses(DosePrediction, (20, 4)) for i in range(40)}
    for i, table in enumerate(tables.values()):
        table.relative_rmse_realised[:] *= 1 + i
    [legend] = plots.predict_dose(tables).legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named[:8] == ["the other 33, of smaller errors", *(f"t{i}" for i in range(33, 40))]


def test_predict_dose_plot_of_one_dose_shows_floor_and_rounded_request():
    table = doses(DosePrediction, (20, 1))
    errors, cosines = plots.predict_dose({"": table}, floors={"": np.full(20, 0.5)}).axes
    assert texts(errors) == "floor 0.5"
    low, high = errors.get_xlim()
    assert low < np.log10(0.5) < high
    assert "+" in {line.get_marker() for line in errors.lines}
    assert 1 < cosines.get_ylim()[1] < 1.01


LAYERS = [f"model.layers.{i}.self_attn.q_proj.weight" for i in range(120)]


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (["a", "b.c"], "a"),
        (LAYERS, "…0.self_attn.q_proj.weight"),
        ([*LAYERS, "model.embed_tokens.weight"], "…layers.0.self_attn.q_proj…"),
        ([f"{'x' * 20}{i}{'y' * 20}" for i in range(3)], f"{'x' * 20}0{'y' * 20}"),
        ([f"{i}{'x' * 40}{i}" for i in range(3)], f"0{'x' * 13}…{'x' * 13}0"),
        (["model.layers.31.self_attn.q_proj.weight"], "model.layers.31.self_attn.q_proj.weight"),
        (["a\n", "a?", "$a$"], "a\\n"),
    ],
    ids=["short", "layers", "more than layers", "middle", "long", "alone", "awkward"],
)
def test_plot_labels_lose_what_names_share_and_stay_apart(names, first):
    found = _figure.labels(names)
    assert list(found) == names
    assert found[names[0]] == first
    assert len(set(found.values())) == len(names)


def test_plot_scale_leaves_out_ticks_that_are_too_near_and_keeps_powers_of_ten():
    scale = _figure.Scale.of(np.array([0.9, 11.0]))
    assert set(scale.ticks().values()) == {"1", "1.5", "2", "3", "4", "5", "7", "10"}
    assert set(scale.ticks(0.3).values()) == {"1", "3", "10"}


def test_windows_plot_darkens_as_rms_grows():
    [mesh] = plots.windows(np.exp2(np.arange(8.0)).reshape(4, 2)).axes[0].collections
    red, green, blue, _ = mesh.cmap(np.linspace(0, 1, 50)).T
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    assert (np.diff(grey) < 0).all()
    assert grey[0] < 0.8  # zeros are white


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((3, 2)),
        np.full((3, 2), np.nan),
        np.ones((1, 1)),
        np.array([[1e-300], [1e300], [5e-324]]),
        np.full((3, 2), 1.7e308),
    ],
    ids=["zeros", "NaN", "one", "range", "largest"],
)
def test_describe_plot_of_unusual_rows_is_drawn(tmp_path, rows):
    reference.describe(rows).plot(tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 5000


def test_plot_of_awkward_names_is_drawn_as_they_are(tmp_path):
    tables = {name: reference.describe(ROWS) for name in ("$x^", "\x1b[2J", "n" * 200)}
    above, *_ = plots.describe(tables, tmp_path / "x.png").axes
    assert ticks(above.yaxis) == [f"{'n' * 14}…{'n' * 14}", r"\x1b[2J", r"\$x^"]


def test_predict_dose_plot_marks_where_medians_cross_the_tolerance():
    errors, _ = doses(DosePrediction, (20, 4)).plot(tolerance=0.05).axes
    assert texts(errors) == "5 % reached at 0.02"


def test_predict_dose_plot_marks_given_floors():
    tables = {"a": doses(DosePrediction, (2, 4)), "b": doses(DosePrediction, (2, 4))}
    floors = {"a": np.array([0.01, 0.01]), "b": np.array([0.015, np.nan])}
    errors, _ = plots.predict_dose(tables, floors=floors).axes
    assert texts(errors) == "floor 0.01 to 0.015"


@pytest.mark.parametrize("channels", [1, 3])
def test_windows_plot_is_drawn(tmp_path, channels):
    values = np.exp2(RNG.normal(size=(40, channels)))
    values[3], values[5] = 0, np.nan
    drawn = plots.windows(values, tmp_path / "x.png", hop=0.5, unit="seconds")
    assert drawn.axes[0].get_xlabel() == "start of the window, in seconds"
    named = {text.get_text() for legend in drawn.legends for text in legend.get_texts()}
    assert named == ({"RMS 0, dead", "NaN or Inf"} if channels > 1 else set())


@pytest.mark.parametrize(
    ("dead", "text"),
    [([7], ": channel 7"), ([1, 7], ": channels 1, 7"), (range(9), "")],
    ids=["one", "two", "many"],
)
def test_windows_plot_names_few_dead_channels(dead, text):
    values = np.ones((4, 2000))
    values[:, list(dead)] = 0
    [legend] = plots.windows(values).legends
    assert [each.get_text() for each in legend.get_texts()] == ["RMS 0, dead" + text]


def test_windows_plot_of_many_windows_keeps_the_largest():
    values = np.ones((100_000, 2))
    values[77_777, 1] = 1000
    [mesh] = plots.windows(values).axes[0].collections
    assert mesh.get_array().shape == (2, 1500)
    assert mesh.get_array().max() == 3  # of the logarithm


def test_plot_leaves_the_state_of_pyplot_alone():
    script = (
        "import sys; from rmsfast import reference; reference.describe([[1.0, 2.0]]).plot();"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert run.stdout == "False\n"
