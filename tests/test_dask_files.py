"""Zarr folders on Dask: what the same jobs give on one machine."""

from dataclasses import asdict

import numpy as np
import pytest
from zoo import assert_same_bits, make

from rmsfast import files
from rmsfast.files import Tensor, open_tensors, writing

dask = pytest.importorskip("dask")
zarr = pytest.importorskip("zarr")
from rmsfast.dask import files as on_dask  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def save(path, chunks=(2, 5), **arrays):
    group = zarr.create_group(path)
    for name, array in arrays.items():
        stored = group.create_array(name, shape=array.shape, chunks=chunks, dtype=array.dtype)
        stored[...] = array
    return path


@pytest.fixture
def folder(tmp_path):
    x = make((7, 12), np.float32)
    x[2], x[3, 4], x[4, 5] = 0.0, np.nan, np.inf
    return save(tmp_path / "x.zarr", x=x, y=make((7, 12), np.float32, seed=1))


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        one_fields, other_fields = asdict(one), asdict(other)
        # Of rows in parts, whose plain sums may be added in another order.
        shares = [fields.pop("peak_share_max", 0.0) for fields in (one_fields, other_fields)]
        np.testing.assert_allclose(*shares, rtol=2.0**-42)
        np.testing.assert_equal(one_fields, other_fields)
        assert_same_bits(one.worst["row"], other.worst["row"])


@pytest.mark.parametrize("limit", [1 << 26, 64])
def test_describe_on_dask_is_that_of_one_process(folder, monkeypatch, limit):
    monkeypatch.setattr(on_dask, "CHUNK_BYTES", limit)
    for axis in (-1, 0):
        same(on_dask.describe(folder, axis=axis), files.describe(folder, axis=axis))


def test_describe_on_dask_of_complex_numbers_is_that_of_one_process(tmp_path):
    save(tmp_path / "z.zarr", z=make((7, 12), np.complex64))
    same(on_dask.describe(tmp_path / "z.zarr"), files.describe(tmp_path / "z.zarr"))


def test_compare_on_dask_is_that_of_one_process(folder, tmp_path):
    y = make((7, 12), np.float16)
    other = save(tmp_path / "y.zarr", chunks=(3, 12), x=y)
    same(on_dask.compare(folder, other, tensor="x"), files.compare(folder, other, tensor="x"))


@pytest.mark.parametrize("limit", [1 << 26, 64])
def test_normalize_on_dask_writes_what_one_process_does(folder, tmp_path, monkeypatch, limit):
    monkeypatch.setattr(on_dask, "CHUNK_BYTES", limit)
    options = {"target": 2.0, "zero": "zero"}
    on_dask.normalize(folder, tmp_path / "a.zarr", **options)
    files.normalize(folder, tmp_path / "b.zarr", **options)
    for a, b in zip(*(open_tensors(tmp_path / f"{n}.zarr") for n in "ab"), strict=True):
        np.testing.assert_allclose(a.read(), b.read(), rtol=2e-7 if limit == 64 else 0)


@pytest.mark.parametrize(("limit", "times"), [(1 << 26, 1), (64, 2)])
def test_normalize_on_dask_counts_rows_with_nan_of_data_read_no_more_for_it(
    tmp_path, monkeypatch, limit, times
):
    x, read = make((7, 12), np.float32), []
    x[1, 3] = x[1, 11] = np.nan
    x[5, 0] = np.inf
    save(tmp_path / "x.zarr", chunks=(3, 4), x=x)
    monkeypatch.setattr(on_dask, "CHUNK_BYTES", limit)
    values = on_dask._Readable.__getitem__
    monkeypatch.setattr(
        on_dask._Readable,
        "__getitem__",
        lambda self, box: read.append(str(box)) or values(self, box),
    )
    assert on_dask.normalize(tmp_path / "x.zarr", tmp_path / "y.zarr") == 2
    assert {read.count(box) for box in read} == {times}


def test_normalize_on_dask_keeps_codes_of_narrow_formats(tmp_path):
    codes = np.uint16([[0x3F80, 0xC040], [0x4000, 0x4000]])
    with writing(tmp_path / "h.zarr", [Tensor("h", (2, 2), "bfloat16")]) as put:
        put("h", (slice(0, 2), slice(0, 2)), codes)
    on_dask.normalize(tmp_path / "h.zarr", tmp_path / "u.zarr")
    files.normalize(tmp_path / "h.zarr", tmp_path / "v.zarr")
    (found,), (expected,) = (open_tensors(tmp_path / name) for name in ("u.zarr", "v.zarr"))
    assert found.dtype == "bfloat16"
    assert_same_bits(found.read(), expected.read())


