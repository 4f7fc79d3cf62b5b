# SPDX-License-Identifier: GPL-2.0
"""RFC 5041: Direct Data Placement."""

import select
import socket

import verbs
import wire
from refusal import U32, ended, flushed, refused
from rows import OWN, SHOULD, row
from target import PATIENCE

MSN = (0, 2, 3, 1 + (1 << 31), U32 - 1)  # all but the first one, 1


def pattern(size, seed=1):
    return bytes((seed + 7 * i + (i >> 8)) & 0xff for i in range(size))


def cut(data, *sizes):
    """Parts of those sizes and the rest: (offset, part, whether it is the last)."""
    at = 0
    for size in sizes:
        yield at, data[at:at + size], False
        at += size
    yield at, data[at:], True


def sends(msn, data, *sizes, **more):
    return [wire.send(msn, part, mo=at, last=last, **more) for at, part, last in cut(data, *sizes)]


def writes(mr, data, *sizes, offset=0):
    return [wire.write(mr.rkey, mr.addr + offset + at, part, last) for at, part, last in cut(data, *sizes)]


@row("ddp-reserved-bits", "RFC 5041 4.1", "Reserved bits of the control field are not checked on receive")
def reserved_bits(t):
    conn, mr, sink = t.passive(), t.mr(64), t.mr(64)
    for bit in range(4):
        data = pattern(16, bit)
        conn.post_recv(mr, wr_id=bit)
        conn.send(wire.write(sink.rkey, sink.addr + 16 * bit, data, ddp_rsvd=1 << bit),
                  wire.send(bit + 1, data, ddp_rsvd=1 << bit))
        conn.wc(wr_id=bit)
        assert mr.get(0, 16) == data == sink.get(16 * bit, 16)


@row("ddp-version-untagged", "RFC 5041 4.1", "An untagged segment with another DDP version is an error: 1/2/06")
def version_untagged(t):
    mr = t.mr(64)
    for dv in (0, 2, 3):
        conn = t.passive()
        conn.post_recv(mr, wr_id=dv)
        refused(conn, (1, 2, 6), wire.send(1, b"version", dv=dv))
        flushed(conn, dv)
        mr.untouched()


@row("ddp-version-tagged", "RFC 5041 4.1", "A tagged segment with another DDP version is an error: 1/1/04")
def version_tagged(t):
    mr = t.mr(64)
    for dv in (0, 2, 3):
        refused(t.passive(), (1, 1, 4), wire.write(mr.rkey, mr.addr, b"version", dv=dv))
        mr.untouched()


@row("ddp-last-delivers", "RFC 5041 5.4", "A message is delivered if and only if its last segment had the Last flag")
def last_delivers(t):
    conn, mr, data = t.passive(), t.mr(3000), pattern(2500)
    conn.post_recv(mr, wr_id=1)
    parts = sends(1, data, 1000, 1, 0, 499)
    for part in parts[:-1]:
        conn.send(part)
    conn.id.cq.none()
    conn.send(parts[-1])
    wc = conn.wc(wr_id=1)
    assert wc.byte_len == len(data) and mr.get(0, len(data)) == data, wc


@row("ddp-scatter", "RFC 5041 5.2", "All payload of all segments is placed into the buffer, however it is cut")
def scatter(t):
    conn, mr, data = t.passive(), t.mr(4000), pattern(1234)
    for msn, sizes in enumerate(((), (1,), (1233,), (1,) * 9, (3, 500, 700), (617,)), 1):
        # Three elements in another order, with gaps between them.
        conn.post_recv(sges=[(mr.addr + 2000, 7, mr.lkey), (mr.addr + 3, 1000, mr.lkey), (0, 0, 0),
                             (mr.addr + 3000, 500, mr.lkey)], wr_id=msn)
        conn.send(*sends(msn, data, *sizes))
        assert conn.wc(wr_id=msn).byte_len == len(data)
        assert mr.get(2000, 7) + mr.get(3, 1000) + mr.get(3000, 227) == data
        assert not any(mr.get(0, 3) + mr.get(1003, 997) + mr.get(2007, 993) + mr.get(3227)), "bytes beside the elements"
        mr.put(bytes(4000))
    mr.intact()


@row("ddp-send-headers", "RFC 5041 4.3",
     "Untagged segments sent: QN, MSN from 1 and up, MO the offset, Last only on the last")
