"""The structure of JSON text found with array operations: where objects begin, what their keys are, what numbers say.

A text of events is a flat thing: objects of a few keys, one of which (`args`) holds an object again. Quotes and
braces are found in one pass over the bytes; the parity of the quotes says what is text, the sum of the braces how
deep it is. Keys are told apart by their first eight bytes and their length, numbers are read eight digits at a
time. Nothing is guessed: what does not look like strict JSON around a string (a quote inside a name, text after a
string's end) ends the part that is trusted, and a value that is no plain number is said to be none. Whoever calls
reads that part by other means.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

PAD = b" " * 64
"""Appended to a text before it is scanned, so that a read of a few words past a position stays inside."""
_QUOTE, _OPEN, _CLOSE, _BACKSLASH, _COLON = b'"{}\\:'
_SPACE = frozenset(b" \t\r\n")


_ENDS_NUMBER = b',}"\r\n '
_LOW = np.array([(1 << (8 * n)) - 1 for n in range(8)] + [2**64 - 1], np.uint64)
"""Masks for the first n bytes of a word."""


class Scan(NamedTuple):
    """Complete objects at depth 0 of a text, and the strings in them. `begin` and `end` are the objects' offsets
    (`end` past the brace). Of each string that is a key at depth 1 or 2: `key` is the offset behind the opening
    quote, `size` its length, `value` the offset of its value, `letters` the length of the value when it is a text (else
    -1), `depth`, and `of` the object's number. `inner` counts the objects inside each object. `used` is the offset up to which the text is accounted for, `closed` whether
    the list ends there (`]`), `sound` whether what follows `used` may just be incomplete (else it is broken)."""

    begin: I64
    end: I64
    key: I64
    size: I64
    value: I64
    letters: I64
    depth: npt.NDArray[np.int8]
    of: npt.NDArray[np.int32]
    inner: I64
    used: int
    closed: bool
    sound: bool


class Text(NamedTuple):
    """A padded text as bytes and as overlapping little-endian words of eight."""

    raw: bytes
    size: int
    byte: U8
    word: U64


def text_of(*pieces: bytes | memoryview) -> Text:
    """The pieces as one text with padding, ready for scanning."""
    padded = b"".join((*pieces, PAD))
    byte = np.frombuffer(padded, np.uint8)
    word: Any = np.ndarray(len(padded) - 7, np.dtype("<u8"), padded, 0, (1,))
    return Text(padded, len(padded) - len(PAD), byte, word)


def scan(text: Text) -> Scan:
    """The complete objects of a text that begins between two objects of a list."""
    byte = text.byte[: text.size]
    quote = byte == _QUOTE
    if text.raw.find(b"\\", 0, text.size) >= 0:
        quote[_escaped(byte)] = False
    mark = byte == _OPEN
    mark |= byte == _CLOSE
    mark |= quote
    at = np.flatnonzero(mark)
    letter = byte[at]
    is_quote = letter == _QUOTE
    outside = np.cumsum(is_quote, dtype=np.int32) & 1 == 0
    step = (letter == _OPEN).view(np.int8) - (letter == _CLOSE).view(np.int8)
    step *= outside
    depth = np.cumsum(step, dtype=np.int32)
    rises, shallow = step == 1, depth == 1
    first = np.flatnonzero(rises & shallow)
    last = np.flatnonzero((step == -1) & (depth == 0))
    if len(depth) and depth.min() < 0:  # the end of the object around the list
        last = last[: np.searchsorted(last, np.argmax(depth < 0))]
    count = min(len(first), len(last))
    begin, end = at[first[:count]], at[last[:count]] + 1
    quotes = np.flatnonzero(is_quote)
    opening = quotes[: len(quotes) // 2 * 2 : 2]
    start, stop = at[opening], at[quotes[1::2]]
    before, after = byte[start - 1], text.byte[stop + 1]
    is_key = after == _COLON
    valued = (before == _COLON) | ((before == 32) & (text.byte[start - 2] == _COLON))
    bad = (
        ~(_among(after, b",}]\r\n") | is_key) | ~(_among(before, b"{[, \t\r\n") | valued) | (is_key & valued)
    )
    bad[1:] |= valued[:-1] > (is_key | valued)[1:]  # a text that follows a value and is neither key nor value
    count, used, closed, sound = _trusted(text, begin, end, start, bad)
    begin, end = begin[:count], end[:count]
    tokens = int(last[count - 1]) + 1 if count else 0
    number = np.cumsum(rises[:tokens] & shallow[:tokens], dtype=np.int32)
    number -= 1
    keys = np.flatnonzero(is_key[: np.searchsorted(opening, tokens)])
    level = depth[opening[keys]]
    if level.max(initial=0) > 2:
        keys, level = keys[level <= 2], level[level <= 2]
    deep = np.flatnonzero(rises[:tokens] & (depth[:tokens] >= 2))
    value = stop[keys] + 2
    value += text.byte[value] == 32
    following = np.minimum(keys + 1, len(start) - 1)
    letters = np.where(start[following] == value, stop[following] - value - 1, -1)
    return Scan(
        begin=begin,
        end=end,
        key=start[keys] + 1,
        size=stop[keys] - start[keys] - 1,
        value=value,
        letters=letters,
        depth=level.astype(np.int8),
        of=number[opening[keys]],
        inner=np.bincount(number[deep], minlength=count),
        used=used,
        closed=closed,
        sound=sound,
    )


def _among(letter: U8, letters: bytes) -> Mask:
    """Which are one of a few letters: compared one by one, as that is many at a time."""
    found: Mask = letter == letters[0]
    for one in letters[1:]:
        found |= letter == one
    return found


def _escaped(byte: U8) -> I64:
    """Offsets of the characters that a backslash escapes."""
    slash = np.flatnonzero(byte == _BACKSLASH)
    fresh = np.ones(len(slash), bool)
    fresh[1:] = np.diff(slash) != 1
    run = np.flatnonzero(fresh)
    place = np.arange(len(slash)) - np.repeat(run, np.diff(np.append(run, len(slash))))
    target = slash[place % 2 == 0] + 1
    within: I64 = target[target < len(byte)]
    return within


def _trusted(text: Text, begin: I64, end: I64, start: I64, bad: Mask) -> tuple[int, int, bool, bool]:
    """How many objects can be trusted, up to where the text is accounted for, whether the list ends there, and
    whether what follows may be an object that is not complete yet."""
    count, sound = len(begin), True
    if bad.any():
        sound = False
        count = int(np.searchsorted(end, start[np.argmax(bad)], side="right"))
    gap_from = np.append(0, end[:count])
    gap_to = np.append(begin, text.size)[: count + 1]
    length = gap_to - gap_from
    odd = np.flatnonzero(length > 8)
    word = text.word[gap_from] & _LOW[np.minimum(length, 8)]
    other = word[word != word[len(word) // 2]]  # nearly all gaps are alike
    strange = [
        w
        for w in {*other.tolist(), int(word[len(word) // 2])}
        if w.to_bytes(8, "little").strip(b", \t\r\n\0")
    ]
    if strange:
        odd = np.flatnonzero((length > 8) | np.isin(word, np.array(strange, np.uint64)))
    for i in odd.tolist():
        rest = text.raw[gap_from[i] : gap_to[i]].strip(b", \t\r\n")
        if not rest:
            continue
        used = int(end[i - 1]) if i else 0
        closed = rest[:1] == b"]"
        if not closed and i == len(begin) and rest[:1] == b"{":
            continue  # the object that is not complete
        return i, used, closed, closed
    return count, int(end[count - 1]) if count else 0, False, sound


class Keys:
    """A few wanted keys, told apart with one multiplication: `find` gives each key's number (-1: not wanted)."""

    def __init__(self, names: list[bytes]) -> None:
        self.names = names
        words = [int.from_bytes(n[:8], "little") for n in names]
        marks = [(w, len(n)) for w, n in zip(words, names, strict=True)]
        assert len(set(marks)) == len(marks)
        factor = 0x9E3779B97F4A7C15
        while True:
            slots = [self._slot(w, s, factor) for w, s in marks]
            if len(set(slots)) == len(slots):
                break
            factor = (factor * 6364136223846793005 + 1442695040888963407) % 2**64 | 1
        self._factor = np.uint64(factor)
        self._number = np.full(4096, -1, np.int8)
        self._number[slots] = range(len(names))
        self._word = np.array(words, np.uint64)
        self._size = np.array([len(n) for n in names])
        self._last = np.array([int.from_bytes(n[-8:], "little") for n in names], np.uint64)
        self._long = [i for i, n in enumerate(names) if len(n) > 16]

    @staticmethod
    def _slot(word: int, size: int, factor: int) -> int:
        return ((word + size) * factor % 2**64) >> 52

    def find(self, text: Text, at: I64, size: I64) -> npt.NDArray[np.int8]:
        """The number of the name that stands at each offset, exactly."""
        word = text.word[at] & _LOW.take(size, mode="clip")
        slot = (word + size.view(np.uint64)) * self._factor
        slot >>= np.uint64(52)
        number = self._number[slot.view(np.int64)]
        some = np.flatnonzero(number >= 0)
        candidate, long = number[some], size[some]
        wrong = (self._word[candidate] != word[some]) | (self._size[candidate] != long)
        rest = np.flatnonzero(long > 8)  # longer than a word: the last eight letters too
        end = at[some[rest]] + long[rest]
        wrong[rest] |= text.word[end - 8] != self._last[candidate[rest]]
        number[some[wrong]] = -1
        for i in self._long:
            rows = np.flatnonzero(number == i)
            name = self.names[i]
            for k in range(8, len(name) - 8, 8):
                same = text.word[at[rows] + k] == np.uint64(int.from_bytes(name[k : k + 8], "little"))
                number[rows[~same]] = -1
                rows = rows[same]
        return number


