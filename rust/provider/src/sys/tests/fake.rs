// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! A libibverbs and a kernel that answer what a test says.

use crate::sys::{
    bindings::*,
    command::{
        Request,
        Response, //
    },
    private::*, //
};
use core::{
    cell::{
        Cell,
        RefCell, //
    },
    ffi::c_int,
    mem::zeroed,
    ptr::{
        null,
        null_mut, //
    },
    sync::atomic::{
        AtomicPtr,
        Ordering::Relaxed, //
    },
};

/// Where the queues are in the file that stands for the device. The doorbell writes to its
/// beginning.
pub(super) const SQ_KEY: u64 = 4096;
pub(super) const RQ_KEY: u64 = 8192;
pub(super) const CQ_KEY: u64 = 12288;
pub(super) const ENTRIES: u32 = 4;
pub(super) const NEW_KEY: u64 = 16384;
/// The handle of all protection domains.
pub(super) const PD_HANDLE: u32 = 77;
/// `EBUSY`, as the kernel says it.
pub(super) const BUSY: c_int = 16;

/// What the kernel answers, and what it was asked.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    pub(super) features: u32,
    pub(super) sq: (u64, u32),
    pub(super) rq: (u64, u32),
    pub(super) cq: (u64, u32),
    /// What the kernel answers to `RESIZE_CQ`, and what it offers.
    pub(super) resize: c_int,
    pub(super) resized: (u64, u32),
    /// Where receives go on in a shared queue that was resized.
    pub(super) put: u32,
    pub(super) wanted: Option<u32>,
    /// The result of commands that destroy an object, and that of others.
    pub(super) destroy: c_int,
    pub(super) result: c_int,
    pub(super) made: u32,
    pub(super) destroyed: u32,
    pub(super) closed: u32,
    /// Where libibverbs looks whether a queue pair is extended, in bytes.
    pub(super) comp_mask: usize,
    /// Doorbells by `ioctl()`.
    pub(super) rings: u32,
    /// The only address of the port, its netmask, and the address vector of the queue pair.
    pub(super) addr: [u8; 4],
    pub(super) netmask: [u8; 4],
    pub(super) ah: ibv_ah_attr,
}

pub(super) const GOOD: Kernel = Kernel {
    features: 0,
    sq: (SQ_KEY, ENTRIES),
    rq: (RQ_KEY, ENTRIES),
    cq: (CQ_KEY, ENTRIES),
    resize: 0,
    resized: (NEW_KEY, 2 * ENTRIES),
    put: 3,
    wanted: None,
    destroy: 0,
    result: 0,
    made: 0,
    destroyed: 0,
    closed: 0,
    comp_mask: 360,
    rings: 0,
    addr: [10, 77, 1, 2],
    netmask: [255, 255, 0, 0],
    // SAFETY: Zeros are valid for numbers.
    ah: unsafe { zeroed() },
};

thread_local! {
    static KERNEL: RefCell<Kernel> = const { RefCell::new(GOOD) };
    /// The table of the context that was opened last.
    pub(super) static CONTEXT_OPS: Cell<*const VerbsContextOps> = const { Cell::new(null()) };
}

pub(super) fn kernel<T>(f: impl FnOnce(&mut Kernel) -> T) -> T {
    KERNEL.with_borrow_mut(f)
}

pub(super) static DEVICE_OPS: AtomicPtr<VerbsDeviceOps> = AtomicPtr::new(null_mut());

unsafe extern "C" {
    fn calloc(number: usize, size: usize) -> Private;
}

#[no_mangle]
extern "C" fn verbs_register_driver_34(ops: *const VerbsDeviceOps) {
    DEVICE_OPS.store(ops.cast_mut(), Relaxed);
}

#[no_mangle]
extern "C" fn verbs_set_ops(_context: *mut verbs_context, ops: *const VerbsContextOps) {
    CONTEXT_OPS.set(ops);
}

