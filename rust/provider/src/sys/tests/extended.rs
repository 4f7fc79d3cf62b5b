// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Extended completion queues and queue pairs.

use super::{
    fake::*,
    *, //
};
use core::ptr::null;

/// Stores completion `at`, of work request `at`.
fn complete(driver: &[AtomicU64], at: usize, head: u64) {
    let words = &driver[at % 4 * 4..][..4];
    words[0].store(at as u64, Relaxed);
    words[2].store(0x7777, Relaxed);
    words[3].store(9, Relaxed);
    words[1].store(head | 1, Relaxed);
}

#[test]
fn an_extended_queue_says_what_it_was_asked_for() {
    let program = Program::open(GOOD).unwrap();
    let plain = ibv_cq_init_attr_ex::default();
    let flags = |flags| ibv_cq_init_attr_ex {
        comp_mask: ibv_cq_init_attr_mask_IBV_CQ_INIT_ATTR_MASK_FLAGS,
        flags,
        ..plain
    };
    let wc = |wc_flags| ibv_cq_init_attr_ex { wc_flags, ..plain };
    let unknown = ibv_cq_init_attr_ex {
        comp_mask: 4,
        ..plain
    };
    let vector = ibv_cq_init_attr_ex {
        comp_vector: u32::MAX,
        ..plain
    };
    for bit in 0..64 {
        let error = (bit > 6).then_some(Errno::EOPNOTSUPP);
        assert_eq!(program.cq_ex(wc(1 << bit)).err(), error, "{bit}");
    }
    assert!(program.cq_ex(wc(IBV_WC_STANDARD_FLAGS.into())).is_ok());
    let one_thread = ibv_create_cq_attr_flags_IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    let no_overrun = ibv_create_cq_attr_flags_IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    assert!(program.cq_ex(flags(one_thread)).is_ok());
    for attr in [flags(no_overrun), flags(4), unknown] {
        assert_eq!(program.cq_ex(attr), Err(Errno::EOPNOTSUPP));
    }
    assert_eq!(program.cq_ex(vector), Err(Errno::EINVAL));
}

#[test]
fn completions_are_read_one_by_one() {
    let program = Program::open(GOOD).unwrap();
    let cq = program.cq_ex(ibv_cq_init_attr_ex::default()).unwrap();
    let driver = program.queue(CQ_KEY);
    let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
    // Nothing is there, so the queue is not locked.
    for _ in 0..2 {
        assert_eq!(call!(cq, start_poll, &mut attr), ENOENT as c_int);
    }
    // A Receive of 5 bytes whose key was invalidated, and a Write that failed.
    complete(&driver, 0, 0x0000_0005_0000_0820);
    complete(&driver, 1, 0x0000_0000_0003_0000);
    attr.comp_mask = 1;
    assert_eq!(call!(cq, start_poll, &mut attr), EINVAL as c_int);
    attr.comp_mask = 0;
    assert_eq!(call!(cq, start_poll, &mut attr), 0);
    let id = || {
        // SAFETY: The queue is valid.
        let cq = unsafe { cq.read() };
        (cq.wr_id, cq.status)
    };
    assert_eq!(id(), (0, ibv_wc_status_IBV_WC_SUCCESS));
    assert_eq!(call!(cq, read_opcode), ibv_wc_opcode_IBV_WC_RECV);
    assert_eq!(call!(cq, read_byte_len), 5);
    assert_eq!(call!(cq, read_imm_data), 0x7777);
    assert_eq!(call!(cq, read_wc_flags), ibv_wc_flags_IBV_WC_WITH_INV);
    assert_eq!(call!(cq, read_qp_num), 9);
    assert_eq!(call!(cq, read_src_qp), 0);
    assert_eq!(call!(cq, read_slid), 0);
    assert_eq!(call!(cq, read_sl), 0);
    assert_eq!(call!(cq, read_dlid_path_bits), 0);
    assert_eq!(call!(cq, read_vendor_err), 0);
    assert_eq!(call!(cq, next_poll), 0);
    assert_eq!(id(), (1, ibv_wc_status_IBV_WC_LOC_QP_OP_ERR));
    assert_eq!(call!(cq, read_wc_flags), 0);
    for _ in 0..2 {
        assert_eq!(call!(cq, next_poll), ENOENT as c_int);
    }
    // The other way to poll goes on where this one has stopped.
    call!(cq, end_poll);
    complete(&driver, 2, 0);
    let mut wc = ibv_wc::default();
    let poll = program.ops.poll_cq.unwrap();
    // SAFETY: The queue and the room are valid.
    assert_eq!(unsafe { poll(cq.cast(), 1, &mut wc) }, 1);
    assert_eq!(wc.wr_id, 2);
    // Outside of a poll nothing happens.
    call!(cq, end_poll);
    assert_eq!(call!(cq, next_poll), EINVAL as c_int);
    assert_eq!(call!(cq, read_byte_len), 0);
}

