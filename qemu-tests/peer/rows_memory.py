# SPDX-License-Identifier: GPL-2.0
"""The memory that a peer and a program may access: the checks of RFC 5041 7.1 and RFC 5040 7.2 and 8.1.1.

Windows, fast registration, the DMA region and LOCAL_INV are not tested here, because only kernel consumers have
them. So no STag here can be invalidated, and the protection domain for an invalidation is never checked."""

import ctypes
import mmap
import tempfile
import threading

import verbs
import wire
from refusal import U32, U64, carries, ended, flushed, refused, revoked_midway
from rows import OWN, row
from rows_zcopy import counter
from target import wait_until
from verbs import LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, ibv

SINK = 0x5151  # an STag of the peer's


def reading(mr, size=8, offset=0, stag=None, msn=1, to=None):
    """A Read Request for a part of a region."""
    return wire.read_request(msn, SINK, 0x1000, size, mr.rkey if stag is None else stag,
                             mr.addr + offset if to is None else to)


def no_write(t, code, mr, *ulpdus, about=-1):
    """A Write is refused, and none of it is placed."""
    conn = t.passive()
    refused(conn, code, *ulpdus, about=about)
    ended(conn)
    assert t.async_event() == "QP_ACCESS_ERR"
    mr.untouched()


def no_read(t, code, ulpdu):
    """A Read is refused, no byte is sent, and the Terminate carries the request."""
    conn = t.passive()
    refused(conn, code, ulpdu, read=True)
    ended(conn)
    assert t.async_event() == "QP_ACCESS_ERR"


def unknown(mr):
    """STags with no entry."""
    return 0, 0xff, 0xffffff00, U32 - 1, mr.rkey ^ 0x100, mr.rkey ^ 0x80000000


def out_of_bounds(size):
    """Offset and length of ranges that are not inside a region of that size."""
    return (0, size + 1), (1, size), (size - 1, 2), (size, 1), (size + 1, 1), (-1, 1), (-1, 2), (-64, 64), (1 << 20, 4)


def sums_that_wrap(size=16):
    """TOs for which TO plus that size exceeds 2^64."""
    return U64 - size + 1, U64 - 8, U64 - 1


@row("mem-write-inside", "RFC 5041 7.1",
     "Data inside the region is placed, up to its first and last byte, at any address")
def write_inside(t):
    conn, mr = t.passive(), t.mr(10001)
    odd = t.mr(5000)
    for offset, size in (0, 1), (10000, 1), (4095, 2), (3, 8190), (0, 1400), (9000, 1001):
        data = bytes((i * 3 + offset) & 0xff for i in range(size))
        parts = [(at, data[at:at + 1400]) for at in range(0, size, 1400)]
        conn.send(*[wire.write(mr.rkey, mr.addr + offset + at, part, at + 1400 >= size) for at, part in parts])
        conn.echo()
        assert mr.get(offset, size) == data
        mr.intact()
    odd.untouched()


@row("mem-write-stag", "RFC 5041 7.1", "Write to an STag that does not exist: 1/1/00")
def write_stag(t):
    mr = t.mr(64)
    for stag in unknown(mr):
        no_write(t, (1, 1, 0), mr, wire.write(stag, mr.addr, b"bad"))


@row("mem-write-key", "RFC 5041 7.1", "Write to an STag with another key: 1/1/00")
def write_key(t):
    mr = t.mr(64)
    for bit in range(8):
        no_write(t, (1, 1, 0), mr, wire.write(mr.rkey ^ 1 << bit, mr.addr, b"bad"))


@row("mem-write-stale", "RFC 5040 8.1.1", "Write to an STag that was deregistered: 1/1/00")
def write_stale(t):
    mr, conn = t.mr(64), t.passive()
    conn.send(wire.write(mr.rkey, mr.addr, b"\0"))
    conn.echo()
    mr.dereg()
    stale, wrong = counter("stale_stag"), counter("access_error")
    refused(conn, (1, 1, 0), wire.write(mr.rkey, mr.addr, b"bad"))
    # The program has registered the memory again, and the peer has a new connection.
    again = t.mr(64)
    again.change(mr)
    refused(t.passive(), (1, 1, 0), wire.write(mr.rkey, mr.addr, b"bad"))
    mr.untouched()
    assert (counter("stale_stag") - stale, counter("access_error") - wrong) == (2, 0)


