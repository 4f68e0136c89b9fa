"""The one base of all nouns."""

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen, keyword-only value. Two are equal when their fields are; change one with `replace`.

    Subclasses repeat `frozen=True, kw_only=True`: type checkers do not inherit them."""


replace = msgspec.structs.replace
