"""Why the memory's verdicts on the recorded H200 machine are right."""

ARGUED = {
    "MEM03": "transparent_hugepage/enabled is madvise",
    "MEM04": "shmem_enabled is never, which is not deny",
    "MEM09": "126 GiB of memory",
    "MEM11": "126 GiB of memory, and no port tells its speed",
    "MEM12": "vm.max_map_count is 8250411",
    "MEM13": "the command line does not say, and /boot has no file of this kernel",
    "MEM14": "ksm/run is 0",
    "MEM15": "matters for latency serving and benchmarks; the value is 20",
    "MEM16": "no fault for a huge page since boot",
    "MEM17": "Unevictable is 10 MB",
    "MEM20": "one NUMA node, with CPUs",
    "MEM21": "matters for latency serving and benchmarks; no CPU is isolated",
    "MEM22": "no NVLink-C2C on an H200",
    "MEM19": "asked for throughput and benchmarks only; the one node has CPUs",
}
