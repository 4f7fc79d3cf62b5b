# SPDX-License-Identifier: GPL-2.0
"""RFC 5040: Remote Direct Memory Access Protocol."""

import struct

import verbs
import wire
from refusal import U32, carries, ended, flushed, refused
from rows import OWN, SHOULD, row

SINK = 0x5151  # an STag of the peer's
TAGGED_OPCODES = wire.WRITE, wire.READ_RESPONSE
SENDS = wire.SEND, wire.SEND_INV, wire.SEND_SE, wire.SEND_SE_INV


def pattern(size, seed=1):
    return bytes((seed + 5 * i + (i >> 8)) & 0xff for i in range(size))


def reading(msn, mr, size=8, offset=0, sink_to=0x1000):
    return wire.read_request(msn, SINK, sink_to, size, mr.rkey, mr.addr + offset)


def requested(segment):
    assert segment.opcode == wire.READ_REQUEST, f"no Read Request but {segment}"
    return wire.ReadRequest(segment.data)


def answer(conn, read, data):
    conn.send(wire.read_response(read.sink_stag, read.sink_to, data))


@row("rdmap-opcodes", "RFC 5040 7.2",
     "An opcode that is unknown, or does not fit the buffer model, is an error: 0/2/06", timeout=120)
def opcodes(t):
    mr = t.mr(64)
    for opcode in range(16):
        for tagged in False, True:
            # Those of RFC 7306 have rows of their own.
            if opcode < 12 and tagged == (opcode in TAGGED_OPCODES):
                continue
            conn = t.passive()
            conn.post_recv(mr, wr_id=1)
            refused(conn, (0, 2, 6), wire.tagged(mr.rkey, mr.addr, bytes(60), opcode) if tagged
                    else wire.untagged(0, 1, 0, bytes(60), opcode))
            flushed(conn, 1)
            ended(conn)
            mr.untouched()
            assert t.async_event() == "QP_FATAL"


@row("rdmap-version", "RFC 5040 7.2",
     "Another RDMAP version than 1 is an error, for every opcode: 0/2/05", timeout=120)
def version(t):
    mr = t.mr(64)
    for rv in 0, 2, 3:
        for opcode in range(8):
            conn = t.passive()
            conn.post_recv(mr, wr_id=1)
            refused(conn, (0, 2, 5), wire.tagged(mr.rkey, mr.addr, b"bad", opcode, rv=rv) if opcode in TAGGED_OPCODES
                    else wire.untagged({1: 1, 7: 2}.get(opcode, 0), 1, 0, bytes(40), opcode, rv=rv))
            flushed(conn, 1)
            mr.untouched()


@row("rdmap-reserved", "RFC 5040 4.1",
     "Reserved bits, and the Invalidate STag of messages without one, are ignored on receive")
def reserved(t):
    conn, mr = t.passive(), t.mr(64)
    for bit in 1, 2:
        conn.post_recv(mr, wr_id=bit)
        conn.send(wire.send(bit, b"here", inv=mr.rkey, rdmap_rsvd=bit),
                  wire.write(mr.rkey, mr.addr, b"it is", rdmap_rsvd=bit))
        conn.wc(wr_id=bit)
    conn.send(wire.read_request(1, SINK, 0, 5, mr.rkey, mr.addr, inv=mr.rkey, rdmap_rsvd=3))
    assert conn.message()[1] == b"it is"


@row("rdmap-sends", "RFC 5040 5.3", "Each kind of Send that has nothing to invalidate is delivered, with its length")
def sends(t):
    conn, mr = t.passive(), t.mr(64)
    for msn, opcode in enumerate((wire.SEND, wire.SEND_SE), 1):
        conn.post_recv(mr, wr_id=msn)
        conn.send(wire.send(msn, b"text", opcode=opcode))
        wc = conn.wc(wr_id=msn)
        assert wc.byte_len == 4 and wc.opcode == verbs.WC_RECV, wc


@row("rdmap-mixed-send", "RFC 5040 7.2", "Segments of one message have one opcode: else 0/2/06")
def mixed_send(t):
    mr = t.mr(64)
    for first in SENDS:
        for second in SENDS:
            if first != second:
                conn = t.passive()
                conn.post_recv(mr, wr_id=1)
                refused(conn, (0, 2, 6), wire.send(1, b"half", last=False, opcode=first),
                        wire.send(1, b"other", mo=4, opcode=second))
                flushed(conn, 1)
                assert b"other" not in mr.get()


