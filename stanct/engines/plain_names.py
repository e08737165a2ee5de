"""The user's own names in the intermediate code that the embedded engine runs.

stanc puts a prefix before names that C++ keeps for itself, such as `new` and `class`. The embedded
engine makes no C++ of them, but it would give draws under the longer names. Its inverse transforms
would look for one name and be given the other.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct

# The code is these letters and base64. In it, a text is its length, of four bytes, and its bytes.
_HEAD = "STANLI2:"
_LENGTH = struct.Struct("<I")
# No identifier of Stan begins with an underscore.
_PREFIX = b"_stan_"
_TEXT = re.compile(rb"(?=_stan_|\(Fn)")
_NAME = re.compile(rb"_stan_(\w+)")
_ATOM = re.compile(rb"(?<![\w\"])_stan_(?=\w)")


def plainly_named(mir: str) -> str:
    """Return intermediate code in which all names are those of the program."""
    if not mir.startswith(_HEAD):
        return mir
    try:
        code = base64.b64decode(mir.removeprefix(_HEAD), validate=True)
    except binascii.Error:
        return mir
    if _PREFIX not in code:
        return mir
    parts, done = list[bytes](), 0
    for found in _TEXT.finditer(code):
        start = found.start()
        first = start - _LENGTH.size
        if first < done:
            continue
        (length,) = _LENGTH.unpack_from(code, first)
        text = code[start : start + length]
        if len(text) < length:
            continue
        if text.startswith(_PREFIX):
            named = _NAME.fullmatch(text)
            plain = named[1] if named else text
        else:  # an expression, which tells how a parameter is read
            plain = _ATOM.sub(b"", text)
        if plain != text:
            parts += (code[done:first], _LENGTH.pack(len(plain)), plain)
            done = start + length
    return _HEAD + base64.b64encode(b"".join([*parts, code[done:]])).decode()
