"""Recordings that broke off on their way, and files that say nothing: never a number that is too low, never a finding
out of nothing."""

import io
import tarfile
from pathlib import Path

import pytest
from boxes import numa_server

from wellfed.check import judge_machine
from wellfed.cli.main import main
from wellfed.host import host_of, look, open_host
from wellfed.host.archive import Link
from wellfed.model import WellfedError
from wellfed.report.story import machine_phrase


def packed(path: Path) -> bytes:
    """The invented server as a tar, folders of CPUs last."""
    with tarfile.open(path, "w") as tar:
        for name, content in sorted(numa_server().items(), key=lambda entry: "/cpu" in entry[0]):
            member = tarfile.TarInfo("box" + name)
            if isinstance(content, Link):
                member.type, member.linkname = tarfile.SYMTYPE, content.target
                tar.addfile(member)
                continue
            data = content.encode() if isinstance(content, str) else content or b""
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path.read_bytes()


def test_a_whole_recording_is_called_neither_damaged_nor_cut(tmp_path: Path) -> None:
    packed(tmp_path / "box.tar")
    assert open_host(str(tmp_path / "box.tar")).notes == ()


@pytest.mark.parametrize("off", [0, 1, 300, 512, 700, 1024])
@pytest.mark.parametrize("garbled", [False, True])
def test_a_cut_or_garbled_recording_says_so_wherever_it_broke_off(
    tmp_path: Path, off: int, garbled: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "box.tar"
    data = packed(path)
    at = data.rindex(b"box/sys/devices/system/cpu/cpu1") // 512 * 512 + off
    path.write_bytes(data[:at] + b"\xff" * (512 * 40 if garbled else 0))
    machine = look(open_host(str(path)))
    if garbled and off % 512:
        assert "recording" in machine.gaps or at % 1024  # the garbage may be what a file holds
    else:
        assert "damaged" in machine.gaps["recording"]
        assert "counts may be too low" in machine_phrase(machine)
        with pytest.raises(SystemExit):
            main(["check", "--host", str(path), "--format", "json", "--fail-on", "never"])
        assert "damaged" in capsys.readouterr().err


def test_what_is_left_of_a_cut_recording_is_named_when_it_is_no_host(tmp_path: Path) -> None:
    path = tmp_path / "box.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("manifest.json", "commands/a"):
            member = tarfile.TarInfo(name)
            member.size = 2
            tar.addfile(member, io.BytesIO(b"{}"))
    path.write_bytes(path.read_bytes()[:1900])
    with pytest.raises(WellfedError, match=r"no recorded host; the archive is damaged after 2 members"):
        open_host(str(path))


def test_cores_are_not_counted_when_only_some_cpus_show_theirs() -> None:
    whole = numa_server()
    assert look(host_of(whole)).cpu.cores == 8
    some = {path: text for path, text in whole.items() if "/cpu7/topology" not in path}
    machine = look(host_of(some))
    assert (machine.cpu.logical, machine.cpu.cores) == (16, None)
    assert (
        machine.gaps["cpu.cores"]
        == "missing: `/sys/devices/system/cpu/cpu*/topology` (only 15 of 16 CPUs show it)"
    )


@pytest.mark.parametrize("text", ["", "\n", "nan", "1e400", "\u0663", "\u00b2", "x" * 5000, "9" * 5000])
def test_a_file_without_a_number_is_no_finding(text: str) -> None:
    """Nor is it a pass: what cannot be read is not judged."""
    files = dict(numa_server())
    sysctls = (
        "kernel/softlockup_panic kernel/hung_task_panic kernel/nmi_watchdog kernel/timer_migration "
        "net/ipv4/tcp_sack net/ipv4/tcp_timestamps net/ipv4/tcp_slow_start_after_idle"
    )
    for name in sysctls.split():
        files[f"/proc/sys/{name}"] = text
    files["/sys/devices/system/clocksource/clocksource0/current_clocksource"] = "" if len(text) < 2 else "tsc"
    files["/proc/driver/nvidia/params"] = f'EnableMSI: {text}\nNvLinkDisable: {text}\nRegistryDwords: ""\n'
    for intent in ("training", "latency", "benchmark"):
        found = {v.code: v for v in judge_machine(look(host_of(files)), intent=intent)}
        for code in ("KRN14", "KRN05", "KRN06", "NET08", "NET09", "DRV10"):
            assert found[code].verdict == "not-judged", (code, found[code].message)
        assert found["CPU12"].verdict == ("not-judged" if len(text) < 2 else "pass")


def test_no_sentence_is_as_long_as_a_strangers_file() -> None:
    files = dict(numa_server())
    files["/sys/devices/system/clocksource/clocksource0/current_clocksource"] = "z" * 100_000
    for verdict in judge_machine(look(host_of(files))):
        assert len(verdict.message) < 2000, verdict.code
