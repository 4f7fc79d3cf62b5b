// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The library through its tables, as libibverbs uses it.

#![cfg_attr(
    fuzzing,
    allow(dead_code, unused_imports, reason = "the tests are left out")
)]

/// Calls a function of an extended object.
macro_rules! call {
    ($object:expr, $function:ident $(, $arg:expr)*) => {{
        let object = $object;
        // SAFETY: The object is valid.
        let function = unsafe { (*object).$function.unwrap() };
        // SAFETY: The object is valid, and so is what is named.
        unsafe { function(object $(, $arg)*) }
    }};
}

mod domain;
mod errors;
mod extended;
mod fake;
mod input;
mod lid;
mod objects;
mod polling;
mod port;
mod posting;
mod program;
pub(super) mod random;
mod resize;
#[cfg(test)]
mod scarce;

use self::{
    fake::*,
    program::Program, //
};
use super::{
    abi::feature,
    bindings::*,
    private::*,
    *, //
};
use crate::verbs::Siw;
use core::{
    ffi::{
        c_int,
        CStr, //
    },
    ptr::null_mut,
    sync::atomic::{
        AtomicU64,
        Ordering::Relaxed, //
    },
};
use std::{
    fs::File,
    os::fd::AsRawFd, //
};

unsafe extern "C" {
    fn dup2(from: c_int, to: c_int) -> c_int;
}

/// Clears `errno`: what an earlier call has left there must not pass for the reason of a failure.
fn clear_errno() {
    // SAFETY: No requirements.
    let errno = unsafe { __errno_location() };
    // SAFETY: It points to this thread's variable, which nobody else uses.
    unsafe { errno.write(0) };
}

/// The object that `make` makes, or what it leaves in `errno` if it makes none.
fn made<T>(make: impl FnOnce() -> *mut T) -> Result<*mut T, Errno> {
    clear_errno();
    let object = make();
    if object.is_null() {
        let error = Errno::last();
        assert_ne!(error.number(), 0);
        return Err(error);
    }
    Ok(object)
}

#[test]
fn the_library_registers_for_siw() {
    // SAFETY: The library has registered a constant table.
    let ops = unsafe { &*DEVICE_OPS.load(Relaxed) };
    // SAFETY: It is text.
    assert_eq!(unsafe { CStr::from_ptr(ops.name) }, c"siw");
    assert_eq!(
        (ops.match_min_abi_version, ops.match_max_abi_version),
        (1, 1)
    );
    // SAFETY: The table has two entries.
    let [siw, end] = unsafe { &*ops.match_table.cast::<[VerbsMatchEnt; 2]>() };
    assert_eq!(
        (siw.kind, siw.driver_id),
        (MATCH_DRIVER_ID, rdma_driver_id_RDMA_DRIVER_SIW.into())
    );
    assert_eq!(end.kind, 0);
}

#[test]
fn features_that_nobody_asked_for_are_refused() {
    let program = Program::open(GOOD);
    assert!(program.is_ok());
    assert_eq!(kernel(|kernel| kernel.wanted), Some(Siw::WANT));
    drop(program);
    assert_eq!(kernel(|kernel| kernel.closed), 1);
    let features = 1 << 31;
    let refused = Program::open(Kernel { features, ..GOOD });
    assert_eq!(refused.err(), Some(Errno::EPROTO));
    assert_eq!(kernel(|kernel| kernel.closed), 1);
}

#[test]
fn queues_that_make_no_sense_are_refused() {
    let bad = [
        (CQ_KEY, 0),
        (CQ_KEY, 3),
        (CQ_KEY, u32::MAX),
        (1, ENTRIES),
        (u64::MAX, ENTRIES),
        (1 << 63, ENTRIES),
    ];
    for queue in bad {
        let mut program = Program::open(Kernel { cq: queue, ..GOOD }).unwrap();
        assert!(program.cq().is_null(), "{queue:?}");
        kernel(|kernel| kernel.sq = queue);
        assert!(program.qp(null_mut()).is_null(), "{queue:?}");
        kernel(|kernel| (kernel.sq, kernel.rq) = (GOOD.sq, queue));
        // A queue pair without a receive queue is one that only sends.
        assert_eq!(program.qp(null_mut()).is_null(), queue.1 != 0, "{queue:?}");
        assert!(program.srq().is_null(), "{queue:?}");
        // What the kernel has made is destroyed.
        let destroyed = 3 + u32::from(queue.1 != 0);
        assert_eq!(kernel(|kernel| kernel.destroyed), destroyed, "{queue:?}");
    }
    // With a shared queue, nothing is said of the queue pair's own.
    let mut program = Program::open(GOOD).unwrap();
    let srq = program.srq();
    kernel(|kernel| kernel.rq = (1, 3));
    assert!(!program.qp(srq).is_null());
}

