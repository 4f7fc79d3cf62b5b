# SPDX-License-Identifier: GPL-2.0
"""RFC 7306: Immediate Data and atomic operations."""

import struct

import verbs
import wire
from refusal import U64, carries, ended, flushed, refused
from rows import OWN, row
from rows_memory import reading
from rows_zcopy import counter
from target import shown, wait_until
from verbs import LOCAL_WRITE, MW_BIND, ONE_TOUCH, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, SOLICITED, SIGNALED

ATOMIC = LOCAL_WRITE | REMOTE_ATOMIC
ALL_ONES = U64 - 1
LARGE, SEND_IMM, SEND_IMM_YES = 0x08, 0x02, 0x01  # bits of a start-up frame


def word(mr, offset=0):
    return struct.unpack("=Q", mr.get(offset, 8))[0]


def target(t, value, access=ATOMIC, size=64):
    mr = t.mr(size, access=access)
    mr.put(struct.pack("=Q", value))
    return mr


def fetch_add(mr, add, mask=0, msn=1, offset=0, **more):
    return wire.atomic_request(msn, mr.rkey, mr.addr + offset, wire.FETCH_ADD, add, mask, **more)


def cmp_swap(mr, compare, swap, compare_mask=ALL_ONES, swap_mask=ALL_ONES, msn=1, offset=0, **more):
    return wire.atomic_request(msn, mr.rkey, mr.addr + offset, wire.CMP_SWAP, swap, swap_mask, compare, compare_mask,
                               **more)


def original(conn, msn=1, ident=0x1d):
    """The device answers an Atomic Request. Returns what the target was."""
    segment = conn.segment()
    assert segment and segment.opcode == wire.ATOMIC_RESPONSE, f"no Atomic Response but {segment}"
    assert (segment.tagged, segment.last, segment.qn, segment.msn, segment.mo, segment.inv) == \
        (False, True, wire.QN_ATOMIC, msn, 0, 0), segment
    got, value = struct.unpack(">IQ", segment.data)
    assert got == ident, f"identifier {got:#x}"
    return value


def asked(conn, msn):
    """The device sends an Atomic Request with that MSN."""
    segment = conn.segment()
    assert segment and segment.opcode == wire.ATOMIC_REQUEST, f"no Atomic Request but {segment}"
    assert (segment.tagged, segment.last, segment.qn, segment.msn, segment.mo, segment.inv) == \
        (False, True, wire.QN_READ, msn, 0, 0), segment
    return wire.AtomicRequest(segment.data)


# --- Immediate Data

@row("imm-in", "RFC 7306 6.3", "Immediate Data takes a receive buffer and is delivered, in the order of the Sends")
def imm_in(t):
    conn, mr = t.passive(), t.mr(64)
    for wr_id in range(1, 5):
        conn.post_recv(mr, 8, wr_id=wr_id)
    conn.send(wire.send(1, b"first"), wire.immediate(2, b"datarest"),
              wire.write(mr.rkey, mr.addr + 8, b"written"), wire.immediate(3, b"wrt\1    ", opcode=wire.IMMEDIATE_SE),
              wire.send(4, b"last"))
    for wr_id, opcode, size, data in ((1, verbs.WC_RECV, 5, None), (2, verbs.WC_RECV_IMM, 0, b"data"),
                                      (3, verbs.WC_RECV_IMM, 7, b"wrt\1"), (4, verbs.WC_RECV, 4, None)):
        wc = conn.wc(wr_id=wr_id)
        assert (wc.opcode, wc.byte_len) == (opcode, size), wc
        assert bool(wc.wc_flags & verbs.WITH_IMM) == bool(data), wc
        if data:
            assert struct.pack("=I", wc.imm_data) == data, f"{wc.imm_data:#x}"
    assert mr.get(8, 7) == b"written"


