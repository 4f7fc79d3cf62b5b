// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Completions: from the driver's numbers to those of verbs.

use crate::{
    ring::Entry,
    sys::{
        abi::{
            op,
            status,
            wc_opcode,
            wc_status, //
        },
        Wc, //
    },
};

/// What a program gets for an entry. Whatever has no meaning is a general error.
pub(super) fn completion(entry: &Entry) -> Wc {
    let opcode = opcode(entry.op);
    Wc {
        id: entry.id,
        status: opcode.map_or(wc_status::GENERAL_ERR, |_| verbs_status(entry.status)),
        // It says nothing in a completion with an error.
        opcode: opcode.unwrap_or(wc_opcode::SEND),
        bytes: entry.bytes,
        qp_num: entry.qp_num,
        with: entry.with,
    }
}

fn opcode(op: u8) -> Option<u32> {
    match op {
        op::WRITE | op::WRITE_WITH_IMM => Some(wc_opcode::RDMA_WRITE),
        op::READ | op::READ_LOCAL_INV => Some(wc_opcode::RDMA_READ),
        op::SEND | op::SEND_REMOTE_INV | op::SEND_WITH_IMM => Some(wc_opcode::SEND),
        op::RECV_RDMA_IMM => Some(wc_opcode::RECV_RDMA_WITH_IMM),
        op::FETCH_AND_ADD => Some(wc_opcode::FETCH_ADD),
        op::COMP_AND_SWAP => Some(wc_opcode::COMP_SWAP),
        op::RECEIVE => Some(wc_opcode::RECV),
        op::BIND_MW => Some(wc_opcode::BIND_MW),
        op::INVAL_STAG => Some(wc_opcode::LOCAL_INV),
        _ => None,
    }
}

fn verbs_status(code: u16) -> u32 {
    match code {
        status::SUCCESS => wc_status::SUCCESS,
        status::LOC_LEN_ERR => wc_status::LOC_LEN_ERR,
        status::LOC_PROT_ERR => wc_status::LOC_PROT_ERR,
        status::LOC_QP_OP_ERR => wc_status::LOC_QP_OP_ERR,
        status::WR_FLUSH_ERR => wc_status::WR_FLUSH_ERR,
        status::BAD_RESP_ERR => wc_status::BAD_RESP_ERR,
        status::LOC_ACCESS_ERR => wc_status::LOC_ACCESS_ERR,
        status::REM_ACCESS_ERR => wc_status::REM_ACCESS_ERR,
        status::REM_INV_REQ_ERR => wc_status::REM_INV_REQ_ERR,
        status::MW_BIND_ERR => wc_status::MW_BIND_ERR,
        status::REM_OP_ERR => wc_status::REM_OP_ERR,
        status::RETRY_EXC_ERR => wc_status::RETRY_EXC_ERR,
        _ => wc_status::GENERAL_ERR,
    }
}