#[no_mangle]
extern "C" fn _verbs_init_and_alloc_context(
    _device: *mut ibv_device,
    cmd_fd: c_int,
    size: usize,
    _offset: *mut verbs_context,
    driver_id: u32,
) -> Private {
    assert_eq!(driver_id, rdma_driver_id_RDMA_DRIVER_SIW);
    // SAFETY: No requirements.
    let context = unsafe { calloc(1, size) };
    // SAFETY: It was just made, and is as large as its type.
    unsafe { (*context.cast::<verbs_context>()).context.cmd_fd = cmd_fd };
    context
}

#[no_mangle]
extern "C" fn verbs_uninit_context(_context: *mut verbs_context) {
    kernel(|kernel| kernel.closed += 1);
}

/// Stores the driver's part of a response, unless the command fails.
fn answer<Core, Driver>(resp: Private, size: usize, driver: Driver) -> c_int {
    assert_eq!(size, size_of::<Core>() + size_of::<Driver>());
    let result = result();
    if result == 0 {
        // SAFETY: The room is as large as the library says.
        unsafe { (*resp.cast::<Response<Core, Driver>>()).driver = driver };
    }
    result
}

/// The same, for what is destroyed by a command of its own.
fn make<Core, Driver>(resp: Private, size: usize, driver: Driver) -> c_int {
    let result = answer::<Core, _>(resp, size, driver);
    kernel(|kernel| kernel.made += u32::from(result == 0));
    result
}

pub(super) fn result() -> c_int {
    kernel(|kernel| kernel.result)
}

#[no_mangle]
extern "C" fn ibv_cmd_get_context(
    _context: *mut verbs_context,
    cmd: Private,
    cmd_size: usize,
    resp: Private,
    resp_size: usize,
) -> c_int {
    type Command = Request<ib_uverbs_get_context, siw_ureq_alloc_ctx>;
    assert_eq!(cmd_size, size_of::<Command>());
    // SAFETY: The request is as large as the library says.
    let want = unsafe { (*cmd.cast::<Command>()).driver.want };
    let pad = kernel(|kernel| {
        kernel.wanted = Some(want);
        kernel.features
    });
    let driver = siw_uresp_alloc_ctx { dev_id: 1, pad };
    answer::<ib_uverbs_get_context_resp, _>(resp, resp_size, driver)
}

#[no_mangle]
extern "C" fn ibv_cmd_query_context(
    _context: *mut ibv_context,
    driver: *mut CommandBuffer,
) -> c_int {
    // SAFETY: The library has made it.
    let (hdr, attr) = unsafe { (*driver).parts() };
    assert_eq!((hdr.object_id, hdr.method_id), (0, 4));
    assert_eq!((attr.attr_id, attr.len), (1 << 12, 8));
    // SAFETY: Any bytes make an address.
    let to = unsafe { attr.__bindgen_anon_1.data } as usize;
    let pad = kernel(|kernel| kernel.features);
    let answer = siw_uresp_alloc_ctx { dev_id: 1, pad };
    // SAFETY: The library gives room for the answer.
    unsafe { core::ptr::with_exposed_provenance_mut::<siw_uresp_alloc_ctx>(to).write(answer) };
    result()
}

#[no_mangle]
extern "C" fn ibv_cmd_query_mr(pd: *mut ibv_pd, mr: *mut VerbsMr, handle: u32) -> c_int {
    // SAFETY: The library has made it.
    unsafe { (*mr).mr.handle = handle };
    // SAFETY: The library has made it.
    unsafe { (*mr).mr.pd = pd };
    result()
}

#[no_mangle]
extern "C" fn ibv_cmd_create_cq(
    _context: *mut ibv_context,
    _cqe: c_int,
    _channel: *mut ibv_comp_channel,
    _comp_vector: c_int,
    _cq: *mut ibv_cq,
    _cmd: Private,
    _cmd_size: usize,
    resp: Private,
    resp_size: usize,
) -> c_int {
    let (cq_key, num_cqe) = kernel(|kernel| kernel.cq);
    let driver = siw_uresp_create_cq {
        cq_id: 1,
        num_cqe,
        cq_key,
    };
    make::<ib_uverbs_create_cq_resp, _>(resp, resp_size, driver)
}

