"""A process in its place: real affinity, real commands, on the CPUs that there are."""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wellfed.live import kernel, watch
from wellfed.model.placement import RankPlace

linux = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is Linux's")
SHOW = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'], os.getpid())"


def pin(*args: str, **environ: str) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LOCAL_", "SLURM_", "OMP", "CUDA"))}
    command = [sys.executable, "-m", "wellfed", "pin", "exec", *args]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**clean, **environ}
    )


@linux
def test_the_command_is_the_process_and_has_the_ranks_cpus() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("two CPUs are needed for two places")
    seen = []
    for rank in ("0", "1"):
        process = pin(
            "--mode", "exclusive", "--", sys.executable, "-c", SHOW, LOCAL_RANK=rank, LOCAL_WORLD_SIZE="2"
        )
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        mask, _, rest = out.partition("]")
        assert int(rest.split()[1]) == process.pid  # no process in between
        seen.append({int(cpu) for cpu in mask.strip("[ ").split(",")})
    assert not seen[0] & seen[1] and seen[0] | seen[1] <= set(cpus)


@linux
def test_what_is_set_stays_and_the_exit_code_is_the_commands() -> None:
    process = pin("--", sys.executable, "-c", f"{SHOW}; raise SystemExit(7)", OMP_NUM_THREADS="5")
    out, _ = process.communicate(timeout=60)
    assert out.split()[-2] == "5" and process.returncode == 7


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("--", "no-such-command-here"), 127, "error: no command `no-such-command-here`"),
        (("--mode", "nice", "--", "true"), 2, "no mode `nice`"),
        (("--rank", "-1", "--", "true"), 2, "-1 is no rank"),
    ],
)
def test_what_cannot_be_done_is_one_line(run_cli, args, code, text) -> None:
    result = run_cli("pin", "exec", *args)
    assert result.code == code and text in result.err and len(result.err.splitlines()) <= 2


@linux
@pytest.mark.skipif(platform.machine() not in kernel.SET_MEMPOLICY, reason="no number of set_mempolicy known")
def test_memory_policies_are_the_kernels() -> None:
    """In a process of its own: the policy would stay with this one."""
    script = (
        "from wellfed.live.kernel import set_memory_policy as put\n"
        "for policy in ('preferred', 'bind', 'interleave'):\n"
        "    try:\n"
        "        put(policy, (0,))\n"
        "        text = open('/proc/self/numa_maps').readline().split()[1]\n"
        "    except OSError as error:\n"
        "        text = f'{type(error).__name__}'\n"
        "    print(policy, text)\n"
        "try:\n"
        "    put('bind', (4000,))\n"
        "except OSError as error:\n"
        "    print('refused', error.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert lines.pop("refused", "") in ("1", "22", "38"), done.stderr
    for policy, text in lines.items():
        assert text in ("PermissionError", "FileNotFoundError", "OSError") or text.startswith(
            {"preferred": "prefer", "bind": "bind", "interleave": "interleave"}[policy]
        ), lines


def test_pages_by_node() -> None:
    text = (
        "00400000 prefer:1 file=/bin/x mapped=3 N0=2 N1=1 kernelpagesize_kB=4\n"
        "7f00 default anon=2 dirty=2 N1=2 kernelpagesize_kB=2048\nffff default\n"
    )
    assert watch.pages_by_node(text) == {0: 8, 1: 4100}


def test_threads_are_known_by_name() -> None:
    place = RankPlace(rank=0, cpus=(0, 1), other_cpus=(2, 3))
    assert watch.wanted(10, 10, "python", place, child=False) == (0, 1)
    assert watch.wanted(11, 10, "pt_autograd_0", place, child=False) == (0, 1)
    assert watch.wanted(12, 10, "pin_memory", place, child=False) == (2, 3)
    assert watch.wanted(20, 20, "python", place, child=True) == (2, 3)
    assert watch.wanted(12, 10, "pin_memory", RankPlace(rank=0, cpus=(0,)), child=False) == (0,)


@linux
def test_threads_that_left_are_put_back() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("two CPUs are needed to leave one")
    script = "import threading, time\nt = threading.Thread(target=time.sleep, args=(20,), daemon=True); t.start()\nprint('up', flush=True)\ntime.sleep(20)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        place = RankPlace(rank=0, cpus=(cpus[0],), other_cpus=(cpus[1],))
        assert watch.settle(process.pid, place) == 2
        assert os.sched_getaffinity(process.pid) == {cpus[0]}
        seen = watch.look_at(process.pid, place)
        assert seen.tasks == seen.inside == 2 and watch.settle(process.pid, place) == 0
        assert "2 of 2 tasks are in their place" in watch.told(seen, place)
    finally:
        process.kill()
        process.communicate()
    watch.watch(process.pid, place, seconds=60, verify_s=None, say=print)  # ends at once: nobody is there


@linux
def test_the_watcher_ends_with_the_command() -> None:
    start = time.monotonic()
    process = pin("--verify", "0.1", "--", sys.executable, "-c", "import time; time.sleep(1.5)")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "tasks are in their place" in err
    assert time.monotonic() - start < 50
    assert not Path(f"/proc/{process.pid}").exists()