@row("rdmap-mixed-tagged", "RFC 5040 7.2", "Segments of one Write or Read Response have one opcode")
def mixed_tagged(t):
    sink, mr = t.mr(64), t.mr(64)
    conn = t.active()
    conn.post_read(sink, 1, 2, 8, wr_id=1)
    read = requested(conn.segment())
    refused(conn, (0, 2, 6), wire.write(mr.rkey, mr.addr, b"good", last=False),
            wire.read_response(read.sink_stag, read.sink_to, b"12345678"))
    flushed(conn, 1)
    sink.untouched()
    conn = t.active()
    conn.post_read(sink, 1, 2, 8, wr_id=1)
    read = requested(conn.segment())
    refused(conn, (0, 2, 6), wire.read_response(read.sink_stag, read.sink_to, b"1234", last=False),
            wire.write(mr.rkey, mr.addr, b"bad!"))
    flushed(conn, 1)
    assert mr.get(0, 4) == b"good"


@row("rdmap-write-silent", "RFC 5040 5.1", "A Write is not delivered to the program: no completion, no receive taken")
def write_silent(t):
    conn, mr = t.passive(), t.mr(64)
    conn.post_recv(mr, 8, wr_id=1)
    conn.send(wire.write(mr.rkey, mr.addr + 8, b"written"), wire.send(1, b"sent"))
    assert conn.wc(wr_id=1).byte_len == 4
    assert mr.get(8, 7) == b"written"
    conn.id.cq.none()


@row("rdmap-read-answered", "RFC 5040 5.2.1",
     "A valid Read Request is answered with segments for its sink that carry the data of its source")
def read_answered(t):
    conn, mr = t.passive(), t.mr(20000)
    mr.put(pattern(20000))
    for msn, (offset, size, sink_to) in enumerate(((0, 1, 0), (0, 20000, 77), (4095, 2, 1 << 63), (19999, 1, 5),
                                                   (100, 1446, (1 << 64) - 1447), (13, 9001, 0xfffffffe)), 1):
        conn.send(reading(msn, mr, size, offset, sink_to))
        first, data = conn.message()
        assert (first.opcode, first.stag, first.to) == (wire.READ_RESPONSE, SINK, sink_to), first
        assert (first.dv, first.rv, first.ddp_rsvd, first.rdmap_rsvd) == (1, 1, 0, 0), first
        assert data == pattern(20000)[offset:offset + size]
    conn.id.cq.none()


@row("rdmap-read-zero", "RFC 5040 5.2.1",
     "A Read of no bytes is answered, whatever its source: STag and TO are not checked")
def read_zero(t):
    mr, closed, foreign = t.mr(64), t.mr(64, access=0), t.mr(64, pd=t.make_pd())
    conn = t.passive()
    for msn, (stag, to) in enumerate(((0, 0), (U32 - 1, (1 << 64) - 1), (mr.rkey ^ 1, 0), (mr.rkey, 0),
                                      (closed.rkey, closed.addr), (foreign.rkey, foreign.addr)), 1):
        conn.send(wire.read_request(msn, SINK + msn, to ^ 0x55, 0, stag, to))
        segment = conn.segment()
        assert segment.opcode == wire.READ_RESPONSE and segment.last and not segment.data, segment
        assert (segment.stag, segment.to) == (SINK + msn, to ^ 0x55), segment


@row("rdmap-read-order", "RFC 5040 5.5", "Read Responses come in the order of the requests (rule 20)")
def read_order(t):
    conn, mr = t.passive(), t.mr(4096)
    mr.put(pattern(4096))
    sizes = (4000, 1, 0, 2000, 3, 1500, 0, 1)
    conn.send(*[reading(msn, mr, size, msn, sink_to=msn) for msn, size in enumerate(sizes, 1)])
    for msn, size in enumerate(sizes, 1):
        first, data = conn.message()
        assert (first.opcode, first.to) == (wire.READ_RESPONSE, msn) and data == mr.get(msn, size), first


@row("rdmap-read-after-write", "RFC 5040 5.5",
     "A Read starts only after all before it has been placed: it returns what was written (rules 12, 17)")
