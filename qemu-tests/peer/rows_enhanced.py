# SPDX-License-Identifier: GPL-2.0
"""Enhanced MPA (RFC 6581), checklist: the S bit, read depths, peer-to-peer mode."""

import itertools
import select

import wire
from rows import MUST, OWN, SHOULD, row
from rows_mpa import DEPTHS, PATTERN, answered, refused
from wire import (A_P2P, B_SEND, C_WRITE, CRC, D_READ, ENHANCED, MANUAL, REJECT, REPLY, REQUEST, depths, frame)

S = CRC | ENHANCED


def flagged(ird, ord_, a=0, b=0, c=0, d=0):
    return depths(ird | a | b, ord_ | c | d)


def reads_outstanding(conn, expected):
    """Many Reads are posted to the device. At most `depth` Read Requests are outstanding, and each answer lets the
    next one out."""
    mr = conn.target.mr(1024)
    total = expected + 3
    for i in range(total):
        conn.post_read(mr, 0x1234, i, 8, i * 8, wr_id=i)
    waiting = []
    for i in range(total):
        while len(waiting) < min(expected, total - i):
            segment = conn.segment()
            assert segment.opcode == wire.READ_REQUEST and segment.qn == 1, segment
            waiting.append(wire.ReadRequest(segment.data))
        if i == 0 and total > expected:
            conn.silent(0.2)
        request = waiting.pop(0)
        assert request.src_to == i and request.size == 8, f"{request} as number {i}"
        conn.send(wire.read_response(request.sink_stag, request.sink_to, b"%08d" % i))
        conn.wc(wr_id=i)
    assert mr.get(0, 8 * total) == b"".join(b"%08d" % i for i in range(total))


# --- Revision and the S bit

@row("enh-request", "RFC 6581 6", "the request has revision 2, S, and the depths asked for; A, B, C, D zero by default")
def enh_request(t):
    _, _, request = t.calling(ird=5, ord_=7)
    assert request.revision == 2 and request.enhanced, request
    assert (request.ird, request.ord, request.rtr) == (5, 7, (False,) * 4), request


@row("enh-revision-1", "RFC 6581 10", "revision 1 still works: a plain request gets a plain reply")
def enh_revision_1(t):
    conn = t.passive(CRC, 1)
    assert conn.frame.revision == 1 and not conn.frame.enhanced and not conn.frame.data, conn.frame
    conn.echo()


@row("enh-s-0", "RFC 6581 10", "a request of revision 2 with S=0 gets a reply with S=0")
def enh_s_0(t):
    conn = t.passive(CRC, 2, b"plain")
    assert conn.frame.revision == 2 and not conn.frame.enhanced and not conn.frame.data, conn.frame
    conn.echo()


@row("enh-s-1", "RFC 6581 10", "S=1 in the request, S=1 in the reply, also when it rejects")
def enh_s_1(t):
    assert t.passive().frame.enhanced
    raw = t.dial()
    raw.push(frame(REQUEST, S, 2, DEPTHS))
    _, id_ = t.request()
    id_.reject()
    reply = raw.frame()
    assert reply.enhanced and reply.flags & REJECT and reply.length >= 4, reply


@row("enh-s-in-revision-1", "RFC 6581 6", "the S bit of a revision 1 request is reserved and not checked")
def enh_s_in_revision_1(t):
    conn = t.passive(CRC | ENHANCED, 1, b"abcd")
    assert conn.frame.revision == 1 and not conn.frame.enhanced, conn.frame
    conn.echo()


@row("enh-short-data", "RFC 6581 9", "S=1 with less than four octets of data: closed without a reply")
def enh_short_data(t):
    for size in range(4):
        refused(t, frame(REQUEST, S, 2, bytes(size)))


@row("enh-short-reply", "RFC 6581 9", "a reply with S=1 and less than four octets of data: the initiator closes")
def enh_short_reply(t):
    for size in range(4):
        answered(t, frame(REPLY, S, 2, bytes(size)))


@row("enh-downgrade", "RFC 6581 10", "an S=0 reply to an S=1 request: the initiator closes, the program is told")
def enh_downgrade(t):
    answered(t, frame(REPLY, CRC, 1))
    answered(t, frame(REPLY, CRC, 2))


@row("enh-closed", "RFC 6581 10", "a responder closes on an enhanced request: the program is told")
def enh_closed(t):
    for way in ("fin", "reset"):
        id_, raw, _ = t.calling()
        getattr(raw, way)()
        id_.event("REJECTED", "CONNECT_ERROR")


