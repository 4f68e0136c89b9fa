"""Why the verdicts on containers are right on the recorded H200 machine."""

ARGUED = {
    "CON14": "no job of several machines runs",
    "CON15": "a container sees no kubelet",
    "CON03": "one node with CPUs",
    "CON06": "`pids.max` of the group says max",
    "CON12": "one node with CPUs",
    "CON13": "one GPU",
    "CON18": "6.18.44 is no kernel of Microsoft's",
    "CON19": "recorded before this was asked",
    "CON20": "the kernel's version is its own",
    "CON08": "no pool of huge pages",
}