@row("mem-write-pd", "RFC 5040 8.1.1", "Write to an STag of another protection domain: 1/1/02")
def write_pd(t):
    mr = t.mr(64, pd=t.make_pd())
    for size in 1, 64, 65:
        no_write(t, (1, 1, 2), mr, wire.write(mr.rkey, mr.addr, bytes([7]) * size))


@row("mem-write-bounds", "RFC 5041 7.1",
     "Write that begins or ends outside the region: 1/1/01, and not even the part inside is placed")
def write_bounds(t):
    mr = t.mr(1000)
    for offset, size in out_of_bounds(1000):
        no_write(t, (1, 1, 1), mr, wire.write(mr.rkey, mr.addr + offset, bytes([7]) * size))


@row("mem-write-bounds-page", "RFC 5041 7.1", "The bounds are those of the region, not of its pages")
def write_bounds_page(t):
    memory = t.mr(3 * 4096)
    inner = check_reg(memory.addr + 4096 + 100, 50, t.pd)
    for offset, size in (-1, 1), (50, 1), (49, 2), (0, 51), (4096, 1), (-100, 100):
        no_write(t, (1, 1, 1), memory, wire.write(inner.contents.rkey, inner.contents.addr + offset, bytes([7]) * size))
    verbs.check(ibv.ibv_dereg_mr(inner))


def check_reg(addr, size, pd, access=LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ):
    return verbs.check(ibv.ibv_reg_mr(pd, addr, size, access))


@row("mem-write-wrap", "RFC 5041 7.1", "Write whose offset plus length wraps 64 bits: 1/1/03")
def write_wrap(t):
    mr = t.mr(64)
    for to in sums_that_wrap():
        no_write(t, (1, 1, 3), mr, wire.write(mr.rkey, to, bytes([7]) * 16))
    no_write(t, (1, 1, 1), mr, wire.write(mr.rkey, U64 - 17, bytes([7]) * 16))


@row("mem-write-rights", "RFC 5040 8.1.1", "Write without REMOTE_WRITE: 0/1/02")
def write_rights(t):
    for access in 0, LOCAL_WRITE, REMOTE_READ, LOCAL_WRITE | REMOTE_READ:
        mr = t.mr(64, access=access)
        no_write(t, (0, 1, 2), mr, wire.write(mr.rkey, mr.addr, b"bad"))


@row("mem-write-later-segment", "RFC 5041 7.1",
     "Every segment is checked by itself, whole, before its first byte is placed")
def write_later_segment(t):
    for offset, size in (100, 101), (199, 2), (200, 1), (-1, 2):
        mr, conn = t.mr(200), t.passive()
        refused(conn, (1, 1, 1), wire.write(mr.rkey, mr.addr, bytes([1]) * 100, last=False),
                wire.write(mr.rkey, mr.addr + offset, bytes([7]) * size))
        assert mr.get() == bytes([1]) * 100 + bytes(100)
        mr.intact()
        assert t.async_event() == "QP_ACCESS_ERR"


@row("mem-write-trickled", "RFC 5041 7.1",
     "A segment that comes in many pieces is checked, too, before its first byte is placed")
def write_trickled(t):
    mr, conn = t.mr(200), t.passive()
    ulpdu = wire.write(mr.rkey, mr.addr, bytes([7]) * 201)
    fpdu = conn.raw.tx.fpdu(ulpdu)
    for at in range(0, len(fpdu), 9):
        # The device may close the connection once it has the header.
        try:
            conn.push(fpdu[at:at + 9])
        except OSError:
            break
    carries(conn.terminate((1, 1, 1)), ulpdu)
    mr.untouched()


@row("mem-revoked-mid-segment", "RFC 5040 8.1.1",
     "No byte is placed once deregistering has returned, not even of a segment that had begun: 1/1/00", params="crc=0")
def revoked_mid_segment(t):
    # With CRC no byte is placed before the whole segment has arrived.
    for total in 1400, 9:
        mr, conn = t.mr(1400), t.passive(wire.ENHANCED)
        ulpdu = wire.write(mr.rkey, mr.addr, bytes([7]) * total)
        fpdu = conn.raw.tx.fpdu(ulpdu)
        half = 16 + total // 2
        conn.push(fpdu[:half])
        wait_until(lambda: mr.get(half - 17, 1) == b"\7", "the first half is placed")
        mr.dereg()
        placed = mr.get()
        conn.push(fpdu[half:])
        carries(conn.terminate((1, 1, 0)), ulpdu)
        assert mr.get() == placed == bytes([7]) * (half - 16) + bytes(1400 - half + 16)


