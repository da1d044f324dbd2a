"""What Frandi et al. 2013 reports of the data sets that there are files of here: tables 2 and 3.

Means and standard deviations of five repetitions, on a 2.66 GHz processor of 2010, in the paper's
own code. It does not say which C its searches chose, nor which sigma for USPS and Pendigits. Its
Letter is that of LIBSVM's site, letter.scale, whose parts are not those of UCI's file: not its
first 15000 rows and its last 5000.
"""

from __future__ import annotations

from typing import NamedTuple

SIGMA_SEARCHED = ("usps", "pendigits")
"""Sets for which the paper chose sigma by cross-validation too (section 5.2.1)."""


class Reported(NamedTuple):
    """Mean and standard deviation: of test accuracy in %, or of seconds."""

    mean: float
    deviation: float


METHODS = ("cvm", "fw", "mfw")
"""The paper has no pairwise steps."""


def _columns(*numbers: float) -> dict[str, Reported]:
    """Give mean and deviation of each method, in the order of the paper's columns."""
    return {method: Reported(*numbers[2 * k : 2 * k + 2]) for k, method in enumerate(METHODS)}


ACCURACY = {
    "a1a": _columns(83.52, 0.00633, 83.52, 0.00753, 83.52, 0.00158),
    "a2a": _columns(83.55, 0.0115, 83.56, 0.0239, 83.56, 0.00919),
    "a3a": _columns(83.4, 0.00845, 83.39, 0.0417, 83.41, 0.005),
    "a4a": _columns(84.06, 0.0159, 84.1, 0.0464, 84.07, 0.0115),
    "a6a": _columns(84.28, 0.00351, 84.26, 0.0249, 84.25, 0.0186),
    "a7a": _columns(84.18, 0.0106, 84.23, 0.0441, 84.29, 0.0226),
    "w1a": _columns(97.8, 0.00281, 97.31, 0.0854, 97.65, 0.297),
    "w3a": _columns(98.21, 0.00167, 97.31, 0.0648, 97.6, 0.483),
    "w4a": _columns(98.28, 0.000944, 97.46, 0.217, 97.91, 0.479),
    "w5a": _columns(98.39, 0.00201, 97.5, 0.271, 98.36, 0.0176),
    "w6a": _columns(98.72, 0.00563, 97.4, 0.345, 98.43, 0.454),
    "w7a": _columns(98.73, 0.00529, 97.43, 0.243, 97.88, 0.66),
    "w8a": _columns(99.34, 0.00535, 97.8, 0.282, 97.59, 0.432),
    "usps": _columns(95.63, 0.0373, 95.12, 0.105, 95.47, 0.0834),
    "letter.scale": _columns(97.48, 0.0219, 96.54, 0.137, 97.35, 0.15),
    "pendigits": _columns(98.35, 0.0946, 97.68, 0.0939, 97.65, 0.122),
    "reuters_moneyfx": _columns(97.1, 0.0411, 96.4, 0.153, 95.6, 0.613),
    "mnist": _columns(98.46, 0.0314, 97.91, 0.0599, 98.36, 0.0405),
}
"""Table 2, by the names of our files."""

SECONDS = {
    "a1a": _columns(6.26, 0.0882, 12.5, 0.699, 0.712, 0.004),
    "a2a": _columns(16.0, 0.182, 19.3, 1.51, 1.46, 0.0141),
    "a3a": _columns(33.8, 0.174, 26.8, 1.44, 2.78, 0.0653),
    "a4a": _columns(89.1, 0.267, 40.4, 1.19, 6.37, 0.108),
    "a6a": _columns(590.0, 2.62, 164.0, 6.24, 45.0, 1.15),
    "a7a": _columns(2060.0, 27.9, 1420.0, 58.6, 365.0, 7.3),
    "w1a": _columns(3.59, 0.362, 0.286, 0.0826, 1.67, 0.762),
    "w3a": _columns(12.8, 1.11, 0.76, 0.059, 2.27, 2.25),
    "w4a": _columns(30.4, 0.75, 1.26, 0.501, 6.76, 4.13),
    "w5a": _columns(52.7, 0.639, 1.78, 1.07, 15.8, 1.44),
    "w6a": _columns(131.0, 1.55, 2.67, 2.36, 29.4, 13.1),
    "w7a": _columns(215.0, 11.7, 2.58, 1.89, 91.4, 131.0),
    "w8a": _columns(1030.0, 60.5, 9.64, 5.22, 111.0, 127.0),
    "usps": _columns(6.89, 0.0746, 7.58, 0.142, 7.22, 0.09),
    "letter.scale": _columns(23.7, 0.28, 13.3, 0.205, 12.3, 0.142),
    "pendigits": _columns(0.554, 0.0326, 0.82, 0.0297, 0.658, 0.0223),
    "reuters_moneyfx": _columns(7.24, 0.362, 2.17, 0.387, 1.69, 0.587),
    "mnist": _columns(364.0, 13.1, 301.0, 8.56, 349.0, 2.59),
}
"""Table 3."""

POLYNOMIAL_ACCURACY = {
    "reuters_moneyfx": {"fw": Reported(95.8, 0.3), "mfw": Reported(95.9, 0.198)},
    "w1a": {"fw": Reported(97.22, 0.108), "mfw": Reported(97.49, 0.147)},
    "w3a": {"fw": Reported(97.32, 0.168), "mfw": Reported(97.22, 0.122)},
    "w4a": {"fw": Reported(97.16, 0.143), "mfw": Reported(97.25, 0.149)},
    "w5a": {"fw": Reported(97.08, 0.0737), "mfw": Reported(97.11, 0.112)},
    "w6a": {"fw": Reported(97.28, 0.237), "mfw": Reported(97.18, 0.131)},
    "w7a": {"fw": Reported(97.23, 0.0622), "mfw": Reported(97.23, 0.151)},
    "w8a": {"fw": Reported(97.06, 0.11), "mfw": Reported(97.24, 0.291)},
}
POLYNOMIAL_SECONDS = {
    "reuters_moneyfx": {"fw": Reported(2.89, 0.323), "mfw": Reported(2.39, 0.152)},
    "w1a": {"fw": Reported(0.076, 0.035), "mfw": Reported(0.252, 0.134)},
    "w3a": {"fw": Reported(0.264, 0.133), "mfw": Reported(0.318, 0.319)},
    "w4a": {"fw": Reported(0.376, 0.322), "mfw": Reported(0.374, 0.365)},
    "w5a": {"fw": Reported(0.154, 0.214), "mfw": Reported(0.278, 0.32)},
    "w6a": {"fw": Reported(0.296, 0.237), "mfw": Reported(0.502, 0.411)},
    "w7a": {"fw": Reported(0.388, 0.281), "mfw": Reported(0.21, 0.135)},
    "w8a": {"fw": Reported(0.276, 0.232), "mfw": Reported(0.338, 0.332)},
}
"""Table 8: the kernel (gamma x'z)²."""


def best(name: str) -> Reported:
    """Give the accuracy of the most accurate method; of equal ones, that which varies least."""
    return max(ACCURACY[name].values(), key=lambda found: (found.mean, -found.deviation))