def read_after_write(t):
    conn, mr, buf = t.passive(), t.mr(3000), t.mr(64)
    for msn in range(1, 30):
        data = pattern(3000, msn)
        conn.post_recv(buf, wr_id=msn)
        conn.send(wire.write(mr.rkey, mr.addr, data[:1400], False),
                  wire.write(mr.rkey, mr.addr + 1400, data[1400:2800], False),
                  wire.write(mr.rkey, mr.addr + 2800, data[2800:]), wire.send(msn, b"x"), reading(msn, mr, 3000))
        assert conn.message()[1] == data
        conn.wc(wr_id=msn)


@row("rdmap-read-no-slot", "RFC 5040 6.1", "More Read Requests than were agreed are an error: 1/2/02, QP_REQ_ERR")
def read_no_slot(t):
    mr = t.mr(4 << 20)
    for depth in 0, 1, 4:
        conn = t.passive(ird=depth, peer_ord=depth)
        # The first one cannot be answered completely, because nobody reads the answer.
        requests = [reading(msn, mr, 4 << 20) for msn in range(1, depth + 2)]
        conn.send(*requests)
        while (segment := conn.segment()).opcode == wire.READ_RESPONSE:
            pass
        term = wire.Terminate(segment.data)
        assert term.code == (1, 2, 2), term
        carries(term, requests[-1])
        assert conn.segment() is None
        assert t.async_event() == "QP_REQ_ERR"


@row("rdmap-read-depth", "RFC 5040 5.2.2", "As many Reads as were agreed are taken, however long the answers wait")
def read_depth(t):
    mr = t.mr(150000)
    conn = t.passive(ird=6, peer_ord=6)
    msn = 1
    for _ in range(2):
        conn.send(*[reading(msn + n, mr, 150000, sink_to=n) for n in range(6)])
        for n in range(6):
            first, data = conn.message()
            assert first.to == n and len(data) == 150000
        msn += 6


@row("rdmap-read-msn", "RFC 5040 5.2.1",
     "Read Requests have an MSN of their own queue, from 1: else 1/2/03, QP_REQ_ERR")
def read_msn(t):
    mr = t.mr(64)
    conn = t.passive()
    conn.echo()
    conn.echo()
    conn.send(reading(1, mr))
    conn.message()
    for msn in 0, 1, 3, 2 + (1 << 31):
        conn = t.passive()
        conn.send(reading(1, mr))
        conn.message()
        refused(conn, (1, 2, 3), reading(msn, mr))
        assert t.async_event() == "QP_REQ_ERR"


@row("rdmap-read-request-size", "RFC 5040 4.4",
     "A Read Request is one segment of 28 bytes: shorter 0/2/ff, longer or cut in two 1/2/05")
def read_request_size(t):
    mr = t.mr(64)
    whole = reading(1, mr)
    for size in 0, 1, 4, 27:
        refused(t.passive(), (0, 2, 0xff), whole[:18 + size])
    refused(t.passive(), (1, 2, 5), whole + b"x")
    refused(t.passive(), (1, 2, 5), wire.read_request(1, SINK, 0, 8, mr.rkey, mr.addr, last=False))


@row("rdmap-requests", "RFC 5040 4.4",
     "Read Requests sent: queue 1, MSN from 1, sink and source as posted, nothing else")
def requests(t):
    conn, mr = t.active(), t.mr(4096)
    for msn, (size, offset, rkey, remote) in enumerate(((8, 0, 1, 2), (4096, 0, U32 - 1, (1 << 64) - 1), (0, 5, 7, 8),
                                                        (100, 3996, 0x12345678, 0xabcdef0123456789)), 1):
        conn.post_read(mr, rkey, remote, size, offset, wr_id=msn)
        segment = conn.segment()
        assert (segment.tagged, segment.last, segment.dv, segment.rv) == (False, True, 1, 1), segment
        assert (segment.qn, segment.msn, segment.mo, segment.inv) == (1, msn, 0, 0), segment
        assert (segment.ddp_rsvd, segment.rdmap_rsvd) == (0, 0) and len(segment.data) == 28, segment
        read = requested(segment)
        assert (read.size, read.src_stag, read.src_to) == (size, rkey, remote), read
        assert not size or (read.sink_stag, read.sink_to) == (mr.lkey, mr.addr + offset), read
        answer(conn, read, pattern(size))
        wc = conn.wc(wr_id=msn)
        assert wc.opcode == verbs.WC_READ and wc.byte_len == size and mr.get(offset, size) == pattern(size), wc
        mr.intact()


