"""Real machines of the public corpus, what their sources say of them, and what we read.

    WELLFED_CORPUS=../shared/corpus python tests/host/corpus_machines.py docs/validation/host.md

writes the table; `test_corpus_core.py` asserts it. Expected counts never come from our own parsers: hwloc's expected
output, lscpu's expected output, names and notes of the source, or a line count of the snapshot's own cpuinfo."""

import gzip
import os
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from h200_page import section

from wellfed.host import host_of, look, open_host
from wellfed.model import Machine


class Known(NamedTuple):
    """One machine. `cpus` and `nodes` are what `source` says, None where it does not say; `note` is what is odd
    about the machine. `whole` counts it without regard to its cpuset."""

    name: str
    spec: str
    source: str
    cpus: int | None = None
    nodes: int | None = None
    note: str = ""
    whole: bool = False


class Seen(NamedTuple):
    """What we read of it. `cpus` are those that may be used: online, and inside the cpuset where one is recorded;
    `nodes` those with CPUs or memory, inside the cpuset's nodes where one is recorded."""

    known: Known
    cpus: int
    nodes: int
    gpus: str
    unread: str
    right: bool


# hwloc's first test file of a snapshot may hide what another shows.
_HWLOC_TEST = {"nvidiagpunumanodes": "nvidiagpunumanodes-kept"}
_NOTES = {
    "8em64t-2s2ca2c-buggynuma": "its 8 nodes claim all CPUs each: counted as one node, as hwloc does",
    "test1.fsroot": "a cpuset test without CPUs: nothing to count",
    "nvidiagpunumanodes": "6 of the 8 nodes are memory of GPUs; counted without its cpuset, of which hwloc reads the "
    "configured set (all) and we the effective one (CPUs 0-87, node 0); most CPUs were cut from this snapshot",
    "fakememinitiators-1np2c+1npp+gi": "5 nodes have neither CPUs nor memory (generic initiators)",
}


def machines(corpus: Path) -> list[Known]:
    """All host trees of the corpus."""
    root = corpus / "host"
    return [*_hwloc(root), *_lscpu(root), *_ghw(root), *_cri(root), *_procfs(root)]


def _hwloc(root: Path) -> Iterator[Known]:
    for folder in ("linux", "x86+linux"):
        tests = {
            path.stem: path.read_text("utf-8") for path in sorted((root / "hwloc" / folder).glob("*.test"))
        }
        for tar in sorted((root / "hwloc" / folder).glob("*.tar.bz2")):
            name = tar.name.removesuffix(".tar.bz2")
            ours = [
                stem
                for stem, text in tests.items()
                if re.search(rf"^source:\s*{re.escape(tar.name)}", text, re.M)
            ]
            test = _HWLOC_TEST.get(name) or (name if name in ours else min(ours, default=""))
            target = re.search(r"^target:\s*(\S+)", tests.get(test, ""), re.M)
            cpus, nodes = _hwloc_counts(tar.parent / target.group(1)) if target else (None, None)
            source = f"hwloc `{target.group(1)}`" if target else "hwloc"
            yield Known(
                name, str(tar), source, cpus or None, nodes or None, _NOTES.get(name, ""), name in _HWLOC_TEST
            )


def _hwloc_counts(target: Path) -> tuple[int, int]:
    text = target.read_text("utf-8", "replace")
    if target.suffix == ".xml":
        cpus = set(re.findall(r'type="PU" os_index="(\d+)"', text))
        return len(cpus), len(set(re.findall(r'type="NUMANode" os_index="(\d+)"', text)))
    cpus = set(re.findall(r"\bPU L#\d+ \(P#(\d+)", text))
    return len(cpus), len(set(re.findall(r"NUMANode(?:\([^)]*\))? L#\d+ \((?:[A-Za-z]* ?)?P#(\d+)", text)))


def _lscpu(root: Path) -> Iterator[Known]:
    folder = root / "util-linux-lscpu"
    for tar in sorted(folder.glob("*.tar.gz")):
        name = tar.name.removesuffix(".tar.gz")
        text = (folder / "expected" / f"lscpu-{name}").read_text("utf-8")
        online = re.search(r"^On-line CPU\(s\) list:\s*(\S+)", text, re.M)
        nodes = re.search(r"^NUMA node\(s\):\s*(\d+)", text, re.M)
        assert online is not None
        # lscpu prints no NUMA lines for a kernel without NUMA: we count one node then.
        yield Known(
            name,
            str(tar),
            "lscpu expected output",
            _span(online.group(1)),
            int(nodes.group(1)) if nodes else 1,
        )


