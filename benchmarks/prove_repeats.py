"""How often a proof is right on this machine: a knob that matters, both ways, and one that does not.

    sudo python benchmarks/prove_repeats.py [--runs 10] [--write docs/validation/prove.md]

Sets transparent huge pages to `never` and proves `always` by the pointer chase (must be better, and stay), the other
way round (must be worse, and be put back), and proves a placebo, vm.stat_interval, by the same chase (must have no
effect). All three in turn, each run a proof of its own through the journal. The machine's values are restored at the
end. Needs root. Use a machine whose memory settings nobody else is changing.
"""

import argparse
import os
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path

from wellfed.apply.journal import Journal
from wellfed.apply.knobs import FILE_KINDS
from wellfed.apply.prove import prove
from wellfed.apply.root import Root
from wellfed.bench.proof import meter
from wellfed.model import Change
from wellfed.model.proof import Proof

THP, STAT = ("thp", "enabled"), ("sysctl", "vm.stat_interval")
WANTED = {"never to always": "better", "always to never": "worse", "placebo": "none"}


class Beside(Root):
    """The real knobs, with the lock in a folder of this run: other work here is not held up."""

    def __init__(self, folder: str) -> None:
        super().__init__("/")
        self.folder = Path(folder)

    def outside(self, name: str) -> Path:
        return self.folder / name.lstrip("/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--write", type=Path, help="write the page here")
    parser.add_argument("--only", choices=list(WANTED), help="one of the three proofs")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("writing knobs of the kernel takes root")
    root = Root("/")
    before = {knob: FILE_KINDS[knob[0]].read(root, knob[1]) for knob in (THP, STAT)}
    rows: list[tuple[str, Proof, float]] = []
    disturbed = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended; the old values are back"))
    try:
        for number in range(options.runs):
            for name in [options.only] if options.only else WANTED:
                # Somebody else at the knob is told and ends a proof; that says nothing of its aim, so it is had again.
                while (row := (name, *one(name, str(before[STAT]))))[
                    1
                ].outcome == "failed" and disturbed < 20:
                    disturbed += 1
                    print(number + 1, line(*row), flush=True)
                    time.sleep(5)
                rows.append(row)
                print(number + 1, line(*row), flush=True)
    finally:
        for (kind, target), value in before.items():
            FILE_KINDS[kind].write(root, target, value)
    text = page(rows, options.runs, disturbed)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    print("\n" + table(rows))


def one(name: str, stat: str) -> tuple[Proof, float]:
    """One proof from a given start, and the share of time in which somebody waited for a CPU meanwhile."""
    root = Root("/")
    start = "always" if name == "always to never" else "never"
    FILE_KINDS["thp"].write(root, "enabled", start)
    if name == "placebo":
        FILE_KINDS["sysctl"].write(root, STAT[1], stat)
        change = made(*STAT, "7" if stat != "7" else "8")
    else:
        change = made(*THP, name.split()[-1])
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Beside(folder), Path(folder) / "journal")
        waited, began = pressure(), time.monotonic()
        (proof,) = prove(journal, [change], measure=lambda _: meter("pointer-chase"))
        now = FILE_KINDS[change.kind].read(root, change.target)
        assert proof.outcome == "failed" or now == (change.new if proof.outcome == "kept" else proof.old), now
        return proof, (pressure() - waited) / (time.monotonic() - began) / 1e6


def made(kind: str, target: str, new: str) -> Change:
    return Change(code="user", kind=kind, target=target, new=new, restore="")


def pressure() -> float:
    """Microseconds in which a task waited for a CPU since the machine started; 0 where the kernel does not tell."""
    try:
        return float(Path("/proc/pressure/cpu").read_text().split("total=")[1].split()[0])
    except OSError:
        return 0.0


def line(name: str, proof: Proof, waited: float) -> str:
    effect = proof.effect
    if effect is None:
        return f"| {name} | {proof.outcome}: {proof.note} | | | | | |"
    sign = (
        ""
        if effect.verdict == WANTED[name]
        else " **(wrong)**"
        if effect.verdict != "noisy"
        else " (not decided)"
    )
    within = f"{effect.low:.2f} to {effect.high:.2f}" if effect.low and effect.high else "-"
    return (
        f"| {name} | {effect.verdict}, {proof.outcome}{sign} | {effect.ratio:.2f} | {within} | {effect.n} "
        f"| {proof.seconds:.0f} | {waited:.0%} |"
    )


def table(rows: list[tuple[str, Proof, float]]) -> str:
    lines = [
        "| proof | wanted | got | undecided | wrong | seconds, median and longest |",
        "|---|---|---|---|---|---|",
    ]
    for name, wanted in WANTED.items():
        mine = [proof for kind, proof, _ in rows if kind == name]
        got = [proof.effect.verdict if proof.effect else "noisy" for proof in mine]
        right, noisy = got.count(wanted), got.count("noisy")
        if not mine:
            continue
        times = sorted(proof.seconds for proof in mine)
        lines.append(
            f"| {name} | {wanted} | {right} of {len(got)} | {noisy} | {len(got) - right - noisy} "
            f"| {times[len(times) // 2]:.0f}, {times[-1]:.0f} |"
        )
    return "\n".join(lines)


def page(rows: list[tuple[str, Proof, float]], runs: int, disturbed: int) -> str:
    model = next(
        (
            row.partition(":")[2].strip()
            for row in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in row
        ),
        platform.machine(),
    )
    detail = "\n".join(line(*row) for row in rows)
    return f"""# Validation: proof of a change

Made by `benchmarks/prove_repeats.py`; do not edit. {time.strftime("%Y-%m-%d")}: {runs} runs of each proof in turn, on {os.cpu_count()} CPUs ({model}, Linux
{platform.release().split("-")[0]}).
{disturbed} more proofs ended early because another process set the same knob under way, which was noticed; they were had again.

{table(rows)}

A proof measures the cost without the change and with it in the order A B B A, each phase a fresh process, at first 8 times, then up to
12, 16 and 24 times while it is not decided. Each interval is of 99 %; with up to four looks, a change without effect is taken for one that
has one in at most 4 of 100 proofs, and an effect of less than 3 % is never called one. `none` is said only where more than 10 % is ruled
out; anything else is undecided, and an undecided change is put back like one without effect.

The chase touches one line of each of 8192 pages: it shows the most that huge pages can do here, not what a job gains. Its cost is that of a
load over the cost of a load in a walk within 32 pages, batch by batch in turn, so a slower clock and a busy neighbour of the core, which hit
both, stay out of it. (Until December 2026 it was nanoseconds of a walk through 16384 pages, whose lines fill a core's own cache: other guests of
the host moved that by a factor of four, and 2 of 10 placebos were not decided.)
The placebo is `vm.stat_interval`, which sets how often the kernel sums up its statistics. Huge pages are `always` against `never`.

| proof | verdict | ratio | 99 % interval | quadruples | seconds | time in which a task waited for a CPU |
|---|---|---|---|---|---|---|
{detail}
"""


if __name__ == "__main__":
    main()
