"""Settings measured against each other: interleaved in blocks, losers dropped early."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from wellfed.live.loader import look
from wellfed.live.loader.contender import Contender
from wellfed.live.loader.session import Session
from wellfed.model import Ceiling
from wellfed.model.loader import LoaderSetting, LoaderStages
from wellfed.predict import loader as model

MAX_PROBES = 5
RACE_S = 0.65
"""Of the budget: the time for settings against each other. The rest is what comes before, and the import of torch."""
_ROUNDS = 8
_DROP = (0.50, 0.70, 0.80, 0.85)
"""A setting is dropped when its rate by the best one's is below this after 1, 2, 3, 4 rounds."""
_DEEPER = 1.03
"""A prefetch of 4 must promise so much over 2 to be tried."""
_GROWS = 1.15
"""The largest setting must beat the next by so much to make a larger one worth a try."""


class Race:
    """Contenders of one dataset. `samples` of a batch; `turn_s` tells what a batch takes each of so many workers."""

    def __init__(
        self, session: Session, samples: float, turn_s: Callable[[int], float], say: Callable[[str], None]
    ) -> None:
        self.session, self.samples, self.turn_s, self.say = session, samples, turn_s, say
        self.contenders: list[Contender] = []
        self.round = 0
        self.stopping = True

    def open(self, settings: list[tuple[LoaderSetting, float | None]]) -> None:
        """Start loaders together: they are slow to start for the same reason."""
        new = [Contender(setting, predicted) for setting, predicted in settings]
        for one in new:
            one.start(self.session)
        self.contenders += new
        for one in new:
            one.started()
            self._rest(one)

    def _rest(self, one: Contender) -> None:
        """Stopped while others are measured, so that its workers take no core from them."""
        if self.stopping:
            one.stop()

    def release(self) -> None:
        """All run from now on: somebody waits for a lock that a stopped one holds."""
        self.stopping = False
        for one in self.contenders:
            one.go_on()

    def run_round(self) -> None:
        """A block of each that is left; every other round backwards."""
        order = self.racing()
        for one in order if self.round % 2 == 0 else reversed(order):
            self.block(one)
        self.round += 1
        best = max((one.rate() for one in self.racing()), default=0.0)
        self.say(f"round {self.round}: best so far {best:,.0f} samples/s")

    def block(self, one: Contender, **more: Any) -> None:
        turn_s = self.turn_s(one.setting.workers)
        one.block(self.round, self.samples, turn_s, stuck=self.release, idle_full=not self.stopping, **more)
        self._rest(one)

    def racing(self) -> list[Contender]:
        return [one for one in self.contenders if one.in_race]

    def drop_losers(self) -> None:
        """Those that are clearly behind are measured no more."""
        racing = [one for one in self.racing() if one.blocks]
        if not racing:
            return
        best = max(racing, key=lambda one: one.rate())
        for one in racing:
            mark = _DROP[min(len(one.blocks), len(_DROP)) - 1]
            if one is not best and model.ratio_of(one.blocks, best.blocks) < mark:
                one.dropped = True
                one.stop()

    def chosen(self, enough: float | None) -> Contender | None:
        measured = [one for one in self.contenders if one.state == "measured" and one.blocks]
        if not measured:
            return None
        found = model.choose([one.blocks for one in measured], [one.size for one in measured], enough=enough)
        return measured[found.place]

    def find(self, workers: int, prefetch: int | None = None) -> Contender | None:
        for one in self.contenders:
            if one.setting.workers == workers and (prefetch is None or one.setting.prefetch == prefetch):
                return one
        return None


class Tuned(NamedTuple):
    """What a run gave: the race, the costs that the model ended with, and what the device costs."""

    looked: look.Looked
    race: Race
    chosen: Contender | None
    costs: model.LoaderCosts
    stages: LoaderStages
    device: dict[str, Any]
    enough: float | None
    stopped: str | None
    context: str | None
    caps: dict[str, int | None]
    verified: dict[str, Any] | None
    shards: dict[str, Any]
    ceilings: tuple[Ceiling, ...]
    current: Contender | None


