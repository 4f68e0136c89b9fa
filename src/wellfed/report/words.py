"""Numbers and strings for people: the very edge where units are chosen and foreign text is made harmless.

Everything that a file, a machine or a trace said passes through `clean` before it is shown anywhere.
"""

import math
import re
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from wellfed.model.counting import counted
from wellfed.model.verdict import RATIO_PROMISE, Cost, Gain

ELLIPSIS = "…"
NBSP = "\u00a0"
LONGEST_VALUE = 400

_UNITS = r"%|ns|us|µs|ms|s|min|h|[kKMGTP]?i?B(?:/s)?|[kMGT]?(?:FLOP|OP)/s|[kMG]?bit/s|GT/s|[kMG]?Hz|W|GPUs?"
_NUMBER_UNIT = re.compile(rf"(?<=\d) (?=(?:{_UNITS})(?![\w/]))")
_NUMBERLIKE = re.compile(r"[-+~<>=(\[$]*\d[\d.,:e+-]*\S{0,8}")
_PLAIN = re.compile(r"[\x20-\x7e]*")


def clean(text: object) -> str:
    """Foreign text made safe to show on one line: control, format and bidirectional-override characters,
    lone surrogates and unassigned code points become visible escapes; line breaks and tabs become spaces."""
    text = str(text)
    if _PLAIN.fullmatch(text):
        return text
    return "".join(map(_safe_char, text))


@lru_cache(4096)
def _safe_char(char: str) -> str:
    code = ord(char)
    if char in "\n\r\t\x0b\x0c\x85\u2028\u2029":
        return " "
    if code == 0xAD:  # a soft hyphen shows nothing, or a hyphen that is not in the name
        return ""
    if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn") or char == "\u200d":  # emoji joiner
        return char
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cells(text: str) -> int:
    """How many terminal cells cleaned text takes; never fewer than a terminal would use."""
    return len(text) if text.isascii() else sum(map(_char_cells, text))


# Wide since Unicode 16; the tables of older Pythons call them narrow.
_WIDENED = ((0x2630, 0x2637), (0x268A, 0x268F), (0x4DC0, 0x4DFF), (0x1D300, 0x1D356), (0x1D360, 0x1D376))


@lru_cache(4096)
def _char_cells(char: str) -> int:
    if char == "\ufe0f":  # asks for the wide, coloured form of the character before it
        return 1
    if unicodedata.category(char) in ("Mn", "Me") or char == "\u200d":
        return 0
    if unicodedata.east_asian_width(char) in ("W", "F"):
        return 2
    return 2 if any(first <= ord(char) <= last for first, last in _WIDENED) else 1


def take(text: str, width: int) -> str:
    """The longest start of `text` that fits `width` cells."""
    if text.isascii():
        return text[: max(width, 0)]
    used = 0
    for at, char in enumerate(text):
        used += _char_cells(char)
        if used > width:
            return text[:at]
    return text


def take_end(text: str, width: int) -> str:
    """The longest end of `text` that fits `width` cells."""
    if text.isascii():
        return text[len(text) - width :] if 0 < width < len(text) else (text if width > 0 else "")
    used = 0
    for at in range(len(text) - 1, -1, -1):
        used += _char_cells(text[at])
        if used > width:
            return text[at + 1 :]
    return text


