"""Values that mean something else than they say, or nothing."""

import pytest

from wellfed.host import host_of, look

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             62898                62898                processes
Max open files            2048                 4096                 files
Max locked memory         {} {} bytes
"""


@pytest.mark.parametrize(
    ("word", "means"),
    [
        ("unlimited", -1),
        ("18446744073708503040", -1),
        ("65536", 65536),
        ("1099511627776", 1 << 40),
        ("x", None),
    ],
)
def test_limits_that_no_machine_reaches_are_none(word: str, means: int | None) -> None:
    machine = look(host_of({"/proc/self/limits": LIMITS.format(word, word)}))
    said = machine.limits.memlock_bytes
    assert (said.soft, said.hard) == (means, means) if said else means is None


def test_an_empty_governor_is_no_governor() -> None:
    policy = "/sys/devices/system/cpu/cpufreq/policy0"
    files = {"/proc/cpuinfo": "processor\t: 0\n", f"{policy}/scaling_governor": "\n"}
    machine = look(host_of({**files, f"{policy}/scaling_driver": "intel_pstate\n"}))
    assert machine.cpu.governors is None and machine.cpu.scaling_driver == "intel_pstate"


@pytest.mark.parametrize(
    ("state", "there"), [("enabled", True), ("static", True), ("disabled", False), ("masked", False)]
)
def test_a_unit_that_udev_starts_is_there_after_a_reboot(state: str, there: bool) -> None:
    units = f"Id=nvidia-persistenced.service\nActiveState=active\nUnitFileState={state}\n\nId=packagekit.service\nActiveState=inactive\nUnitFileState=static\n"
    machine = look(host_of({"/proc/cpuinfo": "processor\t: 0\n"}, commands={"systemctl-services": units}))
    assert ("nvidia-persistenced" in machine.kernel.enabled_services) == there
    assert "packagekit" not in machine.kernel.enabled_services