#[no_mangle]
extern "C" fn ibv_cmd_resize_cq(
    _cq: *mut ibv_cq,
    _cqe: c_int,
    _cmd: Private,
    cmd_size: usize,
    resp: Private,
    resp_size: usize,
) -> c_int {
    assert_eq!(cmd_size, size_of::<Request<ib_uverbs_resize_cq>>());
    let (error, (cq_key, num_cqe)) = kernel(|kernel| (kernel.resize, kernel.resized));
    let driver = siw_uresp_resize_cq {
        num_cqe,
        cq_key,
        ..Default::default()
    };
    let result = answer::<ib_uverbs_resize_cq_resp, _>(resp, resp_size, driver);
    if error == 0 {
        result
    } else {
        error
    }
}

#[no_mangle]
extern "C" fn ibv_cmd_create_qp(
    _pd: *mut ibv_pd,
    _qp: *mut ibv_qp,
    _attr: *mut ibv_qp_init_attr,
    _cmd: Private,
    _cmd_size: usize,
    resp: Private,
    resp_size: usize,
) -> c_int {
    let ((sq_key, num_sqe), (rq_key, num_rqe)) = kernel(|kernel| (kernel.sq, kernel.rq));
    let driver = siw_uresp_create_qp {
        num_sqe,
        num_rqe,
        sq_key,
        rq_key,
        ..Default::default()
    };
    make::<ib_uverbs_create_qp_resp, _>(resp, resp_size, driver)
}

#[no_mangle]
extern "C" fn ibv_cmd_create_srq(
    _pd: *mut ibv_pd,
    _srq: *mut ibv_srq,
    _attr: *mut ibv_srq_init_attr,
    _cmd: Private,
    _cmd_size: usize,
    resp: Private,
    resp_size: usize,
) -> c_int {
    let (srq_key, num_rqe) = kernel(|kernel| kernel.rq);
    let driver = siw_uresp_create_srq {
        num_rqe,
        srq_key,
        ..Default::default()
    };
    make::<ib_uverbs_create_srq_resp, _>(resp, resp_size, driver)
}

#[no_mangle]
extern "C" fn ibv_cmd_post_send(
    _qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    _bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    assert!(wr.is_null());
    kernel(|kernel| kernel.rings += 1);
    result()
}

#[no_mangle]
extern "C" fn ibv_cmd_modify_srq(
    _srq: *mut ibv_srq,
    _attr: *mut ibv_srq_attr,
    mask: c_int,
    cmd: Private,
    cmd_size: usize,
) -> c_int {
    type Command = Request<ib_uverbs_modify_srq, siw_ureq_modify_srq>;
    if mask as u32 & ibv_srq_attr_mask_IBV_SRQ_MAX_WR == 0 {
        assert_eq!(cmd_size, size_of::<Request<ib_uverbs_modify_srq>>());
        return result();
    }
    assert_eq!(cmd_size, size_of::<Command>());
    let (error, (srq_key, num_rqe), put) =
        kernel(|kernel| (kernel.resize, kernel.resized, kernel.put));
    // SAFETY: The request is as large as the library says.
    let response = unsafe { (*cmd.cast::<Command>()).driver.response };
    let answer = siw_uresp_modify_srq {
        num_rqe,
        put,
        srq_key,
    };
    if error == 0 {
        let to: *mut siw_uresp_modify_srq =
            core::ptr::with_exposed_provenance_mut(response as usize);
        // SAFETY: The library has room for it there.
        unsafe { to.write(answer) };
    }
    error
}

fn destroy() -> c_int {
    kernel(|kernel| {
        kernel.destroyed += u32::from(kernel.destroy == 0);
        kernel.destroy
    })
}

#[no_mangle]
extern "C" fn ibv_cmd_destroy_cq(_cq: *mut ibv_cq) -> c_int {
    destroy()
}

#[no_mangle]
extern "C" fn ibv_cmd_destroy_qp(_qp: *mut ibv_qp) -> c_int {
    destroy()
}

