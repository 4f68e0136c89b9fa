"""What `ethtool` says of fast interfaces, and of which it is asked."""

from typing import Any

import pytest

from wellfed.host.assemble import assemble
from wellfed.host.network import read_network
from wellfed.host.recorded import host_of
from wellfed.model.devices import Nic
from wellfed.model.machine import Machine

NET = "/sys/class/net"
# Forms as ethtool prints them (5.16), on an interface of our own making.
RINGS = """Ring parameters for ens1:
Pre-set maximums:
RX:			8192
RX Mini:		n/a
RX Jumbo:		n/a
TX:			8192
Current hardware settings:
RX:			1024
RX Mini:		n/a
RX Jumbo:		n/a
TX:			512
"""
COALESCE = """Coalesce parameters for ens1:
Adaptive RX: on  TX: off
stats-block-usecs:	n/a
rx-usecs:	8
rx-frames:	128
rx-usecs-irq:	n/a
"""
CHANNELS = """Channel parameters for ens1:
Pre-set maximums:
RX:		n/a
TX:		n/a
Other:		512
Combined:	63
Current hardware settings:
RX:		n/a
TX:		n/a
Other:		0
Combined:	16
"""
APART = (
    CHANNELS.replace("Combined:	63", "Combined:	n/a")
    .replace("Combined:	16", "Combined:	0")
    .replace("RX:		n/a", "RX:		4")
)
FEATURES = """Features for ens1:
rx-checksumming: on
tcp-segmentation-offload: on
	tx-tcp-segmentation: on
generic-receive-offload: off [requested on]
large-receive-offload: off [fixed]
tx-nocache-copy: off
"""
SETTINGS = """Settings for ens1:
|Supported ports: [ Backplane ]
|Supported link modes:   1000baseKX/Full
|                        25000baseCR/Full
|                        100000baseCR4/Full
|Supported pause frame use: Symmetric
|Advertised link modes:  400000baseCR8/Full
|Speed: 100000Mb/s
""".replace("|", "\t")
ANSWERS = {
    "ethtool@ens1": SETTINGS,
    "ethtool-rings@ens1": RINGS,
    "ethtool-coalesce@ens1": COALESCE,
    "ethtool-channels@ens1": CHANNELS,
    "ethtool-features@ens1": FEATURES,
}


def look(answers: dict[str, str], **files: Any) -> Machine:
    nic = {
        f"{NET}/ens1/device/vendor": "0x15b3",
        f"{NET}/ens1/operstate": "up",
        f"{NET}/ens1/speed": "100000",
        f"{NET}/ens1/mtu": "9000",
    }
    changed = {f"{NET}/ens1/{name.replace('__', '/')}": text for name, text in files.items()}
    return assemble(read_network(host_of(nic | changed, commands=answers)))


def test_a_fast_interface() -> None:
    (nic,) = look(ANSWERS).nics
    assert (nic.ring_rx, nic.ring_rx_max, nic.ring_tx, nic.ring_tx_max) == (1024, 8192, 512, 8192)
    assert (nic.adaptive_rx, nic.rx_usecs) == (True, 8)
    assert (nic.channels, nic.channels_max) == (16, 63)
    assert nic.speed_max_mbps == 100_000, "what is advertised is not what is supported"
    assert nic.features == {
        "generic-receive-offload": False,
        "large-receive-offload": False,
        "tcp-segmentation-offload": True,
        "tx-nocache-copy": False,
    }
    assert nic.mtu == 9000, "what ethtool says leaves the rest in place"


def test_receive_queues_count_where_a_driver_has_no_pairs() -> None:
    (nic,) = look({"ethtool-channels@ens1": APART}).nics
    assert (nic.channels, nic.channels_max) == (4, 4)


def test_a_slow_interface_is_asked_for_its_speed_only() -> None:
    (nic,) = look(ANSWERS, speed="1000").nics
    assert nic.speed_max_mbps == 100_000
    assert nic.ring_rx is None and nic.features is None


@pytest.mark.parametrize("files", [{"operstate": "down"}, {"speed": "-1"}])
def test_an_interface_that_is_down_or_virtual_is_not_asked(files: dict[str, str]) -> None:
    (nic,) = look(ANSWERS, **files).nics
    assert nic.speed_max_mbps is None


def test_without_ethtool_each_field_has_its_reason() -> None:
    found = look({})
    for field in ("ring_rx", "adaptive_rx", "channels", "features", "speed_max_mbps"):
        assert f"nics[0].{field}" in found.gaps


@pytest.mark.parametrize(
    "text", ["", "n/a", "RX: x", "Combined: -1", "Supported link modes:", "Adaptive RX: perhaps", "\0: on"]
)
def test_odd_answers_are_no_answers(text: str) -> None:
    (nic,) = look(dict.fromkeys(ANSWERS, text)).nics
    assert nic == Nic(name="ens1", state="up", speed_mbps=100_000, mtu=9000, is_physical=True)


def test_a_name_that_is_an_option_is_not_asked_about() -> None:
    files = {f"{NET}/--help/device/x": "", f"{NET}/--help/operstate": "up", f"{NET}/--help/speed": "100000"}
    found = assemble(read_network(host_of(files)))
    assert "no name that can be asked about" in found.gaps["nics[0].ring_rx"]


@pytest.mark.parametrize(
    ("enable", "said"),
    [({}, None), ({str(p): "0" for p in range(8)}, False), ({str(p): "1" if p == 3 else "0" for p in range(8)}, True)],
)  # fmt: skip
def test_ecn_is_on_when_it_is_on_for_any_priority(enable: dict[str, str], said: bool | None) -> None:
    (nic,) = look({}, **{f"ecn__roce_np__enable__{priority}": text for priority, text in enable.items()}).nics
    assert nic.ecn_np is said
    assert nic.ecn_rp is None


def test_counts_and_duplex() -> None:
    found = look({}, duplex="full", statistics__rx_packets="100", statistics__rx_missed_errors="7")
    (nic,) = found.nics
    assert (nic.duplex, nic.rx_packets, nic.drops) == ("full", 100, 7)
    assert look({}, duplex="unknown").gaps["nics[0].duplex"].startswith("missing")
