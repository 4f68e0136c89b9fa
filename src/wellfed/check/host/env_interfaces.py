"""Network interfaces that the environment names for NCCL and Gloo."""

from collections.abc import Iterable

from wellfed.check.evaluate import Outcome
from wellfed.check.expression import was_seen
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine
from wellfed.model.environment import REDACTED

NAMED_BY = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def wanted(variable: str, value: str, names: Iterable[str]) -> tuple[str, ...] | None:
    """The interfaces that a value picks; None when it only leaves some out. NCCL takes prefixes, `=` before the list
    makes them whole names, `^` leaves those out; Gloo takes whole names."""
    whole = variable == "GLOO_SOCKET_IFNAME"
    if not whole and value.startswith("^"):
        return None
    if not whole and value.startswith("="):
        whole, value = True, value[1:]
    parts = [part.strip() for part in value.split(",") if part.strip()]
    # An alias (`eth0:1`) is an address of the interface before the colon, which alone is a device.
    parts = [part.partition(":")[0] for part in parts]
    return tuple(n for n in names if any(n == part if whole else n.startswith(part) for part in parts))


@rule(
    "ENV12",
    "nccl-interface-missing",
    layer="env",
    severity="warning",
    trust="verified",
    reversible="live-nextproc",
)
def judge_interfaces(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """NCCL or Gloo is told to use a network interface that is not there or is down.

    What it looks at. `NCCL_SOCKET_IFNAME` and `GLOO_SOCKET_IFNAME`, and the interfaces of this machine.
    Why it costs. Ranks find each other over this interface: without it the job stops or hangs at its start.
    How it is judged. Bad when a variable picks no interface that exists, or only ones that are down. A list of
    interfaces to leave out (`^`) is not judged.
    What is known of the gain. It is a question of working at all.
    Remedy. unset the variable, or name an interface of `ip -br link` that is up
    Restore. set the old value again
    When to ignore. When jobs run in a network namespace of their own.
    Sources. NVIDIA NCCL documentation: environment variables, NCCL_SOCKET_IFNAME
    """
    environment = machine.environment
    if not environment and not was_seen(machine, "environment"):
        return [Outcome(state="unknown", lacking=("environment",))]
    said = {name: environment[name].strip() for name in NAMED_BY if environment.get(name, "").strip()}
    hidden = tuple(f"environment[{name}]" for name, value in said.items() if value == REDACTED)
    if said and not machine.nics:
        hidden = (*hidden, "nics")
    if hidden:
        return [Outcome(state="unknown", lacking=hidden)]
    states = {"lo": None, **{nic.name: nic.state for nic in machine.nics}}
    found: list[tuple[str, str]] = []
    for name, value in said.items():
        picked = wanted(name, value, states)
        if picked is None:
            continue
        if not picked:
            found.append((name, f"{name}={value} names no interface of this machine"))
        elif all(states[one] == "down" for one in picked):
            found.append((name, f"{name}={value}: {', '.join(picked)} is down"))
    if found:
        paths = (*(f"environment[{name}]" for name, _ in found), "nics")
        return [
            Outcome(
                state="finding", severity="warning", message="; ".join(text for _, text in found), paths=paths
            )
        ]
    message = "the interfaces that are named are there" if said else "no interface is named"
    return [Outcome(state="pass", message=message, paths=("environment",))]
