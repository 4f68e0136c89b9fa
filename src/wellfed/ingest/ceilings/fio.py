"""fio's JSON (`--output-format=json` or `json+`). Jobs that ran at the same time with the same settings are added up.

Format: fio, stat.c (`bw_bytes` since 3.0; `bw` is KiB/s).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from wellfed.ingest.ceilings.common import ceiling, finish, number, parse_json, read_text
from wellfed.model import Ceiling

_SIZE = re.compile(r"(\d+)([kmg]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class _Job(NamedTuple):
    """`key` is what jobs that are added up share: group, direction, pattern, block size, whether past the page cache."""

    key: tuple[int, str, str, int, bool]
    bytes_s: float
    iops: float
    cv: float | None
    samples: int
    depth: int
    median_us: float | None


def matches(head: str, name: str) -> bool:
    return ('"fio version"' in head and '"jobs"' in head) or ('"clat_ns"' in head and '"bw_bytes"' in head)


def read(path: Path) -> list[Ceiling]:
    """Rates by pattern and block size: `storage-read-seq` in MB/s, `storage-read-rand` in IOPS, and those of writing."""
    text, damage = read_text(path)
    value, whole = parse_json(text)
    root = value if whole and isinstance(value, dict) else {}
    jobs = root.get("jobs") if whole else value
    common = root.get("global options")
    common = common if isinstance(common, dict) else {}
    found: dict[Any, list[_Job]] = {}
    lost = 0 if whole else 1
    for one in jobs if isinstance(jobs, list) else ():
        rows = list(_jobs(one, common))
        lost += not rows
        for row in rows:
            found.setdefault(row.key, []).append(row)
    version = re.search(r'"fio version" *: *"([^"]+)"', text)
    tool = version[1].replace("fio-", "fio ") if version else "fio"
    return finish([_ceiling(rows, tool, path) for rows in found.values()], lost, damage)


def _jobs(one: Any, common: dict[str, Any]) -> Iterator[_Job]:
    if not isinstance(one, dict) or one.get("error"):
        return
    own = one.get("job options")
    options = {**common, **(own if isinstance(own, dict) else {})}
    pattern = str(options.get("rw", options.get("readwrite", "")))
    is_random = "rand" in pattern or (not pattern and "rand" in str(one.get("jobname", "")))
    block = _bytes(str(options.get("bs", options.get("blocksize", "4k"))).split(",")[0])
    direct = str(options.get("direct", "0")) not in ("0", "false", "")
    depth = int(number(options.get("iodepth")) or 1) * int(number(options.get("numjobs")) or 1)
    group = int(number(one.get("groupid")) or 0)
    for way in ("read", "write"):
        body = one.get(way)
        if not isinstance(body, dict):
            continue
        rate = number(body.get("bw_bytes"))
        if rate is None:
            rate = (number(body.get("bw")) or 0.0) * 1024
        iops = number(body.get("iops")) or 0.0
        if rate <= 0 or iops <= 0:
            continue
        mean, spread = number(body.get("iops_mean")), number(body.get("iops_stddev"))
        samples = int(number(body.get("iops_samples")) or 0)
        cv = spread / mean if mean and spread is not None and samples > 1 else None
        key = (group, way, "rand" if is_random else "seq", block, direct)
        yield _Job(key, rate, iops, cv, samples, depth, _median_us(body))


def _median_us(body: dict[str, Any]) -> float | None:
    for name in ("clat_ns", "lat_ns"):
        times = body.get(name)
        shares = times.get("percentile") if isinstance(times, dict) else None
        if isinstance(shares, dict) and (found := number(shares.get("50.000000"))) is not None:
            return found / 1e3
    return None


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2].lower()] if match else 4096


def _ceiling(rows: list[_Job], tool: str, path: Path) -> Ceiling:
    _, way, pattern, block, direct = rows[0].key
    rate, iops = sum(r.bytes_s for r in rows), sum(r.iops for r in rows)
    is_random = pattern == "rand"
    spreads = [r.cv for r in rows if r.cv is not None]
    cached = "" if direct else ".cached"
    median = [r.median_us for r in rows if r.median_us is not None]
    return ceiling(
        f"storage-{way}-{pattern}{cached}",
        f"storage, {way}, {'random' if is_random else 'in sequence'}, {block} B",
        [iops if is_random else rate / 1e6],
        tool=tool,
        method=f"{'O_DIRECT' if direct else 'through the page cache'}, {len(rows)} jobs, depth {rows[0].depth}",
        unit="IOPS" if is_random else "MB/s",
        path=path,
        n=max((r.samples for r in rows), default=0) or 1,
        cv=max(spreads) if spreads else None,
        why=None if direct else "through the page cache: not the device alone",
        size=f"{block} B",
        threads=len(rows),
        environment={"bytes_s": rate, "iops": iops, **({"latency_p50_us": max(median)} if median else {})},
    )
