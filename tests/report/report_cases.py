"""Literal cases for the report tests: what the other rooms hand over, without them."""

from typing import Any

from wellfed.model import (
    Budget,
    Case,
    Ceiling,
    Cost,
    Evidence,
    Fact,
    Gain,
    Headline,
    Machine,
    RankTrace,
    Verdict,
)
from wellfed.model.change import Change
from wellfed.model.devices import Gpu, Link
from wellfed.model.machine import Cpu, Kernel, Memory, NumaNode, Software
from wellfed.model.trace import KernelRow, Step, StepBudget, StepWork, Strip, TraceWarning, WorkRow
from wellfed.model.verdict import Alternative

MS = 1_000_000

KERNELS = (
    KernelRow(
        name="nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", kind="gemm", count=216,
        total_ns=41_802_113, median_ns=189_504,
    ),
    KernelRow(
        name="void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::"
        "Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, false, false, cutlass::bfloat16_t> >"
        "(pytorch_flash::Flash_bwd_params)",
        kind="attention", count=36, total_ns=19_330_208, median_ns=534_176,
    ),
    KernelRow(
        name="void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>",
        kind="elementwise", count=36, total_ns=3_920_480, median_ns=108_640,
    ),
)  # fmt: skip


def machine() -> Machine:
    return Machine(
        cpu=Cpu(
            model_name="INTEL(R) XEON(R) PLATINUM 8582C", logical=16, cores=8, packages=1,
            hypervisor="kvm", governors=("performance",), boost=True,
        ),
        numa=(NumaNode(id=0, cpus=tuple(range(16)), mem_bytes=128 << 30),),
        memory=Memory(total_bytes=128 << 30, available_bytes=120 << 30, thp_enabled="madvise"),
        kernel=Kernel(release="6.8.0-45-generic", os_name="Ubuntu 24.04"),
        gpus=(Gpu(index=0, name="NVIDIA H200", memory_bytes=150_754_820_096, driver="580.95.05"),),
        links=(Link(a="gpu0", b="nic0", kind="NODE"),),
        software=Software(python="3.12.3", torch="2.11.0", torch_cuda="13.0", driver="580.95.05"),
        facts={
            "memory.thp_enabled": Fact(
                key="memory.thp_enabled", value="madvise",
                source="/sys/kernel/mm/transparent_hugepage/enabled", raw="always [madvise] never",
            ),
            "gpus[0].power_limit_w": Fact(
                key="gpus[0].power_limit_w", status="denied", source="nvml", detail="NoPermission",
            ),
        },
        gaps={"gpus[0].power_limit_w": "nvml says NoPermission", "cpu.idle_states": "no cpuidle folder"},
    )  # fmt: skip


def ceilings() -> tuple[Ceiling, ...]:
    return (
        Ceiling(
            id="host.copy", title="host memory copy, all threads", method="memcpy of 256 MiB",
            hardware_key="cpu", unit="GB/s", best=88.4, median=86.1, p10=84.9, p90=88.0, n=14, cv=0.012,
            size="256 MiB", threads=16, peak=307.2, peak_source="8 x DDR5-4800", ratio=0.288, verdict="low",
            why="29 % of peak: below the band of 45 to 90 %",
        ),
        Ceiling(
            id="hbm.copy", title="GPU memory copy", method="cudaMemcpy", hardware_key="gpu", unit="TB/s",
            best=4.02, median=4.01, p10=3.98, p90=4.02, n=20, cv=0.003, peak=4.8, ratio=0.8375,
        ),
        Ceiling(
            id="host.latency", title="pointer chase", method="one thread, 64 MiB", hardware_key="cpu",
            unit="ns", best=121.0, median=123.5, p10=121.4, p90=131.0, n=9, cv=0.03, higher_is_better=False,
            size="64 MiB", threads=1, peak=90.0, ratio=1.344,
        ),
        Ceiling(
            id="storage.read", title="O_DIRECT read", method="1 MiB blocks, depth 1", hardware_key="disk",
            unit="GB/s", best=1.9, median=1.2, p10=0.7, p90=1.8, n=5, cv=0.41, verdict="noisy",
            why="spread of 41 %: measure again on a quiet machine",
        ),
    )  # fmt: skip


