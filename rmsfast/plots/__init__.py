"""Every picture; Matplotlib is imported when one is drawn.

Lines and points differ in marker and stroke as well as in colour, and text is legible at a width
of 800 pixels.
"""

from rmsfast.plots._bench import report, scaling
from rmsfast.plots._doses import measure_dose, predict_dose
from rmsfast.plots._rows import MOST, compare, describe
from rmsfast.plots._windows import windows

__all__ = [
    "MOST",
    "compare",
    "describe",
    "measure_dose",
    "predict_dose",
    "report",
    "scaling",
    "windows",
]
