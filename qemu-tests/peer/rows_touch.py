# SPDX-License-Identifier: GPL-2.0
"""One-touch regions: the end of the first message that names one invalidates it."""

import wire
from refusal import refused
from rows import OWN, row
from rows_memory import reading
from rows_zcopy import counter
from target import shown, wait_until
from verbs import LOCAL_WRITE, ONE_TOUCH, REMOTE_READ, REMOTE_WRITE

ACCESS = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | ONE_TOUCH


def spent(t, mr):
    """The region admits no message any more, on any connection, and nothing is placed."""
    before = mr.get()
    refused(t.passive(), (1, 1, 0), wire.write(mr.rkey, mr.addr, b"bad"))
    refused(t.passive(), (1, 1, 0), wire.write(mr.rkey, mr.addr, b"bad", last=False))
    refused(t.passive(), (0, 1, 0), reading(mr), read=True)
    assert mr.get() == before
    mr.intact()


def segments(mr, size, last=True, step=1400):
    """A Write of the whole region in segments, with or without its end."""
    data = bytes(i % 251 for i in range(size))
    cuts = range(0, size, step)
    return data, [wire.write(mr.rkey, mr.addr + at, data[at:at + step], last and at == cuts[-1]) for at in cuts]


@row("touch-write", OWN, "A one-touch region takes one Write, and refuses the next message: 1/1/00, 0/1/00", kind=OWN)
def touch_write(t):
    mr, conn = t.mr(64, access=ACCESS), t.passive()
    admitted, denied = counter("one_touch"), counter("one_touch_refused")
    conn.send(wire.write(mr.rkey, mr.addr + 10, b"once"))
    conn.echo()
    assert mr.get(10, 4) == b"once"
    spent(t, mr)
    # The same connection may go on.
    conn.echo()
    refused(conn, (1, 1, 0), wire.write(mr.rkey, mr.addr, b"bad"))
    assert (counter("one_touch") - admitted, counter("one_touch_refused") - denied) == (1, 4)


@row("touch-write-long", OWN, "A Write of many segments to a one-touch region is one message", kind=OWN)
def touch_write_long(t):
    mr, conn = t.mr(1 << 20, access=ACCESS), t.passive()
    data, ulpdus = segments(mr, mr.size)
    conn.send(*ulpdus)
    conn.echo()
    assert mr.get() == data
    spent(t, mr)


@row("touch-write-empty-end", OWN, "A Write whose last segment has no payload touches like any other", kind=OWN)
def touch_write_empty_end(t):
    mr, conn = t.mr(64, access=ACCESS), t.passive()
    # STag and offset of an empty segment mean nothing (RFC 5041 7.1).
    conn.send(wire.write(mr.rkey, mr.addr, b"once", last=False), wire.write(0x77, 0, b""))
    conn.echo()
    assert mr.get(0, 4) == b"once"
    spent(t, mr)


@row("touch-empty", OWN, "A message without payload touches nothing", kind=OWN)
def touch_empty(t):
    mr, conn = t.mr(64, access=ACCESS), t.passive()
    conn.send(wire.write(mr.rkey, mr.addr, b""), wire.write(mr.rkey, mr.addr, b"", last=False),
              wire.write(mr.rkey, mr.addr, b""), reading(mr, 0))
    assert conn.message()[1] == b""
    conn.send(wire.write(mr.rkey, mr.addr, b"once"))
    conn.echo()
    assert mr.get(0, 4) == b"once"
    spent(t, mr)


@row("touch-read", OWN, "A one-touch region answers one Read, and refuses the next message", kind=OWN)
def touch_read(t):
    for size in 8, 1 << 20:
        mr, conn = t.mr(size, access=ACCESS, fill=5), t.passive()
        conn.send(reading(mr, size))
        assert conn.message()[1] == bytes([5]) * size
        spent(t, mr)
        refused(conn, (0, 1, 0), reading(mr, msn=2), read=True)


@row("touch-read-ahead", OWN, "Of two Reads sent at once a one-touch region answers the first", kind=OWN)
def touch_read_ahead(t):
    mr, conn = t.mr(64, access=ACCESS, fill=5), t.passive()
    conn.send(reading(mr), reading(mr, msn=2))
    conn.until_end()
    segment = conn.segment()
    while segment.opcode == wire.READ_RESPONSE:
        assert segment.data == bytes([5]) * 8
        segment = conn.segment()
    assert wire.Terminate(segment.data).code == (0, 1, 0)
    spent(t, mr)


