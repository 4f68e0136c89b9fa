"""A machine and a trace full of secrets: none of them is in anything that is written."""

import gzip
import json
import tarfile
from pathlib import Path

import pytest

SECRETS = {
    "token": "hf_QkZxWvUtSrPqMnLkJh",
    "aws": "AKIAQ7WERTYUIOPASDFG",
    "plain": "velvet-underpass-91",
    "named": "quartz~umbrella",
    "address": "10.77.3.9",
    "url": "marmalade",
    "user": "marguerite",
    "host": "krypton7.vineyard.example",
}

ENVIRONMENT = {
    "HF_TOKEN": SECRETS["token"],
    "AWS_ACCESS_KEY_ID": SECRETS["aws"],
    "MY_PROJECT": SECRETS["plain"],
    "WANDB_API_KEY": SECRETS["named"],
    "MASTER_ADDR": SECRETS["address"],
    "HTTPS_PROXY": f"http://{SECRETS['user']}:{SECRETS['url']}@{SECRETS['address']}:3128",
    "HOSTNAME": SECRETS["host"],
    "USER": SECRETS["user"],
    "NCCL_TOPO_FILE": f"/home/{SECRETS['user']}/{SECRETS['plain']}.xml",
    "NCCL_SOCKET_IFNAME": SECRETS["plain"],
    "NCCL_DEBUG": "INFO",
    "OMP_NUM_THREADS": "7",
}


def secret_trace(path: Path) -> Path:
    """A small trace whose metadata dumps the environment in several ways, as public ones were seen to do."""
    dump = "\n".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
    events = []
    for step in range(4):
        at = step * 10_000
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": at, "dur": 9_900},
            {"ph": "X", "cat": "cpu_op", "name": f"/home/{SECRETS['user']}/train.py(3): step", "pid": 1, "tid": 1, "ts": at, "dur": 9_000,
             "args": {"HF_TOKEN": SECRETS["token"], "env": ENVIRONMENT}},
            {"ph": "X", "cat": "cpu_op", "name": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "pid": 1, "tid": 1, "ts": at + 10, "dur": 7_000},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 7_100, "dur": 5,
             "args": {"correlation": step + 1}},
            {"ph": "X", "cat": "kernel", "name": "ampere_sgemm_128x64_tn", "pid": 0, "tid": 7, "ts": at + 7_200, "dur": 2_000,
             "args": {"correlation": step + 1, "stream": 7, "device": 0, "comment": f"Bearer {SECRETS['token']}"}},
        ]  # fmt: skip
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1, "env": ENVIRONMENT, "hostname": SECRETS["host"]},
        "environ": ENVIRONMENT,
        "WANDB_API_KEY": SECRETS["named"],
        "env_text": dump,
        "host_name": SECRETS["host"],
        "command_line": f"python train.py --api-key {SECRETS['named']} --data /home/{SECRETS['user']}/{SECRETS['plain']}",
        "traceEvents": events,
        "traceName": f"/home/{SECRETS['user']}/x.json",
    }  # fmt: skip
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def plain_bytes(path: Path) -> bytes:
    """The content of a file, unpacked: a secret must not hide in compression."""
    data = path.read_bytes()
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as tar:
            # A recording holds links to folders of which nothing was read: their text counts, not their goal.
            members = [
                (f"{m.name} {m.linkname}", tar.extractfile(m) if m.isreg() else None)
                for m in tar.getmembers()
            ]
            return b"\n".join(
                name.encode() + b"\n" + (file.read() if file else b"") for name, file in members
            )
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def leaks(data: bytes) -> list[str]:
    forms = {name: {secret, json.dumps(secret)[1:-1]} for name, secret in SECRETS.items()}
    return [name for name, texts in forms.items() if any(text.encode() in data for text in texts)]


@pytest.fixture
def secret_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def test_the_test_can_see_a_leak(tmp_path: Path) -> None:
    assert leaks(plain_bytes(secret_trace(tmp_path / "t.json.gz"))) == list(SECRETS)


@pytest.mark.usefixtures("secret_environment")
def test_no_secret_is_in_what_doctor_writes(run_cli, tmp_path: Path) -> None:
    home = tmp_path / "home" / SECRETS["user"]
    home.mkdir(parents=True)
    recording = secret_trace(home / "t.json.gz")
    outputs = ["x.json", "x.md", "x.html", "x.txt"]
    result = run_cli(
        "doctor", "--no-measure", "--trace", recording, "--save", "x.case", *(a for o in outputs for a in ("-o", o))
    )  # fmt: skip
    assert result.code == 0, result.err
    for name in (*outputs, "x.case"):
        data = plain_bytes(Path(name))
        assert leaks(data) == [], name
        assert len(data) > 500
    assert b"OMP_NUM_THREADS" in plain_bytes(Path("x.case")), "what tunes performance stays"


@pytest.mark.usefixtures("secret_environment")
@pytest.mark.parametrize("form", ["json", "md", "html"])
def test_no_secret_is_in_what_goes_to_a_pipe(run_cli, tmp_path: Path, form: str) -> None:
    recording = secret_trace(tmp_path / "t.json.gz")
    result = run_cli("doctor", "--no-measure", "--trace", recording, "--format", form)
    assert result.code == 0, result.err
    assert leaks(result.out.encode()) == []


@pytest.mark.usefixtures("secret_environment")
def test_no_secret_is_in_a_recorded_machine(run_cli, tmp_path: Path) -> None:
    result = run_cli("inspect", "--record", "box.tar", "-o", "x.json")
    assert result.code == 0, result.err
    for name in ("box.tar", "x.json"):
        assert leaks(plain_bytes(Path(name))) == [], name
    again = run_cli("inspect", "--host", "box.tar", "--format", "json")
    assert again.code == 0 and leaks(again.out.encode()) == []


@pytest.mark.usefixtures("secret_environment")
def test_secrets_stay_when_asked(run_cli, tmp_path: Path) -> None:
    run_cli("inspect", "--no-redact", "--save", "x.case")
    assert "plain" in leaks(plain_bytes(Path("x.case")))
