"""`wellfed run`: rings that were planted, commands that end in all kinds of ways, and what is left after kill -9."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wellfed
from wellfed.check.run import headline, judge_run
from wellfed.live.run import command as parent
from wellfed.live.run.command import Watching, environment, exit_of, run_command
from wellfed.live.run.inside import ring as form
from wellfed.live.run.read import read_ring, read_run, settled, sum_up
from wellfed.live.run.sampler import Sampler
from wellfed.live.run.status import Status
from wellfed.model import WellfedError

MS = 1_000_000


def plant(
    folder: Path, steps: int = 200, *, ns: int = 10 * MS, wait: int = 0, gc: int = 0, rank: int = -1, optimizers: int = 1,
    capacity: int = 4096, name: str = "1-1.ring", end: bool = True,
) -> Path:  # fmt: skip
    """The ring of a loop of even steps, as the hooks write it."""
    path = folder / name
    made = form.Ring(str(path), (0, 0), (rank, rank, -1, -1), capacity)
    made.text("python", "3.12.1")
    made.text("program", "train.py")
    made.text("optimizers", ", ".join(("AdamW", "SGD")[:optimizers]))
    now = 0
    for number in range(steps):
        now += ns if number > 2 else 5 * ns
        for ident in range(optimizers):
            made.write(
                form.STEP,
                now + ident,
                wait_ns=wait if not ident else 0,
                gc_ns=gc if not ident else 0,
                ident=ident,
                batches=1,
            )
            made.add("optimizer_steps")
        made.add("batches")
    made.counters[made.at["optimizers"]] = optimizers
    if end:
        made.end(now)
    made.map.flush()
    return path


def test_even_steps_are_counted_and_timed(tmp_path: Path) -> None:
    plant(tmp_path)
    (rank,) = read_run(tmp_path).ranks
    assert rank.steps == 200 and rank.warmup == 3 - 1 and rank.step_ms is not None
    assert rank.step_ms.median == rank.step_ms.p10 == rank.step_ms.p90 == 10.0
    assert (
        rank.clock == "steps of AdamW"
        and rank.ended
        and rank.slow == ()
        and rank.shift is None
        and rank.lost is None
    )
    assert rank.hooks.us is None and rank.hooks.why


def test_time_is_conserved(tmp_path: Path) -> None:
    plant(tmp_path, wait=4 * MS, gc=1 * MS)
    (rank,) = read_run(tmp_path).ranks
    assert rank.wait_ms == 4.0 and rank.gc_ms == 1.0
    verdicts = {v.code: v for v in judge_run(read_run(tmp_path))}
    assert verdicts["T110"].severity == "error" and verdicts["T110"].gain is not None
    assert (
        verdicts["T110"].gain.speedup == pytest.approx(10 / 6, rel=0.01)
        and verdicts["T110"].gain.basis == "measured"
    )
    assert verdicts["T150"].severity == "warning"


def test_two_optimizers_are_one_step(tmp_path: Path) -> None:
    plant(tmp_path, optimizers=2)
    (rank,) = read_run(tmp_path).ranks
    assert rank.step_ms is not None and rank.step_ms.median == 10.0
    assert "rarest of 2 optimizers" in rank.clock


def test_a_ring_that_wrapped_keeps_its_totals(tmp_path: Path) -> None:
    plant(tmp_path, steps=1000, capacity=100)
    (rank,) = read_run(tmp_path).ranks
    assert rank.steps == 1000 and rank.step_ms is not None and rank.step_ms.n <= 99
    assert rank.lost is not None and "of 1,000 steps the last 99" in rank.lost


def test_torn_records_are_counted_and_left_out(tmp_path: Path) -> None:
    path = plant(tmp_path)
    data = bytearray(path.read_bytes())
    at = form.RECORDS_AT + 150 * form.SIZE
    data[at + 20 : at + 64] = bytes(44)
    path.write_bytes(data)
    ring = read_ring(path)
    assert ring is not None and ring.torn == 1 and len(ring.records) == 199
    assert "1 records were torn" in (read_run(tmp_path).ranks[0].lost or "")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_damage_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("r")
    path = plant(folder, steps=20, capacity=32)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    (folder / "samples.jsonl").write_bytes(data.draw(st.binary(max_size=50)))
    (folder / "run.json").write_text("{}")
    try:
        read_run(folder)
    except WellfedError:
        pass


def test_a_change_for_good_is_found_and_noise_is_not(tmp_path: Path) -> None:
    made = form.Ring(str(tmp_path / "1-1.ring"), (0, 0), (-1, -1, -1, -1), 4096)
    now = 0
    for number in range(300):
        now += (10 if number < 200 else 13) * MS + (number * 7919 % 11) * MS // 20
        made.write(form.STEP, now, ident=0)
    (rank,) = read_run(tmp_path).ranks
    assert rank.shift is not None and 190 <= rank.shift.number <= 210
    assert rank.shift.after_ms / rank.shift.before_ms == pytest.approx(1.3, rel=0.03)


def test_hooks_are_priced_by_blocks(tmp_path: Path) -> None:
    made = form.Ring(str(tmp_path / "1-1.ring"), (0, 0), (-1, -1, -1, -1), 4096)
    now = 0
    for number in range(800):
        bare = number // 20 % 2 == 1
        now += MS + (0 if bare else 20_000) + number * 7919 % 3000
        made.write(form.STEP, now, flags=form.UNHOOKED if bare else 0)
    (rank,) = read_run(tmp_path).ranks
    assert rank.hooks.us == pytest.approx(20, abs=1) and rank.hooks.pairs > 30
    assert rank.hooks.low_us is not None and rank.hooks.low_us <= 20 <= (rank.hooks.high_us or 0)


def test_the_rank_that_waits_for_its_data_is_named(tmp_path: Path) -> None:
    for rank in range(4):
        plant(tmp_path, wait=(6 if rank == 2 else 1) * MS, rank=rank, name=f"{rank}-1.ring")
    report = read_run(tmp_path)
    assert [r.rank for r in report.ranks] == [0, 1, 2, 3]
    straggler = next(v for v in judge_run(report) if v.code == "T220")
    assert straggler.verdict == "finding" and straggler.where == {"rank": 2}
    even = tmp_path / "even"
    even.mkdir()
    for rank in range(3):
        plant(even, wait=MS, rank=rank, name=f"{rank}-1.ring")
    assert next(v for v in judge_run(read_run(even)) if v.code == "T220").verdict == "not-judged"


def test_a_loader_that_another_thread_reads_is_not_judged(tmp_path: Path) -> None:
    path = plant(tmp_path)
    with path.open("r+b") as file:
        file.seek(form.COUNTERS_AT + 8 * form.COUNTERS.index("wait_elsewhere_ns"))
        file.write((200 * 9 * MS).to_bytes(8, "little"))
    report = read_run(tmp_path)
    assert report.ranks[0].wait_ms is None and report.ranks[0].wait_elsewhere_ms == pytest.approx(9, rel=0.1)
    (told,) = [verdict for verdict in judge_run(report) if verdict.code == "T110"]
    assert told.verdict == "not-judged" and "another thread reads the loader" in told.message
    assert "was not seen" in headline(report, judge_run(report)).text


def test_a_ring_that_cannot_be_read_is_counted_and_nothing_is_made_of_it(tmp_path: Path) -> None:
    (tmp_path / "1-1.ring").write_bytes(b"x")
    (tmp_path / "run.json").write_text("[1,")
    report = read_run(tmp_path)
    assert report.unread == 1 and report.ranks == ()
    assert {v.message for v in judge_run(report)} == {
        "no step was seen: 1 ring file of this run could not be read"
    }


def test_a_folder_of_nothing_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(WellfedError, match=r"nothing of a run|no folder"):
            read_run(folder)


def test_few_steps_are_all_warm_up_but_some() -> None:
    assert settled([]) == 0


def test_samples_are_summed_up() -> None:
    seen = sum_up(
        [
            {"t": 1, "cpu": {}, "gpus": [{"index": 0, "util": 50, "throttle": ["hardware-thermal"]}]},
            {"t": 2, "cpu": {"busy_cores": 2.0, "threads": {"main": 100}}, "cgroup": {"throttled_usec": 10}, "gpus": [{"index": 0, "util": 100}]},
            {"t": 3, "cpu": {"busy_cores": 1.0, "threads": {}}, "cgroup": {"throttled_usec": 2_000_010}},
        ]
    )  # fmt: skip
    assert seen["busy_cores"] == 1.5 and seen["throttled_s"] == 2.0
    assert seen["gpus"][0]["util_pct"] == 75 and seen["gpus"][0]["throttled"] == {"hardware-thermal": 0.5}
    assert sum_up([]) == {}


# -- commands ------------------------------------------------------------------------------------------------


def test_the_folder_of_the_socket_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    note = tmp_path / "told"
    look = f'stat -c "%a" "$KINETO_IPC_SOCKET_DIR" > {note}; echo "$KINETO_IPC_SOCKET_DIR" >> {note}; test -s "$KINETO_CONFIG"'
    assert run_command(("sh", "-c", look), Watching(folder=tmp_path / "r"), None).code == 0
    mode, folder = note.read_text().split()
    assert mode == "700" and not Path(folder).exists()


def test_exit_codes_are_the_commands_own(tmp_path: Path) -> None:
    for words, code in {("true",): 0, ("sh", "-c", "exit 7"): 7, ("sh", "-c", "kill -9 $$"): 137}.items():
        ended = run_command(words, Watching(folder=tmp_path / str(code)), None)
        assert ended.code == code
        said = json.loads((ended.folder / "run.json").read_text())
        assert said["command"] == list(words) and said["exit"]["reason"]
    with pytest.raises(WellfedError, match="no command") as raised:
        run_command(["no-such-program"], Watching(folder=tmp_path / "x"), None)
    assert raised.value.exit_code == 127


def test_reasons_are_told() -> None:
    assert exit_of(-9, 1)["reason"].startswith("killed by the kernel for want of memory")
    assert "kill -9" in exit_of(-9, 0)["reason"]
    assert "/dev/shm" in exit_of(-7, 0)["reason"]
    assert exit_of(-15, 0)["signal"] == 15 and exit_of(3, 0)["code"] == 3


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    told = environment(
        {"PYTHONPATH": "/theirs", "KINETO_USE_DAEMON": "0"}, tmp_path, "/s", Watching(step_fn="a:b")
    )
    assert told["PYTHONPATH"].split(os.pathsep) == [str(parent.HOOKS), "/theirs"]
    assert told["KINETO_USE_DAEMON"] == "0" and "KINETO_IPC_SOCKET_DIR" not in told
    assert told["WELLFED_RUN_ASKED"] == "step_fn=a:b"
    bare = environment({}, tmp_path, "/s", Watching(trace_slow=True))
    assert bare["KINETO_USE_DAEMON"] == "1" and "trace_slow=1;trace_max_mb=64.0" in bare["WELLFED_RUN_ASKED"]


@pytest.mark.parametrize(
    ("watching", "says"),
    [(Watching(step_pattern="("), "--step-pattern"), (Watching(step_fn="no colon"), "is no function")],
)
def test_what_cannot_be_watched_is_refused(watching: Watching, says: str) -> None:
    with pytest.raises(WellfedError, match=says):
        run_command(["true"], watching, None)


STEPS = "import time\nfor i in range(12):\n print('step', i, flush=True)\n time.sleep(0.02)"


def test_lines_of_the_output_are_steps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    watching = Watching(folder=tmp_path / "r", step_pattern=r"^step \d+")
    ended = run_command([sys.executable, "-c", STEPS], watching, None)
    assert capfd.readouterr().out.count("step ") == 12, "the output goes on as it came"
    (rank,) = read_run(ended.folder).ranks
    assert rank.steps == 12 and rank.clock == "lines of the output" and rank.step_ms is not None
    assert 20 <= rank.step_ms.median < 60


def test_without_steps_the_report_says_what_could_be_seen(run_cli, tmp_path: Path) -> None:
    result = run_cli("run", "--quiet", "--dir", tmp_path / "r", "--", sys.executable, "-c", "print('hello')")
    assert result.code == 0
    assert "no step was seen: no optimizer stepped and no loader delivered" in result.err
    assert "no Python process" in run_cli("run", "--quiet", "--", "true").err
    again = run_cli("run", "--read", tmp_path / "r", "--format", "json")
    said = json.loads(again.out)
    assert said["run"]["command"][1:] == ["-c", "print('hello')"] and said["counts"]["not-judged"] >= 1
    assert run_cli("run").code == 2 and run_cli("run", "--read", tmp_path / "no").code == 2


def test_the_exit_code_comes_through(run_cli) -> None:
    assert run_cli("run", "--quiet", "--", "sh", "-c", "exit 5").code == 5


def test_signals_go_on_to_the_command(tmp_path: Path) -> None:
    script = f"trap 'echo told > {tmp_path}/told; exit 3' TERM; touch {tmp_path}/ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [sys.executable, "-m", "wellfed", "run", "--quiet", "--dir", str(tmp_path / "r"), "--", "sh", "-c", script], stderr=subprocess.DEVNULL
    )  # fmt: skip
    while not (tmp_path / "ready").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 3 and (tmp_path / "told").exists()


def test_a_sample_says_what_the_command_uses(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        sampler = Sampler(process.pid, tmp_path / "s")
        sampler.sample()
        time.sleep(0.5)
        seen = sampler.sample()
    finally:
        process.kill()
        process.wait()
    assert seen["cpu"]["busy_cores"] > 0.1 and seen["rss"] > 1 << 20


class Nvml:
    """What the sampler asks of NVML; the temperature is not told."""

    def nvmlDeviceGetUtilizationRates(self, handle: object, out: Any) -> int:
        out._obj.gpu = 87
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: object, out: Any) -> int:
        out._obj.total, out._obj.used = 100, 40
        return 0

    def nvmlDeviceGetClockInfo(self, handle: object, which: int, out: Any) -> int:
        out._obj.value = 1980 if which == 1 else 0
        return 0

    def nvmlDeviceGetTemperature(self, handle: object, which: int, out: Any) -> int:
        return 3

    def nvmlDeviceGetPowerUsage(self, handle: object, out: Any) -> int:
        out._obj.value = 612_345
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object, out: Any) -> int:
        out._obj.value = 0x4 | 0x1
        return 0


def test_a_gpu_is_sampled_as_far_as_it_tells(tmp_path: Path) -> None:
    sampler = Sampler(os.getpid(), tmp_path / "s")
    sampler._nvml, sampler._handles = Nvml(), [None]
    assert sampler.sample()["gpus"] == [
        {"index": 0, "util": 87, "mem_used": 40, "mem_total": 100, "sm_mhz": 1980, "power_w": 612.3, "throttle": ["software-power-cap"]}
    ]  # fmt: skip


def test_the_live_line_tells_rates(tmp_path: Path) -> None:
    plant(tmp_path, steps=50, rank=3)
    first, *_ = Status().lines(parent.Live(2.0, tmp_path, {"gpus": [{"index": 0, "util": 87}]}))
    assert first.startswith("2 s, rank 3: step 50, 25 steps/s, loader wait 0%, GPU 0 87 %")


LOOP = """
import sys, time, torch
parameter = torch.nn.Parameter(torch.zeros(1)); parameter.grad = torch.zeros(1)
optimizer = torch.optim.SGD([parameter], 0.1)
for step in range(100000):
    time.sleep(0.002); optimizer.step()
    if step == 100: open(sys.argv[1], "w").close()
"""


@pytest.mark.torch
@pytest.mark.parametrize("whom", ["command", "both"])
def test_after_kill_9_the_report_is_still_there(tmp_path: Path, whom: str) -> None:
    pytest.importorskip("torch")
    mark, folder = tmp_path / "mark", tmp_path / "r"
    process = subprocess.Popen(
        [sys.executable, "-m", "wellfed", "run", "--quiet", "--dir", str(folder), "--", sys.executable, "-c", LOOP, str(mark)],
        start_new_session=True, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not mark.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    ring = next(folder.glob("*.ring"))
    child = int(ring.name.partition("-")[0])
    if whom == "both":
        process.kill()
    os.kill(child, signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    case = wellfed.read_run(folder)
    assert case.run is not None
    (rank,) = case.run.ranks
    assert rank.steps >= 100 and rank.step_ms is not None and rank.step_ms.median >= 2 and not rank.ended
    if whom == "command":
        assert process.returncode == 137 and "SIGKILL" in said
    else:
        assert case.run.exit is None and "wellfed was killed" in (case.headline.text if case.headline else "")
