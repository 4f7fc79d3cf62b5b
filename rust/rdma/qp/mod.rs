// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

mod attr;

use kernel::{
    error::from_result,
    prelude::*, //
};

use crate::{
    callback::{
        missing,
        to_errno,
        Int, //
    },
    details::Details,
    device::Driver,
    object::{
        self,
        impl_base,
        Object, //
    },
    pd::Pd,
    ucontext::Customer,
    udata::Udata,
    wr::{
        RecvWrs,
        SendWrs, //
    }, //
};
use base::bindings::{
    self,
    ib_qp,
    ib_qp_attr,
    ib_qp_init_attr,
    ib_recv_wr,
    ib_send_wr,
    ib_udata,
    sk_buff, //
};

pub use self::attr::{
    Attr,
    Cap,
    Info,
    InitAttr,
    Path,
    State, //
};

/// A queue pair, with the provider's payload [`Driver::Qp`].
pub type Qp<D> = Object<D, ib_qp>;
/// A queue pair under construction.
pub type New<'a, D> = object::New<'a, D, ib_qp>;
/// A queue pair that is complete, as [`Operations::create`] returns it.
pub type Live<'a, D> = object::Live<'a, D, ib_qp>;

impl_base!(ib_qp => Qp);

/// The operations of queue pairs, which their payload implements. `()` has none of them.
///
/// # Examples
///
/// ```ignore
/// #[vtable]
/// impl qp::Operations<MyDriver> for Qp {
///     fn create<'a>(
///         new: qp::New<'a, MyDriver>,
///         attr: &qp::InitAttr<'_, MyDriver>,
///         udata: Option<&mut Udata<'_>>,
///     ) -> Result<(qp::Live<'a, MyDriver>, qp::Cap)> {
///         let dev = new.device();
///         let scq = ARef::from(attr.send_cq().ok_or(EINVAL)?);
///         let qp = new.init(pin_init!(Self { scq, /* ... */ }))?;
///         qp.set_qp_num(dev.next_number()?);
///         // Last: from here on others find it.
///         dev.qps.insert(qp.qp_num(), ARef::from(&*qp))?;
///         Ok((qp, attr.cap()))
///     }
///
///     fn destroy(qp: &Qp<MyDriver>) {
///         // This gives up the reference, for which the core waits.
///         drop(qp.device().qps.remove(qp.qp_num()));
///     }
///
///     fn post_send(qp: &Qp<MyDriver>, wrs: &mut SendWrs<'_, MyDriver>) -> Result {
///         while let Some(wr) = wrs.next() {
///             qp.post(&wr)?;
///         }
///         Ok(())
///     }
///
///     // ...
/// }
/// ```
#[vtable]
#[allow(unused_variables, reason = "what is missing uses nothing")]
pub trait Operations<D: Driver>: Sized + Send + Sync {
    /// A consumer wants a queue pair. `udata` is there if the consumer is a program. Returns the
    /// actual sizes as well, for the consumer. May sleep.
    fn create<'a>(
        new: New<'a, D>,
        attr: &InitAttr<'_, D>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<(Live<'a, D>, Cap)> {
        missing()
    }

    /// Changes the state or attributes of a queue pair. May sleep.
    fn modify(qp: &Qp<D>, attr: &Attr<'_>) -> Result {
        missing()
    }

    /// The state and attributes of a queue pair. May sleep.
    fn query(qp: &Qp<D>) -> Result<Info> {
        missing()
    }

    /// The queue pair is being destroyed. May sleep.
    fn destroy(qp: &Qp<D>) {}

    /// Posts to the send queue. If it fails, the consumer gets the request that [`SendWrs::next`]
    /// returned last; those before it are posted. Any context.
    ///
    /// `wrs` is empty if a program owns the QP: it rings the doorbell of its mapped queue.
    fn post_send(qp: &Qp<D>, wrs: &mut SendWrs<'_, D>) -> Result {
        missing()
    }

    /// Posts to the receive queue. If it fails, the consumer gets the request that
    /// [`RecvWrs::next`] returned last; those before it are posted. Any context.
    ///
    /// Only for the QPs of kernel consumers: programs post to their mapped queues.
    fn post_recv(qp: &Qp<D>, wrs: &mut RecvWrs<'_>) -> Result {
        missing()
    }

    /// Tells about a QP what the core does not know. May sleep.
    fn describe(qp: &Qp<D>, out: &mut Details<'_>) -> Result {
        missing()
    }
}

#[vtable]
impl<D: Driver> Operations<D> for () {}

