"""Kinds that are no file of the kernel: services, adapters, GPUs, drop-ins, a held latency, mounts."""

import json
import os
import signal
import time
from pathlib import Path

import fake_host as m
import pytest

from wellfed.apply import commands, engine, hold
from wellfed.apply.adapters import EthtoolKind, settings
from wellfed.apply.drivers import NvmlKind
from wellfed.apply.dropins import DropinKind
from wellfed.apply.journal import Journal
from wellfed.apply.kinds import KINDS
from wellfed.apply.knobs import Kind
from wellfed.apply.services import ServiceKind
from wellfed.model import Change, WellfedError

RINGS = """Ring parameters for eth1:
Pre-set maximums:
RX:			4096
RX Mini:		n/a
TX:			4096
Current hardware settings:
RX:			{rings.rx}
RX Mini:		n/a
TX:			512
"""
COALESCE = """Coalesce parameters for eth1:
Adaptive RX: {coalesce.adaptive-rx}  TX: off
stats-block-usecs:	n/a
rx-usecs:	{coalesce.rx-usecs}
"""
FEATURES = """Features for eth1:
rx-checksumming: on [fixed]
tcp-segmentation-offload: {features.tso}
	tx-tcp-segmentation: on
rx-gro-hw: {features.rx-gro-hw}
"""
PAUSE = """Pause parameters for eth1:
Autonegotiate:	on
RX:		{pause.rx}
TX:		off
"""


class Fake:
    """Programs whose state is in a file, so that it outlives a killed process. `log` has the command lines."""

    def __init__(self, path: Path, **state: object) -> None:
        self.path = path
        self.set(log=[], **state)

    def get(self) -> dict[str, object]:
        return json.loads(self.path.read_text())

    def set(self, **state: object) -> None:
        old = self.get() if self.path.exists() else {}
        self.path.write_text(json.dumps({**old, **state}))

    def __call__(self, name: str, /, **blanks: str) -> str:
        argv = commands.filled(name, **blanks)
        state = self.get()
        self.set(log=[*state["log"], " ".join(argv)])  # type: ignore[misc]
        return getattr(self, name.replace("-", "_"))(state, **blanks)


class Systemd(Fake):
    def unit_state(self, state: dict, unit: str) -> str:
        active, boot = state.get(unit, (None, None))
        if active is None:
            return "LoadState=not-found\nActiveState=inactive\nUnitFileState=\n"
        return f"LoadState=loaded\nActiveState={active}\nUnitFileState={boot}\n"

    def unit_start(self, state: dict, unit: str) -> str:
        if state[unit][1] == "masked":
            raise OSError(5, "unit is masked")
        return self._put(unit, 0, "active")

    def unit_stop(self, state: dict, unit: str) -> str:
        return self._put(unit, 0, "inactive")

    def unit_enable(self, state: dict, unit: str) -> str:
        return self._put(unit, 1, "enabled")

    def unit_disable(self, state: dict, unit: str) -> str:
        return self._put(unit, 1, "disabled")

    def unit_mask(self, state: dict, unit: str) -> str:
        return self._put(unit, 1, "masked")

    def unit_unmask(self, state: dict, unit: str) -> str:
        return self._put(unit, 1, "enabled")

    def _put(self, unit: str, place: int, word: str) -> str:
        pair = list(self.get()[unit])  # type: ignore[call-overload]
        pair[place] = word
        self.set(**{unit: pair})
        engine.failpoint.reached("systemctl")
        return ""


class Ethtool(Fake):
    def __getattr__(self, name: str) -> object:
        texts = {"rings": RINGS, "coalesce": COALESCE, "features": FEATURES, "pause": PAUSE}
        if name in texts:
            return lambda state, interface: _filled(texts[name], state)
        if name.startswith("set_"):
            return lambda state, interface, name, value, group=name[4:]: (
                self.set(**{f"{group}.{name}": value}) or ""
            )
        raise AttributeError(name)


def _filled(text: str, state: dict) -> str:
    for key, value in state.items():
        text = text.replace("{" + key + "}", str(value))
    return text


