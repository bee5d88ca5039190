"""What is written as properties is read back, and any text is read or refused by name."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config import parse_properties
from odradek.errors import ConfigError

# No surrogates: they do not exist on their own.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def escape(plain: str, *, is_key: bool) -> str:
    written = []
    for index, character in enumerate(plain):
        if character in "\\=:#!" or (character == " " and (is_key or index == 0)):
            written.append("\\" + character)
        elif character in "\t\n\r\f":
            written.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[character])
        elif ord(character) > 0xFFFF:
            pair = character.encode("utf-16-be").hex()
            written.append(f"\\u{pair[:4]}\\u{pair[4:]}")
        elif ord(character) > 126:
            written.append(f"\\u{ord(character):04x}")
        else:
            written.append(character)
    return "".join(written)


@settings(deadline=None, max_examples=200)
@given(properties=st.dictionaries(text, text, max_size=6), separator=st.sampled_from("=: "))
def test_round_trip(properties: dict[str, str], separator: str) -> None:
    written = "".join(
        f"{escape(key, is_key=True)} {separator}\\\n   {escape(value, is_key=False)}\n# comment\n"
        for key, value in properties.items()
    )
    if separator == " ":
        # A blank as separator cannot follow an empty key.
        properties = {key: value for key, value in properties.items() if key}
        written = "".join(
            f"{escape(key, is_key=True)} {escape(value, is_key=False)}\n"
            for key, value in properties.items()
        )
    assert parse_properties(written) == properties


@settings(deadline=None, max_examples=200)
@given(st.text(st.sampled_from("ab=: \\\n\r\tu01#!é"), max_size=60))
def test_any_text_is_read_or_refused(anything: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_properties(anything)