@row("mem-revoked-under-fire", "RFC 5040 8.1.1",
     "No byte is placed once deregistering has returned, however fast the peer writes")
def revoked_under_fire(t):
    for _ in range(25):
        mr, conn = t.mr(8192), t.passive()
        fpdus = [conn.raw.tx.fpdu(wire.write(mr.rkey, mr.addr, bytes([n]) * 1400)) for n in range(1, 9)]

        def fire(push, fpdus=fpdus):
            try:
                while True:
                    for fpdu in fpdus:
                        push(fpdu)
            except OSError:
                pass  # the device has closed the connection

        gun = threading.Thread(target=fire, args=(conn.push,))
        gun.start()
        wait_until(lambda mr=mr: mr.get(1399, 1) != b"\0", "something is placed")
        mr.dereg()
        placed = mr.get()
        gun.join()
        assert mr.get() == placed, "placed after deregistering"
        ended(conn)
        conn.id.destroy()
        mr.intact()


@row("mem-rights-matrix", "RFC 5040 8.1.1", "Each set of rights allows what it names, and nothing else")
def rights_matrix(t):
    for access in range(8):
        if access & REMOTE_WRITE and not access & LOCAL_WRITE:
            try:
                t.mr(64, access=access)
            except OSError:
                continue
            raise AssertionError("REMOTE_WRITE without LOCAL_WRITE is to be refused")
        mr = t.mr(64, access=access, fill=3)
        # The program itself may always read a region.
        conn = t.active()
        conn.post_send(mr, 8)
        assert conn.message()[1] == bytes([3]) * 8
        conn.wc()
        conn.post_recv(mr, 8, wr_id=1)
        if access & LOCAL_WRITE:
            conn.send(wire.send(1, b"received"))
            conn.wc(wr_id=1)
            assert mr.get(0, 8) == b"received"
        else:
            refused(conn, (1, 0, 0), wire.send(1, b"received"), about=None)
            conn.wc("LOC_PROT_ERR", 1)
            mr.untouched()
        conn = t.passive()
        write, request = wire.write(mr.rkey, mr.addr + 8, b"written"), reading(mr)
        if access & REMOTE_WRITE:
            conn.send(write)
            conn.echo()
            assert mr.get(8, 7) == b"written"
        else:
            refused(conn, (0, 1, 2), write)
            assert mr.get(8, 7) == bytes([3]) * 7
            conn = t.passive()
        if access & REMOTE_READ:
            conn.send(request)
            assert conn.message()[1] == mr.get(0, 8)
        else:
            refused(conn, (0, 1, 2), request, read=True)


@row("mem-read-stag", "RFC 5040 7.2", "Read of an STag that does not exist: 0/1/00")
def read_stag(t):
    mr = t.mr(64)
    for stag in unknown(mr):
        no_read(t, (0, 1, 0), reading(mr, stag=stag))


@row("mem-read-key", "RFC 5040 7.2", "Read of an STag with another key: 0/1/00")
def read_key(t):
    mr = t.mr(64)
    for bit in range(8):
        no_read(t, (0, 1, 0), reading(mr, stag=mr.rkey ^ 1 << bit))


@row("mem-read-stale", "RFC 5040 8.1.1", "Read of an STag that was deregistered: 0/1/00")
def read_stale(t):
    mr, conn = t.mr(64), t.passive()
    conn.send(reading(mr))
    conn.message()
    mr.dereg()
    refused(conn, (0, 1, 0), reading(mr, msn=2), read=True)


@row("mem-read-pd", "RFC 5040 8.1.1", "Read of an STag of another protection domain: 0/1/03")
def read_pd(t):
    mr = t.mr(64, pd=t.make_pd())
    for size in 1, 64, 65:
        no_read(t, (0, 1, 3), reading(mr, size))


@row("mem-read-bounds", "RFC 5040 7.2", "Read that begins or ends outside the region: 0/1/01")
def read_bounds(t):
    mr = t.mr(1000)
    for offset, size in (*out_of_bounds(1000), (0, U32 - 1), (999, 1 << 31)):
        no_read(t, (0, 1, 1), reading(mr, size, offset))


@row("mem-read-wrap", "RFC 5040 7.2", "Read whose offset plus length wraps 64 bits: 0/1/04")
def read_wrap(t):
    mr = t.mr(64)
    for to in sums_that_wrap():
        no_read(t, (0, 1, 4), reading(mr, 16, to=to))
    no_read(t, (0, 1, 4), reading(mr, U32 - 1, to=U64 - 16))


