"""Why the verdicts on the kernel are right on the recorded H200 machine."""

ARGUED = {
    "KRN02": "recorded before `resource` of the GPU was kept",
    "KRN03": "a container: its files set no knob of the host's",
    "KRN09": "asked for benchmarks only; then it passes, since root may profile",
    "KRN05": "asked for benchmarks only",
    "KRN06": "asked for latency only",
    "KRN07": "`uname -v` says PREEMPT_DYNAMIC",
    "KRN10": "16 CPUs need no more ids than 32768",
    "KRN11": "no systemd to ask whether containers run here",
    "KRN14": "both switches are 0",
    "KRN15": "950000 us by the sysctl",
}
