"""Windows of recordings in files."""

import numpy as np
import pytest
from processes import run
from test_files_formats import FORMATS, values_of

from rmsfast import _launch, files, rms_windows
from rmsfast.files import _tensors, save_npy

CUTS = [(4, None, "valid"), (5, 2, "partial"), (6, 1, "centered"), (3, 7, "partial")]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("box_bytes", [64, 400, 1 << 20])
@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_rms_windows_of_files_have_the_bits_of_one_call(
    tmp_path, monkeypatch, make, box_bytes, axis
):
    monkeypatch.setattr(_tensors, "BOX_BYTES", box_bytes)
    x = values_of((23, 11), "int16")
    path = make(tmp_path, x)
    for window, hop, edge in CUTS:
        found = files.rms_windows(path, window, hop=hop, axis=axis, edge=edge)
        expected = rms_windows(x, window, hop=hop, axis=axis, edge=edge)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("window", "hop"), [(1000, 1000), (5000, 700), (7000, 7300), (12_000, 300)]
)  # 12 000: some windows that all overlap, longer than a box
def test_rms_windows_of_files_longer_than_a_box_have_the_bits_of_one_call(
    tmp_path, monkeypatch, window, hop
):
    x = values_of((30_000, 3))
    save_npy(tmp_path / "x.npy", x)
    expected = rms_windows(x, window, hop=hop, axis=0, edge="centered")
    monkeypatch.setattr(_tensors, "BOX_BYTES", 50_000)
    found = files.rms_windows(tmp_path / "x.npy", window, hop=hop, edge="centered")
    np.testing.assert_array_max_ulp(found, expected, 0)


def test_rms_windows_of_a_raw_recording_take_its_dtype_and_shape(tmp_path):
    x = values_of((50, 4), "int16")
    x.tofile(tmp_path / "x.bin")
    told = []
    found = files.rms_windows(
        tmp_path / "x.bin", 9, hop=3, dtype="int16", shape=(-1, 4),
        progress=lambda *done: told.append(done),
    )  # fmt: skip
    np.testing.assert_array_equal(found, rms_windows(x, 9, hop=3, axis=0))
    assert told[-1] == (400, 400)
    codes = values_of((50, 4)).view(np.uint16)[:, ::2] & 0x7F7F
    codes.tofile(tmp_path / "y.bin")
    found = files.rms_windows(tmp_path / "y.bin", 9, dtype="bfloat16", shape=(50, 4))
    np.testing.assert_array_equal(found, rms_windows(codes, 9, axis=0, format="bfloat16"))


def test_rms_windows_of_a_recording_several_times_the_memory_that_is_left(tmp_path):
    times = 1_400_000
    with open(tmp_path / "x.bin", "wb") as file:
        file.seek(768 * (times - 1))  # zeros, which take no room on disk
        file.write(np.full(384, 1000, np.int16).tobytes())
    program = f"""
        import re, resource
        from pathlib import Path
        import numpy as np
        from rmsfast import files, rms_windows
        x = np.ones((9000, 384), "i2")
        rms_windows(x, 3000, axis=0), rms_windows(x, 3000, hop=750, axis=0)  # compiled
        text = Path("/proc/self/status").read_text()
        for limit, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
            used = 1024 * int(re.search(name + r":\\s*(\\d+)", text)[1])
            resource.setrlimit(limit, (used + (300 << 20),) * 2)
        for window, hop in ((3000, 3000), (3000, 750), (90_000, 45_000)):
            found = files.rms_windows(
                {str(tmp_path / "x.bin")!r}, window, hop=hop, edge="partial", dtype="int16",
                shape=(-1, 384),
            )
            print(len(found), (found[:-2] == 0).all(), (found[-1] > 0).all())
    """
    cuts = ((3000, 3000), (3000, 750), (90_000, 45_000))
    counts = [-(-(times - window) // hop) + 1 for window, hop in cuts]
    assert run(program).split() == " ".join(f"{n} True True" for n in counts).split()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window must be an int >= 1, got 0"),
        ({"window": 60}, "window must be at most the length of the axis, 50, with edge='valid'"),
        ({"window": 3, "axis": 2}, "axis must be in"),
        ({"window": 3, "edge": "same"}, "edge must be one of"),
        ({"window": 3, "format": "bfloat16"}, "format must fit the dtype float32"),
    ],
)
def test_rms_windows_of_files_refuse_in_one_line(tmp_path, options, message):
    save_npy(tmp_path / "x.npy", values_of((50, 4)))
    with pytest.raises(ValueError, match=f"x.npy: tensor 'x': {message}") as found:
        files.rms_windows(tmp_path / "x.npy", **options)
    assert "\n" not in str(found.value)


def test_rms_windows_of_files_without_numba_are_those_of_the_reference(tmp_path, monkeypatch):
    x = values_of((50, 4), "int16")
    save_npy(tmp_path / "x.npy", x)
    expected = rms_windows(x, 9, hop=4, axis=0)
    monkeypatch.setattr(_launch, "kernels", lambda: None)
    np.testing.assert_allclose(files.rms_windows(tmp_path / "x.npy", 9, hop=4), expected, 1e-15)
