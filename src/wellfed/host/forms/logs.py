"""Saved logs, whoever saved them: `dmesg` in its five ways, `/dev/kmsg`, syslog and the journal. Of a log of other programs
only links that went down count.

What a log does not hold is no proof of anything: it may begin long after the machine did. Kinds of lines that are not there
are therefore not counted as zero."""

import re

from wellfed.host.door import KERNEL_LOG
from wellfed.host.kernel_log import BOOT_KINDS, KINDS, xid_lines
from wellfed.host.parse import known
from wellfed.model.fact import Fact

_LINES_READ = 100_000
"""The last ones. A machine that logs as much has one trouble, over and over."""
_LINE_CHARS = 2000
"""The kernel cuts its own lines at 1 kB or so; patterns take the square of a line's length."""
_KERNEL_LINE = re.compile(
    r"^(?:<\d{1,3}>)?(?:"
    r"\[ *\d{1,12}\.\d{3,9}\] |"  # dmesg
    r"\[\w{3} \w{3} +\d{1,2} [\d:]{8} \d{4}\] |"  # dmesg -T
    r"\d{1,5},\d{1,20},\d{1,20},[-c+][^;]{0,200};|"  # /dev/kmsg
    r"kern *:\w+ *: |"  # dmesg -x
    r"(?:\w{3} +\d{1,2} [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.,+Z-]{8,24}) \S{1,255} kernel: )"  # syslog, journalctl -k
)
_HOST = re.compile(r"^((?:\w{3} +\d{1,2} [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.,+Z-]{8,24}) )\S{1,255} (?=kernel: )")
_NAME = re.compile(r", name=[^,]*")
_OF_OTHERS = ("link-flap",)


def read_log(text: str, name: str) -> list[Fact]:
    """`kernel.xids` of a log of the kernel, `kernel.events[kind]` of the kinds that it holds; `[]` for what is no log. Host
    names and names of programs are not kept."""
    whole = text.splitlines()
    lines = [line[:_LINE_CHARS] for line in whole[-_LINES_READ:]]
    watched = re.compile(KERNEL_LOG)
    told = [line for line in lines if watched.search(line)]
    xids = xid_lines(line[:_LINE_CHARS] for line in whole)
    facts = []
    of_kernel = bool(xids) or any(map(_KERNEL_LINE.match, lines))
    if of_kernel:
        kept = [_unnamed(line)[:400] for line in xids]
        facts.append(known("kernel.xids", kept, name, "\n".join(kept)))
    for kind, pattern in (*KINDS.items(), *BOOT_KINDS.items()):
        count = sum(map(bool, map(re.compile(pattern).search, told)))
        if count and (of_kernel or kind in _OF_OTHERS):
            facts.append(known(f"kernel.events[{kind}]", count, name, f"{count} lines"))
    return facts


def _unnamed(line: str) -> str:
    return _HOST.sub(r"\1", _NAME.sub("", line.strip()))