const PD: u32 = ibv_qp_init_attr_mask_IBV_QP_INIT_ATTR_PD;
const OPS: u32 = PD | ibv_qp_init_attr_mask_IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
const ALL: u64 = (ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_SEND
    | ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_SEND_WITH_INV
    | ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_RDMA_WRITE
    | ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_RDMA_READ) as u64;
const WINDOWS: u64 = (ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_LOCAL_INV
    | ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_BIND_MW) as u64;

fn begin(qp: *mut ibv_qp_ex, id: u64, flags: u32) {
    // SAFETY: The queue pair is valid.
    unsafe { (*qp).wr_id = id };
    // SAFETY: The queue pair is valid.
    unsafe { (*qp).wr_flags = flags };
}

#[test]
fn only_what_can_be_built_is_promised() {
    let program = Program::open(GOOD).unwrap();
    for bit in 0..64 {
        let known = ALL & (1 << bit) != 0;
        let error = (!known).then_some(Errno::EOPNOTSUPP);
        assert_eq!(program.qp_ex(OPS, 1 << bit).err(), error, "{bit}");
    }
    // Without the mask the operations are not looked at, and it is not extended.
    let extended = |qp: *mut ibv_qp_ex| !fake::ibv_qp_to_qp_ex(qp.cast()).is_null();
    // Each release looks elsewhere.
    for offset in [360, 352, 344] {
        kernel(|kernel| kernel.comp_mask = offset);
        assert!(extended(program.qp_ex(OPS, ALL).unwrap()), "{offset}");
        assert!(!extended(program.qp_ex(PD, u64::MAX).unwrap()), "{offset}");
    }
    let flags = ibv_qp_init_attr_mask_IBV_QP_INIT_ATTR_CREATE_FLAGS;
    assert!(program.qp_ex(OPS | flags, ALL).is_ok());
    assert_eq!(program.qp_ex(OPS & !PD, ALL), Err(Errno::EINVAL));
    for bit in [1 << 1, 1 << 3, 1 << 4, 1 << 5, 1 << 31] {
        assert_eq!(program.qp_ex(OPS | bit, ALL), Err(Errno::EOPNOTSUPP));
    }
    drop(program);
    let features = feature::WINDOWS;
    let program = Program::open(Kernel { features, ..GOOD }).unwrap();
    assert!(program.qp_ex(OPS, ALL | WINDOWS).is_ok());
}

