"""What is found out about a loader before its settings are compared."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from wellfed.live.loader.contender import Contender
from wellfed.live.loader.session import Lost, Probe, Session
from wellfed.model import Ceiling, WellfedError
from wellfed.model.loader import LoaderBudget, LoaderSetting, LoaderStages
from wellfed.predict import loader as model

BUDGET_S = 6.0
PROFILE_S, GIL_S, REPLAY_S = 0.10, 0.05, 0.03
"""Shares of the budget."""
_SLOW_S = 0.3
"""A first batch that takes longer builds something first; the first two loaders are then started beside it."""
Say = Callable[[str], None]


class Request(NamedTuple):
    """What the user asked. `step_s` is the consumer's time for a batch, `rate` the same in samples a second. `ceilings` of the
    storage are taken as they are; else it is measured in `folder` when reading is material."""

    target: str
    batch_size: int | None = None
    step_s: float | None = None
    rate: float | None = None
    budget_s: float = BUDGET_S
    ram: int | None = None
    folder: Path | None = None
    ceilings: tuple[Ceiling, ...] = ()


class Looked(NamedTuple):
    """What is known before settings are compared."""

    facts: dict[str, Any]
    budget: LoaderBudget
    stages: LoaderStages
    profile: dict[str, Any]
    replay: dict[str, Any]
    device: "Pending | None"
    early: tuple[Contender, ...]


class Pending(NamedTuple):
    """A question that is answered while others are asked."""

    probe: Probe
    until: float


def _unread(error: str) -> str:
    if error.startswith("StopIteration"):
        return "it delivers no batch: the dataset is empty, or smaller than a batch with drop_last"
    return f"reading a batch failed: {error}"


def look(session: Session, request: Request, budget: LoaderBudget, say: Say) -> Looked:
    """Build the loader in the server and profile it in a probe."""
    say(f"importing torch and {request.target}")
    facts = session.start(request.target, request.batch_size)
    if not facts["ok"]:
        hint = (
            facts["hint"]
            or f"make `python -c` run {request.target.rpartition(':')[2]}() without an error first"
        )
        raise WellfedError(f"{request.target}: {facts['error']}", hint=hint)
    device = _ask_device(session, facts)
    say("profiling a sample's stages, without workers")
    probe = session.fork()
    seconds = request.budget_s * PROFILE_S
    early: list[Contender] = []

    def start_others() -> None:
        early.extend(Contender(setting_of(facts, workers), None) for workers in (0, 1))
        for one in early:
            one.start(session)

    try:
        probe.send({"do": "warm"})
        _check(probe.reply(60 + 25 * seconds, after_s=_SLOW_S, call=start_others), request.target)
        for one in early:
            one.started()
            one.stop()
        profile = probe.ask({"do": "profile", "seconds": seconds}, 60 + 25 * seconds)
        _check(profile, request.target)
    except Lost as lost:
        raise WellfedError(
            f"{request.target}: no batch could be read: {lost.why}",
            hint="wellfed loader with a larger --ram, or a smaller batch",
        ) from lost
    speedup = (
        None
        if facts["kind"] == "iterable"
        else optional(probe, {"do": "gil", "seconds": request.budget_s * GIL_S}).get("speedup")
    )
    # by the process that has a batch: one that is new would first have to build what makes them
    replay = optional(probe, {"do": "replay", "seconds": request.budget_s * REPLAY_S})
    probe.kill()
    stages = stages_of(profile, facts, speedup)
    return Looked(facts, budget, stages, profile, replay, device, tuple(early))


def _check(reply: dict[str, Any], target: str) -> None:
    if not reply["ok"]:
        raise WellfedError(
            f"{target}: {_unread(reply['error'])}", hint="read one batch in Python and look at the error"
        )


def context_of(facts: dict[str, Any]) -> str | None:
    """How workers start: as the user's own do; else fork is safe only with no device open and no thread alive. None: the
    system's default."""
    if facts["current"] and facts["current"]["multiprocessing_context"]:
        return str(facts["current"]["multiprocessing_context"])
    unsafe = facts["start_method"] == "fork" and (facts["cuda_open"] or facts["threads"])
    return "forkserver" if unsafe and facts["pickled_bytes"] is not None else None


