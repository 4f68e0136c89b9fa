"""Kernel checks that need thought."""

from collections.abc import Iterable

from wellfed.check.evaluate import Outcome
from wellfed.check.expression import whole
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine

SHIPPED = ("/usr/lib/sysctl.d/", "/lib/sysctl.d/")
"""Files that distributions bring along for kernels of every kind: nobody here chose what they set."""
NAMED = 4


@rule("KRN03", "dead-knob-set", layer="kernel", severity="info", trust="measured")
def judge_files(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """A file sets a kernel knob that does not exist here, or that has another value now.

    What it looks at. What `/etc/sysctl.d`, `/run/sysctl.d` and the active profile of tuned set, of the knobs that checks
    look at and those of the scheduler, against `/proc/sys`.
    Why it costs. The tuning that somebody counts on is not there. `kernel.sched_latency_ns` and its like left
    `/proc/sys` with Linux 5.13, and guides and profiles still set them; the tools that apply them pass over it.
    How it is judged. A note for a key without a file below `/proc/sys` (dead), and for one whose value is not the file's
    (not in force: changed later, refused, or never applied). Files that the distribution ships are left out, as are
    values that tuned works out, and containers, whose files say nothing of the host's kernel.
    What is known of the gain. Nothing is published: it is that of the knob.
    Remedy. take dead lines out; for the others find out who set the value, or load the files again with `sudo sysctl --system`
    Restore. nothing to undo
    When to ignore. When a tool or a person changed the value on purpose.
    Sources. measured: profiles of nvidia-tuned@3f9169b on Linux 6.18; Linux 5.13: sched, move tunables to debugfs; man sysctl.d
    """
    kind = machine.container.kind
    if kind not in (None, "none"):
        return [
            Outcome(
                state="not-applicable", message="the files of a container say nothing of the host's kernel"
            )
        ]
    files = machine.kernel.sysctl_files
    if kind is None or files is None:
        lacking = ("container.kind",) if kind is None else ("kernel.sysctl_files",)
        return [Outcome(state="unknown", lacking=lacking)]
    dead: list[str] = []
    other: list[str] = []
    unseen: list[str] = []
    paths = ["kernel.sysctl_files"]
    for key, said in sorted(files.items()):
        value, _, file = said.rpartition(" @ ")
        if file.startswith(SHIPPED):
            continue
        path = f"kernel.sysctls[{key}]"
        live = machine.kernel.sysctls.get(key)
        if live is None and _is_dead(machine, key):
            dead.append(f"{key} ({file})")
        elif live is None:
            unseen.append(path)
            continue
        elif not _is_said(live, value):
            other.append(f"{key} is {live}, not {value} ({file})")
        else:
            continue
        paths.append(path)
    if dead or other:
        told = [(f"this kernel has no {_list(dead)}" if dead else ""), (_list(other) if other else "")]
        message = "; ".join(filter(None, told))
        return [Outcome(state="finding", severity="info", message=message, paths=tuple(paths))]
    if unseen:
        return [Outcome(state="unknown", paths=tuple(paths), lacking=tuple(unseen[:NAMED]))]
    message = "what files set of the watched knobs is in force"
    return [Outcome(state="pass", message=message, paths=tuple(paths))]


def _is_dead(machine: Machine, key: str) -> bool:
    """Whether the kernel has no such knob: its file is missing where others of its kind are there."""
    missing = machine.gaps.get(f"kernel.sysctls[{key}]", "").startswith("missing")
    return missing and any(name.split(".")[0] == key.split(".")[0] for name in machine.kernel.sysctls)


def _is_said(live: str, value: str) -> bool:
    """Whether the kernel's value is the file's. What tuned works out (`${...}`, at least, at most) is not compared."""
    if "$" in value or value.startswith((">", "<")):
        return True
    if live.split() == value.split():
        return True
    a, b = whole(live), whole(value)
    return a is not None and a == b


def _list(words: list[str]) -> str:
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more