#[test]
fn a_batch_is_posted_as_a_whole() {
    let mut program = Program::open(GOOD).unwrap();
    let qp = program.qp_ex(OPS, ALL).unwrap();
    let driver = program.queue(SQ_KEY);
    call!(qp, wr_start);
    // A work request may have no data. The bit for inline data is not the program's.
    begin(
        qp,
        1,
        ibv_send_flags_IBV_SEND_FENCE | ibv_send_flags_IBV_SEND_INLINE,
    );
    call!(qp, wr_send);
    begin(qp, 2, ibv_send_flags_IBV_SEND_SIGNALED);
    call!(qp, wr_rdma_write, 0x2222, 0x3333);
    call!(qp, wr_set_sge, 6, 0x1000, 5);
    begin(qp, 3, 0);
    call!(qp, wr_rdma_read, 0x4444, 0x5555);
    let list = [ibv_sge {
        addr: 7,
        length: 8,
        lkey: 9,
    }; 2];
    call!(qp, wr_set_sge_list, 2, list.as_ptr());
    begin(qp, 4, ibv_send_flags_IBV_SEND_SOLICITED);
    call!(qp, wr_send_inv, 0x1111);
    let mut bytes = *b"hello";
    let of = |from: usize, length| ibv_data_buf {
        // SAFETY: It is within the bytes.
        addr: unsafe { bytes.as_mut_ptr().add(from) }.cast(),
        length,
    };
    let none = ibv_data_buf {
        addr: null_mut(),
        length: 0,
    };
    let mut of = of;
    let bufs = [of(3, 2), none, of(0, 2)];
    call!(qp, wr_set_inline_data_list, 3, bufs.as_ptr());
    bytes = [0; 5];
    // The driver sees nothing before the end.
    for at in 0..4 {
        assert_eq!(element(&driver, at).0 & 1, 0);
    }
    assert_eq!(program.rings(), 0);
    assert_eq!(call!(qp, wr_complete), 0);
    assert_eq!(program.rings(), 1);
    assert_eq!(bytes, [0; 5]);
    assert_eq!(element(&driver, 0), (0x0000_0000_0300_0011, 0));
    assert_eq!(element(&driver, 1), (0x0000_2222_0001_0005, 0x3333));
    assert_eq!(driver[15 + 4].load(Relaxed), 0x0000_0006_0000_0005);
    assert_eq!(element(&driver, 2), (0x0000_4444_0102_0001, 0x5555));
    assert_eq!(element(&driver, 3), (0x0000_1111_0501_000b, 0));
    assert_eq!(driver[45 + 4].load(Relaxed), 4);
    assert_eq!(driver[45 + 5].load(Relaxed).to_le_bytes(), *b"lohe\0\0\0\0");
    for at in 0..4 {
        assert_eq!(driver[at * 15].load(Relaxed), at as u64 + 1);
    }
}

#[test]
fn a_batch_with_an_error_leaves_no_trace() {
    let mut program = Program::open(GOOD).unwrap();
    let qp = program.qp_ex(OPS, ALL).unwrap();
    let driver = program.queue(SQ_KEY);
    let sges = [ibv_sge::default(); 7];
    let mut bytes = [0u8; 81];
    let addr: Private = bytes.as_mut_ptr().cast();
    let half = ibv_data_buf { addr, length: 41 };
    let endless = ibv_data_buf {
        addr,
        length: usize::MAX,
    };
    let bufs = [half, endless];
    let write = || call!(qp, wr_rdma_write, 1, 2);
    let mistakes: &[&dyn Fn()] = &[
        // The queue pair has two elements, and the queue has six.
        &|| call!(qp, wr_set_sge_list, 3, sges.as_ptr()),
        &|| call!(qp, wr_set_sge_list, 7, sges.as_ptr()),
        &|| call!(qp, wr_set_inline_data, addr, 81),
        &|| call!(qp, wr_set_inline_data_list, 2, [half; 2].as_ptr()),
        &|| call!(qp, wr_set_inline_data_list, 2, bufs.as_ptr()),
        &|| {
            call!(qp, wr_rdma_read, 1, 2);
            call!(qp, wr_set_inline_data, addr, 1);
        },
        // This driver has no windows.
        &|| call!(qp, wr_local_inv, 1),
        &|| {
            begin(qp, 0, 1 << 30);
            write();
        },
    ];
    for (number, mistake) in mistakes.iter().enumerate() {
        call!(qp, wr_start);
        begin(qp, 0, 0);
        write();
        write();
        mistake();
        begin(qp, 0, 0);
        write();
        assert_eq!(call!(qp, wr_complete), EINVAL as c_int, "{number}");
    }
    // Data without a work request.
    call!(qp, wr_start);
    call!(qp, wr_set_sge, 1, 2, 3);
    assert_eq!(call!(qp, wr_complete), EINVAL as c_int);
    // One more than the queue takes. The first error is the one that is reported.
    call!(qp, wr_start);
    for _ in 0..5 {
        write();
    }
    call!(qp, wr_send);
    call!(qp, wr_set_sge_list, 7, sges.as_ptr());
    assert_eq!(call!(qp, wr_complete), ENOMEM as c_int);
    // Given up.
    call!(qp, wr_start);
    write();
    call!(qp, wr_abort);
    for at in 0..4 {
        assert_eq!(element(&driver, at).0 & 1, 0);
    }
    assert_eq!(program.rings(), 0);

    // After all that the queue takes as many as ever, and in the other way, too.
    call!(qp, wr_start);
    for _ in 0..3 {
        write();
    }
    assert_eq!(call!(qp, wr_complete), 0);
    let mut list = [send(ibv_wr_opcode_IBV_WR_SEND, 0, &mut []); 2];
    assert_eq!(
        program.post_send(qp.cast(), &mut list),
        Err((ENOMEM as c_int, 1))
    );
    assert_eq!(element(&driver, 3).0, 0x0300_0001);
}

