"""What a sandbox says, as something that may be shown: without what a terminal obeys, and no longer than wanted."""

_SPELLED = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))},
    0x0A: "\n",
    0x09: "\t",
    0x0D: "\\r",
}
# What turns text around or hides it.
_SPELLED |= {
    code: f"\\u{code:04x}" for code in (*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x206A))
}


def safe(text: str) -> str:
    """The text with control characters spelled out; lines and tabs stay."""
    return text.translate(_SPELLED)


def in_a_line(text: str, most: int = 500) -> str:
    """The same in one line, and at most so many characters."""
    return safe(text[:most]).replace("\n", "\\n")


def middle_out(text: str, most: int) -> str:
    """The beginning and the end of what is too long: the end of a program's output says more than its middle."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
