"""The door: what a host may answer, live or recorded, and what an archive may not do to us."""

import bz2
import gzip
import io
import json
import lzma
import os
import stat
import sys
import tarfile
from pathlib import Path

import pytest
from boxes import BOXES, box
from hypothesis import given
from hypothesis import strategies as st

from wellfed.host import COMMANDS, PROBES, archive, host_of, look, open_host, record
from wellfed.host.archive import MAX_LINKS, Link, MemoryTree, walk
from wellfed.host.door import Command
from wellfed.host.live import LiveHost, find_program, run_command
from wellfed.model import WellfedError

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def tar_of(members: dict[str, bytes | tarfile.TarInfo], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, content in members.items():
            if isinstance(content, bytes):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                tar.addfile(content)
    return out.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def saved(tmp_path: Path, data: bytes, name: str = "box.tar") -> str:
    (tmp_path / name).write_bytes(data)
    return str(tmp_path / name)


# -- live --------------------------------------------------------------------------------------------------


def test_reads_a_file_without_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"0-3\n\0")
    assert LiveHost().read(str(tmp_path / "list")).text == "0-3"


def test_a_long_file_is_cut_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 100)
    reading = LiveHost().read(str(tmp_path / "long"), limit=10)
    assert reading.text == "x" * 10
    assert reading.detail == "cut at 10 bytes"


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        reading = LiveHost().read(str(path))
        assert (reading.status, reading.text) == ("unsupported", None)


def test_why_a_file_cannot_be_read(tmp_path: Path) -> None:
    assert LiveHost().read(str(tmp_path / "none")).status == "missing"
    assert LiveHost().read(str(tmp_path / "none" / "below")).status == "missing"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_no_permission_is_denied(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    assert LiveHost().read(str(tmp_path / "secret")).status == "denied"


def command(*argv: str, **more: object) -> Command:
    return Command(argv, **more)  # type: ignore[arg-type]


def test_a_command_that_is_not_there() -> None:
    reading = run_command(command("no-such-program-here"))
    assert reading.status == "missing"
    assert "not installed" in (reading.detail or "")


def test_a_command_that_takes_too_long_is_ended() -> None:
    reading = run_command(command(sys.executable, "-c", "import time; time.sleep(30)", timeout_s=0.3))
    assert reading.status == "error"
    assert "no answer" in (reading.detail or "")


def test_output_and_exit_codes() -> None:
    script = "import sys; print('a keep'); print('b drop'); sys.exit(3)"
    assert run_command(command(sys.executable, "-c", script)).status == "error"
    accepted = run_command(command(sys.executable, "-c", script, accept=(0, 3), keep="keep"))
    assert accepted.text == "a keep"


def test_a_refusal_is_denied() -> None:
    script = "import sys; sys.exit('dmesg: read kernel buffer failed: Operation not permitted')"
    assert run_command(command(sys.executable, "-c", script)).status == "denied"


def test_endless_output_is_capped() -> None:
    script = "import sys\nfor _ in range(200): sys.stdout.write('x' * 65536)"
    text = run_command(command(sys.executable, "-c", script)).text
    assert text is not None
    assert len(text) == 4 << 20


def test_programs_are_not_looked_up_in_relative_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho mine\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{tmp_path.name}:")
    assert find_program("nvidia-smi") in (None, "/usr/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")


@linux
def test_every_probe_answers_json_or_says_why() -> None:
    host = LiveHost()
    for name in PROBES:
        reading = host.probe(name)
        if reading.status == "ok":
            json.loads(reading.text or "")
        assert reading.status == "ok" or reading.detail
    assert json.loads(host.probe("page_size").text or "") == os.sysconf("SC_PAGE_SIZE")


def test_every_command_is_read_only_and_bounded() -> None:
    changing = {"-r", "--reset", "-pm", "-pl", "-lgc", "-ac", "-e=", "set", "start", "stop", "restart"}
    for name, entry in COMMANDS.items():
        assert 0 < entry.timeout_s <= 30
        assert not changing & set(entry.argv) or name == "nvidia-smi-p2p"


# -- recorded: links stay inside ---------------------------------------------------------------------------


def test_links_are_followed_inside_the_root() -> None:
    host = host_of(
        {
            "/sys/class/net/eth0": Link("../../devices/pci/eth0"),
            "/sys/devices/pci/eth0/mtu": "9000\n",
            "/sys/devices/pci/eth0/device": Link("../../pci"),
            "/etc/passwd": "inside\n",
            "/sys/up": Link("../../../../../../etc/passwd"),
            "/abs": Link("/etc/passwd"),
        }
    )
    assert host.read("/sys/class/net/eth0/mtu").text == "9000"
    assert host.real("/sys/class/net/eth0/mtu") == "/sys/devices/pci/eth0/mtu"
    assert host.link("/sys/class/net/eth0") == "../../devices/pci/eth0"
    assert host.link("/sys/class/net/eth0/mtu") is None
    # A loop of folders is no loop for somebody who walks a path.
    assert host.read("/sys/class/net/eth0/device/eth0/device/eth0/mtu").text == "9000"
    assert host.read("/sys/up").text == "inside"
    assert host.read("/abs").text == "inside"
    assert host.listdir("/sys/class/net") == ("eth0",)


def test_a_loop_of_links_ends() -> None:
    host = host_of({"/a": Link("b"), "/b": Link("a"), "/c": Link("c/c")})
    for path in ("/a", "/b", "/c"):
        assert host.read(path).status == "error"
        assert host.real(path) is None
        assert host.listdir(path) == ()


@given(
    st.dictionaries(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts)),
        st.lists(st.sampled_from(["a", "b", "c", "..", ".", ""]), max_size=6).map("/".join),
        max_size=6,
    ),
    st.lists(st.sampled_from(["a", "b", "c", ".."]), max_size=8).map(lambda parts: "/" + "/".join(parts)),
)
def test_walking_never_leaves_the_root_and_always_ends(links: dict[str, str], path: str) -> None:
    real, met = walk(path, links.get)
    assert len(met) <= MAX_LINKS + 1
    if real is not None:
        assert real.startswith("/")
        assert ".." not in real.split("/")
        assert walk(real, links.get)[0] == real


