"""Files that tell of a machine, made from its shape: lstopo's XML of three versions, CPUID of two vendors."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Shape(NamedTuple):
    """`caches` are level 3 caches of a package; cores of a package divide among them."""

    packages: int
    cores: int
    threads: int = 1
    caches: int = 1

    @property
    def cpus(self) -> int:
        return self.packages * self.cores * self.threads


def hex_mask(cpus: "set[int] | range") -> str:
    """As hwloc writes it: words of 32 bits, the highest first, empty ones for 0."""
    bits = sum(1 << cpu for cpu in cpus)
    words = []
    while bits or not words:
        words.append(bits & 0xFFFFFFFF)
        bits >>= 32
    return ",".join(f"0x{word:08x}" if word else "" for word in reversed(words)) or "0x0"


def lstopo(shape: Shape, version: int = 3, *, inside: str = "", head: str = "") -> str:
    """One NUMA node a package. CPUs are numbered as Linux does: first threads of all cores, then second ones. `inside` stands
    in the first package."""
    package, cache = ("Socket", 'type="Cache" depth="3"') if version == 1 else ("Package", 'type="L3Cache"')
    lines = []
    for p in range(shape.packages):
        cpus = {number(shape, p, c, t) for c in range(shape.cores) for t in range(shape.threads)}
        node = f'<object type="NUMANode" os_index="{p}" cpuset="{hex_mask(cpus)}" local_memory="{1 << 30}"'
        lines.append(f"{node}>" if version == 1 else "")
        lines.append(f'<object type="{package}" os_index="{p}" cpuset="{hex_mask(cpus)}">')
        lines.append("" if version == 1 else f"{node}/>")
        lines.append(inside if p == 0 else "")
        each = -(-shape.cores // shape.caches)
        for first in range(0, shape.cores, each):
            lines.append(f'<object {cache} cache_size="1048576">')
            for c in range(first, min(first + each, shape.cores)):
                pus = "".join(
                    f'<object type="PU" os_index="{number(shape, p, c, t)}"/>' for t in range(shape.threads)
                )
                lines.append(f'<object type="Core" os_index="{c}">{pus}</object>')
            lines.append("</object>")
        lines.append("</object>" * (2 if version == 1 else 1))
    every = hex_mask(range(shape.cpus))
    said = "" if version == 1 else f' version="{version}.0"'
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
        f'<topology{said}><object type="Machine" os_index="0" cpuset="{every}" complete_cpuset="{every}" '
        f'allowed_cpuset="{every}">{"".join(lines)}</object>{head}</topology>\n'
    )


def number(shape: Shape, package: int, core: int, thread: int) -> int:
    return (thread * shape.packages + package) * shape.cores + core


def pci(address: str, kind: str, inside: str = "", more: str = "") -> str:
    """A PCI device of lstopo: `kind` as `0302 [10de:2330]`."""
    return f'<object type="PCIDev" pci_busid="{address}" pci_type="{kind} [0000:0000] a1" {more}>{inside}</object>'


def bridge(address: str, inside: str) -> str:
    return (
        f'<object type="Bridge" bridge_type="1-1" pci_busid="{address}" pci_type="0604 [8086:0001] [0:0] 1">'
        f"{inside}</object>"
    )


# -- registers ---------------------------------------------------------------------------------------------


def bits(count: int) -> int:
    return (count - 1).bit_length()


def letters(text: str) -> list[int]:
    data = text.encode().ljust(48, b"\0")
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, 48, 4)]


def answer(mask: int, leaf: int, sub: int, *got: int) -> str:
    return f"{mask:x} {leaf:x} 0 {sub:x} 0 => " + " ".join(f"{one:x}" for one in got)


def intel(shape: Shape, *, levels: bool = True) -> Iterator[tuple[int, str]]:
    """Without `levels` as before x2APIC: eight bits of number, and how many cores and threads there may be."""
    smt, core = bits(shape.threads), bits(shape.cores)
    each = -(-shape.cores // shape.caches)
    # Numbers of a cache's CPUs must agree above some bit: cores of one cache start at a round number.
    core = bits(shape.caches) + bits(each)
    for p in range(shape.packages):
        for c in range(shape.cores):
            for t in range(shape.threads):
                place = (c // each) << bits(each) | c % each
                apic = (p << core | place) << smt | t
                lines = [
                    "# mask e[abcd]x => e[abcd]x",
                    answer(1, 0, 0, 0x1F, *(letters("GenuineIntel")[at] for at in (0, 2, 1))),
                    answer(1, 1, 0, 0x806F8, apic << 24 & 0xFF000000 | (1 << core + smt) << 16, 0, 1 << 28),
                    answer(5, 4, 0, ((1 << core) - 1) << 26 | 0x121, 0x1C0003F, 63, 0),
                    answer(5, 4, 1, ((1 << bits(each) + smt) - 1) << 14 | 0x163, 0x3C0003F, 1023, 0),
                    answer(5, 4, 2, 0, 0, 0, 0),
                    answer(1, 0x80000001, 0, 0, 0, 0, 1 << 29),
                ]
                if levels:
                    lines += [
                        answer(5, 0xB, 0, smt, shape.threads, 0x100, apic),
                        answer(5, 0xB, 1, smt + core, 99, 0x201, apic),
                        answer(5, 0xB, 2, 0, 0, 2, apic),
                    ]
                yield number(shape, p, c, t), "\n".join(lines) + "\n"


def zen(shape: Shape) -> Iterator[tuple[int, str]]:
    """AMD's 17h and later, without a list of levels."""
    smt = bits(shape.threads)
    each = -(-shape.cores // shape.caches)
    core = bits(shape.caches) + bits(each)
    for p in range(shape.packages):
        for c in range(shape.cores):
            for t in range(shape.threads):
                place = (c // each) << bits(each) | c % each
                apic = (p << core | place) << smt | t
                yield (
                    number(shape, p, c, t),
                    "\n".join(
                        [
                            "# mask e[abcd]x => e[abcd]x",
                            answer(1, 0, 0, 0xD, *(letters("AuthenticAMD")[at] for at in (0, 2, 1))),
                            answer(1, 1, 0, 0x800F12, apic << 24, 0, 1 << 28),
                            answer(1, 0x80000001, 0, 0, 0, 1 << 22, 1 << 29),
                            answer(1, 0x80000002, 0, *letters("AMD EPYC 0000")[:4]),
                            answer(
                                1,
                                0x80000008,
                                0,
                                0,
                                0,
                                (core + smt) << 12 | shape.cores * shape.threads - 1,
                                0,
                            ),
                            answer(5, 0x8000001D, 0, 0x4121, 0x1C0003F, 63, 0),
                            answer(
                                5, 0x8000001D, 1, (each * shape.threads - 1) << 14 | 0x163, 0x3C0003F, 1023, 1
                            ),
                            answer(5, 0x8000001D, 2, 0, 0, 0, 0),
                            answer(1, 0x8000001E, 0, apic, (shape.threads - 1) << 8, 0, 0),
                        ]
                    )
                    + "\n",
                )


def dump(folder: Path, files: Iterator[tuple[int, str]]) -> Path:
    folder.mkdir()
    (folder / "hwloc-cpuid-info").write_text("Architecture: x86\n")
    for cpu, text in files:
        (folder / f"pu{cpu}").write_text(text)
    return folder
