# SPDX-License-Identifier: GPL-2.0
"""Timing of the peer's data: arbitrary splits, slow peers, dead peers, peers that reset at each step."""

import contextlib
import os
import select
import socket
import struct
import subprocess
import time

import wire
from rows import MUST, OWN, SHOULD, row
from rows_mpa import DEPTHS, PATTERN
from target import PATIENCE
from wire import CRC, ENHANCED, MARKERS, REJECT, REPLY, REQUEST, frame

S = CRC | ENHANCED


class Exchange:
    """A connection with one pattern of traffic from the peer, which repeats: Send in two segments, Write, Read Request,
    Write of zero octets, Send. The device's answer is the Read Response."""

    def __init__(self, t, flags, push=None):
        """`push(raw, bytes)` sends."""
        push = push or whole
        self.sink, self.source, self.inbox = t.mr(256), t.mr(256, fill=0x5a), t.mr(256)
        self.raw = raw = t.dial()
        push(raw, frame(REQUEST, flags, 2, DEPTHS))
        _, self.id = t.request()
        self.id.make_qp()
        self.id.accept()
        reply = raw.frame()
        raw.framing(bool((reply.flags | flags) & CRC), False, bool(flags & MARKERS))
        self.id.event("ESTABLISHED", status=0)
        self.done = 0

    def run(self, push):
        send, read, round_ = 2 * self.done + 1, self.done + 1, self.done & 0xff
        self.done += 1
        self.sink.put(bytes(256))
        self.id.post_recv(self.inbox, 100, 0, wr_id=1)
        self.id.post_recv(self.inbox, 100, 100, wr_id=2)
        push(self.raw, b"".join(map(self.raw.tx.fpdu, (
            wire.send(send, b"hel", last=False),
            wire.send(send, b"lo", mo=3),
            wire.write(self.sink.rkey, self.sink.addr + round_, b"written"),
            wire.read_request(read, 0xabc, 0x1000, 33, self.source.rkey, self.source.addr),
            wire.write(1, 0),
            wire.send(send + 1, b"good bye")))))
        assert self.id.wc(wr_id=1).byte_len == 5 and self.inbox.get(0, 5) == b"hello"
        assert self.id.wc(wr_id=2).byte_len == 8 and self.inbox.get(100, 8) == b"good bye"
        placed = (bytes(round_) + b"written" + bytes(256))[:256]
        assert self.sink.get() == placed, self.sink.get()
        segment, data = self.raw.message()
        assert (segment.opcode, segment.stag, segment.to) == (wire.READ_RESPONSE, 0xabc, 0x1000), segment
        assert data == b"\x5a" * 33
        self.sink.intact()
        self.inbox.intact()

    def close(self):
        self.id.destroy()
        self.raw.close()


def whole(raw, data):
    raw.push(data)


def cut_at(at):
    def push(raw, data):
        raw.push(data[:at])
        if data[at:]:
            # When it is acknowledged, the device has received it separately.
            raw.until_acknowledged()
            raw.push(data[at:])
    return push


def trickle(raw, data):
    for byte in data:
        raw.push(bytes([byte]))


def chunks_of(size):
    def push(raw, data):
        for at in range(0, len(data), size):
            raw.push(data[at:at + size])
    return push


REQUEST_LENGTH = len(frame(REQUEST, S, 2, DEPTHS))
STREAM_LENGTH = 28 + 28 + 28 + 52 + 20 + 32  # of the FPDUs of one run


def every_cut(t, flags):
    for at in range(1, REQUEST_LENGTH):
        exchange = Exchange(t, flags, cut_at(at))
        exchange.run(whole)
        exchange.close()
    exchange = Exchange(t, flags)
    for at in range(1, STREAM_LENGTH):
        try:
            exchange.run(cut_at(at))
        except AssertionError as e:
            raise AssertionError(f"cut at octet {at}: {e}") from e


@row("split-everywhere", "RFC 5044 5.2", "the same traffic cut in two TCP segments at every octet")
def split_everywhere(t):
    every_cut(t, S)


@row("split-everywhere-nocrc", "RFC 5044 5.2", "cut at every octet, without CRCs", params="crc=0")
def split_everywhere_nocrc(t):
    every_cut(t, ENHANCED)


@row("split-everywhere-markers", "RFC 5044 5.2", "cut at every octet, answered with markers")
def split_everywhere_markers(t):
    every_cut(t, S | MARKERS)


@row("split-trickle", "RFC 5044 5.2", "the same traffic octet by octet: with CRC, and with markers in the answer")
def split_trickle(t):
    for flags in (S, S | MARKERS):
        Exchange(t, flags, trickle).run(trickle)


