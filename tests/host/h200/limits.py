"""Why the verdicts on limits are right on the recorded H200 machine."""

ARGUED = {
    "LIM04": "8388608 bytes by /proc/self/limits",
    "LIM06": "no systemd to ask",
    "LIM09": "asked for benchmarks only",
    "LIM05": "/proc/self/limits: core file size 0",
    "LIM07": "it is a container, whose weight is given from outside",
    "LIM08": "nvidia-smi: no process on the GPU",
}
