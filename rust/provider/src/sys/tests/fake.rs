// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! A libibverbs and a kernel that answer what a test says, and a program on top of them.

use crate::{
    ring::tests::tempfile,
    sys::{
        bindings::*,
        command::{
            Request,
            Response, //
        },
        private::*,
        *, //
    },
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
use std::{
    fs::File,
    io::Seek,
    os::fd::AsRawFd, //
};

/// Where the queues are in the file that stands for the device. The doorbell writes to its
/// beginning.
pub(super) const SQ_KEY: u64 = 4096;
pub(super) const RQ_KEY: u64 = 8192;
pub(super) const CQ_KEY: u64 = 12288;
pub(super) const ENTRIES: u32 = 4;
pub(super) const NEW_KEY: u64 = 16384;
const FILE_SIZE: u64 = 20480;
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
    pub(super) wanted: Option<u32>,
    pub(super) destroy: c_int,
    /// The error of imports, or 0.
    pub(super) import: c_int,
    pub(super) destroyed: u32,
    pub(super) closed: u32,
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
    wanted: None,
    destroy: 0,
    import: 0,
    destroyed: 0,
    closed: 0,
    rings: 0,
    addr: [10, 77, 1, 2],
    netmask: [255, 255, 0, 0],
    // SAFETY: Zeros are valid for numbers.
    ah: unsafe { zeroed() },
};

