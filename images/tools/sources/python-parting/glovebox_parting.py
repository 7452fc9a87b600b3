"""A module that has to be built before it can be installed."""


def part(name="sandbox"):
    """The goodbye for a name."""
    return f"goodbye, {name}"
