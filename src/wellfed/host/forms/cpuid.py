"""Registers of the processors, as `hwloc-gather-cpuid` saves them: a folder with a file `puN` for each logical CPU.

A line is one answer of the CPUID instruction: a mask of the registers that were asked with (1 eax, 2 ebx, 4 ecx, 8 edx), their
values, `=>`, and eax, ebx, ecx and edx of the answer, all in hex. Who shares what follows from the CPU's own number (APIC
id): a group is the CPUs whose numbers agree above some bit. Rules are those of Intel's manual (volume 2A, CPUID; volume 3A,
9.9) and AMD's (APM volume 3, appendix E; BKDG of family 10h and 15h).

Memory nodes, offline CPUs and all settings are unknown: registers do not tell."""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from wellfed.host.archive import FolderTree, MemoryTree
from wellfed.host.parse import MAX_CPUS, gap, known
from wellfed.host.stated import StatedHost, numbered_groups, thread_facts
from wellfed.model.errors import WellfedError
from wellfed.model.fact import Fact

FORM = "a dump of CPUID"
_HEAD = "# mask e[abcd]x => e[abcd]x"
_LINE = re.compile(r"([0-9a-f]{1,2})((?: [0-9a-f]{1,8}){4}) =>((?: [0-9a-f]{1,8}){4})")
_READ = frozenset(f"{leaf:x}" for leaf in (0, 1, 4, 0xB, 0x1A, 0x1F))
_READ |= {f"{0x80000000 + leaf:x}" for leaf in (1, 2, 3, 4, 6, 8, 0x1D, 0x1E)}
"""Leaves that are looked at; a dump has thirty."""
_FILE = re.compile(r"pu(\d{1,5})")
_FILE_BYTES = 32 << 10
"""A file of a real CPU has about 5 kB."""
_DEPTH = 2
_FOLDERS_SEARCHED = 100
_ECX = 4
_SMT = 1
_AMD = ("AuthenticAMD", "HygonGenuine")
_INTEL = ("GenuineIntel", "CentaurHauls", "Shanghai")
"""Zhaoxin's parts answer as Intel's do."""
_KINDS = {0x20: "efficiency", 0x40: "performance"}

Leaf = tuple[int, int, int, int]


class Ids(NamedTuple):
    """Where one CPU is. Each is a number that CPUs of the same group share; `l3` is None without such a cache."""

    package: int
    core: int
    l3: tuple[int, int] | None = None
    l3_bytes: int | None = None
    kind: str | None = None


def _four(text: str) -> Leaf:
    eax, ebx, ecx, edx = (int(word, 16) for word in text.split())
    return eax, ebx, ecx, edx


class Registers:
    """The answers of one CPU."""

    def __init__(self, text: str) -> None:
        self.answers: dict[int, list[tuple[int, Leaf, Leaf]]] = {}
        for line in text.splitlines():
            if line.partition(" ")[2].partition(" ")[0] not in _READ:
                continue
            match = _LINE.fullmatch(line.strip())
            if match:
                asked, got = _four(match[2]), _four(match[3])
                self.answers.setdefault(asked[0], []).append((int(match[1], 16), asked, got))

    def leaf(self, number: int, sub: int = 0) -> Leaf | None:
        """The answer for this leaf; `sub` counts only where the CPU looks at it."""
        for used, asked, got in self.answers.get(number, ()):
            if not used & _ECX or asked[2] == sub:
                return got
        return None

    def subs(self, number: int, most: int = 16) -> list[Leaf]:
        found = (self.leaf(number, sub) for sub in range(most))
        rows = self.answers.get(number, ())
        several = any(used & _ECX for used, _, _ in rows)
        return [one for one in found if one is not None] if several else []

    @property
    def vendor(self) -> str:
        _, ebx, ecx, edx = self.leaf(0) or (0, 0, 0, 0)
        return _letters(ebx, edx, ecx)

    @property
    def family(self) -> int:
        eax = (self.leaf(1) or (0,))[0]
        base = eax >> 8 & 0xF
        return base + (eax >> 20 & 0xFF) if base == 15 else base

    @property
    def model(self) -> int:
        eax = (self.leaf(1) or (0,))[0]
        return eax >> 4 & 0xF | eax >> 12 & 0xF0


def open_cpuid(tree: MemoryTree | FolderTree, spec: str) -> StatedHost | None:
    """The machine of a dump; None when the tree holds none. Raises WellfedError for a dump that cannot be understood."""
    folder = _folder(tree)
    if folder is None:
        return None
    found = {int(match[1]): name for name in tree.names(folder) if (match := _FILE.fullmatch(name))}
    if len(found) > MAX_CPUS:
        raise WellfedError(f"`{spec}` has more than {MAX_CPUS:,} CPUs", hint="hwloc-gather-cpuid")
    try:
        facts = read_cpuid(
            (cpu, _text(tree, f"{folder.rstrip('/')}/{name}")) for cpu, name in sorted(found.items())
        )
    except ValueError as error:
        raise WellfedError(f"`{spec}` is no sound {FORM[2:]}: {error}", hint="hwloc-gather-cpuid") from error
    return StatedHost(origin=spec, form=FORM, stated=facts, notes=tree.notes)