@row("split-trickle-nocrc", "RFC 5044 5.2", "octet by octet, without CRCs", params="crc=0")
def split_trickle_nocrc(t):
    Exchange(t, ENHANCED, trickle).run(trickle)


@row("split-chunks", "RFC 5044 5.2", "the same traffic in chunks of each size from 2 to 40 octets")
def split_chunks(t):
    exchange = Exchange(t, S)
    for size in range(2, 41):
        exchange.run(chunks_of(size))


@row("split-trailer", "RFC 5044 4.4", "a CRC that comes in two TCP segments, cut at each of its octets, is checked whole")
def split_trailer(t):
    for kept in (3, 2, 1):
        mr = t.mr(64)
        conn = t.passive()
        conn.post_recv(mr)
        cut_at(-kept)(conn.raw, conn.raw.tx.fpdu(wire.send(1, PATTERN[:17])))
        assert conn.wc().byte_len == 17 and mr.get()[:17] == PATTERN[:17]


@row("split-large", "RFC 5044 5.2", "a message of 1 MB in FPDUs of all sizes, in whatever segments TCP makes of it", OWN)
def split_large(t):
    mr = t.mr(1 << 20)
    conn = t.passive()
    conn.post_recv(mr)
    data = PATTERN * 16
    at, size = 0, 1
    out = b""
    while at < len(data):
        part = data[at:at + size]
        out += conn.raw.tx.fpdu(wire.send(1, part, mo=at, last=at + size >= len(data)))
        at, size = at + size, size * 3 % 7919 + 1
    conn.push(out)
    assert conn.wc().byte_len == 1 << 20 and mr.get() == data


# --- Peers that say nothing

@row("time-no-request", "RFC 5044 7.1.2", "a peer that connects and sends nothing is dropped after a time", SHOULD, waits=True)
def time_no_request(t):
    for data in (b"", frame(REQUEST, CRC, 1, b"hello")[:21]):
        raw = t.dial()
        raw.push(data)
        raw.end()
    t.no_request(0.1)


@row("time-trickled-request", "RFC 5044 7.1.2", "the time-out is for the whole request, not for each octet", SHOULD, waits=True)
def time_trickled_request(t):
    raw = t.dial()
    begin = time.monotonic()
    for byte in frame(REQUEST, CRC, 1, bytes(100)):
        if select.select([raw.sock], [], [], 0.5)[0]:
            break
        # The device may have closed the connection since.
        try:
            raw.push(bytes([byte]))
        except OSError:
            break
    raw.end()
    assert time.monotonic() - begin < 40


@row("time-no-reply", "RFC 5044 7.1.2", "a peer that does not reply: UNREACHABLE with ETIMEDOUT after a time", SHOULD, waits=True)
def time_no_reply(t):
    id_, raw, _ = t.calling()
    id_.event("UNREACHABLE", status=-110)
    raw.end()


@row("time-no-syn-ack", "RFC 5044 7.1.2", "a host that does not answer the SYN: UNREACHABLE after a time", OWN, waits=True)
def time_no_syn_ack(t):
    # A listener whose queue is full drops further SYNs.
    with t.setup.inside():
        full = socket.socket()
        others = [socket.socket() for _ in range(4)]
    full.bind((t.setup.there, 0))
    full.listen(0)
    for sock in others:
        sock.setblocking(False)
        sock.connect_ex(full.getsockname())
    id_ = t.resolve(full.getsockname()[1])
    id_.connect()
    id_.event("UNREACHABLE", status=-110)
    for sock in [full] + others:
        sock.close()


@row("time-refused", "RFC 5044 7.1", "nobody listens at the peer: REJECTED with ECONNREFUSED", OWN)
def time_refused(t):
    sock, port = t.await_dial()
    sock.close()
    id_ = t.resolve(port)
    id_.connect()
    id_.event("REJECTED", status=-111)


@row("time-zero-window", "RFC 793 3.7", "a peer that takes nothing off the socket: other connections go on; the QP goes when it is "
     "destroyed", OWN)
def time_zero_window(t):
    conn = t.passive()
    conn.raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    conn.send(wire.write(1, 0))
    mr = t.mr(1 << 20)
    for i in range(16):
        conn.post_send(mr, wr_id=i)
    t.passive().echo()
    begin = time.monotonic()
    conn.id.destroy_qp()
    assert time.monotonic() - begin < 10, "destroying the QP waits for the peer"
    t.passive().echo()


