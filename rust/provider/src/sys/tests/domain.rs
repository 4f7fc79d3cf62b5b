// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Protection, thread and parent domains, and what is imported.

use super::{
    fake::*,
    *, //
};

fn dealloc_pd(program: &Program, pd: *mut ibv_pd) -> c_int {
    // SAFETY: The protection domain is valid; the test does not use it after a success.
    unsafe { program.ops.dealloc_pd.unwrap()(pd) }
}

/// A parent domain of that one, or the error.
fn parent(program: &Program, attr: ibv_parent_domain_init_attr) -> Result<*mut ibv_pd, Errno> {
    let mut attr = attr;
    // SAFETY: The context and the attributes are valid.
    made(|| unsafe { program.ops.alloc_parent_domain.unwrap()(program.context, &mut attr) })
}

#[test]
fn domains_go_when_nothing_is_left_in_them() {
    let mut program = Program::open(GOOD).unwrap();
    let (real, context, ops) = (program.pd, program.context, program.ops);
    let alloc_td = |comp_mask| {
        let mut attr = ibv_td_init_attr { comp_mask };
        // SAFETY: The context and the attributes are valid.
        made(|| unsafe { ops.alloc_td.unwrap()(context, &mut attr) })
    };
    assert_eq!(alloc_td(1), Err(Errno::EINVAL));
    let td = alloc_td(0).unwrap();
    // SAFETY: The thread domain is valid; the test does not use it after a success.
    let dealloc_td = || unsafe { ops.dealloc_td.unwrap()(td) };

    let attr = ibv_parent_domain_init_attr {
        pd: real,
        td,
        ..Default::default()
    };
    let wrong = ibv_parent_domain_init_attr {
        comp_mask: 4,
        ..attr
    };
    assert_eq!(parent(&program, wrong), Err(Errno::EINVAL));
    let wrong = ibv_parent_domain_init_attr {
        pd: null_mut(),
        ..attr
    };
    assert_eq!(parent(&program, wrong), Err(Errno::EINVAL));
    let pd = parent(&program, attr).unwrap();
    // SAFETY: The domain is valid.
    assert_eq!(unsafe { (*pd).handle }, PD_HANDLE);

    program.pd = pd;
    let qp = program.qp(null_mut());
    assert_eq!(dealloc_td(), BUSY);
    assert_eq!(dealloc_pd(&program, real), BUSY);
    assert_eq!(dealloc_pd(&program, pd), BUSY);
    // SAFETY: The queue pair is valid.
    assert_eq!(unsafe { ops.destroy_qp.unwrap()(qp) }, 0);
    assert_eq!(kernel(|kernel| kernel.destroyed), 1);
    assert_eq!(dealloc_pd(&program, real), BUSY);
    assert_eq!(dealloc_pd(&program, pd), 0);
    // The kernel knows nothing of parent domains.
    assert_eq!(kernel(|kernel| kernel.destroyed), 1);
    assert_eq!(dealloc_td(), 0);
    assert_eq!(dealloc_pd(&program, real), 0);
    assert_eq!(kernel(|kernel| kernel.destroyed), 2);
}

#[test]
fn a_refused_domain_leaves_no_use_of_others() {
    let program = Program::open(GOOD).unwrap();
    let attr = ibv_cq_init_attr_ex {
        comp_mask: ibv_cq_init_attr_mask_IBV_CQ_INIT_ATTR_MASK_PD,
        parent_domain: program.pd,
        ..Default::default()
    };
    // It is not a parent domain.
    assert_eq!(program.cq_ex(attr), Err(Errno::EINVAL));
    kernel(|kernel| kernel.sq = (1, 3));
    let ops = ibv_qp_create_send_ops_flags_IBV_QP_EX_WITH_SEND;
    let mask = ibv_qp_init_attr_mask_IBV_QP_INIT_ATTR_PD
        | ibv_qp_init_attr_mask_IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    assert_eq!(program.qp_ex(mask, ops.into()), Err(Errno::EPROTO));
    assert_eq!(dealloc_pd(&program, program.pd), 0);
}

#[test]
fn a_completion_queue_uses_its_parent_domain() {
    let program = Program::open(GOOD).unwrap();
    let of = ibv_parent_domain_init_attr {
        pd: program.pd,
        ..Default::default()
    };
    let pd = parent(&program, of).unwrap();
    let attr = ibv_cq_init_attr_ex {
        comp_mask: ibv_cq_init_attr_mask_IBV_CQ_INIT_ATTR_MASK_PD,
        parent_domain: pd,
        ..Default::default()
    };
    let cq = program.cq_ex(attr).unwrap();
    assert_eq!(dealloc_pd(&program, pd), BUSY);
    // SAFETY: The queue is valid.
    assert_eq!(unsafe { program.ops.destroy_cq.unwrap()(cq.cast()) }, 0);
    assert_eq!(dealloc_pd(&program, pd), 0);
}

