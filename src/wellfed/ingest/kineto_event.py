"""One event of a Kineto trace, read by itself: its types, its category, and how a broken one is mended.

Times come from the decimal text exactly: 1 us of text is 1000 ns, also where a double cannot hold it.
"""

import re
from typing import Any

import msgspec
import numpy as np

from wellfed.ingest.pieces import BROKEN, object_end
from wellfed.model.timeline import Cat

Loose = int | float | str | None

CATEGORIES: dict[str, Cat] = {
    "cpu_op": Cat.OP,
    "Operator": Cat.OP,
    "user_annotation": Cat.ANNOTATION,
    "cuda_runtime": Cat.RUNTIME,
    "Runtime": Cat.RUNTIME,
    "hpu_op": Cat.RUNTIME,
    "cuda_driver": Cat.DRIVER,
    "python_function": Cat.PYTHON,
    "overhead": Cat.OVERHEAD,
    "kernel": Cat.KERNEL,
    "Kernel": Cat.KERNEL,
    "gpu kernel": Cat.KERNEL,
    "gpu_memcpy": Cat.MEMCPY,
    "Memcpy": Cat.MEMCPY,
    "gpu_memset": Cat.MEMSET,
    "Memset": Cat.MEMSET,
    "gpu_user_annotation": Cat.GPU_ANNOTATION,
    "cuda_sync": Cat.SYNC,
    "mtia_ccp_events": Cat.OTHER,
    "collective_comm": Cat.OTHER,
}
"""The categories of libkineto (ActivityType.h; `hpu_op` is a host-side runtime event there, `mtia_ccp_events` the
control processor of a device whose kernels are `kernel`). Flow arrows (`ac2g`, `fwdbwd`, `async_cpu_to_gpu`) and
counters are no rows."""
_FAMILIES = (("runtime", Cat.RUNTIME), ("driver", Cat.DRIVER), ("sync", Cat.SYNC))
"""Devices of other makers name theirs alike: xpu_runtime, mtia_runtime, glow_runtime, privateuse1_driver, xpu_sync."""


def category(name: str) -> int:
    """The category of an event that its writer called `name`; -1 for what makes no row."""
    known = CATEGORIES.get(name)
    if known is not None:
        return int(known)
    for family, cat in _FAMILIES:
        if name == family or name.endswith("_" + family):
            return int(cat)
    return -1


ARG_NAMES = {
    "ext": "External id",
    "ext_old": "external id",
    "size": "bytes",
    "dims": "Input Dims",
    "dims_old": "Input dims",
    "types": "Input type",
    "concrete": "Concrete Inputs",
    "strides": "Input Strides",
    "coll": "Collective name",
    "coll_in": "In msg nelems",
    "coll_out": "Out msg nelems",
    "group_size": "Group size",
    "group_name": "Process Group Name",
    "group_ranks": "Process Group Ranks",
    "comm_seq": "Seq",
    "comm_type": "dtype",
    "source": "Src Rank",
    "target": "Dst Rank",
}


class Args(msgspec.Struct, gc=False, rename=ARG_NAMES):
    """The arguments that the columns hold. Unknown ones are skipped by the decoder for free."""

    correlation: Loose = None
    ext: Loose = None
    ext_old: Loose = None
    stream: Loose = None
    device: Loose = None
    size: Loose = None
    wait_on_cuda_event_record_corr_id: Loose = None
    dims: msgspec.Raw = msgspec.Raw(b"")
    dims_old: msgspec.Raw = msgspec.Raw(b"")
    types: msgspec.Raw = msgspec.Raw(b"")
    concrete: msgspec.Raw = msgspec.Raw(b"")
    strides: msgspec.Raw = msgspec.Raw(b"")
    coll: Any = None
    coll_in: Loose = None
    coll_out: Loose = None
    group_size: Loose = None
    group_name: Loose = None
    group_ranks: Any = None
    comm_seq: Loose = None
    comm_type: Any = None
    source: Loose = None
    target: Loose = None


class Event(msgspec.Struct, gc=False):
    """One event; of the times the digits as they stand in the file."""

    ph: str = ""
    cat: str = ""
    name: Any = ""
    pid: Loose = None
    tid: Loose = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: Args | None = None


NO_ARGS = Args()
NO_TIME = np.iinfo(np.int64).min
_LIST = msgspec.json.Decoder(list[Event])
_ONE = msgspec.json.Decoder(Event)
_TEXT = msgspec.json.Decoder(str)
_MENDABLE = 1 << 20
"""A broken event longer than this is not searched for its fields."""


