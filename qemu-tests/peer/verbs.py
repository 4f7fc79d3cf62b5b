# SPDX-License-Identifier: GPL-2.0
"""The parts of libibverbs and librdmacm that the suite needs, by ctypes, with every argument in the caller's hands.
pyverbs hides the status of CM events and waits without a time limit."""

import ctypes
import errno
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, Union, byref, c_char_p, c_int, c_size_t, c_uint, c_uint8, c_uint16,
                    c_uint32, c_uint64, c_void_p, cast, sizeof)

ibv = ctypes.CDLL("libibverbs.so.1", use_errno=True)
rdma = ctypes.CDLL("librdmacm.so.1", use_errno=True)

# enum ibv_access_flags
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND, ZERO_BASED = 1, 2, 4, 8, 16, 32
# our own, in the range that other drivers ignore
ONE_TOUCH = 1 << 29
# enum ibv_wr_opcode
WR_WRITE, WR_WRITE_IMM, WR_SEND, WR_SEND_IMM, WR_READ, WR_CMP_SWAP, WR_FETCH_ADD = range(7)
WR_LOCAL_INV, WR_BIND_MW, WR_SEND_INV = 7, 8, 9
# enum ibv_send_flags
FENCE, SIGNALED, SOLICITED, INLINE = 1, 2, 4, 8
# enum ibv_wc_opcode
WC_SEND, WC_WRITE, WC_READ, WC_CMP_SWAP, WC_FETCH_ADD, WC_BIND_MW, WC_LOCAL_INV = range(7)
WC_RECV, WC_RECV_IMM = 128, 129
# enum ibv_wc_flags
WITH_IMM = 2

REREG_TRANSLATION = 1
# enum ibv_qp_state
RESET, INIT, RTR, RTS, SQD, SQE, ERR = range(7)
# masks of ibv_modify_qp
QP_STATE, QP_ACCESS, QP_PATH_MIG_STATE = 1, 8, 1 << 18

WC_STATUS = ("SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR BAD_RESP_ERR "
             "LOC_ACCESS_ERR REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR RNR_RETRY_EXC_ERR "
             "LOC_RDD_VIOL_ERR REM_INV_RD_REQ_ERR REM_ABORT_ERR INV_EECN_ERR INV_EEC_STATE_ERR FATAL_ERR "
             "RESP_TIMEOUT_ERR GENERAL_ERR").split()
CM_EVENT = ("ADDR_RESOLVED ADDR_ERROR ROUTE_RESOLVED ROUTE_ERROR CONNECT_REQUEST CONNECT_RESPONSE CONNECT_ERROR "
            "UNREACHABLE REJECTED ESTABLISHED DISCONNECTED DEVICE_REMOVAL MULTICAST_JOIN MULTICAST_ERROR ADDR_CHANGE "
            "TIMEWAIT_EXIT").split()
ASYNC_EVENT = ("CQ_ERR QP_FATAL QP_REQ_ERR QP_ACCESS_ERR COMM_EST SQ_DRAINED PATH_MIG PATH_MIG_ERR DEVICE_FATAL "
               "PORT_ACTIVE PORT_ERR LID_CHANGE PKEY_CHANGE SM_CHANGE SRQ_ERR SRQ_LIMIT_REACHED QP_LAST_WQE_REACHED "
               "CLIENT_REREGISTER GID_CHANGE WQ_FATAL").split()


class Sge(Structure):
    _fields_ = [("addr", c_uint64), ("length", c_uint32), ("lkey", c_uint32)]


class BindInfo(Structure):
    _fields_ = [("mr", c_void_p), ("addr", c_uint64), ("length", c_uint64), ("access", c_uint)]


class MwBind(Structure):
    _fields_ = [("wr_id", c_uint64), ("send_flags", c_uint), ("info", BindInfo)]


class _BindMw(Structure):
    _fields_ = [("mw", c_void_p), ("rkey", c_uint32), ("info", BindInfo)]


class RecvWr(Structure):
    _fields_ = [("wr_id", c_uint64), ("next", c_void_p), ("sg_list", POINTER(Sge)), ("num_sge", c_int)]


class _Atomic(Structure):
    _fields_ = [("remote_addr", c_uint64), ("compare_add", c_uint64), ("swap", c_uint64), ("rkey", c_uint32)]


class _Rdma(Structure):
    _fields_ = [("remote_addr", c_uint64), ("rkey", c_uint32)]


class _Wr(Union):
    _fields_ = [("rdma", _Rdma), ("atomic", _Atomic)]


class SendWr(Structure):
    _fields_ = [("wr_id", c_uint64), ("next", c_void_p), ("sg_list", POINTER(Sge)), ("num_sge", c_int),
                ("opcode", c_uint32), ("send_flags", c_uint), ("invalidate_rkey", c_uint32), ("wr", _Wr),
                ("qp_type", c_uint64), ("bind_mw", _BindMw), ("tail", c_uint64 * 8)]


