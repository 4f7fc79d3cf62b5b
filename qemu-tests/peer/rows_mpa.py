# SPDX-License-Identifier: GPL-2.0
"""MPA (RFC 5044), checklist: start-up, framing, CRC, markers, errors."""

import random
import struct
import time

import wire
from rows import MUST, OWN, SHOULD, row
from verbs import RTS
from wire import A_P2P, C_WRITE, CRC, ENHANCED, MARKERS, REJECT, REPLY, REQUEST, depths, frame

DEPTHS = depths(16, 16)
PATTERN = bytes(i * 7 & 0xff for i in range(256)) * 256


def stream_out(conn, sizes):
    """The device sends messages of these sizes; all of them must arrive whole."""
    mr = conn.target.mr(1 << 16)
    mr.put(PATTERN)
    conn.send(wire.write(1, 0))  # a responder may send from here on
    for i, size in enumerate(sizes):
        conn.post_send(mr, size, wr_id=i)
        segment, data = conn.message()
        assert segment.opcode == wire.SEND and segment.msn == i + 1, f"{segment} as message {i + 1}"
        assert data == PATTERN[:size], f"message of {size} bytes arrived as {len(data)} others"
        conn.wc(wr_id=i)


def stream_in(conn, sizes, cut=1400):
    """The peer sends messages of these sizes, in segments of `cut`."""
    mr = conn.target.mr(1 << 16)
    for i, size in enumerate(sizes):
        conn.post_recv(mr, wr_id=i)
        for at in range(0, max(size, 1), cut):
            conn.send(wire.send(conn.msn, PATTERN[at:min(at + cut, size)], mo=at, last=at + cut >= size))
        conn.msn += 1
        wc = conn.wc(wr_id=i)
        assert wc.byte_len == size and mr.get(0, size) == PATTERN[:size], f"{wc}, not {size} bytes of the pattern"


def refused(t, data, fin=False):
    """The device ends a connection that begins with this, without a reply and without an event for the program."""
    raw = t.dial()
    raw.push(data)
    if fin:
        raw.fin()
    raw.end()
    t.no_request(0.1)
    t.passive().echo()


def answered(t, data, status=None, names=("CONNECT_ERROR", "REJECTED"), fin=False):
    """The answer to a program's request. The program must get a failure."""
    id_, raw, _ = t.calling()
    raw.push(data)
    if fin:
        raw.fin()
    id_.event(*names, status=status)
    said, _ = raw.any_end()
    assert not said, f"the device answers {said.hex()}"
    t.passive().echo()


# --- Start-up, responder

@row("mpa-reply", "RFC 5044 7.1.1", "the reply has its key, the request's revision, R and reserved bits zero")
def mpa_reply(t):
    for revision, flags, data in ((1, CRC, b""), (1, 0, b"hello"), (2, CRC | ENHANCED, DEPTHS)):
        conn = t.passive(flags, revision, data)
        reply = conn.frame
        assert reply.key == REPLY and reply.revision == revision, reply
        assert not reply.flags & (REJECT | 0x0f) and bool(reply.flags & ENHANCED) == (revision == 2), reply
        conn.id.destroy()


@row("mpa-request", "RFC 5044 7.1.1", "the request has its key, R and reserved bits zero",
     deviation="two bits offer large FPDUs and Sends with immediate data; peers do not check them")
def mpa_request(t):
    request_is_plain(t)


@row("mpa-request-plain", "RFC 5044 7.1.1", "large_fpdus=0: the request has R and reserved bits zero", OWN, params="large_fpdus=0")
def mpa_request_plain(t):
    request_is_plain(t)


def request_is_plain(t):
    request = t.active().frame
    assert request.key == REQUEST and not request.flags & (REJECT | 0x0f), request


