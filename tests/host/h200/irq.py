"""Why the verdicts on interrupts are right on the recorded H200 machine."""

ARGUED = {
    "IRQ01": "a virtual machine",
    "IRQ03": "/proc/interrupts: its network has 3 vectors, none of which fired often",
    "IRQ04": "/proc/net/softnet_stat: fewer than a million packets",
    "IRQ05": "`isolated` is empty",
    "IRQ06": "asked for throughput only; there it is a note, and true: one queue for 16 CPUs",
}