/// The name of a QP in a [`Wc`](super::Wc): its address, which is handed to the consumer and never
/// dereferenced here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tag(*mut ib_qp);

// SAFETY: The pointer is a value only.
unsafe impl Send for Tag {}

// SAFETY: The pointer is a value only.
unsafe impl Sync for Tag {}

impl Tag {
    pub(super) fn as_raw(self) -> *mut ib_qp {
        self.0
    }
}

/// An asynchronous event of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The QP has failed by a fault on this side (`IB_EVENT_QP_FATAL`).
    Fatal,
    /// The peer has sent what it may not (`IB_EVENT_QP_REQ_ERR`).
    ReqErr,
    /// The peer has accessed memory that it may not (`IB_EVENT_QP_ACCESS_ERR`).
    AccessErr,
    /// A QP with an SRQ is in the error state, and takes no more requests from it
    /// (`IB_EVENT_QP_LAST_WQE_REACHED`).
    LastWqeReached,
    /// The QP goes on over another path (`IB_EVENT_PATH_MIG`).
    PathMig,
    /// The QP has lost its path, and there is no other one (`IB_EVENT_PATH_MIG_ERR`).
    PathMigErr,
}

impl<'a, D: Driver> New<'a, D> {
    /// The protection domain of the QP.
    pub fn pd(&self) -> &'a Pd<D> {
        // SAFETY: The core initialised the structure.
        let pd = unsafe { (*self.as_raw()).pd };
        // SAFETY: Only the target of an XRC domain has none, and `ops` has no operations for such
        // domains. The core counts the users of the others.
        unsafe { Pd::from_raw(pd) }
    }
}

impl<D: Driver> Live<'_, D> {
    /// Sets the number of the QP, once, before user or consumer can see it.
    pub fn set_qp_num(&self, num: u32) {
        // SAFETY: The structure is initialised. The field is a plain word.
        unsafe { (&raw mut (*self.as_raw()).qp_num).write_volatile(num) };
    }
}

impl<D: Driver> Qp<D> {
    /// The protection domain of the QP.
    pub fn pd(&self) -> &Pd<D> {
        // SAFETY: The core initialised the structure.
        let pd = unsafe { (*self.as_raw()).pd };
        // SAFETY: As for a QP under construction; the domain outlives its QPs.
        unsafe { Pd::from_raw(pd) }
    }

    /// The number of the QP.
    pub fn qp_num(&self) -> u32 {
        // SAFETY: The structure is initialised; only [`Live::set_qp_num`] writes the field.
        unsafe { (&raw const (*self.as_raw()).qp_num).read_volatile() }
    }

    /// The name of the QP in completions.
    pub fn tag(&self) -> Tag {
        Tag(self.as_raw())
    }

