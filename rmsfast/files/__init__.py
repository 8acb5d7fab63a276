"""Tensors in files larger than memory: read once, in storage order, a few blocks at a time.

`.npy`, `.npz` and `.safetensors` files (in shards too) and raw binary are read by read-only
memory map, zarr folders and HDF5 files chunk by chunk. No pickle is ever loaded, and neither
torch nor ml_dtypes is needed: bfloat16 and float8 tensors are given as their codes with the name
of their format, which is how `rmsfast.rms` takes them. Whatever a header claims is checked
against the file before any data is touched. (A mapped file that another program cuts short in
the very moment of reading ends the process, as with any memory map.)
"""

from rmsfast.files._dosed import apply_dose
from rmsfast.files._open import open_tensors
from rmsfast.files._pairs import Difference, compare, compare_rows
from rmsfast.files._predicted import Measured, Predicted, measure_dose, predict_dose
from rmsfast.files._scaled import normalize, rms_norm
from rmsfast.files._summaries import Summary, describe, describe_rows, row_rms
from rmsfast.files._tensors import Tensor
from rmsfast.files._windows import rms_windows
from rmsfast.files._writers import save_npy, writing

__all__ = [
    "Difference",
    "Measured",
    "Predicted",
    "Summary",
    "Tensor",
    "apply_dose",
    "compare",
    "compare_rows",
    "describe",
    "describe_rows",
    "measure_dose",
    "normalize",
    "open_tensors",
    "predict_dose",
    "rms_norm",
    "rms_windows",
    "row_rms",
    "save_npy",
    "writing",
]