@row("mem-read-rights", "RFC 5040 8.1.1", "Read without REMOTE_READ: 0/1/02")
def read_rights(t):
    for access in 0, LOCAL_WRITE, LOCAL_WRITE | REMOTE_WRITE:
        no_read(t, (0, 1, 2), reading(t.mr(64, access=access)))


@row("mem-read-revoked", "RFC 5040 4.8", "A Read that fails when it is half answered: the Terminate says how far it got")
def read_revoked(t):
    mr, conn = t.mr(4 << 20, fill=9), t.passive()
    revoked_midway(conn, mr, reading(mr, mr.size))


@row("mem-read-changed", "own", "A Read that is half answered when its region is given other memory ends, and shows none of that",
     OWN)
def read_changed(t):
    mr, other, conn = t.mr(4 << 20, fill=9), t.mr(4 << 20, fill=7), t.passive()
    revoked_midway(conn, mr, reading(mr, mr.size), lambda: mr.change(other))


@row("mem-send-inv-stag", "RFC 5040 7.2",
     "Send with Invalidate of an STag that is not valid: 0/2/09, and the receive fails")
def send_inv_stag(t):
    mr, buf, gone = t.mr(64), t.mr(64), t.mr(64)
    gone.dereg()
    for opcode in wire.SEND_INV, wire.SEND_SE_INV:
        for stag in (*unknown(mr), gone.rkey, mr.rkey ^ 1):
            conn = t.passive()
            conn.post_recv(buf, wr_id=1)
            conn.post_recv(buf, wr_id=2)
            refused(conn, (0, 2, 9), wire.send(1, b"invalidate", opcode=opcode, inv=stag))
            conn.wc("REM_INV_REQ_ERR", 1)
            flushed(conn, 2)
            assert t.async_event() == "QP_REQ_ERR"


@row("mem-send-inv-region", "RFC 5040 8.1.1",
     "A region that several streams share cannot be invalidated by a peer: 0/2/09, and it stays")
def send_inv_region(t):
    mr, buf = t.mr(64), t.mr(64)
    for region in mr, t.mr(64, pd=t.make_pd()), t.mr(64, access=LOCAL_WRITE):
        conn = t.passive()
        conn.post_recv(buf, wr_id=1)
        refused(conn, (0, 2, 9), wire.send(1, b"invalidate", opcode=wire.SEND_INV, inv=region.rkey))
        conn.wc("REM_INV_REQ_ERR", 1)
    conn = t.passive()
    conn.send(wire.write(mr.rkey, mr.addr, b"still there"))
    conn.echo()
    assert mr.get(0, 11) == b"still there"


def bad_elements(t):
    """Name and (address, length, lkey) of elements that may not be used for a receive."""
    mr = t.mr(100)
    gone, foreign, closed = t.mr(100), t.mr(100, pd=t.make_pd()), t.mr(100, access=REMOTE_READ)
    gone.dereg()
    return mr, {
        "no region": (mr.addr, 8, mr.lkey ^ 0x100),
        "another key": (mr.addr, 8, mr.lkey ^ 1),
        "deregistered": (gone.addr, 8, gone.lkey),
        "another protection domain": (foreign.addr, 8, foreign.lkey),
        "before the region": (mr.addr - 1, 8, mr.lkey),
        "one byte past": (mr.addr + 93, 8, mr.lkey),
        "wraps": (U64 - 4, 8, mr.lkey),
    }, (closed.addr, 8, closed.lkey)


@row("mem-recv-element", "own", "Send into a receive with a bad element: 1/0/00, LOC_PROT_ERR, QP_ACCESS_ERR", OWN)
def recv_element(t):
    mr, bad, closed = bad_elements(t)
    bad["not writable"] = closed
    for name, element in bad.items():
        for sges in [element], [(mr.addr, 4, mr.lkey), element], [element, (mr.addr, 4, mr.lkey)]:
            conn = t.passive()
            conn.post_recv(sges=sges, wr_id=1)
            # The data would fit the good element, but none of it is placed there.
            refused(conn, (1, 0, 0), wire.send(1, b"abcd"), about=None)
            conn.wc("LOC_PROT_ERR", 1)
            assert t.async_event() == "QP_ACCESS_ERR", name
            mr.untouched()


@row("mem-recv-shared-pd", "own",
     "Elements of a shared receive queue belong to the queue's protection domain, not the queue pair's", OWN)
