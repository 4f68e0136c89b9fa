"""What is wrong with a loader besides its numbers, from what was seen while it was tuned. One function a code."""

from collections.abc import Iterator
from typing import Any

from wellfed.live.loader import look
from wellfed.live.loader.race import Tuned
from wellfed.model.loader import LoaderProbe, LoaderResult
from wellfed.model.verdict import Evidence, Gain, Severity, Verdict
from wellfed.predict import loader as model

MIB = 1 << 20
HEAVY_BYTES = 50 * MIB
_SAW = 0.5
READ_SHARE = 0.2
_GROWN_BYTES = 2 * MIB
_GROWTH_SHARE = 0.1


def judge(result: LoaderResult, tuned: Tuned) -> tuple[Verdict, ...]:
    """All findings, the worst first."""
    found = [verdict for check in CHECKS for verdict in check(result, tuned)]
    rank = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda one: (one.verdict != "finding", rank[one.severity], one.code)))


def _finding(code: str, name: str, severity: Severity, message: str, **more: Any) -> Verdict:
    seen = more.pop("seen", "")
    evidence = (Evidence(source="wellfed loader", text=seen),) if seen else ()
    return Verdict(
        code=code,
        name=name,
        verdict="finding",
        severity=severity,
        message=message,
        layer="loader",
        evidence=evidence,
        **more,
    )


