"""Cases of the CPU's checks: bad machine, good machine, severity of the bad one."""

from typing import Any

_PSTATE = {"governors": ["powersave"], "scaling_driver": "intel_pstate"}
_HYBRID = [{"id": 0, "kind": "performance"}, {"id": 1, "kind": "efficiency"}]


def _busy(*cpus: int) -> dict[str, Any]:
    return {"cpu": {"threads": _HYBRID}, "processes": [{"pid": 7, "gpus": [0], "allowed": list(cpus)}]}


def _grace(page: int) -> dict[str, Any]:
    return {
        "cpu": {"arch": "aarch64", "page_size_bytes": page},
        "memory": {"dmi_product": "NVIDIA Grace CPU P5042"},
    }


def _heat(count: int) -> dict[str, Any]:
    return {"cpu": {"package_throttles": count, "core_throttles": count}, "kernel": {"uptime_s": 7200.0}}


def _held(value: int) -> dict[str, Any]:
    deep = [{"name": "C6", "latency_us": 170, "disabled": False}]
    return {
        "cpu": {
            "idle_driver": "intel_idle", "idle_states": deep, "dma_latency_us": value, "dma_latency_holders": ["tuned"]
        }
    }  # fmt: skip


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "CPU02": (
        {"cpu": {**_PSTATE, "energy_preferences": ["balance_power"]}},
        {"cpu": {**_PSTATE, "energy_preferences": ["performance"]}},
        "info",
    ),
    "CPU03": ({"cpu": {"energy_bias": [0, 6]}}, {"cpu": {"energy_bias": [0, 4]}}, "info"),
    "CPU06": (_heat(3), _heat(0), "warning"),
    "CPU08": (_held(0), _held(99), "info"),
    "CPU09": ({"cpu": {"resume_latency_us": [-1]}}, {"cpu": {"resume_latency_us": [-1, 0]}}, "info"),
    "CPU10": (
        {"cpu": {"smt": "on"}, "kernel": {"cmdline": ["idle=poll"]}},
        {"cpu": {"smt": "off"}, "kernel": {"cmdline": ["idle=poll"]}},
        "info",
    ),
    "CPU15": (_busy(0, 1), _busy(0), "info"),
    "CPU21": (
        {"cpu": {"foreign_pct": 140.0, "allowed": [0, 1, 2, 3]}},
        {"cpu": {"foreign_pct": 140.0, "allowed": list(range(64))}},
        "info",
    ),
    "CPU18": (_grace(4096), _grace(65536), "info"),
}
WORDS = {
    "scaling_driver": ("intel_pstate", "acpi-cpufreq"),
    "energy_preferences": ("performance", "balance_power"),
    "cmdline": ("idle=poll", "quiet"),
    "idle_driver": ("intel_idle", "haltpoll"),
}