@row("imm-in-solicited", "RFC 7306 6.3", "Immediate Data with Solicited Event raises one, and without it none")
def imm_in_solicited(t):
    conn, mr, cq = t.passive(), t.mr(64), t.cq
    for msn, opcode in (1, wire.IMMEDIATE), (2, wire.IMMEDIATE_SE):
        conn.post_recv(mr, 8, wr_id=msn)
        cq.arm(solicited=True)
        conn.send(wire.immediate(msn, bytes(8), opcode=opcode))
        if opcode == wire.IMMEDIATE_SE:
            assert cq.event()
        else:
            wait_until(lambda: bool(cq.unread.extend(cq.poll()) or cq.unread), "the completion is there")
            assert not cq.event(0.1), "an event that was not solicited"
        conn.wc(wr_id=msn)


@row("imm-in-length", "RFC 7306 6.3", "Immediate Data of another length than 8 octets is an error: 0/2/FF, 1/2/05")
def imm_in_length(t):
    mr = t.mr(64)
    for size, last, code in ((0, True, (0, 2, 0xff)), (4, True, (0, 2, 0xff)), (7, True, (0, 2, 0xff)),
                             (9, True, (1, 2, 5)), (16, True, (1, 2, 5)), (8, False, (1, 2, 5))):
        conn = t.passive()
        conn.post_recv(mr, wr_id=1)
        refused(conn, code, wire.immediate(1, bytes(size), last=last))
        flushed(conn, 1) if code[0] == 0 else conn.wc(None, 1)
        mr.untouched()


@row("imm-in-queue", "RFC 7306 4.1", "Immediate Data on another queue, MSN or offset is an error: 1/2/01, 1/2/03, 1/2/04")
def imm_in_queue(t):
    mr = t.mr(64)
    for code, fields in (((1, 2, 1), {"qn": 1}), ((1, 2, 1), {"qn": 3}), ((1, 2, 3), {"msn": 2})):
        conn = t.passive()
        conn.post_recv(mr, wr_id=1)
        refused(conn, code, wire.immediate(**{"msn": 1, "data": bytes(8), **fields}))
        flushed(conn, 1)
    conn = t.passive()
    refused(conn, (1, 2, 4), wire.untagged(0, 1, 8, bytes(8), wire.IMMEDIATE))


@row("imm-in-no-buffer", "RFC 7306 6.3", "Immediate Data without a receive buffer is an error: 1/2/02")
def imm_in_no_buffer(t):
    refused(t.passive(), (1, 2, 2), wire.immediate(1, bytes(8)))


@row("imm-in-middle", "RFC 7306 6.3", "Immediate Data in the middle of a Send is an error: 0/2/06")
def imm_in_middle(t):
    conn, mr = t.passive(), t.mr(64)
    conn.post_recv(mr, wr_id=1)
    refused(conn, (0, 2, 6), wire.send(1, b"half", last=False),
            wire.untagged(0, 1, 4, bytes(8), wire.IMMEDIATE))
    flushed(conn, 1)


@row("imm-in-between", "RFC 7306 7", "A Write counts for the Immediate Data behind it alone, a Read or a Write before a Send for none")
def imm_in_between(t):
    conn, mr = t.passive(), t.mr(64)
    for wr_id in range(1, 6):
        conn.post_recv(mr, 8, wr_id=wr_id)
    conn.send(wire.immediate(1, bytes(8)), wire.write(mr.rkey, mr.addr, b"part", last=False),
              wire.write(mr.rkey, mr.addr + 4, b"s"), reading(mr, 4), wire.immediate(2, bytes(8)),
              wire.immediate(3, bytes(8)), wire.write(mr.rkey, mr.addr, b"parts"), wire.send(4, b""),
              wire.immediate(5, bytes(8)))
    assert [conn.wc(wr_id=wr_id).byte_len for wr_id in range(1, 6)] == [0, 5, 0, 0, 0]