@row("rdmap-read-completes", "RFC 5040 5.5",
     "A Read completes only when its response was delivered, and what follows only after it (rules 15, 19)")
def read_completes(t):
    conn, mr = t.active(), t.mr(4096)
    conn.post_send(mr, 4, wr_id=0)
    conn.post_read(mr, 1, 2, 3000, wr_id=1)
    conn.post_send(mr, 4, wr_id=2)
    conn.post_write(mr, 3, 4, 4, wr_id=3)
    segments = [conn.segment() for _ in range(4)]
    assert [s.opcode for s in segments] == [wire.SEND, wire.READ_REQUEST, wire.SEND, wire.WRITE], segments
    read = requested(segments[1])
    conn.wc(wr_id=0)
    conn.id.cq.none()
    data = pattern(3000)
    conn.send(wire.read_response(read.sink_stag, read.sink_to, data[:1400], False),
              wire.read_response(read.sink_stag, read.sink_to + 1400, data[1400:2800], False))
    conn.id.cq.none()
    conn.send(wire.read_response(read.sink_stag, read.sink_to + 2800, data[2800:]))
    for wr_id in 1, 2, 3:
        conn.wc(wr_id=wr_id)
    assert mr.get(0, 3000) == data


@row("rdmap-send-completes", "RFC 5040 5.5",
     "A Send or Write completes only when TCP has taken all of it (rule 14)")
def send_completes(t):
    mr = t.mr(4 << 20)
    for opcode in verbs.WR_SEND, verbs.WR_WRITE:
        conn = t.active()
        conn.post(opcode, mr, wr_id=1, rkey=1, remote=2)
        conn.post_send(mr, 1, wr_id=2)
        first = conn.segment()
        # TCP does not take that much while nobody reads.
        conn.id.cq.none()
        came = len(first.data) + len(conn.raw.rx.buffer)
        while came < mr.size:
            data = conn.raw.pull()
            assert data
            came += len(data)
        conn.wc(wr_id=1)
        conn.wc(wr_id=2)


@row("rdmap-order", "RFC 5040 5.5", "Messages are sent, and completed, in the order they were posted (rules 13, 15)")
def order(t):
    conn, mr = t.active(send_wr=64), t.mr(4096)
    kinds = [(wire.SEND, wire.WRITE, wire.READ_REQUEST)[n * 7 % 5 % 3] for n in range(40)]
    answered = 0
    for n, kind in enumerate(kinds):
        if kind == wire.SEND:
            conn.post_send(mr, n, wr_id=n)
        elif kind == wire.WRITE:
            conn.post_write(mr, n, n, n + 1, wr_id=n)
        else:
            conn.post_read(mr, n, n, 1, n, wr_id=n)
    for n, kind in enumerate(kinds):
        segment = conn.segment()
        assert segment.opcode == kind, f"{segment} as number {n}"
        if kind == wire.READ_REQUEST:
            answer(conn, requested(segment), b"!")
            answered += 1
    assert answered > 5
    for n in range(40):
        conn.wc(wr_id=n)


@row("rdmap-ord", "RFC 5040 6.1", "No more Reads are outstanding than were agreed")
def read_ord(t):
    for depth in 1, 3:
        conn, mr = t.active(ord_=depth, peer_ird=depth), t.mr(64)
        for n in range(8):
            conn.post_read(mr, 1, 2, 1, n, wr_id=n)
        waiting = []
        for n in range(8):
            if len(waiting) == depth:
                conn.silent(0.05)
                answer(conn, waiting.pop(0), b"!")
            waiting.append(requested(conn.segment()))
        for read in waiting:
            answer(conn, read, b"!")
        for n in range(8):
            conn.wc(wr_id=n)


@row("rdmap-ord-zero", "RFC 5040 6.1",
     "With a depth of 0 agreed, a Read is an error of the program: LOC_QP_OP_ERR, and none is sent")
def ord_zero(t):
    conn, mr = t.active(ord_=0, peer_ird=0), t.mr(64)
    conn.post_read(mr, 1, 2, 1, wr_id=1)
    carries(conn.terminate(), None)
    conn.wc("LOC_QP_OP_ERR", 1)