@row("time-zero-window-opens", "RFC 793 3.7", "the window opens again: all arrives", OWN)
def time_zero_window_opens(t):
    conn = t.passive()
    conn.raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    conn.send(wire.write(1, 0))
    mr = t.mr(1 << 18)
    mr.put(PATTERN * 4)
    for i in range(4):
        conn.post_send(mr, wr_id=i)
    time.sleep(1)  # into TCP's zero window probes
    for i in range(4):
        assert conn.message()[1] == PATTERN * 4
        conn.wc(wr_id=i)


@row("time-zero-window-reads", "RFC 5040 5.5", "a peer requests many Reads and reads nothing: it delays nobody else", OWN)
def time_zero_window_reads(t):
    mr = t.mr(1 << 20)
    conn = t.passive(ird=16, peer_ord=16)
    conn.raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    conn.send(*(wire.read_request(i + 1, 1, 0, 1 << 20, mr.rkey, mr.addr) for i in range(16)))
    for _ in range(3):
        t.passive().echo()
    conn.reset()
    conn.event("DISCONNECTED")


def workers():
    """The number of kernel threads for work that is bound to no CPU. A new thread stays for minutes."""
    proc = os.environ.get("SHARED", "") + "/proc"
    count = 0
    for pid in filter(str.isdigit, os.listdir(proc)):
        with contextlib.suppress(OSError), open(f"{proc}/{pid}/comm", encoding="ascii", errors="replace") as f:
            count += f.read().startswith("kworker/u")
    return count


@row("time-zero-window-terminates", "RFC 5040 7.1", "hundreds of peers that read nothing are due a Terminate at once: each has its "
     "time, but no thread of the kernel waits with it, and nobody else", OWN, timeout=240)
def time_zero_window_terminates(t):
    cq, mr, conns = t.make_cq(4), t.mr(1 << 20), []
    for n in range(200):
        # With this window each FPDU is a buffer of its own in the device's queue, and nothing can
        # be added to the last one.
        conn = t.passive(raw=t.dial(rcvbuf=4096), recv_cq=cq)
        conn.send(wire.write(1, 0))
        conn.post_send(mr, wr_id=n)
        conns.append(conn)
    other = t.passive()
    before = workers()
    # The completion queue overflows, and all connections fail.
    for n in range(8):
        conn.post_recv(mr, 8, wr_id=n)
    conn.send(*[wire.send(msn, b"x") for msn in range(1, 9)])
    assert t.async_event() == "CQ_ERR"
    other.echo()
    t.passive().echo()
    for n, conn in enumerate(conns):
        conn.event("DISCONNECTED")
        conn.wc("WR_FLUSH_ERR", n)
    more = workers() - before
    assert more < len(conns) // 2, f"{more} threads more for {len(conns)} connections"


@row("time-zero-window-terminate", "RFC 5040 7.1", "the peer reads on when a Terminate is due to it: that comes behind what had "
     "been begun")
def time_zero_window_terminate(t):
    mr = t.mr(1 << 20)
    for _ in range(10):
        # The small window makes the Terminate wait for space.
        conn = t.passive(raw=t.dial(rcvbuf=4096))
        conn.send(wire.write(1, 0))
        conn.post_send(mr)
        begin = time.monotonic()
        conn.send(wire.send(9, b"bad"))
        try:
            while (segment := conn.segment()) and segment.opcode == wire.SEND:
                pass
        except AssertionError:
            segment = None  # ended within an FPDU
        # A peer that does not read within half a second gets no Terminate.
        assert segment or time.monotonic() - begin >= 0.5, "no Terminate"
        assert not segment or wire.Terminate(segment.data).code == (1, 2, 3), segment
        conn.event("DISCONNECTED")


@row("time-half-close", "RFC 5044 7.2", "the peer shuts its sending side while the device has much to send: DISCONNECTED, all is "
     "completed or flushed")
def time_half_close(t):
    conn = t.passive()
    conn.send(wire.write(1, 0))
    mr = t.mr(1 << 20)
    for i in range(8):
        conn.post_send(mr, wr_id=i)
    conn.fin()
    for i in range(8):
        wc = conn.wc(None, wr_id=i)
        assert wc.status in ("SUCCESS", "WR_FLUSH_ERR"), wc
    conn.event("DISCONNECTED")


@row("time-silent-after", "RFC 5044 7.2", "a connection works after a long idle time", OWN, waits=True)
def time_silent_after(t):
    conn = t.passive()
    conn.echo()
    conn.silent(3)
    conn.echo()


class Mortal:
    """A host of the peer, with an address of its own, that can disappear at once."""

    def __init__(self, t, address):
        self.address = address
        self.command = ["ip", "-n", os.path.basename(t.setup.netns), "addr", "add", f"{address}/24", "dev", t.setup.far]
        subprocess.run(self.command, check=True)

    def die(self):
        self.command[4] = "del"
        subprocess.run(self.command, check=True)


