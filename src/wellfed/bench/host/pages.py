"""Memory whose page size is chosen and known: anonymous mappings, and how much of one lies in huge pages.

Small pages cost a copy up to a third of its speed and a random load a page walk, so a result without the page
size can't be compared with another.
"""

import mmap
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HUGE = 2 << 20
"""A huge page of x86-64 and of arm64 with 4 KiB pages; others round to it without harm."""
_HEADER = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) [-rwxps]{4} ")

Bytes = npt.NDArray[np.uint8]


def allocate(size: int, *, huge: bool) -> Bytes:
    """`size` untouched bytes that begin at a huge page's border. Huge or small pages are asked for by madvise;
    where the system knows no such thing (macOS) it decides itself. Raises MemoryError."""
    try:
        window = _map(size + HUGE)
    except (OSError, ValueError) as error:
        raise MemoryError(f"no mapping of {size} bytes: {error}") from error
    advice = getattr(mmap, "MADV_HUGEPAGE" if huge else "MADV_NOHUGEPAGE", None)
    if advice is not None:
        try:
            window.madvise(advice)
        except OSError:
            pass  # a kernel without huge pages: small ones are what there is
    view = np.frombuffer(window, dtype=np.uint8)
    start = -view.ctypes.data % HUGE
    return view[start : start + size]


def _map(size: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def huge_share(array: npt.NDArray[Any], smaps: str | None = None) -> float | None:
    """Share of the resident memory around `array` that lies in huge pages, from /proc/self/smaps. A mapping
    beside it with the same rights counts with it. None where nobody tells or nothing is resident."""
    text = _read_smaps() if smaps is None else smaps
    start = int(array.ctypes.data)
    end = start + array.nbytes
    inside, resident, huge = False, 0, 0
    for line in text.splitlines():
        if header := _HEADER.match(line):
            inside = int(header[1], 16) < end and int(header[2], 16) > start
        elif inside and line.startswith("Rss:"):
            resident += int(line.split()[1])
        elif inside and line.startswith("AnonHugePages:"):
            huge += int(line.split()[1])
    return huge / resident if resident else None


def nodes_of(array: npt.NDArray[Any], numa_maps: str | None = None) -> dict[int, int] | None:
    """Pages by NUMA node of the mapping that holds `array`, from /proc/self/numa_maps: {node: pages}. None where
    nobody tells (a kernel without NUMA, a sandbox)."""
    text = _read("/proc/self/numa_maps") if numa_maps is None else numa_maps
    address = int(array.ctypes.data)
    best: tuple[int, dict[int, int]] | None = None
    for line in text.splitlines():
        start, _, rest = line.partition(" ")
        try:
            begins = int(start, 16)
        except ValueError:
            continue
        if begins <= address and (best is None or begins > best[0]):
            best = begins, {int(node): int(pages) for node, pages in re.findall(r"\bN(\d+)=(\d+)", rest)}
    return best[1] if best and best[1] else None


def _read_smaps() -> str:
    return _read("/proc/self/smaps")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