def send_headers(t):
    conn, mr = t.active(), t.mr(9000)
    mr.put(pattern(9000))
    sizes = (5000, 0, 1, 9000, 1460)
    for wr_id, size in enumerate(sizes):
        conn.post_send(mr, size, wr_id=wr_id)
    for msn, size in enumerate(sizes, 1):
        at = 0
        while True:
            segment = conn.segment()
            assert (segment.tagged, segment.dv, segment.rv, segment.opcode) == (False, 1, 1, wire.SEND), segment
            assert (segment.ddp_rsvd, segment.rdmap_rsvd, segment.inv) == (0, 0, 0), segment
            assert (segment.qn, segment.msn, segment.mo) == (0, msn, at), segment
            assert segment.data == mr.get(at, len(segment.data)), "other data"
            at += len(segment.data)
            assert segment.last == (at == size), segment
            if segment.last:
                break
    for wr_id in range(len(sizes)):
        conn.wc(wr_id=wr_id)


@row("ddp-write-headers", "RFC 5041 4.2",
     "Tagged segments sent: one STag, TO rises by the payload, Last only on the last")
def write_headers(t):
    conn, mr = t.active(), t.mr(9000)
    mr.put(pattern(9000))
    for wr_id, (size, to) in enumerate(((5000, 0x1000), (1, 7), (9000, (1 << 64) - 9001))):
        conn.post_write(mr, 0x1234567 + wr_id, to, size, wr_id=wr_id)
        at = 0
        while True:
            segment = conn.segment()
            assert (segment.tagged, segment.dv, segment.rv, segment.opcode) == (True, 1, 1, wire.WRITE), segment
            assert (segment.ddp_rsvd, segment.rdmap_rsvd) == (0, 0), segment
            assert (segment.stag, segment.to) == (0x1234567 + wr_id, to + at), segment
            assert segment.data == mr.get(at, len(segment.data)), "other data"
            at += len(segment.data)
            assert segment.last == (at == size), segment
            if segment.last:
                break
        conn.wc(wr_id=wr_id)