@row("time-dead-idle", "RFC 5044 8", "the peer's host dies while the connection is idle: DISCONNECTED within a minute", OWN, waits=True)
def time_dead_idle(t):
    host = Mortal(t, "10.80.0.3")
    conn = t.passive(raw=t.dial(source=host.address))
    conn.post_recv(t.mr(), wr_id=1)
    host.die()
    conn.event("DISCONNECTED", timeout=60)
    conn.wc("WR_FLUSH_ERR", wr_id=1)


@row("time-dead-busy", "RFC 5044 8", "the peer's host dies with data on its way: DISCONNECTED within a minute", OWN, waits=True)
def time_dead_busy(t):
    host = Mortal(t, "10.80.0.4")
    conn = t.passive(raw=t.dial(source=host.address))
    conn.echo()
    host.die()
    mr = t.mr(1 << 20)
    for i in range(8):
        conn.post_send(mr, wr_id=i)
    conn.event("DISCONNECTED", timeout=60)
    for i in range(8):
        conn.wc(None, wr_id=i)


@row("time-dead-asked", "RFC 5044 7.1.2", "the peer's host dies after its request: rejecting it still completes", OWN, waits=True)
def time_dead_asked(t):
    host = Mortal(t, "10.80.0.5")
    raw = t.dial(source=host.address)
    raw.push(frame(REQUEST, S, 2, DEPTHS))
    _, id_ = t.request()
    host.die()
    id_.reject()
    id_.destroy()


@row("time-flood", "RFC 5044 7.1.2", "hundreds of connections that never speak do not keep a real one out", OWN)
def time_flood(t):
    assert t.listener
    with t.setup.inside():
        socks = [socket.socket() for _ in range(300)]
    for sock in socks:
        sock.setblocking(False)
        sock.connect_ex((t.setup.here, t.port))
    t.passive().echo()
    for sock in socks:
        sock.close()


@row("time-flood-requests", "RFC 5044 7.1.2", "more requests than the backlog, from peers that are gone: the program may accept any of them", OWN)
def time_flood_requests(t):
    raws = [t.dial() for _ in range(100)]
    for raw in raws:
        raw.push(frame(REQUEST, S, 2, DEPTHS))
    for raw in raws[::2]:
        raw.reset()
    t.request()[1].destroy()
    for raw in raws[1::2]:
        raw.close()
    for _ in range(100):
        try:
            event, id_ = t.request(1)
        except AssertionError:
            break
        id_.destroy()
    t.passive().echo()


# --- Peers that go away with an RST, at each step

@row("rst-before-request", "RFC 5044 8", "RST before and within the request: nothing remains")
def rst_before_request(t):
    for length in (0, 1, 19, 20, 23):
        raw = t.dial()
        raw.push(frame(REQUEST, S, 2, DEPTHS)[:length])
        raw.reset()
    t.no_request(0.1)
    t.passive().echo()


@row("rst-before-accept", "RFC 5044 8", "RST after the request: accept, or reject, fails or is followed by DISCONNECTED")
def rst_before_accept(t):
    for answer in ("accept", "reject"):
        for wait in (0, 0.2):
            raw = t.dial()
            raw.push(frame(REQUEST, S, 2, DEPTHS))
            _, id_ = t.request()
            id_.make_qp()
            raw.reset()
            time.sleep(wait)
            try:
                getattr(id_, answer)()
            except OSError:
                continue
            finally:
                if answer == "reject":
                    id_.destroy()
            if answer == "accept":
                event = id_.event("ESTABLISHED", "CONNECT_ERROR", "DISCONNECTED", "REJECTED", "UNREACHABLE")
                if event.name == "ESTABLISHED":
                    id_.event("DISCONNECTED")
    t.passive().echo()


@row("rst-after-accept", "RFC 5044 8", "RST right after the reply: DISCONNECTED, posted receives are flushed")
def rst_after_accept(t):
    conn = t.passive(before_accept=lambda id_: id_.post_recv(t.mr(), wr_id=7))
    conn.reset()
    conn.event("DISCONNECTED")
    conn.wc("WR_FLUSH_ERR", wr_id=7)


@row("rst-before-reply", "RFC 5044 8", "RST before and within the reply: the program is told with ECONNRESET")
def rst_before_reply(t):
    for length in (0, 1, 19, 20, 23):
        id_, raw, _ = t.calling()
        if length:
            raw.push(frame(REPLY, S, 2, DEPTHS)[:length])
        raw.reset()
        id_.event("REJECTED", "CONNECT_ERROR", status=-104)
    t.active().echo()


