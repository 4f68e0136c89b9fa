"""Names, addresses and secrets go; numbers, versions, kernels and paths of the kernel stay."""

import gzip
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nouns import structs_of

from wellfed.model import Case, Evidence, Fact, Machine, RankTrace, Verdict, decode_case, encode_case
from wellfed.model.base import replace
from wellfed.model.devices import Gpu
from wellfed.model.machine import Package, Software
from wellfed.model.redact import Redactor, redact_case, redact_tree
from wellfed.model.trace import KernelRow

STAYS = [
    # versions that look like addresses
    "580.159.04",
    "2.11.0+cu130",
    "12.8.93",
    "nvidia-cufft-cu12 10.9.0.58",
    "nvidia-cudnn-cu12==9.10.2.21",
    "nvidia_cusparse_cu12-12.5.8.93",
    "libcudnn.so.9.10.2.21",
    "NCCL version 2.27.5.1",
    "VBIOS 96.00.A5.00.03",
    "NVIDIA-SMI 580.159.04   Driver Version: 580.159.04   CUDA Version: 13.0",
    # PCI, times, C++ and other things with colons
    "0000:0f:00.0",
    "00000000:18:00.0",
    "10de:2335",
    "2026-12-02T10:11:12.123456",
    "12:34:56",
    "void at::native::vectorized_elementwise_kernel<4, c10::BFloat16, std::array<char*, 1ul>>(int)",
    "pci:v000010DEd00002335sv000010DEsd000018BEbc03sc02i00",
    # long names of kernels
    "_ZN7cutlass6KernelI23Flash_fwd_kernel_traitsILi128ELi128ELi64ELi4ELb0ELb0EN7cutlass10bfloat16_tE",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0_APM1",
    "triton_poi_fused__to_copy_add_mul_native_layer_norm_backward_0",
    "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
    "SubTensorOpWithCastTensor1d",
    "Icmp6InGroupMembReductions",
    "/volumes/kubernetes.io~secret/x",
    "7f00 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4",
    "Vector table: BAR=4 offset=00000000",
    # hardware and the kernel's own paths
    "NVIDIA H200",
    "NVIDIA A100-SXM4-80GB",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "/proc/sys/vm/swappiness",
    "0x00000000fb000000 0x00000000fbffffff 0x0000000000040200",
    "ffffffffffffffffffffffffffffffff,ffffffff",
    "root=/dev/vda1 iommu=pt intel_iommu=on mitigations=auto quiet",
    'PRETTY_NAME="Ubuntu 22.04.5 LTS"',
    "DRIVER=nvidia",
    # addresses that name nobody
    "127.0.0.1",
    "0.0.0.0",
    "::1",
    "00:00:00:00:00:00",
    # performance variables
    "NCCL_DEBUG=INFO",
    "OMP_NUM_THREADS=8",
    "TOKENIZERS_PARALLELISM=false",
    "SLURM_JOB_CPUS_PER_NODE=8(x2)",
    "CUDA_VISIBLE_DEVICES=0,1,2,3",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128",
    "NCCL_IB_HCA=mlx5_0:1,mlx5_1:1",
    "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
    "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4",
    # sentences and settings
    "num_workers=8, persistent_workers=True",
    "max_tokens: 4096",
    "the token is missing",
    "Serial: N/A",
    "SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes",
]

