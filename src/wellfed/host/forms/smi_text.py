"""What nvidia-smi prints for people, saved by somebody: the health in `nvidia-smi -q`, and `nvidia-smi nvlink -s`.

Only what cannot be otherwise a minute later is taken from it: clocks, power and use of then say nothing of now."""

import re
from typing import Any

from wellfed.host.parse import known
from wellfed.host.pci import pci_address
from wellfed.host.topology import parse_nvlink
from wellfed.model.fact import Fact

_LOG = re.compile(r"^=+NVSMI LOG=+\s*$", re.MULTILINE)
_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_LINE = re.compile(r"^( *)(\S[^:]{0,60}?)\s*(?:: ?(.*))?$")
_LINK_GPU = re.compile(r"^GPU (\d{1,3}): [^(\n]{1,80}? \(UUID: (GPU-[0-9a-f-]{36})\)\s*$", re.MULTILINE)
_FIELDS = {
    ("Retired Pages", "Pending Page Blacklist"): "retired_pending",
    ("Remapped Rows", "Pending"): "remap_pending",
    ("Remapped Rows", "Remapping Failure Occurred"): "remap_failed",
}
_ANSWERS = {"yes": True, "no": False}
_GPUS_MAX = 256
_LINES_MAX = 1 << 20


def read_query(text: str, name: str) -> list[Fact]:
    """Facts `gpus[ADDRESS].field` of `nvidia-smi -q`; `[]` for another text. What it has no answer for (N/A) is left out."""
    if not _LOG.search(text):
        return []
    facts: list[Fact] = []
    address, section = "", ""
    seen: set[str] = set()
    for line in text.splitlines()[:_LINES_MAX]:
        gpu = _GPU.match(line)
        if gpu:
            address, section = pci_address(gpu[1]), ""
            seen.add(address)
            if len(seen) > _GPUS_MAX:
                break
            continue
        match = _LINE.match(line)
        if not match or not address:
            continue
        indent, title, value = len(match[1]), match[2], match[3]
        if indent <= 4:
            section = title
        field = _FIELDS.get((section, title))
        answer = _ANSWERS.get((value or "").strip().lower())
        if field and answer is not None:
            facts.append(known(f"gpus[{address}].{field}", answer, name, f"{title}: {value.strip()}"))
    return facts


def read_links(text: str, name: str) -> list[Fact]:
    """Facts `gpus[UUID/NUMBER].field` of `nvidia-smi nvlink -s`: how many links are there, and how many run; `[]` for another text."""
    named = {int(number): uuid for number, uuid in _LINK_GPU.findall(text)}
    facts: list[Fact] = []
    for number, speeds in parse_nvlink(text).items() if named else ():
        if number not in named:
            continue
        key = f"gpus[{named[number]}/{number}]"
        active = [speed for speed in speeds if speed]
        values: dict[str, Any] = {"nvlinks_active": len(active)}
        if speeds:
            values |= {"nvlinks_total": len(speeds), "nvlink_gbps": active}
        facts += [
            known(f"{key}.{field}", value, name, f"GPU {number}: {len(active)} links run")
            for field, value in values.items()
        ]
    return facts