@row("enh-initiator-1", "RFC 6581 10", "with mpa_rev=1 the request is plain, and a reply of revision 1 is taken",
     params="mpa_rev=1")
def enh_initiator_1(t):
    conn = t.active(CRC, 1)
    assert conn.frame.revision == 1 and not conn.frame.enhanced, conn.frame
    conn.echo()


@row("enh-initiator-1-enhanced", "RFC 6581 10", "an S=1 reply of revision 2 to a plain request: closed", params="mpa_rev=1")
def enh_initiator_1_enhanced(t):
    answered(t, frame(REPLY, S, 2, DEPTHS))


# --- Depths, responder

@row("enh-depths-to-ulp", "RFC 6581 9.1", "the program sees IRD and ORD of the request and of the reply")
def enh_depths_to_ulp(t):
    for ird, ord_ in ((0, 0), (1, 2), (16, 3), (100, 128)):
        raw = t.dial()
        raw.push(frame(REQUEST, S, 2, depths(ird, ord_)))
        event, id_ = t.request()
        # The peer's IRD limits the Reads that the program may start, and the other way round.
        assert (event.initiator_depth, event.responder_resources) == (ird, ord_), \
            f"request {ird}/{ord_} is shown as {event.initiator_depth}/{event.responder_resources}"
        id_.destroy()


@row("enh-responder-ord", "RFC 6581 9.1", "the responder's ORD is not above the initiator's IRD")
def enh_responder_ord(t):
    for peer_ird in (0, 1, 5, 128, 1000, 0x3ffe):
        conn = t.passive(peer_ird=peer_ird, ord_=16)
        assert conn.frame.ord == min(peer_ird, 16), f"IRD {peer_ird}: {conn.frame.ord}"
        conn.id.destroy()


@row("enh-responder-ird", "RFC 6581 9.1", "the responder's IRD is the one it was asked for, or its maximum")
def enh_responder_ird(t):
    for peer_ord, ird, want in ((0, 16, 16), (1, 0, 1), (40, 16, 40), (128, 16, 128), (1000, 16, 128)):
        conn = t.passive(peer_ord=peer_ord, ird=ird)
        assert conn.frame.ird == want, f"ORD {peer_ord}, accepted with {ird}: IRD {conn.frame.ird}"
        conn.id.destroy()


@row("enh-responder-ord-kept", "RFC 6581 9.1", "the responder has no more Read Requests outstanding than agreed")
def enh_responder_ord_kept(t):
    for depth in (1, 2, 5):
        conn = t.passive(peer_ird=depth, ord_=16)
        conn.send(wire.write(1, 0))
        reads_outstanding(conn, depth)
        conn.id.destroy()


@row("enh-no-reads", "RFC 6581 9.1", "IRD 0: no Read Request is sent")
def enh_no_reads(t):
    for conn in (t.passive(peer_ird=0), t.active(peer_ird=0)):
        conn.send(wire.write(1, 0))
        mr = t.mr()
        try:
            conn.post_read(mr, 1, 0, 8)
        except OSError:
            pass  # refusing it is as good
        while select.select([conn.raw.sock], [], [], 0.3)[0]:
            segment = conn.segment()
            if not segment:
                break
            assert segment.opcode == wire.TERMINATE, segment


@row("enh-ird-served", "RFC 6581 9.1", "as many Reads as the IRD says are served when they come at once, in order")
def enh_ird_served(t):
    for conn in (t.passive(peer_ord=32, ird=32), t.active(ird=32, peer_ord=32)):
        mr = t.mr(1 << 14)
        mr.put(PATTERN[:1 << 14])
        conn.send(*(wire.read_request(i + 1, 0x77, 1000 * i, 500, mr.rkey, mr.addr + i) for i in range(32)))
        for i in range(32):
            segment, data = conn.message()
            assert (segment.opcode, segment.to) == (wire.READ_RESPONSE, 1000 * i) and data == PATTERN[i:i + 500], segment


# --- Depths, initiator

@row("enh-initiator-ord", "RFC 6581 9.1", "the initiator's ORD falls to the responder's IRD")
def enh_initiator_ord(t):
    for depth in (1, 2, 5):
        conn = t.active(ord_=16, peer_ird=depth)
        reads_outstanding(conn, depth)
        conn.id.destroy()


@row("enh-initiator-ird", "RFC 6581 9.1", "the initiator's IRD rises to the responder's ORD, and it serves as many")
def enh_initiator_ird(t):
    conn = t.active(ird=1, peer_ord=20)
    mr = t.mr()
    mr.put(PATTERN[:4096])
    conn.send(*(wire.read_request(i + 1, 0x77, 0, 500, mr.rkey, mr.addr + i) for i in range(20)))
    for i in range(20):
        segment, data = conn.message()
        assert segment.opcode == wire.READ_RESPONSE and data == PATTERN[i:i + 500], segment