def _digits(text: Text, at: I64) -> tuple[U64, I64]:
    """The number that up to eight digits at each offset make, and how many they are."""
    word = text.word[at] ^ np.uint64(0x3030303030303030)
    other = ((word + np.uint64(0x7676767676767676)) | word) & np.uint64(0x8080808080808080)
    lowest = (other & (~other + np.uint64(1))) >> np.uint64(7)
    count = np.where(other == 0, np.uint64(8), (lowest * np.uint64(0x0001020304050607)) >> np.uint64(56))
    room = (np.uint64(8) - count) * np.uint64(8)
    word = np.where(count == 0, np.uint64(0), word << (room & np.uint64(63)))
    word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    word = (word * np.uint64(10000) + (word >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    return word, count.astype(np.int64)


_TENS = 10 ** np.arange(9, dtype=np.int64)


def _whole(text: Text, at: I64) -> tuple[I64, I64, Mask]:
    """Digits at each offset: their number, where they end, and whether there are 1 to 18 of them."""
    word, count = _digits(text, at)
    value = word.astype(np.int64)
    end = at + count
    good = count > 0
    more = np.flatnonzero(count == 8)
    for last in (False, True):
        if not len(more):
            break
        everyone = len(more) == len(at)
        word, count = _digits(text, end if everyone else end[more])
        if last:
            good[more[count > 2]] = False
            count = np.minimum(count, 2)
            word = np.where(good[more], word, np.uint64(0))
        value[more] = value[more] * _TENS[count] + word.astype(np.int64)
        end[more] += count
        more = more[count == 8]
    return value, end, good


def integers(text: Text, at: I64) -> tuple[I64, Mask]:
    """The integers at offsets, in quotes or not, and whether each is one (of at most 18 digits)."""
    if not len(at):
        return np.zeros(0, np.int64), np.zeros(0, bool)
    first = text.byte[at]
    quoted = first == _QUOTE
    if quoted.any():
        at = at + quoted
        first = text.byte[at]
    minus = first == 45
    if minus.any():
        at = at + minus
    value, end, good = _whole(text, at)
    stop = text.byte[end]
    good &= _among(stop, _ENDS_NUMBER) & ((stop == _QUOTE) == quoted)
    return np.where(minus, -value, value), good


def microseconds(text: Text, at: I64) -> tuple[I64, Mask]:
    """Decimal microseconds at offsets as integer ns (rounded to even beyond three decimals, eight at most), and
    whether each is one below 2^63 ns."""
    if not len(at):
        return np.zeros(0, np.int64), np.zeros(0, bool)
    minus = text.byte[at] == 45
    if minus.any():
        at = at + minus
    value, end, good = _whole(text, at)
    good &= value < 9_000_000_000_000_000
    ns = np.where(good, value, 0) * 1000
    point = np.flatnonzero(text.byte[end] == 46)
    if len(point):
        everyone = len(point) == len(at)
        word, count = _digits(text, (end if everyone else end[point]) + 1)
        good[point[(count == 0) | (count == 8)]] = False
        count = np.clip(count, 1, 7)
        fraction = word.astype(np.int64)
        part = fraction * _TENS[np.maximum(3 - count, 0)]
        fine = np.flatnonzero(count > 3)
        if len(fine):
            unit = _TENS[count[fine] - 3]
            low, rest = np.divmod(fraction[fine], unit)
            part[fine] = low + ((2 * rest > unit) | ((2 * rest == unit) & (low % 2 == 1)))
        ns[point] += part
        end[point] += 1 + count
    stop = text.byte[end]
    good &= _among(stop, _ENDS_NUMBER) & (stop != _QUOTE)
    return np.where(minus, -ns, ns), good
