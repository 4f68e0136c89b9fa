"""Software RAID by `/proc/mdstat`."""

import re
from typing import Any

from wellfed.host.door import Host
from wellfed.host.parse import fact
from wellfed.model.fact import Fact

SOURCE = "/proc/mdstat"
MAX_ARRAYS = 256

_HEAD = re.compile(
    r"(md[\w.-]{1,40}) : (active|inactive)(?: \([\w-]+\))?(?: (raid[0-9]{1,2}|linear|multipath|faulty))?"
)
_MEMBERS = re.compile(r"\[([0-9]{1,4})/([0-9]{1,4})\]")
_CHUNK = re.compile(r"\b([0-9]{1,9})k chunks?\b")


def read_arrays(host: Host) -> list[Fact]:
    """The fact `arrays`. The file is there once the md driver is loaded."""
    return [fact("arrays", host.read(SOURCE), arrays, line=" : ")]


def arrays(text: str) -> list[dict[str, Any]]:
    """One entry for each array; `degraded` is unknown for one that is not running. A container of a RAID in firmware
    (`external:imsm`) is no array itself and is left out."""
    found = []
    blocks = re.split(r"^(?=md)", text, flags=re.MULTILINE)
    for block in blocks[: MAX_ARRAYS + 1]:
        head = _HEAD.match(block)
        if head is None or (head[2] == "inactive" and "external:" in block):
            continue
        # Before the line of a recovery: `finish` and speeds have no brackets, but a bitmap line has.
        sizes = block.partition("\n")[2].partition("\n")[0]
        members, chunk = _MEMBERS.search(sizes), _CHUNK.search(sizes)
        running = head[2] == "active"
        found.append(
            {
                "name": head[1],
                "level": head[3],
                "degraded": max(0, int(members[1]) - int(members[2])) if members and running else None,
                "chunk_kb": int(chunk[1]) if chunk else None,
            }
        )
    return found
