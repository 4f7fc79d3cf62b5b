# SPDX-License-Identifier: GPL-2.0
"""Bugs of the past, in C siw (fixed or not), in rxe, and here. Those about MPA are in rows_mpa.py."""

import errno
import os
import threading
import time

import verbs
import wire
from refusal import carries, ended, flushed, refused
from rows import OWN, row

SINK = 0x5151  # an STag of the peer's


def requested(segment):
    assert segment.opcode == wire.READ_REQUEST, f"no Read Request but {segment}"
    return wire.ReadRequest(segment.data)


@row("reg-solicited", "RFC 5040 5.3",
     "A queue armed for solicited events only wakes for Send with Solicited Event, not for Send (C siw: never)", OWN)
def solicited(t):
    cq, mr = t.make_cq(), t.mr(64)
    conn = t.passive(recv_cq=cq)
    for wr_id in 1, 2, 3:
        conn.post_recv(mr, wr_id=wr_id)
    cq.arm(solicited=True)
    conn.send(wire.send(1, b"plain"), wire.write(mr.rkey, mr.addr + 32, b"!"))
    limit = time.monotonic() + 20
    while mr.get(32, 1) != b"!":
        assert time.monotonic() < limit
    assert not cq.event(0.1), "an event for a plain Send"
    conn.send(wire.send(2, b"solicited", opcode=wire.SEND_SE))
    assert cq.event(), "no event for a solicited Send"
    assert [wc.wr_id for wc in cq.poll()] == [1, 2]
    # An error wakes the consumer, too.
    cq.arm(solicited=True)
    conn.send(wire.send(9, b"bad"))
    assert cq.event(), "no event for an error"
    assert [(wc.wr_id, wc.status) for wc in cq.poll()] == [(3, "WR_FLUSH_ERR")]


@row("reg-access-flags", "own",
     "A queue pair's access flags are kept and shown (C siw: a constant); what a peer may do is up to the region", OWN)
def access_flags(t):
    conn, mr = t.passive(), t.mr(64)
    for flags in 0, verbs.REMOTE_READ, verbs.REMOTE_WRITE, verbs.REMOTE_READ | verbs.REMOTE_WRITE:
        conn.modify(verbs.QP_ACCESS, qp_access_flags=flags)
        got = conn.query().qp_access_flags
        assert got & 6 == flags, f"{got:#x}, not {flags:#x}"
        conn.send(wire.write(mr.rkey, mr.addr, b"written"))
        conn.echo()
        assert mr.get(0, 7) == b"written"


@row("reg-depths", "own",
     "A queue pair shows the Reads it may start as max_rd_atomic, the peer's as max_dest_rd_atomic (C siw: swapped)",
     OWN)
def depths(t):
    attr = t.passive(ird=3, ord_=5, peer_ird=9, peer_ord=3).query()
    assert (attr.max_rd_atomic, attr.max_dest_rd_atomic) == (5, 3), (attr.max_rd_atomic, attr.max_dest_rd_atomic)


@row("reg-read-queue", "RFC 5041 7.1",
     "A Read Request is only taken from its queue, and with offset 0 (C siw: looks at the MSN alone)")
def read_queue(t):
    mr = t.mr(64)
    for code, where in (1, {"qn": 0}), (1, {"qn": 2}), (1, {"qn": 3}), (4, {"mo": 1}), (4, {"mo": 1 << 31}):
        refused(t.passive(), (1, 2, code), wire.read_request(1, SINK, 0, 8, mr.rkey, mr.addr, **where))


@row("reg-terminate-read-msn", "RFC 5040 4.8",
     "A Terminate about a Read has its MSN, also when an earlier Read is being answered (C siw: a length)")
def terminate_read_msn(t):
    big, mr = t.mr(4 << 20), t.mr(64)
    for good in 0, 2:
        conn = t.passive()
        requests = [wire.read_request(msn, SINK, 0, 8, mr.rkey, mr.addr) for msn in range(1, good + 1)]
        requests += [wire.read_request(good + 1, SINK, 0, 4 << 20, big.rkey, big.addr),
                     wire.read_request(good + 2, SINK, 0, 65, mr.rkey, mr.addr)]
        conn.send(*requests)
        while (segment := conn.segment()).opcode == wire.READ_RESPONSE:
            pass
        term = wire.Terminate(segment.data)
        assert term.code == (0, 1, 1), term
        carries(term, requests[-1], read=True)


@row("reg-response-overrun", "RFC 5040 5.2.2",
     "A Read Response is not placed beyond the element of its Read, though the region goes on (C siw, June 2026)")