def recv_shared_pd(t):
    other = t.make_pd()
    srq, theirs, ours = t.make_srq(pd=other), t.mr(64, pd=other), t.mr(64)
    conn = t.passive(srq=srq)
    conn.post_recv(theirs, wr_id=1)
    conn.send(wire.send(1, b"shared"))
    conn.wc(wr_id=1)
    assert theirs.get(0, 6) == b"shared"
    conn.post_recv(ours, wr_id=2)
    refused(conn, (1, 0, 0), wire.send(2, b"not ours"), about=None)
    conn.wc("LOC_PROT_ERR", 2)
    ours.untouched()


@row("mem-send-element", "RFC 5040 7.1",
     "A local error while a message is built: nothing of it is sent, but a Terminate without headers")
def send_element(t):
    mr, bad, closed = bad_elements(t)
    buf = t.mr(64)
    for name, element in bad.items():
        for opcode in verbs.WR_SEND, verbs.WR_WRITE, verbs.WR_READ:
            lists = [[element]] if opcode == verbs.WR_READ else [[element], [(mr.addr, 4, mr.lkey), element]]
            for sges in lists:
                local_error(t, buf, opcode, sges, name)
    local_error(t, buf, verbs.WR_READ, [closed], "sink not writable")


def local_error(t, buf, opcode, sges, name):
    conn = t.active()
    conn.post_recv(buf, wr_id=9)
    conn.post_send(buf, 4, wr_id=1, flags=0)
    conn.post(opcode, sges=sges, wr_id=2, rkey=1, remote=2)
    conn.post_send(buf, 4, wr_id=3)
    assert conn.segment().opcode == wire.SEND, name
    carries(conn.terminate(), None)
    # The third one may have been posted after the end.
    done = [conn.wc(None) for _ in range(3)]
    assert (done[0].wr_id, done[0].status) == (2, "LOC_PROT_ERR"), f"{name}: {done}"
    assert {(wc.wr_id, wc.status) for wc in done[1:]} == {(3, "WR_FLUSH_ERR"), (9, "WR_FLUSH_ERR")}, f"{name}: {done}"
    assert t.async_event() == "QP_FATAL", name


@row("mem-local-error-code", "own", "The Terminate for a local error is 0/0/00, a local catastrophic error of RDMAP", OWN)
def local_error_code(t):
    mr, conn = t.mr(64), t.active()
    conn.post(verbs.WR_SEND, sges=[(mr.addr, 65, mr.lkey)], wr_id=1)
    carries(conn.terminate((0, 0, 0)), None)
    conn.wc("LOC_PROT_ERR", 1)


def responding(t, mr, size=100, **how):
    """The device has a Read outstanding: (connection, its request)."""
    conn = t.active(**how)
    conn.post_read(mr, 0xabc, 0xdef, size, wr_id=1)
    request = conn.segment()
    assert request.opcode == wire.READ_REQUEST
    return conn, wire.ReadRequest(request.data)


@row("mem-response-stag", "RFC 5041 7.1", "Read Response to another STag than the request named: 1/1/00")
def response_stag(t):
    mr, other = t.mr(100), t.mr(100)
    for stag in other.rkey, mr.rkey ^ 1, 0, U32 - 1:
        conn, read = responding(t, mr)
        refused(conn, (1, 1, 0), wire.read_response(stag, read.sink_to, bytes([7]) * 100))
        conn.wc(None, 1)
        mr.untouched()
        other.untouched()


@row("mem-response-bounds", "RFC 5041 7.1", "Read Response outside the requested place, or longer than requested: 1/1/01")
def response_bounds(t):
    mr = t.mr(300)
    for offset, size, last in (1, 99, True), (-1, 100, True), (0, 101, True), (0, 1000, True), (0, 101, False), \
            (100, 1, True), (U64 - 50, 100, True):
        conn, read = responding(t, mr)
        refused(conn, (1, 1, 1), wire.read_response(read.sink_stag, read.sink_to + offset, bytes([7]) * size, last))
        conn.wc(None, 1)
        mr.untouched()
    conn, read = responding(t, mr)
    refused(conn, (1, 1, 1), wire.read_response(read.sink_stag, read.sink_to, bytes([7]) * 60, False),
            wire.read_response(read.sink_stag, read.sink_to + 60, bytes([7]) * 41))
    conn.wc(None, 1)
    assert mr.get() == bytes([7]) * 60 + bytes(240)


@row("mem-response-short", "own",
     "Read Response with fewer bytes than requested is an error, and the Read does not succeed", OWN)
