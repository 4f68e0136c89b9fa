"""Laying out styled text in terminal cells: flowing paragraphs, aligned columns, bars, and the painting.

A span is (text, style); a line is a list of spans. Width is counted before any colour is added.
"""

from collections.abc import Iterable, Sequence

from wellfed.report import words

Span = tuple[str, str]
Line = list[Span]

STYLES: dict[str, str] = {
    "head": "1",
    "dim": "2",
    "error": "1;31",
    "warning": "1;33",
    "info": "36",
    "good": "32",
    "code": "36",
    "compute": "34",
    "comm": "33",
    "copy": "35",
    "idle": "31",
    "overhead": "2",
    "unknown": "2",
}
"""SGR parameters of the sixteen colours that every terminal theme defines. No meaning is in colour alone."""

ASCII = str.maketrans(
    {
        words.ELLIPSIS: "~", "█": "#", "▌": "#", "▐": "#", "µ": "u", "°": "", words.NBSP: " ", "─": "-",
    }
)  # fmt: skip


def cells(line: Line) -> int:
    return sum(words.cells(text) for text, _ in line)


def prose(text: str, style: str = "") -> list[Span]:
    """Our own or foreign one-line text as spans: cleaned, units bound, code between backticks marked."""
    shown = words.keep_units(words.clean(text))
    return [(piece, "code" if is_code else style) for is_code, piece in words.code_spans(shown)]


def flow(
    spans: Iterable[Span], width: int, *, first: Sequence[Span] = (), rest: int = 0, whole: bool = False
) -> list[Line]:
    """Wraps spans to `width` cells. `first` opens the first line, `rest` spaces open the others. A word
    longer than a line is folded, unless it is a number or `whole` is set (commands, remedies): then it is
    broken across lines, nothing lost."""
    lines: list[Line] = []
    line: Line = list(first)
    used, start = cells(line), True
    for word in _words(spans):
        pieces: list[Line] = [word]
        room = width - (used if start and not lines else rest)
        if cells(word) > width - rest and cells(word) > room:
            pieces = _fit(word, max(room, 8) if start else width - rest, width - rest, whole)
        for piece in pieces:
            gap = 0 if start else 1
            if not start and used + gap + cells(piece) > width:
                lines.append(line)
                line, used, gap = [(" " * rest, "")], rest, 0
            if gap:
                line.append((" ", piece[0][1] if piece[0][1] == line[-1][1] else ""))
            line += piece
            used += gap + cells(piece)
            start = False
    lines.append(line)
    return lines


def command(text: str, width: int, *, first: Sequence[Span] = (), rest: int = 0) -> list[Line]:
    """A shell command over as many lines as it takes, joined by ` \\` so that it works when pasted; only
    spaces outside quotes become line breaks. One argument longer than a line is broken without a mark."""
    quote = ""
    out = []
    for char in words.clean(text):
        if char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        out.append(words.NBSP if char == " " and quote else char)
    shown = "".join(out)
    longest = max(map(words.cells, shown.split(" ")))
    if longest > width - max(rest, cells(list(first))) - 2:
        return flow([(shown.replace(words.NBSP, " "), "code")], width, first=first, rest=rest, whole=True)
    lines = flow([(shown, "code")], width - 2, first=first, rest=rest, whole=True)
    for line in lines[:-1]:
        line.append((" \\", "code"))
    return lines


def _words(spans: Iterable[Span]) -> Iterable[Line]:
    """Words of a paragraph; a word may join pieces of several styles."""
    word: Line = []
    for text, style in spans:
        for at, piece in enumerate(text.split(" ")):
            if at and word:
                yield word
                word = []
            if piece:
                word.append((piece, style))
    if word:
        yield word


def _fit(word: Line, room: int, full: int, whole: bool) -> list[Line]:
    text, style = "".join(text for text, _ in word), word[0][1]
    if not whole and (folded := words.fold_token(text, full)) is not None:
        return [[(folded, style)]]
    pieces = []
    while text:
        piece = words.take(text, room) or text[0]
        pieces.append([(piece, style)])
        text, room = text[len(piece) :], full
    return pieces


def columns(
    rows: Sequence[Sequence[Span]], width: int, *, align: str, flexible: int = 0, indent: int = 2
) -> list[Line]:
    """A table: `align` has `l` or `r` for each column; the flexible column folds (names, never numbers) so
    that the rest fits. Cells are cleaned by the caller."""
    if not rows:
        return []
    widths = [max(words.cells(row[at][0]) for row in rows) for at in range(len(align))]
    gaps = 2 * (len(align) - 1) + indent
    others = sum(widths) - widths[flexible]
    widths[flexible] = max(min(widths[flexible], width - gaps - others), 1)
    out = []
    for row in rows:
        line: Line = [(" " * indent, "")]
        for at, (text, style) in enumerate(row):
            text = words.fold(text, widths[at])
            pad = " " * (widths[at] - words.cells(text))
            if at:
                line.append(("  ", ""))
            line += [(pad, ""), (text, style)] if align[at] == "r" else [(text, style), (pad, "")]
        out.append(line)
    return out


def bar(start: float, end: float, width: int) -> str:
    """A bar from `start` to `end` (shares of the whole) in `width` cells, in steps of half a cell; whatever
    takes time shows at least half a cell."""
    first = min(round(start * width * 2), width * 2 - 1)
    last = min(max(round(end * width * 2), first + 1), width * 2)
    out = " " * (first // 2)
    if first % 2:
        out += "▐"
        first += 1
    out += "█" * ((last - first) // 2)
    return out + ("▌" if last > first and (last - first) % 2 else "")


def paint(lines: Iterable[Line], *, width: int, color: bool, ascii_only: bool = False) -> str:
    """The text: each line cut to the width as a last defence, trailing blanks off, one newline at the end."""
    out = []
    for line in lines:
        if ascii_only:
            line = [
                (text.translate(ASCII).encode("ascii", "replace").decode(), style) for text, style in line
            ]
        if cells(line) > width:
            cut = words.take("".join(text for text, _ in line), width - 1)
            line = [(cut + ("~" if ascii_only else words.ELLIPSIS), "")]
        painted = "".join(_painted(text, style) if color else text for text, style in line)
        out.append(painted.rstrip().replace(words.NBSP, " "))
    return "\n".join(out).rstrip("\n") + "\n"


def _painted(text: str, style: str) -> str:
    code = STYLES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if code and text.strip() else text
