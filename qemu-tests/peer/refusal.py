# SPDX-License-Identifier: GPL-2.0
"""What rows about mistakes share: to make one, and to look at all of the answer."""

import wire

U32, U64 = 1 << 32, 1 << 64


def carries(term, ulpdu, read=False):
    """The Terminate has the headers of RFC 5040 figure 10: length and DDP header of the segment, and of a Read Request
    that failed a protection check the RDMAP header; or with None for the segment, nothing."""
    assert not term.reserved, f"reserved bits are set: {term}"
    assert not term.rest, f"{len(term.rest)} bytes too many: {term}"
    if ulpdu is None:
        assert not (term.m or term.d or term.r), f"headers without a segment: {term}"
        return
    segment = wire.Segment(ulpdu)
    assert term.m and term.length == len(ulpdu), f"length of the segment is {len(ulpdu)}: {term}"
    assert term.d and term.ddp == segment.header, f"header of the segment is {segment.header.hex()}: {term}"
    assert term.r == read, f"Read Request header {'missing' if read else 'not wanted'}: {term}"
    if read:
        want, got = wire.ReadRequest(segment.data), term.read
        assert vars(want) == vars(got), f"{got}, not {want}"


def refused(conn, code, *ulpdus, about=-1, read=False, **wrong):
    """Sends that; the peer gets a Terminate with that code about the ULPDU with that index, or about none."""
    conn.send(*ulpdus, **wrong)
    term = conn.terminate(code)
    carries(term, None if about is None else ulpdus[about], read)
    return term


def ended(conn):
    """The program is told that the connection is gone."""
    conn.event("DISCONNECTED")


def flushed(conn, *wr_ids):
    """Those work requests complete in that order with a flush error, and no other does."""
    for wr_id in wr_ids:
        conn.wc("WR_FLUSH_ERR", wr_id)
