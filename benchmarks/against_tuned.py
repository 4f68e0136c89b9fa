"""The same knobs, the same kills: `wellfed tune` beside tuned, on the machine this runs on.

    sudo apt-get install -y --no-install-recommends tuned
    sudo python benchmarks/against_tuned.py [--points 60] [--json FILE]

Needs root and a machine whose knobs may be played with; each run ends with the values of its start, asserted. Both are
killed with SIGKILL at the same kind of moment: both are Python, and each call and return of a function, of C too, from
the first look at a knob to the end is counted. Then each recovers in its own way: tuned is started again with its profile,
as its unit would be, and stopped, which rolls back; wellfed undoes. tuned runs unmodified, without D-Bus; a stub that says
`running` stands in for `systemctl` where systemd does not run, since tuned rolls back in part only without it.
"""

import argparse
import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

VM = "/proc/sys/vm"
HUGE = "/sys/kernel/mm/transparent_hugepage"
KNOBS = {
    f"{VM}/stat_interval": "7",
    f"{VM}/dirty_background_bytes": "67108864",
    f"{HUGE}/enabled": "always",
    f"{HUGE}/khugepaged/scan_sleep_millisecs": "12345",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "4",
}
TWIN = f"{VM}/dirty_background_ratio"
PROFILE = "wellfed-against"
PROFILES = {
    PROFILE: """[main]
summary=the knobs of benchmarks/against_tuned.py
[sysctl]
vm.stat_interval=7
vm.dirty_background_bytes=67108864
[vm]
transparent_hugepages=always
[sysfs]
/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs=12345
/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages=4
""",
    # All but the twin, which tuned does not put back even when nothing goes wrong.
    f"{PROFILE}-no-twin": """[main]
summary=the same without the twin
[sysctl]
vm.stat_interval=7
[vm]
transparent_hugepages=always
[sysfs]
/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs=12345
/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages=4
""",
}
CHILD = str(Path(__file__).resolve())


def value(name: str) -> str:
    text = Path(name).read_text().strip()
    return text.partition("[")[2].partition("]")[0] if "[" in text else text


def values() -> dict[str, str]:
    return {name: value(name) for name in (*KNOBS, TWIN)}


def put(first: dict[str, str]) -> None:
    for name, old in first.items():
        if value(name) != old and not (name.endswith("_bytes") and old == "0"):
            Path(name).write_text(f"{old}\n")
    assert values() == first, (values(), first)


# -- what runs in the process that is killed ---------------------------------------------------------------