def wrap(text: object, width: int, *, first: str = "", rest: str = "", cut: bool = False) -> list[str]:
    """Cleaned text as lines of at most `width`, the first indented by `first`, the others by `rest`. Words stay
    whole, however long, unless `cut`."""
    return textwrap.wrap(
        clean(text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=cut,
        break_on_hyphens=False,
    )


def fold(text: str, width: int) -> str:
    """`text` in `width` cells: both ends kept, the middle out. For names; numbers are never folded."""
    if cells(text) <= width:
        return text
    head = (width - 1) // 2
    return take(text, head) + ELLIPSIS + take_end(text, width - 1 - head)


def fold_path(path: str, width: int) -> str:
    """A path in `width` cells: the file name stays, leading folders go first."""
    if cells(path) <= width:
        return path
    name = path.rsplit("/", 1)[-1]
    if not name or cells(name) + 2 > width:
        return fold(path, width)
    kept = take_end(path, width - 1)
    slash = kept.find("/")
    return ELLIPSIS + kept[max(slash, 0) :]


def fold_token(token: str, width: int) -> str | None:
    """A word too long for its line, folded; None for a number, which must be kept whole."""
    if _NUMBERLIKE.fullmatch(token):
        return None
    return fold_path(token, width) if "/" in token else fold(token, width)


def shorten(text: str, limit: int) -> str:
    """Text of at most `limit` characters, for places without a width (HTML, Markdown)."""
    return text if len(text) <= limit else text[: limit // 2] + ELLIPSIS + text[-(limit - limit // 2 - 1) :]


def keep_units(text: str) -> str:
    """Binds each number to its unit with a no-break space, so that a line never ends between them."""
    return _NUMBER_UNIT.sub(NBSP, text)


def code_spans(text: str) -> list[tuple[bool, str]]:
    """Splits `text` at its pairs of backticks: (is code, piece). An odd backtick stays as it is."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        last = pieces.pop()
        pieces[-1] += "`" + last
    return [(bool(at % 2), piece) for at, piece in enumerate(pieces) if piece]


# --- numbers -------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Three significant digits, all digits of the whole part, thousands apart: `4,021`, `46.4`, `0.0312`."""
    if not math.isfinite(value):
        return "unknown"
    scale = abs(value)
    if value == 0 or scale >= 1e9 or scale < 1e-4:
        return "0" if value == 0 else f"{value:.3g}"
    if scale >= 99.95:
        return f"{value:,.0f}"
    if float(value).is_integer():
        return f"{value:.0f}"
    digits = 1 if scale >= 9.995 else 2 if scale >= 0.9995 else 2 - math.floor(math.log10(scale))
    return f"{value:.{digits}f}"


def alike(values: Sequence[float]) -> list[str]:
    """Values of one kind with the decimals of the largest, so that they can be compared."""
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    if largest >= 1e9 or 0 < largest < 1e-3:
        return [number(value) for value in values]
    digits = 0 if largest >= 99.95 else 1 if largest >= 9.995 else 2 if largest >= 0.9995 else 4
    return [f"{value:,.{digits}f}" if math.isfinite(value) else "unknown" for value in values]


def duration(ns: float) -> str:
    """Nanoseconds in the unit that reads best."""
    for limit, factor, unit in ((1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"), (3.6e12, 1e9, "s")):
        if abs(ns) < limit:
            return f"{number(ns / factor)}{NBSP}{unit}"
    return f"{number(ns / 3.6e12)}{NBSP}h"


def column_scale(largest_ns: float) -> tuple[float, str, int]:
    """For a column of times: (ns in one unit, unit, decimals), so that all rows can be compared."""
    scales = ((1e4, 1.0, "ns"), (1e6, 1e3, "µs"), (1e10, 1e6, "ms"), (math.inf, 1e9, "s"))
    factor, unit = next((factor, unit) for limit, factor, unit in scales if largest_ns < limit)
    shown = largest_ns / factor
    return factor, unit, 0 if unit == "ns" else 1 if shown >= 100 else 2 if shown >= 10 else 3


def size(count: float) -> str:
    """Bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{number(count)}{NBSP}{unit}"
        count /= 1024
    return f"{number(count)}{NBSP}TiB" if abs(count) < 1024 else f"{number(count / 1024)}{NBSP}PiB"


def percent(share: float) -> str:
    """A share of 1 as per cent; never `0.0 %` for something that is there."""
    if not math.isfinite(share):
        return "unknown"
    value = share * 100
    return f"<0.1{NBSP}%" if 0 < value < 0.05 else f"{value:.1f}{NBSP}%"


def dollars(usd: float) -> str:
    return f"${usd:,.0f}" if abs(usd) >= 9.995 else f"${usd:.2f}"


def ratio(value: float) -> str:
    """A speed-up: `1.08x`, `3.4x`, `24x`."""
    return f"{value:.2f}x" if value < 2 else f"{value:.1f}x" if value < RATIO_PROMISE else f"{value:,.0f}x"


# --- what a finding costs and what its cure brings -----------------------------------------------------


def cost_phrase(cost: Cost | None) -> str | None:
    """`116 ms/step, $43/day (1 GPU at $2.50/h)`, or why there is no price."""
    if cost is None:
        return None
    parts = []
    if cost.value is not None:
        parts.append(f"{number(cost.value)}{NBSP}{clean(cost.unit)}".rstrip(" " + NBSP))
    if cost.usd_per_day is not None:
        basis = counted(cost.gpus, "GPU").replace(" ", NBSP)
        if cost.price_usd_gpu_h is not None:
            basis += f" at ${cost.price_usd_gpu_h:.2f}/h"
        parts.append(f"{dollars(cost.usd_per_day)}/day ({basis})")
    text = ", ".join(parts)
    if cost.usd_per_day is None and cost.why:
        text += ("; " if text else "") + f"no $/day: {clean(cost.why)}"
    return text or None


def gain_phrase(gain: Gain | None) -> str | None:
    """`3.4x (2.9 to 3.8), modelled`: the likely speed-up and its interval; `up to 3.4x` where there is no interval, a
    ceiling then. Above 20x it is the time saved that counts, and the phrase says that the ratio is no promise. None
    when there is no gain to speak of."""
    if gain is None:
        return None
    known = gain.low is not None and gain.high is not None
    ceiling = "" if known else "up to "
    saved = f"{ceiling}{number(gain.saves_ms)}{NBSP}ms/step" if gain.saves_ms is not None else None
    if gain.speedup is None or not math.isfinite(gain.speedup):
        text = f"saves {saved}" if saved else "not known"
    elif gain.speedup > RATIO_PROMISE:
        text = (f"saves {saved}; " if saved else "") + "more than 20x, a ratio that is no promise"
    else:
        text = f"{ceiling}{ratio(gain.speedup)}"
        if gain.low is not None and gain.high is not None:
            text += f" ({ratio(gain.low)[:-1]} to {ratio(gain.high)[:-1]})"
        if gain.measured_in not in ("", "step time"):
            text += f" in {clean(gain.measured_in)}"
    if text == "not known":
        return text + (f" ({clean(gain.source)})" if gain.source else "")
    basis = "basis not stated" if gain.basis == "none" else gain.basis
    return f"{text}, {basis}" + (f" ({clean(gain.source)})" if gain.source else "")


def where_phrase(where: Mapping[str, Any]) -> str:
    """`rank 0, device 0`; `ranks 0-63` for many."""

    def said(value: Any) -> str:
        if isinstance(value, list | tuple) and all(type(item) is int for item in value):
            return shorten(id_ranges(value), 60)
        return clean(value)

    return ", ".join(f"{clean(key)} {said(value)}" for key, value in where.items() if value is not None)


# --- values whose unit is in their name ----------------------------------------------------------------

_SUFFIXES: tuple[tuple[str, str], ...] = (
    ("_mbps", "Mbit/s"), ("_gbps", "Gbit/s"), ("_gts", "GT/s"), ("_mhz", "MHz"), ("_khz", "kHz"),
    ("_pct", "%"), ("_usd", "$"), ("_kb", "KiB"), ("_ms", "ms"), ("_us", "µs"), ("_gib", "GiB"),
    ("_gb_s", "GB/s"), ("_s", "s"), ("_w", "W"), ("_c", "°C"),
)  # fmt: skip


def value_of(key: str, value: Any, *, depth: int = 0) -> str:
    """A field's value for people; the unit is read from the field's name (`mem_bytes`, `power_w`)."""
    key = key.rsplit(".", 1)[-1]
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _with_unit(key, value)
    if depth > 2:
        return ELLIPSIS
    if isinstance(value, Mapping):
        pairs = (f"{clean(k)}={value_of(str(k), v, depth=depth + 1)}" for k, v in value.items())
        return shorten(", ".join(pairs) or "none", LONGEST_VALUE)
    if isinstance(value, list | tuple):
        if len(value) > 4 and all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            return shorten(id_ranges(value), LONGEST_VALUE)
        return shorten(", ".join(value_of(key, v, depth=depth + 1) for v in value) or "none", LONGEST_VALUE)
    return shorten(clean(value), LONGEST_VALUE)


def _with_unit(key: str, value: float) -> str:
    if key.endswith("_ns"):
        return duration(value)
    if key.endswith("bytes"):
        return "unlimited" if value == -1 else size(value)
    unit = next((unit for suffix, unit in _SUFFIXES if key.endswith(suffix)), None)
    shown = str(value) if isinstance(value, int) and unit is None else number(value)
    return f"{shown}{NBSP}{unit}" if unit else shown


def id_ranges(ids: list[int] | tuple[int, ...]) -> str:
    """CPU and rank lists as the kernel writes them: `0-7,16-23`."""
    out: list[str] = []
    start = previous = None
    for number_ in [*sorted(set(ids)), None]:
        if previous is not None and number_ == previous + 1:
            previous = number_
            continue
        if start is not None:
            out.append(f"{start}" if start == previous else f"{start}-{previous}")
        start = previous = number_
    return ",".join(out) or "none"