def response_overrun(t):
    mr = t.mr(4096)
    for first in 0, 60, 100:
        conn = t.active()
        conn.post_read(mr, 1, 2, 100, 1000, wr_id=1)
        read = requested(conn.segment())
        parts = [wire.read_response(read.sink_stag, read.sink_to, bytes([7]) * first, last=False)] if first else []
        refused(conn, (1, 1, 1), *parts,
                wire.read_response(read.sink_stag, read.sink_to + first, bytes([7]) * (101 - first)))
        assert conn.wc(None, 1).status != "SUCCESS"
        assert mr.get() == bytes(1000) + bytes([7]) * first + bytes(3096 - first)
        mr.intact()
        mr.put(bytes(4096))


@row("reg-inline-inv", "own", "Send with Invalidate may carry its data inline (C siw refuses)", OWN)
def inline_inv(t):
    conn, mr = t.active(), t.mr(64, fill=5)
    for wr_id, size in (1, 8), (2, 0), (3, 64):
        # libsiw takes the STag from the rkey of the union.
        conn.post(verbs.WR_SEND_INV, mr, size, wr_id=wr_id, flags=verbs.SIGNALED | verbs.INLINE, rkey=0x1234,
                  invalidate=0x1234)
        segment = conn.segment()
        assert (segment.opcode, segment.inv, segment.qn) == (wire.SEND_INV, 0x1234, 0), segment
        assert segment.data == bytes([5]) * size
        conn.wc(wr_id=wr_id)


@row("reg-data-while-modified", "own",
     "Data that comes while the queue pair is queried or modified is taken at once (C siw: with the next segment)", OWN)