class Smi(Fake):
    def gpus(self, state: dict) -> str:
        return "".join(f"{line}\n" for line in map(self._line, ("00000000:18:00.0", "00000000:2A:00.0")))

    def gpu(self, state: dict, address: str) -> str:
        return f"{self._line(f'0000{address}'.upper())}\n"

    def _line(self, address: str) -> str:
        mode, power, compute = self.get()[address]  # type: ignore[misc]
        return f"{address}, {mode}, {power}, 200.00, 700.00, {compute}"

    def _put(self, address: str, place: int, word: str) -> str:
        row = list(self.get()[f"0000{address}".upper()])  # type: ignore[call-overload]
        row[place] = word
        self.set(**{f"0000{address}".upper(): row})
        return ""

    def set_persistence(self, state: dict, address: str, value: str) -> str:
        return self._put(address, 0, {"1": "Enabled", "0": "Disabled"}[value])

    def set_power(self, state: dict, address: str, value: str) -> str:
        return self._put(address, 1, f"{float(value):.2f}")

    def set_compute(self, state: dict, address: str, value: str) -> str:
        return self._put(address, 2, {"0": "Default", "2": "Prohibited", "3": "Exclusive_Process"}[value])


def there_and_back(journal: Journal, kinds: dict[str, Kind], changes: list[Change], fake: Fake) -> list[str]:
    """Applied, read back, killed at every step of both ways; the state is then the first one. Gives the commands."""
    first = {k: v for k, v in fake.get().items() if k != "log"}

    def again() -> Journal:
        fake.set(log=[], **first)
        return Journal(journal.root, journal.folder.with_name(f"{time.monotonic_ns()}"))

    def same() -> bool:
        return {k: v for k, v in fake.get().items() if k != "log"} == first

    one = again()
    done = engine.apply(one, changes, kinds, confirm_within_s=600)
    assert {d.outcome for d in done} == {"applied"}, done
    said = [str(line) for line in fake.get()["log"]]  # type: ignore[attr-defined]
    assert {d.outcome for d in engine.status(one, kinds)} == {"same"}
    assert {d.outcome for d in engine.undo(one, kinds=kinds)} == {"reverted"} and same()
    for act in ("apply", "undo"):
        number = 0
        while True:
            one = again()
            if act == "undo":
                engine.apply(one, changes, kinds, confirm_within_s=600)
            todo = (
                (lambda j=one: engine.apply(j, changes, kinds, confirm_within_s=600))
                if act == "apply"
                else (lambda j=one: engine.undo(j, kinds=kinds))
            )
            died = m.killed(todo, number)
            engine.undo(one, kinds=kinds)
            assert same(), (act, number, fake.get(), first)
            if not died:
                break
            number += 1
        assert number >= 3 * len(changes) + 1
    return said


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.deadman, "arm", lambda *_: 0)


@pytest.mark.parametrize(
    "old,new,lines",
    [
        (("active", "enabled"), "stopped disabled", ["disable", "stop"]),
        (("active", "enabled"), "stopped", ["stop"]),
        (("inactive", "disabled"), "started enabled", ["enable", "start"]),
        (("active", "enabled"), "stopped masked", ["stop", "mask"]),
        (("inactive", "masked"), "started enabled", ["unmask", "start"]),
        (("failed", "disabled"), "enabled", ["enable"]),
    ],
)
def test_a_service(old: tuple[str, str], new: str, lines: list[str], tmp_path: Path) -> None:
    fake = Systemd(tmp_path / "state", **{"irqbalance.service": old})
    said = _service(m.make(tmp_path), fake, new)
    assert [line.split()[3] for line in said if " show " not in line] == lines


def _service(journal: Journal, fake: Fake, new: str) -> list[str]:
    kind = ServiceKind(fake)
    made = m.change("service", "irqbalance", new)
    first = kind.read(journal.root, "irqbalance")

    def fresh() -> Journal:
        return Journal(journal.root, journal.folder.with_name(f"{time.monotonic_ns()}"))

    start = fake.get()
    one = fresh()
    assert [d.outcome for d in engine.apply(one, [made], {"service": kind})] == ["applied"]
    said = [str(line) for line in fake.get()["log"]]  # type: ignore[attr-defined]
    assert [d.outcome for d in engine.undo(one, kinds={"service": kind})] == ["reverted"]
    assert kind.read(journal.root, "irqbalance") == first
    number = 0
    while True:
        one = fresh()
        fake.set(**start)
        died = m.killed(lambda j=one: engine.apply(j, [made], {"service": kind}), number)
        engine.undo(one, kinds={"service": kind})
        assert kind.read(journal.root, "irqbalance") == first, number
        if not died:
            return said
        number += 1