@row("enh-insufficient-ird", "RFC 6581 9.1", "a responder's ORD beyond what the initiator can serve: Terminate L2/0/06")
def enh_insufficient_ird(t):
    for ord_ in (129, 1000, 0x3ffe):
        id_, raw, _ = t.calling()
        raw.push(frame(REPLY, S, 2, depths(16, ord_)))
        raw.terminate((2, 0, 6))
        id_.event("CONNECT_ERROR", "REJECTED")


@row("enh-manual-responder", "RFC 6581 9.1", "0x3FFF in a request's ORD or IRD: 0x3FFF in the reply's IRD or ORD, our own unchanged")
def enh_manual_responder(t):
    conn = t.passive(peer_ord=MANUAL, peer_ird=3, ird=8, ord_=8)
    assert (conn.frame.ird, conn.frame.ord) == (MANUAL, 3), conn.frame
    conn.echo()
    conn = t.passive(peer_ord=3, peer_ird=MANUAL, ird=8, ord_=8)
    assert (conn.frame.ird, conn.frame.ord) == (8, MANUAL), conn.frame
    conn.send(wire.write(1, 0))
    reads_outstanding(conn, 8)


@row("enh-manual-initiator", "RFC 6581 9.1", "0x3FFF in a reply: our own depths stay")
def enh_manual_initiator(t):
    conn = t.active(ird=4, ord_=4, peer_ird=MANUAL, peer_ord=MANUAL)
    reads_outstanding(conn, 4)
    conn.echo()


# --- Peer-to-peer mode, responder

RTRS = {"send": (B_SEND, 0), "write": (0, C_WRITE), "read": (0, D_READ)}


def rtr_ulpdu(kind):
    return {"send": wire.send(1), "write": wire.write(1, 0),
            "read": wire.read_request(1, 1, 0, 0, 1, 0)}[kind]


@row("enh-p2p-reply", "RFC 6581 9.2", "A=1 in the request: A=1 in the reply and at least one RTR option that was offered")
def enh_p2p_reply(t):
    for b, c, d in itertools.product((0, B_SEND), (0, C_WRITE), (0, D_READ)):
        conn = t.passive(data=flagged(16, 16, A_P2P, b, c, d))
        a, *options = conn.frame.rtr
        offered = [bool(b), bool(c), bool(d)]
        assert a and any(options), f"offered {offered}: {conn.frame}"
        if any(offered):
            assert all(not ours or theirs for ours, theirs in zip(options, offered)), f"offered {offered}: {conn.frame}"
        conn.id.destroy()


@row("enh-p2p-not-asked", "RFC 6581 9.2", "A=0: B, C and D of the request are ignored, and zero in the reply")
def enh_p2p_not_asked(t):
    conn = t.passive(data=flagged(16, 16, 0, B_SEND, C_WRITE, D_READ))
    assert conn.frame.rtr == (False,) * 4, conn.frame
    conn.echo()


@row("enh-rtr-taken", "RFC 6581 9.2", "each kind of RTR lets the responder send; a Read is answered; the program sees none of them")
def enh_rtr_taken(t):
    for kind, (first, second) in RTRS.items():
        mr = t.mr()
        conn = t.passive(data=depths(16 | A_P2P | first, 16 | second), before_accept=lambda id_: id_.post_recv(mr, wr_id=1))
        conn.post_send(mr, 5, 100, wr_id=2)
        conn.silent(0.2)
        conn.send(rtr_ulpdu(kind))
        segments = [conn.segment()]
        if kind == "read":
            segments.append(conn.segment())
            answer = next(s for s in segments if s.opcode == wire.READ_RESPONSE)
            assert answer.last and not answer.data and answer.stag == 1, answer
        assert any(s.opcode == wire.SEND and len(s.data) == 5 for s in segments), segments
        conn.wc(wr_id=2)
        conn.send(wire.send(2 if kind == "send" else 1, b"payload"))
        wc = conn.wc(wr_id=1)
        assert wc.byte_len == 7 and mr.get(0, 7) == b"payload", wc
        conn.id.destroy()


@row("enh-p2p-waits", "RFC 6581 5", "with an RTR agreed the responder is silent until it comes")
def enh_p2p_waits(t):
    mr = t.mr()
    conn = t.passive(data=flagged(16, 16, A_P2P, 0, C_WRITE))
    conn.post_send(mr, 5)
    conn.silent(1.5)
    conn.send(wire.write(1, 0))
    assert conn.segment().opcode == wire.SEND