@row("imm-out", "RFC 7306 6.3", "A Write with immediate data is a Write, and Immediate Data of 8 octets behind it")
def imm_out(t):
    conn, mr = t.active(), t.mr(4000)
    mr.put(bytes(i % 251 for i in range(4000)))
    msn = 1
    for size, flags in ((5, 0), (4000, 0), (0, 0), (5, SOLICITED), (5, verbs.INLINE)):
        conn.post(verbs.WR_WRITE_IMM, mr, size, wr_id=size, flags=SIGNALED | flags, rkey=0x77, remote=0x1000,
                  invalidate=struct.unpack("=I", b"imm%c" % msn)[0])
        segment, data = conn.message()
        assert (segment.opcode, segment.stag, segment.to) == (wire.WRITE, 0x77, 0x1000) and data == mr.get(0, size)
        segment = conn.segment()
        want = wire.IMMEDIATE_SE if flags == SOLICITED else wire.IMMEDIATE
        assert (segment.opcode, segment.qn, segment.msn, segment.mo, segment.inv, segment.last) == \
            (want, 0, msn, 0, 0, True), segment
        assert segment.data == b"imm%c\0\0\0\0" % msn, segment.data
        wc = conn.wc(wr_id=size)
        assert wc.opcode == verbs.WC_WRITE, wc
        msn += 1
    # Sends go on in the same queue.
    conn.post_send(mr, 4)
    assert conn.segment().msn == msn


@row("imm-out-lists", OWN, "Immediate data can come with a list of five elements, and is refused with six", kind=OWN)
def imm_out_lists(t):
    conn, mr = t.active(send_sge=6), t.mr(64, fill=7)
    parts = [(mr.addr + i, 1, mr.lkey) for i in range(6)]
    conn.post(verbs.WR_WRITE_IMM, sges=parts[:5], rkey=1, invalidate=5)
    assert conn.message()[1] == b"\7" * 5 and conn.segment().opcode == wire.IMMEDIATE
    conn.wc()
    try:
        conn.post(verbs.WR_WRITE_IMM, sges=parts, rkey=1, invalidate=5)
        raise AssertionError("six elements are taken")
    except OSError as e:
        assert e.errno == 22, e


def no_send_imm(conn, mr):
    """A Send with immediate data of the peer is an error."""
    conn.post_recv(mr, wr_id=2)
    refused(conn, (0, 2, 6), wire.send(1, b"text", opcode=wire.SEND_IMM, inv=7))
    flushed(conn, 2)


@row("imm-send", OWN, "Sends with immediate data need a peer that agreed; else LOC_QP_OP_ERR", kind=OWN)
def imm_send(t):
    no_agreement(t, 0, 0)


@row("imm-send-off", OWN, "large_fpdus=0: nobody agrees on Sends with immediate data", kind=OWN, params="large_fpdus=0")
def imm_send_off(t):
    no_agreement(t, SEND_IMM_YES, SEND_IMM)


def no_agreement(t, reply, request):
    """There is none after a reply and a request with these bits."""
    mr = t.mr(64)
    conn = t.active(wire.CRC | wire.ENHANCED | reply)
    conn.post(verbs.WR_SEND_IMM, mr, 4, wr_id=1, invalidate=7)
    conn.wc("LOC_QP_OP_ERR", 1)
    conn = t.passive(wire.CRC | wire.ENHANCED | request)
    assert not conn.frame.flags & 0x0f, conn.frame
    no_send_imm(conn, mr)


@row("imm-send-agreed", OWN, "A Send with immediate data between ends that agreed is one message, of any length",
     kind=OWN, params="large_fpdus=1")
def imm_send_agreed(t):
    mr = t.mr(40000)
    conn = t.active(wire.CRC | wire.ENHANCED | SEND_IMM_YES)
    assert conn.frame.flags & 0x0f == LARGE | SEND_IMM, conn.frame
    for msn, size, flags in (1, 4, 0), (2, 0, SOLICITED), (3, 40000, 0):
        conn.post(verbs.WR_SEND_IMM, mr, size, wr_id=msn, flags=SIGNALED | flags, invalidate=struct.unpack("=I", b"imm\3")[0])
        first, data = conn.message()
        assert (first.opcode, first.msn, first.inv) == (wire.SEND_IMM, msn, 0x696d6d03), first
        assert bool(first.rdmap_rsvd) == bool(flags) and len(data) == size, first
        assert conn.wc(wr_id=msn).opcode == verbs.WC_SEND
    conn = t.passive(wire.CRC | wire.ENHANCED | SEND_IMM)
    assert conn.frame.flags & 0x0f == SEND_IMM_YES, conn.frame
    conn.post_recv(mr, wr_id=1)
    conn.post_recv(mr, wr_id=2)
    conn.send(wire.send(1, b"two ", last=False, opcode=wire.SEND_IMM, inv=0x696d6d03),
              wire.send(1, b"parts", mo=4, opcode=wire.SEND_IMM, inv=0x696d6d03), wire.send(2, b"plain"))
    wc = conn.wc(wr_id=1)
    assert (wc.opcode, wc.byte_len, wc.wc_flags) == (verbs.WC_RECV, 9, verbs.WITH_IMM), wc
    assert struct.pack("=I", wc.imm_data) == b"imm\3"
    assert not conn.wc(wr_id=2).wc_flags