@pytest.mark.parametrize(
    "boot,new,why",
    [
        ("static", "disabled", "static, which no one command"),
        ("enabled-runtime", "disabled stopped", "enabled-runtime"),
        ("masked", "started", "takes the mask off"),
        ("enabled", "off", "a service is started, stopped"),
        ("enabled", "started stopped", "a service is"),
    ],
)
def test_a_service_that_could_not_be_put_back_is_left_alone(
    boot: str, new: str, why: str, tmp_path: Path
) -> None:
    fake = Systemd(tmp_path / "state", **{"x.service": ("inactive", boot)})
    (done,) = engine.apply(m.make(tmp_path), [m.change("service", "x", new)], {"service": ServiceKind(fake)})
    assert done.outcome == "failed" and why in (done.note or "")
    assert all(" show " in line for line in fake.get()["log"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "target",
    [
        "dbus",
        "systemd-journald",
        "systemd-poweroff",
        "systemd-soft-reboot",
        "kexec",
        "../x",
        "-x",
        "a b",
        "x.mount/y",
    ],
)
def test_services_that_are_never_touched(target: str) -> None:
    with pytest.raises(WellfedError):
        KINDS["service"].expand(m.Root("/"), target)


def test_a_service_that_is_not_there_and_no_systemd_at_all(tmp_path: Path) -> None:
    fake = Systemd(tmp_path / "state")
    journal = m.make(tmp_path)
    for kind in (ServiceKind(fake), ServiceKind()):
        (done,) = engine.apply(journal, [m.change("service", "irqbalance", "stopped")], {"service": kind})
        assert done.outcome == "failed" and done.note


ADAPTER = {
    "rings.rx": "512",
    "coalesce.adaptive-rx": "on",
    "coalesce.rx-usecs": "8",
    "features.tso": "on",
    "features.rx-gro-hw": "off",
    "pause.rx": "on",
}


def test_an_adapter(tmp_path: Path) -> None:
    fake = Ethtool(tmp_path / "state", **ADAPTER)
    changes = [
        m.change("ethtool", "eth1/rings/rx", "4096"),
        m.change("ethtool", "eth1/coalesce/adaptive-rx", "off"),
        m.change("ethtool", "eth1/features/tcp-segmentation-offload", "off"),
        m.change("ethtool", "eth1/features/rx-gro-hw", "on"),
        m.change("ethtool", "eth1/pause/rx", "off"),
    ]
    said = there_and_back(m.make(tmp_path), {"ethtool": EthtoolKind(fake)}, changes, fake)
    assert [line for line in said if line.split()[1].isupper()] == [
        "ethtool -G eth1 rx 4096",
        "ethtool -C eth1 adaptive-rx off",
        "ethtool -K eth1 tso off",
        "ethtool -K eth1 rx-gro-hw on",
        "ethtool -A eth1 rx off",
    ]


@pytest.mark.parametrize(
    "target,new,why",
    [
        ("eth1/features/rx", "off", "fixed"),
        ("eth1/rings/rx", "9999", "at most 4096"),
        ("eth1/rings/rx-mini", "1", "does not tell"),
        ("eth0/rings/rx", "1024", "the default route is over bond0"),
        ("eth0/coalesce/rx-usecs", "16", None),
    ],
)
def test_what_an_adapter_does_not_take(target: str, new: str, why: str | None, tmp_path: Path) -> None:
    """The link of an adapter below the default route never goes down, be it for a moment."""
    journal = m.make(tmp_path)
    (tmp_path / "proc/net").mkdir()
    (tmp_path / "proc/net/route").write_text("Iface Dest\nbond0 00000000 0102 3 0 0 0 00000000 0 0 0\n")
    (tmp_path / "sys/class/net/bond0/lower_eth0").mkdir(parents=True)
    fake = Ethtool(tmp_path / "state", **ADAPTER)
    (done,) = engine.apply(
        journal, [m.change("ethtool", target, new)], {"ethtool": EthtoolKind(fake)}, confirm_within_s=600
    )
    assert (done.outcome, why is None or why in (done.note or "")) == (
        "applied" if why is None else "failed",
        True,
    )


def test_what_ethtool_says() -> None:
    text = _filled(RINGS, ADAPTER)
    assert settings("rings", text) == {"rx": "512", "rx-mini": "n/a", "tx": "512"}
    assert settings("rings", text, limits=True)["rx"] == "4096"
    assert settings("coalesce", _filled(COALESCE, ADAPTER))["adaptive-tx"] == "off"
    assert settings("features", _filled(FEATURES, ADAPTER))["rx"] == "on [fixed]"


def test_every_adapter_that_is_a_device(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    for name in ("lo", "eth1/device", "eth2/device", "veth3"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    assert EthtoolKind().expand(journal.root, "*/rings/rx") == ["eth1/rings/rx", "eth2/rings/rx"]
    for bad in ("eth0/rings", "eth0/rings/blue", "../x/rings/rx", "-s/rings/rx", "eth0/reset/all"):
        with pytest.raises(WellfedError):
            EthtoolKind().expand(journal.root, bad)


GPUS = {
    "00000000:18:00.0": ("Disabled", "700.00", "Default"),
    "00000000:2A:00.0": ("Disabled", "650.00", "Exclusive_Process"),
}


def test_gpus(tmp_path: Path) -> None:
    fake = Smi(tmp_path / "state", **GPUS)
    changes = [
        m.change("nvml", "0000:18:00.0/power_limit", "500"),
        m.change("nvml", "*/persistence_mode", "1"),
        m.change("nvml", "0000:2a:00.0/compute_mode", "Default"),
    ]
    said = there_and_back(m.make(tmp_path), {"nvml": NvmlKind(fake)}, changes, fake)
    assert [line for line in said if "--query" not in line] == [
        "nvidia-smi -i 0000:18:00.0 -pm 1",
        "nvidia-smi -i 0000:2a:00.0 -pm 1",
        "nvidia-smi -i 0000:18:00.0 -pl 500",
        "nvidia-smi -i 0000:2a:00.0 -c 0",
    ], "persistence comes first: without it the rest is lost with the driver"


@pytest.mark.parametrize(
    "target,new,why",
    [
        ("power_limit", "9000", "200 to 700 W"),
        ("power_limit", "much", "can't be compared"),
        ("compute_mode", "7", "is"),
    ],
)
def test_what_a_gpu_does_not_take(target: str, new: str, why: str, tmp_path: Path) -> None:
    kinds = {"nvml": NvmlKind(Smi(tmp_path / "state", **GPUS))}
    (done,) = engine.apply(m.make(tmp_path), [m.change("nvml", f"0000:18:00.0/{target}", new)], kinds)
    assert done.outcome == "failed" and why in (done.note or "")


LIMITS = "/etc/security/limits.d/90-wellfed.conf"
UNIT = "/etc/systemd/system/slurmd.service.d/90-wellfed.conf"


@pytest.mark.parametrize("target", [LIMITS, UNIT])
@pytest.mark.parametrize("old", [None, "# from before\n"])
def test_a_drop_in(target: str, old: str | None, tmp_path: Path) -> None:
    """There is the whole old file or the whole new one, whoever is killed when, and nothing else lies about."""
    made = [m.change("dropin", target, "* soft memlock unlimited\n")]

    def fresh(name: str) -> Journal:
        journal = m.make(tmp_path / name)
        (tmp_path / name / "etc").mkdir()
        if old is not None:
            KINDS["dropin"].write(journal.root, target, old)
        return journal

    def state(journal: Journal) -> dict[str, str]:
        etc = Path(journal.root.top) / "etc"
        return {str(p.relative_to(etc)): p.read_text() for p in etc.rglob("*") if p.is_file()}

    for act in ("apply", "undo"):
        for number in range(5 if act == "apply" else 4):
            journal = fresh(f"{act}{number}")
            first = state(journal)
            if act == "undo":
                engine.apply(journal, made)
            todo = (
                (lambda j=journal: engine.apply(j, made))
                if act == "apply"
                else (lambda j=journal: engine.undo(j))
            )
            assert m.killed(todo, number)
            assert KINDS["dropin"].read(journal.root, target) in (old, made[0].new)
            engine.undo(journal)
            assert state(journal) == first


def test_a_drop_in_cut_off_in_the_middle_of_its_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = m.make(tmp_path)
    (tmp_path / "etc").mkdir()
    real = os.rename

    def rename(*args: object, **more: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(os, "rename", rename)
    assert m.killed(lambda: engine.apply(journal, [m.change("dropin", LIMITS, "x\n")]), 99)
    monkeypatch.setattr(os, "rename", real)
    folder = (tmp_path / LIMITS.lstrip("/")).parent
    assert [p.name for p in folder.iterdir()] == ["90-wellfed.conf.wellfed-new"]
    assert engine.undo(journal) == [] and list(folder.iterdir()) == []


def test_a_drop_in_outlives_a_reboot_and_its_removal_too(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    (tmp_path / "etc").mkdir()
    engine.apply(journal, [m.change("dropin", UNIT, "[Service]\nLimitMEMLOCK=infinity\n")])
    assert (tmp_path / UNIT.lstrip("/")).stat().st_mode & 0o777 == 0o644
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-two\n")
    assert [one.outcome for one in engine.status(journal)] == ["same"]
    assert [one.outcome for one in engine.undo(journal)] == ["reverted"]
    assert not (tmp_path / UNIT.lstrip("/")).parent.exists()


def test_systemd_hears_of_its_drop_ins_only(tmp_path: Path) -> None:
    said: list[str] = []
    kind = DropinKind(lambda name, /, **_: said.append(name) or "")
    journal = m.make(tmp_path)
    (tmp_path / "etc").mkdir()
    for target in (LIMITS, UNIT):
        engine.apply(journal, [m.change("dropin", target, "x\n")], {"dropin": kind})
    assert said == ["units-reload"]


@pytest.mark.parametrize(
    "target",
    [
        "/etc/passwd",
        "/etc/sysctl.d/99-site.conf",
        "/etc/sysctl.d/../90-wellfed.conf",
        "/etc/systemd/system/../x.service.d/90-wellfed.conf",
        "/etc/security/limits.d/90-wellfed.sh",
        "/root/90-wellfed.conf",
    ],
)
def test_files_that_are_not_ours(target: str, tmp_path: Path) -> None:
    with pytest.raises(WellfedError):
        engine.apply(m.make(tmp_path), [m.change("dropin", target, "x")])


def test_a_drop_in_is_not_written_through_a_link(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/sysctl.d").symlink_to(tmp_path / "elsewhere")
    (done,) = engine.apply(journal, [m.change("dropin", "/etc/sysctl.d/90-wellfed.conf", "x")])
    assert done.outcome == "failed" and list((tmp_path / "elsewhere").iterdir()) == []


def test_a_latency_that_is_held(tmp_path: Path) -> None:
    """Killed at every step of holding, of holding another, and of letting go: nobody is left who holds."""
    made = [m.change("hold", "cpu_dma_latency", "20")]
    other = [m.change("hold", "cpu_dma_latency", "3")]
    kind = KINDS["hold"]

    def fresh(name: str) -> Journal:
        journal = m.make(tmp_path / name)
        (tmp_path / name / "dev").mkdir()
        (tmp_path / name / "dev/cpu_dma_latency").write_bytes(b"")
        return journal

    def now(journal: Journal) -> str | None:
        return (kind.read(journal.root, "cpu_dma_latency") or "").partition(" ")[0] or None

    for act, steps in (("one", 6), ("two", 6), ("undo", 4)):
        for number in range(steps):
            journal = fresh(f"{act}{number}")
            if act != "one":
                engine.apply(journal, made)
            todo = (
                (lambda j=journal: engine.undo(j))
                if act == "undo"
                else (lambda j=journal, c=made if act == "one" else other: engine.apply(j, c))
            )
            assert m.killed(todo, number), (act, number)
            assert now(journal) in {"one": (None, "20"), "two": ("20", "3"), "undo": ("20", None)}[act]
            engine.undo(journal)
            assert now(journal) is None and engine.status(journal) == []
            assert list((tmp_path / f"{act}{number}/run/wellfed").glob("hold-*")) == []


def test_a_holder_that_died_is_drift(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/cpu_dma_latency").write_bytes(b"")
    (done,) = engine.apply(journal, [m.change("hold", "cpu_dma_latency", "20")])
    assert done.now is not None and done.now.startswith("20 (process ")
    words = done.now.replace(",", "").rstrip(")").split()
    hold._signal(int(words[2]), "1")  # another that came to the same number is left alone
    assert [one.outcome for one in engine.status(journal)] == ["same"]
    hold._signal(int(words[2]), words[4])
    os.waitpid(int(words[2]), 0)
    assert [(one.outcome, one.now) for one in engine.status(journal)] == [("changed", None)]
    assert [one.outcome for one in engine.undo(journal)] == ["reverted"]


def test_a_latency_that_can_not_be_held(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    (done,) = engine.apply(journal, [m.change("hold", "cpu_dma_latency", "20")])
    assert done.outcome == "failed" and "is not there" in (done.note or "")
    (tmp_path / "dev/cpu_dma_latency").mkdir(parents=True)
    (done,) = engine.apply(journal, [m.change("hold", "cpu_dma_latency", "20")])
    assert done.outcome == "failed" and "Is a directory" in (done.note or "")
    assert KINDS["hold"].read(journal.root, "cpu_dma_latency") is None


_MOUNTS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import fake_host as m
from wellfed.apply import engine
from wellfed.apply.journal import Journal
from wellfed.apply.root import Root
def options():
    line = [l for l in open("/proc/self/mountinfo") if l.split()[4] == "/mnt"][-1]
    return sorted(line.split()[5].split(",")), line.split(" - ")[1]
first = options()
journal = Journal(Root("/"), Path(sys.argv[2]))
done = engine.apply(journal, [m.change("mount", "/mnt:atime", "noatime"), m.change("mount", "/mnt:size", "4096000")])
assert [one.outcome for one in done] == ["applied", "applied"], done
assert options()[0] == sorted({*first[0]} - {"relatime"} | {"noatime"}) and "size=4000k" in options()[1], options()
assert [one.outcome for one in engine.undo(journal)] == ["reverted", "reverted"]
assert options() == first, options()
"""


@pytest.mark.root
@pytest.mark.xdist_group("knobs")
def test_a_mount(tmp_path: Path) -> None:
    """In a mount namespace of its own; all other options stay, on the way there and back."""
    made = "mount -t tmpfs -o nosuid,noexec,size=8m,mode=700 none /mnt"
    done = m.in_mount_namespace(made, _MOUNTS, tmp_path / "journal")
    if done.returncode != 0 and "Traceback" not in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


def test_a_command_that_outlives_who_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while a command runs: nobody calls the knob unchanged before the command has ended."""
    journal = m.make(tmp_path)
    file = tmp_path / m.SYSCTL / "stat_interval"
    slow = ("sh", "-c", f"touch {tmp_path}/begun; sleep 0.4; echo 7 > {file}")
    monkeypatch.setitem(commands.COMMANDS, "slow", commands.Command(slow))

    class Slow(type(KINDS["sysctl"])):  # type: ignore[misc]
        def write(self, root: object, target: str, value: str | None) -> None:
            if value == "7":
                commands.run("slow")
            else:
                super().write(root, target, value)

    kinds = {"sysctl": Slow()}
    child = os.fork()
    if child == 0:
        try:
            engine.apply(journal, [m.STAT], kinds)
        finally:
            os._exit(0)
    while not (tmp_path / "begun").exists():
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    refused = 0
    while True:
        try:
            engine.undo(journal, kinds=kinds)
            break
        except WellfedError as error:
            assert "another" in str(error)
            refused += 1
            time.sleep(0.02)
    assert refused and file.read_text().strip() == "1"


def test_no_blank_of_a_command_can_be_an_option_or_a_path() -> None:
    hostile = ("-x", "--all", "a b", "$(x)", "../x", "", "x\n", "/etc/passwd", "\0")
    for blank in ("unit", "interface", "name", "address", "value"):
        for text in hostile:
            if blank == "unit" and text == "x\n":
                assert not commands.re.fullmatch(commands.BLANKS[blank], text)
            with pytest.raises(OSError):
                commands.filled("unit-stop", **{blank: text})


def test_programs_of_this_machine_are_not_run_for_another(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    for kind, target in (
        ("service", "irqbalance"),
        ("ethtool", "lo/rings/rx"),
        ("nvml", "0000:18:00.0/power_limit"),
    ):
        with pytest.raises(OSError, match="this machine only"):
            KINDS[kind].read(journal.root, target)
