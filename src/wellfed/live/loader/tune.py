"""The tuner: safety, headspace, stages, a model that prunes, and a few settings that are measured against each other."""

import importlib.util
import sys
import time

from wellfed.live.loader import limits
from wellfed.live.loader.lints import READ_SHARE
from wellfed.live.loader.look import Request, Say, look
from wellfed.live.loader.race import Runner, Tuned
from wellfed.live.loader.result import conclude
from wellfed.live.loader.session import Session
from wellfed.model import Ceiling, WellfedError
from wellfed.model.base import replace
from wellfed.model.loader import LoaderResult

STORAGE_S = 2.0


def tune(request: Request, say: Say) -> LoaderResult:
    """All of it; raises WellfedError when nothing can be read."""
    began = time.monotonic()
    check_torch()
    budget = limits.read_budget(request.ram)
    say("measuring how many cores are free")
    budget = replace(budget, measured=limits.measure_cores(budget.cores))
    with Session(budget.ram_bytes, budget.shm_bytes) as session:
        looked = look(session, request, budget, say)
        tuned = Runner(session, request, looked, say).run()
    tuned = tuned._replace(ceilings=storage(request, tuned))
    after = limits.measure_cores(budget.cores)
    budget = replace(budget, measured_after=after, ram_peak=session.ram_peak, shm_peak=session.shm_peak)
    return conclude(request, tuned, budget, time.monotonic() - began)


def storage(request: Request, tuned: Tuned) -> tuple[Ceiling, ...]:
    """What the storage of the data can do: as given, or measured in the user's folder where reading takes a fifth of a batch."""
    given = tuple(one for one in request.ceilings if one.id.startswith("storage-"))
    stages = tuned.stages
    if given or request.folder is None or (stages.read_s or 0.0) < READ_SHARE * stages.wall_s:
        return given
    from wellfed.bench import run_benchmarks
    from wellfed.host import look as look_at
    from wellfed.host import open_host

    ids = ("storage-read-seq", "storage-read-rand")
    measured = run_benchmarks(look_at(open_host(None)), budget_s=STORAGE_S, only=ids, folder=request.folder)
    return measured.ceilings


def check_torch() -> None:
    """Raises WellfedError where torch is not installed; does not import it."""
    if importlib.util.find_spec("torch") is None:
        raise WellfedError(
            f"`loader` runs your DataLoader, and {sys.executable} has no torch",
            hint="pip install 'wellfed[torch]'",
        )
    if sys.platform == "win32":
        raise WellfedError("`loader` forks its probes, which this system can't", hint="run it in WSL")
