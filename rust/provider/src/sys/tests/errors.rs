// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! What the kernel refuses, and what the library does: where the reason is found.

use super::{
    fake::*,
    *, //
};
use std::{
    fs,
    path::Path,
    sync::mpsc,
    thread, //
};

#[test]
fn the_doorbell_rings_for_other_credentials() {
    let mut program = Program::open(GOOD).unwrap();
    let qp = program.qp(null_mut());
    let driver = program.queue(SQ_KEY);
    // A thread sets attributes of its own only: the kernel answers `EACCES` to any other one.
    let (open, opened) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let other = thread::spawn(move || {
        let of = fs::read_link("/proc/thread-self").unwrap();
        let path = Path::new("/proc").join(of).join("attr/exec");
        open.send(File::options().write(true).open(path).unwrap())
            .unwrap();
        // It lives until the test is over.
        let _ = ended.recv();
    });
    let file = opened.recv().unwrap();
    // SAFETY: Both descriptors are open. From now on the kernel refuses what is written.
    unsafe { dup2(file.as_raw_fd(), program.file.as_raw_fd()) };
    let mut list = [send(ibv_wr_opcode_IBV_WR_SEND, 0, &mut []); 2];
    for posted in 1..=2 {
        assert_eq!(program.post_send(qp, &mut list), Ok(()));
        assert_eq!(kernel(|kernel| kernel.rings), posted);
        // The driver takes them.
        for at in 0..4 {
            driver[at * 15 + 1].store(0, Relaxed);
        }
    }
    // What the driver refuses by this way is taken back, too.
    kernel(|kernel| kernel.result = ENOENT as c_int);
    assert_eq!(program.post_send(qp, &mut list), Err((ENOENT as c_int, 0)));
    for at in 0..4 {
        assert_eq!(element(&driver, at).0, 0);
    }
    drop(end);
    other.join().unwrap();
}

/// Calls a verb that returns an error number, and checks that `errno` has it as well.
fn numbered(call: impl FnOnce() -> c_int) -> c_int {
    clear_errno();
    let number = call();
    assert_eq!(Errno::last().number(), number.abs());
    number
}

#[test]
fn an_error_number_is_also_in_errno() {
    let mut program = Program::open(GOOD).unwrap();
    let (qp, srq, cq) = (program.qp(null_mut()), program.srq(), program.cq());
    let (ops, pd, context) = (program.ops, program.pd, program.context);
    let (busy, invalid) = (EBUSY as c_int, EINVAL as c_int);
    // SAFETY: The protection domain is valid, and in use.
    let number = numbered(|| unsafe { ops.dealloc_pd.unwrap()(pd) });
    assert_eq!(number, busy);
    let mut attr = ibv_td_init_attr::default();
    // SAFETY: The context and the attributes are valid.
    let td = made(|| unsafe { ops.alloc_td.unwrap()(context, &mut attr) }).unwrap();
    let mut attr = ibv_parent_domain_init_attr {
        pd,
        td,
        ..Default::default()
    };
    // SAFETY: The context and the attributes are valid.
    let parent = unsafe { ops.alloc_parent_domain.unwrap()(context, &mut attr) };
    // SAFETY: The domain is valid, and in use.
    let number = numbered(|| unsafe { ops.dealloc_td.unwrap()(td) });
    assert_eq!(number, busy);
    // SAFETY: The queue is valid.
    let number = numbered(|| unsafe { ops.poll_cq.unwrap()(cq, -1, null_mut()) });
    assert_eq!(number, -invalid);
    let mut attr = ibv_srq_attr::default();
    let mask = ibv_srq_attr_mask_IBV_SRQ_MAX_WR as c_int;
    // SAFETY: The queue and the attributes are valid.
    let number = numbered(|| unsafe { ops.modify_srq.unwrap()(srq, &mut attr, mask) });
    assert_eq!(number, EOPNOTSUPP as c_int);
    let mut wr = send(u32::MAX, 0, &mut []);
    let mut bad = null_mut();
    // SAFETY: The queue pair and the work request are valid.
    let number = numbered(|| unsafe { ops.post_send.unwrap()(qp, &mut wr, &mut bad) });
    assert_eq!(number, invalid);
    let mut wr = ibv_recv_wr {
        num_sge: -1,
        ..Default::default()
    };
    let mut bad = null_mut();
    // SAFETY: The queue pair and the work request are valid.
    let number = numbered(|| unsafe { ops.post_recv.unwrap()(qp, &mut wr, &mut bad) });
    assert_eq!(number, invalid);
    // SAFETY: The queue and the work request are valid.
    let number = numbered(|| unsafe { ops.post_srq_recv.unwrap()(srq, &mut wr, &mut bad) });
    assert_eq!(number, invalid);
    // SAFETY: The domain is valid.
    assert_eq!(unsafe { ops.dealloc_pd.unwrap()(parent) }, 0);
}
