"""The slow, obvious replay: what the source's tables hold at a position. Everything else is compared with this.

An event is (table, key, position, row): the row that the key has from that position on, or None from where it is
deleted. Events come in any order and any number of times. It imports nothing of Penstock, on purpose.
"""

from __future__ import annotations


def replay(events, until):
    """Return {table: {key: (position, row)}} as of `until`, inclusive; None is before everything.

    Two different rows of one key at one position contradict each other: no source makes them.
    """
    tables = {table: {} for table, _, _, _ in events}
    for table, key, position, row in sorted(events, key=lambda event: event[2]):
        if until is None or position > until:
            continue
        rows = tables[table]
        held_at, held = rows.get(key, (None, None))
        if held_at == position and held != row:
            raise AssertionError(f"{table} {key} is both {held} and {row} at {position}")
        rows[key] = (position, row)
    return {table: {key: held for key, held in rows.items() if held[1] is not None} for table, rows in tables.items()}
