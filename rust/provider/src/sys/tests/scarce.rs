// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! A program without memory.

use super::{
    fake::*,
    *, //
};
use core::cell::Cell;
use std::alloc::{
    GlobalAlloc,
    Layout,
    System, //
};

thread_local! {
    /// The number of allocations that succeed before one fails; `None` if none fails.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The system's allocator, which may refuse.
struct Scarce;

#[global_allocator]
static MEMORY: Scarce = Scarce;

fn refuses() -> bool {
    let left = LEFT.get();
    LEFT.set(left.map(|left| left.wrapping_sub(1)));
    left == Some(0)
}

// SAFETY: What is not refused is the system's.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refuses() {
            return null_mut();
        }
        // SAFETY: By the requirements of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if refuses() {
            return null_mut();
        }
        // SAFETY: By the requirements of this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: By the requirements of this function.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Makes an object: without memory at any point of that, and with it. Returns how often it was
/// refused.
fn with_little<T>(mut make: impl FnMut() -> *mut T) -> u32 {
    for enough in 0.. {
        let before = kernel(|kernel| kernel.made - kernel.destroyed);
        LEFT.set(Some(enough));
        let result = made(&mut make);
        LEFT.set(None);
        if result.is_ok() {
            return enough;
        }
        assert_eq!(result, Err(Errno::ENOMEM));
        // What the kernel had made is gone.
        assert_eq!(kernel(|kernel| kernel.made - kernel.destroyed), before);
    }
    unreachable!()
}

#[test]
fn objects_are_refused_without_memory() {
    let features = feature::WINDOWS;
    let mut program = Program::open(Kernel { features, ..GOOD }).unwrap();
    let (ops, context, pd) = (program.ops, program.context, program.pd);
    let mut extended = ibv_cq_init_attr_ex {
        cqe: 4,
        ..Default::default()
    };
    let mut td = ibv_td_init_attr::default();
    let mut parent = ibv_parent_domain_init_attr {
        pd,
        ..Default::default()
    };
    // SAFETY: The context is valid.
    let make = || unsafe { ops.alloc_pd.unwrap()(context) };
    assert_eq!(with_little(make), 1);
    // SAFETY: The context and the attributes are valid.
    let make = || unsafe { ops.alloc_td.unwrap()(context, &mut td) };
    assert_eq!(with_little(make), 1);
    // SAFETY: The context and the attributes are valid.
    let make = || unsafe { ops.alloc_parent_domain.unwrap()(context, &mut parent) };
    assert_eq!(with_little(make), 1);
    // SAFETY: The protection domain is valid.
    let make = || unsafe { ops.reg_mr.unwrap()(pd, null_mut(), 0, 0, 0) };
    assert_eq!(with_little(make), 1);
    // SAFETY: The protection domain is valid.
    let make = || unsafe { ops.alloc_mw.unwrap()(pd, 1) };
    assert_eq!(with_little(make), 1);
    // One for the object, and one for the queue.
    assert_eq!(with_little(|| program.cq()), 2);
    // SAFETY: The context and the attributes are valid.
    let make = || unsafe { ops.create_cq_ex.unwrap()(context, &mut extended) };
    assert_eq!(with_little(make), 2);
    assert_eq!(with_little(|| program.srq()), 1);
    assert_eq!(with_little(|| program.qp(null_mut())), 1);
}

#[test]
fn a_queue_is_not_resized_without_memory() {
    let program = Program::open(GOOD).unwrap();
    let cq = program.cq();
    // SAFETY: The queue is valid.
    let resize = || unsafe { program.ops.resize_cq.unwrap()(cq, 8) };
    for enough in 0..2 {
        LEFT.set(Some(enough));
        let result = resize();
        LEFT.set(None);
        assert_eq!(result, ENOMEM as c_int, "{enough}");
    }
    assert_eq!(resize(), 0);
}
