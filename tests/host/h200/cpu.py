"""Why the CPU's verdicts on the recorded H200 machine are right."""

_GUEST = "a guest: its clocks, idle states and counters are its host's"
ARGUED = {
    "CPU02": _GUEST,
    "CPU03": "matters for latency serving and benchmarks, and a guest's clock is its host's",
    "CPU06": _GUEST,
    "CPU08": "matters for latency serving and benchmarks, and a guest's idle states are its host's",
    "CPU09": _GUEST,
    "CPU10": "the kernel's command line has no idle=poll",
    "CPU15": "16 cores of one kind by lscpu",
    "CPU18": "x86",
    "CPU21": "the recording holds no two looks at /proc/stat",
}
