# SPDX-License-Identifier: GPL-2.0
"""Elements of the send queue that a program writes itself, past its library."""

import ctypes
import itertools
import re
import struct

import wire
from refusal import carries, flushed, refused
from rows import OWN, row
from verbs import FENCE, SIGNALED

# From <rdma/siw-abi.h>: struct siw_sqe, and the opcodes.
NUM_SGE, OPCODE = 10, 11
READ, READ_LOCAL_INV, SEND, FETCH_ADD, CMP_SWAP, RECEIVE, READ_RESPONSE, INVAL_STAG, REG_MR = \
    1, 2, 3, 6, 7, 8, 9, 10, 11
# Ours, in include/siw_uapi.h.
BIND_MW, WRITE_IMM, RECV_IMM = 12, 13, 14
# Numbers that nothing else in a queue is.
IDS = itertools.count(0x1dea_15e1_e3e2_7077)


def element(wr_id):
    """The address of the element with that number in the queue, which this process maps."""
    with open("/proc/self/maps", encoding="ascii") as f:
        found = [[int(text, 16) for text in re.match(r"(\w+)-(\w+)", line).groups()]
                 for line in f if "/dev/infiniband/uverbs" in line]
    places = [begin + at for begin, end in found
              if (at := ctypes.string_at(begin, end - begin).find(struct.pack("=Q", wr_id))) >= 0]
    assert len(places) == 1, (places, found)
    return places[0]


def forged(t, opcode, num_sge=1):
    """A Send gets another opcode and number of elements before the device takes it: the device refuses it, and ends the
    connection."""
    conn, mr, wr_id = t.active(), t.mr(64), next(IDS)
    conn.post_recv(mr, wr_id=4)
    conn.post_read(mr, 1, 0, 8, wr_id=1)
    # This one waits for the response, and the others behind it are not taken.
    conn.post_send(mr, 8, wr_id=2, flags=SIGNALED | FENCE)
    sges = [(mr.addr, 8, mr.lkey)] + [(mr.addr, 0, mr.lkey)] * 3
    conn.post_send(sges=sges, wr_id=wr_id)
    conn.post_send(mr, 8, wr_id=3)
    at = element(wr_id)
    ctypes.memset(at + OPCODE, opcode, 1)
    ctypes.memset(at + NUM_SGE, num_sge, 1)
    request = wire.ReadRequest(conn.segment().data)
    conn.send(wire.read_response(request.sink_stag, request.sink_to, bytes(8)))
    assert conn.message()[0].opcode == wire.SEND
    carries(conn.terminate((0, 0, 0)), None)
    conn.wc(wr_id=1)
    conn.wc(wr_id=2)
    conn.wc("LOC_QP_OP_ERR", wr_id)
    flushed(conn, 3, 4)
    assert t.async_event() == "QP_FATAL"


@row("sqe-opcode", OWN, "An element whose operation is not for programs, or unknown: LOC_QP_OP_ERR, 0/0/00", kind=OWN)
def sqe_opcode(t):
    for opcode in READ_LOCAL_INV, RECEIVE, READ_RESPONSE, REG_MR, RECV_IMM, RECV_IMM + 1, 0x80, 0xff:
        forged(t, opcode)


@row("sqe-elements", OWN, "An element with too long a list, or one that does not fit its operation: LOC_QP_OP_ERR, 0/0/00",
     kind=OWN)
def sqe_elements(t):
    for opcode, wrong in ((SEND, (7, 0xff)), (READ, (2, 7)), (FETCH_ADD, (0, 1, 3, 7)), (CMP_SWAP, (0, 1, 2, 4, 7)),
                          (WRITE_IMM, (0, 7))):
        for num_sge in wrong:
            forged(t, opcode, num_sge)


@row("sqe-stock", OWN, "The stock library has not asked for windows, atomic operations and immediate data: LOC_QP_OP_ERR",
     kind=OWN, stock=True)
def sqe_stock(t):
    for opcode, num_sge in (BIND_MW, 1), (INVAL_STAG, 0), (WRITE_IMM, 2), (FETCH_ADD, 2), (CMP_SWAP, 3):
        forged(t, opcode, num_sge)


@row("sqe-stock-in", OWN, "A program with the stock library receives no immediate data: 0/2/06", kind=OWN, stock=True,
     params="large_fpdus=1")
def sqe_stock_in(t):
    mr = t.mr(64)
    for flags, ulpdu in (0, wire.immediate(1, bytes(8))), (0x02, wire.send(1, b"text", opcode=wire.SEND_IMM, inv=7)):
        conn = t.passive(wire.CRC | wire.ENHANCED | flags)
        conn.post_recv(mr, wr_id=1)
        refused(conn, (0, 2, 6), ulpdu)
        flushed(conn, 1)
        mr.untouched()
