"""Left-over settings of NCCL, in the environment and in its configuration file."""

from collections.abc import Iterable

from wellfed.check.evaluate import Outcome, is_absent
from wellfed.check.expression import was_seen
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine
from wellfed.model.environment import REDACTED
from wellfed.model.verdict import Severity

CUTS: dict[str, tuple[tuple[str, ...], str]] = {
    "NCCL_P2P_DISABLE": (("", "0"), "GPUs do not talk to each other directly"),
    "NCCL_SHM_DISABLE": (("", "0"), "processes of one machine talk over the network"),
    "NCCL_IB_DISABLE": (("", "0"), "InfiniBand and RoCE are not used"),
    "NCCL_P2P_LEVEL": (("", "NVL", "PIX", "PXB", "PHB", "SYS", "1", "2", "3", "4", "5"), "no direct traffic"),
    "NCCL_NET_GDR_LEVEL": (("", "PIX", "PXB", "PHB", "SYS", "1", "2", "3", "4", "5"), "no GPUDirect RDMA"),
}
"""Variable -> values that cut nothing off, and what any other value does."""

TUNES = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NTHREADS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_BUFFSIZE",
)
"""Variables that override what NCCL would choose by itself."""


@rule(
    "ENV11",
    "nccl-workarounds-left",
    layer="env",
    severity="warning",
    trust="verified",
    reversible="live-nextproc",
)
def judge_nccl_settings(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """Settings made to get around an old NCCL problem still cut its bandwidth.

    What it looks at. `NCCL_P2P_DISABLE`, `NCCL_SHM_DISABLE`, `NCCL_IB_DISABLE`, `NCCL_P2P_LEVEL`,
    `NCCL_NET_GDR_LEVEL`, `NCCL_NVLS_ENABLE`, and choices of algorithm, protocol and channels, in the environment; of
    `/etc/nccl.conf` the names only.
    Why it costs. With peer-to-peer off, NVLink stands idle and data goes through host memory; with
    InfiniBand off, over TCP. A fixed algorithm or protocol fits one message size.
    How it is judged. A transport that is switched off is a warning on machines with several GPUs or RDMA, else
    a note; fixed algorithms, protocols and channel counts, and NVLS that is off (which shared hosts may demand), are a note, as is any of the names in nccl.conf.
    What is known of the gain. No figure is published; NVIDIA says that settings for debugging may cause
    sub-optimal behaviour, crashes or hangs when they are kept.
    Remedy. unset them one by one and compare with `all_reduce_perf`; write down why when one has to stay
    Restore. set the old value again
    When to ignore. When the reason is known and still true; give it a date.
    Sources. NVIDIA NCCL documentation: environment variables, "system configuration" and "debugging"
    """
    environment = machine.environment
    if not environment and not was_seen(machine, "environment"):
        return [Outcome(state="unknown", lacking=("environment",))]
    found: list[tuple[Severity, str, str]] = []
    hidden: list[str] = []
    matters: Severity = "warning" if len(machine.gpus) > 1 or machine.rdma else "info"
    for name, (harmless, effect) in CUTS.items():
        value = environment.get(name, "").strip()
        if value == REDACTED:
            hidden.append(f"environment[{name}]")
        elif value.upper() not in harmless:
            found.append((matters, f"environment[{name}]", f"{name}={value} ({effect})"))
    found += [("info", f"environment[{n}]", f"{n}={environment[n]}") for n in TUNES if environment.get(n)]
    if environment.get("NCCL_NVLS_ENABLE", "").strip() == "0":
        off = "NCCL_NVLS_ENABLE=0 (NVSwitches do not add up)"
        found.append(("info", "environment[NCCL_NVLS_ENABLE]", off))
    config = machine.software.nccl_config or ()
    found += [
        ("info", "software.nccl_config", f"{name} is set in /etc/nccl.conf")
        for name in config
        if (name in CUTS or name in TUNES) and name not in environment
    ]
    if found:
        severity: Severity = "warning" if any(one[0] == "warning" for one in found) else "info"
        paths = tuple(dict.fromkeys(path for _, path, _ in found))
        message = "; ".join(text for _, _, text in found)
        return [Outcome(state="finding", severity=severity, message=message, paths=paths)]
    if machine.software.nccl_config is None and not is_absent(machine, "software.nccl_config"):
        hidden.append("software.nccl_config")
    if hidden:
        return [Outcome(state="unknown", lacking=tuple(hidden))]
    return [Outcome(state="pass", message="no setting cuts NCCL off", paths=("environment",))]