#[test]
fn objects_stay_usable_if_the_kernel_keeps_them() {
    let program = Program::open(Kernel {
        destroy: BUSY,
        ..GOOD
    })
    .unwrap();
    let cq = program.cq();
    // SAFETY: The queue is valid.
    assert_eq!(unsafe { program.ops.destroy_cq.unwrap()(cq) }, BUSY);
    let mut wc = ibv_wc::default();
    // SAFETY: The queue and the room are valid.
    assert_eq!(unsafe { program.ops.poll_cq.unwrap()(cq, 1, &mut wc) }, 0);
    kernel(|kernel| kernel.destroy = 0);
    // SAFETY: The queue is valid.
    assert_eq!(unsafe { program.ops.destroy_cq.unwrap()(cq) }, 0);
}

#[test]
fn garbage_in_a_completion_queue_is_an_error() {
    let program = Program::open(GOOD).unwrap();
    let cq = program.cq();
    let driver = program.queue(CQ_KEY);
    let poll = program.ops.poll_cq.unwrap();
    let mut wc = [ibv_wc::default(); 2];
    // SAFETY: The queue and the room are valid.
    assert_eq!(unsafe { poll(cq, -1, wc.as_mut_ptr()) }, -(EINVAL as c_int));
    let mut get = 0;
    for status in (0..32).chain([0x100, 0x7fff, 0xffff]) {
        for op in 0..=255u64 {
            driver[get % 4 * 4 + 1].store(1 | (op << 8) | (status << 16) | (77 << 32), Relaxed);
            get += 1;
            // SAFETY: The queue and the room are valid.
            assert_eq!(unsafe { poll(cq, 2, wc.as_mut_ptr()) }, 1);
            let known = matches!(op, 0..=8 | 10 | 12..=14);
            assert!(wc[0].status <= ibv_wc_status_IBV_WC_GENERAL_ERR);
            assert_eq!(wc[0].status == 0, known && status == 0, "{op} {status}");
            assert_eq!((wc[0].byte_len, wc[0].wc_flags), (77, 0));
        }
    }
}

#[test]
fn an_invalidated_key_is_reported() {
    let program = Program::open(GOOD).unwrap();
    let cq = program.cq();
    let driver = program.queue(CQ_KEY);
    let mut wc = ibv_wc::default();
    driver[2].store(0xffff_0000_1234_5678, Relaxed);
    driver[1].store(0x0821, Relaxed);
    // SAFETY: The queue and the room are valid.
    assert_eq!(unsafe { program.ops.poll_cq.unwrap()(cq, 1, &mut wc) }, 1);
    assert_eq!(wc.opcode, ibv_wc_opcode_IBV_WC_RECV);
    assert_eq!(wc.wc_flags, ibv_wc_flags_IBV_WC_WITH_INV);
    // SAFETY: The flags say that this is the key.
    assert_eq!(unsafe { wc.__bindgen_anon_1.invalidated_rkey }, 0x1234_5678);
}

fn send(opcode: u32, flags: u32, sges: &mut [ibv_sge]) -> ibv_send_wr {
    let mut wr = ibv_send_wr {
        opcode,
        send_flags: flags,
        sg_list: sges.as_mut_ptr(),
        num_sge: sges.len() as c_int,
        ..Default::default()
    };
    wr.__bindgen_anon_1.invalidate_rkey = 0x1111;
    wr.wr.rdma.rkey = 0x2222;
    wr.wr.rdma.remote_addr = 0x3333;
    wr
}

fn element(driver: &[AtomicU64], at: usize) -> (u64, u64) {
    (
        driver[at * 15 + 1].load(Relaxed),
        driver[at * 15 + 2].load(Relaxed),
    )
}

#[test]
fn each_operation_has_its_key() {
    let mut program = Program::open(GOOD).unwrap();
    let qp = program.qp(null_mut());
    let driver = program.queue(SQ_KEY);
    let mut list = [
        send(ibv_wr_opcode_IBV_WR_SEND, 0, &mut []),
        send(
            ibv_wr_opcode_IBV_WR_SEND_WITH_INV,
            ibv_send_flags_IBV_SEND_SOLICITED,
            &mut [],
        ),
        send(
            ibv_wr_opcode_IBV_WR_RDMA_WRITE,
            ibv_send_flags_IBV_SEND_SIGNALED,
            &mut [],
        ),
        send(
            ibv_wr_opcode_IBV_WR_RDMA_READ,
            ibv_send_flags_IBV_SEND_FENCE,
            &mut [],
        ),
    ];
    assert_eq!(program.post_send(qp, &mut list), Ok(()));
    assert_eq!(element(&driver, 0), (0x0000_0000_0300_0001, 0));
    assert_eq!(element(&driver, 1), (0x0000_1111_0500_0009, 0));
    assert_eq!(element(&driver, 2), (0x0000_2222_0000_0005, 0x3333));
    assert_eq!(element(&driver, 3), (0x0000_2222_0100_0011, 0x3333));
    assert_eq!(program.rings(), 1);
}