def _span(text: str) -> int:
    ends = (part.split("-") for part in text.split(","))
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)


_GHW_NODES = {"linux-amd64-8581cf3a529e5d8b97ea876eade2f60d": 2}


def _ghw(root: Path) -> Iterator[Known]:
    for tar in sorted((root / "ghw").glob("*.tar.gz")):
        if tar.stat().st_size < 100:
            continue  # a name for one of the others
        name = tar.name.removesuffix(".tar.gz")
        text = _member(gzip.decompress(tar.read_bytes()), "proc/cpuinfo")
        cpus = len(re.findall(r"^processor\s*\d*\s*:", text, re.M))
        nodes = _GHW_NODES.get(name, 1)
        yield Known(name, str(tar), "ghw: lines of its cpuinfo, folders of its nodes", cpus, nodes)


def _member(data: bytes, name: str) -> str:
    import io

    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        member = next(item for item in tar if item.name.removeprefix("./") == name)
        content = tar.extractfile(member)
        assert content is not None
        return content.read().decode("utf-8", "replace")


def _cri(root: Path) -> Iterator[Known]:
    folder = root / "cri-resource-manager"
    source = "cri-resource-manager: its name, and the notes of its tests"
    two = folder / "cpuallocator-sysfs.tar.bz2"
    yield Known("2-socket-4-node-40-core", str(two), source, 80, 4, "40 cores of 2 threads")
    more = folder / "topology-aware-sysfs.tar.bz2"
    yield Known("server", f"{more}::sysfs/server", source, 112, 6, "4 interleaved nodes and 2 of memory only")
    yield Known(
        "4-socket-server-nosnc", f"{more}::sysfs/4-socket-server-nosnc", source, 144, 4, "18 cores a socket"
    )
    yield Known("desktop", f"{more}::sysfs/desktop", source, 20, 1, "")


def _procfs(root: Path) -> Iterator[Known]:
    note = "a collage of several machines: 8 CPUs in cpuinfo, other folders of other boxes; no count is the right one"
    yield Known("fixtures", str(root / "procfs" / "fixtures.ttar"), "prometheus/procfs", None, None, note)


# -- reading -----------------------------------------------------------------------------------------------


@cache
def looked(spec: str) -> Machine:
    """A machine of the corpus, read once a process: some of them take a second."""
    return look(open_host(spec))


def read(known: Known) -> Seen:
    machine = looked(known.spec)
    cpus, nodes = usable(machine, whole=known.whole)
    right = known.cpus is not None and (cpus, nodes) == (known.cpus, known.nodes)
    return Seen(known, cpus, nodes, _gpus(machine), _unread(machine), right)


def usable(machine: Machine, *, whole: bool) -> tuple[int, int]:
    online = {thread.id for thread in machine.cpu.threads or () if thread.online}
    cpuset, mems = (None, None) if whole else (machine.container.cpuset, machine.container.cpuset_mems)
    allowed = online & set(cpuset) if cpuset else online
    nodes = [node for node in machine.numa if not mems or node.id in mems]
    real = [node for node in nodes if node.cpus or node.mem_bytes or node.mem_bytes is None]
    return len(allowed), len(real)


def _gpus(machine: Machine) -> str:
    names = Counter(gpu.name or "unnamed" for gpu in machine.gpus)
    return ", ".join(f"{count} x {name}" for name, count in sorted(names.items()))


_ROOMS = (
    "memory",
    "kernel",
    "limits",
    "container",
    "environment",
    "pci",
    "nics",
    "disks",
    "mounts",
    "software",
)


def _unread(machine: Machine) -> str:
    """Rooms of which nothing was seen, and how many single fields else, with the reason most often given."""
    gaps = {key: text.partition(":")[0] for key, text in machine.gaps.items() if key != "recording"}
    empty = [room for room in _ROOMS if _all_gaps(machine, room)]
    rest = Counter(reason for key, reason in gaps.items() if re.split(r"[.\[]", key)[0] not in empty)
    parts = [f"nothing of {', '.join(empty)}"] if empty else []
    parts += [f"{count} fields {reason}" for reason, count in rest.most_common()]
    return "; ".join(parts)