def data_while_modified(t):
    conn, mr = t.passive(), t.mr(64)
    over = threading.Event()

    def disturb():
        while not over.is_set():
            conn.modify(verbs.QP_ACCESS, qp_access_flags=6)
            conn.query()

    threads = [threading.Thread(target=disturb) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for msn in range(1, 51):
            conn.post_recv(mr, wr_id=msn)
            conn.send(wire.send(msn, b"now"))
            conn.wc(wr_id=msn)
    finally:
        over.set()
        for thread in threads:
            thread.join()


@row("reg-flush-order", "RFC 5040 5.5",
     "When a connection fails, open work requests are flushed in the order of posting, queue by queue")
def flush_order(t):
    conn, mr = t.active(), t.mr(4096)
    for wr_id in range(100, 110):
        conn.post_recv(mr, wr_id=wr_id)
    conn.post_read(mr, 1, 2, 8, wr_id=1)
    conn.post_read(mr, 1, 2, 8, wr_id=2)
    for wr_id in range(3, 20):
        # Unsignalled work requests are flushed, too.
        conn.post_send(mr, 8, wr_id=wr_id, flags=verbs.FENCE | (verbs.SIGNALED if wr_id % 3 else 0))
    requested(conn.segment())
    requested(conn.segment())
    # The first receive is being filled.
    conn.send(wire.send(1, b"half", last=False))
    conn.send(wire.send(1, b"bad", mo=77))
    conn.terminate((1, 2, 4))
    wcs = [conn.wc("WR_FLUSH_ERR").wr_id for _ in range(29)]
    assert [n for n in wcs if n >= 100] == list(range(100, 110)), wcs
    assert [n for n in wcs if n < 100] == list(range(1, 20)), wcs
    conn.id.cq.none()


@row("reg-receive-behind-error", "RFC 5040 5.5",
     "Nothing is delivered to a queue pair that its program has put in the state ERR: receives posted from then on are flushed", OWN)
def receive_behind_error(t):
    conn, mr = t.active(), t.mr(64)
    # No worker of the driver runs on this CPU until the peer has sent.
    os.sched_setaffinity(0, {0})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    conn.modify(verbs.QP_STATE, qp_state=verbs.ERR)
    conn.post_recv(mr, wr_id=1)
    conn.send(wire.send(1, b"late"))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    assert conn.wc("WR_FLUSH_ERR").wr_id == 1
    conn.id.cq.none()


@row("reg-flush-behind-error", "RFC 5040 5.5",
     "Work requests behind one that fails are flushed, those before it complete")
def flush_behind_error(t):
    conn, mr = t.active(), t.mr(64)
    conn.post_read(mr, 1, 2, 8, wr_id=1)
    conn.post_send(mr, 8, wr_id=2)
    conn.post(verbs.WR_SEND, sges=[(mr.addr, 65, mr.lkey)], wr_id=3, flags=verbs.SIGNALED | verbs.FENCE)
    for wr_id in range(4, 12):
        conn.post_send(mr, 8, wr_id=wr_id)
    read = requested(conn.segment())
    assert conn.segment().opcode == wire.SEND
    conn.send(wire.read_response(read.sink_stag, read.sink_to, b"12345678"))
    carries(conn.terminate((0, 0, 0)), None)
    conn.wc(wr_id=1)
    conn.wc(wr_id=2)
    conn.wc("LOC_PROT_ERR", 3)
    flushed(conn, *range(4, 12))


@row("reg-flush-behind-read", "own",
     "Nothing behind a failed Read succeeds, even if it had been sent", OWN)
def flush_behind_read(t):
    mr = t.mr(64)
    for response in False, True:
        conn = t.active()
        conn.post_send(mr, 8, wr_id=1)
        conn.post_read(mr, 1, 2, 8, wr_id=2)
        conn.post_send(mr, 8, wr_id=3)
        conn.post_write(mr, 1, 2, 8, wr_id=4)
        segments = [conn.segment() for _ in range(4)]
        read = requested(segments[1])
        if response:
            conn.send(wire.read_response(read.sink_stag, read.sink_to + 1, b"12345678"))
        else:
            conn.send(wire.terminate(0, 1, 1, 7, b"\0\x2e" + segments[1].ulpdu))
        conn.wc(wr_id=1)
        assert conn.wc(None, 2).status in ("REM_ACCESS_ERR", "WR_FLUSH_ERR", "GENERAL_ERR")
        flushed(conn, 3, 4)


@row("reg-flush-late", "own",
     "Work requests posted after the end are flushed at once, again and again (C siw, 2022: lost)", OWN)
def flush_late(t):
    conn, mr = t.passive(send_wr=4, recv_wr=4), t.mr(64)
    conn.fin()
    ended(conn)
    for lap in range(30):
        conn.post_recv(mr, wr_id=lap)
        wanted = {lap}
        # Posting a receive makes no system call, but it is flushed as well.
        if lap > 2:
            conn.post_send(mr, 8, wr_id=1000 + lap, flags=0)
            wanted.add(1000 + lap)
        assert {conn.wc("WR_FLUSH_ERR").wr_id for _ in wanted} == wanted


@row("reg-sq-crowded", "own",
     "More work requests than can be in progress at once all complete, in order", OWN)
def sq_crowded(t):
    conn, mr = t.active(send_wr=4, ord_=2, peer_ird=2), t.mr(64)
    for _ in range(3):
        posted = 0
        try:
            while posted < 100:
                conn.post_read(mr, 1, 2, 1, wr_id=posted)
                posted += 1
        except OSError as e:
            assert e.errno == errno.ENOMEM, e
        assert 4 <= posted < 100, posted
        for _ in range(posted):
            read = requested(conn.segment())
            conn.send(wire.read_response(read.sink_stag, read.sink_to, b"!"))
        for wr_id in range(posted):
            conn.wc(wr_id=wr_id)
        conn.post_send(mr, 4, wr_id=500)
        assert conn.segment().opcode == wire.SEND
        conn.wc(wr_id=500)


@row("reg-post-threads", "own",
     "Many threads may post at once: each message is sent once, in its thread's order", OWN)
def post_threads(t):
    conn, each, threads = t.active(send_wr=16), 40, 4
    mrs = [t.mr(8 * each) for _ in range(threads)]
    failures = []

    def poster(number):
        mr = mrs[number]
        for n in range(each):
            mr.put(bytes([number, n]) * 4, 8 * n)
            limit = time.monotonic() + 20
            while True:
                try:
                    conn.post_send(mr, 8, 8 * n, wr_id=number << 8 | n)
                    break
                except OSError as e:
                    if e.errno != errno.ENOMEM or time.monotonic() > limit:
                        failures.append(e)
                        return
                    time.sleep(0.001)

    workers = [threading.Thread(target=poster, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    seen = [[] for _ in range(threads)]
    sent = []
    for msn in range(1, threads * each + 1):
        assert not failures, failures
        segment = conn.segment()
        assert segment.opcode == wire.SEND and segment.msn == msn and len(segment.data) == 8, segment
        number, n = segment.data[:2]
        assert segment.data == bytes([number, n]) * 4
        seen[number].append(n)
        sent.append(number << 8 | n)
    for worker in workers:
        worker.join()
    assert seen == [list(range(each))] * threads
    assert [conn.wc().wr_id for _ in sent] == sent, "completed in another order than sent"


@row("reg-rq-laps", "own", "A small receive queue works lap after lap, full and empty", OWN)
def rq_laps(t):
    conn, mr = t.passive(recv_wr=4), t.mr(64)
    msn = 0
    for lap in range(60):
        count = lap % 4 + 1
        for n in range(count):
            conn.post_recv(mr, 16, 16 * n, wr_id=lap * 10 + n)
        conn.send(*[wire.send(msn + n + 1, bytes([lap, n])) for n in range(count)])
        for n in range(count):
            conn.wc(wr_id=lap * 10 + n)
            assert mr.get(16 * n, 2) == bytes([lap, n])
        msn += count


@row("reg-cq-overflow", "RFC 5040 8.1.1",
     "A completion queue that overflows leaves the streams of others alone (item 10)")
def cq_overflow(t):
    cq, mr = t.make_cq(4), t.mr(64)
    other = t.passive()
    conn = t.passive(recv_cq=cq, recv_wr=32)
    for wr_id in range(32):
        conn.post_recv(mr, wr_id=wr_id)
    conn.send(*[wire.send(msn, b"x") for msn in range(1, 33)])
    assert t.async_event() == "CQ_ERR"
    other.echo()
    t.passive().echo()


@row("reg-destroyed-mid-message", "RFC 5040 8.1.1",
     "A queue pair places nothing more once destroy_qp has returned (item 6)", params="crc=0")
def destroyed_mid_message(t):
    # With CRC no byte is placed before the whole segment has arrived.
    mr, buf = t.mr(1400), t.mr(1400)
    for ulpdu, into, header in (wire.write(mr.rkey, mr.addr, bytes([7]) * 1400), mr, 16), \
            (wire.send(1, bytes([7]) * 1400), buf, 20):
        conn = t.passive(wire.ENHANCED)
        conn.post_recv(buf, wr_id=1)
        fpdu = conn.raw.tx.fpdu(ulpdu)
        conn.push(fpdu[:header + 700])
        limit = time.monotonic() + 20
        while into.get(699, 1) != b"\7":
            assert time.monotonic() < limit, "not placed"
        conn.id.destroy_qp()
        try:
            conn.push(fpdu[header + 700:])
        except OSError:
            pass
        conn.raw.any_end()
        assert into.get() == bytes([7]) * 700 + bytes(700)


@row("reg-terminate-unread", "own", "A peer that reads nothing does not prevent the end of a failed connection", OWN)
def terminate_unread(t):
    conn, mr = t.active(), t.mr(4 << 20)
    conn.post_recv(mr, wr_id=1)
    conn.post_send(mr, wr_id=2)
    conn.segment()
    conn.send(wire.send(9, b"bad"))
    ended(conn)
    assert {conn.wc("WR_FLUSH_ERR").wr_id for _ in range(2)} == {1, 2}


@row("reg-srq-unfinished", "own",
     "A queue pair that dies completes the receive it had begun, and says that it takes no more of a shared queue", OWN)
def srq_unfinished(t):
    srq, mr = t.make_srq(), t.mr(64)
    conn, other = t.passive(srq=srq), t.passive(srq=srq)
    conn.post_recv(mr, wr_id=1)
    other.post_recv(mr, wr_id=2)
    conn.send(wire.send(1, b"half", last=False))
    refused(conn, (1, 2, 4), wire.send(1, b"bad", mo=40))
    flushed(conn, 1)
    assert [t.async_event(), t.async_event()] == ["QP_FATAL", "QP_LAST_WQE_REACHED"]
    # The receive that was not begun is left for the other queue pair.
    other.send(wire.send(1, b"mine"))
    assert other.wc(wr_id=2).byte_len == 4


@row("reg-error-of-one", "RFC 5040 8.1.1",
     "The failure of a stream leaves the others of the same program, with the same regions and queues, alone")
def error_of_one(t):
    srq, mr = t.make_srq(max_wr=64), t.mr(256)
    good = [t.passive(srq=srq) for _ in range(3)]
    bad = (((1, 1, 0), wire.write(mr.rkey ^ 1, mr.addr, b"bad")),
           ((1, 1, 1), wire.write(mr.rkey, mr.addr + 256, b"bad")),
           ((1, 2, 1), wire.send(1, b"bad", qn=7)), ((0, 2, 6), wire.send(1, b"bad", opcode=12)))
    for n, (code, ulpdu) in enumerate(bad):
        refused(t.passive(srq=srq), code, ulpdu)
        for number, conn in enumerate(good):
            conn.post_recv(mr, 64, 64 * number, wr_id=number)
            conn.send(wire.send(n + 1, b"fine"))
            assert conn.wc(wr_id=number).byte_len == 4
            conn.post_send(mr, 4, 64 * number, wr_id=77)
            assert conn.message()[1] == b"fine"
            conn.wc(wr_id=77)
    mr.intact()