@row("rdmap-fence", "RFC 5040 5.5", "A fenced message is sent only when the Reads before it are done (rule 12)")
def fence(t):
    conn, mr = t.active(), t.mr(64)
    conn.post_read(mr, 1, 2, 8, wr_id=1)
    conn.post_read(mr, 1, 2, 8, 8, wr_id=2)
    conn.post_send(mr, 16, wr_id=3, flags=verbs.SIGNALED | verbs.FENCE)
    first, second = requested(conn.segment()), requested(conn.segment())
    conn.silent(0.05)
    answer(conn, first, b"01234567")
    conn.silent(0.05)
    answer(conn, second, b"89abcdef")
    # The Send carries the data of the Reads.
    assert conn.message()[1] == b"0123456789abcdef"
    for wr_id in 1, 2, 3:
        conn.wc(wr_id=wr_id)


@row("rdmap-response-unasked", "RFC 5040 7.2", "A Read Response without a Read Request is an error: 0/2/06")
def response_unasked(t):
    mr = t.mr(64)
    for data in b"", b"12345678":
        refused(t.passive(), (0, 2, 6), wire.read_response(mr.rkey, mr.addr, data))
    conn = t.active()
    conn.post_read(mr, 1, 2, 8, wr_id=1)
    read = requested(conn.segment())
    refused(conn, (0, 2, 6), wire.read_response(read.sink_stag, read.sink_to, b"12345678"),
            wire.read_response(read.sink_stag, read.sink_to, b"again!!!"))
    conn.wc(wr_id=1)
    assert mr.get(0, 8) == b"12345678"


@row("rdmap-response-order", "RFC 5040 5.5",
     "Responses must come in the order of the requests: another order is an error")
def response_order(t):
    conn, mr = t.active(), t.mr(64)
    conn.post_read(mr, 1, 2, 8, wr_id=1)
    conn.post_read(mr, 1, 2, 8, 8, wr_id=2)
    requested(conn.segment())
    read = requested(conn.segment())
    refused(conn, (1, 1, 1), wire.read_response(read.sink_stag, read.sink_to, b"12345678"))
    assert {conn.wc(None).wr_id for _ in range(2)} == {1, 2}
    mr.untouched()


@row("rdmap-response-cut", "RFC 5040 5.2.2",
     "A Read Response is placed however it is segmented, also with empty segments")
def response_cut(t):
    conn, mr = t.active(), t.mr(3000)
    for n, sizes in enumerate(((3000,), (1, 2999), (0, 1000, 0, 2000), (999,) * 3 + (3,), (3000, 0))):
        data, at, parts = pattern(3000, n), 0, []
        conn.post_read(mr, 1, 2, 3000, wr_id=n)
        read = requested(conn.segment())
        for i, size in enumerate(sizes, 1):
            parts.append(wire.read_response(read.sink_stag, read.sink_to + at, data[at:at + size], i == len(sizes)))
            at += size
        conn.send(*parts)
        assert conn.wc(wr_id=n).byte_len == 3000
        assert mr.get() == data
        mr.intact()


@row("rdmap-first-error", "RFC 5040 7.1",
     "Of several errors the Terminate names the first, and there is one Terminate")
def first_error(t):
    mr = t.mr(64)
    good = wire.write(mr.rkey, mr.addr, b"good")
    bad = [wire.write(mr.rkey ^ 1, mr.addr, b"bad"), wire.read_request(1, SINK, 0, 8, mr.rkey, mr.addr + 64),
           wire.send(5, b"bad"), wire.send(1, opcode=12)]
    for n, (code, read) in enumerate((((1, 1, 0), False), ((0, 1, 1), True), ((1, 2, 3), False), ((0, 2, 6), False))):
        conn = t.passive()
        refused(conn, code, good, *bad[n:], *bad[:n], about=1, read=read)


@row("rdmap-terminate-ends", "RFC 5040 5.4",
     "After a Terminate of the peer nothing more is sent, the program is told, and all is flushed")
def terminate_ends(t):
    conn, mr = t.active(), t.mr(64)
    conn.post_recv(mr, wr_id=1)
    conn.post_read(mr, 1, 2, 8, wr_id=2)
    conn.post_send(mr, 8, wr_id=3, flags=verbs.SIGNALED | verbs.FENCE)
    requested(conn.segment())
    conn.send(wire.terminate(0, 0, 0))
    conn.no_terminate()
    ended(conn)
    assert {(wc.wr_id, wc.status) for wc in (conn.wc(None) for _ in range(3))} == \
        {(n, "WR_FLUSH_ERR") for n in (1, 2, 3)}
    assert conn.query().qp_state == verbs.ERR