def _folder(tree: MemoryTree | FolderTree) -> str | None:
    """The folder that holds `pu0` or others, at most two levels down."""
    level, seen = ["/"], 0
    for _ in range(_DEPTH + 1):
        below: list[str] = []
        for folder in level:
            seen += 1
            base = folder.rstrip("/")
            names = tree.names(folder) if folder == "/" or tree.link(folder) is None else ()
            first = next((name for name in names if _FILE.fullmatch(name)), None)
            if first is not None and _text(tree, f"{base}/{first}").startswith(_HEAD):
                return folder
            if seen < _FOLDERS_SEARCHED:
                below += [f"{base}/{name}" for name in names]
        level = below
    return None


def _text(tree: MemoryTree | FolderTree, path: str) -> str:
    if tree.link(path) is not None:
        return ""
    try:
        return tree.data(path, _FILE_BYTES)[:_FILE_BYTES].decode("ascii", "replace")
    except OSError:
        return ""


def read_cpuid(files: Iterable[tuple[int, str]]) -> list[Fact]:
    """Facts of the processors, from the number and the text of each. Raises ValueError where one does not say who it is."""
    ids: dict[int, Ids] = {}
    first: Registers | None = None
    numbers = set()
    for cpu, text in files:
        if not text.startswith(_HEAD):
            raise ValueError(f"CPU {cpu} has no answers")
        registers = Registers(text)
        first = first or registers
        ids[cpu] = _rule(registers.vendor)(registers)
        numbers.add(_apic(registers))
    if first is None:
        raise ValueError("it holds no CPU")
    if len(numbers) < len(ids):
        raise ValueError("several CPUs have one number: it was gathered without binding to each")
    core = numbered_groups({cpu: (one.package, one.core) for cpu, one in ids.items()})
    l3 = numbered_groups({cpu: one.l3 for cpu, one in ids.items() if one.l3 is not None})
    packages = numbered_groups({cpu: one.package for cpu, one in ids.items()})
    kinds = {one.kind for one in ids.values()}
    rows = [
        {
            "id": cpu,
            "core": core[cpu],
            "package": packages[cpu],
            "l3": l3.get(cpu),
            "kind": ids[cpu].kind if len(kinds) > 1 and None not in kinds else None,
        }
        for cpu in sorted(ids)
    ]
    facts = thread_facts(rows, "CPUID: 0x1, 0x4, 0xb, 0x1f, 0x8000001d, 0x8000001e", FORM)
    sizes = {one.l3: one.l3_bytes for one in ids.values() if one.l3 is not None}
    if sizes and None not in sizes.values():
        facts.append(
            known("cpu.l3_bytes", sum(size for size in sizes.values() if size), "CPUID: 0x4, 0x8000001d")
        )
    else:
        facts.append(gap("cpu.l3_bytes", "CPUID: 0x4", "unsupported", "no level 3 cache is shown"))
    return [*facts, *_identity(first)]


def _identity(first: Registers) -> list[Fact]:
    words = [word for leaf in (0x80000002, 0x80000003, 0x80000004) for word in first.leaf(leaf) or ()]
    name = _letters(*words)
    long_mode = (first.leaf(0x80000001) or (0, 0, 0, 0))[3] >> 29 & 1
    facts = [
        known("cpu.vendor", first.vendor, "CPUID: 0x0"),
        known("cpu.family", first.family, "CPUID: 0x1"),
        known("cpu.model", first.model, "CPUID: 0x1"),
        known("cpu.arch", "x86_64" if long_mode else "i686", "CPUID: 0x80000001"),
    ]
    if name:
        facts.append(known("cpu.model_name", name, "CPUID: 0x80000002"))
    else:
        facts.append(gap("cpu.model_name", "CPUID: 0x80000002", "unsupported", "the processor has no name"))
    return facts


def _letters(*words: int) -> str:
    text = b"".join(word.to_bytes(4, "little") for word in words).decode("ascii", "replace")
    return text.replace("\0", "").strip()


# -- who shares what ---------------------------------------------------------------------------------------


def _rule(vendor: str) -> Callable[[Registers], Ids]:
    if vendor in _AMD:
        return _amd
    if vendor in _INTEL:
        return _intel
    raise ValueError(f"`{vendor[:20]}` is no vendor whose numbering is known")