def starved(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M500: the user's own setting against the chosen one. With a demand the severity follows from the share of the time
    that is lost; without one nobody knows whether anything waits, so it is for information."""
    now, best, demand = result.current_rate, result.rate, result.demand
    if not now or not best or best < 1.05 * now:
        return
    reached = min(best, demand) if demand else best
    gain = reached / min(now, demand) if demand else best / now
    if gain < 1.05:
        return
    lost = 1 - 1 / gain
    severity: Severity = "info" if demand is None else "error" if lost >= 0.2 else "warning"
    own = "the present setting" if result.current else "no workers"
    needed = f", {demand:,.0f} are needed" if demand else ""
    yield _finding(
        "M500",
        "loader-starves",
        severity,
        f"{own} delivers {now:,.0f} samples/s, {shown(result.chosen)} delivers {best:,.0f}{needed}",
        gain=Gain(
            speedup=gain,
            basis="measured",
            measured_in="step time" if demand else "loader rate",
            next=result.limit,
        ),
        remedy=shown(result.chosen),
        risk="safe",
        verify=f"wellfed loader {result.target}",
    )


def shown(chosen: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in chosen.items() if name != "pin_memory" or value)


def through_the_pipe(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M501: numpy arrays are pickled through a pipe of 64 KiB; tensors lie in shared memory."""
    stages = result.stages
    slow, fast = stages.as_arrays_s, stages.as_tensors_s
    if slow is None or fast is None or slow - fast < 0.05 * (stages.wall_s + slow):
        return
    yield _finding(
        "M501",
        "numpy-through-pipe",
        "warning",
        f"batches of {stages.pipe_bytes / 1e6:.3g} MB in numpy arrays take {1e3 * slow:.3g} ms from worker to main process; as tensors "
        f"{1e3 * fast:.3g} ms",
        gain=Gain(
            speedup=(stages.wall_s + slow) / (stages.wall_s + fast),
            basis="measured",
            measured_in="time of a batch in a worker",
        ),
        remedy="return tensors from `collate_fn` (torch.from_numpy(array) copies nothing)",
        risk="safe",
    )


def python_objects(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M502: reading Python objects counts references, which copies their pages in each forked worker."""
    heavy = [one for one in tuned.looked.facts["heavy"] if one["bytes"] > HEAVY_BYTES]
    for one in heavy:
        workers = max(int(result.chosen["num_workers"]), 1)
        yield _finding(
            "M502",
            "python-objects-in-dataset",
            "warning",
            f"dataset.{one['name']} is a {one['type']} of {one['items']:,} objects, about {one['bytes'] / 1e6:,.0f} MB: each worker "
            f"copies it as it reads, {workers * one['bytes'] / 1e9:.2g} GB for {workers}",
            remedy="keep it in a numpy array, an Arrow table, or one byte buffer with offsets",
            risk="safe",
        )


def big_pickle(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M503: spawned workers (and those of a fork server) are each sent the dataset."""
    facts = tuned.looked.facts
    method = tuned.context or facts["start_method"]
    if method == "fork":
        return
    size, why = facts["pickled_bytes"], facts["pickle_why"]
    if size is None:
        yield _finding(
            "M503",
            "dataset-not-picklable",
            "error",
            f"workers start by {method}, and the dataset can't be pickled: {why}",
            remedy="open files and clients in the worker (in `__getitem__` or `worker_init_fn`), not in `__init__`",
        )
    elif size > HEAVY_BYTES:
        at_least = "at least " if why else ""
        yield _finding(
            "M503",
            "large-pickle",
            "warning",
            f"each worker starts by {method} and is sent {at_least}{size / 1e6:,.0f} MB of dataset",
            remedy="keep the data in a file that workers map (numpy.memmap, Arrow), and send its name",
        )


def device_before_fork(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M504: a forked process can't use a device that its parent has open."""
    facts = tuned.looked.facts
    if facts["cuda_open"]:
        yield _finding(
            "M504",
            "cuda-before-fork",
            "error" if facts["start_method"] == "fork" else "warning",
            "the factory opens CUDA before workers start; forked workers that touch it fail or hang",
            remedy='build the loader first, or multiprocessing_context="forkserver"',
        )
    if tuned.looked.profile.get("cuda") and not facts["cuda_open"]:
        yield _finding(
            "M514",
            "cuda-in-worker",
            "error",
            "the dataset uses CUDA for its samples: each worker makes a context of its own (about 0.5 GB of the device)",
            remedy="give CPU tensors; move them to the device in the training loop",
        )


def threads_before_fork(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M505: a lock that a thread holds at the fork stays locked in the worker for good."""
    facts = tuned.looked.facts
    names = facts["threads"]
    if names and facts["start_method"] == "fork":
        yield _finding(
            "M505",
            "threads-before-fork",
            "warning",
            f"the factory leaves {len(names)} threads running ({', '.join(names[:3])}): workers that are forked may hang",
            remedy='start threads after the loader, or multiprocessing_context="forkserver"',
        )


def oversubscribed(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M506: a pool of threads in each worker (OpenCV, OpenMP, BLAS) takes the cores of the other workers."""
    stages, cores = result.stages, result.budget.cores
    workers = max(int(result.chosen["num_workers"]), 1)
    if stages.hidden_cpu < 0.3 or (1 + stages.hidden_cpu) * workers <= cores:
        return
    yield _finding(
        "M506",
        "thread-oversubscription",
        "warning",
        f"a sample takes {1 + stages.hidden_cpu:.1f} times the CPU time of its own thread: a pool of {stages.threads} threads works in "
        f"each worker, on {cores:.3g} cores",
        remedy="in `worker_init_fn`: cv2.setNumThreads(0), torch.set_num_threads(1); OMP_NUM_THREADS=1 before the start",
        risk="safe",
    )


def too_little_room(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M507, M508: budgets that allow fewer workers than would pay."""
    rates = {
        workers: model.predict_rate(tuned.costs, workers) for workers in model.ladder(result.budget.cores)
    }
    wish = next(
        workers for workers, rate in sorted(rates.items()) if rate >= model.NEAR * max(rates.values())
    )
    for name, code, slug, remedy in (
        (
            "/dev/shm",
            "M507",
            "shm-too-small",
            "docker run --shm-size=8g, --ipc=host, or an emptyDir of medium Memory",
        ),
        (
            "descriptors",
            "M508",
            "too-few-descriptors",
            "ulimit -n 65536, or torch.multiprocessing.set_sharing_strategy('file_system')",
        ),
        (
            "memory",
            "M516",
            "too-little-memory",
            "smaller batches, a lower prefetch_factor, or less kept in each worker",
        ),
    ):
        cap = tuned.caps[name]
        if cap is not None and cap < wish:
            size = {"/dev/shm": result.budget.shm_bytes, "memory": result.budget.ram_bytes}.get(
                name, result.budget.descriptors
            )
            had = f"{size:,}" if name == "descriptors" else f"{(size or 0) / 1e6:,.0f} MB"
            text = f"the budget of {name} ({had}) allows {cap} workers; the model asks for {wish}"
            yield _finding(code, slug, "error" if cap < 1 else "warning", text, remedy=remedy)


def unsharded(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M509: each worker of an iterable dataset gives all of it."""
    if result.kind != "iterable":
        return
    shards = tuned.shards
    if not shards:
        yield Verdict(
            code="M509", name="unsharded-iterable", verdict="not-judged", reason="no-fact", layer="loader",
            message="two workers could not be compared",
        )  # fmt: skip
    elif look.duplicated(shards):
        yield _finding(
            "M509",
            "unsharded-iterable",
            "error",
            f"{shards['common']} of {shards['second']} samples of a second worker had come from the first: N workers give all data N times",
            remedy="in `__iter__`, take every num_workers-th sample from get_worker_info().id on (or split_by_worker of webdataset)",
        )


def cold_workers(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M510: workers start again each epoch."""
    chosen, current = tuned.chosen, result.current
    if (
        chosen is None
        or not result.chosen.get("persistent_workers")
        or not current
        or not current["num_workers"]
    ):
        return
    start = chosen.opened.get("start_s", 0.0) + chosen.opened.get("first_s", 0.0)
    if current["persistent_workers"] or not result.length:
        return
    epoch = result.length / max(chosen.rate(), 1e-9)
    share = start / (epoch + start)
    if share < 0.01:
        return
    yield _finding(
        "M510",
        "cold-workers-each-epoch",
        "error" if share >= 0.2 else "warning" if share >= 0.05 else "info",
        f"{start:.2g} s pass until the first batch of each epoch of {epoch:.3g} s",
        gain=Gain(speedup=1 / (1 - share), basis="measured", measured_in="epoch time"),
        remedy="persistent_workers=True",
        risk="safe",
    )


def _of(tuned: Tuned, result: LoaderResult) -> LoaderProbe | None:
    return next(
        (p for p in result.probes if tuned.chosen is not None and p.setting == tuned.chosen.setting), None
    )


def sawtooth(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M511: the wait comes back every W batches: the workers are the limit, in step with each other."""
    probe = _of(tuned, result)
    if probe is None or probe.sawtooth is None or probe.sawtooth < _SAW or probe.setting.workers < 2:
        return
    yield _finding(
        "M511",
        "sawtooth",
        "info",
        f"waits repeat every {probe.setting.workers} batches (autocorrelation {probe.sawtooth:.2f}): the workers are the limit",
        remedy="make samples cheaper, or use more workers; single slow batches among them: in_order=False",
    )


def out_of_order(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M515: one slow sample holds back the finished batches of the others."""
    workers = int(result.chosen["num_workers"])
    if workers < 2 or not tuned.looked.facts["has_in_order"]:
        return
    prefetch = int(result.chosen.get("prefetch_factor", 2))
    ordered = model.predict_rate(tuned.costs, workers, prefetch)
    free = model.predict_rate(tuned.costs, workers, prefetch, in_order=False)
    if free < 1.1 * ordered:
        return
    yield _finding(
        "M515",
        "ordered-delivery",
        "info",
        f"batches wait for slower ones before them; as they come, about {free / ordered:.2g} times the rate",
        gain=Gain(speedup=free / ordered, basis="modelled", measured_in="loader rate"),
        remedy="in_order=False, where the order of samples need not repeat from run to run",
    )


def growing(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M512: private memory of a worker that goes up with the samples it has read."""
    seen = [one for one in tuned.race.contenders if len(one.memory) >= 2 and one.growth() is not None]
    if not seen:
        return
    longest = max(seen, key=lambda one: one.memory[-1][0])
    growth, grown = longest.growth() or 0.0, longest.memory[-1][1] - longest.memory[0][1]
    ram = result.budget.ram_bytes
    epoch = result.length or 1_000_000
    if grown < _GROWN_BYTES or ram is None or growth * epoch < _GROWTH_SHARE * ram:
        return
    left = ram / growth
    when = left / max(result.rate or 1.0, 1e-9)
    yield _finding(
        "M512",
        "memory-grows",
        "error" if growth * epoch > ram else "warning",
        f"a worker keeps {growth / 1e3:,.3g} kB of each sample it reads: {growth * epoch / 1e9:,.3g} GB over {epoch:,} samples; the budget is "
        f"full after {left:,.0f} samples, {when / 60:,.2g} min at this rate",
        remedy="bound the cache, or keep it outside the workers; persistent_workers=False empties it each epoch",
    )


def small_reads(result: LoaderResult, tuned: Tuned) -> Iterator[Verdict]:
    """M513: reading is a large part, in many small pieces."""
    stages = result.stages
    if not stages.read_s or stages.wall_s <= 0 or stages.read_s < READ_SHARE * stages.wall_s:
        return
    share, reads = stages.read_s / stages.wall_s, stages.reads or 0.0
    size = (stages.read_bytes or 0.0) / max(reads, 1.0)
    cached = bool(stages.read_bytes) and (stages.disk_bytes or 0) < 0.1 * (stages.read_bytes or 0)
    where = ", all but from the page cache" if cached else ""
    storage = {one.id: one for one in tuned.ceilings}
    worth = model.sharded_gain(
        stages.wall_s, stages.read_s, stages.read_bytes or 0.0,
        storage["storage-read-seq"].median * 1e6 if "storage-read-seq" in storage else None,
    )  # fmt: skip
    gain = (
        Gain(
            speedup=worth,
            basis="modelled",
            measured_in="time of a batch in a worker",
            source="storage-read-seq",
        )
        if worth
        else None
    )
    todo = "" if worth else "; its worth is not judged: name the folder of the data with --dir"
    yield _finding(
        "M513",
        "small-reads",
        "info",
        f"reading is {100 * share:.0f} % of a batch: {reads:.0f} calls of {size / 1e3:.3g} kB on average{where}",
        gain=gain,
        remedy=f"pack samples into shards (tar, Arrow, WebDataset) and read them in blocks of 1 MB or more, ahead of use{todo}",
    )


CHECKS = (
    starved,
    through_the_pipe,
    python_objects,
    big_pickle,
    device_before_fork,
    threads_before_fork,
    oversubscribed,
    too_little_room,
    unsharded,
    cold_workers,
    sawtooth,
    out_of_order,
    growing,
    small_reads,
)