#[test]
fn windows_need_a_driver_that_has_them() {
    let (bind, invalidate) = (ibv_wr_opcode_IBV_WR_BIND_MW, ibv_wr_opcode_IBV_WR_LOCAL_INV);
    let mut program = Program::open(GOOD).unwrap();
    assert!(program.ops.alloc_mw.is_none() && program.ops.bind_mw.is_none());
    let qp = program.qp(null_mut());
    for opcode in [bind, invalidate] {
        let error = program.post_send(qp, &mut [send(opcode, 0, &mut [])]);
        assert_eq!(error, Err((EINVAL as c_int, 0)), "{opcode}");
    }
    drop(program);

    let features = feature::WINDOWS;
    let mut program = Program::open(Kernel { features, ..GOOD }).unwrap();
    assert!(program.ops.alloc_mw.is_some() && program.ops.dealloc_mw.is_some());
    let (qp, driver) = (program.qp(null_mut()), program.queue(SQ_KEY));
    let mut mr = ibv_mr {
        lkey: 0x4444,
        ..Default::default()
    };
    let mut mw = ibv_mw {
        rkey: 0x5500_02ff,
        type_: ibv_mw_type_IBV_MW_TYPE_1,
        ..Default::default()
    };
    let bind_info = ibv_mw_bind_info {
        mr: &mut mr,
        addr: 0x7777,
        length: 0x8_0000_0000,
        mw_access_flags: 6,
    };
    let mut two = send(bind, ibv_send_flags_IBV_SEND_SIGNALED, &mut []);
    two.__bindgen_anon_2.bind_mw.mw = &mut mw;
    // The key of another window: this one has the index, and the program chooses the rest.
    two.__bindgen_anon_2.bind_mw.rkey = 0x7700_03fe;
    two.__bindgen_anon_2.bind_mw.bind_info = bind_info;
    let fence = ibv_send_flags_IBV_SEND_FENCE;
    let mut list = [two, send(invalidate, fence, &mut [])];
    assert_eq!(program.post_send(qp, &mut list), Ok(()));
    assert_eq!(element(&driver, 0), (0x5500_02fe_0c01_0005, 0x8_0000_0000));
    // A window of type 2 is the program's to change: it knows the key already.
    assert_eq!(mw.rkey, 0x5500_02ff);
    assert_eq!(driver[3].load(Relaxed), 0x7777);
    assert_eq!(driver[4].load(Relaxed), 0x0000_4444_0000_0006);
    assert_eq!(element(&driver, 1), (0x0000_1111_0a00_0011, 0));

    // A window of type 1 has its next key as soon as the bind is posted.
    let mut one = ibv_mw_bind {
        wr_id: 9,
        send_flags: 0,
        bind_info: ibv_mw_bind_info {
            mr: null_mut(),
            length: 0,
            ..bind_info
        },
    };
    // SAFETY: All three are valid.
    let mut ask = |mw: &mut ibv_mw| unsafe { program.ops.bind_mw.unwrap()(qp, mw, &mut one) };
    assert_eq!(ask(&mut mw), 0);
    assert_eq!(mw.rkey, 0x5500_0200);
    assert_eq!(element(&driver, 2), (0x5500_0200_0c01_0001, 0));
    mw.type_ = ibv_mw_type_IBV_MW_TYPE_2;
    assert_eq!(ask(&mut mw), EINVAL as c_int);
    assert_eq!(mw.rkey, 0x5500_0200);

    // A region is needed for what has a length.
    two.__bindgen_anon_2.bind_mw.bind_info.mr = null_mut();
    let error = program.post_send(qp, &mut [two]);
    assert_eq!(error, Err((EINVAL as c_int, 0)));
    assert_eq!(mw.rkey, 0x5500_0200);
    // So is a window.
    two.__bindgen_anon_2.bind_mw.mw = null_mut();
    two.__bindgen_anon_2.bind_mw.bind_info = bind_info;
    let error = program.post_send(qp, &mut [two]);
    assert_eq!(error, Err((EINVAL as c_int, 0)));
    for flag in [
        ibv_send_flags_IBV_SEND_INLINE,
        ibv_send_flags_IBV_SEND_SOLICITED,
    ] {
        let error = program.post_send(qp, &mut [send(invalidate, flag, &mut [])]);
        assert_eq!(error, Err((EINVAL as c_int, 0)));
    }
}

