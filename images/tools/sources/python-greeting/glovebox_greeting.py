"""A module small enough to be read at a glance."""


def greet(name="sandbox"):
    """The greeting for a name."""
    return f"hello, {name}"


def main():
    """What the command prints."""
    print(greet())