def setting_of(facts: dict[str, Any], workers: int, prefetch: int = 2) -> LoaderSetting:
    """A setting of the race, whose workers stay."""
    if workers == 0:
        return LoaderSetting(workers=0)
    return LoaderSetting(workers=workers, prefetch=prefetch, persistent=True, context=context_of(facts))


def optional(probe: Probe, message: dict[str, Any]) -> dict[str, Any]:
    """An answer, empty when there is none: threads may not suit a dataset."""
    try:
        found = probe.ask(message, 20)
    except Lost:
        return {}
    return found if found["ok"] else {}


def _ask_device(session: Session, facts: dict[str, Any]) -> Pending | None:
    if not facts["cuda_built"] or not any(
        Path(one).exists() for one in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
    ):
        return None
    probe = session.fork()
    probe.send({"do": "device"})
    return Pending(probe, time.monotonic() + 20)


def device_costs(pending: Pending | None) -> dict[str, Any]:
    """What pinning and copying cost, empty when that is not known."""
    if pending is None:
        return {}
    try:
        found = pending.probe.reply(max(pending.until - time.monotonic(), 0.1))
    except Lost:
        return {}
    pending.probe.kill()
    return found if found.get("ok") and found.get("device") else {}


def duplicated(shards: dict[str, Any]) -> bool:
    """Whether a fifth of what a second worker gives had been given by the first, while each gives different samples."""
    if not shards or min(shards["first"], shards["second"]) < 4:
        return False
    distinct = shards["distinct"] > 0.5 * shards["first"]
    return bool(distinct and shards["common"] >= 0.2 * shards["second"])


def stages_of(profile: dict[str, Any], facts: dict[str, Any], speedup: float | None) -> LoaderStages:
    _, tensors, tensor_bytes, arrays, pipe_bytes = profile["shape"]
    walls = sorted(profile["sample_walls"])
    io = profile["io"]
    return LoaderStages(
        batches=profile["batches"],
        batch_samples=samples_of(profile, facts),
        batch_bytes=tensor_bytes + pipe_bytes,
        tensors=tensors,
        arrays=arrays,
        pipe_bytes=pipe_bytes,
        fetch_s=profile["fetch_s"],
        fetch_cpu_s=profile["fetch_cpu_s"],
        collate_s=profile["collate_s"],
        sample_p50_s=walls[len(walls) // 2] if walls else None,
        sample_p99_s=walls[min(int(len(walls) * 0.99), len(walls) - 1)] if len(walls) >= 100 else None,
        read_s=profile.get("read_s"),
        decode_s=profile.get("decode_s"),
        sleep_s=profile.get("sleep_s"),
        transforms=profile.get("transforms", {}),
        gil=model.gil_share(speedup),
        hidden_cpu=profile["hidden_cpu"],
        threads=profile["threads"],
        reads=profile.get("reads"),
        read_bytes=io.get("rchar"),
        disk_bytes=io.get("read_bytes"),
    )


def samples_of(profile: dict[str, Any], facts: dict[str, Any]) -> float:
    """Samples of a batch: what the sampler asked for, or where the dataset gives whole batches their leading dimension."""
    if facts["batched"]:
        return float(profile["batch_samples"])
    return float(profile["shape"][0] or 1)


def costs_of(stages: LoaderStages, profile: dict[str, Any], cores: float) -> model.LoaderCosts:
    """What the model needs; the way through a worker is not known yet."""
    return model.LoaderCosts(
        walls=tuple(profile["batch_walls"]) or (stages.wall_s,),
        cpu_s=stages.cpu_s,
        alone_s=stages.wall_s,
        main_s=1e-4,
        cores=cores,
    )


def caps(stages: LoaderStages, budget: LoaderBudget, private: int) -> dict[str, int | None]:
    """The most workers that each budget allows, with a prefetch of 2."""
    tensor_bytes = stages.batch_bytes - stages.pipe_bytes
    shared = 2 * tensor_bytes
    files = 2 * stages.tensors + 6
    return {
        "memory": model.most_workers(
            None if budget.ram_bytes is None else int(0.8 * budget.ram_bytes), private, 2, stages.batch_bytes
        ),
        "/dev/shm": None if budget.shm_bytes is None or not shared else budget.shm_bytes // shared,
        "descriptors": None if budget.descriptors is None else budget.descriptors // files,
    }