#[test]
fn what_cannot_be_sent_is_named() {
    let sge = ibv_sge::default();
    let mut bytes = [1u8; 81];
    let long = ibv_sge {
        addr: bytes.as_mut_ptr().expose_provenance() as u64,
        length: 81,
        lkey: 0,
    };
    let inline = ibv_send_flags_IBV_SEND_INLINE;
    let write = ibv_wr_opcode_IBV_WR_RDMA_WRITE;
    let mut negative = send(write, 0, &mut []);
    negative.num_sge = -1;
    let mut none = send(write, 0, &mut []);
    (none.num_sge, none.sg_list) = (1, null_mut());
    let (mut three, mut one) = ([sge; 3], [long; 1]);
    let bad = [
        send(ibv_wr_opcode_IBV_WR_SEND_WITH_IMM, 0, &mut []),
        send(ibv_wr_opcode_IBV_WR_ATOMIC_CMP_AND_SWP, 0, &mut []),
        send(u32::MAX, 0, &mut []),
        send(write, 1 << 30, &mut []),
        send(ibv_wr_opcode_IBV_WR_RDMA_READ, inline, &mut []),
        send(write, inline, &mut one),
        // The queue pair has two elements.
        send(write, 0, &mut three),
        negative,
        none,
    ];
    let mut program = Program::open(GOOD).unwrap();
    let qp = program.qp(null_mut());
    let driver = program.queue(SQ_KEY);
    for (posted, wr) in bad.into_iter().enumerate() {
        let mut list = [send(write, 0, &mut []), wr, send(write, 0, &mut [])];
        let error = program.post_send(qp, &mut list);
        assert_eq!(error, Err((EINVAL as c_int, 1)), "{posted}");
        // The one before it is posted, and the driver told.
        assert_ne!(driver[posted % 4 * 15 + 1].swap(0, Relaxed), 0, "{posted}");
        assert_eq!(program.rings(), posted as u64 + 1);
    }
    let mut list = [send(write, 0, &mut []); 5];
    assert_eq!(program.post_send(qp, &mut list), Err((ENOMEM as c_int, 4)));
}

#[test]
fn nothing_is_left_of_sends_that_the_driver_refuses() {
    let mut program = Program::open(GOOD).unwrap();
    let qp = program.qp(null_mut());
    let driver = program.queue(SQ_KEY);
    let full = File::options().write(true).open("/dev/full").unwrap();
    // SAFETY: Both descriptors are open. From now on the doorbell fails.
    unsafe { dup2(full.as_raw_fd(), program.file.as_raw_fd()) };
    let mut list = [send(ibv_wr_opcode_IBV_WR_SEND, 0, &mut []); 3];
    let enospc = 28;
    assert_eq!(program.post_send(qp, &mut list), Err((enospc, 0)));
    for at in 0..3 {
        assert_eq!(element(&driver, at).0, 0);
    }
}

#[test]
fn receives_are_refused_where_there_is_no_room() {
    let mut program = Program::open(GOOD).unwrap();
    let srq = program.srq();
    let shared = program.qp(srq);
    let own = program.qp(null_mut());
    let driver = program.queue(RQ_KEY);
    let mut sges = [ibv_sge::default(); 2];
    let mut wr = ibv_recv_wr {
        sg_list: sges.as_mut_ptr(),
        ..Default::default()
    };
    let mut post = |to_srq, qp, num| {
        wr.num_sge = num;
        let mut bad = null_mut();
        let error = if to_srq {
            // SAFETY: The queue and the work request are valid.
            unsafe { program.ops.post_srq_recv.unwrap()(srq, &mut wr, &mut bad) }
        } else {
            // SAFETY: The queue pair and the work request are valid.
            unsafe { program.ops.post_recv.unwrap()(qp, &mut wr, &mut bad) }
        };
        assert_eq!(bad.is_null(), error == 0);
        error as u32
    };
    // It has no queue of its own, and the other one has one element a request.
    assert_eq!(post(false, shared, 1), EINVAL);
    assert_eq!(post(false, own, 2), EINVAL);
    assert_eq!(post(false, own, -1), EINVAL);
    for (to_srq, want) in [(false, [0, 0, 0, 0, ENOMEM]), (true, [0, 0, 0, 0, ENOMEM])] {
        assert_eq!([0, 1, 1, 1, 1].map(|num| post(to_srq, own, num)), want);
        // Both are in the same memory.
        for at in 0..4 {
            driver[at * 14 + 1].store(0, Relaxed);
        }
    }
}