@row("imm-send-echoed", OWN, "Who echoes the reserved bits, sets all or does not know them agrees on no Sends with immediate data",
     kind=OWN, params="large_fpdus=1")
def imm_send_echoed(t):
    mr = t.mr(64)
    for bits in LARGE | SEND_IMM, 0x0f, 0:
        conn = t.active(wire.CRC | wire.ENHANCED | bits)
        conn.post(verbs.WR_SEND_IMM, mr, 4, wr_id=1)
        conn.wc("LOC_QP_OP_ERR", 1)
    for bits in 0, LARGE, SEND_IMM_YES:
        conn = t.passive(wire.CRC | wire.ENHANCED | bits)
        assert not conn.frame.flags & SEND_IMM_YES, conn.frame
        no_send_imm(conn, mr)


# --- Atomic operations of the peer

@row("atomic-add", "RFC 7306 5.1.1", "FetchAdd adds to the target, and returns what it was")
def atomic_add(t):
    conn, mr = t.passive(), target(t, 40)
    for msn, add, before in ((1, 2, 40), (2, 0, 42), (3, U64 - 2, 42), (4, U64 - 41, 40), (5, 1, U64 - 1)):
        conn.send(fetch_add(mr, add, msn=msn, ident=msn * 7))
        assert original(conn, msn, msn * 7) == before
        assert word(mr) == (before + add) % U64
    assert mr.get(8) == bytes(56)
    mr.intact()
    conn.id.cq.none()


@row("atomic-add-masked", "RFC 7306 5.1.1", "FetchAdd with a mask adds fields, without a carry from one to the next")
def atomic_add_masked(t):
    conn, mr = t.passive(), target(t, 0x00ff_ffff_80ff_7fff)
    conn.send(fetch_add(mr, 0x0001_0001_8001_0001, mask=0x8000_8000_8000_8000))
    assert original(conn) == 0x00ff_ffff_80ff_7fff
    assert word(mr) == 0x0100_0000_0100_8000, f"{word(mr):#x}"


@row("atomic-swap", "RFC 7306 5.1.2", "CmpSwap replaces the target if it is equal, and returns what it was in any case")
def atomic_swap(t):
    conn, mr = t.passive(), target(t, 5)
    for msn, (compare, swap, before, after) in enumerate(((4, 9, 5, 5), (5, 9, 5, 9), (9, U64 - 1, 9, U64 - 1),
                                                          (U64 - 1, 0, U64 - 1, 0)), 1):
        conn.send(cmp_swap(mr, compare, swap, msn=msn))
        assert original(conn, msn) == before and word(mr) == after, f"{word(mr):#x}"


@row("atomic-swap-masked", "RFC 7306 5.1.2", "CmpSwap with masks compares and replaces those bits alone")
def atomic_swap_masked(t):
    conn, mr = t.passive(), target(t, 0x1122_3344_5566_7788)
    conn.send(cmp_swap(mr, 0xff, 0, compare_mask=0xff, swap_mask=0xff),
              cmp_swap(mr, 0xaaaa_aaaa_aaaa_aa88, 0xbbbb_bbbb_bbbb_bbbb, compare_mask=0xff, swap_mask=0xff00, msn=2))
    assert original(conn) == original(conn, 2) == 0x1122_3344_5566_7788
    assert word(mr) == 0x1122_3344_5566_bb88, f"{word(mr):#x}"