@row("mpa-request-key", "RFC 5044 7.1.2", "a request with a wrong key: closed without a reply")
def mpa_request_key(t):
    for at in (0, 7, 15):
        key = bytearray(REQUEST)
        key[at] ^= 0x20
        refused(t, frame(bytes(key), CRC, 1))
    refused(t, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


@row("mpa-request-key-octet", "RFC 5044 7.1.2", "octets that no request begins with: closed at once, without waiting for a whole frame", OWN)
def mpa_request_key_octet(t):
    for data in (b"?", REQUEST[:15] + b"?"):
        # The device waits for a silent peer, even for an earlier one.
        silent, raw = t.dial(), t.dial()
        raw.push(data)
        raw.end()
        silent.silent(0)


@row("mpa-request-reply-key", "RFC 5044 7.1.2", "a reply frame where a request is due: closed without a reply")
def mpa_request_reply_key(t):
    refused(t, frame(REPLY, CRC, 1))


@row("mpa-request-reserved", "RFC 5044 7.1.1", "reserved bits of a request are not checked")
def mpa_request_reserved(t):
    t.passive(CRC | 0x0f, 1, b"").echo()
    t.passive(CRC | ENHANCED | 0x0f, 2, DEPTHS).echo()


@row("mpa-request-reject-bit", "RFC 5044 7.1.1", "R set in a request is not checked")
def mpa_request_reject_bit(t):
    t.passive(CRC | REJECT, 1, b"").echo()


@row("mpa-request-revision", "RFC 5044 7.1.2", "a request of an unknown revision: closed without a reply")
def mpa_request_revision(t):
    for revision in (0, 3, 255):
        refused(t, frame(REQUEST, CRC, revision))


@row("mpa-request-pd-513", "RFC 5044 7.1.1", "a request with PD_Length above 512: closed without a reply")
def mpa_request_pd_513(t):
    for length in (513, 65535):
        refused(t, frame(REQUEST, CRC, 1, length=length))
    refused(t, frame(REQUEST, CRC, 1, bytes(600)))


@row("mpa-request-pd-512", "RFC 5044 7.1.1", "a request with 512 octets of private data is accepted")
def mpa_request_pd_512(t):
    t.passive(CRC, 1, PATTERN[:512]).echo()
    t.passive(CRC | ENHANCED, 2, DEPTHS + PATTERN[:508]).echo()


@row("mpa-request-pd", "RFC 5044 7.1.1", "the program sees the private data of the request, 0 to 255 octets of it")
def mpa_request_pd(t):
    for size in (0, 1, 4, 100, 255):
        for flags, revision, data in ((CRC, 1, b""), (CRC | ENHANCED, 2, DEPTHS)):
            raw = t.dial()
            raw.push(frame(REQUEST, flags, revision, data + PATTERN[:size]))
            event, id_ = t.request()
            # The event that librdmacm shows has no exact length, so zeros may follow.
            assert event.private[:size] == PATTERN[:size], f"{size} octets arrive as {event}"
            id_.reject()
            raw.frame()


@row("mpa-request-pd-long", "RFC 5044 7.1.1", "the program sees all of 508 octets of private data",
     deviation="length is a u8 in the core's events: 255")
def mpa_request_pd_long(t):
    raw = t.dial()
    raw.push(frame(REQUEST, CRC | ENHANCED, 2, DEPTHS + PATTERN[:508]))
    event, _ = t.request()
    assert event.private == PATTERN[:508], f"{len(event.private)} of 508 octets"


@row("mpa-reply-pd", "RFC 5044 7.1.1", "private data of accept and reject is in the reply")
def mpa_reply_pd(t):
    for size in (0, 1, 100, 255):
        conn = t.passive(private=PATTERN[:size])
        assert conn.frame.private == PATTERN[:size], conn.frame
        conn.id.destroy()
        raw = t.dial()
        raw.push(frame(REQUEST, CRC | ENHANCED, 2, DEPTHS))
        _, id_ = t.request()
        id_.reject(PATTERN[:size])
        reply = raw.frame()
        assert reply.private == PATTERN[:size] and reply.flags & REJECT, reply


@row("mpa-reject", "RFC 5044 7.1.1", "a rejected request: R set in the reply, then the connection is closed")
def mpa_reject(t):
    for flags, revision, data in ((CRC, 1, b""), (CRC | ENHANCED, 2, DEPTHS)):
        raw = t.dial()
        raw.push(frame(REQUEST, flags, revision, data))
        _, id_ = t.request()
        id_.reject(b"no")
        reply = raw.frame()
        assert reply.flags & REJECT and reply.revision == revision and reply.private == b"no", reply
        raw.end()
        id_.no_event(0.1)


@row("mpa-request-short", "RFC 5044 7.1.2", "a request that ends before its private data: no request to the program")
def mpa_request_short(t):
    whole = frame(REQUEST, CRC, 1, b"hello")
    for length in (0, 1, 15, 16, 19, 20, 24):
        refused(t, whole[:length], fin=True)


@row("mpa-request-pieces", "RFC 5044 7.1.2", "a request may come octet by octet")
def mpa_request_pieces(t):
    raw = t.dial()
    for byte in frame(REQUEST, CRC | ENHANCED, 2, DEPTHS + b"piecemeal"):
        raw.push(bytes([byte]))
    event, id_ = t.request()
    assert event.private[:9] == b"piecemeal", event
    id_.make_qp().accept()
    assert raw.frame().key == REPLY


@row("mpa-request-fpdu-behind", "RFC 5044 7.1.2", "an FPDU right behind the request, in its segment, is not lost", OWN)
def mpa_request_fpdu_behind(t):
    framer = wire.Framer()
    mr = t.mr()
    conn = t.passive(behind=framer.fpdu(wire.send(1, b"eager")), before_accept=lambda id_: id_.post_recv(mr))
    assert conn.wc().byte_len == 5 and mr.get(0, 5) == b"eager"
    conn.raw.tx, conn.msn = framer, 2
    conn.echo()


@row("mpa-responder-waits", "RFC 5044 7.1.2", "a responder sends no FPDU before it has received one",
     deviation="only for 100 ms, unless an RTR was agreed: most programs do not know that rule")
def mpa_responder_waits(t):
    mr = t.mr()
    conn = t.passive()
    conn.post_send(mr, 100)
    conn.silent(5)


@row("mpa-responder-then-sends", "RFC 5044 7.1.2", "a responder sends as soon as it has received a valid FPDU")
def mpa_responder_then_sends(t):
    mr = t.mr()
    conn = t.passive()
    conn.post_send(mr, 100)
    conn.send(wire.write(1, 0))
    segment, data = conn.message()
    assert segment.opcode == wire.SEND and len(data) == 100, segment
    conn.wc()


@row("mpa-responder-bad-first", "RFC 5044 7.1.2", "an invalid first FPDU does not let the responder send")
def mpa_responder_bad_first(t):
    mr = t.mr()
    # With an agreed RTR it waits long enough for a slow machine.
    conn = t.passive(data=depths(16 | A_P2P, 16 | C_WRITE))
    conn.post_send(mr, 100)
    conn.send(wire.write(1, 0), crc_xor=1)
    segment = conn.segment()
    assert not segment or segment.opcode == wire.TERMINATE, f"the responder sends {segment}"


# --- Start-up, initiator

@row("mpa-reply-key", "RFC 5044 7.1.2", "a reply with a wrong key: the initiator closes, the program is told")
def mpa_reply_key(t):
    answered(t, frame(b"MPA ID Rep Fraud", CRC, 2))
    answered(t, b"HTTP/1.1 400 Bad Request\r\n\r\n")


@row("mpa-reply-key-octet", "RFC 5044 7.1.2", "octets that no reply begins with: the initiator does not wait for more", OWN)
def mpa_reply_key_octet(t):
    # If it waited, the event would be UNREACHABLE in the end.
    answered(t, b"?")
    answered(t, REPLY[:15] + b"?")


@row("mpa-both-initiators", "RFC 5044 7.1.2", "a request where a reply is due (both sides began): closed")
def mpa_both_initiators(t):
    answered(t, frame(REQUEST, CRC | ENHANCED, 2, DEPTHS))


@row("mpa-reply-pd-513", "RFC 5044 7.1.1", "a reply with PD_Length above 512: the initiator closes")
def mpa_reply_pd_513(t):
    answered(t, frame(REPLY, CRC | ENHANCED, 2, DEPTHS + bytes(509)))
    answered(t, frame(REPLY, CRC | ENHANCED, 2, DEPTHS, length=65535))


@row("mpa-reply-pd-512", "RFC 5044 7.1.1", "a reply with 512 octets of private data is accepted")
def mpa_reply_pd_512(t):
    t.active(data=DEPTHS + PATTERN[:508]).echo()


@row("mpa-reply-pd-shown", "RFC 5044 7.1.1", "the program sees the private data of the reply")
def mpa_reply_pd_shown(t):
    for size in (0, 1, 100, 255):
        id_, raw, _ = t.calling()
        raw.push(frame(REPLY, CRC | ENHANCED, 2, DEPTHS + PATTERN[:size]))
        event = id_.event("ESTABLISHED", status=0)
        assert event.private[:size] == PATTERN[:size], event


@row("mpa-request-private", "RFC 5044 7.1.1", "private data of connect is in the request")
def mpa_request_private(t):
    for size in (0, 1, 100, 255):
        _, _, request = t.calling(private=PATTERN[:size])
        assert request.private == PATTERN[:size], request


@row("mpa-reply-reserved", "RFC 5044 7.1.1", "reserved bits of a reply are not checked")
def mpa_reply_reserved(t):
    t.active(CRC | ENHANCED | 0x0f).echo()


LARGE = 0x08
LARGE_YES = 0x04


@row("mpa-large", "RFC 5044 7.1.1", "large_fpdus=1: the request offers them in a bit that others ignore; FPDUs exceed a segment if the reply accepts in another bit",
     OWN, params="large_fpdus=1")
def mpa_large(t):
    for reply in (0, LARGE_YES):
        conn = t.active(CRC | ENHANCED | reply)
        assert conn.frame.flags & (LARGE | LARGE_YES) == LARGE, conn.frame
        large_out(conn, bool(reply))
        stream_in(conn, (60000,), cut=30000)
        conn.id.destroy()


@row("mpa-large-echoed", "RFC 5044 7.1.1", "large_fpdus=1: a reply that keeps the reserved bits of the request, or sets all, does not agree: FPDUs fit a segment",
     OWN, params="large_fpdus=1")
def mpa_large_echoed(t):
    for reply in (LARGE, 0x0f):
        conn = t.active(CRC | ENHANCED | reply)
        assert conn.frame.flags & (LARGE | LARGE_YES) == LARGE, conn.frame
        large_out(conn, False)
        conn.id.destroy()


@row("mpa-large-offered", "RFC 5044 7.1.1", "large_fpdus=1: the reply accepts in a bit of its own if the request offers them; FPDUs may then exceed a segment",
     OWN, params="large_fpdus=1")
def mpa_large_offered(t):
    for request, reply in ((0, 0), (LARGE, LARGE_YES)):
        conn = t.passive(CRC | ENHANCED | request)
        assert conn.frame.flags & 0x0f == reply, conn.frame
        conn.send(wire.write(1, 0))
        large_out(conn, bool(request))
        conn.id.destroy()


def large_out(conn, agreed):
    mr = conn.target.mr(1 << 16)
    mr.put(PATTERN)
    conn.post_send(mr, 60000)
    got, most, last = b"", 0, False
    while not last:
        segment = conn.segment()
        got, most, last = got + segment.data, max(most, len(segment.data)), segment.last
    assert got == PATTERN[:60000]
    assert most > 20000 if agreed else most < 1500, most
    conn.wc()


@row("mpa-reply-reject", "RFC 5044 7.1.1", "R set in the reply: REJECTED with the private data, and closed")
def mpa_reply_reject(t):
    id_, raw, _ = t.calling()
    raw.push(frame(REPLY, CRC | ENHANCED | REJECT, 2, DEPTHS + b"go away"))
    event = id_.event("REJECTED", status=-111)
    assert event.private[:7] == b"go away", event
    raw.end()
    t.active().echo()


@row("mpa-reply-revision", "RFC 5044 7.1.2", "a reply of an unknown revision: closed")
def mpa_reply_revision(t):
    for revision in (0, 3):
        answered(t, frame(REPLY, CRC | ENHANCED, revision, DEPTHS))


@row("mpa-reply-short", "RFC 5044 7.1.2", "a reply that ends too early: the program is told")
def mpa_reply_short(t):
    whole = frame(REPLY, CRC | ENHANCED, 2, DEPTHS + b"hello")
    for length in (0, 1, 16, 20, 22, len(whole) - 1):
        answered(t, whole[:length], fin=True)


@row("mpa-reply-pieces", "RFC 5044 7.1.2", "a reply may come octet by octet")
def mpa_reply_pieces(t):
    id_, raw, _ = t.calling()
    for byte in frame(REPLY, CRC | ENHANCED, 2, DEPTHS + b"piecemeal"):
        raw.push(bytes([byte]))
    event = id_.event("ESTABLISHED", status=0)
    assert event.private[:9] == b"piecemeal", event


@row("mpa-reply-fpdu-behind", "RFC 5044 7.1.2", "an FPDU right behind the reply, in its segment, is delivered")
def mpa_reply_fpdu_behind(t):
    framer = wire.Framer()
    mr = t.mr()
    id_, raw, _ = t.calling(before_connect=lambda id_: id_.post_recv(mr))
    raw.push(frame(REPLY, CRC | ENHANCED, 2, DEPTHS) + framer.fpdu(wire.send(1, b"eager")))
    id_.event("ESTABLISHED", status=0)
    assert id_.wc().byte_len == 5 and mr.get(0, 5) == b"eager"


@row("mpa-initiator-waits", "RFC 5044 7.1.2", "the initiator sends no FPDU before it has a good reply")
def mpa_initiator_waits(t):
    id_, raw, _ = t.calling()
    raw.silent(0.5)
    raw.push(frame(REPLY, CRC | ENHANCED, 2, DEPTHS)[:-1])
    raw.silent(0.2)
    raw.push(frame(REPLY, CRC | ENHANCED, 2, DEPTHS)[-1:])
    id_.event("ESTABLISHED", status=0)


@row("mpa-request-garbled", "RFC 5044 7.1.2", "requests with random octets changed: accepted or closed, nothing else", OWN)
def mpa_request_garbled(t):
    rnd = random.Random(5044)
    for _ in range(100):
        data = bytearray(frame(REQUEST, CRC | ENHANCED, 2, DEPTHS + b"hello"))
        for _ in range(rnd.randrange(1, 4)):
            data[rnd.randrange(len(data))] = rnd.randrange(256)
        raw = t.dial()
        raw.push(bytes(data))
        raw.fin()
    t.unlisten()
    t.passive().echo()


@row("mpa-reply-garbled", "RFC 5044 7.1.2", "replies with random octets changed: the program gets one event, and no more", OWN)
def mpa_reply_garbled(t):
    rnd = random.Random(6581)
    for _ in range(40):
        data = bytearray(frame(REPLY, CRC | ENHANCED, 2, DEPTHS + b"hello"))
        for _ in range(rnd.randrange(1, 4)):
            data[rnd.randrange(len(data))] = rnd.randrange(256)
        id_, raw, _ = t.calling()
        raw.push(bytes(data))
        raw.fin()
        if id_.event("ESTABLISHED", "REJECTED", "CONNECT_ERROR").name == "ESTABLISHED":
            id_.event("DISCONNECTED")
        id_.no_event(0.01)
        id_.destroy()


# --- FPDUs

@row("mpa-fpdu-garbled", "RFC 5044 8", "a stream of random octets: the connection ends, and nothing was placed", OWN)
def mpa_fpdu_garbled(t):
    rnd = random.Random(5041)
    mr = t.mr()
    for _ in range(40):
        conn = t.passive()
        conn.post_recv(mr)
        conn.push(rnd.randbytes(rnd.randrange(20, 100)) + bytes(1 << 16))
        conn.any_end()
        conn.event("DISCONNECTED")
        conn.wc("WR_FLUSH_ERR")
        conn.id.destroy()
    mr.untouched()

@row("mpa-fpdu-mss", "RFC 5044 4.5", "an FPDU is not longer than the MSS")
def mpa_fpdu_mss(t):
    conn = t.passive()
    mr = t.mr(1 << 16)
    conn.send(wire.write(1, 0))
    conn.post_send(mr, 1 << 16)
    sizes = []
    while True:
        segment = conn.segment()
        # Length field, ULPDU, pad, CRC.
        sizes.append(-(-(2 + len(segment.ulpdu)) // 4) * 4 + 4)
        if segment.last:
            break
    mss = conn.raw.sock.getsockopt(6, 2)  # TCP_MAXSEG
    assert max(sizes) <= mss, f"an FPDU of {max(sizes)} octets, the MSS is {mss}"


@row("mpa-fpdu-fills", "RFC 5044 4.5", "full FPDUs fill the MSS to within 3 octets", OWN)
def mpa_fpdu_fills(t):
    conn = t.passive()
    mr = t.mr(1 << 16)
    conn.send(wire.write(1, 0))
    conn.post_send(mr, 1 << 16)
    first = conn.segment()
    while not conn.segment().last:
        pass
    size = -(-(2 + len(first.ulpdu)) // 4) * 4 + 4
    mss = conn.raw.sock.getsockopt(6, 2)
    assert mss - 3 <= size <= mss, f"an FPDU of {size} octets, the MSS is {mss}"


@row("mpa-mss-small", "RFC 5044 4.5", "an MSS too small for any FPDU: a ULPDU may still be 128 octets, and all arrives")
def mpa_mss_small(t):
    for mss in (88, 128, 536):
        conn = t.passive(raw=t.dial(mss=mss))
        stream_out(conn, [0, 1, 100, 127, 128, 1000, 20000])
        stream_in(conn, [5000])
        conn.id.destroy()


@row("mpa-pad", "RFC 5044 4.1", "FPDUs are padded with 0 to 3 zero octets to a multiple of 4, in both directions")
def mpa_pad(t):
    for conn in (t.passive(), t.active()):
        stream_out(conn, range(9))
        stream_in(conn, range(9))


@row("mpa-pad-not-checked", "RFC 5044 4.1", "the value of received pad octets is not checked")
def mpa_pad_not_checked(t):
    conn = t.passive()
    mr = t.mr()
    for size in (1, 2, 3):
        conn.post_recv(mr)
        pad = -(2 + 18 + size) % 4
        conn.send(wire.send(conn.msn, PATTERN[:size]), pad=b"\xff" * pad)
        conn.msn += 1
        assert conn.wc().byte_len == size


@row("mpa-ulpdu-largest", "RFC 5044 3", "a ULPDU of 64768 octets is received")
def mpa_ulpdu_largest(t):
    for conn in (t.passive(), t.active()):
        stream_in(conn, [64768 - 18], cut=1 << 16)


@row("mpa-ulpdu-too-short", "RFC 5044 8", "a ULPDU too short for its DDP header: Terminate, nothing delivered (CVE-class bug "
     "of siw: header underflow)")
def mpa_ulpdu_too_short(t):
    for lengths, ulpdu in ((range(14), wire.write(1, 0, b"x" * 64)), (range(18), wire.send(1, b"x" * 64))):
        for length in lengths:
            mr = t.mr(256)
            conn = t.passive()
            conn.post_recv(mr)
            conn.send(ulpdu[:length])
            conn.push(bytes(64))  # in case the device waits for more
            segment = conn.segment()
            assert segment and segment.opcode == wire.TERMINATE, f"ULPDU of {length} octets: {segment}"
            conn.wc("WR_FLUSH_ERR")
            mr.untouched()
            conn.id.destroy()


@row("mpa-fpdu-cut-short", "RFC 5044 8", "the connection ends within an FPDU, at each octet of its header: no delivery, no "
     "crash (CVE-2026-23242)")
def mpa_fpdu_cut_short(t):
    for ulpdu in (wire.send(1, b"abcd"), wire.write(1, 0, b"abcd")):
        data = wire.Framer().fpdu(ulpdu)
        for length in range(1, len(data)):
            mr = t.mr(64)
            conn = t.passive()
            conn.post_recv(mr)
            conn.push(data[:length])
            if length % 2:
                conn.fin()
            else:
                conn.reset()
            conn.event("DISCONNECTED")
            conn.wc("WR_FLUSH_ERR")
            conn.id.destroy()
            mr.dereg()


# --- CRC

@row("mpa-crc-default", "RFC 5044 4.4", "the CRC is asked for by default, in request and reply")
def mpa_crc_default(t):
    assert t.active().frame.flags & CRC, "request without C"
    assert t.passive().frame.flags & CRC, "reply without C"


@row("mpa-crc-one-side", "RFC 5044 4.4", "C of one side is enough: both directions have good CRCs and they are checked")
def mpa_crc_one_side(t):
    for conn in (t.passive(ENHANCED), t.active(ENHANCED)):
        conn.echo()
        conn.post_recv(t.mr())
        conn.send(wire.send(conn.msn, b"bad"), crc_xor=1)
        conn.terminate((2, 0, 2))
        conn.wc("WR_FLUSH_ERR")


@row("mpa-crc-one-side-peer", "RFC 5044 4.4", "crc=0, but the peer asks for the CRC: it is sent and checked",
     params="crc=0")
def mpa_crc_one_side_peer(t):
    for conn in (t.passive(CRC | ENHANCED), t.active(CRC | ENHANCED)):
        conn.echo()
        conn.post_recv(t.mr())
        conn.send(wire.send(conn.msn, b"bad"), crc_xor=1)
        conn.terminate((2, 0, 2))
        conn.wc("WR_FLUSH_ERR")


@row("mpa-crc-none", "RFC 5044 4.4", "neither side asks for the CRC: the field is there, and not checked", params="crc=0")
def mpa_crc_none(t):
    for conn in (t.passive(ENHANCED), t.active(ENHANCED)):
        assert not conn.frame.flags & CRC, conn.frame
        conn.echo()
        mr = t.mr()
        conn.post_recv(mr)
        conn.send(wire.send(conn.msn, b"fine"), crc_xor=0xdeadbeef)
        assert conn.wc().byte_len == 4 and mr.get(0, 4) == b"fine"


@row("mpa-crc-sizes", "RFC 5044 4.4", "CRCs are right for messages of all sizes, in both directions")
def mpa_crc_sizes(t):
    sizes = [1, 100, 511, 512, 513, 1400, 1500, 4096, 30000, 65536]
    for conn in (t.passive(), t.active()):
        stream_out(conn, sizes)
        stream_in(conn, sizes)


@row("mpa-crc-send", "RFC 5044 8", "a Send with a bad CRC: not delivered, Terminate L2/0/02")
def mpa_crc_send(t):
    for bit in (0, 9, 31):
        for conn in (t.passive(), t.active()):
            conn.post_recv(t.mr())
            conn.send(wire.send(1, b"spoilt"), crc_xor=1 << bit)
            conn.terminate((2, 0, 2))
            conn.wc("WR_FLUSH_ERR")


@row("mpa-crc-every-bit", "RFC 5044 4.4", "one flipped bit at any place of an FPDU: not delivered, the connection ends")
def mpa_crc_every_bit(t):
    good = wire.Framer().fpdu(wire.send(1, b"abcde"))
    for at in range(len(good)):
        mr = t.mr(256)
        conn = t.passive()
        conn.post_recv(mr)
        data = bytearray(good)
        data[at] ^= 1 << at % 8
        # A flipped bit in the length field may make the FPDU longer.
        conn.push(bytes(data) + bytes(70000 if at < 2 else 0))
        said, _ = conn.any_end()
        assert said, f"no Terminate for a flipped bit in octet {at}"
        wc = conn.wc(None)
        assert wc.status != "SUCCESS", f"flipped bit in octet {at}: {wc}"
        conn.id.destroy()
        mr.dereg()


@row("mpa-crc-write", "RFC 5044 4.4", "a Write or Read Response with a bad CRC, in one TCP segment: nothing of it is placed")
def mpa_crc_write(t):
    mr = t.mr()
    conn = t.passive()
    conn.send(wire.write(mr.rkey, mr.addr, b"spoilt"), crc_xor=1)
    conn.terminate((2, 0, 2))
    conn = t.passive()
    conn.send(wire.write(1, 0))
    conn.post_read(mr, 1, 0, 6)
    request = wire.ReadRequest(conn.segment().data)
    conn.send(wire.read_response(request.sink_stag, request.sink_to, b"spoilt"), crc_xor=1)
    conn.terminate((2, 0, 2))
    conn.wc("WR_FLUSH_ERR")
    mr.untouched()


@row("mpa-crc-write-pieces", "RFC 5044 4.4", "a Write with a bad CRC, in two TCP segments: nothing of it is placed")
def mpa_crc_write_pieces(t):
    mr = t.mr()
    conn = t.passive()
    data = conn.raw.tx.fpdu(wire.write(mr.rkey, mr.addr, b"spoilt"), crc_xor=1)
    conn.push(data[:-4])
    conn.raw.until_acknowledged()
    conn.push(data[-4:])
    conn.terminate((2, 0, 2))
    mr.untouched()


@row("mpa-crc-header", "RFC 5044 4.4", "a damaged header is a CRC error, not an error of its contents")
def mpa_crc_header(t):
    mr = t.mr()
    good = wire.Framer().fpdu(wire.write(mr.rkey, mr.addr, b"right"))
    conn = t.passive()
    wrong = wire.Framer().fpdu(wire.write(mr.rkey ^ 0x100, mr.addr, b"right"))
    conn.push(wrong[:-4] + good[-4:])
    conn.terminate((2, 0, 2))


@row("mpa-crc-header-pieces", "RFC 5044 4.4", "a damaged header is a CRC error, also of an FPDU that comes octet by octet, or with an FPDU before it")
def mpa_crc_header_pieces(t):
    for before in b"", b"ahead":
        mr, other = t.mr(), t.mr()
        conn = t.passive()
        ahead = conn.raw.tx.fpdu(wire.write(other.rkey, other.addr, before)) if before else b""
        good = wire.Framer().fpdu(wire.write(mr.rkey, mr.addr, b"right"))
        # The damaged header names another region that the peer may write to.
        wrong = wire.Framer().fpdu(wire.write(other.rkey, other.addr, b"wrong"))
        data = ahead + wrong[:-4] + good[-4:]
        conn.push(data[:len(ahead) + 9])
        for at in range(len(ahead) + 9, len(data)):
            conn.push(data[at:at + 1])
        conn.terminate((2, 0, 2))
        mr.untouched()
        if before:
            assert other.get(0, len(before)) == before, other.get(0, len(before))
        else:
            other.untouched()


@row("mpa-fpdu-over-window", "RFC 5044 4.4", "an FPDU arrives that does not fit the receive buffer of the socket as a whole")
def mpa_fpdu_over_window(t):
    sysctl = "/proc/sys/net/ipv4/tcp_rmem"
    with open(sysctl, encoding="ascii") as file:
        before = file.read()
    with open(sysctl, "w", encoding="ascii") as file:
        file.write("4096 8192 8192")
    try:
        conn, mr = t.active(), t.mr(60000)
        data = bytes(range(250)) * 240
        conn.push(conn.raw.tx.fpdu(wire.write(mr.rkey, mr.addr, data)))
        conn.echo()
        assert mr.get() == data
    finally:
        with open(sysctl, "w", encoding="ascii") as file:
            file.write(before)


@row("mpa-error-silences", "RFC 5044 8", "after a CRC error nothing more is delivered or placed")
def mpa_error_silences(t):
    mr, sink = t.mr(), t.mr()
    conn = t.passive()
    for _ in range(3):
        conn.post_recv(mr)
    good = wire.Framer()
    data = good.fpdu(wire.send(1, b"spoilt"), crc_xor=1) + good.fpdu(wire.write(sink.rkey, sink.addr, b"late")) + \
        good.fpdu(wire.send(2, b"late"))
    conn.push(data)
    conn.terminate((2, 0, 2))
    for _ in range(3):
        conn.wc("WR_FLUSH_ERR")
    sink.untouched()


@row("mpa-error-before", "RFC 5044 8", "what came before the bad FPDU is delivered")
def mpa_error_before(t):
    mr = t.mr()
    conn = t.passive()
    conn.post_recv(mr, 100)
    conn.post_recv(mr, 100, 100)
    framer = wire.Framer()
    conn.push(framer.fpdu(wire.send(1, b"good")) + framer.fpdu(wire.send(2, b"evil"), crc_xor=1))
    assert conn.wc().byte_len == 4
    conn.wc("WR_FLUSH_ERR")
    conn.terminate((2, 0, 2))


@row("mpa-error-terminate", "RFC 5044 8", "an MPA error does not close TCP before the ULP's Terminate; only a FIN follows")
def mpa_error_terminate(t):
    conn = t.passive()
    conn.post_recv(t.mr())
    conn.send(wire.send(1, b"spoilt"), crc_xor=1)
    term = conn.terminate((2, 0, 2))
    assert not (term.m or term.d or term.r), f"{term} carries headers"
    conn.event("DISCONNECTED")


# --- Markers

@row("mpa-markers-passive", "RFC 5044 4.3", "the initiator asks for markers: one every 512 octets of stream, the first one first")
def mpa_markers_passive(t):
    conn = t.passive(MARKERS | CRC | ENHANCED)
    stream_out(conn, [0, 1, 4, 474, 475, 476, 477, 478, 479, 480, 481, 500, 508, 512, 1024, 1448, 3000, 20000, 65536])


@row("mpa-markers-active", "RFC 5044 4.3", "the responder asks for markers: one every 512 octets of stream, the first one first")
def mpa_markers_active(t):
    rnd = random.Random(1)
    conn = t.active(MARKERS | CRC | ENHANCED)
    stream_out(conn, [rnd.randrange(1500) for _ in range(60)])


@row("mpa-markers-nocrc", "RFC 5044 4.3", "markers without CRCs", params="crc=0")
def mpa_markers_nocrc(t):
    for conn in (t.passive(MARKERS | ENHANCED), t.active(MARKERS | ENHANCED)):
        stream_out(conn, [1, 500, 512, 20000])


@row("mpa-markers-read", "RFC 5044 4.3", "Writes, Read Requests and Read Responses with markers, too")
def mpa_markers_read(t):
    conn = t.passive(MARKERS | CRC | ENHANCED)
    mr = t.mr(1 << 14)
    mr.put(PATTERN[:1 << 14])
    conn.send(wire.read_request(1, 0x1234, 0x5678, 10000, mr.rkey, mr.addr))
    segment, data = conn.message()
    assert segment.opcode == wire.READ_RESPONSE and data == PATTERN[:10000], segment
    conn.post_write(mr, 0x99, 0x77, 9000, wr_id=1)
    segment, data = conn.message()
    assert (segment.opcode, segment.stag, segment.to) == (wire.WRITE, 0x99, 0x77) and data == PATTERN[:9000], segment
    conn.wc(wr_id=1)
    conn.post_read(mr, 0x99, 0x77, 100, wr_id=2)
    request = wire.ReadRequest(conn.segment().data)
    assert request.size == 100, request
    conn.send(wire.read_response(request.sink_stag, request.sink_to, bytes(100)))
    conn.wc(wr_id=2)


@row("mpa-markers-terminate", "RFC 5044 4.3", "a Terminate on a stream with markers")
def mpa_markers_terminate(t):
    conn = t.passive(MARKERS | CRC | ENHANCED)
    stream_out(conn, [450, 460])
    conn.send(wire.write(0xbad00, 0, b"x"))
    conn.terminate((1, 1, 0))


@row("mpa-markers-none", "RFC 5044 4.3", "no markers without M; this driver does not ask for them")
def mpa_markers_none(t):
    conn = t.passive()
    assert not conn.frame.flags & MARKERS, conn.frame
    stream_out(conn, [600, 1200])
    assert not t.active().frame.flags & MARKERS


# --- The end

@row("mpa-close-fin", "RFC 5044 7.2", "the peer closes between FPDUs: DISCONNECTED, what is posted is flushed")
def mpa_close_fin(t):
    for conn in (t.passive(), t.active()):
        conn.echo()
        conn.post_recv(t.mr(), wr_id=5)
        conn.fin()
        conn.event("DISCONNECTED")
        conn.wc("WR_FLUSH_ERR", wr_id=5)
        conn.end()
        assert conn.query().qp_state != RTS


@row("mpa-close-last-fpdu", "RFC 5044 7.2", "what the peer sent before its FIN, in the same segment, is delivered")
def mpa_close_last_fpdu(t):
    for conn in (t.passive(), t.active()):
        mr = t.mr()
        conn.post_recv(mr)
        conn.raw.sock.setsockopt(6, 3, 1)  # TCP_CORK
        conn.send(wire.send(1, b"last words"))
        conn.fin()
        assert conn.wc().byte_len == 10 and mr.get(0, 10) == b"last words"
        conn.event("DISCONNECTED")


@row("mpa-disconnect", "RFC 5044 7.2", "rdma_disconnect: what was posted is sent whole, then FIN, no Terminate")
def mpa_disconnect(t):
    for conn in (t.passive(), t.active()):
        mr = t.mr(1 << 16)
        mr.put(PATTERN)
        conn.send(wire.write(1, 0))
        conn.post_send(mr)
        conn.wc()
        conn.disconnect()
        segment, data = conn.message()
        assert segment.opcode == wire.SEND and data == PATTERN
        conn.no_terminate()
        conn.fin()
        conn.event("DISCONNECTED")


@row("mpa-peer-terminate", "RFC 5044 8", "a Terminate of the peer ends the connection; it is not answered with one")
def mpa_peer_terminate(t):
    for conn in (t.passive(), t.active()):
        conn.post_recv(t.mr())
        conn.send(wire.terminate(2, 0, 2))
        conn.no_terminate()
        conn.wc("WR_FLUSH_ERR")
        conn.event("DISCONNECTED")
