"""Files that tell of a machine without being one: a reader per form, chosen by what the file holds. Each has a function
that takes the content and gives facts; what a form does not tell stays a gap with that reason.

Nothing is imported here at the top: looking at a live machine must not pay for it."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wellfed.host.stated import StatedHost

_XML_STARTS = (b"<", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
"""A tag, or a byte order mark before one. No archive starts so."""


def open_form(spec: str) -> "StatedHost | None":
    """The machine of an XML file; None when the file is no XML, is a folder, or is not there: others know more then.
    Raises WellfedError for an XML that is damaged, dangerous or of no known kind."""
    from wellfed.host.live import read_regular

    try:
        head, _ = read_regular(spec, 64)
    except (OSError, ValueError):  # ValueError: a name that holds a NUL
        return None
    if not head.lstrip(b" \t\r\n").startswith(_XML_STARTS):
        return None
    from wellfed.host.forms.markup import open_xml

    return open_xml(spec)


def shown(spec: str) -> str:
    """The file's name for messages."""
    return f"`{os.fspath(spec)}`"