thread_local! {
    static KERNEL: RefCell<Kernel> = const { RefCell::new(GOOD) };
    /// The table of the context that was opened last.
    static CONTEXT_OPS: Cell<*const VerbsContextOps> = const { Cell::new(null()) };
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

/// Stores the driver's part of a response.
fn answer<Core, Driver>(resp: Private, size: usize, driver: Driver) {
    assert_eq!(size, size_of::<Core>() + size_of::<Driver>());
    // SAFETY: The room is as large as the library says.
    unsafe { (*resp.cast::<Response<Core, Driver>>()).driver = driver };
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
    answer::<ib_uverbs_get_context_resp, _>(resp, resp_size, driver);
    0
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
    kernel(|kernel| kernel.import)
}

#[no_mangle]
extern "C" fn ibv_cmd_alloc_pd(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    _cmd: Private,
    _cmd_size: usize,
    _resp: Private,
    _resp_size: usize,
) -> c_int {
    let handle = PD_HANDLE;
    // SAFETY: The library has made it.
    unsafe { pd.write(ibv_pd { context, handle }) };
    0
}

#[no_mangle]
extern "C" fn ibv_cmd_query_mr(pd: *mut ibv_pd, mr: *mut VerbsMr, handle: u32) -> c_int {
    // SAFETY: The library has made it.
    unsafe { (*mr).mr.handle = handle };
    // SAFETY: The library has made it.
    unsafe { (*mr).mr.pd = pd };
    kernel(|kernel| kernel.import)
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
    answer::<ib_uverbs_create_cq_resp, _>(resp, resp_size, driver);
    0
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
    answer::<ib_uverbs_resize_cq_resp, _>(resp, resp_size, driver);
    error
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
    answer::<ib_uverbs_create_qp_resp, _>(resp, resp_size, driver);
    0
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
    answer::<ib_uverbs_create_srq_resp, _>(resp, resp_size, driver);
    0
}

#[no_mangle]
extern "C" fn ibv_cmd_post_send(
    _qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    _bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    assert!(wr.is_null());
    kernel(|kernel| kernel.rings += 1);
    0
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
        return 0;
    }
    assert_eq!(cmd_size, size_of::<Command>());
    let (error, (srq_key, num_rqe)) = kernel(|kernel| (kernel.resize, kernel.resized));
    // SAFETY: The request is as large as the library says.
    let response = unsafe { (*cmd.cast::<Command>()).driver.response };
    let answer = siw_uresp_modify_srq {
        num_rqe,
        put: 3,
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
extern "C" fn ibv_cmd_dealloc_pd(_pd: *mut ibv_pd) -> c_int {
    destroy()
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
extern "C" fn ibv_query_gid(
    _context: *mut ibv_context,
    _port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let [a, b, c, d] = kernel(|kernel| kernel.addr);
    let raw = match index {
        1 => [0xfe; 16],
        2 => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, a, b, c, d],
        _ => return -1,
    };
    // SAFETY: There is room for a GID.
    unsafe { *gid = ibv_gid { raw } };
    0
}

/// In place of libc's. There are two interfaces, and the first has another address.
#[no_mangle]
extern "C" fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
    let address = |bytes| {
        let address = sockaddr_in {
            sin_family: AF_INET as _,
            sin_addr: in_addr {
                s_addr: u32::from_ne_bytes(bytes),
            },
            ..Default::default()
        };
        Box::into_raw(Box::new(address)).cast()
    };
    let (addr, netmask) = kernel(|kernel| (kernel.addr, kernel.netmask));
    let second = ifaddrs {
        ifa_addr: address(addr),
        ifa_netmask: address(netmask),
        ..Default::default()
    };
    let first = ifaddrs {
        ifa_next: Box::into_raw(Box::new(second)),
        ifa_addr: address([127, 0, 0, 1]),
        ifa_netmask: address([255, 0, 0, 0]),
        ..Default::default()
    };
    // SAFETY: There is room for the pointer.
    unsafe { *list = Box::into_raw(Box::new(first)) };
    0
}

#[no_mangle]
extern "C" fn freeifaddrs(mut list: *mut ifaddrs) {
    while !list.is_null() {
        // SAFETY: From `getifaddrs`, and nobody uses it any more.
        let entry = unsafe { Box::from_raw(list) };
        for address in [entry.ifa_addr, entry.ifa_netmask] {
            // SAFETY: From `getifaddrs`, too, which gives each address to one entry.
            drop(unsafe { Box::from_raw(address.cast::<sockaddr_in>()) });
        }
        list = entry.ifa_next;
    }
}

#[no_mangle]
extern "C" fn ibv_cmd_query_port(
    _context: *mut ibv_context,
    _port: u8,
    _attr: *mut ibv_port_attr,
    _cmd: Private,
    _cmd_size: usize,
) -> c_int {
    0
}

#[no_mangle]
extern "C" fn ibv_cmd_modify_qp(
    _qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    _cmd: Private,
    _cmd_size: usize,
) -> c_int {
    // SAFETY: The attributes are valid.
    let ah = unsafe { (*attr).ah_attr };
    kernel(|kernel| {
        if kernel.destroy == 0 {
            // The core drops it.
            kernel.ah = ibv_ah_attr { dlid: 0, ..ah };
        }
        kernel.destroy
    })
}

#[no_mangle]
extern "C" fn ibv_cmd_query_qp(
    _qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    _init: *mut ibv_qp_init_attr,
    _cmd: Private,
    _cmd_size: usize,
) -> c_int {
    // SAFETY: There is room for the attributes.
    unsafe { (*attr).ah_attr = kernel(|kernel| kernel.ah) };
    0
}

/// Calls that only pass on what the kernel says.
macro_rules! plain_calls {
    ($($name:ident)*) => {$(
        #[no_mangle]
        extern "C" fn $name() -> c_int {
            panic!("the tests do not use this")
        }
    )*};
}

plain_calls! {
    ibv_cmd_query_device_any ibv_cmd_reg_mr ibv_cmd_dereg_mr ibv_cmd_rereg_mr
    ibv_cmd_alloc_mw ibv_cmd_dealloc_mw ibv_cmd_query_srq
    ibv_query_qp_data_in_order
}

/// A program that has opened the device.
pub(super) struct Program {
    pub(super) file: File,
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    pub(super) ops: &'static VerbsContextOps,
}

impl Program {
    /// Opens the device; `None` if the library refuses.
    pub(super) fn open(kernel_says: Kernel) -> Option<Self> {
        kernel(|kernel| *kernel = kernel_says);
        let file = tempfile();
        file.set_len(FILE_SIZE).unwrap();
        // SAFETY: The library has registered a constant table.
        let ops = unsafe { &*DEVICE_OPS.load(Relaxed) };
        // SAFETY: The device is not looked at.
        let outer = unsafe { ops.alloc_context.unwrap()(null_mut(), file.as_raw_fd(), null_mut()) };
        if outer.is_null() {
            return None;
        }
        Some(Self::with(file, outer))
    }

    /// Imports the device; `None` if the library refuses.
    pub(super) fn import(kernel_says: Kernel) -> Option<Self> {
        kernel(|kernel| *kernel = kernel_says);
        let file = tempfile();
        file.set_len(FILE_SIZE).unwrap();
        // SAFETY: The library has registered a constant table.
        let ops = unsafe { &*DEVICE_OPS.load(Relaxed) };
        // SAFETY: The device is not looked at.
        let outer = unsafe { ops.import_context.unwrap()(null_mut(), file.as_raw_fd()) };
        (!outer.is_null()).then(|| Self::with(file, outer))
    }

    fn with(file: File, outer: *mut verbs_context) -> Self {
        // SAFETY: It is a context.
        let context = unsafe { &raw mut (*outer).context };
        // SAFETY: The library has set a constant table.
        let ops = unsafe { &*CONTEXT_OPS.get() };
        Self {
            file,
            context,
            // SAFETY: The context is valid.
            pd: unsafe { ops.alloc_pd.unwrap()(context) },
            ops,
        }
    }

    /// An extended completion queue, and what the error was.
    pub(super) fn cq_ex(&self, mut attr: ibv_cq_init_attr_ex) -> Result<*mut ibv_cq_ex, Errno> {
        attr.cqe = 4;
        // SAFETY: The context and the attributes are valid.
        let cq = unsafe { self.ops.create_cq_ex.unwrap()(self.context, &mut attr) };
        if cq.is_null() {
            return Err(Errno::last());
        }
        Ok(cq)
    }

    /// A queue pair for which the program builds work requests, and what the error was.
    pub(super) fn qp_ex(&self, comp_mask: u32, ops: u64) -> Result<*mut ibv_qp_ex, Errno> {
        let mut attr = ibv_qp_init_attr_ex {
            comp_mask,
            pd: self.pd,
            send_ops_flags: ops,
            ..Default::default()
        };
        attr.cap.max_send_sge = 2;
        // SAFETY: The context and the attributes are valid.
        let qp = unsafe { self.ops.create_qp_ex.unwrap()(self.context, &mut attr) };
        if qp.is_null() {
            return Err(Errno::last());
        }
        Ok(qp.cast())
    }

    /// The LID of the port.
    pub(super) fn lid(&self) -> u16 {
        let mut attr = ibv_port_attr::default();
        // SAFETY: The context and the room for attributes are valid.
        let result = unsafe { self.ops.query_port.unwrap()(self.context, 1, &mut attr) };
        assert_eq!(result, 0);
        attr.lid
    }

    /// What the driver sees of a queue.
    pub(super) fn queue(&self, key: u64) -> Shared {
        Shared::map(&Offer::of(&self.file, key, 1), 512).unwrap()
    }

    pub(super) fn cq(&self) -> *mut ibv_cq {
        // SAFETY: The context is valid.
        unsafe { self.ops.create_cq.unwrap()(self.context, 4, null_mut(), 0) }
    }

    pub(super) fn qp(&mut self, srq: *mut ibv_srq) -> *mut ibv_qp {
        let mut attr = ibv_qp_init_attr {
            srq,
            ..Default::default()
        };
        attr.cap.max_send_sge = 2;
        attr.cap.max_recv_sge = 1;
        // SAFETY: The protection domain and the attributes are valid.
        unsafe { self.ops.create_qp.unwrap()(self.pd, &mut attr) }
    }

    pub(super) fn srq(&mut self) -> *mut ibv_srq {
        let mut attr = ibv_srq_init_attr::default();
        attr.attr.max_sge = 1;
        // SAFETY: The protection domain and the attributes are valid.
        unsafe { self.ops.create_srq.unwrap()(self.pd, &mut attr) }
    }

    /// Posts the list, and returns the error and the index of the work request that failed.
    pub(super) fn post_send(
        &self,
        qp: *mut ibv_qp,
        list: &mut [ibv_send_wr],
    ) -> Result<(), (c_int, usize)> {
        for at in 1..list.len() {
            list[at - 1].next = &raw mut list[at];
        }
        let mut bad = null_mut();
        // SAFETY: The queue pair and the list are valid.
        match unsafe { self.ops.post_send.unwrap()(qp, list.as_mut_ptr(), &mut bad) } {
            0 => Ok(()),
            error => Err((
                error,
                list.iter().position(|wr| core::ptr::eq(wr, bad)).unwrap(),
            )),
        }
    }

    /// How often the doorbell rang, by its commands in the file.
    pub(super) fn rings(&mut self) -> u64 {
        const COMMAND: usize = size_of::<ib_uverbs_cmd_hdr>() + size_of::<ib_uverbs_post_send>();
        self.file.stream_position().unwrap() / COMMAND as u64
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: The context is valid, and not used any more. The objects are leaked.
        unsafe { self.ops.free_context.unwrap()(self.context) };
    }
}
