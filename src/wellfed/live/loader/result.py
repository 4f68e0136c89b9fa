"""From a race to a result: what to use, why, and how far to trust it."""

from statistics import median
from typing import Any

from wellfed.live.loader.contender import Contender, arguments
from wellfed.live.loader.lints import judge
from wellfed.live.loader.look import Request
from wellfed.live.loader.race import Tuned
from wellfed.model import WellfedError
from wellfed.model.base import replace
from wellfed.model.loader import LoaderBudget, LoaderProbe, LoaderResult, LoaderSetting, LoaderStages
from wellfed.predict import loader as model

MOVED = 0.10
"""Cores that changed by more than this while settings were compared make the comparison doubtful."""
_SLOW_START = 0.01
_GROWTH_SHARE = 0.1


def conclude(request: Request, tuned: Tuned, budget: LoaderBudget, seconds: float) -> LoaderResult:
    """Raises WellfedError when no setting could be measured."""
    probes = tuple(one.result() for one in tuned.race.contenders)
    if tuned.chosen is None:
        why = next((probe.why for probe in probes if probe.why), "no probe finished")
        raise WellfedError(
            f"{request.target}: no setting could be measured: {why}",
            hint=f"wellfed loader {request.target} --budget 30",
        )
    stages = full_stages(tuned)
    setting = final_setting(tuned)
    facts = tuned.looked.facts
    rate, current_rate = tuned.chosen.rate(), tuned.current.rate() if tuned.current is not None else None
    demand, bound = demand_of(request, stages), receive_bound(tuned)
    accuracy = accuracy_of(probes)
    confidence, reasons = trust(tuned, budget, probes)
    result = LoaderResult(
        target=request.target,
        dataset=facts["dataset"],
        kind=facts["kind"],
        length=facts["length"],
        batch_size=stages.batch_samples,
        chosen=arguments(setting),
        rate=rate,
        current=facts["current"],
        current_rate=current_rate,
        demand=demand,
        headspace=headspace_of(bound, demand, current_rate),
        ceiling=ceiling_of(tuned),
        limit=limit_of(tuned),
        next=tuned.stopped or next_words(tuned, stages),
        stages=stages,
        budget=budget,
        probes=probes,
        confidence=confidence,
        reasons=reasons,
        notes=tuple(facts["notes"]),
        accuracy=accuracy,
        seconds=seconds,
        software={"torch": facts["torch"], "python": facts["python"]},
    )
    return replace(result, verdicts=judge(result, tuned))


def full_stages(tuned: Tuned) -> LoaderStages:
    """The stages with what the way through a worker and to the device cost."""
    one, replay, device = tuned.race.find(1), tuned.looked.replay, tuned.device
    samples = tuned.stages.batch_samples
    ipc = None
    if one is not None and one.blocks:
        ipc = max(samples / one.rate() - tuned.stages.wall_s, 0.0)
    main = (
        one.replies[-1]["main_cpu_s"] / one.replies[-1]["batches"]
        if one is not None and one.replies
        else None
    )
    return replace(
        tuned.stages,
        ipc_s=ipc,
        main_cpu_s=main,
        as_arrays_s=replay.get("fresh", {}).get("batch_s"),
        as_tensors_s=replay.get("tensors", {}).get("batch_s"),
        pin_s=device.get("pin_s"),
        pageable_s=device.get("pageable_s"),
        pinned_s=device.get("pinned_s"),
        device=device.get("device"),
    )


def final_setting(tuned: Tuned) -> LoaderSetting:
    """The chosen workers with the factors that are decided one by one: pinning, and workers that stay."""
    assert tuned.chosen is not None
    setting = tuned.chosen.setting
    return replace(
        setting, pin_memory=pins(tuned), persistent=bool(setting.workers) and persists(tuned, tuned.chosen)
    )


def pins(tuned: Tuned) -> bool:
    """Whether pinned memory copies faster than ordinary memory does, by more than a tenth and 20 us a batch. Pinning itself is
    a thread's work beside the training loop. Where that was not measured the user's own choice stays."""
    device = tuned.device
    if not device:
        current = tuned.looked.facts["current"]
        return bool(current and current["pin_memory"])
    saved = float(device["pageable_s"] - device["pinned_s"])
    return saved > 2e-5 and saved > 0.1 * float(device["pageable_s"])


def persists(tuned: Tuned, chosen: Contender) -> bool:
    """Workers that live on spare their start each epoch; not when they grow over an epoch by a tenth of the budget."""
    length, growth = tuned.looked.facts["length"], chosen.growth() or 0.0
    ram = tuned.looked.budget.ram_bytes
    if length and ram and growth > growth_floor(tuned) and growth * length > _GROWTH_SHARE * ram:
        return False
    start = chosen.opened.get("start_s", 0.0) + chosen.opened.get("first_s", 0.0)
    return length is None or start > _SLOW_START * length / max(chosen.rate(), 1e-9)


