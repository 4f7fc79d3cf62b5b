# SPDX-License-Identifier: GPL-2.0
"""Shared by the rows about errors: making one, and checking the whole answer."""

import wire

U32, U64 = 1 << 32, 1 << 64


def carries(term, ulpdu, read=False):
    """The Terminate has the headers of RFC 5040 figure 10: length and DDP header of the segment, and with `read` the
    RDMAP header of a Read Request that failed a protection check. With None for the segment it has no headers."""
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
    """Sends the ULPDUs. The peer gets a Terminate with that code about the ULPDU with index `about`, or about none."""
    conn.send(*ulpdus, **wrong)
    term = conn.terminate(code)
    carries(term, None if about is None else ulpdus[about], read)
    return term


def revoked_midway(conn, mr, request, revoke=None):
    """The region is deregistered (or what `revoke` does is done) while the request is answered. The answer ends there,
    and the Terminate says where."""
    asked = wire.ReadRequest(wire.Segment(request).data)
    conn.send(request)
    first = conn.segment()
    assert (first.stag, first.to) == (asked.sink_stag, asked.sink_to) and not first.last, first
    at = len(first.data)
    # TCP takes no more from the device.
    (revoke or mr.dereg)()
    # Everything is read first, and checked afterwards. The device gives its Terminate a second to
    # arrive, which a busy machine needs for the CRCs of the data before it.
    conn.until_end()
    while (segment := conn.segment()).opcode == wire.READ_RESPONSE:
        assert segment.to == asked.sink_to + at and not segment.last, segment
        assert segment.data == bytes([mr.fill]) * len(segment.data)
        at += len(segment.data)
    term = wire.Terminate(segment.data)
    assert term.code == (0, 1, 0) and term.m and term.d and term.r, term
    header = wire.Segment(term.ddp)
    assert (header.qn, header.msn, header.mo, header.opcode) == (1, 1, 0, wire.READ_REQUEST), header
    read = term.read
    assert (read.sink_stag, read.sink_to, read.size) == (asked.sink_stag, asked.sink_to + at, asked.size - at), \
        f"{term} after {at}"
    assert (read.src_stag, read.src_to) == (asked.src_stag, asked.src_to + at), f"{term} after {at}"
    assert conn.segment() is None


def ended(conn):
    """The program gets the event that the connection is gone."""
    conn.event("DISCONNECTED")


def flushed(conn, *wr_ids):
    """Those work requests complete in that order with a flush error, and no other does."""
    for wr_id in wr_ids:
        conn.wc("WR_FLUSH_ERR", wr_id)
