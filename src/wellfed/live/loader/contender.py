"""One setting in the race: a probe that is stopped while others are measured, so that its workers take no core from them."""

import contextlib
import os
import signal
from collections.abc import Callable
from statistics import median
from typing import Any

from wellfed.live.loader import limits
from wellfed.live.loader.session import Lost, Session
from wellfed.model.loader import LoaderProbe, LoaderSetting
from wellfed.predict.loader import interval

BLOCK_S = 0.2
OPEN_S = 120.0
_STUCK_S = 0.5
"""A block that takes this much longer than its limit waits for something; perhaps for a lock that a stopped probe holds."""


class Contender:
    """`blocks` are samples a second by round; `replies` all that the probe said of them."""

    def __init__(self, setting: LoaderSetting, predicted: float | None) -> None:
        self.setting, self.predicted = setting, predicted
        self.blocks: dict[int, float] = {}
        self.replies: list[dict[str, Any]] = []
        self.opened: dict[str, Any] = {}
        self.memory: list[tuple[float, int]] = []
        self.state, self.why = "measured", ""
        self.dropped = False
        self.stopped = False
        self.probe: Any = None

    @property
    def in_race(self) -> bool:
        return self.state == "measured" and not self.dropped

    @property
    def size(self) -> int:
        """Smaller is cheaper: workers first, then batches that wait."""
        return self.setting.workers * 100 + (self.setting.prefetch or 0)

    def start(self, session: Session) -> None:
        """Ask for the loader and its first batch; `started` takes the answer."""
        self.probe = session.fork()
        self._guarded(lambda: self.probe.send({"do": "open", "setting": arguments(self.setting)}))

    def started(self) -> None:
        self._guarded(self._take_opened)

    def _take_opened(self) -> None:
        reply = self.probe.reply(OPEN_S)
        if not reply["ok"]:
            self.fail("failed", reply["error"])
            return
        self.opened = reply

    def fail(self, state: str, why: str) -> None:
        self.state, self.why = state, why
        self.probe.kill()

    def _guarded(self, work: Any) -> None:
        if self.state != "measured":
            return
        try:
            work()
        except Lost as lost:
            self.fail("rejected" if lost.over else "failed", lost.why)

    # -- stopping ---------------------------------------------------------------------------------------

    def stop(self) -> None:
        if not self.stopped and self.probe.alive:
            with contextlib.suppress(OSError):
                os.killpg(self.probe.pid, signal.SIGSTOP)
            self.stopped = True

    def go_on(self) -> None:
        if self.stopped and self.probe.alive:
            with contextlib.suppress(OSError):
                os.killpg(self.probe.pid, signal.SIGCONT)
        self.stopped = False

    # -- measuring --------------------------------------------------------------------------------------

    def block(
        self,
        number: int,
        samples: float,
        expected_s: float,
        *,
        stuck: Callable[[], None],
        idle_full: bool = False,
        step_s: float = 0.0,
        seconds: float = BLOCK_S,
    ) -> None:
        """Measure for `seconds` or two turns of the workers. `expected_s` is the time that a batch should take a worker;
        `stuck` is called when nothing comes for much longer. `idle_full`: it ran on while others were measured."""
        workers, prefetch = self.setting.workers, self.setting.prefetch or 0
        drain = max(3, workers * prefetch + workers) if idle_full or not self.replies else workers + 1
        message = {
            "do": "block",
            "seconds": seconds,
            "least": max(2 * workers, 3),
            "drain": drain,
            "limit_s": max(2.0, 10 * expected_s),
            "step_s": step_s,
        }
        self._guarded(lambda: self._block(number, samples, message, stuck))

    def _block(self, number: int, samples: float, message: dict[str, Any], stuck: Callable[[], None]) -> None:
        self.go_on()
        limit, step_s = message["limit_s"], message["step_s"]
        freed: list[bool] = []

        def free() -> None:
            freed.append(True)
            stuck()

        self.probe.send(message)
        reply = self.probe.reply(10 * limit, after_s=limit + _STUCK_S, call=free)
        if freed:
            return  # others ran meanwhile: not a measurement
        if not reply["ok"]:
            self.fail("failed", reply["error"])
            return
        self.replies.append(reply)
        if not step_s:
            self.blocks[number] = reply["batches"] * samples / reply["seconds"]
        self._weigh(reply, samples)

    def _weigh(self, reply: dict[str, Any], samples: float) -> None:
        """Note the private memory of one worker, and how many samples all had delivered by then."""
        done = sum(one["batches"] for one in self.replies) * samples
        pids = reply["workers"][:1]
        sizes = [size for pid in pids if (size := limits.private_bytes(pid)) is not None]
        if sizes:
            self.memory.append((done, max(sizes)))

    # -- results ----------------------------------------------------------------------------------------

    def worker_bytes(self) -> int:
        return max((size for _, size in self.memory), default=0)

    def growth(self) -> float | None:
        """Bytes a sample that a worker reads, over all blocks; None when there were too few."""
        if len(self.memory) < 2:
            return None
        (before, small), (after, large) = self.memory[0], self.memory[-1]
        mine = (after - before) / max(self.setting.workers, 1)
        return max((large - small) / mine, 0.0) if mine > 0 else None

    def rate(self) -> float:
        return median([*self.blocks.values()]) if self.blocks else 0.0

    def result(self) -> LoaderProbe:
        plain = [one for one in self.replies if "waits" in one]
        within = interval([*self.blocks.values()])
        saws = [one["waits"]["sawtooth"] for one in plain if one["waits"]["sawtooth"] is not None]
        turns = [turn for one in plain for turn in one["turns"]]
        seconds = sum(one["seconds"] for one in plain)
        return LoaderProbe(
            setting=self.setting,
            state=self.state,  # type: ignore[arg-type]
            why=self.why or None,
            predicted=self.predicted,
            measured=self.rate() or None,
            low=max(within[0], 0.0) if within else None,
            high=within[1] if within else None,
            n=len(self.blocks),
            batches=sum(one["batches"] for one in plain),
            seconds=seconds,
            start_s=self.opened.get("start_s", 0.0) + self.opened["first_s"] if self.opened else None,
            wait=sum(one["waits"]["sum"] for one in plain) / seconds if seconds else None,
            ready=median([one["waits"]["ready"] for one in plain]) if plain else None,
            sawtooth=median(saws) if saws else None,
            turn_s=median(turns) if turns else None,
            main_cpu_s=sum(one["main_cpu_s"] for one in plain) / max(sum(one["batches"] for one in plain), 1)
            if plain
            else None,
            worker_bytes=self.worker_bytes() or None,
            growth_bytes=self.growth(),
        )


def arguments(setting: LoaderSetting) -> dict[str, Any]:
    """The setting in the words of DataLoader."""
    found: dict[str, Any] = {"num_workers": setting.workers}
    if setting.workers:
        found["prefetch_factor"] = setting.prefetch or 2
        found["persistent_workers"] = setting.persistent
    found["pin_memory"] = setting.pin_memory
    if setting.workers and setting.context:
        found["multiprocessing_context"] = setting.context
    if not setting.in_order:
        found["in_order"] = False
    return found