@row("rst-after-reply", "RFC 5044 8", "RST right behind the reply: ESTABLISHED and DISCONNECTED, or an error, and no more")
def rst_after_reply(t):
    for _ in range(10):
        id_, raw, _ = t.calling()
        raw.push(frame(REPLY, S, 2, DEPTHS))
        raw.reset()
        if id_.event("ESTABLISHED", "REJECTED", "CONNECT_ERROR").name == "ESTABLISHED":
            id_.event("DISCONNECTED")
        id_.no_event(0.05)
        id_.destroy()


@row("rst-mid-fpdu", "RFC 5044 8", "RST within a message, in either role: not delivered, DISCONNECTED, flushed")
def rst_mid_fpdu(t):
    data = wire.Framer().fpdu(wire.send(1, b"x" * 100, last=False)) + \
        wire.Framer().fpdu(wire.send(1, b"y" * 100, mo=100))
    for conn in (t.passive(), t.active()):
        conn.post_recv(t.mr())
        conn.push(data[:150])
        conn.raw.until_acknowledged()
        conn.reset()
        conn.wc("WR_FLUSH_ERR")
        conn.event("DISCONNECTED")


@row("rst-pending-send", "RFC 5044 8", "RST with a megabyte on its way out: each work request ends, in order, with or without error")
def rst_pending_send(t):
    for conn in (t.passive(), t.active()):
        mr = t.mr(1 << 18)
        conn.send(wire.write(1, 0))
        for i in range(8):
            conn.post_send(mr, wr_id=i)
        conn.segment()
        conn.reset()
        statuses = [conn.wc(None, wr_id=i).status for i in range(8)]
        assert "WR_FLUSH_ERR" in statuses, statuses
        first = next(i for i, status in enumerate(statuses) if status != "SUCCESS")
        assert all(status != "SUCCESS" for status in statuses[first:]), statuses
        conn.event("DISCONNECTED")


@row("rst-pending-read", "RFC 5040 5.5", "RST before a Read Response is whole: the Read is flushed, not completed")
def rst_pending_read(t):
    for conn in (t.passive(), t.active()):
        mr = t.mr()
        conn.send(wire.write(1, 0))
        conn.post_read(mr, 1, 0, 100, wr_id=1)
        request = wire.ReadRequest(conn.segment().data)
        conn.send(wire.read_response(request.sink_stag, request.sink_to, bytes(50), last=False))
        conn.raw.until_acknowledged()
        conn.reset()
        conn.wc("WR_FLUSH_ERR", wr_id=1)
        conn.event("DISCONNECTED")


@row("rst-serving-read", "RFC 5040 5.5", "RST while a Read is being answered")
def rst_serving_read(t):
    mr = t.mr(1 << 20)
    for _ in range(5):
        conn = t.passive(ird=16, peer_ord=16)
        conn.send(*(wire.read_request(i + 1, 1, 0, 1 << 20, mr.rkey, mr.addr) for i in range(4)))
        conn.segment()
        conn.reset()
        conn.event("DISCONNECTED")
        conn.id.destroy()


@row("rst-after-reject", "RFC 5044 8", "a rejected peer that resets, or stays: nothing remains of it")
def rst_after_reject(t):
    for way in ("reset", "fin", None):
        raw = t.dial()
        raw.push(frame(REQUEST, S, 2, DEPTHS))
        _, id_ = t.request()
        id_.reject()
        raw.frame()
        if way:
            getattr(raw, way)()
        else:
            raw.end()
        id_.destroy()


@row("end-listener-goes", "RFC 5044 7.1", "the listener is destroyed while connections are at each step of start-up", OWN)
def end_listener_goes(t):
    raws = [t.dial() for _ in range(6)]
    whole = frame(REQUEST, S, 2, DEPTHS)
    for raw, length in zip(raws, (0, 10, 20, 23, 24, 24)):
        raw.push(whole[:length])
    _, id_ = t.request()
    t.unlisten()
    for raw in raws[:4]:
        raw.end()
    id_.destroy()


@row("end-destroy-calling", "RFC 5044 7.1", "the program gives up while its connection is at each step of start-up", OWN)
def end_destroy_calling(t):
    for length in (None, 0, 10, 23):
        if length is None:
            _, port = t.await_dial()
            id_ = t.resolve(port)
            id_.connect()
        else:
            id_, raw, _ = t.calling()
            raw.push(frame(REPLY, S, 2, DEPTHS)[:length])
        id_.destroy()
        if length is not None:
            raw.any_end()