GOES = {
    "10.1.2.3": "ipv4-1",
    "http://10.1.2.3:8080/x": "http://ipv4-1:8080/x",
    "inet 192.168.1.2/24 brd 192.168.1.255": "inet ipv4-1/24 brd ipv4-2",
    "fe80::1ff:fe23:4567:890a": "ipv6-1",
    "2001:db8::1": "ipv6-1",
    "aa:bb:cc:dd:ee:ff": "mac-1",
    "80:00:00:48:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:cc:6b:c8": "mac-1",
    "e41d:2d03:0012:3456": "guid-1",
    "(NodeGUID=0200:00ff:fe00:0000 Port1State=4)": "(NodeGUID=guid-1 Port1State=4)",
    "Node GUID: 0x506b4b0300cc6bc8": "Node GUID: serial-1",
    "GPU-12345678-1234-1234-1234-123456789abc": "GPU-uuid-1",
    "GPU 0: NVIDIA H200 (UUID: GPU-12345678": "GPU 0: NVIDIA H200 (UUID: GPU-uuid-1",
    "MIG-12345678-1234-1234-1234-123456789abc": "MIG-uuid-1",
    "MIG-GPU-12345678-1234-1234-1234-123456789abc/1/0": "MIG-uuid-1/1/0",
    "Serial Number                         : 1650123456789": "Serial Number                         : serial-1",
    "<serial>1650123456789</serial>": "<serial>serial-1</serial>",
    '{"serial": "1650123456789"}': '{"serial": "serial-1"}',
    "eui.0025384b21a0d1c3": "serial-1",
    "/home/alice/train.py(12): step": "/home/user-1/train.py(12): step",
    "/Users/alice/x": "/Users/user-1/x",
    "/tmp/torchinductor_alice/ab": "/tmp/torchinductor_user-1/ab",
    "ask alice.b@corp.example.com": "ask mail-1",
    "hf_abcdefghijklmnop": "[redacted]",
    "sk-proj-abcdefghijklmnop123": "[redacted]",
    "ghp_abcdefghijklmnop1234": "[redacted]",
    "AKIAIOSFODNN7EXAMPLE": "[redacted]",
    "Authorization: Bearer abcdefgh12345": "Authorization: [redacted]",
    "curl -H 'Bearer abcdefgh12345'": "curl -H 'Bearer [redacted]'",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N": "[redacted]",
    "d41d8cd98f00b204e9800998ecf8427e": "hex-1",
    "x8Kf93jdKLs0a9Qe8Zt2Vb7Nm4Xc1Rq6": "[redacted]",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----": "[redacted]",
    "http://bob:pillow@proxy:3128": "http://[redacted]@proxy:3128",
    "--api-key pillow": "--api-key [redacted]",
    "password: pillow": "password: [redacted]",
    "//nas/x /x cifs rw,username=alice,password=pillow 0 0": (
        "//nas/x /x cifs rw,username=[redacted],password=[redacted] 0 0"
    ),
    "HF_TOKEN=pillow": "HF_TOKEN=[redacted]",
    "GREETING=hello to my pillow": "GREETING=[redacted]",
    'export DATA_SET="my pillow"': "export DATA_SET=[redacted]",
    "MASTER_ADDR=10.9.8.7 MASTER_PORT=29500": "MASTER_ADDR=[redacted] MASTER_PORT=[redacted]",
    "A_B=1\0C_D=pillow\0": "A_B=[redacted]\0C_D=[redacted]\0",
    '{"HF_TOKEN": "pillow", "NCCL_DEBUG": "INFO"}': '{"HF_TOKEN": "[redacted]", "NCCL_DEBUG": "INFO"}',
    "{'DATA_SET': 'pillow'}": "{'DATA_SET': '[redacted]'}",
    '{\\"DATA_SET\\": \\"pillow\\"}': '{\\"DATA_SET\\": \\"[redacted]\\"}',
    '"HF_TOKEN": "pill': '"HF_TOKEN": "[redacted]',
    "NCCL_TOPO_FILE=/opt/secret/topo.xml": "NCCL_TOPO_FILE=[redacted]",
    "SLURM_JOB_NODELIST=pillow[1-4]": "SLURM_JOB_NODELIST=[redacted]",
    "NCCL_COMM_ID=pillow": "NCCL_COMM_ID=[redacted]",
}


