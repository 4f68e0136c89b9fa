"""Where a user's own files are kept, of an environment: no file is looked at."""

from collections.abc import Mapping
from pathlib import Path

OFF = ("0", "off", "no")


def user_folder(
    environ: Mapping[str, str],
    platform: str,
    *,
    switch: str,
    variable: str,
    home: str,
    mac_home: str,
    leaf: str,
) -> Path | None:
    """`switch` is a variable that turns it off (None) or names the folder; else it is `leaf` under `variable` (XDG_CACHE_HOME...) or,
    without that, under `home` of the user's home (`mac_home` on macOS). None too when there is no home."""
    told = environ.get(switch, "")
    if told in OFF:
        return None
    if told:
        return Path(told)
    base = environ.get(variable, "")
    if base.startswith("/"):
        return Path(base) / "wellfed" / leaf
    try:
        root = Path.home()
    except RuntimeError:
        return None
    return root / (mac_home if platform == "darwin" else home) / "wellfed" / leaf