def test_a_folder_is_read_lazily_and_stays_inside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    (root / "sys").mkdir()
    (tmp_path / "outside").write_text("secret")
    (root / "proc" / "cpuinfo").write_text("processor\t: 0\n\nprocessor\t: 1\n")
    (root / "sys" / "leak").symlink_to(tmp_path / "outside")
    (root / "sys" / "up").symlink_to("../../outside")
    os.mkfifo(root / "sys" / "pipe")
    host = open_host(str(root))
    assert look(host).cpu.logical == 2
    assert host.read("/sys/leak").status == "missing"
    assert host.read("/sys/up").status == "missing"
    assert host.read("/sys/pipe").status == "unsupported"
    assert host.listdir("/sys") == ("leak", "pipe", "up")


def test_links_of_a_folder_lead_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "outside" / "proc").mkdir(parents=True)
    (tmp_path / "outside" / "proc" / "cpuinfo").write_text("processor\t: 0\n")
    (tmp_path / "outside" / "nvml.json").write_text('{"status": "ok"}')
    box = tmp_path / "box"
    box.mkdir()
    (box / "box").symlink_to(tmp_path / "outside")
    with pytest.raises(WellfedError, match="no `sys` or `proc`"):
        open_host(str(box))
    (box / "manifest.json").write_text('{"format": 1}')
    (box / "root").symlink_to(tmp_path / "outside")
    (box / "nvml.json").symlink_to(tmp_path / "outside" / "nvml.json")
    host = open_host(str(box))
    assert host.read("/proc/cpuinfo").status == "missing"
    assert host.nvml()["status"] == "missing"


# -- recorded: archives of others --------------------------------------------------------------------------