class Wc(Structure):
    _fields_ = [("wr_id", c_uint64), ("status_code", c_uint32), ("opcode", c_uint32), ("vendor_err", c_uint32),
                ("byte_len", c_uint32), ("imm_data", c_uint32), ("qp_num", c_uint32), ("src_qp", c_uint32),
                ("wc_flags", c_uint), ("pkey_index", c_uint16), ("slid", c_uint16), ("sl", c_uint8),
                ("dlid_path_bits", c_uint8)]

    @property
    def status(self):
        return WC_STATUS[self.status_code]

    def __repr__(self):
        return f"Wc(wr_id {self.wr_id}, {self.status}, opcode {self.opcode}, {self.byte_len} bytes)"


class QpCap(Structure):
    _fields_ = [(name, c_uint32) for name in
                "max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data".split()]


class QpInitAttr(Structure):
    _fields_ = [("qp_context", c_void_p), ("send_cq", c_void_p), ("recv_cq", c_void_p), ("srq", c_void_p),
                ("cap", QpCap), ("qp_type", c_uint32), ("sq_sig_all", c_int)]


class QpAttr(Structure):
    _fields_ = [("qp_state", c_uint32), ("cur_qp_state", c_uint32), ("path_mtu", c_uint32),
                ("path_mig_state", c_uint32), ("qkey", c_uint32), ("rq_psn", c_uint32), ("sq_psn", c_uint32),
                ("dest_qp_num", c_uint32), ("qp_access_flags", c_uint), ("cap", QpCap), ("ah_attr", c_uint64 * 4),
                ("alt_ah_attr", c_uint64 * 4), ("pkey_index", c_uint16), ("alt_pkey_index", c_uint16),
                ("en_sqd_async_notify", c_uint8), ("sq_draining", c_uint8), ("max_rd_atomic", c_uint8),
                ("max_dest_rd_atomic", c_uint8), ("min_rnr_timer", c_uint8), ("port_num", c_uint8),
                ("timeout", c_uint8), ("retry_cnt", c_uint8), ("rnr_retry", c_uint8), ("alt_port_num", c_uint8),
                ("alt_timeout", c_uint8), ("rate_limit", c_uint32)]


class SrqInitAttr(Structure):
    _fields_ = [("srq_context", c_void_p), ("max_wr", c_uint32), ("max_sge", c_uint32), ("srq_limit", c_uint32)]


class AsyncEvent(Structure):
    _fields_ = [("element", c_void_p), ("event_type", c_uint32)]


class Ops(Structure):
    """struct ibv_context_ops: what the inline functions of verbs.h call."""
    _fields_ = [("slot", c_void_p * 32)]


class Context(Structure):
    _fields_ = [("device", c_void_p), ("ops", Ops), ("cmd_fd", c_int), ("async_fd", c_int)]


class Pd(Structure):
    _fields_ = [("context", POINTER(Context)), ("handle", c_uint32)]


class CompChannel(Structure):
    _fields_ = [("context", c_void_p), ("fd", c_int), ("refcnt", c_int)]


class MrStruct(Structure):
    _fields_ = [("context", c_void_p), ("pd", c_void_p), ("addr", c_void_p), ("length", c_size_t),
                ("handle", c_uint32), ("lkey", c_uint32), ("rkey", c_uint32)]


class MwStruct(Structure):
    _fields_ = [("context", c_void_p), ("pd", c_void_p), ("rkey", c_uint32), ("handle", c_uint32), ("kind", c_uint32)]


class QpStruct(Structure):
    _fields_ = [("context", POINTER(Context)), ("qp_context", c_void_p), ("pd", c_void_p), ("send_cq", c_void_p),
                ("recv_cq", c_void_p), ("srq", c_void_p), ("handle", c_uint32), ("qp_num", c_uint32)]


class EventChannel(Structure):
    _fields_ = [("fd", c_int)]


class CmIdStruct(Structure):
    _fields_ = [("verbs", POINTER(Context)), ("channel", POINTER(EventChannel)), ("context", c_void_p),
                ("qp", POINTER(QpStruct))]


class ConnParam(Structure):
    _fields_ = [("private_data", c_void_p), ("private_data_len", c_uint8), ("responder_resources", c_uint8),
                ("initiator_depth", c_uint8), ("flow_control", c_uint8), ("retry_count", c_uint8),
                ("rnr_retry_count", c_uint8), ("srq", c_uint8), ("qp_num", c_uint32)]


class CmEventStruct(Structure):
    _fields_ = [("id", POINTER(CmIdStruct)), ("listen_id", POINTER(CmIdStruct)), ("event", c_uint32),
                ("status", c_int), ("param", ConnParam)]


# Slots of struct ibv_context_ops.
ALLOC_MW, BIND_MW, DEALLOC_MW = 7, 8, 9
POLL_CQ, REQ_NOTIFY_CQ, POST_SRQ_RECV, POST_SEND, POST_RECV = 11, 12, 20, 25, 26