@row("ddp-mulpdu", "RFC 5041 5.2", "No segment is larger than the MULPDU that MPA gives: an FPDU fits a TCP segment")
def mulpdu(t):
    conn, mr = t.active(), t.mr(50000)
    room = conn.raw.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    assert room > 500
    conn.post_send(mr)
    conn.post_write(mr, 1, 0)
    last = False
    for _ in range(2):
        while not last:
            segment = conn.segment()
            assert -(-(len(segment.ulpdu) + 2) // 4) * 4 + 4 <= room, f"{segment} with an MSS of {room}"
            last = segment.last
        last = False


@row("ddp-zero-length-out", "RFC 5041 5.2", "A message without payload is sent as exactly one segment")
def zero_length_out(t):
    conn = t.active()
    conn.post_send(wr_id=1)
    conn.post_write(None, 0x77, 0x88, wr_id=2)
    conn.post_send(wr_id=3, flags=verbs.SIGNALED | verbs.INLINE)
    for wr_id, opcode in (1, wire.SEND), (2, wire.WRITE), (3, wire.SEND):
        segment = conn.segment()
        assert segment.opcode == opcode and segment.last and not segment.data, segment
        conn.wc(wr_id=wr_id)


@row("ddp-zero-length-write", "RFC 5041 5.2", "STag and TO of a tagged message without payload are not checked")
def zero_length_write(t):
    mr, gone = t.mr(64), t.mr(64)
    gone.dereg()
    foreign, closed = t.mr(64, pd=t.make_pd()), t.mr(64, access=verbs.LOCAL_WRITE)
    conn = t.passive()
    for stag in (0, 1, U32 - 1, gone.rkey, mr.rkey ^ 1, foreign.rkey, closed.rkey, mr.rkey):
        for to in (0, mr.addr, mr.addr + 65, (1 << 64) - 1):
            conn.send(wire.write(stag, to))
    conn.echo()
    for untouched in mr, foreign, closed:
        untouched.untouched()


@row("ddp-zero-length-send", "RFC 5041 5.2", "An untagged message without payload is delivered, with length 0")
def zero_length_send(t):
    conn, mr = t.passive(), t.mr(64)
    conn.post_recv(mr, wr_id=1)
    conn.post_recv(sges=[(0, 0, 0)], wr_id=2)  # without a buffer
    conn.send(wire.send(1), wire.send(2))
    for wr_id in 1, 2:
        assert conn.wc(wr_id=wr_id).byte_len == 0
    mr.untouched()
    conn.msn = 3
    conn.echo()


@row("ddp-invalid-qn", "RFC 5041 7.1", "A queue number that is not valid for the stream is an error: 1/2/01")
def invalid_qn(t):
    mr = t.mr(64)
    for qn in (3, 4, 0x80, 0x100, 0x10000, 1 << 31, U32 - 1):
        conn = t.passive()
        conn.post_recv(mr, wr_id=1)
        refused(conn, (1, 2, 1), wire.send(1, b"queue", qn=qn))
        flushed(conn, 1)
        mr.untouched()


@row("ddp-no-buffer", "RFC 5041 7.1", "A message without a buffer is an error: 1/2/02")
def no_buffer(t):
    mr = t.mr(64)
    conn = t.passive()
    conn.post_recv(mr, wr_id=1)
    conn.send(wire.send(1, b"one"))
    conn.wc(wr_id=1)
    refused(conn, (1, 2, 2), wire.send(2, b"too many"))
    ended(conn)
    conn.id.cq.none()
    assert mr.get(0, 8) == b"one\0\0\0\0\0"
    # A message without payload consumes a buffer, too.
    refused(t.passive(), (1, 2, 2), wire.send(1))


@row("ddp-no-buffer-srq", "RFC 5041 7.1", "A message that finds an empty shared queue is an error, for its own stream only")
def no_buffer_srq(t):
    srq, mr = t.make_srq(), t.mr(64)
    first, second = t.passive(srq=srq), t.passive(srq=srq)
    refused(first, (1, 2, 2), wire.send(1, b"nothing here"))
    second.post_recv(mr, wr_id=2)
    second.send(wire.send(1, b"now"))
    assert second.wc(wr_id=2).byte_len == 3 and mr.get(0, 3) == b"now"


def late_buffer(t):
    mr, conn = t.mr(1 << 16), t.passive()
    data = pattern(25000)
    # What follows fills the socket of the device, which takes none of it.
    stream = b"".join(conn.raw.tx.fpdu(wire.send(msn, data if msn != 1 else b"")) for msn in range(1, 400))
    conn.raw.sock.setblocking(False)
    sent = 0
    while select.select([], [conn.raw.sock], [], 0.1)[1]:
        sent += conn.raw.sock.send(stream[sent:])
    assert sent < len(stream), "the window does not close"
    conn.id.cq.none()
    for wr_id, length in (1, 0), (2, len(data)):
        conn.post_recv(mr, len(data), wr_id=wr_id)
        assert conn.wc(wr_id=wr_id).byte_len == length
    assert mr.get(0, len(data)) == data
    # The third one finds no buffer in time.
    conn.raw.sock.settimeout(PATIENCE)
    conn.terminate((1, 2, 2))


row("ddp-late-buffer", "RFC 5041 7.1", "A message waits for its buffer, for a bounded time, and the window closes meanwhile",
    OWN, params="recv_wait_ms=3000")(late_buffer)
row("ddp-late-buffer-no-crc", "RFC 5041 7.1", "The same without CRC", OWN, params="recv_wait_ms=3000 crc=0")(late_buffer)


@row("ddp-msn-range", "RFC 5041 7.1", "An MSN that is not the next one of its queue is an error: 1/2/03")
def msn_range(t):
    mr = t.mr(64)
    for msn in MSN:
        conn = t.passive()
        for wr_id in 1, 2, 3:
            conn.post_recv(mr, wr_id=wr_id)
        refused(conn, (1, 2, 3), wire.send(msn, b"number"))
        flushed(conn, 1, 2, 3)
        mr.untouched()
        assert t.async_event() == "QP_REQ_ERR"


@row("ddp-msn-repeated", "RFC 5041 5.3", "A message is delivered at most once: an MSN that came before is an error")
def msn_repeated(t):
    mr = t.mr(64)
    for count, again in (1, 1), (3, 3), (3, 1):
        conn = t.passive()
        for wr_id in range(1, count + 2):
            conn.post_recv(mr, wr_id=wr_id)
        conn.send(*[wire.send(msn, b"number") for msn in range(1, count + 1)])
        refused(conn, (1, 2, 3), wire.send(again, b"NUMBER"))
        for wr_id in range(1, count + 1):
            conn.wc(wr_id=wr_id)
        flushed(conn, count + 1)
        assert b"NUMBER" not in mr.get()


@row("ddp-msn-within", "RFC 5041 4.3", "All segments of a message have the same MSN")
def msn_within(t):
    mr = t.mr(64)
    for msn in MSN:
        conn = t.passive()
        conn.post_recv(mr, wr_id=1)
        conn.post_recv(mr, wr_id=2)
        refused(conn, (1, 2, 3), wire.send(1, b"half", last=False), wire.send(msn, b"other", mo=4))
        flushed(conn, 1, 2)
        assert b"other" not in mr.get()


@row("ddp-invalid-mo", "RFC 5041 7.1",
     "An offset outside the buffer, or beyond the message so far, is an error: 1/2/04")
def invalid_mo(t):
    mr = t.mr(64)
    for offset in (1, 60, 64, 65, 1 << 16, 1 << 31, U32 - 8, U32 - 1):
        conn = t.passive()
        conn.post_recv(mr, wr_id=1)
        refused(conn, (1, 2, 4), wire.send(1, b"off set", mo=offset))
        flushed(conn, 1)
        mr.untouched()
        conn = t.passive()
        conn.post_recv(mr, wr_id=1)
        refused(conn, (1, 2, 4), wire.send(1, bytes(8), last=False), wire.send(1, b"off set", mo=8 + offset))
        flushed(conn, 1)
        mr.untouched()


@row("ddp-untagged-any-order", "RFC 5041 5.2",
     "Valid segments of an untagged message are placed in any order",
     deviation="only by rising MO, the order in which senders SHOULD send (5.3) and TCP delivers; else 1/2/04")
def untagged_any_order(t):
    conn, mr = t.passive(), t.mr(64)
    conn.post_recv(mr)
    conn.send(wire.send(1, b"second", mo=5, last=False), wire.send(1, b"first", last=False), wire.send(1, mo=11))
    conn.wc()
    assert mr.get(0, 11) == b"firstsecond"


@row("ddp-tagged-any-order", "RFC 5041 5.2",
     "Valid segments of a tagged message are placed in any order")
def tagged_any_order(t):
    conn, mr = t.passive(), t.mr(64)
    conn.send(*[wire.write(mr.rkey, mr.addr + at, text, last) for at, text, last in
                ((20, b"third", False), (0, b"first", False), (9, b"second", False), (22, b"IR", True))])
    conn.echo()
    assert mr.get(0, 25).replace(b"\0", b"") == b"firstsecondthIRd"
    mr.intact()


@row("ddp-too-long", "RFC 5041 7.1", "A message longer than its buffer is an error: 1/2/05; the buffer is not overrun")
def too_long(t):
    mr = t.mr(100)
    for size, sizes in (101, ()), (1000, ()), (101, (100,)), (101, (50, 50)), (500, (99,)):
        data, conn = pattern(size), t.passive()
        conn.post_recv(mr, wr_id=1)
        parts = sends(1, data, *sizes)
        refused(conn, (1, 2, 5), *parts)
        conn.wc("LOC_LEN_ERR", 1)
        # The error is found before the first byte of the segment is placed.
        good = sum(sizes)
        assert mr.get() == data[:good] + bytes(100 - good), "placed of the bad segment"
        mr.intact()
        mr.put(bytes(100))


@row("ddp-too-long-list", "RFC 5041 7.1", "A message longer than a buffer of several elements, or of none, is an error")
def too_long_list(t):
    mr = t.mr(100)
    for size, sges in (31, [(0, 10, mr.lkey), (40, 20, mr.lkey)]), (1, [(0, 0, mr.lkey)]), (5, [(0, 0, mr.lkey)] * 3):
        conn = t.passive()
        conn.post_recv(sges=[(mr.addr + at, length, key) for at, length, key in sges], wr_id=1)
        refused(conn, (1, 2, 5), wire.send(1, pattern(size)))
        conn.wc("LOC_LEN_ERR", 1)
        mr.untouched()


@row("ddp-queues", "RFC 5041 7.1",
     "Every opcode on every queue with every kind of MSN and MO: the Terminate names the first error", timeout=170)
def queues(t):
    mr, count = t.mr(64), 0
    read = wire.read_request(1, mr.rkey, mr.addr, 8, mr.rkey, mr.addr)[18:]
    for opcode, right, body in (wire.SEND, 0, b"something"), (wire.READ_REQUEST, 1, read), \
            (wire.TERMINATE, 2, bytes(4)):
        for qn in 0, 1, 2, 3, U32 - 1:
            for msn in 1, 0, 1 + (1 << 31):
                for mo in 0, 1:
                    if (qn, msn, mo) == (right, 1, 0):
                        continue
                    code = 1 if qn != right else 3 if msn != 1 else 4
                    conn = t.passive()
                    conn.post_recv(mr, wr_id=1)
                    refused(conn, (1, 2, code), wire.untagged(qn, msn, mo, body, opcode))
                    flushed(conn, 1)
                    conn.id.destroy()
                    count += 1
    mr.untouched()
    assert count == 87


@row("ddp-stag-within", "RFC 5041 4.2", "All segments of a tagged message have the same STag: else 1/1/00")
def stag_within(t):
    one, two = t.mr(64), t.mr(64)
    for stag in two.rkey, one.rkey ^ 1, 0:
        conn = t.passive()
        refused(conn, (1, 1, 0), wire.write(one.rkey, one.addr, b"good", last=False),
                wire.write(stag, two.addr, b"bad"))
        assert one.get(0, 8) == b"good\0\0\0\0"
        two.untouched()


@row("ddp-drops-after-error", "RFC 5041 7.1", "After an error everything that follows is silently dropped")
def drops_after_error(t):
    mr, good = t.mr(64), t.mr(64)
    conn = t.passive()
    conn.post_recv(mr, wr_id=1)
    conn.post_recv(mr, wr_id=2)
    bad = wire.send(7, b"bad")
    refused(conn, (1, 2, 3), bad, wire.write(good.rkey, good.addr, b"late"), wire.send(1, b"late"),
            wire.read_request(1, good.rkey, good.addr, 8, good.rkey, good.addr), wire.send(1, dv=2), about=0)
    flushed(conn, 1, 2)
    mr.untouched()
    good.untouched()


@row("ddp-order", "RFC 5041 5.3", "Messages are delivered in the order they were sent")
def order(t):
    conn, mr = t.passive(recv_wr=64), t.mr(64 * 64)
    for wr_id in range(50):
        conn.post_recv(mr, 64, 64 * wr_id, wr_id=wr_id)
    conn.send(*[wire.send(wr_id + 1, pattern(wr_id % 60, wr_id)) for wr_id in range(50)])
    for wr_id in range(50):
        assert conn.wc(wr_id=wr_id).byte_len == wr_id % 60
        assert mr.get(64 * wr_id, wr_id % 60) == pattern(wr_id % 60, wr_id)


@row("ddp-placed-before", "RFC 5041 5.4", "When a message is delivered, all before it have been placed")
def placed_before(t):
    conn, mr, sink, data = t.passive(), t.mr(64), t.mr(8000), pattern(8000, 5)
    for msn in range(1, 20):
        conn.post_recv(mr, wr_id=msn)
        data = data[1:] + data[:1]
        conn.send(*writes(sink, data, 1400, 1400, 400 * (msn % 7), 100), wire.send(msn, b"done"))
        conn.wc(wr_id=msn)
        assert sink.get() == data
    sink.intact()


@row("ddp-interleaved", "RFC 5041 5.1", "Segments of a tagged message may come between those of an untagged one", OWN)
def interleaved(t):
    conn, mr, sink, data = t.passive(), t.mr(300), t.mr(300), pattern(300)
    conn.post_recv(mr, wr_id=1)
    one, two = sends(1, data, 100, 100), writes(sink, data, 100, 100)
    conn.send(one[0], two[0], two[1], one[1], two[2], one[2])
    assert conn.wc(wr_id=1).byte_len == 300
    assert mr.get() == data == sink.get()


@row("ddp-stream-lost", "RFC 5041 6.2.2",
     "When TCP loses the connection, all that is outstanding completes with an error")
def stream_lost(t):
    conn, mr = t.active(), t.mr(64)
    conn.post_recv(mr, wr_id=1)
    conn.post_recv(mr, wr_id=2)
    conn.post_read(mr, 1, 0, 8, wr_id=3)
    conn.post_send(mr, 8, wr_id=4, flags=verbs.SIGNALED | verbs.FENCE)
    assert conn.segment().opcode == wire.READ_REQUEST
    conn.send(wire.send(1, b"half", last=False))
    conn.reset()
    ended(conn)
    assert {conn.wc("WR_FLUSH_ERR").wr_id for _ in range(4)} == {1, 2, 3, 4}
    conn.id.cq.none()


@row("ddp-error-while-sending", "RFC 5041 7.1",
     "The one further message, a Terminate, follows the data that is being sent", SHOULD)
def error_while_sending(t):
    conn, mr = t.active(), t.mr(1 << 20)
    mr.put(pattern(1 << 20))
    conn.post_send(mr, wr_id=1)
    first = conn.segment()
    assert first.mo == 0 and first.data == mr.get(0, len(first.data))
    # TCP takes no more from the device, which waits in the middle of the message.
    conn.send(wire.send(9, b"bad"))
    # Read first and checked afterwards, as in revoked_midway().
    conn.until_end()
    at = len(first.data)
    while (segment := conn.segment()).opcode == wire.SEND:
        assert segment.mo == at and segment.data == mr.get(at, len(segment.data)), segment
        at += len(segment.data)
    assert segment.opcode == wire.TERMINATE, segment
    assert wire.Terminate(segment.data).code == (1, 2, 3)
    assert conn.segment() is None
    assert at < 1 << 20, "it was not in the middle of the message"
    conn.wc("WR_FLUSH_ERR", 1)
