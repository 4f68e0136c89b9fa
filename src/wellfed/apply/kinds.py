"""Every kind of knob there is."""

from wellfed.apply.adapters import EthtoolKind
from wellfed.apply.drivers import NvmlKind
from wellfed.apply.dropins import DropinKind
from wellfed.apply.hold import HoldKind
from wellfed.apply.knobs import FILE_KINDS, Kind
from wellfed.apply.mounts import MountKind
from wellfed.apply.services import ServiceKind

KINDS: dict[str, Kind] = {
    **FILE_KINDS,
    "service": ServiceKind(),
    "ethtool": EthtoolKind(),
    "nvml": NvmlKind(),
    "dropin": DropinKind(),
    "hold": HoldKind(),
    "mount": MountKind(),
}
"""By the name a change has for it."""
