"""False alarms and broken cures that users of other tools reported, and the tests that keep us from them.

The table goes to docs/validation/verdicts.md; `test_reported_table.py` looks whether each test is there."""

from typing import NamedTuple


class Reported(NamedTuple):
    """`where` are issues, `what` went wrong there, `tests` are `file::function` below tests/."""

    where: str
    what: str
    tests: tuple[str, ...]


ALARMS = "check/test_reported_alarms.py"
ENGINE = "apply/test_engine.py"
REPORTED: dict[str, Reported] = {
    "F1": Reported("measured", "`intel_idle/max_cstate` is 9 on an AMD guest", (f"{ALARMS}::test_f01",)),
    "F2": Reported("measured", "virtio disks say `rotational 1`", (f"{ALARMS}::test_f02",)),
    "F3": Reported("measured", "virtio interfaces say speed -1", (f"{ALARMS}::test_f03",)),
    "F4": Reported("measured", "`/dev/cpu_dma_latency` does nothing under haltpoll", (f"{ALARMS}::test_f04",)),
    "F5": Reported("measured", "the memory of a guest grows while one looks", (f"{ALARMS}::test_f05",)),
    "F6": Reported("redhat-performance/tuned#857", "no switch for boost in a virtual machine", (f"{ALARMS}::test_f06",)),
    "F7": Reported("tuned#254, #262, #786", "one knob that refuses fails the whole profile", (f"{ENGINE}::test_a_refusal_does_not_stop_the_others",)),
    "F8": Reported("tuned#790", "a profile fails its own verification", (f"{ENGINE}::test_there_and_back", f"{ENGINE}::test_one_value_in_several_spellings")),
    "F9": Reported("tuned#594", "helper programs are missing, and the boot loader is edited unasked", ("apply/test_false_alarms.py::test_f09",)),
    "F10": Reported("tuned PR#882, #880", "going back writes 0 into the twin of a knob", (f"{ENGINE}::test_twins_go_back_to_the_one_that_was_in_force",)),
    "F11": Reported("tuned#518", "what an administrator set by hand is overwritten", (f"{ENGINE}::test_another_s_value_is_left_alone",)),
    "F12": Reported("cluster-node-tuning-operator#699 (OCPBUGS-13065)", "a service that ends takes its settings back under running work", ("apply/test_false_alarms.py::test_f12",)),
    "F13": Reported("Irqbalance/irqbalance#50, PR#51", "EPYC has four nodes a package", (f"{ALARMS}::test_f13",)),
    "F14": Reported("irqbalance#297, #336; scylladb/seastar#797", "interrupts that the kernel places itself refuse a write", (f"{ENGINE}::test_an_interrupt_that_the_kernel_places_itself",)),
    "F15": Reported("irqbalance PR#172, PR#91", "interrupts without a device or a node", (f"{ALARMS}::test_f15",)),
    "F16": Reported("open-mpi/hwloc#761", "PCI and driver name different nodes for a coherent GPU", (f"{ALARMS}::test_f16", "place/test_plan.py::test_the_driver_is_believed_where_the_bus_is_wrong")),
    "F17": Reported("hwloc#712, siderolabs/talos#9121", "all distances are 10", (f"{ALARMS}::test_f17",)),
    "F18": Reported("hwloc#430, #541", "nodes of memory only, and cores without a node", (f"{ALARMS}::test_f18", "place/test_plan.py::test_a_numa_node_of_gpu_memory_is_no_place_to_run")),
    "F19": Reported("bytedance/xpu-perf#129", "nine nodes, one of them with CPUs", (f"{ALARMS}::test_f19", "place/test_plan.py::test_one_cpu_node_among_nine")),
    "F20": Reported("vllm PR#38635", "no right to bind memory in a container", (f"{ALARMS}::test_f20",)),
    "F21": Reported("NVIDIA-NeMo/RL PR#2613", "the column of near CPUs is empty on GB200", (f"{ALARMS}::test_f21",)),
    "F22": Reported("NovaSky-AI/SkyRL PR#1936", "GPUs are named by UUID", ("place/test_plan.py::test_visible_devices",)),
    "F23": Reported("sgl-project/sglang PR#24766, NVIDIA/TensorRT-LLM#12985", "the index of CUDA is not that of NVML", ("place/test_laws.py::test_the_order_of_the_visible_gpus_is_the_order_of_the_ranks",)),
    "F24": Reported("sglang#27368, PR#26983, #20437", "bound beyond the cpuset", ("place/test_plan.py::test_a_cpuset_cuts_and_is_not_left", "place/test_laws.py::test_every_rank_has_cpus_that_are_allowed")),
    "F25": Reported("vllm#58033, PR#58036", "the GPU's CPUs are outside the cpuset", (f"{ALARMS}::test_f25",)),
    "F26": Reported("pytorch#131011, #160848, PR#169916, #123711", "nodes of different size", ("place/test_plan.py::test_sub_numa_nodes_with_uneven_gpus", "place/test_laws.py::test_shares_of_one_pool_are_even")),
    "F27": Reported("pytorch#49971, #8126, #149304", "affinity of OpenMP, isolated CPUs", (f"{ALARMS}::test_f27",)),
    "F28": Reported("pytorch#160420", "two processes with GPUs on two nodes", ("check/test_rank_false_alarms.py::test_several_ranks_are_judged_one_by_one",)),
    "F29": Reported("numactl/numactl#127, docker/for-linux#863, kubernetes#102324", "memory is allowed on one node only", (f"{ALARMS}::test_f29",)),
    "F30": Reported("NVIDIA/nccl#2033, meta-pytorch/torchcomms#2906, ROCm/rocm-systems#9404, #7174", "NCCL changes the affinity of its caller", (f"{ALARMS}::test_f30",)),
    "F31": Reported("nccl#1017, nccl-tests#57, ROCm/rccl#1948", "NCCL keeps to a mask that is too small", (f"{ALARMS}::test_f31",)),
    "F32": Reported("leptonai/gpud#1318, #1322, #802; Azure/cyclecloud-slurm#349", "persistence is off, and the daemon holds the GPU", (f"{ALARMS}::test_f32",)),
    "F33": Reported("gpud#1106, #1151", "no fabric manager where none belongs", (f"{ALARMS}::test_f33",)),
    "F34": Reported("NVIDIA/fleet-intelligence-agent#252", "what could not be read counts as good", ("check/test_judge.py::test_of_nothing_nothing_passes", "check/test_judge.py::test_seeing_more_never_turns_a_decided_verdict")),
    "F35": Reported("NVIDIA/DCGM#55, #136, #184, #247, #253, #254; aws-k8s-tester#806", "diagnostics that are skipped or known to fail, lanes that a slot has not", ("host/test_evidence.py::test_results_of_dcgm", "host/test_evidence.py::test_a_known_fault_of_dcgm_is_a_note", f"{ALARMS}::test_f35")),
    "F36": Reported("DCGM#152, dask/distributed#8739, NordicHPC/sonar#247, Syllo/nvtop#256, gpustat#102", "no utilisation under MIG", (f"{ALARMS}::test_f36",)),
    "F37": Reported("containerd#3221, #8445; moby#24000; runc#741; systemd#4370; netavark#825", "`/proc/sys` is read-only, its network part is not", (f"{ENGINE}::test_a_read_only_mount_is_said", "apply/test_policy.py::test_a_container_is_told_whose_settings_these_are")),
    "F38": Reported("kubernetes#67577, #97445; inference-perf#722", "a quota of 4 among 64 CPUs", (f"{ALARMS}::test_f38",)),
    "F39": Reported("NVIDIA/open-gpu-kernel-modules#446, #1045, #1048", "faults of single versions of the driver", (f"{ALARMS}::test_f39",)),
    "F40": Reported("seapath/ansible#529", "idle=poll in a virtual machine", (f"{ALARMS}::test_f40",)),
    "F41": Reported("a request to measure with `nvidia-smi topo -m -i N`", "an option that is not there", (f"{ALARMS}::test_f41",)),
    "F42": Reported("measured", "virtio disks are mounted with discard", (f"{ALARMS}::test_f42",)),
    "F43": Reported("measured", "firmware, ACS and clocks in a virtual machine", (f"{ALARMS}::test_f43",)),
    "F44": Reported("gpud#1106; measured", "MIG, vGPU and GPUs that were passed through", (f"{ALARMS}::test_f44",)),
}  # fmt: skip


_HEAD = """
## False alarms that others reported

What users of other tools ran into, each with the test that keeps us from it. The issues are named as their projects number them.

| no. | reported | what went wrong | test |
|---|---|---|---|
"""


def table() -> str:
    """The section of docs/validation/verdicts.md."""
    lines = []
    for number, row in REPORTED.items():
        tests = ", ".join(f"`{test.rpartition('/')[2]}`" for test in row.tests)
        lines.append(f"| {number} | {row.where} | {row.what} | {tests} |")
    return _HEAD + "\n".join(lines) + "\n"