def decode_list(body: bytes) -> list[Event] | None:
    """The events of a list's text (without its brackets), None if any of it is broken."""
    try:
        return _LIST.decode(b"[" + body.strip(b", \t\r\n") + b"]")
    except BROKEN:
        return None


def decode_one(text: bytes) -> tuple[Event | None, int]:
    """The event that a text begins with, and where its text ends."""
    body = text.rstrip(b", \t\r\n")
    for end in (len(body), object_end(body, 0, len(body))):
        try:
            return _ONE.decode(body[:end]), end
        except BROKEN:
            continue
    return None, 0


def decode_text(raw: bytes) -> str | None:
    """The text between two quotes, None when it is not strict JSON."""
    try:
        return _TEXT.decode(b'"' + raw + b'"')
    except BROKEN:
        return None


_FIELD = {
    key: re.compile(rb'"' + key.encode() + rb'"\s*:\s*("?)([^",}\n]*)\1')
    for key in ("ph", "cat", "pid", "tid", "ts", "dur", "correlation", "stream", "device", "bytes")
}
_NAME = re.compile(rb'"name"\s*:\s*"')
_NEXT = re.compile(rb'"\s*,\s*"(?:pid|tid|ts|cat|ph|dur|args|s|id)"\s*:')


def mend(text: bytes) -> Event | None:
    """An event whose text is not JSON (bare quotes, control characters, bad UTF-8, NaN): its fields are
    picked out one by one. None when it has no readable start, so that nothing is made up."""
    if len(text) > _MENDABLE:
        return None
    found = {
        key: m.group(2).decode("utf-8", "replace").strip()
        for key, r in _FIELD.items()
        if (m := r.search(text))
    }
    if found.get("ph") != "X":
        return Event(ph=found["ph"]) if found.get("ph") else None
    if not found.get("cat"):
        return None
    if not _NUMBER.fullmatch(found.get("ts", "")) or not _NUMBER.fullmatch(found.get("dur", "0")):
        return None
    name = _NAME.search(text)
    after = _NEXT.search(text, name.end()) if name else None
    label = text[name.end() : after.start()].decode("utf-8", "replace") if name and after else "unreadable"
    label = "".join(c if c.isprintable() else "?" for c in label)
    return Event(
        ph="X",
        cat=found.get("cat", ""),
        name=label,
        pid=found.get("pid"),
        tid=found.get("tid"),
        ts=msgspec.Raw(found["ts"].encode()),
        dur=msgspec.Raw(found.get("dur", "").encode()),
        args=Args(
            correlation=found.get("correlation"),
            stream=found.get("stream"),
            device=found.get("device"),
            size=found.get("bytes"),
        ),
    )


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def digits_ns(value: msgspec.Raw, missing: int = NO_TIME) -> int:
    """Microseconds as the file wrote them (number or text) as exact integer ns; `missing` when it is no number
    that 64 bits can hold."""
    text = bytes(value).decode("utf-8", "replace").strip().strip('"')
    if not _NUMBER.fullmatch(text):
        return missing
    if "e" in text or "E" in text:
        number = float(text) * 1000.0
        return round(number) if abs(number) < 9.2e18 else missing
    whole, _, fraction = text.partition(".")
    if len(whole) > 20:
        return missing
    sign = -1 if whole.startswith("-") else 1
    ns = abs(int(whole)) * 1000 + round(int((fraction + "000000")[:6]) / 1000)
    return sign * ns if ns < 9_200_000_000_000_000_000 else missing


def length_ns(value: msgspec.Raw) -> int:
    """A duration as `digits_ns` reads it: 0 where there is none, -1, which none can be, where it is no number."""
    return digits_ns(value, 0 if bytes(value).strip() in (b"", b"null") else -1)


def as_small_int(value: Any) -> int:
    """An integer of any spelling (7, "7", "0x7f"); -1 where there is none or 64 bits cannot hold it."""
    number = as_int(value)
    return number if number is not None and -(2**63) <= number < 2**63 else -1


def as_int(value: Any) -> int | None:
    """The same without a limit, None where there is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if abs(value) < 2**63 else None
    text = str(value).strip()
    if re.fullmatch(r"-?[0-9]{1,19}", text):
        return int(text)
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,15}", text) else None