def response_short(t):
    mr = t.mr(100)
    for sizes in (99,), (50, 49), (0,):
        conn, read = responding(t, mr)
        at, parts = 0, []
        for n, size in enumerate(sizes, 1):
            parts.append(wire.read_response(read.sink_stag, read.sink_to + at, bytes([7]) * size, n == len(sizes)))
            at += size
        refused(conn, (1, 1, 1), *parts)
        assert conn.wc(None, 1).status != "SUCCESS"
        mr.intact()


@row("mem-response-revoked", "RFC 5040 8.1.1",
     "Read Response into a sink that was deregistered: 1/1/00, nothing placed, LOC_PROT_ERR")
def response_revoked(t):
    mr = t.mr(100)
    conn, read = responding(t, mr)
    mr.dereg()
    refused(conn, (1, 1, 0), wire.read_response(read.sink_stag, read.sink_to, bytes([7]) * 100))
    conn.wc("LOC_PROT_ERR", 1)
    mr.untouched()
    assert t.async_event() == "QP_ACCESS_ERR"


@row("mem-stags-sparse", "RFC 5040 8.1.1", "STags are hard to predict, and spread over the full range")
def stags_sparse(t):
    mrs = [t.mr(64) for _ in range(200)]
    keys = [mr.rkey for mr in mrs]
    assert len(set(keys)) == 200
    indexes = [key >> 8 for key in keys]
    assert len({index >> 20 for index in indexes}) >= 12, "not spread over the range"
    steps = [(b - a) % (1 << 24) for a, b in zip(indexes, indexes[1:])]
    assert len(set(steps)) > 190, "each is the last one plus something"


@row("mem-stag-reuse", "own", "A deregistered STag is not reused by the next registrations", OWN)
def stag_reuse(t):
    seen = set()
    for _ in range(100):
        mr = t.mr(64)
        assert mr.rkey not in seen
        seen.add(mr.rkey)
        mr.dereg()


@row("mem-reg-read-only", "RFC 5040 8.1.2",
     "A program cannot grant rights that it lacks itself: no write to a read-only mapping")
def reg_read_only(t):
    with tempfile.TemporaryFile() as f:
        f.write(bytes([3]) * 4096)
        f.flush()
        # Python gives no address of a read-only mapping.
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_size_t]
        addr = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, f.fileno(), 0)
        for access in LOCAL_WRITE, LOCAL_WRITE | REMOTE_WRITE, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ:
            try:
                check_reg(addr, 4096, t.pd, access)
            except OSError:
                continue
            raise AssertionError(f"registered for access {access}")
        readable = check_reg(addr, 4096, t.pd, REMOTE_READ)
        conn = t.passive()
        conn.send(wire.read_request(1, SINK, 0, 4096, readable.contents.rkey, addr))
        assert conn.message()[1] == bytes([3]) * 4096
        refused(conn, (0, 1, 2), wire.write(readable.contents.rkey, addr, b"bad"))
        verbs.check(ibv.ibv_dereg_mr(readable))


@row("mem-reg-overflow", "own",
     "Registering a range that wraps the address space fails (rxe, May 2026: iova plus length)", OWN)
def reg_overflow(t):
    ibv.ibv_reg_mr_iova2.restype = ctypes.POINTER(verbs.MrStruct)
    ibv.ibv_reg_mr_iova2.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint]
    mr = t.mr(8192)
    page = mr.addr & 4095
    for iova in U64 - 4096 + page, U64 - 8192 + page, U64 - 1:
        if iova % 4096 != page:
            iova = (iova & ~4095) | page
        assert not ibv.ibv_reg_mr_iova2(t.pd, mr.addr, 8192, iova, 7), f"registered at {iova:#x}"
    for addr, size in (mr.addr, 0), (mr.addr, U64 - 1), (U64 - 4096, 8192), (0, 4096):
        assert not ibv.ibv_reg_mr_iova2(t.pd, addr, size, addr, 7), f"registered {size} bytes at {addr:#x}"
    # A region that ends just below the end of the address space is valid.
    iova = (U64 - 3 * 4096 & ~4095) | page
    high = ibv.ibv_reg_mr_iova2(t.pd, mr.addr, 4096, iova, 7)
    assert high
    conn = t.passive()
    conn.send(wire.write(high.contents.rkey, iova + 4095, b"!"))
    conn.echo()
    assert mr.get(4095, 1) == b"!"
    refused(conn, (1, 1, 1), wire.write(high.contents.rkey, iova + 4096, b"!"))
    verbs.check(ibv.ibv_dereg_mr(high))