@row("rdmap-terminate-blames", "own",
     "A Terminate about a Read fails that Read, with REM_ACCESS_ERR if it says so; the others are flushed", OWN)
def terminate_blames(t):
    mr = t.mr(64)
    for layer, etype, code, status in (0, 1, 1, "REM_ACCESS_ERR"), (0, 1, 0xff, "REM_ACCESS_ERR"), \
            (0, 2, 7, "REM_OP_ERR"), (1, 2, 2, "REM_OP_ERR"):
        conn = t.active()
        for wr_id in 1, 2, 3:
            conn.post_read(mr, 1, 2, 8, wr_id=wr_id)
        segments = [conn.segment() for _ in range(3)]
        answer(conn, requested(segments[0]), b"12345678")
        bad = segments[1]
        rest = struct.pack(">H", len(bad.ulpdu)) + bad.header + bad.data
        conn.send(wire.terminate(layer, etype, code, 7, rest))
        conn.no_terminate()
        conn.wc(wr_id=1)
        conn.wc(status, 2)
        conn.wc("WR_FLUSH_ERR", 3)


@row("rdmap-terminate-any", "RFC 5040 5.4",
     "Any readable Terminate ends the stream, whatever its headers, reserved bits and codes")
def terminate_any(t):
    header = wire.send(1, b"")[:18]
    for layer, etype, code, hdrct, rest in (
            (15, 15, 255, 0, b""), (0, 1, 0, 4, b"\0\x20"), (1, 2, 2, 6, b"\0\x20" + header), (0, 1, 0, 7, b""),
            (0, 1, 0, 7, b"\0"), (0, 1, 0, 6, b"\0\x20" + header[:9]), (0, 1, 0, 7, b"\0\x20" + header + bytes(27)),
            (2, 0, 2, 0, b"trailing bytes"), (0, 0, 0, 0, bytes(1000))):
        conn, mr = t.passive(), t.mr(64)
        conn.post_recv(mr, wr_id=1)
        conn.send(wire.terminate(layer, etype, code, hdrct, rest))
        conn.no_terminate()
        ended(conn)
        flushed(conn, 1)


@row("rdmap-terminate-bad", "RFC 5040 5.4",
     "An invalid Terminate is an error like any other: wrong queue 1/2/01, MSN 1/2/03, cut short 0/2/ff")
def terminate_bad(t):
    body = bytes(4)
    for code, ulpdu in ((1, 2, 1), wire.untagged(0, 1, 0, body, wire.TERMINATE)), \
            ((1, 2, 3), wire.untagged(2, 2, 0, body, wire.TERMINATE)), \
            ((0, 2, 0xff), wire.untagged(2, 1, 0, b"", wire.TERMINATE)), \
            ((0, 2, 0xff), wire.untagged(2, 1, 0, body[:3], wire.TERMINATE)):
        refused(t.passive(), code, ulpdu)


@row("rdmap-terminate-fin", "RFC 5040 6.2.1",
     "Behind a Terminate TCP is closed in an orderly way, so that it arrives", SHOULD)
def terminate_fin(t):
    conn = t.passive()
    conn.send(wire.send(9, b"bad"))
    assert wire.Terminate(conn.segment().data).code == (1, 2, 3)
    assert conn.raw.pull() == b"", "reset"


@row("rdmap-sqe", "RFC 5040 7.1",
     "When a program sets the state SQE, a Terminate without headers is sent")
def sqe(t):
    conn, mr = t.active(), t.mr(64)
    conn.post_recv(mr, wr_id=1)
    conn.modify(verbs.QP_STATE, qp_state=verbs.SQE)
    term = conn.terminate()
    assert term.code[:2] == (0, 0), term
    carries(term, None)
    flushed(conn, 1)


@row("rdmap-both-fail", "own", "Both sides find an error at the same time: each sends its Terminate, and both end", OWN)
def both_fail(t):
    conn, mr = t.active(), t.mr(64)
    conn.post(verbs.WR_SEND, sges=[(mr.addr, 65, mr.lkey)], wr_id=1)
    conn.send(wire.terminate(1, 2, 3))
    # Either error may come first.
    segment = conn.segment()
    assert segment is None or segment.opcode == wire.TERMINATE, segment
    assert conn.wc(None, 1).status in ("LOC_PROT_ERR", "WR_FLUSH_ERR")
    ended(conn)