def count_calls(kill_at: int, shared: mmap.mmap) -> None:
    """From the first knob that is opened on, and once the gate is open, count each call and return of a function of
    Python or C, in every thread, and end the process at number `kill_at`."""
    knobs = {*KNOBS, TWIN}
    seen = [0]
    on = [False]

    def hook(event: str, args: tuple[object, ...]) -> None:
        if event == "open" and args[0] in knobs:
            on[0] = True

    def called(*_: object) -> None:
        if on[0] and shared[8]:
            seen[0] += 1
            shared[:8] = seen[0].to_bytes(8, "little")
            if seen[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    threading.setprofile(called)
    sys.setprofile(called)


def child(argv: list[str]) -> None:
    who, kill_at, counter, *rest = argv
    with open(counter, "r+b") as file:  # noqa: PTH123
        shared = mmap.mmap(file.fileno(), 9)
    if who == "tuned":
        import runpy

        profile, log = rest
        sys.argv = ["tuned", "--no-dbus", "--no-socket", "-p", profile, "-l", log, "-P", f"{log}.pid"]
        count_calls(int(kill_at), shared)
        runpy.run_path("/usr/sbin/tuned", run_name="__main__")
        return
    from wellfed.apply import engine
    from wellfed.apply.journal import Journal
    from wellfed.apply.root import Root

    verb, folder, names = rest
    journal = Journal(Root("/"), Path(folder))
    changes = [change(name, KNOBS[name]) for name in names.split(",") if name]
    count_calls(int(kill_at), shared)
    done = engine.apply(journal, changes) if verb == "apply" else engine.undo(journal)
    print(json.dumps([[one.target, one.outcome, one.note] for one in done]))


def change(name: str, new: str):
    from wellfed.model import Change

    kind, target = (
        ("sysfs", name) if name.startswith("/sys/") else ("sysctl", f"vm.{name.rpartition('/')[2]}")
    )
    return Change(code="user", kind=kind, target=target, new=new, restore="")


# -- the two, behind one face ------------------------------------------------------------------------------


class Tuned:
    name = "tuned"

    def __init__(self, folder: Path) -> None:
        self.folder, self.process, self.number = folder, None, 0
        self.env = dict(os.environ, PATH=f"{folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        for name in ("PYTHONPATH", "VIRTUAL_ENV"):
            self.env.pop(name, None)
        (folder / "bin").mkdir()
        if not Path("/run/systemd/system").is_dir():
            stub = folder / "bin/systemctl"
            stub.write_text('#!/bin/sh\n[ "$1" = is-system-running ] && echo running\nexit 0\n')
            stub.chmod(0o755)
        for name, text in PROFILES.items():
            Path(f"/etc/tuned/{name}").mkdir(parents=True, exist_ok=True)
            Path(f"/etc/tuned/{name}/tuned.conf").write_text(text)

    def close(self) -> None:
        for name in PROFILES:
            shutil.rmtree(f"/etc/tuned/{name}")

    def version(self) -> str:
        return subprocess.run(
            ["/usr/sbin/tuned", "--version"], capture_output=True, text=True, env=self.env
        ).stdout.strip()

    def fresh(self) -> None:
        """As after a boot: no state of earlier runs."""
        shutil.rmtree("/run/tuned", ignore_errors=True)
        Path("/run/tuned").mkdir()

    def apply(self, profile: str = PROFILE, kill_at: int = 0) -> bool:
        """Whether it came to the end; it then waits, as the service does."""
        return self._start(profile, kill_at, gate=True)

    def undo(self, profile: str = PROFILE, kill_at: int = 0) -> bool:
        """Stop the service that runs. It rolls back."""
        with (self.folder / "counter").open("r+b") as file:
            file.seek(8)
            file.write(b"\1")
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        return self.process.returncode != -signal.SIGKILL

    def ready_to_undo(self, profile: str, kill_at: int) -> None:
        assert self._start(profile, kill_at, gate=False)

    def recover(self, profile: str = PROFILE) -> None:
        """Started again after it was killed, and stopped."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self._start(profile, 0, gate=True)
        self.undo()

    def die(self) -> None:
        self.process.kill()
        self.process.wait()

    def calls(self) -> int:
        return int.from_bytes((self.folder / "counter").read_bytes()[:8], "little")

    def _start(self, profile: str, kill_at: int, *, gate: bool) -> bool:
        self.number += 1
        log = self.folder / f"log{self.number}"
        counter = self.folder / "counter"
        counter.write_bytes(bytes(8) + bytes([gate]))
        self.process = subprocess.Popen(
            ["/usr/bin/python3", "-Es", CHILD, "--child", "tuned", str(kill_at), str(counter), profile, str(log)],
            env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self.process.poll() is not None:
                return False
            if log.exists() and "static tuning from profile" in log.read_text():
                return True
            time.sleep(0.02)
        raise TimeoutError(log.read_text() if log.exists() else "no log")


class Wellfed:
    name = "wellfed"

    def __init__(self, folder: Path) -> None:
        self.folder, self.number, self.said = folder, 0, []

    def close(self) -> None:
        pass

    def version(self) -> str:
        import wellfed

        return f"wellfed {wellfed.__version__}"

    def fresh(self) -> None:
        self.number += 1

    def apply(self, profile: str = PROFILE, kill_at: int = 0) -> bool:
        names = [name for name in KNOBS if not (profile.endswith("no-twin") and "dirty" in name)]
        return self._run("apply", kill_at, ",".join(names))

    def undo(self, profile: str = PROFILE, kill_at: int = 0) -> bool:
        return self._run("undo", kill_at, "")

    def ready_to_undo(self, profile: str, kill_at: int) -> None:
        assert self.apply(profile)

    def recover(self, profile: str = PROFILE) -> None:
        assert self.undo()

    def die(self) -> None:
        """Nothing of it runs between two commands."""

    def calls(self) -> int:
        return int.from_bytes((self.folder / "counter").read_bytes()[:8], "little")

    def _run(self, verb: str, kill_at: int, names: str) -> bool:
        counter = self.folder / "counter"
        counter.write_bytes(bytes(8) + b"\1")
        journal = self.folder / f"journal{self.number}"
        done = subprocess.run(
            [
                sys.executable,
                CHILD,
                "--child",
                "wellfed",
                str(kill_at),
                str(counter),
                verb,
                str(journal),
                names,
            ],
            capture_output=True,
            text=True,
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        self.said = json.loads(done.stdout) if done.returncode == 0 else []
        return done.returncode == 0


# -- the script --------------------------------------------------------------------------------------------


def wrong(first: dict[str, str]) -> list[str]:
    now = values()
    return [name for name in first if now[name] != first[name]]


def killed(
    tool: Tuned | Wellfed, first: dict[str, str], profile: str, verb: str, points: int
) -> dict[str, object]:
    """At up to `points` of the calls it makes, evenly taken: what the knobs read after the kill and after recovery."""
    tool.fresh()
    if verb == "apply":
        assert tool.apply(profile)
        total = tool.calls()
        tool.undo(profile)
    else:
        tool.ready_to_undo(profile, 0)
        tool.undo(profile)
        total = tool.calls()
    put(first)
    steps = sorted({1 + i * total // min(points, total) for i in range(min(points, total))})
    kills, bad, mixed, third = 0, Counter(), 0, 0
    spoilt = 0
    for step in steps:
        tool.fresh()
        if verb == "apply":
            died = not tool.apply(profile, step)
        else:
            tool.ready_to_undo(profile, step)
            died = not tool.undo(profile, step)
        if not died:
            tool.recover(profile)
            put(first)
            continue
        kills += 1
        now = values()
        mixed += any(now[name] != first[name] for name in KNOBS)
        third += any(now[name] not in (first[name], KNOBS[name]) for name in KNOBS)
        tool.recover(profile)
        left = wrong(first)
        spoilt += bool(left)
        bad.update(left)
        put(first)
    return {
        "calls": total,
        "kills": kills,
        "neither": third,
        "changed_at_kill": mixed,
        "not_back": spoilt,
        "knobs": dict(bad),
    }


def plain(tool: Tuned | Wellfed, first: dict[str, str]) -> dict[str, object]:
    """Nothing goes wrong: there and back, with the twin."""
    tool.fresh()
    assert tool.apply()
    applied = all(value(name) == new for name, new in KNOBS.items())
    tool.undo()
    now = {name: value(name) for name in wrong(first)}
    put(first)
    return {"applied": applied, "not_back": now}


def foreign(tool: Tuned | Wellfed, first: dict[str, str]) -> dict[str, object]:
    """Somebody else sets one knob while ours are in force."""
    tool.fresh()
    profile = f"{PROFILE}-no-twin"
    assert tool.apply(profile)
    Path(f"{VM}/stat_interval").write_text("77\n")
    tool.undo(profile)
    kept = value(f"{VM}/stat_interval")
    put(first)
    return {"their_value": "77", "after": kept}


def idle(tool: Tuned | Wellfed, first: dict[str, str]) -> dict[str, object]:
    """Killed when all is long applied (by the OOM killer, say), started again, and stopped."""
    tool.fresh()
    profile = f"{PROFILE}-no-twin"
    assert tool.apply(profile)
    tool.die()
    tool.recover(profile)
    left = {name: value(name) for name in wrong(first)}
    put(first)
    return {"not_back": left}


def run(tool: Tuned | Wellfed, points: int) -> dict[str, object]:
    first = values()
    found: dict[str, object] = {"version": tool.version()}
    try:
        found["plain"] = plain(tool, first)
        found["foreign"] = foreign(tool, first)
        found["idle"] = idle(tool, first)
        for verb in ("apply", "undo"):
            for profile in (f"{PROFILE}-no-twin", PROFILE):
                began = time.monotonic()
                key = f"{verb}{' with the twin' if profile == PROFILE else ''}"
                found[key] = killed(tool, first, profile, verb, points)
                print(
                    f"{tool.name}: {key}: {found[key]} in {time.monotonic() - began:.0f} s", file=sys.stderr
                )
    finally:
        if isinstance(tool, Tuned) and tool.process is not None and tool.process.poll() is None:
            tool.die()
        put(first)
        tool.close()
    return found


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=60, help="kills of each row, at most")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=("tuned", "wellfed"))
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("needs root")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in (Wellfed, Tuned):
            if args.only in (None, kind.name) and (kind is Wellfed or Path("/usr/sbin/tuned").exists()):
                (Path(folder) / kind.name).mkdir()
                found[kind.name] = run(kind(Path(folder) / kind.name), args.points)
    text = re.sub(r"\n {4,}(?=[^\n])", " ", json.dumps(found, indent=2))
    print(text)
    if args.json:
        args.json.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
