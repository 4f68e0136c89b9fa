"""Damage of every kind that traces are found with, planted at known events of a trace whose truth is known."""

import gzip
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from trace_builder import Event, simulate

HEAD = '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], '
Row = tuple[str, str, int, int, int]
"""Category, name, start and length in ns, correlation."""


class Mutated(NamedTuple):
    """`data` is the file. `whole` are the rows of events that nothing happened to, `hit` is how many others there
    are. `plain` of those are still strict JSON: what they say now may be no event, and nothing is wrong with it."""

    data: bytes
    suffix: str
    kinds: list[str]
    whole: list[Row]
    hit: int
    plain: int


def base(rng: random.Random) -> list[Event]:
    events = simulate(steps=3, kernels=rng.randint(8, 30), sync=rng.random() < 0.5, pageable_us=50.0).events
    for k, event in enumerate(events):
        event["ts"] = round(event["ts"] + 5_000_000_000.0, 3)
        event["args"]["External id"] = k
    return events


def row(event: Event) -> Row:
    ns = [round(event[key] * 1000) for key in ("ts", "dur")]
    return (event["cat"], event["name"], ns[0], ns[1], event["args"].get("correlation", -1))


# -- what can happen to one event: its text, broken or made strange ---------------------------------------

Hit = Callable[[str, random.Random], str]


def _name(new: str) -> Hit:
    return lambda text, rng: _swap(text, "name", '"' + new + '"')


def _field(key: str, *values: str) -> Hit:
    return lambda text, rng: _swap(text, key, rng.choice(values))


def _swap(text: str, key: str, value: str) -> str:
    event = json.loads(text)
    target = event if key in event else event["args"]
    target[key] = "\0here\0"
    return json.dumps(event).replace('"\\u0000here\\u0000"', value)


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randint(1, len(text) - 1)]


def _without(letter: str) -> Hit:
    def change(text: str, rng: random.Random) -> str:
        places = [i for i, c in enumerate(text) if c == letter]
        at = rng.choice(places)
        return text[:at] + text[at + 1 :]

    return change


def _with(letter: str) -> Hit:
    def change(text: str, rng: random.Random) -> str:
        at = rng.randint(1, len(text))
        return text[:at] + letter + text[at:]

    return change


def _deep(text: str, rng: random.Random) -> str:
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}")])
    return _swap(text, "args", opening * 30_000 + "1" + closing * 30_000)


EVENT_KINDS: dict[str, Hit] = {
    "control character": _name("ge\x01mm"),
    "newline in a name": _name("ge\nmm"),
    "bare quote": _name('ge"mm'),
    "bare quotes": _name('f"a, "b": 3, "'),
    "bad UTF-8": _name("ge\udcff\udcfemm"),
    "Windows path": _name("C:\\Users\\x\\"),
    "NaN duration": _field("dur", "NaN", "Infinity", "-Infinity"),
    "NaN argument": _field("External id", "NaN", "-Infinity"),
    "negative duration": _field("dur", "-1", "-5.25", "-9e18"),
    "giant duration": _field("dur", "9e17", "1e308", "99999999999999999999999999", "9" * 5000),
    "zero": _field("ts", "0", "0.0", "-1"),
    "no number": _field("ts", "null", "true", '"x"', "1x2", "1.2.3", "--1", "[]", "{}"),
    "beyond 64 bits": _field("External id", str(2**70), "-" + str(2**64), "1e400", '"' + "9" * 30 + '"'),
    "missing comma": _without(","),
    "missing brace": _without("}"),
    "missing colon": _without(":"),
    "missing quote": _without('"'),
    "stray brace": _with("}"),
    "stray opening": _with("{"),
    "stray quote": _with('"'),
    "stray zero byte": _with("\0"),
    "cut": _cut,
    "deep nesting": _deep,
}
HARMLESS_KINDS: dict[str, Hit] = {
    "text tid": _field("tid", '"stream 7"', '"main"', "null", "-5", "7.0"),
    "text pid": _field("pid", '"python \\u00e9"', '""', "123456789012345678901234567890"),
    "hexadecimal ids": _field("External id", '"0x7f00"', '"12"', '"no"'),
    "exponent": lambda text, rng: _swap(text, "dur", f"{json.loads(text)['dur']:e}"),
    "more decimals": lambda text, rng: _swap(text, "dur", f"{json.loads(text)['dur']:.5f}"),
    "nested arguments": _field(
        "External id", '{"ts": 5, "name": "x", "args": {"correlation": 1}}', '[{"ph": "X"}]'
    ),
    "braces in a text": _field("External id", '"}{][,\\"ph\\": \\"X\\""', '"\\\\"', '"\\\\\\""'),
    "another order": lambda text, rng: json.dumps(dict(rng.sample(list(json.loads(text).items()), 8))),
    "white space": lambda text, rng: json.dumps(json.loads(text), indent=rng.randint(0, 9)),
}