#[test]
fn what_is_imported_stays_in_the_kernel() {
    let features = feature::WINDOWS;
    let mut program = Program::import(Kernel { features, ..GOOD }).unwrap();
    // Another process may have opened it, from which alone the kernel takes what is written.
    let qp = program.qp(null_mut());
    let mut list = [send(ibv_wr_opcode_IBV_WR_SEND, 0, &mut [])];
    assert_eq!(program.post_send(qp, &mut list), Ok(()));
    assert_eq!((program.rings(), kernel(|kernel| kernel.rings)), (0, 1));
    // It has the features of the context that was imported.
    assert!(program.ops.bind_mw.is_some());
    // SAFETY: The context is valid.
    let pd = unsafe { program.ops.import_pd.unwrap()(program.context, 5) };
    // SAFETY: The protection domain is valid.
    assert_eq!(unsafe { (*pd).handle }, 5);
    // SAFETY: The protection domain is valid.
    let import = || made(|| unsafe { program.ops.import_mr.unwrap()(pd, 6) });
    let mr = import().unwrap();
    // SAFETY: The region is valid.
    assert_eq!(unsafe { (*mr).handle }, 6);
    kernel(|kernel| kernel.result = ENOENT as c_int);
    assert_eq!(import(), Err(Errno::ENOENT));
    // SAFETY: The region is valid, and not used any more.
    unsafe { program.ops.unimport_mr.unwrap()(mr) };
    // SAFETY: The protection domain is valid, and not used any more.
    unsafe { program.ops.unimport_pd.unwrap()(pd) };
    assert_eq!(kernel(|kernel| kernel.destroyed), 0);
}

#[test]
fn a_device_that_cannot_be_imported_is_closed() {
    let result = EOPNOTSUPP as c_int;
    let refused = Program::import(Kernel { result, ..GOOD });
    assert_eq!(refused.err(), Some(Errno::EOPNOTSUPP));
    assert_eq!(kernel(|kernel| kernel.closed), 1);
    let features = 1 << 31;
    let refused = Program::import(Kernel { features, ..GOOD });
    assert_eq!(refused.err(), Some(Errno::EPROTO));
    assert_eq!(kernel(|kernel| kernel.closed), 1);
}

#[test]
fn a_region_moves_to_its_new_domain() {
    let program = Program::open(GOOD).unwrap();
    let (ops, old) = (program.ops, program.pd);
    // SAFETY: The context is valid.
    let alloc = || made(|| unsafe { ops.alloc_pd.unwrap()(program.context) }).unwrap();
    // SAFETY: The protection domain is valid.
    let reg = || unsafe { ops.reg_mr.unwrap()(old, null_mut(), 0, 0, 0) };
    let mr = made(reg).unwrap().cast();
    let rereg = |flags, pd| {
        // SAFETY: The region and the protection domain are valid.
        unsafe { ops.rereg_mr.unwrap()(mr, flags as c_int, pd, null_mut(), 0, 0) }
    };
    let (change_pd, change_access) = (
        ibv_rereg_mr_flags_IBV_REREG_MR_CHANGE_PD,
        ibv_rereg_mr_flags_IBV_REREG_MR_CHANGE_ACCESS,
    );

    // It stays where it is if the kernel refuses, or is asked for something else.
    let other = alloc();
    kernel(|kernel| kernel.result = ENOENT as c_int);
    assert_eq!(rereg(change_pd, other), ENOENT as c_int);
    kernel(|kernel| kernel.result = 0);
    assert_eq!(rereg(change_access, other), 0);
    assert_eq!(dealloc_pd(&program, other), 0);
    assert_eq!(dealloc_pd(&program, old), BUSY);

    // A parent domain has it as its own.
    let new = alloc();
    let of = ibv_parent_domain_init_attr {
        pd: new,
        ..Default::default()
    };
    let pd = parent(&program, of).unwrap();
    assert_eq!(rereg(change_pd, pd), 0);
    assert_eq!(dealloc_pd(&program, old), 0);
    assert_eq!(dealloc_pd(&program, pd), BUSY);
    assert_eq!(rereg(change_pd, new), 0);
    assert_eq!(dealloc_pd(&program, pd), 0);
    assert_eq!(dealloc_pd(&program, new), BUSY);
    // To where it is.
    assert_eq!(rereg(change_pd, new), 0);
    assert_eq!(dealloc_pd(&program, new), BUSY);
    // SAFETY: The region is valid, and not used any more.
    assert_eq!(unsafe { ops.dereg_mr.unwrap()(mr) }, 0);
    assert_eq!(dealloc_pd(&program, new), 0);
    let (made, destroyed) = kernel(|kernel| (kernel.made, kernel.destroyed));
    assert_eq!((made, destroyed), (4, 4));
}