@row("atomic-reserved", "RFC 7306 5.2.1", "Reserved bits of an Atomic Request are ignored")
def atomic_reserved(t):
    conn, mr = t.passive(), target(t, 1)
    conn.send(wire.atomic_request(1, mr.rkey, mr.addr, 0xffff_fff0, 1, 0, compare=77, compare_mask=0, inv=mr.rkey,
                                  rdmap_rsvd=3, ddp_rsvd=15))
    assert original(conn) == 1 and word(mr) == 2


@row("atomic-unaligned", "RFC 7306 8.2", "A target that is not aligned is an error, and not modified: 0/2/07")
def atomic_unaligned(t):
    for offset in range(1, 8):
        mr = target(t, 0)
        for request in fetch_add(mr, 1, offset=offset), cmp_swap(mr, 0, 1, offset=offset):
            conn = t.passive()
            refused(conn, (0, 2, 7), request)
            ended(conn)
            assert t.async_event() == "QP_REQ_ERR"
            mr.untouched()


@row("atomic-code", "RFC 7306 5.2.1", "An Atomic Operation Code that is not supported is an error: 0/2/06")
def atomic_code(t):
    mr = target(t, 0)
    for code in [1] + list(range(3, 16)):
        refused(t.passive(), (0, 2, 6), wire.atomic_request(1, mr.rkey, mr.addr, code, 1, ALL_ONES))
        mr.untouched()


@row("atomic-length", "RFC 7306 5.2.1", "An Atomic Request of another length, or not the last, is an error: 0/2/FF, 1/2/05")
def atomic_length(t):
    mr = target(t, 0)
    refused(t.passive(), (0, 2, 0xff), fetch_add(mr, 1)[:-1])
    refused(t.passive(), (1, 2, 5), fetch_add(mr, 1, rest=b"x"))
    refused(t.passive(), (1, 2, 5), fetch_add(mr, 1, last=False))
    mr.untouched()


@row("atomic-queue", "RFC 7306 5.2", "Atomic Requests share the queue and the MSNs of Read Requests: else 1/2/01, 1/2/03")
def atomic_queue(t):
    mr = target(t, 0, access=ATOMIC | REMOTE_READ)
    for qn in 0, 2, 3:
        refused(t.passive(), (1, 2, 1), fetch_add(mr, 1, qn=qn))
    for msn in 0, 2:
        refused(t.passive(), (1, 2, 3), fetch_add(mr, 1, msn=msn))
    conn = t.passive()
    conn.send(reading(mr, 8, msn=1), fetch_add(mr, 3, msn=2), reading(mr, 8, msn=3), fetch_add(mr, 3, msn=4))
    # Answered in their order; the Atomic Responses have MSNs of their own.
    assert conn.message()[1] == struct.pack("=Q", 0)
    assert original(conn, 1) == 0
    assert conn.message()[1] == struct.pack("=Q", 3)
    assert original(conn, 2) == 3
    refused(conn, (1, 2, 3), fetch_add(mr, 1, msn=4))


@row("atomic-depth", "RFC 7306 5.2.2", "More requests than the agreed depth, Reads and atomics together, are an error: 1/2/02")
def atomic_depth(t):
    mr = target(t, 0, access=ATOMIC | REMOTE_READ, size=1 << 20)
    conn = t.passive(ird=4, peer_ord=4)
    # The first answer does not fit, so that the others wait.
    conn.send(reading(mr, 1 << 20, msn=1), *(fetch_add(mr, 1, msn=msn) for msn in (2, 3, 4)), reading(mr, msn=5))
    conn.until_end()
    while (segment := conn.segment()).opcode != wire.TERMINATE:
        assert segment.opcode == wire.READ_RESPONSE, segment
    assert wire.Terminate(segment.data).code == (1, 2, 2)
    assert word(mr) == 0