    /// Reports an event to the consumer. Any context; no lock of the provider may be held.
    pub fn event(&self, event: Event) {
        if self.is_destroying() {
            return;
        }
        let qp = self.as_raw();
        let mut ev: bindings::ib_event = pin_init::zeroed();
        ev.event = match event {
            Event::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            Event::ReqErr => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            Event::AccessErr => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            Event::LastWqeReached => bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
            Event::PathMig => bindings::ib_event_type_IB_EVENT_PATH_MIG,
            Event::PathMigErr => bindings::ib_event_type_IB_EVENT_PATH_MIG_ERR,
        };
        // SAFETY: The structure is initialised.
        ev.device = unsafe { (*qp).device };
        ev.element.qp = qp;
        // SAFETY: As above; the core sets the handler before creation.
        if let Some(handler) = unsafe { (*qp).event_handler } {
            // SAFETY: The QP is live. Its context was set along with the handler.
            let context = unsafe { (*qp).qp_context };
            // SAFETY: The QP exists, and the event describes it.
            unsafe { handler(&mut ev, context) };
        }
    }
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn create_qp<D: Driver>(
    qp: *mut ib_qp,
    attr: *mut ib_qp_init_attr,
    udata: *mut ib_udata,
) -> Int {
    let mut actual = None;
    // SAFETY: By *valid* for the attributes, and by *live* for the queues they name.
    let wanted = unsafe { InitAttr::<D>::from_raw(attr) };
    // SAFETY: By *verb*, and by *live* for the context.
    let customer = unsafe { Customer::from_raw(udata) };
    // SAFETY: The core allocated `size_ib_qp` bytes for this call, and uses them only when it is
    // over. `udata` is valid by *verb*, and names the customer.
    let result = unsafe {
        Object::create(qp, udata, customer, |new, udata| {
            let (live, cap) = <D::Qp>::create(new, &wanted, udata)?;
            actual = Some(cap);
            Ok(live)
        })
    };
    if let (Ok(()), Some(cap)) = (&result, actual) {
        // SAFETY: By *valid*: the core reads the sizes after the call, and nothing else uses them.
        cap.fill(unsafe { &mut (*attr).cap });
    }
    to_errno(result)
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn modify_qp<D: Driver>(
    qp: *mut ib_qp,
    attr: *mut ib_qp_attr,
    mask: Int,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let qp = unsafe { Qp::<D>::from_raw(qp) };
    // SAFETY: By *valid*: the core does not change the attributes during the call.
    let attr = unsafe { &*attr };
    // SAFETY: The core has looked the GID up, and holds its entry for the call (`_ib_modify_qp`).
    let attr = unsafe { Attr::new(attr, mask as u32) };
    to_errno(<D::Qp>::modify(qp, &attr))
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn query_qp<D: Driver>(
    qp: *mut ib_qp,
    attr: *mut ib_qp_attr,
    _mask: Int,
    init: *mut ib_qp_init_attr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let this = unsafe { Qp::<D>::from_raw(qp) };
    // SAFETY: By *valid*: `attr` is for this call to fill.
    let attr = unsafe { &mut *attr };
    // SAFETY: By *valid*: `init` is for this call to fill, and is not `attr`.
    let init = unsafe { &mut *init };
    from_result(|| {
        <D::Qp>::query(this)?.fill(attr, init);
        // SAFETY: The structure is initialised; these do not change.
        unsafe { init.qp_type = (*qp).qp_type };
        // SAFETY: By *live*: the queue was set at creation, and stays.
        unsafe { init.send_cq = (*qp).send_cq };
        // SAFETY: By *live*: the queue was set at creation, and stays.
        unsafe { init.recv_cq = (*qp).recv_cq };
        // SAFETY: By *live*: the queue was set at creation, and stays.
        unsafe { init.srq = (*qp).srq };
        Ok(0)
    })
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn destroy_qp<D: Driver>(
    qp: *mut ib_qp,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(qp, <D::Qp>::destroy) };
    0
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn post_send<D: Driver>(
    qp: *mut ib_qp,
    wr: *const ib_send_wr,
    bad: *mut *const ib_send_wr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let qp = unsafe { Qp::<D>::from_raw(qp) };
    // Requests that uverbs copies from a user have user addresses. For inline data they would be
    // taken for kernel addresses. The user posts in its own ring, and rings the doorbell without a
    // request.
    if qp.is_user() && !wr.is_null() {
        // SAFETY: By *valid*: the core gives each post a place for the request that failed.
        unsafe { *bad = wr };
        return EINVAL.to_errno();
    }
    // SAFETY: By *valid*: the list ends in null, and stays until the call returns. By *live*: it is
    // for a QP of `D`.
    let mut wrs = unsafe { SendWrs::from_raw(wr) };
    to_errno(<D::Qp>::post_send(qp, &mut wrs).inspect_err(|_| {
        // SAFETY: By *valid*: the core gives each post a place for the request that failed.
        unsafe { *bad = wrs.bad() };
    }))
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn post_recv<D: Driver>(
    qp: *mut ib_qp,
    wr: *const ib_recv_wr,
    bad: *mut *const ib_recv_wr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let qp = unsafe { Qp::<D>::from_raw(qp) };
    // SAFETY: By *valid*: the list ends in null, and stays until the call returns. Its addresses
    // are the kernel's: `Device::configure` enables no command that would bring a program's.
    let mut wrs = unsafe { RecvWrs::from_raw(wr) };
    to_errno(<D::Qp>::post_recv(qp, &mut wrs).inspect_err(|_| {
        // SAFETY: By *valid*: the core gives each post a place for the request that failed.
        unsafe { *bad = wrs.bad() };
    }))
}

/// # Safety
///
/// As `callback` says. The core keeps the QP during the call.
pub(super) unsafe extern "C" fn fill_res_qp_entry<D: Driver>(
    msg: *mut sk_buff,
    qp: *mut ib_qp,
) -> Int {
    // SAFETY: By the requirements of this function.
    let qp = unsafe { Qp::<D>::from_raw(qp) };
    // SAFETY: By *valid*: the core is filling `msg`, and waits for this call.
    to_errno(unsafe { Details::put(msg, |out| <D::Qp>::describe(qp, out)) })
}