@row("enh-rtr-never", "RFC 6581 5", "an RTR that never comes: the connection ends, the program is told", SHOULD, waits=True)
def enh_rtr_never(t):
    conn = t.passive(data=flagged(16, 16, A_P2P, 0, C_WRITE))
    conn.event("DISCONNECTED")
    conn.any_end()


@row("enh-rtr-read-depth", "RFC 6581 9.1", "a Read RTR is served though the program accepted with IRD 0")
def enh_rtr_read_depth(t):
    conn = t.passive(data=flagged(16, 0, A_P2P, 0, 0, D_READ), ird=0)
    assert conn.frame.rtr[3] and conn.frame.ird >= 1, conn.frame
    conn.send(rtr_ulpdu("read"))
    segment = conn.segment()
    assert segment.opcode == wire.READ_RESPONSE and not segment.data, segment
    conn.echo()


@row("enh-reject-depths", "RFC 6581 9.1", "a rejecting reply of the peer: the program is told, whatever depths it has")
def enh_reject_depths(t):
    for ird, ord_ in ((0, 0), (1, 200), (MANUAL, MANUAL)):
        id_, raw, _ = t.calling()
        raw.push(frame(REPLY, S | REJECT, 2, depths(ird, ord_) + b"deeper"))
        event = id_.event("REJECTED", status=-111)
        assert event.private[:6] == b"deeper", event


# --- Peer-to-peer mode, initiator

@row("enh-p2p-request", "RFC 6581 9.2", "the initiator asks for peer-to-peer mode: A and all RTR kinds it can send are set",
     params="peer_to_peer=1")
def enh_p2p_request(t):
    _, _, request = t.calling()
    assert request.rtr == (True,) * 4, request


@row("enh-rtr-sent", "RFC 6581 9.2", "the initiator sends one RTR of a kind that both support, before anything else",
     params="peer_to_peer=1")
def enh_rtr_sent(t):
    for b, c, d in itertools.product((0, B_SEND), (0, C_WRITE), (0, D_READ)):
        if not (b or c or d):
            continue
        mr = t.mr()
        id_, raw, _ = t.calling()
        raw.push(frame(REPLY, S, 2, flagged(16, 16, A_P2P, b, c, d)))
        id_.event("ESTABLISHED", status=0)
        id_.post_send(mr, 10, wr_id=1)
        rtr = raw.segment()
        allowed = [op for op, on in ((wire.SEND, b), (wire.WRITE, c), (wire.READ_REQUEST, d)) if on]
        assert rtr.opcode in allowed and rtr.last, f"{rtr} as RTR, agreed were opcodes {allowed}"
        msn = 1
        if rtr.opcode == wire.READ_REQUEST:
            read = wire.ReadRequest(rtr.data)
            assert read.size == 0 and rtr.msn == 1, rtr
            raw.send(wire.read_response(read.sink_stag, read.sink_to))
        else:
            assert not rtr.data, rtr
            msn += rtr.opcode == wire.SEND
        segment = raw.segment()
        assert segment.opcode == wire.SEND and segment.msn == msn and len(segment.data) == 10, segment
        # The program sees no completion of the RTR.
        id_.wc(wr_id=1)
        t.cq.none()
        id_.destroy()


@row("enh-rtr-none", "RFC 6581 9.2", "no RTR in common: Terminate L2/0/07, and the program is told", params="peer_to_peer=1")
def enh_rtr_none(t):
    for data in (flagged(16, 16, A_P2P), flagged(16, 16), flagged(16, 16, 0, B_SEND, C_WRITE, D_READ)):
        id_, raw, _ = t.calling()
        raw.push(frame(REPLY, S, 2, data))
        raw.terminate((2, 0, 7))
        id_.event("CONNECT_ERROR", "REJECTED")


@row("enh-rtr-and-fpdu", "RFC 6581 9.2", "the responder sends an FPDU right behind its reply: it is delivered, and the RTR still comes",
     OWN, params="peer_to_peer=1")
def enh_rtr_and_fpdu(t):
    mr = t.mr()
    framer = wire.Framer()
    id_, raw, _ = t.calling(before_connect=lambda id_: id_.post_recv(mr))
    raw.push(frame(REPLY, S, 2, flagged(16, 16, A_P2P, 0, C_WRITE)) + framer.fpdu(wire.send(1, b"rash")))
    id_.event("ESTABLISHED", status=0)
    assert id_.wc().byte_len == 4
    assert raw.segment().opcode == wire.WRITE