def _all_gaps(machine: Machine, room: str) -> bool:
    facts = [fact for key, fact in machine.facts.items() if re.split(r"[.\[]", key)[0] == room]
    return all(fact.status != "ok" or not fact.value for fact in facts)


def xml_files(corpus: Path) -> dict[str, tuple[list[str], list[str]]]:
    """GPU names by file of telegraf's nvidia-smi answers: as the text has them, and as we read them."""
    found = {}
    for path in sorted((corpus / "host" / "telegraf-nvidia-smi").rglob("*.xml")):
        text = path.read_text("utf-8")
        machine = look(host_of({"/proc/cpuinfo": "processor\t: 0\n"}, commands={"nvidia-smi-xml": text}))
        said = re.findall(r"<product_name>([^<]+)</product_name>", text)
        found[path.stem] = (said, [gpu.name or "" for gpu in machine.gpus])
    return found


# -- files that tell of a machine -----------------------------------------------------------------------------


class Counts(NamedTuple):
    """None: there is no such object, or nobody counted."""

    cpus: int | None
    cores: int | None
    packages: int | None
    nodes: int | None
    l3: int | None
    gpus: int | None = None


class FormRow(NamedTuple):
    """One file. `said` are counts of `source`, `read` ours where it has one."""

    form: str
    name: str
    source: str
    said: Counts
    read: Counts

    @property
    def right(self) -> bool:
        return self.said == self.read


_CONSOLE_OPTIONS = {"-", "-v", "--disallowed"}
"""lstopo options that take nothing of what we count off its text."""


def forms(corpus: Path) -> Iterator[FormRow]:
    """lstopo's XML against hwloc's own text of it, else its tags counted; CPUID against the XML that hwloc expects; NCCL's
    topologies against their tags counted. A graph is no topology, and left out."""
    root = corpus / "host" / "hwloc"
    for path in sorted([*root.glob("xml/*.xml"), *root.glob("linux/*.xml"), *root.glob("x86+linux/*.xml")]):
        console = _console(path)
        said = _console_counts(console) if console else _tag_counts(path.read_text("utf-8"))
        source = f"hwloc `{console.name}`" if console else "its tags, counted"
        yield FormRow("lstopo XML", path.stem, source, said, _read_counts(path, said))
    for path in sorted(root.glob("x86/*.tar.bz2")):
        target = path.with_name(path.name.replace(".tar.bz2", ".xml"))
        # hwloc makes up a node where nothing tells of any; registers tell of none.
        said = _tag_counts(target.read_text("utf-8"))._replace(nodes=None)
        yield FormRow(
            "CPUID dump",
            path.name.removesuffix(".tar.bz2"),
            f"hwloc `{target.name}`",
            said,
            _read_counts(path, said),
        )
    for path in sorted((corpus / "host" / "nccl-topo").rglob("*-topo.xml")):
        text = path.read_text("utf-8")
        said = Counts(
            None, None, None, len(re.findall("<cpu ", text)), None, len(re.findall(' class="0x0302', text))
        )
        yield FormRow("NCCL topology", path.stem, "its tags, counted", said, _read_counts(path, said))


def _console(path: Path) -> Path | None:
    """hwloc's text of this very file, where its options leave in all that we count."""
    for test in sorted(path.parent.glob("*.test")):
        text = test.read_text("utf-8")
        target = re.search(r"^target:\s*(\S+\.console)\s*$", text, re.M)
        options = re.search(r"^options:(.*)$", text, re.M)
        plain = set((options.group(1) if options else "").split()) <= _CONSOLE_OPTIONS
        if target and plain and re.search(rf"^source:\s*{re.escape(path.name)}\s*$", text, re.M):
            return path.parent / target.group(1)
    return None


def _console_counts(path: Path) -> Counts:
    text = path.read_text("utf-8")

    def count(name: str) -> int | None:
        return len(re.findall(rf"\b{name}(?:\([^)]*\))? L#\d+", text)) or None

    return Counts(*map(count, ("PU", "Core", "Package", "NUMANode", "L3(?:Cache)?")))


def _tag_counts(text: str) -> Counts:
    def count(name: str) -> int | None:
        return len(re.findall(rf'<object type="{name}"', text)) or None

    return Counts(*map(count, ("PU", "Core", "Package", "NUMANode", "L3Cache")))