@row("atomic-rights", "RFC 5040 8.1.1", "An atomic operation needs the right to it, and the checks of a Read: 0/1/00 to 0/1/04")
def atomic_rights(t):
    def no(code, request, mr):
        conn = t.passive()
        term = refused(conn, (0, 1, code), request)
        carries(term, request)
        ended(conn)
        assert t.async_event() == "QP_ACCESS_ERR"
        mr.untouched()

    denied, stale = counter("access_error"), counter("stale_stag")
    for access in LOCAL_WRITE, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ:
        mr = target(t, 0, access=access)
        no(2, fetch_add(mr, 1), mr)
        no(2, cmp_swap(mr, 0, 1), mr)
    mr = target(t, 0)
    for code, stag, to in ((0, mr.rkey ^ 1, mr.addr), (0, mr.rkey ^ 0x100, mr.addr), (1, mr.rkey, mr.addr + 64),
                           (1, mr.rkey, mr.addr - 8), (1, mr.rkey, 0), (4, mr.rkey, U64 - 4)):
        no(code, wire.atomic_request(1, stag, to, wire.FETCH_ADD, 1, 0), mr)
    mr = t.mr(64, access=ATOMIC, pd=t.make_pd())
    no(3, fetch_add(mr, 1), mr)
    assert (counter("access_error") - denied, counter("stale_stag") - stale) == (9, 2)


@row("atomic-revoked", "RFC 5040 8.1.1", "An atomic operation that waits for its turn is not executed after the region has gone: 0/1/00")
def atomic_revoked(t):
    big, mr = t.mr(1 << 22, access=REMOTE_READ), target(t, 0)
    conn = t.passive()
    conn.send(reading(big, 1 << 22, msn=1), fetch_add(mr, 1, msn=2))
    # TCP takes no more from the device.
    assert conn.segment().opcode == wire.READ_RESPONSE
    mr.dereg()
    conn.until_end()
    while (segment := conn.segment()).opcode == wire.READ_RESPONSE:
        pass
    term = wire.Terminate(segment.data)
    assert term.code == (0, 1, 0) and term.m and term.d and not term.r, term
    header = wire.Segment(term.ddp)
    assert (header.qn, header.msn, header.mo, header.opcode) == (1, 2, 0, wire.ATOMIC_REQUEST), header
    assert word(mr) == 0


@row("atomic-window", OWN, "A window with the right to it lets a peer operate on its part of the region", kind=OWN)
def atomic_window(t):
    mr, conn = t.mr(64, access=LOCAL_WRITE | MW_BIND), t.passive()
    for kind in 1, 2:
        window = t.window(kind).bind(conn, mr, offset=8 * kind, length=8, access=REMOTE_ATOMIC)
        conn.send(wire.atomic_request(kind, window.rkey, mr.addr + 8 * kind, wire.FETCH_ADD, 5, 0))
        assert original(conn, kind) == 0 and word(mr, 8 * kind) == 5
    other = t.window(1).bind(conn, mr, length=8, access=REMOTE_READ | REMOTE_WRITE)
    refused(conn, (0, 1, 2), wire.atomic_request(3, other.rkey, mr.addr, wire.FETCH_ADD, 5, 0))


@row("atomic-touch", OWN, "An atomic operation is the one message of a one-touch region", kind=OWN)
def atomic_touch(t):
    mr, conn = target(t, 1, access=ATOMIC | ONE_TOUCH), t.passive()
    conn.send(fetch_add(mr, 1))
    assert original(conn) == 1
    assert shown(mr.rkey)["valid"] == "0"
    denied = counter("one_touch_refused")
    refused(conn, (0, 1, 0), fetch_add(mr, 1, msn=2))
    assert word(mr) == 2
    assert counter("one_touch_refused") == denied + 1


@row("atomic-many", "RFC 7306 5.3", "Operations of several connections on one target are atomic")
def atomic_many(t):
    mr = target(t, 0)
    conns = [t.passive() for _ in range(4)]
    for first in range(1, 161, 16):
        for conn in conns:
            conn.send(*(fetch_add(mr, 1, msn=msn) for msn in range(first, first + 16)))
        for conn in conns:
            for msn in range(first, first + 16):
                original(conn, msn)
    assert word(mr) == 4 * 160


# --- Atomic operations of the program

