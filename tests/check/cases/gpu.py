"""Cases of the layer gpu."""

from typing import Any


def _gpu(**fields: Any) -> dict[str, Any]:
    return {"vendor": "nvidia", "name": "NVIDIA H200", "mig_capable": True, "mig": False, **fields}


def _one(**fields: Any) -> dict[str, Any]:
    return {"gpus": [_gpu(**fields)]}


def _slowed(us: int) -> dict[str, Any]:
    told = {"hw_thermal_slowdown": us, "sw_thermal_slowdown": 0, "hw_power_brake_slowdown": 0}
    return {"kernel": {"uptime_s": 1000.0}, **_one(event_reason_us=told)}


def _holder(**fields: Any) -> dict[str, Any]:
    process = {"pid": 7, "gpus": [0], **fields}
    return {
        **_one(processes=[{"pid": 7}]),
        "processes": [process],
        "container": {"sees_host_processes": True},
    }


SWITCH = {"address": "0000:05:00.0", "vendor": "0x10de", "class_code": "0x068000"}
FATAL = "nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, Fatal, Link 28 LTSSM Fault Up"
CASES: dict[str, Any] = {
    "GPU04": (_slowed(20_000_000), _slowed(5_000_000), "info"),
    "GPU13": ({"kernel": {"xids": [FATAL]}}, {"pci": [SWITCH], "kernel": {"xids": []}}, "error"),
    "GPU15": (_one(compute_mode="prohibited"), _one(compute_mode="default"), "warning"),
    "GPU16": (
        {**_one(), "environment": {"RANK": "0"}, "software": {"mps_running": True}},
        {**_one(), "environment": {"RANK": "0"}, "software": {"mps_running": False}},
        "info",
    ),
    "GPU19": (_one(inforom_valid=False), _one(inforom_valid=True), "warning"),
    "GPU20": (
        {"gpus": [_gpu(vbios="96.1", power_default_w=700.0), _gpu(vbios="96.2", power_default_w=700.0)]},
        {"gpus": [_gpu(vbios="96.1", power_default_w=700.0)] * 2},
        "info",
    ),
    "GPU21": (_one(confidential=True), _one(confidential=False), "info"),
    "GPU22": (_one(power_profiles=[1]), _one(power_profiles=[0]), "info"),
    "GPU23": (_one(runtime_d3="Enabled (fine-grained)"), _one(runtime_d3="Disabled by default"), "info"),
    "GPU25": (
        {"gpus": [{"vendor": "amd", "compute_partition": "CPX", "memory_partition": "NPS4"}]},
        {"gpus": [{"vendor": "amd", "compute_partition": "SPX", "memory_partition": "NPS1"}]},
        "info",
    ),
    "GPU26": (
        {"gpus": [{"vendor": "amd"}], "cpu": {"allowed": [0], "logical": 4}, "environment": {"RANK": "0"}},
        {
            "gpus": [{"vendor": "amd"}],
            "cpu": {"allowed": [0], "logical": 4},
            "environment": {"HSA_OVERRIDE_CPU_AFFINITY_DEBUG": "0"},
        },
        "info",
    ),
    "GPU27": (_holder(is_foreign=True), _holder(is_foreign=False), "info"),
    "GPU28": (
        {
            "diagnostics": [
                {"tool": "dcgm", "test": "pcie", "result": "Fail", "detail": "DCGM 4.5.0, driver 580.1"}
            ]
        },
        {"diagnostics": [{"tool": "dcgm", "test": "pcie", "result": "Skip"}]},
        "warning",
    ),
}
WORDS = {
    "compute_mode": ("default", "prohibited"),
    "runtime_d3": ("Disabled", "Enabled"),
    "result": ("Pass", "Fail", "Skip"),
}
KEYS = {"event_reason_us": ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")}