def growth_floor(tuned: Tuned) -> float:
    """Bytes a sample that count as growth: what allocators do is less than 1 % of the samples' own bytes."""
    return max(0.01 * tuned.stages.batch_bytes / max(tuned.stages.batch_samples, 1), 16.0)


def demand_of(request: Request, stages: LoaderStages) -> float | None:
    return stages.batch_samples / request.step_s if request.step_s else request.rate


def receive_bound(tuned: Tuned) -> float | None:
    """Samples a second at which the main process can take finished batches from workers; at least what was seen."""
    if not tuned.looked.replay:
        return None
    bound: float = tuned.stages.batch_samples / max(tuned.looked.replay["same"]["main_cpu_s"], 1e-9)
    return max([bound, *(one.rate() for one in tuned.race.contenders)])


def headspace_of(bound: float | None, demand: float | None, current: float | None) -> float | None:
    """How much faster training could get by any change of the loader (with a demand), or the loader itself (without)."""
    if not current:
        return None
    if demand is not None:
        return max(demand / min(current, demand), 1.0)
    return None if bound is None else max(bound / current, 1.0)


def ceiling_of(tuned: Tuned) -> float:
    """Samples a second that no number of workers of this kind passes: the cores, or the main process."""
    best = max(one.rate() for one in tuned.race.contenders)
    costs, samples = tuned.costs, tuned.stages.batch_samples
    return max(min(model.core_bound(costs), 1.0 / max(costs.main_s, 1e-9)) * samples, best)


def limit_of(tuned: Tuned) -> str:
    assert tuned.chosen is not None
    return model.limit_of(tuned.costs, tuned.chosen.setting.workers)


def next_words(tuned: Tuned, stages: LoaderStages) -> str:
    """What limits once the setting is used, in words, with the largest stage."""
    assert tuned.chosen is not None
    workers, costs = tuned.chosen.setting.workers, tuned.costs
    limit = model.limit_of(costs, workers)
    if limit == "receiving":
        return f"receiving batches: {1e3 * costs.main_s:.2g} ms of the main process for each; send fewer, larger tensors"
    name, spent = largest_stage(stages)
    part = f"{1e3 * spent:.3g} of {1e3 * stages.wall_s:.3g} ms a batch is {name}"
    if limit == "cores":
        return f"the cores ({costs.cores:.3g} measured): {part}"
    if limit == "one process":
        return f"one process does all: {part}; workers would add more than they take"
    full = [name for name, cap in tuned.caps.items() if cap is not None and cap <= workers]
    if full:
        return f"the budget of {full[0]} allows no more workers"
    return f"waiting in the workers: {part}; more workers would bring more, but were not needed or not tried"


def largest_stage(stages: LoaderStages) -> tuple[str, float]:
    """The stage that takes most of a batch: named transforms count for themselves."""
    parts = {
        "collate": stages.collate_s,
        **{f"transform {name}": spent for name, spent in stages.transforms.items()},
    }
    waits = {"reading": stages.read_s, "decoding": stages.decode_s, "sleeping or waiting": stages.sleep_s}
    parts |= {name: spent for name, spent in waits.items() if spent}
    known = sum(parts.values()) - stages.collate_s
    parts["the dataset's own code"] = max(stages.fetch_s - known, 0.0)
    name = max(parts, key=lambda one: parts[one])
    return name, parts[name]


def accuracy_of(probes: tuple[LoaderProbe, ...]) -> float | None:
    """Median of |predicted / measured - 1| over settings that the model had not seen."""
    errors = [
        abs(probe.predicted / probe.measured - 1.0)
        for probe in probes
        if probe.predicted and probe.measured and probe.setting.workers > 1
    ]
    return median(errors) if errors else None


def trust(tuned: Tuned, budget: LoaderBudget, probes: tuple[LoaderProbe, ...]) -> tuple[Any, tuple[str, ...]]:
    """high, medium or low, and why not high."""
    reasons = []
    moved = cores_moved(budget)
    if moved is not None and moved > MOVED:
        reasons.append(
            f"effective cores moved by {100 * moved:.0f} % while settings were compared ({budget.measured:.2f} to {budget.measured_after:.2f})"
        )
    chosen = next((p for p in probes if tuned.chosen is not None and p.setting == tuned.chosen.setting), None)
    if (
        chosen is not None
        and chosen.low
        and chosen.measured
        and chosen.high
        and (chosen.high - chosen.low) > 0.3 * chosen.measured
    ):
        reasons.append(
            f"the chosen setting's rate is known to +-{50 * (chosen.high - chosen.low) / chosen.measured:.0f} % only"
        )
    if not tuned.race.stopping:
        reasons.append("workers share a lock: settings could not be measured one at a time")
    return ("high", "medium", "low", "low")[len(reasons)], tuple(reasons)


def cores_moved(budget: LoaderBudget) -> float | None:
    if not budget.measured or not budget.measured_after:
        return None
    return abs(budget.measured_after / budget.measured - 1.0)