@row("atomic-out", "RFC 7306 5.2.1", "An Atomic Request has the fields that the RFC wants, and completes with its response")
def atomic_out(t):
    conn, sink = t.active(), t.mr(64)
    conn.post(verbs.WR_FETCH_ADD, sink, 8, wr_id=1, rkey=0x77, remote=0x1000, atomic=(5,))
    request = asked(conn, 1)
    assert (request.code, request.stag, request.to, request.data, request.mask, request.compare,
            request.compare_mask) == (wire.FETCH_ADD, 0x77, 0x1000, 5, 0, 0, ALL_ONES), vars(request)
    conn.id.cq.none()
    conn.send(wire.atomic_response(1, request.ident, 0x0102_0304_0506_0708))
    wc = conn.wc(wr_id=1)
    assert (wc.opcode, wc.byte_len) == (verbs.WC_FETCH_ADD, 8), wc
    assert word(sink) == 0x0102_0304_0506_0708
    conn.post(verbs.WR_CMP_SWAP, sink, 8, offset=8, wr_id=2, rkey=0x78, remote=0x2000, atomic=(6, 9))
    request = asked(conn, 2)
    assert (request.code, request.stag, request.to, request.data, request.mask, request.compare,
            request.compare_mask) == (wire.CMP_SWAP, 0x78, 0x2000, 9, ALL_ONES, 6, ALL_ONES), vars(request)
    conn.send(wire.atomic_response(2, request.ident, 6))
    assert conn.wc(wr_id=2).opcode == verbs.WC_CMP_SWAP
    assert word(sink, 8) == 6 and sink.get(16) == bytes(48)
    sink.intact()


@row("atomic-out-order", "RFC 7306 7", "Reads and atomic operations share the depth, and the fence waits for both")
def atomic_out_order(t):
    conn, sink = t.active(peer_ird=2), t.mr(64)
    conn.post(verbs.WR_FETCH_ADD, sink, 8, wr_id=1, rkey=1, remote=0, atomic=(1,))
    conn.post_read(sink, 1, 0, 8, offset=8, wr_id=2)
    conn.post(verbs.WR_FETCH_ADD, sink, 8, offset=16, wr_id=3, rkey=1, remote=0, atomic=(1,))
    first = asked(conn, 1)
    segment = conn.segment()
    assert segment.opcode == wire.READ_REQUEST and segment.msn == 2, segment
    conn.silent()
    conn.send(wire.atomic_response(1, first.ident, 1))
    third = asked(conn, 3)
    conn.post_send(sink, 4, wr_id=4, flags=SIGNALED | verbs.FENCE)
    read = wire.ReadRequest(segment.data)
    conn.send(wire.read_response(read.sink_stag, read.sink_to, b"12345678"))
    conn.silent()
    conn.send(wire.atomic_response(2, third.ident, 3))
    assert conn.message()[0].opcode == wire.SEND
    for wr_id in 1, 2, 3, 4:
        conn.wc(wr_id=wr_id)
    # There is room for both.
    for msn, flags in (4, SIGNALED), (5, SIGNALED | verbs.FENCE):
        conn.post(verbs.WR_FETCH_ADD, sink, 8, wr_id=msn, rkey=1, remote=0, atomic=(1,), flags=flags)
    fourth = asked(conn, 4)
    conn.silent()
    conn.send(wire.atomic_response(3, fourth.ident, 4))
    conn.wc(wr_id=4)
    asked(conn, 5)


@row("atomic-out-wrong", "RFC 7306 5.2.2", "An Atomic Response that nobody asked for, or a wrong one, is an error, and places nothing")
def atomic_out_wrong(t):
    sink = t.mr(64)
    refused(t.active(), (0, 2, 6), wire.atomic_response(1, 1, 1))
    for code, fields in (((0, 2, 0xff), {"ident": 1}), ((1, 2, 3), {"msn": 2}), ((1, 2, 1), {"qn": 0}),
                         ((1, 2, 1), {"qn": 1}), ((1, 2, 5), {"rest": b"x"}), ((1, 2, 5), {"last": False})):
        conn = t.active()
        conn.post(verbs.WR_FETCH_ADD, sink, 8, wr_id=1, rkey=1, remote=0, atomic=(1,))
        ident = asked(conn, 1).ident
        fields.setdefault("ident", ident)
        if code == (0, 2, 0xff):
            fields["ident"] = ident ^ 0xff00
        refused(conn, code, wire.atomic_response(**{"msn": 1, "value": 1, **fields}))
        flushed(conn, 1)
    # A Read is the oldest.
    conn = t.active()
    conn.post_read(sink, 1, 0, 8, wr_id=1)
    conn.post(verbs.WR_FETCH_ADD, sink, 8, wr_id=2, rkey=1, remote=0, atomic=(1,))
    conn.segment()
    refused(conn, (0, 2, 6), wire.atomic_response(1, asked(conn, 2).ident, 1))
    flushed(conn, 1, 2)
    # And the other way round.
    conn = t.active()
    conn.post(verbs.WR_FETCH_ADD, sink, 8, wr_id=1, rkey=1, remote=0, atomic=(1,))
    conn.post_read(sink, 1, 0, 8, wr_id=2)
    asked(conn, 1)
    read = wire.ReadRequest(conn.segment().data)
    refused(conn, (0, 2, 6), wire.read_response(read.sink_stag, read.sink_to, b"12345678"))
    flushed(conn, 1, 2)
    sink.untouched()