def data_wait() -> Verdict:
    return Verdict(
        code="T110", name="data-wait", verdict="finding", severity="error", layer="trace",
        message="the loader keeps the GPU waiting 116 ms of each 162 ms step",
        where={"rank": 0, "device": 0},
        evidence=(
            Evidence(
                source="/data/runs/2026-07-28/gpt-small/profile/data_starved.json.gz",
                at="t=1203.4 ms, 116.0 ms",
                text="enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            ),
            Evidence(source="data_starved.json.gz", at="t=1379.7 ms, 115.2 ms", text="same"),
        ),
        cost=Cost(value=116.0, unit="ms/step", usd_per_day=43.0, price_usd_gpu_h=2.5),
        gain=Gain(speedup=3.4, low=2.9, high=3.8, basis="modelled", saves_ms=116.0, next="launch-bound"),
        remedy="`num_workers=12`, `persistent_workers=True`", risk="restart",
        verify="wellfed ab 'python train.py --workers 0' 'python train.py --workers 12'",
        alternatives=(
            Alternative(
                remedy="decode on the GPU", gain=Gain(speedup=3.1, low=2.0, high=3.6, basis="literature"),
                risk="restart",
            ),
        ),
        sources=("https://pytorch.org/docs/stable/data.html",),
    )  # fmt: skip


def host_verdicts() -> tuple[Verdict, ...]:
    return (
        Verdict(
            code="CPU07", name="governor-powersave", verdict="finding", severity="warning", layer="cpu",
            message="`scaling_governor` is powersave on 16 of 16 CPUs",
            evidence=(Evidence(source="/sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
                               at="cpu.governors", text="powersave"),),
            cost=Cost(why="the effect depends on the load"),
            gain=Gain(speedup=1.08, low=1.0, high=1.15, basis="literature", source="two vendor guides"),
            remedy="cpupower frequency-set -g performance", risk="safe",
            restore="cpupower frequency-set -g powersave", verify="wellfed check",
        ),
        Verdict(
            code="T401", name="unfused-optimizer", verdict="finding", severity="info", layer="trace",
            message="the optimizer runs 148 small kernels a step",
            gain=Gain(speedup=1.02, low=1.0, high=1.03, basis="modelled"),
            remedy="AdamW(fused=True)", risk="restart",
        ),
        Verdict(code="MEM02", name="swap-in-use", verdict="pass", layer="memory"),
        Verdict(code="CPU01", name="steal", verdict="pass", layer="cpu"),
        Verdict(code="GPU11", name="power-capped", verdict="not-judged", reason="denied", layer="gpu",
                message="NVML says NoPermission"),
        Verdict(code="GPU12", name="clock-capped", verdict="not-judged", reason="denied", layer="gpu",
                message="NVML says NoPermission"),
        Verdict(code="PCI03", name="acs-redirect", verdict="not-judged", reason="no-fact", layer="pci",
                message="`/sys/bus/pci` config space is cut short without root"),
        Verdict(code="RDMA01", name="port-down", verdict="not-judged", reason="not-applicable", layer="rdma",
                message="no RDMA device"),
        Verdict(code="NIC04", name="mtu-small", verdict="not-judged", reason="not-applicable", layer="network",
                message="no physical NIC"),
    )  # fmt: skip


def rank(index: int = 0, *, wait: int = 116 * MS, comm: int = 0, compute: int = 36 * MS) -> RankTrace:
    idle = {
        "data-wait": wait,
        "launch-bound": 8_112_000,
        "launch-latency": 1_400_123,
        "unattributed": 612_000,
    }
    idle = {name: ns for name, ns in idle.items() if ns}
    total = compute + comm + 220_000 + sum(idle.values())
    raw_idle = {**idle, "profiler-overhead": 14 * MS}
    parts = tuple(
        {
            "name": f"ProfilerStep#{n}", "span_ns": total + n * 2 * MS, "compute_ns": compute,
            "exposed_comm_ns": comm, "exposed_copy_ns": 220_000, "idle_ns": sum(idle.values()) + n * 2 * MS,
            "idle": {**idle, "data-wait": wait + n * 2 * MS},
        }
        for n in range(3)
    )  # fmt: skip
    return RankTrace(
        rank=index, device=index, gpu="NVIDIA H200", source="data_starved.json.gz",
        steps=tuple(Step(name=f"ProfilerStep#{n}", start_ns=n * total, end_ns=(n + 1) * total) for n in range(3)),
        step_source="annotation",
        budget=Budget(
            span_ns=3 * (total + 14 * MS), compute_ns=3 * compute, exposed_comm_ns=3 * comm,
            exposed_copy_ns=660_000, idle_ns=3 * sum(raw_idle.values()),
        ),
        idle={name: 3 * ns for name, ns in raw_idle.items()},
        step_budget=StepBudget(
            n=3, span_ns=total, compute_ns=compute, exposed_comm_ns=comm, exposed_copy_ns=220_000,
            idle_ns=sum(idle.values()), traced_span_ns=total + 14 * MS,
        ),
        step_idle=idle, step_parts=parts, gpu_events=5_312, comm_ns=comm, kernels=KERNELS,
        comm=({"name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "count": 12, "total_ns": comm,
               "bytes": 268_435_456, "busbw_gb_s": 212.0},) if comm else (),
        ops=({"name": "aten::linear", "count": 147, "total_ns": 31_000_000},),
        work=StepWork(steps=3, launches=900, count=930, total_ns=3 * compute, rows=(WorkRow(
            op="aten::linear", kernel="nvjet_tst", family="gemm", kind="kernel", count=930, total_ns=3 * compute),)),
        strip=Strip(name="ProfilerStep#1", start_ns=total, span_ns=total, lanes={
            "compute": (0,) * 150 + (85,) * 50, "copy": (0,) * 140 + (60,) * 10 + (0,) * 50, "idle": (100,) * 140 + (15,) * 60}),
    )  # fmt: skip


def starved() -> Case:
    """A training step that waits for its loader, on a virtual machine with one GPU."""
    return Case(
        made_by="wellfed doctor 0.1.0", made_at="2026-07-28T09:00:00Z", redacted=True,
        machine=machine(), ceilings=ceilings(), ranks=(rank(),),
        warnings=(
            TraceWarning(
                code="truncated", count=1, sample="last event cut at byte 679,002",
                weakens="the last step, left out of the medians",
            ),
            TraceWarning(code="orphan-events", count=225, weakens="the raw budget, not the step"),
        ),
        headline=Headline(
            text="The GPU waits for data 71.5 % of each 162 ms step: up to 3.4x faster once it does not",
            value=162.3, unit="ms/step",
        ),
        verdicts=(*host_verdicts(), data_wait()),
        ignored=(
            Verdict(code="MEM05", name="thp-madvise", verdict="finding", message="the job calls madvise itself"),
        ),
        changes=(
            Change(code="CPU07", kind="sysfs", target="scaling_governor", new="performance", restore="powersave"),
        ),
    )  # fmt: skip


def healthy() -> Case:
    passes = tuple(
        Verdict(code=f"CPU{n:02}", name=f"check-{n}", verdict="pass", layer="cpu") for n in range(1, 30)
    )
    return Case(
        made_by="wellfed doctor 0.1.0", machine=machine(), ranks=(rank(wait=0, compute=45 * MS),),
        headline=Headline(text="The GPU computes 81 % of each 55 ms step: nothing starves it", value=55.1, unit="ms/step"),
        verdicts=passes,
    )  # fmt: skip


def host_only() -> Case:
    """What `check` and `measure` make: no trace."""
    return Case(
        made_by="wellfed check 0.1.0", machine=machine(), ceilings=ceilings(), verdicts=host_verdicts()
    )


def no_gpu_events() -> Case:
    return Case(
        made_by="wellfed trace 0.1.0",
        ranks=(RankTrace(rank=0, source="cpu_only.pt.trace.json.gz", gpu_events=0),),
        verdicts=(
            Verdict(
                code="T001", name="no-gpu-event", verdict="not-judged", reason="no-gpu-event", layer="trace",
                message="the trace holds 12,402 CPU events and no GPU event: record with activities=[CPU, CUDA]",
            ),
        ),
    )  # fmt: skip


def eight_ranks() -> Case:
    ranks = tuple(
        rank(
            n, wait=(31 if n == 5 else 2) * MS, comm=(3 if n == 5 else 32) * MS, compute=36 * MS + n * 11_000
        )
        for n in range(8)
    )
    straggler = Verdict(
        code="T210", name="straggler", verdict="finding", severity="error", layer="trace",
        message="seven ranks wait 29 ms of each step for rank 5, which waits for data",
        where={"rank": 5, "device": 5},
        cost=Cost(value=29.0, unit="ms/step", usd_per_day=182.4, price_usd_gpu_h=2.5, gpus=8),
        gain=Gain(speedup=1.62, low=1.41, high=1.7, basis="modelled", saves_ms=29.0, next="exposed-comm"),
        remedy="more loader workers on rank 5", risk="restart", causes=("T110",),
    )  # fmt: skip
    return Case(made_by="wellfed trace 0.1.0", ranks=ranks, verdicts=(straggler,))


HOSTILE = (
    "</script><script>alert(1)</script>",
    '" onmouseover="alert(1)" x="',
    "' onfocus='alert(1)",
    "javascript:alert(1)",
    "<img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b31m\x00\r\n\tend",
    "\u202egnp.exe\u202c \u2066iso\u2069 \u200b\ufeff",
    "שלום عليكم",
    "🧑‍🚀🔥 核函数 ｆｕｌｌ ⚠️",
    "|pipe| `tick` *star* _under_ [link](http://evil.example) <b>bold</b> @team #1",
    "n" * 5000,
    "/very/long/" + "folder/" * 80 + "kernel.json.gz",
    "{{expr}} ${x} %s {0} \\",
    "]]><!-- --!> <!--<script>",
    "\ud800 lone surrogate",
)


def hostile(strings: tuple[str, ...] = HOSTILE) -> Case:
    """Every string of the case is somebody else's."""
    at = iter(range(10**9))

    def text() -> str:
        return strings[next(at) % len(strings)]

    def verdict(kind: Any) -> Verdict:
        return Verdict(
            code=text(), name=text(), verdict=kind, severity="error", message=text(), reason=text(),
            layer=text(), where={text(): text()}, evidence=(Evidence(source=text(), at=text(), text=text()),),
            cost=Cost(value=12.5, unit=text(), why=text()),
            gain=Gain(speedup=99.0, basis="modelled", saves_ms=7.25, measured_in=text(), next=text(), source=text()),
            remedy=text(), risk="safe", verify=text(), restore=text(),
            alternatives=(Alternative(remedy=text()),), causes=(text(),), sources=(text(), "javascript:alert(2)"),
        )  # fmt: skip

    ranks = tuple(
        RankTrace(
            rank=n, device=0, gpu=text(), source=text(), steps=(Step(name=text(), start_ns=0, end_ns=10),),
            step_source=text(), budget=Budget(span_ns=100, compute_ns=60, exposed_comm_ns=0, exposed_copy_ns=0, idle_ns=40),
            idle={text(): 40}, step_budget=StepBudget(
                n=2, span_ns=100, compute_ns=60, exposed_comm_ns=0, exposed_copy_ns=0, idle_ns=40
            ),
            step_idle={text(): 30, text(): 10},
            step_parts=({"name": text(), "span_ns": 100, "compute_ns": 60, "idle": {text(): 40}},
                        {"name": text(), "span_ns": 100, "compute_ns": 60, "idle": {text(): 40}}),
            gpu_events=3, kernels=(KernelRow(name=text(), kind=text(), count=1, total_ns=60, median_ns=60),),
            comm=({text(): text()},), ops=({text(): {text(): [text()]}},), replay={text(): text()},
            work=StepWork(steps=0, launches=0, count=1, total_ns=60, rows=(
                WorkRow(op=text(), kernel=text(), family=text(), kind=text(), count=1, total_ns=60),)),
            strip=Strip(name=text(), start_ns=0, span_ns=100, lanes={text(): (1,), "compute": (60, 40), "idle": (40, 60)}),
        )
        for n in range(2)
    )  # fmt: skip
    return Case(
        made_by=text(), made_at=text(),
        machine=Machine(
            hostname=text(), gpus=(Gpu(index=0, name=text(), driver=text()),), environment={text(): text()},
            cpu=Cpu(model_name=text(), governors=(text(),)), kernel=Kernel(release=text()),
            facts={text(): Fact(key=text(), value=text(), source=text(), raw=text()) for _ in range(3)},
            gaps={text(): text()},
        ),
        ceilings=(
            Ceiling(
                id=text(), title=text(), method=text(), hardware_key=text(), unit=text(), best=float("nan"),
                median=2.0, p10=float("-inf"), p90=float("inf"), n=1, cv=0.0, peak=3.0, ratio=0.5, why=text(),
                peak_source=text(), size=text(), environment={text(): text()},
            ),
        ),
        ranks=ranks, warnings=(TraceWarning(code=text(), count=3, sample=text(), weakens=text()),),
        headline=Headline(text=text(), next_command=text()),
        verdicts=(*(verdict("finding") for _ in range(len(strings))), verdict("not-judged"), verdict("pass")),
        ignored=(verdict("finding"),),
    )  # fmt: skip


CASES = {
    "starved": starved,
    "healthy": healthy,
    "host_only": host_only,
    "no_gpu_events": no_gpu_events,
    "eight_ranks": eight_ranks,
    "hostile": hostile,
    "empty": Case,
}