#[test]
fn outside_of_a_batch_nothing_is_built() {
    let program = Program::open(GOOD).unwrap();
    let qp = program.qp_ex(OPS, ALL).unwrap();
    call!(qp, wr_send);
    call!(qp, wr_set_sge, 1, 2, 3);
    call!(qp, wr_abort);
    assert_eq!(call!(qp, wr_complete), EINVAL as c_int);
    call!(qp, wr_start);
    call!(qp, wr_set_sge_list, 0, null());
    call!(qp, wr_abort);
    call!(qp, wr_start);
    assert_eq!(call!(qp, wr_complete), 0);
    assert_eq!(element(&program.queue(SQ_KEY), 0).0, 0);
}

#[test]
fn windows_are_bound_in_a_batch() {
    let features = feature::WINDOWS;
    let program = Program::open(Kernel { features, ..GOOD }).unwrap();
    let qp = program.qp_ex(OPS, ALL | WINDOWS).unwrap();
    let driver = program.queue(SQ_KEY);
    let mut mr = ibv_mr {
        lkey: 0x4444,
        ..Default::default()
    };
    let mut mw = ibv_mw {
        rkey: 0x5500_02ff,
        ..Default::default()
    };
    let mut info = ibv_mw_bind_info {
        mr: &mut mr,
        addr: 0x7777,
        length: 0x88,
        mw_access_flags: 6,
    };
    call!(qp, wr_start);
    begin(qp, 1, ibv_send_flags_IBV_SEND_SIGNALED);
    call!(qp, wr_bind_mw, &mut mw, 0x7766, &info);
    info = ibv_mw_bind_info::default();
    call!(qp, wr_local_inv, 0x1111);
    assert_eq!(call!(qp, wr_complete), 0);
    // The window has the index, and the program chooses the rest of the key.
    assert_eq!(element(&driver, 0), (0x5500_0266_0c01_0005, 0x88));
    assert_eq!(driver[4].load(Relaxed), 0x0000_4444_0000_0006);
    assert_eq!(element(&driver, 1), (0x0000_1111_0a00_0005, 0));
    // A bind has no data, and one of some length needs a region.
    info.length = 1;
    for data in [true, false] {
        call!(qp, wr_start);
        if data {
            call!(qp, wr_local_inv, 0x1111);
            call!(qp, wr_set_inline_data, null_mut(), 0);
        } else {
            call!(qp, wr_bind_mw, &mut mw, 0x6677, &info);
        }
        assert_eq!(call!(qp, wr_complete), EINVAL as c_int);
    }
    info.length = 0;
    call!(qp, wr_start);
    call!(qp, wr_bind_mw, null_mut(), 0x6677, &info);
    assert_eq!(call!(qp, wr_complete), EINVAL as c_int);
}

#[test]
fn nothing_is_left_of_a_batch_that_the_driver_refuses() {
    let program = Program::open(GOOD).unwrap();
    let qp = program.qp_ex(OPS, ALL).unwrap();
    let driver = program.queue(SQ_KEY);
    let full = File::options().write(true).open("/dev/full").unwrap();
    // SAFETY: Both descriptors are open. From now on the doorbell fails.
    unsafe { dup2(full.as_raw_fd(), program.file.as_raw_fd()) };
    let enospc = 28;
    for _ in 0..2 {
        call!(qp, wr_start);
        for _ in 0..3 {
            call!(qp, wr_send);
        }
        assert_eq!(call!(qp, wr_complete), enospc);
        for at in 0..3 {
            assert_eq!(element(&driver, at).0, 0);
        }
    }
}
