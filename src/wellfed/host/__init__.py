"""The one door to the machine, live or recorded, and a reader per subsystem. Nothing else touches
`/proc`, `/sys`, NVML or a subprocess to look at a machine.

    host = open_host(None)              # or open_host("box.tar")
    machine = look(host)
    record(host, "box.tar")
"""

from typing import TYPE_CHECKING

from wellfed.host.assemble import look
from wellfed.host.door import COMMANDS, PROBES, Command, Host, Reading
from wellfed.host.live import LiveHost
from wellfed.host.recorded import host_of, open_recorded
from wellfed.model.errors import WellfedError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from wellfed.host.recorder import RecordSummary
    from wellfed.model import Machine

__all__ = [
    "COMMANDS",
    "PROBES",
    "Command",
    "Host",
    "Reading",
    "host_of",
    "look",
    "open_host",
    "record",
    "with_evidence",
]


def open_host(spec: str | None) -> Host:
    """This machine for None, else the recorded one in a tar (`.tar`, `.gz`, `.bz2`, `.xz`), a procfs `.ttar`
    or a folder, or the one that a file tells of: lstopo's XML, NCCL's topology, a dump of CPUID. Raises WellfedError when
    that holds no host."""
    if spec is None:
        return LiveHost()
    from wellfed.host.forms import open_form

    return open_form(spec) or open_recorded(spec)


def record(
    host: Host, path: "str | os.PathLike[str]", *, redact: bool = True, now: str | None = None
) -> "RecordSummary":
    """Save all that can be seen of a host as a tar (`recorder.py`). Redaction and its patterns are loaded here
    and not at the top: looking at a machine must not pay for them."""
    from wellfed.host.recorder import record as write
    from wellfed.host.stated import StatedHost

    if isinstance(host, StatedHost):
        raise WellfedError(
            f"{host.form} is no machine to record: there is nothing to see but the file itself",
            hint="wellfed inspect --host FILE -o box.case",
        )
    return write(host, path, redact=redact, now=now)


def with_evidence(machine: "Machine", paths: "Iterable[str | os.PathLike[str]]") -> "Machine":
    """The machine with what files handed over say of it. Results of several files stand together; of a field that both
    saw, the file counts, and of counts the larger one."""
    from wellfed.host.assemble import assemble
    from wellfed.host.evidence import facts_of, placed, together

    handed = placed(machine, [fact for path in paths for fact in facts_of(path)])
    unread = {key: why for key, why in machine.gaps.items() if key not in machine.facts}
    return assemble([*together(machine, handed), *machine.facts.values()], unread)