def _apic(registers: Registers) -> int:
    """The CPU's number: 32 bits where levels are told, else the 8 of leaf 1."""
    for leaf in (0x1F, 0xB):
        told = registers.leaf(leaf)
        if told is not None and told[1] & 0xFFFF:
            return told[3]
    one = registers.leaf(1)
    if one is None:
        raise ValueError("a CPU does not answer leaf 1")
    return one[1] >> 24


def _levels(registers: Registers) -> tuple[int, int] | None:
    """Bits below the core and below the package, from the list of levels; None when there is none."""
    for leaf in (0x1F, 0xB):
        levels = []
        for eax, ebx, ecx, _ in registers.subs(leaf):
            if not ebx & 0xFFFF or not ecx >> 8 & 0xFF:
                break
            levels.append((ecx >> 8 & 0xFF, eax & 0x1F))
        if levels:
            smt = levels[0][1] if levels[0][0] == _SMT else 0
            return smt, levels[-1][1]
    return None


def _bits(count: int) -> int:
    """Bits that number so many things."""
    return max(count - 1, 0).bit_length()


def _intel(registers: Registers) -> Ids:
    apic = _apic(registers)
    caches = registers.subs(4)
    smt, package = _levels(registers) or _before_levels(registers, caches)
    shared = [cache for cache in caches if cache[0] & 0x1F and cache[0] >> 5 & 7 == 3]
    l3 = (shared[0][0] >> 14 & 0xFFF) + 1 if shared else None
    kind = _KINDS.get((registers.leaf(0x1A) or (0,))[0] >> 24)
    return Ids(
        package=apic >> package,
        core=apic >> smt,
        l3=None if l3 is None else (apic >> package, apic >> _bits(l3)),
        l3_bytes=_bytes(shared[0]) if shared else None,
        kind=kind,
    )


def _before_levels(registers: Registers, caches: list[Leaf]) -> tuple[int, int]:
    """Of processors before x2APIC: threads of a package in leaf 1, when bit 28 says that they count; cores in leaf 4."""
    one = registers.leaf(1) or (0, 0, 0, 0)
    threads = one[1] >> 16 & 0xFF if one[3] >> 28 & 1 else 1
    cores = (caches[0][0] >> 26) + 1 if caches and caches[0][0] & 0x1F else 1
    package = max(_bits(threads), _bits(cores))
    return package - _bits(cores), package


def _amd(registers: Registers) -> Ids:
    apic = _apic(registers)
    size = registers.leaf(0x80000008) or (0, 0, 0, 0)
    count = (size[2] & 0xFF) + 1
    # Bits of the number within a package; 0 on the oldest parts, which only say how many cores there are.
    package = size[2] >> 12 & 0xF or _bits(count)
    smt = 0
    topology = registers.leaf(0x8000001E) if _has_topology(registers) else None
    levels = _levels(registers)
    if levels is not None:
        smt, package = levels
    elif topology is not None and registers.family >= 0x17:
        smt = _bits((topology[1] >> 8 & 0xFF) + 1)
    # Up to family 16h units of two share a front end, and each has integer cores of its own: those are counted.
    shared, size_bytes = _amd_l3(registers, apic, package, count, topology)
    return Ids(package=apic >> package, core=apic >> smt, l3=shared, l3_bytes=size_bytes)


def _has_topology(registers: Registers) -> bool:
    return bool((registers.leaf(0x80000001) or (0, 0, 0, 0))[2] >> 22 & 1)


def _amd_l3(
    registers: Registers, apic: int, package: int, count: int, topology: Leaf | None
) -> tuple[tuple[int, int] | None, int | None]:
    socket = apic >> package
    if topology is not None:
        caches = [cache for cache in registers.subs(0x8000001D) if cache[0] & 0x1F and cache[0] >> 5 & 7 == 3]
        if not caches:
            return None, None
        if registers.family <= 0x16:  # one for each of the nodes in a package
            return (socket, topology[2] & 0xFF), _bytes(caches[0])
        # Numbers leave room for cores that are fused off: six threads share what has room for eight.
        return (socket, apic >> _bits((caches[0][0] >> 14 & 0xFFF) + 1)), _bytes(caches[0])
    old = registers.leaf(0x80000006)
    half_mib = old[3] >> 18 if old is not None else 0
    if not half_mib:
        return None, None
    if registers.family == 0x10 and registers.model == 9:  # two dies in a package, cores numbered die by die
        within = apic & ((1 << package) - 1)
        return (socket, within // max(count // 2, 1)), half_mib << 18
    return (socket, 0), half_mib << 19


def _bytes(cache: Leaf) -> int:
    """Ways, partitions, line and sets, each less one in the register."""
    _, ebx, sets, _ = cache
    return ((ebx >> 22) + 1) * ((ebx >> 12 & 0x3FF) + 1) * ((ebx & 0xFFF) + 1) * (sets + 1)