@row("touch-race", OWN, "Of two connections that write to a one-touch region, one ends its message", kind=OWN)
def touch_race(t):
    mr, first, second = t.mr(64, access=ACCESS), t.passive(), t.passive()
    first.send(wire.write(mr.rkey, mr.addr, b"1", last=False))
    wait_until(lambda: mr.get(0, 1) == b"1", "a part that is not the last is placed")
    second.send(wire.write(mr.rkey, mr.addr + 1, b"22"))
    second.echo()
    refused(first, (1, 1, 0), wire.write(mr.rkey, mr.addr + 3, b"3"))
    assert mr.get(0, 4) == b"122\0"
    spent(t, mr)


@row("touch-cut", OWN, "A connection that ends within the last segment spends a one-touch region", kind=OWN, params="crc=0")
def touch_cut(t):
    for cut in "reset", "fin":
        mr, conn = t.mr(1400, access=ACCESS), t.passive(wire.ENHANCED)
        fpdu = conn.raw.tx.fpdu(wire.write(mr.rkey, mr.addr, bytes([7]) * 1400))
        conn.push(fpdu[:700])
        wait_until(lambda mr=mr: mr.get(600, 1) == b"\7", "the first half is placed")
        # Another message does not get in meanwhile.
        refused(t.passive(wire.ENHANCED), (1, 1, 0), wire.write(mr.rkey, mr.addr, b"bad"))
        getattr(conn, cut)()
        conn.event("DISCONNECTED")
        assert shown(mr.rkey)["valid"] == "0"
        for last in True, False:
            refused(t.passive(wire.ENHANCED), (1, 1, 0), wire.write(mr.rkey, mr.addr, b"bad", last=last))
        assert mr.get(0, 1) == b"\7"


@row("touch-pieces", OWN, "The last segment of the one Write to a one-touch region may arrive in pieces", kind=OWN, params="crc=0")
def touch_pieces(t):
    mr, conn = t.mr(1400, access=ACCESS), t.passive(wire.ENHANCED)
    data = bytes(i % 251 for i in range(1400))
    fpdu = conn.raw.tx.fpdu(wire.write(mr.rkey, mr.addr, data))
    conn.push(fpdu[:700])
    wait_until(lambda: mr.get(600, 1) == data[600:601], "the first half is placed")
    assert shown(mr.rkey)["valid"] == "1"
    conn.push(fpdu[700:])
    conn.echo()
    assert mr.get() == data
    spent(t, mr)


@row("touch-cut-early", OWN, "A connection that ends before the last segment leaves a one-touch region", kind=OWN)
def touch_cut_early(t):
    mr, conn = t.mr(4200, access=ACCESS), t.passive()
    _, ulpdus = segments(mr, mr.size, last=False)
    conn.send(*ulpdus)
    conn.reset()
    conn.event("DISCONNECTED")
    conn = t.passive()
    conn.send(wire.write(mr.rkey, mr.addr, b"once"))
    conn.echo()
    assert mr.get(0, 4) == b"once"
    spent(t, mr)


@row("touch-own-use", OWN, "Work requests of the owner do not touch a one-touch region", kind=OWN)
def touch_own_use(t):
    mr, conn = t.mr(64, access=ACCESS, fill=5), t.active()
    for n in 1, 2:
        conn.post_send(mr, 8)
        assert conn.message()[1] == mr.get(0, 8)
        conn.wc()
        conn.post_recv(mr, 8, wr_id=1)
        conn.send(wire.send(n, b"received"))
        conn.wc(wr_id=1)
        assert mr.get(0, 8) == b"received"
    conn = t.passive()
    conn.send(wire.write(mr.rkey, mr.addr, b"once"))
    conn.echo()
    spent(t, mr)


@row("touch-denied", OWN, "A refused access does not touch a one-touch region", kind=OWN)
def touch_denied(t):
    mr = t.mr(64, access=ACCESS)
    refused(t.passive(), (1, 1, 1), wire.write(mr.rkey, mr.addr + 60, b"too long"))
    refused(t.passive(), (1, 1, 2), wire.write(t.mr(64, access=ACCESS, pd=t.make_pd()).rkey, mr.addr, b"bad"))
    refused(t.passive(), (1, 1, 0), wire.write(mr.rkey ^ 1, mr.addr, b"bad"))
    refused(t.passive(), (0, 1, 1), reading(mr, 65), read=True)
    conn = t.passive()
    conn.send(wire.write(mr.rkey, mr.addr, b"once"))
    conn.echo()
    assert mr.get(0, 4) == b"once"


@row("touch-many", OWN, "A region that is not one-touch takes any number of Writes", kind=OWN)
def touch_many(t):
    mr, conn = t.mr(64), t.passive()
    for n in range(100):
        conn.send(wire.write(mr.rkey, mr.addr, bytes([n])))
    conn.echo()
    assert mr.get(0, 1) == bytes([99])
