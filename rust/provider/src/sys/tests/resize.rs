// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Queues that get another size.

use super::{
    fake::*,
    *, //
};
use core::ptr::null;

#[test]
fn completions_keep_their_order_when_the_queue_is_resized() {
    let program = Program::open(GOOD).unwrap();
    let cq = program.cq();
    let (first, second) = (program.queue(CQ_KEY), program.queue(NEW_KEY));
    let post = |queue: &Shared, at: usize, id: u64| {
        queue[at * 4].store(id, Relaxed);
        queue[at * 4 + 1].store(0x0001, Relaxed);
    };
    let poll = || {
        let mut wc = [ibv_wc::default(); 8];
        // SAFETY: The queue and the room are valid.
        let found = unsafe { program.ops.poll_cq.unwrap()(cq, 8, wc.as_mut_ptr()) };
        wc.iter()
            .take(found as usize)
            .map(|wc| wc.wr_id)
            .collect::<Vec<_>>()
    };
    // SAFETY: The queue is valid.
    let resize = || unsafe { program.ops.resize_cq.unwrap()(cq, 8) } as u32;
    for (at, id) in [1, 2, 3].into_iter().enumerate() {
        post(&first, at, id);
    }
    assert_eq!(resize(), 0);
    // SAFETY: The queue is valid.
    unsafe { program.ops.req_notify_cq.unwrap()(cq, 0) };
    assert_eq!(
        (first[4 * 4].load(Relaxed), second[8 * 4].load(Relaxed)),
        (0, 3)
    );
    post(&second, 0, 4);
    assert_eq!(poll(), [1, 2, 3, 4]);
    // What does not belong to the queue any more is not looked at.
    post(&first, 3, 99);
    assert_eq!(poll(), []);

    // Resized twice without a poll in between.
    for (at, id) in [5, 6].into_iter().enumerate() {
        post(&second, at + 1, id);
    }
    kernel(|kernel| kernel.resized = (RQ_KEY, 4));
    assert_eq!(resize(), 0);
    let third = program.queue(RQ_KEY);
    post(&third, 0, 7);
    kernel(|kernel| kernel.resized = (SQ_KEY, 1));
    assert_eq!(resize(), 0);
    post(&program.queue(SQ_KEY), 0, 8);
    assert_eq!(poll(), [5, 6, 7, 8]);
}

#[test]
fn a_queue_that_is_not_resized_stays_as_it_was() {
    let program = Program::open(Kernel {
        resize: BUSY,
        ..GOOD
    })
    .unwrap();
    let cq = program.cq();
    let driver = program.queue(CQ_KEY);
    let mut wc = ibv_wc::default();
    // SAFETY: The queue is valid.
    let resize = || unsafe { program.ops.resize_cq.unwrap()(cq, 8) };
    // SAFETY: The queue and the room are valid.
    let mut poll = || unsafe { program.ops.poll_cq.unwrap()(cq, 1, &mut wc) };
    for (at, (error, offer)) in [(BUSY, GOOD.resized), (0, (NEW_KEY, 3)), (0, (1, 4))]
        .into_iter()
        .enumerate()
    {
        kernel(|kernel| (kernel.resize, kernel.resized) = (error, offer));
        driver[at * 4 + 1].store(1, Relaxed);
        assert_ne!(resize(), 0, "{offer:?}");
        assert_eq!(poll(), 1);
        assert_eq!(poll(), 0);
    }
}

#[test]
fn receives_go_on_where_the_driver_says() {
    // Without the feature nobody would resize the queue.
    for (features, resize, resized, want) in [
        (0, 0, GOOD.resized, EOPNOTSUPP),
        (feature::RESIZE_SRQ, BUSY, GOOD.resized, BUSY as u32),
        (feature::RESIZE_SRQ, 0, (NEW_KEY, 3), EPROTO),
        (feature::RESIZE_SRQ, 0, GOOD.resized, 0),
    ] {
        let mut program = Program::open(Kernel {
            features,
            resize,
            resized,
            ..GOOD
        })
        .unwrap();
        let srq = program.srq();
        let (old, new) = (program.queue(RQ_KEY), program.queue(NEW_KEY));
        let mut attr = ibv_srq_attr::default();
        let modify = program.ops.modify_srq.unwrap();
        let (limit, max_wr) = (
            ibv_srq_attr_mask_IBV_SRQ_LIMIT as c_int,
            ibv_srq_attr_mask_IBV_SRQ_MAX_WR as c_int,
        );
        // SAFETY: The queue and the attributes are valid.
        assert_eq!(unsafe { modify(srq, &mut attr, limit) }, 0);
        // SAFETY: The queue and the attributes are valid.
        let error = unsafe { modify(srq, &mut attr, limit | max_wr) };
        assert_eq!(error as u32, want);
        let (mut wr, mut bad) = (ibv_recv_wr::default(), null_mut());
        let post = program.ops.post_srq_recv.unwrap();
        // SAFETY: The queue and the work request are valid.
        let posted = unsafe { post(srq, &mut wr, &mut bad) };
        let heads = (old[1].load(Relaxed), new[3 * 14 + 1].load(Relaxed));
        // Where the driver does not look, nothing is posted.
        let (error, where_to) = match want {
            0 => (0, (0, 1)),
            EPROTO => (EIO as c_int, (0, 0)),
            _ => (0, (1, 0)),
        };
        assert_eq!((posted, heads), (error, where_to));
    }
}

#[test]
fn shared_queues_can_be_resized_if_the_driver_can() {
    let all = size_of::<ibv_device_attr_ex>();
    for (features, resizes) in [(0, false), (feature::RESIZE_SRQ, true)] {
        let program = Program::open(Kernel { features, ..GOOD }).unwrap();
        let query = program.ops.query_device_ex.unwrap();
        for size in [size_of::<ibv_device_attr>(), all - 8, all] {
            let mut attr = ibv_device_attr_ex::default();
            // SAFETY: The context is valid, and there is more room than said.
            let error = unsafe { query(program.context, null(), &mut attr, size) };
            assert_eq!(error, 0);
            let flag = ibv_device_cap_flags_IBV_DEVICE_SRQ_RESIZE;
            let told = attr.orig_attr.device_cap_flags & flag != 0;
            assert_eq!(told, resizes, "{size}");
            // An older program has no room for these.
            let end = core::mem::offset_of!(ibv_device_attr_ex, device_cap_flags_ex) + 8;
            let told = attr.device_cap_flags_ex == flag.into();
            assert_eq!(told, resizes && size >= end, "{size}");
        }
    }
}
