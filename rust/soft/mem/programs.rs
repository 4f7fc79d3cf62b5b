// SPDX-License-Identifier: GPL-2.0

//! The programs that have memory on demand.
//!
//! A program may decide itself when one of its pages comes (userfaultfd, FUSE). A work item that
//! brings the page waits for that, and work queues limit how many items run at a time. So each
//! program has a queue of its own, as long as it has memory on demand.
//!
//! A user may have many programs, and those that have ended may leave items that wait. So only the
//! first programs of a user have their own queues. The others share one.
//!
//! The last memory may be given back by an item of the queue, which cannot wait for itself. So
//! another queue gives up those of programs.

use kernel::{
    impl_has_work,
    new_condvar,
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        Arc,
        CondVar,
        Mutex,
        SetOnce, //
    },
    task::Kuid,
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    }, //
};

use base::{
    process::{
        Process,
        ProcessId, //
    },
    wq::{
        Kind,
        WorkQueue, //
    }, //
};

/// The most accesses whose pages a queue brings at a time, on each NUMA node. Each takes a kernel
/// thread, for which the program does not pay.
const AT_ONCE: u8 = 8;

/// The most programs of a user that have a queue of their own.
const OWN_QUEUES: usize = 31;

/// The programs that have memory on demand.
type Present = RBTree<ProcessId, Entry>;

struct Entry {
    program: Arc<Program>,
    /// The number of its [`Member`]s.
    memories: usize,
    /// The program shares its queue with others of its user.
    shares: bool,
}

/// All of them.
#[pin_data]
pub struct Programs {
    /// A leaf. Nothing is allocated inside.
    #[pin]
    present: Mutex<Present>,
    /// Signals that there are none.
    #[pin]
    empty: CondVar,
    /// Gives up the queues of programs.
    last: WorkQueue,
    name: &'static CStr,
}

#[pin_data]
struct Program {
    #[pin]
    work: Work<Self>,
    process: Process,
    user: Kuid,
    /// Set when the program is entered.
    queue: SetOnce<Arc<WorkQueue>>,
}

impl_has_work! {
    impl HasWork<Self> for Program { self.work }
}

impl WorkItem for Program {
    type Pointer = Arc<Self>;

    /// Drops the last reference. If no other program has the queue, it goes, too: it waits for the
    /// items.
    fn run(_: Arc<Self>) {}
}

impl Programs {
    /// No programs. Their queues will have that name. May sleep.
    pub fn new(name: &'static CStr) -> Result<Arc<Self>> {
        let last = WorkQueue::new(name, Kind::Waiting)?;
        Arc::pin_init(
            pin_init!(Self {
                present <- new_mutex!(RBTree::new(), "Programs::present"),
                empty <- new_condvar!("Programs::empty"),
                last,
                name,
            }),
            GFP_KERNEL,
        )
    }

    /// Enters memory of the current process. May sleep.
    pub(super) fn join(self: &Arc<Self>) -> Result<Member> {
        let process = Process::current();
        let id = process.id();
        if let Some(member) = self.enter(&mut self.present.lock(), id) {
            return Ok(member);
        }
        let user = Kuid::current_euid();
        let queue = WorkQueue::new(self.name, Kind::Few(AT_ONCE))?;
        // Dropped only after the lock, if the program gets another one.
        let queue = Arc::new(queue, GFP_KERNEL_ACCOUNT)?;
        let program = Arc::pin_init(
            pin_init!(Program {
                work <- new_work!("Program::work"),
                process,
                user,
                queue: SetOnce::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let entry = Entry {
            program,
            memories: 0,
            shares: false,
        };
        // As above, if another thread of the process has been faster.
        let mut node = Some(RBTreeNode::new(id, entry, GFP_KERNEL_ACCOUNT)?);
        let mut present = self.present.lock();
        if present.get(&id).is_none() {
            let (shares, shared) = place(&present, user);
            if let Some(node) = node.take() {
                present.insert(node);
            }
            if let Some(entry) = present.get_mut(&id) {
                entry.shares = shares;
                entry
                    .program
                    .queue
                    .populate(shared.unwrap_or_else(|| queue.clone()));
            }
        }
        self.enter(&mut present, id).ok_or(ENOMEM)
    }

    /// Enters memory of a process that has some.
    fn enter(self: &Arc<Self>, present: &mut Present, id: ProcessId) -> Option<Member> {
        let entry = present.get_mut(&id)?;
        entry.memories = entry.memories.saturating_add(1);
        Some(Member {
            programs: self.clone(),
            program: Some(entry.program.clone()),
        })
    }

    /// Waits until no program has memory on demand. Nobody may get any. May sleep for any time.
    pub fn quiesce(&self) {
        let mut present = self.present.lock();
        while !present.is_empty() {
            self.empty.wait(&mut present);
        }
        drop(present);
        self.last.flush();
    }
}

/// Whether a further program of `user` shares a queue, and which, if there is one to share.
fn place(present: &Present, user: Kuid) -> (bool, Option<Arc<WorkQueue>>) {
    let (mut own, mut shared) = (0, None);
    for entry in present.values().filter(|entry| entry.program.user == user) {
        match entry.shares {
            true => shared = entry.program.queue.as_ref(),
            false => own += 1,
        }
    }
    match own < OWN_QUEUES {
        true => (false, None),
        false => (true, shared.cloned()),
    }
}

/// The membership of memory in its program. Its drop may sleep.
pub(super) struct Member {
    programs: Arc<Programs>,
    /// There until the drop.
    program: Option<Arc<Program>>,
}

impl Member {
    /// The queue of the program.
    pub(super) fn queue(&self) -> Option<&WorkQueue> {
        self.program.as_ref()?.queue.as_ref().map(|queue| &**queue)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let programs = &self.programs;
        let mut present = programs.present.lock();
        // Dropped before the lock is released, or else it could become the last reference.
        let Some(program) = self.program.take() else {
            return;
        };
        let id = program.process.id();
        let Some(entry) = present.get_mut(&id) else {
            return;
        };
        entry.memories = entry.memories.saturating_sub(1);
        if entry.memories != 0 {
            return;
        }
        drop(present.remove(&id));
        // This is the last reference now. It is queued before anybody finds nothing present.
        let _ = programs.last.enqueue(program);
        if present.is_empty() {
            programs.empty.notify_all();
        }
    }
}