def test_normalize_on_dask_that_is_refused_leaves_out_as_it_was(folder):
    before = open_tensors(folder)[0].read()
    with pytest.raises(ValueError, match="tensor 'x': x must be nonzero under zero='raise'"):
        on_dask.normalize(folder, folder)
    assert_same_bits(open_tensors(folder)[0].read(), before)
    assert [each.name for each in folder.parent.iterdir()] == ["x.zarr"]


def test_jobs_on_dask_refuse_what_is_no_zarr_folder(tmp_path):
    files.save_npy(tmp_path / "x.npy", np.ones((2, 2)))
    for call in (
        lambda: on_dask.describe(tmp_path / "x.npy"),
        lambda: on_dask.compare(tmp_path / "x.npy", tmp_path / "x.npy"),
        lambda: on_dask.normalize(tmp_path / "x.npy", tmp_path / "y.zarr"),
        lambda: on_dask.lazy(open_tensors(tmp_path / "x.npy")[0]),
    ):
        with pytest.raises(ValueError, match="zarr folder"):
            call()


def test_progress_on_dask_goes_to_standard_error(folder, capsys):
    on_dask.describe(folder, progress=True)
    shown = capsys.readouterr()
    assert "Completed" in shown.err
    assert shown.out == ""


def test_lazy_tensor_has_whole_rows_in_whole_chunks_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(on_dask, "CHUNK_BYTES", 200)
    save(tmp_path / "x.zarr", x=make((7, 12), np.float32))
    (tensor,) = open_tensors(tmp_path / "x.zarr")
    lazy = on_dask.lazy(tensor)
    assert lazy.chunks[1] == (12,)
    assert lazy.chunks[0][0] % 2 == 0
    assert len(lazy.chunks[0]) > 1


def test_commands_on_a_cluster_print_and_write_what_one_process_does(tmp_path, monkeypatch):
    testing = pytest.importorskip("click.testing")
    distributed = pytest.importorskip("distributed")
    from rmsfast.cli import cli

    def printed(*arguments):
        result = testing.CliRunner().invoke(cli, arguments)
        assert (result.exception, result.exit_code) == (None, 0)
        return result.stdout

    monkeypatch.chdir(tmp_path)
    save("x.zarr", x=make((7, 12), np.float32))
    save("y.zarr", x=make((7, 12), np.float32, seed=1))
    options = {"processes": False, "n_workers": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, dask.config.set(scheduler=None):
        on_cluster = "--dask", cluster.scheduler_address
        for command in (("describe", "x.zarr", "--json"), ("compare", "x.zarr", "y.zarr")):
            assert printed(*command, *on_cluster) == printed(*command)
        printed("normalize", "x.zarr", "-o", "a.zarr", *on_cluster)
    printed("normalize", "x.zarr", "-o", "b.zarr")
    (a,), (b,) = open_tensors("a.zarr"), open_tensors("b.zarr")
    assert_same_bits(a.read(), b.read())


def test_commands_on_a_cluster_that_does_not_answer_name_its_address(tmp_path, capsys, monkeypatch):
    pytest.importorskip("click")
    pytest.importorskip("distributed")
    from rmsfast.cli import main

    monkeypatch.chdir(tmp_path)
    save("x.zarr", x=make((7, 12), np.float32))
    monkeypatch.setattr("distributed.Client", unreachable)
    assert main(["describe", "x.zarr", "--dask", "tcp://127.0.0.1:1"]) == 2
    expected = "rmsfast: tcp://127.0.0.1:1: no scheduler answers: Timed out\n"
    assert capsys.readouterr().err == expected


def unreachable(_):
    raise OSError("Timed out")


def test_commands_with_dask_refuse_other_files_before_a_cluster_starts(tmp_path, capsys):
    pytest.importorskip("click")
    from rmsfast.cli import main

    files.save_npy(tmp_path / "x.npy", np.ones((2, 2)))
    assert main(["describe", str(tmp_path / "x.npy"), "--dask", "local"]) == 2
    assert "must be a zarr folder with --dask" in capsys.readouterr().err