# -- what can happen to a file ----------------------------------------------------------------------------


def layout(texts: list[str], rng: random.Random) -> tuple[str, str]:
    """The text of a file in some layout, and its name."""
    comma = rng.choice([",", ", ", ",\n", ",\r\n  ", " ,\n\n", ",\t"])
    body = comma.join(texts)
    kind = rng.choice(["kineto", "bare list", "metadata behind", "with BOM", "CRLF", "alone"])
    text = {
        "kineto": HEAD + '"traceEvents": [\n' + body + '\n  ],\n  "traceName": "x"\n}\n',
        "bare list": "[" + body + "]",
        "metadata behind": '{"traceEvents": [' + body + "], " + HEAD[1:].rstrip(", ") + "}",
        "with BOM": "\ufeff" + HEAD + '"traceEvents": [' + body + "]}",
        "CRLF": HEAD + '"traceEvents":\r\n[\r\n' + body + "\r\n]\r\n}\r\n",
        "alone": '{"traceEvents":[' + body + "]}",
    }[kind]
    return text, kind


def mutate(seed: int) -> Mutated:
    """One damaged trace. The same seed gives the same."""
    rng = random.Random(seed)
    events = base(rng)
    texts = [json.dumps(e, separators=rng.choice([(",", ":"), (", ", ": ")])) for e in events]
    names = sorted(EVENT_KINDS)
    kinds = [names[seed % len(names)], *rng.sample(sorted(HARMLESS_KINDS), 2)]
    touched: set[int] = set()
    for kind in kinds:
        change = EVENT_KINDS.get(kind) or HARMLESS_KINDS[kind]
        for at in rng.sample(range(len(texts)), rng.randint(1, 4)):
            if at not in touched:
                texts[at] = change(texts[at], rng)
                touched.add(at)
    for at in rng.sample(range(len(texts)), 2):
        if at not in touched and seed % 3 == 0:
            texts[at] += "," + texts[at]
            kinds.append("duplicate")
    text, shape = layout(texts, rng)
    data = text.encode("utf-8", "surrogateescape")
    if seed % 2:
        data = gzip.compress(data, mtime=0)
    whole = [row(e) for k, e in enumerate(events) if k not in touched]
    plain = sum(_is_json(texts[k]) for k in touched)
    return Mutated(data, ".json.gz" if seed % 2 else ".json", [*kinds, shape], whole, len(touched), plain)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=lambda name: json.loads(""))
        text.encode()
    except (ValueError, RecursionError):
        return False
    return True


def told(timeline: Any) -> list[Row]:
    """The rows of a timeline."""
    by_cat = {
        1: "cpu_op",
        2: "user_annotation",
        3: "cuda_runtime",
        7: "kernel",
        8: "gpu_memcpy",
        9: "gpu_memset",
    }
    return [
        (by_cat.get(c, "?"), timeline.names[n], t + timeline.base_ns, d, k)
        for c, n, t, d, k in zip(
            timeline.cat.tolist(),
            timeline.name.tolist(),
            timeline.ts.tolist(),
            timeline.dur.tolist(),
            timeline.corr.tolist(),
            strict=True,
        )
    ]