@pytest.mark.parametrize("text", STAYS)
def test_what_names_nobody_stays(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize("text", GOES)
def test_what_names_somebody_goes(text: str) -> None:
    assert Redactor().text(text) == GOES[text]


@pytest.mark.parametrize("text", [*GOES.values(), *STAYS])
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = Redactor().text(text)
    assert Redactor().text(once) == once


@given(st.text(st.sampled_from("aB3f:.-_=/@\"' \nK{}"), max_size=60))
@settings(max_examples=300)
def test_redacting_any_text_twice_is_redacting_it_once(text: str) -> None:
    once = Redactor().text(text)
    assert Redactor().text(once) == once


HOSTILE = [
    "a", "A", "A_", "1", "1.", "a:", "ab1", "token", "token:", "/home/", "a@", "a.", "bearer ", "serial", "serial:", "eyJa.", "://",
    " ", "\n", "'", "\\", "GPU-12345678-", "12345678-1234-", "aB3", "aB3/", "version ", "a_1.", "eui.a", "nvme-", "-", "password=",
    "AB=x ", "AB=x\0", "AB=x\n", '"AB": "x" ', "-----BEGIN PRIVATE KEY-----",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_no_longer_than_other_text(piece: str) -> None:
    redactor = Redactor()
    for text in (piece * (60_000 // len(piece)), "AB_C= " + piece * (60_000 // len(piece)) + "_1"):
        start = time.process_time()
        redactor.learn(text)
        redactor.text(text)
        assert time.process_time() - start < 3, "some pattern goes over the text once for each character"


def test_one_name_has_one_pseudonym() -> None:
    redactor = Redactor()
    assert redactor.text("10.0.0.1 10.0.0.2 10.0.0.1") == "ipv4-1 ipv4-2 ipv4-1"
    assert redactor.text("again 10.0.0.2") == "again ipv4-2"


def test_a_known_hostname_goes_wherever_it_is_a_word() -> None:
    redactor = Redactor(hostnames=["node17.cluster.example"])
    text = "node17 node17.cluster.example node17_812.1.pt.trace.json mynode17 x.cluster.example"
    assert redactor.text(text) == "host-1 host-1 host-1_812.1.pt.trace.json mynode17 x.domain.invalid"


@pytest.mark.parametrize(
    ("user", "text", "becomes"),
    [
        ("marguerite", "/scratch/marguerite/x of marguerite", "/scratch/user-1/x of user-1"),
        ("power", "/scratch/power/x draws power", "/scratch/user-1/x draws power"),
        ("al", "/scratch/al/x al global", "/scratch/user-1/x al global"),
        ("power", "/sys/devices/power/control", "/sys/devices/power/control"),
    ],
)
def test_a_user_of_a_home_path_goes_from_other_places(user: str, text: str, becomes: str) -> None:
    redactor = Redactor()
    redactor.learn(f"/home/{user}/run.py")
    assert redactor.text(text) == becomes


def test_a_dump_of_an_environment_loses_lower_case_names_too() -> None:
    dump = "HOME=/root\nSHELL=/bin/bash\nnpm_config_x=pillow\nLANG=C\nTERM=dumb\nNCCL_DEBUG=INFO"
    text = Redactor().text(dump)
    assert "pillow" not in text and "bash" not in text and "NCCL_DEBUG=INFO" in text


def test_our_own_sentences_keep_their_numbers() -> None:
    sentence = "set MASTER_PORT=29500 and TP=8, not HF_TOKEN=12345."
    assert Redactor().text(sentence, prose=True) == "set MASTER_PORT=29500 and TP=8, not HF_TOKEN=[redacted]."


# -- whole cases -------------------------------------------------------------------------------------------

SECRETS = {
    "host": "krypton7",
    "ipv4": "10.77.3.9",
    "mac": "0c:42:a1:5e:6f:01",
    "uuid": "3f1f2d4c-9a10-4ad0-8d7e-5b2c9f0e7a11",
    "serial": "1653022044917",
    "user": "marguerite",
    "mail": "marguerite@vineyard.example",
    "token": "hf_QkZxWvUtSrPqMnLk",
    "plain": "velvet-underpass",
}


def secret_case() -> Case:
    """A case that has each secret in several places."""
    s = SECRETS
    return Case(
        machine=Machine(
            hostname=s["host"],
            gpus=(
                Gpu(
                    index=0,
                    name="NVIDIA H200",
                    uuid=f"GPU-{s['uuid']}",
                    serial=s["serial"],
                    driver="580.159.04",
                ),
            ),
            environment={"HF_TOKEN": s["token"], "MY_PLACE": s["plain"], "NCCL_DEBUG": "INFO"},
            software=Software(cudnn="9.10.2.21", packages=(Package(name="x", version="10.9.0.58"),)),
            facts={
                "gpus[0].serial": Fact(
                    key="gpus[0].serial", value=int(s["serial"]), source="NVML", raw=s["serial"]
                ),
                "environment[MY_PLACE]": Fact(
                    key="environment[MY_PLACE]", value=s["plain"], raw=f"MY_PLACE={s['plain']}"
                ),
                "software.cudnn": Fact(key="software.cudnn", value="9.10.2.21", raw="9.10.2.21"),
                "hostname": Fact(
                    key="hostname", value=s["host"], source="/proc/sys/kernel/hostname", raw=s["host"]
                ),
            },
            gaps={"nics": f"denied for {s['user']} at /home/{s['user']}/x"},
        ),
        ranks=(
            RankTrace(
                rank=0,
                source=f"/home/{s['user']}/{s['host']}_12.1733000000000.pt.trace.json",
                kernels=(
                    KernelRow(
                        name="ampere_sgemm_128x64_tn", kind="compute", count=3, total_ns=7, median_ns=2
                    ),
                ),
                ops=({"name": "aten::mm", "env": {"PLACE": s["plain"], "HF_TOKEN": s["token"]}},),
            ),
        ),
        verdicts=(
            Verdict(
                code="T110",
                name="data-wait",
                verdict="finding",
                message=f"the loader of {s['user']}@{s['host']} waits",
                where={"rank": 0, "host": s["host"], "gpu": f"GPU-{s['uuid']}"},
                evidence=(
                    Evidence(source="env", text=f"MY_PLACE={s['plain']}\nHF_TOKEN={s['token']}"),
                    Evidence(source="ip", text=f"{s['ipv4']} {s['mac']} {s['mail']}"),
                ),
                remedy="num_workers=8",
            ),
        ),
        workload={"environ": {"anything": s["plain"]}, "batch": 8},
    )


def test_no_secret_survives_in_the_bytes_of_a_case() -> None:
    public = redact_case(secret_case())
    data = msgspec.json.encode(public).decode()
    assert [name for name, secret in SECRETS.items() if secret in data] == []


def test_what_is_no_secret_survives_in_a_case() -> None:
    public = redact_case(secret_case())
    assert public.machine is not None
    assert public.redacted
    assert public.machine.gpus[0].name == "NVIDIA H200"
    assert public.machine.gpus[0].driver == "580.159.04"
    assert public.machine.software.cudnn == "9.10.2.21"
    assert public.machine.facts["software.cudnn"].value == "9.10.2.21"
    assert public.machine.environment["NCCL_DEBUG"] == "INFO"
    assert public.ranks[0].kernels == secret_case().ranks[0].kernels
    assert public.verdicts[0].remedy == "num_workers=8"
    assert public.verdicts[0].where["gpu"] == public.machine.gpus[0].uuid == "GPU-uuid-1"
    assert public.machine.hostname == public.verdicts[0].where["host"] == "host-1"
    assert public.workload == {"environ": {"anything": "[redacted]"}, "batch": 8}


@given(structs_of(Case))
@settings(max_examples=25)
def test_any_redacted_case_is_a_case_and_stays_as_it_is(case: Case) -> None:
    public = redact_case(replace(case, schema=1, redacted=False))
    assert decode_case(encode_case(public)) == public
    assert redact_case(public) is public
    assert redact_case(replace(public, redacted=False)) == public


PLACES = st.sampled_from(
    ["/x/{}", "seen {} twice {}", "{}", "a={}", "[{}]", "({}),", "<td>{}</td>", '{{"k": "{}"}}']
)
MADE_SECRETS = st.one_of(
    st.ip_addresses(v=4, network="10.0.0.0/8").map(str),
    st.ip_addresses(v=6, network="2001:db8::/32").map(str),
    st.uuids().map(lambda u: f"GPU-{u}"),
    st.uuids().map(str),
    st.from_regex(r"hf_[A-Za-z0-9]{20,30}", fullmatch=True),
    st.from_regex(r"AKIA[A-Z0-9]{16}", fullmatch=True),
    st.from_regex(r"[a-z]{3,8}\.[a-z]{3,8}@[a-z]{3,9}\.(com|org)", fullmatch=True),
)


@given(place=PLACES, secret=MADE_SECRETS)
@settings(max_examples=200)
def test_made_up_secrets_go_wherever_they_stand(place: str, secret: str) -> None:
    assert secret not in Redactor().text(place.replace("{}", secret))


def test_a_fact_about_the_environment_is_no_environment() -> None:
    """A host without a recorded environment has a fact of the key `environment`: it keeps its fields."""
    facts = {
        "environment": Fact(key="environment", status="missing", source="environ", detail="not recorded"),
        "environment[A_TOKEN]": Fact(key="environment[A_TOKEN]", value="hunter2secret", raw="hunter2secret"),
    }
    public = redact_case(Case(machine=Machine(environment={"A_TOKEN": "hunter2secret"}, facts=facts)))
    assert public.machine is not None
    assert public.machine.facts["environment"] == facts["environment"]
    assert b"hunter2" not in gzip.decompress(encode_case(public))


def test_a_serial_number_is_hidden_where_a_sentence_tells_it() -> None:
    serial = "1653924093140"
    tree = {
        "machine": {"gpus": [{"name": "NVIDIA H200", "serial": serial}], "facts": {}},
        "verdicts": [{"evidence": [{"at": "gpus", "text": f"name NVIDIA H200, serial {serial}, 141 GB"}]}],
    }
    hidden = redact_tree(tree)
    assert serial not in str(hidden)
    assert hidden["verdicts"][0]["evidence"][0]["text"] == "name NVIDIA H200, serial serial-1, 141 GB"


def test_what_a_ceiling_depended_on_stays() -> None:
    """Its `environment` holds versions and settings that we wrote; other mappings of that name hold variables."""
    ceiling = {
        "hardware_key": "abc",
        "environment": {"blas": "openblas 0.3.31.188.0", "capability": "AVX512"},
    }
    assert redact_tree(ceiling) == ceiling
    assert redact_tree({"environment": {"capability": "AVX512"}}) != {"environment": {"capability": "AVX512"}}