poll_cq_t = CFUNCTYPE(c_int, c_void_p, c_int, POINTER(Wc))
req_notify_t = CFUNCTYPE(c_int, c_void_p, c_int)
post_send_t = CFUNCTYPE(c_int, c_void_p, POINTER(SendWr), POINTER(c_void_p))
alloc_mw_t = CFUNCTYPE(POINTER(MwStruct), c_void_p, c_uint32, use_errno=True)
bind_mw_t = CFUNCTYPE(c_int, c_void_p, POINTER(MwStruct), POINTER(MwBind))
dealloc_mw_t = CFUNCTYPE(c_int, POINTER(MwStruct))
post_recv_t = CFUNCTYPE(c_int, c_void_p, POINTER(RecvWr), POINTER(c_void_p))


def _declare():
    pointer, integer = c_void_p, c_int
    for lib, name, result, *args in (
            (ibv, "ibv_alloc_pd", pointer, pointer),
            (ibv, "ibv_dealloc_pd", integer, pointer),
            (ibv, "ibv_reg_mr", POINTER(MrStruct), pointer, pointer, c_size_t, integer),
            (ibv, "ibv_rereg_mr", integer, POINTER(MrStruct), integer, pointer, pointer, c_size_t, integer),
            (ibv, "ibv_dereg_mr", integer, POINTER(MrStruct)),
            (ibv, "ibv_create_comp_channel", POINTER(CompChannel), pointer),
            (ibv, "ibv_destroy_comp_channel", integer, POINTER(CompChannel)),
            (ibv, "ibv_create_cq", pointer, pointer, integer, pointer, POINTER(CompChannel), integer),
            (ibv, "ibv_destroy_cq", integer, pointer),
            (ibv, "ibv_get_cq_event", integer, POINTER(CompChannel), POINTER(c_void_p), POINTER(c_void_p)),
            (ibv, "ibv_ack_cq_events", None, pointer, c_uint),
            (ibv, "ibv_create_srq", pointer, pointer, POINTER(SrqInitAttr)),
            (ibv, "ibv_modify_srq", integer, pointer, pointer, integer),
            (ibv, "ibv_destroy_srq", integer, pointer),
            (ibv, "ibv_modify_qp", integer, POINTER(QpStruct), POINTER(QpAttr), integer),
            (ibv, "ibv_query_qp", integer, POINTER(QpStruct), POINTER(QpAttr), integer, POINTER(QpInitAttr)),
            (ibv, "ibv_get_async_event", integer, pointer, POINTER(AsyncEvent)),
            (ibv, "ibv_ack_async_event", None, POINTER(AsyncEvent)),
            (rdma, "rdma_get_devices", POINTER(POINTER(Context)), POINTER(c_int)),
            (rdma, "rdma_create_event_channel", POINTER(EventChannel)),
            (rdma, "rdma_destroy_event_channel", None, POINTER(EventChannel)),
            (rdma, "rdma_create_id", integer, POINTER(EventChannel), POINTER(POINTER(CmIdStruct)), pointer, integer),
            (rdma, "rdma_destroy_id", integer, POINTER(CmIdStruct)),
            (rdma, "rdma_bind_addr", integer, POINTER(CmIdStruct), c_char_p),
            (rdma, "rdma_listen", integer, POINTER(CmIdStruct), integer),
            (rdma, "rdma_resolve_addr", integer, POINTER(CmIdStruct), c_char_p, c_char_p, integer),
            (rdma, "rdma_resolve_route", integer, POINTER(CmIdStruct), integer),
            (rdma, "rdma_create_qp", integer, POINTER(CmIdStruct), pointer, POINTER(QpInitAttr)),
            (rdma, "rdma_destroy_qp", None, POINTER(CmIdStruct)),
            (rdma, "rdma_connect", integer, POINTER(CmIdStruct), POINTER(ConnParam)),
            (rdma, "rdma_accept", integer, POINTER(CmIdStruct), POINTER(ConnParam)),
            (rdma, "rdma_reject", integer, POINTER(CmIdStruct), c_char_p, c_uint8),
            (rdma, "rdma_disconnect", integer, POINTER(CmIdStruct)),
            (rdma, "rdma_get_cm_event", integer, POINTER(EventChannel), POINTER(POINTER(CmEventStruct))),
            (rdma, "rdma_ack_cm_event", integer, POINTER(CmEventStruct)),
            (rdma, "rdma_get_local_addr", pointer, POINTER(CmIdStruct)),
            (rdma, "rdma_get_src_port", c_uint16, POINTER(CmIdStruct)),
    ):
        function = getattr(lib, name, None)
        if function is None:
            continue  # inline in the header
        function.restype, function.argtypes = result, args


_declare()


def check(result):
    """Raises OSError if a call has failed. Results are 0, or -1 with errno, or an errno of either sign, or a pointer."""
    if result is None or (not isinstance(result, int) and not result):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if isinstance(result, int) and result and result < 4096:
        code = ctypes.get_errno() if result == -1 else abs(result)
        raise OSError(code, os.strerror(code))
    return result


def sockaddr(address, port):
    """struct sockaddr_in or sockaddr_in6 of this machine's family numbers."""
    import socket
    import struct
    if ":" in address:
        return struct.pack("=H", socket.AF_INET6) + struct.pack(">HI", port, 0) + \
            socket.inet_pton(socket.AF_INET6, address) + bytes(4)
    return struct.pack("=H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton(address) + bytes(8)