@row("atomic-out-refused", "RFC 5040 7.1", "A Terminate that names an Atomic Request fails that work request, those before it are flushed")
def atomic_out_refused(t):
    sink = t.mr(64)
    for code, status in ((0, 1, 2), "REM_ACCESS_ERR"), ((0, 2, 7), "REM_INV_REQ_ERR"), ((0, 2, 9), "REM_OP_ERR"):
        conn = t.active()
        conn.post_read(sink, 1, 0, 8, wr_id=1)
        conn.post(verbs.WR_CMP_SWAP, sink, 8, wr_id=2, rkey=1, remote=0, atomic=(1, 2))
        conn.post_send(sink, 4, wr_id=3)
        conn.segment()
        segment = conn.segment()
        conn.segment()
        conn.send(wire.terminate(*code, 6, struct.pack(">H", len(segment.ulpdu)) + segment.header))
        conn.wc("WR_FLUSH_ERR", 1)
        conn.wc(status, 2)
        conn.wc("WR_FLUSH_ERR", 3)


@row("atomic-out-sink", OWN, "An atomic operation wants one sink of 8 bytes that it may write to", kind=OWN)
def atomic_out_sink(t):
    sink, readonly = t.mr(64), t.mr(64, access=0)
    for status, sges in (("LOC_LEN_ERR", [(sink.addr, 4, sink.lkey)]), ("LOC_LEN_ERR", [(sink.addr, 16, sink.lkey)]),
                         ("LOC_PROT_ERR", [(readonly.addr, 8, readonly.lkey)]),
                         ("LOC_PROT_ERR", [(sink.addr + 60, 8, sink.lkey)]), ("LOC_PROT_ERR", [(sink.addr, 8, 1)])):
        conn = t.active()
        conn.post(verbs.WR_FETCH_ADD, wr_id=1, rkey=1, remote=0, atomic=(1,), sges=sges)
        conn.wc(status, 1)
    conn = t.active()
    for sges in [], [(sink.addr, 8, sink.lkey)] * 2:
        try:
            conn.post(verbs.WR_FETCH_ADD, rkey=1, atomic=(1,), sges=sges)
            raise AssertionError(f"{len(sges)} sinks are taken")
        except OSError as e:
            assert e.errno == 22, e
    # A sink that is not aligned is no mistake.
    conn.post(verbs.WR_FETCH_ADD, wr_id=2, rkey=1, remote=0, atomic=(1,), sges=[(sink.addr + 3, 8, sink.lkey)])
    conn.send(wire.atomic_response(1, asked(conn, 1).ident, 7))
    conn.wc(wr_id=2)
    assert word(sink, 3) == 7


@row("atomic-out-revoked", OWN, "An answer whose sink has gone meanwhile fails with LOC_PROT_ERR", kind=OWN)
def atomic_out_revoked(t):
    conn, sink = t.active(), t.mr(64)
    conn.post(verbs.WR_FETCH_ADD, sink, 8, wr_id=1, rkey=1, remote=0, atomic=(1,))
    request = asked(conn, 1)
    sink.dereg()
    conn.send(wire.atomic_response(1, request.ident, 7))
    conn.wc("LOC_PROT_ERR", 1)
    sink.untouched()
