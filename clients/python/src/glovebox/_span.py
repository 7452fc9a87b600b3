"""Durations: seconds, a timedelta, or as the API writes them."""

import re
from datetime import timedelta

Span = str | int | float | timedelta
"""Seconds, a `timedelta`, or text such as `500ms`, `30s`, `1h30m`."""

_PART = re.compile(r"([0-9]{1,9})(ms|s|m|h)", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def seconds(span: Span) -> float:
    """How many seconds it is."""
    if isinstance(span, timedelta):
        span = span.total_seconds()
    if isinstance(span, str):
        parts = _PART.findall(span)
        if not parts or "".join(count + unit for count, unit in parts) != span:
            raise ValueError(f"{span!r} is not a duration; write it like 500ms, 30s or 1h30m")
        return float(sum(int(count) * _UNITS[unit] for count, unit in parts))
    if not 0 <= span < 1e9:
        raise ValueError(f"{span!r} is not a number of seconds that can be waited")
    return float(span)


def written(span: Span) -> str:
    """As the API writes it."""
    total = seconds(span)
    if isinstance(span, str):
        return span
    whole = int(total)
    if total == whole:
        return f"{whole}s"
    # Up, so that no time at all does not come of a little.
    milliseconds = -int(-(total - whole) * 1000 // 1)
    return f"{whole}s{milliseconds}ms" if whole else f"{milliseconds}ms"
