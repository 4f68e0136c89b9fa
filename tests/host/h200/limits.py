"""Why the verdicts on limits are right on the recorded H200 machine."""

ARGUED = {
    "LIM04": "8388608 bytes by /proc/self/limits",
    "LIM06": "no systemd to ask",
    "LIM09": "asked for benchmarks only",
}