#[no_mangle]
extern "C" fn ibv_cmd_destroy_srq(_srq: *mut ibv_srq) -> c_int {
    destroy()
}

#[no_mangle]
pub(super) extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    let offset = kernel(|kernel| kernel.comp_mask);
    // SAFETY: It is a part of the queue pair.
    let mask: u32 = unsafe { qp.wrapping_byte_add(offset).cast::<u32>().read() };
    if mask & VerbsQp::EXTENDED == 0 {
        return null_mut();
    }
    qp.cast()
}

#[no_mangle]
extern "C" fn ibv_cmd_query_device_any(
    _context: *mut ibv_context,
    _input: *const ibv_query_device_ex_input,
    _attr: *mut ibv_device_attr_ex,
    attr_size: usize,
    resp: Private,
    resp_size: *mut usize,
) -> c_int {
    assert!(attr_size >= size_of::<ibv_device_attr>());
    // SAFETY: The room is as large as the library says.
    let size = unsafe { *resp_size };
    // SAFETY: As above, and any bytes are valid.
    unsafe { resp.cast::<u8>().write_bytes(0xff, size) };
    result()
}

#[no_mangle]
extern "C" fn ibv_cmd_alloc_pd(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    _cmd: Private,
    _cmd_size: usize,
    resp: Private,
    resp_size: usize,
) -> c_int {
    let handle = PD_HANDLE;
    // SAFETY: There is room for it.
    unsafe { pd.write(ibv_pd { context, handle }) };
    make::<ib_uverbs_alloc_pd_resp, _>(resp, resp_size, ())
}

#[no_mangle]
extern "C" fn ibv_cmd_alloc_mw(
    pd: *mut ibv_pd,
    kind: u32,
    mw: *mut ibv_mw,
    _cmd: Private,
    _cmd_size: usize,
    resp: Private,
    resp_size: usize,
) -> c_int {
    // SAFETY: The protection domain is valid.
    let context = unsafe { (*pd).context };
    // SAFETY: There is room for it.
    let mw = unsafe { &mut *mw };
    (mw.context, mw.type_) = (context, kind);
    make::<ib_uverbs_alloc_mw_resp, _>(resp, resp_size, ())
}

#[no_mangle]
extern "C" fn ibv_cmd_reg_mr(
    pd: *mut ibv_pd,
    _addr: Private,
    _length: usize,
    _hca_va: u64,
    _access: c_int,
    mr: *mut VerbsMr,
    _cmd: Private,
    _cmd_size: usize,
    resp: Private,
    resp_size: usize,
) -> c_int {
    // SAFETY: The protection domain is valid.
    let context = unsafe { (*pd).context };
    // SAFETY: There is room for it.
    unsafe { (*mr).mr.context = context };
    make::<ib_uverbs_reg_mr_resp, _>(resp, resp_size, siw_uresp_reg_mr::default())
}

#[no_mangle]
extern "C" fn ibv_cmd_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
    mr: *mut VerbsMr,
    driver: *mut CommandBuffer,
) -> c_int {
    assert!(driver.is_null());
    // SAFETY: The protection domain is valid.
    let context = unsafe { (*pd).context };
    // SAFETY: There is room for it.
    unsafe { (*mr).mr.context = context };
    let result = result();
    kernel(|kernel| kernel.made += u32::from(result == 0));
    result
}

/// Calls of which only the result is looked at.
macro_rules! plain_calls {
    ($($name:ident: $result:ident,)*) => {$(
        #[no_mangle]
        extern "C" fn $name() -> c_int {
            $result()
        }
    )*};
}

plain_calls! {
    ibv_cmd_dealloc_pd: destroy,
    ibv_cmd_dealloc_mw: destroy,
    ibv_cmd_dereg_mr: destroy,
    ibv_cmd_rereg_mr: result,
    ibv_cmd_advise_mr: result,
    ibv_cmd_query_srq: result,
    ibv_query_qp_data_in_order: result,
}
