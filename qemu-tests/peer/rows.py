# SPDX-License-Identifier: GPL-2.0
"""The table of the suite. A row is a function with a decorator, in a file rows_CHAPTER.py. It gets a fresh
target.Target and asserts. Objects that it leaves open are closed afterwards."""

import re

MUST, SHOULD, OWN = "MUST", "SHOULD", "own"

ROWS = {}


class Row:
    def __init__(self, name, section, requirement, kind, deviation, params, timeout, waits, stock, test):
        self.name, self.section, self.requirement, self.kind = name, section, requirement, kind
        self.deviation, self.params, self.timeout, self.waits, self.test = deviation, params, timeout, waits, test
        self.stock = stock


def row(name, section, requirement, kind=MUST, deviation=None, params="", timeout=90, waits=False,
        stock=False):
    """`section`: such as "RFC 5044 4.3"; `requirement`: one line; `deviation`: the reason why this driver does not meet
    it, for a row that is known to fail; `params`: module parameters that the driver is loaded with; `timeout`: in
    seconds; `waits`: the row mostly waits for a time-out of the device, and runs together with others like it; `stock`:
    the program has the stock provider library."""
    def register(test):
        assert name not in ROWS, f"two rows named {name}"
        ROWS[name] = Row(name, section, requirement, kind, deviation, params, timeout, waits, stock, test)
        return test
    return register


def section_key(row_):
    """Sorts by document and section, numerically. Rows that belong to no RFC come last."""
    return row_.section == OWN, [int(n) for n in re.findall(r"\d+", row_.section)]
