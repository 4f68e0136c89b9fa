"""A machine that only a file tells of: a topology that lstopo or NCCL wrote, registers of the processors.

Readers find nothing there, each with the reason; what the file says are facts already, and `look` puts them first."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from wellfed.host.door import COMMANDS, PROBES, READ_LIMIT, Reading
from wellfed.host.parse import gap, known
from wellfed.model.devices import Gpu
from wellfed.model.fact import Fact


class StatedHost:
    """`form` names the kind of file in a sentence (`an lstopo XML`), `stated` is what it says. All else is `unsupported`, not
    `missing`: what is missing counts as not installed, and a file that is silent of it does not say that."""

    recorded = True

    def __init__(
        self, *, origin: str, form: str, stated: Iterable[Fact], notes: tuple[str, ...] = ()
    ) -> None:
        self.origin = origin
        self.form = form
        self.stated = tuple(stated)
        self.notes = notes
        self._why = f"{form} does not tell"

    def over(self, facts: Iterable[Fact]) -> list[Fact]:
        """What the file says, then gaps for all that readers look for. They saw an empty machine and say so in words that are
        wrong here (no driver is loaded, no disk is shown): of all of it the file is silent. Lists that the file has need no
        gap as a whole."""
        told = {fact.key.partition("[")[0] for fact in self.stated}
        silent = (
            gap(fact.key, fact.source, "unsupported", self._why) for fact in facts if fact.key not in told
        )
        return [*self.stated, *silent]

    def read(self, path: str, limit: int = READ_LIMIT) -> Reading:
        return Reading(source=path, status="unsupported", detail=self._why)

    def listdir(self, path: str) -> tuple[str, ...]:
        return ()

    def link(self, path: str) -> str | None:
        return None

    def real(self, path: str) -> str | None:
        return None

    def exists(self, path: str) -> bool:
        return False

    def run(self, name: str, item: str = "") -> Reading:
        return Reading(source=str(COMMANDS[name].on(item)), status="unsupported", detail=self._why)

    def nvml(self) -> dict[str, Any]:
        return {"status": "unsupported", "detail": self._why, "system": {}, "devices": []}

    def environ(self) -> dict[str, str]:
        return {}

    def probe(self, name: str) -> Reading:
        assert name in PROBES, name
        return Reading(source=f"probe {name}", status="unsupported", detail=self._why)


def thread_facts(
    rows: list[dict[str, Any]], source: str, form: str, shown: Mapping[str, int] = MappingProxyType({})
) -> list[Fact]:
    """`cpu.threads` and the counts that follow from it. A count is a gap where any CPU lacks the number: some of the
    groups would be missing from it. `shown` are counts of packages and caches where the file shows some without CPUs."""
    running = [row for row in rows if row.get("online", True)]
    facts = [known("cpu.threads", rows, source), known("cpu.logical", len(running), source)]
    for key, field in {"cores": "core", "packages": "package"}.items():
        groups = [row.get(field) for row in running]
        if None in groups:
            facts.append(gap(f"cpu.{key}", source, "unsupported", f"{form} does not tell it of every CPU"))
            continue
        facts.append(known(f"cpu.{key}", max(len(set(groups)), shown.get(key, 0)), source))
        if key == "cores":
            facts.append(known("cpu.threads_per_core", max(Counter(groups).values()), source))
    # Unlike these, a cache may be missing from some cores by design. Where packages are missing too, it was lost: hwloc drops
    # objects that contradict each other.
    caches = [row.get("l3") for row in running]
    shared = {number for number in caches if number is not None}
    lost = None in caches and any(row.get("package") is None for row in running)
    if shared and not lost:
        facts.append(known("cpu.l3_groups", max(len(shared), shown.get("l3_groups", 0)), source))
    else:
        why = f"{form} shows no level 3 cache" if not shared else f"{form} does not tell it of every CPU"
        facts.append(gap("cpu.l3_groups", source, "unsupported", why))
    return facts


def numbered_groups(groups: dict[int, Any]) -> dict[int, int]:
    """Small numbers for the groups that CPUs are in, by the lowest CPU of each, as `cores.py` numbers them."""
    order: dict[Any, int] = {}
    for cpu in sorted(groups):
        order.setdefault(groups[cpu], len(order))
    return {cpu: order[group] for cpu, group in groups.items()}


def gpu_facts(index: int, told: dict[str, Any], source: str, form: str, raw: dict[str, str]) -> list[Fact]:
    """All fields of one GPU: what is told, and a gap for each that is not. `raw` is the evidence of single fields."""
    from wellfed.catalog import find_gpu

    name, device_id = told.get("name"), told.get("device_id")
    spec = (
        find_gpu(name=name, device_id=device_id, memory_bytes=told.get("memory_bytes"))
        if name or device_id
        else None
    )
    told = {**told, "index": index, "catalog": spec.key if spec else None}
    facts = []
    for field in Gpu.__struct_fields__:
        key = f"gpus[{index}].{field}"
        if told.get(field) is None:
            facts.append(gap(key, source, "unsupported", f"{form} does not tell"))
        else:
            facts.append(known(key, told[field], source, raw.get(field) or json.dumps(told[field])))
    return facts
