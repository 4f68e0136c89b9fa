"""What every check says of every machine at hand: the public corpus, and what is recorded here.

    WELLFED_CORPUS=../shared/corpus python tests/host/corpus_verdicts.py docs/validation/verdicts.md

writes the table; `test_verdicts.py` asserts it. Machines are whole trees, topologies that tools wrote, and what single
tools answered (nvidia-smi, rocm-smi, lspci, logs): of those everything else is unknown, and must stay unjudged."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from corpus_machines import looked, machines
from test_corpus_devices import hosts

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "check"))
from reported import table

import wellfed
from wellfed.check import INTENTS, host_codes, judge_machine, manual
from wellfed.host import look, open_host, with_evidence
from wellfed.model import Machine, Verdict

HERE = Path(__file__).resolve().parents[1] / "hosts"
DEMO = Path(wellfed.__file__).parent / "demo" / "host.tar.gz"
LOGS = (
    "gpud/components/accelerator/nvidia/fabric-manager/testdata/fabricmanager.log",
    "gpud/components/accelerator/nvidia/xid/testdata/dmesg-with-xid-119.log",
)


class Sight(NamedTuple):
    """A machine to be judged. `kind` is `whole` (a tree), `form` (a topology that a tool wrote, or a dump of
    CPUID) or `answer` (what one tool said, or a log)."""

    name: str
    kind: str
    machine: Callable[[], Machine]


class Row(NamedTuple):
    """Verdicts on one machine, by intent."""

    sight: Sight
    verdicts: dict[str, tuple[Verdict, ...]]


def recorded_here() -> list[Sight]:
    """Machines that are in the repository."""
    places = {**{path.name.partition(".")[0]: path for path in sorted(HERE.glob("*.tar*"))}, "demo": DEMO}
    return [
        Sight(name, "whole", lambda path=path: look(open_host(str(path)))) for name, path in places.items()
    ]  # type: ignore[misc]


def sights(corpus: Path) -> Iterator[Sight]:
    """All machines of the corpus, then those recorded here, then answers of single tools."""
    root = corpus / "host"
    for known in machines(corpus):
        yield Sight(known.name, "whole", lambda spec=known.spec: looked(spec))  # type: ignore[misc]
    yield from recorded_here()[:-1]  # the demo is one of them, packed
    for path in form_files(root):
        yield Sight(path.name, "form", lambda path=path: look(open_host(str(path))))  # type: ignore[misc]
    for name, host in hosts(root):
        if not name.endswith((".bz2", ".gz", ".ttar")):  # whole trees are above
            yield Sight(name, "answer", lambda host=host: look(host))  # type: ignore[misc]
    for place in LOGS:
        name = "/".join(Path(place).parts[-3::2])
        yield Sight(name, "answer", lambda path=root / place: with_evidence(Machine(), [path]))  # type: ignore[misc]


def form_files(root: Path) -> list[Path]:
    """Topologies that lstopo and NCCL wrote, and dumps of CPUID: no file system, but a machine all the same."""
    places = ("hwloc/xml/*.xml", "hwloc/linux/*.xml", "hwloc/x86/*.tar.bz2", "nccl-topo/*/*-topo.xml")
    return [path for place in places for path in sorted(root.glob(place))]


def judged(sight: Sight) -> Row:
    machine = sight.machine()
    return Row(sight, {intent: judge_machine(machine, intent=intent) for intent in INTENTS})


@cache
def first_intent(code: str) -> str:
    """Training, or the first intent that the check is for."""
    return (manual(code).intents or INTENTS)[0]


def of_first_intent(row: Row) -> dict[str, Verdict]:
    """One verdict a check: that for its first intent."""
    by_intent = {intent: {one.code: one for one in found} for intent, found in row.verdicts.items()}
    return {code: by_intent[first_intent(code)][code] for code in host_codes()}


# -- the page ------------------------------------------------------------------------------------------------

_HEAD = """# Validation: verdicts