def _read_counts(path: Path, said: Counts) -> Counts:
    """Ours, of what the source counts."""
    machine = look(open_host(str(path)))
    cpu = machine.cpu
    ours = Counts(
        cpu.logical, cpu.cores, cpu.packages, len(machine.numa) or None, cpu.l3_groups, len(machine.gpus)
    )
    # What the source has none of must be unknown to us too, but for a form that cannot tell.
    optional = {"gpus"} if said.gpus is None else {"cpus"}
    return ours._replace(**dict.fromkeys(optional))


# -- the page ----------------------------------------------------------------------------------------------

_HEAD = """# Validation: machines read

Made by `WELLFED_CORPUS=../shared/corpus python tests/host/corpus_machines.py docs/validation/host.md`; do not edit.
`tests/host/test_corpus_core.py` asserts it where the corpus is at hand. [An H200 virtual machine](#an-h200-virtual-machine),
recorded by wellfed itself, comes last.

{right} of {counted} host trees with a known count are right in CPUs and NUMA nodes; {total} trees were read without an
exception. *CPUs* are those a process may use: online, and inside the cpuset where one is recorded. *NUMA* are nodes with CPUs
or memory (GPU memory and persistent memory count), inside the cpuset's nodes. What the source says never comes from our
parsers: it is hwloc's or lscpu's own expected output, the source's notes, or a line count of the snapshot.
*Not read* counts fields that the snapshot does not hold; each has its reason in `wellfed inspect --host FILE`.

| machine | what says so | CPUs read / said | NUMA read / said | GPUs | right | not read |
|---|---|---|---|---|---|---|
"""


def page(corpus: Path, seen: list[Seen]) -> str:
    """The text of docs/validation/host.md."""
    counted = [row for row in seen if row.known.cpus is not None]
    head = _HEAD.format(right=sum(row.right for row in counted), counted=len(counted), total=len(seen))
    lines = [_row(row) for row in seen]
    notes = [f"- `{row.known.name}`: {row.known.note}." for row in seen if row.known.note]
    names = xml_files(corpus)
    table = [
        f"| {name} | {', '.join(got)} | {'yes' if said == got else 'no'} |"
        for name, (said, got) in names.items()
    ]
    return (
        head
        + "\n".join(lines)
        + "\n\n## Notes\n\n"
        + "\n".join(notes)
        + "\n\n"
        + forms_section(list(forms(corpus)))
        + "\n\n## GPU names from `nvidia-smi -q -x`\n\n| file | read | as the file has it |\n|---|---|---|\n"
        + "\n".join(table)
        + "\n\n"
        + section()
    )


_FORMS_HEAD = """## Files that tell of a machine

`--host` also takes files that are no recording: {summary} are right. Counts are *read / said*; `-` is none, or not told. hwloc
counts the two integer cores of a Bulldozer module as two cores, where Linux, and we for a recording, count one with two threads.

| form | file | what says so | CPUs | cores | packages | nodes | L3 groups | GPUs | right |
|---|---|---|---|---|---|---|---|---|---|
"""


def forms_section(rows: list[FormRow]) -> str:
    kinds = dict.fromkeys(row.form for row in rows)
    right = {
        kind: (sum(row.right for row in rows if row.form == kind), sum(row.form == kind for row in rows))
        for kind in kinds
    }
    summary = ", ".join(f"{good} of {of} of the form {kind}" for kind, (good, of) in right.items())
    return _FORMS_HEAD.format(summary=summary) + "\n".join(map(_form_row, rows))


def _form_row(row: FormRow) -> str:
    pairs = [
        "-" if ours is said is None else f"{'-' if ours is None else ours} / {'-' if said is None else said}"
        for ours, said in zip(row.read, row.said, strict=True)
    ]
    cells = (row.form, row.name, row.source, *pairs, "yes" if row.right else "**no**")
    return f"| {' | '.join(cells)} |"


def _row(row: Seen) -> str:
    said = "-" if row.known.cpus is None else str(row.known.cpus)
    nodes = "-" if row.known.nodes is None else str(row.known.nodes)
    right = "-" if row.known.cpus is None else "yes" if row.right else "**no**"
    cells = (
        row.known.name,
        row.known.source,
        f"{row.cpus} / {said}",
        f"{row.nodes} / {nodes}",
        row.gpus,
        right,
        row.unread,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    Path(sys.argv[1]).parent.mkdir(parents=True, exist_ok=True)
    folder = Path(os.environ["WELLFED_CORPUS"])
    Path(sys.argv[1]).write_text(page(folder, [read(known) for known in machines(folder)]), "utf-8")
