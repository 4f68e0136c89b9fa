"""The nouns: frozen typed values, with no behaviour beyond their own arithmetic.

Everything above this floor exchanges these. Each public name is imported from its own module here, so
that `from wellfed.model import Case` is all a reader has to know.
"""

from wellfed.model.base import Value
from wellfed.model.case import Case, Headline, decode_case, encode_case
from wellfed.model.ceiling import Ceiling
from wellfed.model.change import Change
from wellfed.model.curve import Curve
from wellfed.model.errors import WellfedError
from wellfed.model.fact import Fact, Status
from wellfed.model.machine import Machine
from wellfed.model.trace import Budget, RankTrace, Step, TraceWarning
from wellfed.model.verdict import Cost, Evidence, Gain, Verdict

__all__ = [
    "Budget",
    "Case",
    "Ceiling",
    "Change",
    "Cost",
    "Curve",
    "Evidence",
    "Fact",
    "Gain",
    "Headline",
    "Machine",
    "RankTrace",
    "Status",
    "Step",
    "TraceWarning",
    "Value",
    "Verdict",
    "WellfedError",
    "decode_case",
    "encode_case",
]