class Runner:
    """One tuning, step by step; `run` is the order."""

    def __init__(
        self, session: Session, request: look.Request, looked: look.Looked, say: Callable[[str], None]
    ) -> None:
        self.session, self.request, self.looked, self.say = session, request, looked, say
        self.end = time.monotonic() + request.budget_s * RACE_S
        self.last = time.monotonic() + request.budget_s
        self.stages = looked.stages
        self.samples = max(self.stages.batch_samples, 1e-9)
        cores = looked.budget.measured or looked.budget.cores
        self.costs = look.costs_of(self.stages, looked.profile, cores)
        self.race = Race(session, self.samples, self._turn_s, say)
        self.context = look.context_of(looked.facts)

    def run(self) -> Tuned:
        self.shards = self._shards()
        self._first()
        replay = self.looked.replay
        self._calibrate()
        enough = self._enough()
        stopped = self._headspace(replay, enough)
        if stopped is None:
            self._open_candidates()
            self._measure(enough)
        chosen = self.race.chosen(enough)
        return Tuned(
            looked=self.looked,
            race=self.race,
            chosen=chosen,
            costs=self.costs,
            stages=self.stages,
            device=self._device(),
            enough=enough,
            stopped=stopped,
            context=self.context,
            caps=self._caps(),
            verified=self._verify(chosen),
            shards=self.shards,
            ceilings=(),
            current=self._current(),
        )

    # -- before the race --------------------------------------------------------------------------------

    def setting(self, workers: int, prefetch: int = 2) -> LoaderSetting:
        return look.setting_of(self.looked.facts, workers, prefetch)

    def _first(self) -> None:
        """One worker: the price of the way through it, and its memory, before there are more of them. Beside it the setting
        that the user has, when it takes none."""
        fits = all(cap is None or cap >= 1 for cap in self._caps().values())
        for one in self.looked.early:
            one.predicted = self._rate(one.setting.workers)
            if one.setting.workers and not fits:
                one.fail("rejected", "its first batches alone are more than the budget allows")
            self.race.contenders.append(one)
        if not self.looked.early:
            self.race.open(
                [(self.setting(workers), self._rate(workers)) for workers in ((0, 1) if fits else (0,))]
            )
        self.race.run_round()

    def _shards(self) -> dict[str, Any]:
        """For iterable datasets: whether two workers give the same samples; empty for others, and where it can't be seen."""
        if self.looked.facts["kind"] != "iterable":
            return {}
        self.say("looking whether workers share the stream out among them")
        probe = self.session.fork()
        found = look.optional(probe, {"do": "shards", "context": self.context})
        probe.kill()
        return found

    def _calibrate(self) -> None:
        """The costs as one worker, and none, were measured to have them."""
        one, none = self.race.find(1), self.race.find(0)
        if none is not None and none.blocks:
            self.costs = self.costs._replace(alone_s=self.samples / none.rate())
        if one is None or not one.blocks:
            return
        reply = one.replies[-1]
        self.costs = model.with_ipc(self.costs, reply["waits"]["p50"], reply["main_cpu_s"] / reply["batches"])

    def _enough(self) -> float | None:
        demand = self.demand()
        return None if demand is None else model.ENOUGH * demand

    def demand(self) -> float | None:
        """Samples a second that the consumer eats."""
        if self.request.step_s:
            return self.samples / self.request.step_s
        return self.request.rate

    def _headspace(self, replay: dict[str, Any], enough: float | None) -> str | None:
        """Why no search is worth while, None when one is."""
        current = self._current()
        if current is None or not current.blocks:
            return None
        if enough is not None and current.rate() >= enough:
            return "the loader already delivers more than is needed"
        bound = self.samples / max(replay["same"]["main_cpu_s"], 1e-9) if replay else 0.0
        if enough is None and 0 < bound < model.ENOUGH * current.rate():
            return "finished batches could not be received much faster"
        return None

    def _current(self) -> Contender | None:
        """The contender with the user's own setting."""
        current = self.looked.facts["current"]
        if current is None:
            return self.race.find(0)
        return self.race.find(
            current["num_workers"], None if not current["num_workers"] else current["prefetch_factor"]
        )

    # -- the race ---------------------------------------------------------------------------------------

    def _caps(self) -> dict[str, int | None]:
        one = self.race.find(1)
        return look.caps(self.stages, self.looked.budget, one.worker_bytes() if one is not None else 0)

    def _turn_s(self, workers: int) -> float:
        """Of a batch in one of so many workers that share the cores."""
        return max(self.costs.wall_s, workers * self.costs.cpu_s / max(self.costs.cores, 0.1))

    def _rate(self, workers: int, prefetch: int = 2) -> float:
        """Predicted samples a second."""
        return self.samples * model.predict_rate(self.costs, workers, prefetch)

    def _ladder(self) -> tuple[int, ...]:
        limits = [cap for cap in self._caps().values() if cap is not None]
        if look.duplicated(self.shards):
            limits.append(1)  # more would give everything several times
        return model.ladder(self.looked.budget.cores, min(limits) if limits else None)

    def _open_candidates(self) -> None:
        """What the model finds near the best. Cores are taken as those allowed: others that run now may not later, and what
        turns out to be too many is measured against fewer."""
        cores = max(self.looked.budget.cores, self.costs.cores)
        costs = self.costs._replace(cores=cores)
        rates = {workers: self.samples * model.predict_rate(costs, workers) for workers in self._ladder()}
        picked = model.candidates(rates, cores, demand=self.demand())
        wanted = [self.setting(workers) for workers in picked]
        star = max(picked[0], 1)
        if self._rate(star, 4) > _DEEPER * self._rate(star):
            wanted.insert(1, self.setting(star, 4))
        current = self.looked.facts["current"]
        if current and 0 < current["num_workers"] <= max(rates):
            wanted.insert(0, self.setting(current["num_workers"], current["prefetch_factor"] or 2))
        self._open([(one, self._rate(one.workers, one.prefetch or 2)) for one in wanted])

    def _open(self, wanted: list[tuple[LoaderSetting, float | None]]) -> None:
        """Those that are new, together, as far as budgets and the number of probes go."""
        room = MAX_PROBES - sum(one.in_race for one in self.race.contenders)
        new: list[tuple[LoaderSetting, float | None]] = []
        for setting, predicted in wanted:
            known = self.race.find(setting.workers, setting.prefetch)
            if (
                known is None
                and all(setting != one for one, _ in new)
                and len(new) < room
                and self._fits(setting, [one for one, _ in new])
            ):
                new.append((setting, predicted))
        self.race.open(new)

    def _fits(self, setting: LoaderSetting, others: list[LoaderSetting]) -> bool:
        """Whether the probe may be open beside those that are."""
        one = self.race.find(1)
        private = one.worker_bytes() if one is not None else 0
        batch = self.stages.batch_bytes
        alive = [c.setting for c in self.race.racing()] + others + [setting]
        ram = sum(
            model.memory_bytes(0, s.workers, private, s.prefetch or 0, batch, s.pin_memory) for s in alive
        )
        shm = sum(s.workers * (s.prefetch or 0) * (batch - self.stages.pipe_bytes) for s in alive)
        budget = self.looked.budget
        return (budget.ram_bytes is None or ram <= 0.85 * budget.ram_bytes) and (
            budget.shm_bytes is None or shm <= budget.shm_bytes
        )

    def _measure(self, enough: float | None) -> None:
        """Rounds until the time is over, or one is left, or the best is plain."""
        self.race.drop_losers()
        for _ in range(_ROUNDS):
            began = time.monotonic()
            self.race.run_round()
            self.race.drop_losers()
            self._go_further()
            racing = self.race.racing()
            took = time.monotonic() - began
            late = time.monotonic() + (took if self.race.round >= 3 else 0.5 * took) > self.end
            once = any(len(one.blocks) < 2 for one in racing) and time.monotonic() + took < self.last
            if late and not once:
                return
            if self.race.round >= 3 and len(racing) <= 1:
                return

    def _go_further(self) -> None:
        """A larger setting, when the largest is far ahead of the others."""
        racing = sorted((one for one in self.race.racing() if one.blocks), key=lambda one: one.size)
        if len(self.race.racing()) >= MAX_PROBES or not racing:
            return
        largest = racing[-1]
        others = [
            one
            for one in self.race.contenders
            if one.blocks and one.setting.workers < largest.setting.workers
        ]
        if not others or largest.rate() < _GROWS * max(one.rate() for one in others):
            return
        steps = [step for step in self._ladder() if step > largest.setting.workers]
        if steps:
            workers = min(steps, key=lambda step: abs(step - 2 * largest.setting.workers))
            self._open([(self.setting(workers, largest.setting.prefetch or 2), self._rate(workers))])

    # -- after the race ---------------------------------------------------------------------------------

    def _verify(self, chosen: Contender | None) -> dict[str, Any] | None:
        """The chosen loader with a consumer that takes its time: the share of waiting as training will see it."""
        if chosen is None or not self.request.step_s or chosen.state != "measured":
            return None
        self.race.block(chosen, step_s=self.request.step_s, seconds=0.5)
        return chosen.replies[-1] if chosen.state == "measured" else None

    def _device(self) -> dict[str, Any]:
        return look.device_costs(self.looked.device)