Made by `WELLFED_CORPUS=../shared/corpus python tests/host/corpus_verdicts.py docs/validation/verdicts.md`; do not edit.
`tests/host/test_verdicts.py` asserts it where the corpus is at hand, and on all machines with every intent: each check
gives exactly one of three verdicts, without an exception, and the case survives its file.

{checks} checks on {whole} whole machines, {forms} topologies and CPUID dumps, and {answers} answers of single tools. Each check is judged for training, or for the
first intent that it is meant for. The corpus is old and mixed, and most of its trees hold `/sys` and `/proc` in part: *not
judged* is what an honest tool says of most of it. A finding on a machine says that the setting is there, not that it hurts:
none of these machines was measured.

**Every finding was read with the question whether an expert would agree.** What was wrong is mended and has a test in
`tests/check/test_reported_alarms.py`; what remains is listed by machine below.

## By machine

| machine | pass | finding | not judged | findings (w: warning, e: error, else a note) |
|---|---|---|---|---|
"""

_NEVER = """
## Checks that none of these machines lets anyone judge

{count} of {checks}: what they look at is in no recording here. Each has a bad and a good machine in `tests/check`, and that is
all that is known of them so far. The reason is the one most often given for a whole machine.

| check | why not |
|---|---|
"""


def page(rows: list[Row]) -> str:
    """The text of docs/validation/verdicts.md."""
    by_code: dict[str, list[Verdict]] = {code: [] for code in host_codes()}
    lines = []
    for row in rows:
        verdicts = of_first_intent(row)
        for code, verdict in verdicts.items():
            by_code[code].append(verdict)
        lines.append(_machine(row.sight.name, verdicts))
    never = [code for code, found in by_code.items() if all(one.verdict == "not-judged" for one in found)]
    kinds = Counter(row.sight.kind for row in rows)
    head = _HEAD.format(
        checks=len(by_code), whole=kinds["whole"], forms=kinds["form"], answers=kinds["answer"]
    )
    judged_somewhere = [_check(code, found) for code, found in by_code.items() if code not in never]
    whole = [of_first_intent(row) for row in rows if row.sight.kind == "whole"]
    missing = [_never(code, [verdicts[code] for verdicts in whole]) for code in never]
    return (
        head
        + "\n".join(lines)
        + "\n\n## By check\n\n| check | pass | finding | not judged |\n|---|---|---|---|\n"
        + "\n".join(judged_somewhere)
        + "\n"
        + _NEVER.format(count=len(never), checks=len(by_code))
        + "\n".join(missing)
        + "\n"
        + table()
    )


def _counts(verdicts: list[Verdict]) -> str:
    counts = Counter(one.verdict for one in verdicts)
    return " | ".join(str(counts[kind]) for kind in ("pass", "finding", "not-judged"))


def _machine(name: str, verdicts: dict[str, Verdict]) -> str:
    marks = {"warning": " w", "error": " e"}
    found = [f"{c}{marks.get(v.severity, '')}" for c, v in verdicts.items() if v.verdict == "finding"]
    return f"| {name} | {_counts(list(verdicts.values()))} | {', '.join(found)} |"


def _check(code: str, found: list[Verdict]) -> str:
    return f"| {code} {manual(code).name} | {_counts(found)} |"


def _never(code: str, found: list[Verdict]) -> str:
    """The reason most often given, those that say that the check has no business there last."""
    closed = ("not-applicable", "intent")
    reasons = Counter(one.reason for one in found)
    reason = min(reasons, key=lambda name: (name in closed, -reasons[name]))
    said = Counter(one.message for one in found if one.reason == reason).most_common(1)[0][0]
    return f"| {code} {manual(code).name} | {said.replace('|', '/')} |"


if __name__ == "__main__":
    folder = Path(os.environ["WELLFED_CORPUS"])
    Path(sys.argv[1]).write_text(page([judged(sight) for sight in sights(folder)]), "utf-8")
