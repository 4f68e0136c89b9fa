"""What the kernel was built with, of which only the watched options are kept."""

import re

from wellfed.host.door import Host
from wellfed.host.parse import fact, gap
from wellfed.model.fact import Fact

OPTIONS = ("CONFIG_INIT_ON_ALLOC_DEFAULT_ON",)
_LIMIT = 1 << 20


def read_kernel_config(host: Host) -> list[Fact]:
    """Facts `kernel.config[OPTION]` of the running kernel, from the file that distributions put beside it. An option that
    this file does not set is `n`; one that the file does not name at all is not known to that kernel."""
    release = (host.read("/proc/sys/kernel/osrelease").text or "").strip()
    if not re.fullmatch(r"[\w.+~-]{1,128}", release):
        return [
            gap(_key(name), "/proc/sys/kernel/osrelease", detail="no release is told") for name in OPTIONS
        ]
    reading = host.read(f"/boot/config-{release}", _LIMIT)
    facts = []
    for name in OPTIONS:

        def parse(text: str, name: str = name) -> str | None:
            found = re.search(rf"^(?:{name}=(\S+)|# {name} is (not) set)$", text, re.MULTILINE)
            return (found[1] or "n") if found else None

        facts.append(fact(_key(name), reading, parse, line=name))
    return facts


def _key(name: str) -> str:
    return f"kernel.config[{name}]"
