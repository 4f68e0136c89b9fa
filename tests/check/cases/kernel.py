"""Bad and good machines for checks of the kernel."""

from typing import Any

H200 = {"vendor": "nvidia", "name": "NVIDIA H200", "index": 0}


def _keys(**more: Any) -> dict[str, Any]:
    return {
        "kernel": {
            "sysctls": {key.replace("__", ".").replace("_AT_", "-"): value for key, value in more.items()}
        }
    }


_ON_BUS = {"address": "0000:0f:00.0", "vendor": "0x1002", "class_code": "0x120000"}


def _files(live: str) -> dict[str, Any]:
    return {
        "kernel": {
            "sysctls": {"vm.swappiness": live},
            "sysctl_files": {"vm.swappiness": "10 @ /etc/sysctl.d/90-gpu.conf"},
        }
    }


def _profiled(paranoid: str, admin: str) -> dict[str, Any]:
    return {
        "kernel": {"sysctls": {"kernel.perf_event_paranoid": paranoid}},
        "software": {"driver_params": {"RmProfilingAdminOnly": admin}},
    }


_AIO = {"fs.inotify.max_user_watches": "524288", "fs.inotify.max_user_instances": "8192"}
CASES: dict[str, Any] = {
    "KRN02": ({"pci": [{**_ON_BUS, "bars_unplaced": 1}]}, {"pci": [{**_ON_BUS, "bars_unplaced": 0}]}, "info"),
    "KRN03": (_files("30"), _files("10"), "info"),
    "KRN09": (
        {**_profiled("4", "1"), "gpus": [H200], "container": {"capabilities": ["CAP_CHOWN"]}},
        {**_profiled("2", "0"), "gpus": [H200], "container": {"capabilities": ["CAP_CHOWN"]}},
        "info",
    ),
    "KRN05": (_keys(kernel__nmi_watchdog="1"), _keys(kernel__nmi_watchdog="0"), "info"),
    "KRN06": (
        {**_keys(kernel__timer_migration="1"), "cpu": {"nohz_full": [2, 3]}},
        {**_keys(kernel__timer_migration="0"), "cpu": {"nohz_full": [2, 3]}},
        "info",
    ),
    "KRN07": ({"kernel": {"preemption": "rt"}}, {"kernel": {"preemption": "full"}}, "info"),
    "KRN10": (
        {**_keys(kernel__pid_max="32768"), "cpu": {"logical": 192}},
        {**_keys(kernel__pid_max="4194304"), "cpu": {"logical": 192}},
        "info",
    ),
    "KRN11": (
        {"kernel": {"active_services": ["docker"], "sysctls": {**_AIO, "fs.aio-max-nr": "65536"}}},
        {"kernel": {"active_services": ["docker"], "sysctls": {**_AIO, "fs.aio-max-nr": "1048576"}}},
        "info",
    ),
    "KRN15": (_keys(kernel__sched_rt_runtime_us="-1"), _keys(kernel__sched_rt_runtime_us="950000"), "info"),
    "KRN14": (
        {**_keys(kernel__softlockup_panic="0", kernel__hung_task_panic="1"), "gpus": [H200]},
        {**_keys(kernel__softlockup_panic="0", kernel__hung_task_panic="0"), "gpus": [H200]},
        "info",
    ),
}
KEYS = {
    "sysctls": (
        "kernel.pid_max",
        "kernel.nmi_watchdog",
        "kernel.timer_migration",
        "kernel.hung_task_panic",
        "kernel.perf_event_paranoid",
    ),
    "sysctl_files": ("vm.swappiness", "kernel.nmi_watchdog"),
    "driver_params": ("RmProfilingAdminOnly",),
}
WORDS = {
    "sysctl_files": ("1 @ /etc/sysctl.d/1.conf", "60 @ /run/sysctl.d/2.conf", "2 @ /usr/lib/sysctl.d/3.conf"),
    "driver_params": ("0", "1"),
}