HOST = {"box/proc/cpuinfo": b"processor\t: 0\n", "box/sys/x": b"1"}


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["tar", "gz", "bz2", "xz"]
)
def test_one_top_folder_is_the_root(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    host = open_host(saved(tmp_path, pack(tar_of(dict(HOST)))))
    assert host.recorded
    assert host.read("/sys/x").text == "1"


def test_members_that_lead_out_are_left_out(tmp_path: Path) -> None:
    members = {
        **HOST,
        "../evil": b"x",
        "box/sys/../../../evil2": b"x",
        "box/sys/hard": special("box/sys/hard", tarfile.LNKTYPE, "box/sys/x"),
        "box/sys/hard-out": special("box/sys/hard-out", tarfile.LNKTYPE, "/etc/passwd"),
        "box/sys/soft-out": special("box/sys/soft-out", tarfile.SYMTYPE, "/etc/passwd"),
        "box/sys/null": special("box/sys/null", tarfile.CHRTYPE),
        "box/sys/pipe": special("box/sys/pipe", tarfile.FIFOTYPE),
        "/box/sys/absolute": b"inside",
    }
    host = open_host(saved(tmp_path, tar_of(members)))
    assert host.read("/sys/hard").text == "1"
    assert host.read("/sys/hard-out").status == "missing"
    assert host.read("/sys/soft-out").status == "missing"
    assert host.read("/sys/absolute").text == "inside"
    assert not host.exists("/evil")
    assert host.notes == (
        "5 members skipped: 2 devices or pipes, 1 hard links to nothing inside, 2 outside the root or too deep",
    )
    assert "5 members skipped" in look(host).gaps["recording"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["box.tar"]


def test_a_file_that_is_too_big_is_left_out(tmp_path: Path) -> None:
    host = open_host(saved(tmp_path, tar_of({**HOST, "box/proc/big": b"x" * (5 << 20)})))
    assert host.read("/proc/big").status == "missing"
    assert "1 files over 4 MiB" in host.notes[0]


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    bomb = bz2.compress(tar_of({"box/sys/zeros": b"\0" * (40 << 20)}))
    with pytest.raises(WellfedError, match="unpacks to more than") as caught:
        open_host(saved(tmp_path, bomb, "bomb.tar.bz2"))
    assert caught.value.hint


def test_too_much_in_all_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 4 << 20)
    data = gzip.compress(tar_of({f"box/sys/{number}": bytes(1 << 20) for number in range(6)}))
    with pytest.raises(WellfedError, match="unpacks to more than"):
        open_host(saved(tmp_path, data, "large.tgz"))


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 10)
    with pytest.raises(WellfedError, match="more than 10 members"):
        open_host(saved(tmp_path, tar_of({f"box/sys/{number}": b"1" for number in range(20)})))


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_a_truncated_archive_gives_what_is_left(tmp_path: Path, keep: float) -> None:
    members = {f"box/sys/file{number}": os.urandom(2000) for number in range(50)}
    data = gzip.compress(tar_of({**HOST, **members}))
    host = open_host(saved(tmp_path, data[: int(len(data) * keep)]))
    assert host.read("/sys/x").text == "1"
    assert "damaged after" in host.notes[0]
    assert "damaged" in look(host).gaps["recording"]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("empty.tar", b"", "empty file"),
        ("text.tar", b"hello world, this is no tar" * 100, "not a tar"),
        ("short.gz", b"\x1f\x8b\x08", "not a tar"),
        ("other.tar", tar_of({"a/b/c/readme": b"x"}), "no `sys` or `proc`"),
        ("nothing.tar", tar_of({}), "not a tar"),
    ],
)
def test_what_is_no_host_says_so_with_a_hint(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    with pytest.raises(WellfedError, match=says) as caught:
        open_host(saved(tmp_path, data, name))
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_missing_file_and_folder_without_host(tmp_path: Path) -> None:
    with pytest.raises(WellfedError, match="there is no host"):
        open_host(str(tmp_path / "none.tar"))
    with pytest.raises(WellfedError, match="no `sys` or `proc`"):
        open_host(str(tmp_path))


def test_several_machines_in_one_archive_are_named(tmp_path: Path) -> None:
    path = saved(tmp_path, tar_of({"all/a/sys/x": b"1", "all/b/sys/x": b"2"}))
    with pytest.raises(WellfedError, match="2 machines: all/a, all/b") as caught:
        open_host(path)
    assert "::all/a" in (caught.value.hint or "")
    assert open_host(f"{path}::all/b").read("/sys/x").text == "2"
    with pytest.raises(WellfedError):
        open_host(f"{path}::all/c")


def test_a_procfs_text_archive(tmp_path: Path) -> None:
    text = (
        "# Archive created by ttar -c\nDirectory: fixtures\nMode: 755\n# ttar - -\n"
        "Path: fixtures/proc/cpuinfo\nLines: 2\nprocessor\t: 0\nprocessor\t: 1\nMode: 644\n# ttar - -\n"
        "Path: fixtures/proc/x\nLines: 1\naNULLBYTEbEOF\nMode: 644\n# ttar - -\n"
        "Path: fixtures/sys/link\nSymlinkTo: ../proc/cpuinfo\n# ttar - -\n"
        "Path: fixtures/../../evil\nLines: 1\nout\nMode: 644\n"
    )
    host = open_host(saved(tmp_path, text.encode(), "fixtures.ttar"))
    assert look(host).cpu.logical == 2
    assert host.read("/proc/x").text == "a\0b"
    assert host.read("/sys/link").text == "processor\t: 0\nprocessor\t: 1"
    assert not host.exists("/evil")


@given(st.binary(max_size=3000))
def test_random_bytes_never_crash_the_opener(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tar"
        path.write_bytes(data)
        with pytest.raises(WellfedError):
            open_host(str(path))


# -- recording ---------------------------------------------------------------------------------------------

WHEN = "2026-01-02T03:04:05+00:00"


@pytest.mark.parametrize("name", list(BOXES))
def test_a_recording_replays_to_the_same_machine(tmp_path: Path, name: str) -> None:
    host = box(name)
    summary = record(host, tmp_path / "box.tar", redact=False, now=WHEN)
    again = look(open_host(str(tmp_path / "box.tar")))
    assert again == look(host)
    assert summary.files > 1


def test_a_recording_of_a_recording_is_the_same_bytes(tmp_path: Path) -> None:
    record(box("numa_server"), tmp_path / "a.tar", redact=False, now=WHEN)
    record(open_host(str(tmp_path / "a.tar")), tmp_path / "b.tar", redact=False, now=WHEN)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


@linux
def test_this_machine_replays_to_itself(tmp_path: Path) -> None:
    host = LiveHost()
    record(host, tmp_path / "box.tar.gz", redact=False)
    live, again = look(host), look(open_host(str(tmp_path / "box.tar.gz")))
    assert set(again.facts) == set(live.facts)
    assert set(again.gaps) == set(live.gaps)
    # Counters of time and free memory move on between two looks; all else must not.
    moving = r"free|used|available|uptime|steal|pressure|nr_|throttled|thp_|compact|inodes|running|rx_|carrier|pids|file_bytes|mlocked|evictable|irqs|hits|misses|foreign|softnet"
    import re

    for key, fact in live.facts.items():
        if not re.search(moving, key) and key != "nics":
            assert again.facts[key].value == fact.value or str(again.facts[key].value) == str(fact.value), key


def test_redaction_leaves_the_facts_and_takes_the_names(tmp_path: Path) -> None:
    files = {
        **BOXES["numa_server"](),
        "/sys/class/net/eth0/address": "0c:42:a1:12:34:56\n",
        "/sys/class/net/eth0/mtu": "9000\n",
        "/proc/cmdline": "root=UUID=123e4567-e89b-42d3-a456-426614174000 ip=10.20.30.40 isolcpus=6-7\n",
        "/etc/os-release": 'PRETTY_NAME="Ubuntu 24.04"\n',
        "/proc/4711/comm": "secret-project\n",
    }
    host = host_of(
        files,
        commands={
            "dmesg": "[1.0] NVRM: Xid (PCI:0000:0f:00): 79, gpu-node-17 serial: 1650321000123",
            "systemctl-services": "Id=tuned.service\nActiveState=active\n\nId=cron.service\nActiveState=inactive\n",
        },
        environ={
            "NCCL_DEBUG": "INFO",
            "NCCL_SOCKET_IFNAME": "eth0",
            "HF_HOME": "/home/alice/hf",
            "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
            "TORCH_API_TOKEN": "tok-en-value-77",
        },
    )
    record(host, tmp_path / "box.tar", now=WHEN)
    raw = (tmp_path / "box.tar").read_bytes()
    for secret in (
        b"gpu-node-17", b"0c:42:a1", b"10.20.30.40", b"123e4567", b"1650321000123", b"alice",
        b"0123456789abcdef0123", b"tok-en-value", b"WANDB", b"secret-project",
    ):  # fmt: skip
        assert secret not in raw, secret
    redacted, plain = look(open_host(str(tmp_path / "box.tar"))), look(host)
    assert redacted.environment["NCCL_DEBUG"] == "INFO"
    assert redacted.environment["NCCL_SOCKET_IFNAME"] == "eth0"
    assert redacted.environment["HF_HOME"] == "[redacted]"
    assert redacted.kernel.active_services == ("tuned",)
    for room in ("cpu", "numa", "memory", "container", "limits", "disks", "pci"):
        assert getattr(redacted, room) == getattr(plain, room), room
    assert redacted.kernel.sysctls == plain.kernel.sysctls
    assert redacted.kernel.xids
    assert set(redacted.facts) == set(plain.facts)


def test_the_manifest_comes_first_and_says_what_it_is(tmp_path: Path) -> None:
    record(box("only_proc"), tmp_path / "box.tar", now=WHEN)
    with tarfile.open(tmp_path / "box.tar") as tar:
        names = tar.getnames()
        manifest = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
    assert names[0] == "manifest.json"
    assert names[1:] == sorted(names[1:])
    assert (manifest["format"], manifest["redacted"], manifest["made_at"]) == (1, True, WHEN)


def test_a_recording_of_the_future_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, tar_of({"manifest.json": b'{"format": 99}', "root/proc/x": b"1"}))
    with pytest.raises(WellfedError, match="format"):
        open_host(path)


def test_damaged_answers_of_a_recording_are_counted(tmp_path: Path) -> None:
    members = {
        "manifest.json": b'{"format": 1}',
        "root/proc/cpuinfo": b"processor\t: 0\n",
        "probes.json": b'{"affinity": {"source": "x", "status": "ok", "text": null}}',
        "nvml.json": b"[" * 100_000,
        "environ.json": b'{"OMP_NUM_THREADS": 8}',
        "commands/dmesg.json": b"\xff\xfe",
    }
    host = open_host(saved(tmp_path, tar_of(members)))
    assert host.notes == ("unreadable parts of the recording: commands/dmesg.json, nvml.json, environ.json",)
    assert host.nvml()["devices"] == []
    assert host.probe("affinity").status == "error"
    assert look(host).cpu.logical == 1


def test_recording_needs_a_writable_place_and_a_name(tmp_path: Path) -> None:
    with pytest.raises(WellfedError, match="cannot write"):
        record(box("only_proc"), tmp_path / "none" / "box.tar")
    with pytest.raises(WellfedError, match="no name for a recording"):
        record(box("only_proc"), tmp_path / "box.zip")


def test_a_recording_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    record(box("only_proc"), tmp_path / "box.tar", now=WHEN)
    assert [path.name for path in tmp_path.iterdir()] == ["box.tar"]
    assert stat.S_IMODE((tmp_path / "box.tar").stat().st_mode) == 0o644


def test_memory_tree_shows_implied_folders() -> None:
    tree = MemoryTree({"/a/b/c": b"1", "/a/d": None})
    assert tree.names("/a") == ("b", "d")
    assert tree.has("/a/b")
    assert tree.below("/a").names("/") == ("b", "d")


@pytest.mark.parametrize("claimed", [8**11 - 1, 2**62], ids=["octal", "pax"])
def test_a_member_that_claims_to_be_endless_costs_no_time(tmp_path: Path, claimed: int) -> None:
    """Streaming past it would take years: what came before it is kept, the rest is told as lost."""
    whole = tar_of(HOST)
    member = tarfile.TarInfo("sys/endless")
    member.size = claimed
    block = member.tobuf(format=tarfile.PAX_FORMAT)
    path = tmp_path / "box.tar"
    path.write_bytes(whole.rstrip(b"\0").ljust((len(whole.rstrip(b"\0")) + 511) // 512 * 512, b"\0") + block)
    tree = archive.open_tree(path)
    assert any("damaged" in note for note in tree.notes)
    assert tree.has("/box/proc/cpuinfo")
