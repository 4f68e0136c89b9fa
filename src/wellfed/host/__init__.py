"""The one door to the machine, live or recorded, and a reader per subsystem. Nothing else touches
`/proc`, `/sys`, NVML or a subprocess to look at a machine."""
