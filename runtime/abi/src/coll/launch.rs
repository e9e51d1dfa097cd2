// SPDX-License-Identifier: MIT OR Apache-2.0
//! The three forms of a collective: blocking, nonblocking and persistent.

use queue_layout::CommRow;
use runtime::collective::{CollectiveRoot, Moved, Task, try_at_once};
use runtime::var::events;
use runtime::{
    AwaitedCollective, CallGuard, CollectiveCall, Comm, EventType, Peer, RequestId, Visit,
};

use crate::args::OutArg;
use crate::enter::Mpi;
use crate::error::Result;
use crate::express_lanes;
use crate::handle::MPI_Request;
use crate::state::{DONE, request_handle};

/// A collective with its arguments looked up.
pub(crate) trait PreparedCollective: Clone + 'static {
    /// The index of the collective in `queue_layout::COLLECTIVES`; `None` if it is not in that table.
    fn number(&self) -> Option<usize> {
        None
    }

    /// The root of the call, if the collective has one.
    fn root(&self) -> Option<CollectiveRoot> {
        None
    }

    /// Bytes of the call's data, if their number must be equal on all ranks of a group (MPI 5.0 section 6.2.1).
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// Runs the collective. The memory of the arguments is borrowed until the future is complete.
    fn run(
        &self,
        call: &CollectiveCall<Mpi>,
    ) -> impl Future<Output = core::result::Result<(), runtime::Error>>;
}

/// A call that debuggers see as in progress while it runs.
#[derive(Clone)]
pub(crate) struct Counted<C> {
    row: Option<&'static CommRow>,
    number: usize,
    prepared: C,
}

impl<C: PreparedCollective> Counted<C> {
    /// `number` is an index in `queue_layout::COLLECTIVES`.
    pub(crate) fn new(comm: &Comm, number: usize, prepared: C) -> Self {
        let row = comm.row();
        Self {
            row,
            number,
            prepared,
        }
    }
}

impl<C: PreparedCollective> PreparedCollective for Counted<C> {
    async fn run(&self, call: &CollectiveCall<Mpi>) -> core::result::Result<(), runtime::Error> {
        let _within = CallGuard::begin(self.row, self.number);
        if events::wanted().any() {
            call.note_call(EventType::CollectiveBegin, self.number);
        }
        let ended = self.prepared.run(call).await;
        if events::wanted().any() {
            call.note_call(EventType::CollectiveEnd, self.number);
        }
        ended
    }

    fn number(&self) -> Option<usize> {
        Some(self.number)
    }

    fn root(&self) -> Option<CollectiveRoot> {
        self.prepared.root()
    }

    fn bytes(&self) -> Option<u64> {
        self.prepared.bytes()
    }
}

/// Runs a blocking collective.
pub(crate) fn run_blocking(
    mpi: Mpi,
    comm: &Comm,
    prepared: &impl PreparedCollective,
) -> Result<()> {
    let about = (root_of(comm, prepared), bytes_of(comm, prepared));
    Ok(CollectiveCall::run_to(mpi, comm, about, async |call| {
        prepared.run(call).await
    })?)
}

/// Starts a nonblocking collective.
pub(crate) fn start_nonblocking(
    mpi: Mpi,
    comm: &Comm,
    prepared: impl PreparedCollective,
    request: &OutArg<'_, MPI_Request>,
) -> Result<()> {
    let call = CollectiveCall::new(mpi, comm);
    let record = debugger_record(&call, comm, &prepared);
    // If no request slot is left, the call must fail before the task borrows any memory.
    let id = mpi.visit(|universe| universe.tasks.reserve(&mut universe.messages, comm.context))?;
    let task = as_task(call, prepared);
    let task = match try_at_once(mpi, task) {
        Ok(Ok(_)) => {
            mpi.visit(|universe| universe.tasks.give_up(&mut universe.messages, id));
            request.set(DONE);
            return Ok(());
        }
        // The error is returned by the call that completes the request.
        Ok(Err(error)) => Box::pin(async { Err(error) }),
        Err(task) => task,
    };
    let (number, token) = mpi.visit(|universe| {
        let number = universe.tasks.next_number();
        universe.tasks.start(id, task);
        (number, universe.messages.token(id))
    });
    record_for_debugger(mpi, id, record);
    request.set(request_handle(token));
    express_lanes::pause();
    mpi.turn_for_tried(number);
    Ok(())
}

/// The task of a collective. The status of its request is empty (MPI 5.0 section 6.12).
fn as_task(call: CollectiveCall<Mpi>, prepared: impl PreparedCollective) -> Task {
    Box::pin(async move {
        let ended = call.end(prepared.run(&call).await);
        ended.map(|()| Moved::default())
    })
}

/// If there are tasks with number `first` or higher, closes the express lane, makes progress, and polls these tasks.
pub(crate) fn run_new_tasks(mpi: Mpi, first: u64) {
    if mpi.visit(|universe| universe.tasks.next_number()) != first {
        express_lanes::pause();
        mpi.turn_for_new(first);
    }
}

/// Makes a persistent collective.
pub(crate) fn init_persistent(
    mpi: Mpi,
    comm: &Comm,
    prepared: impl PreparedCollective,
    request: &OutArg<'_, MPI_Request>,
) -> Result<()> {
    let call = CollectiveCall::new(mpi, comm);
    let record = debugger_record(&call, comm, &prepared);
    let starter = Box::new(move || as_task(call.clone(), prepared.clone()));
    let id = mpi.visit(|universe| {
        universe
            .tasks
            .prepare(&mut universe.messages, comm.context, starter)
    })?;
    record_for_debugger(mpi, id, record);
    request.set(request_handle(
        mpi.visit(|universe| universe.messages.token(id)),
    ));
    Ok(())
}

/// The record of a nonblocking or persistent call for debuggers: its index in `queue_layout::COLLECTIVES`, and what it
/// waits for.
type DebuggerRecord = Option<(usize, AwaitedCollective)>;

fn debugger_record(
    call: &CollectiveCall<Mpi>,
    comm: &Comm,
    prepared: &impl PreparedCollective,
) -> DebuggerRecord {
    let awaited = call.awaited(root_of(comm, prepared), bytes_of(comm, prepared));
    prepared.number().map(|number| (number, awaited))
}

fn record_for_debugger(mpi: Mpi, request: RequestId, record: DebuggerRecord) {
    if let Some((number, awaited)) = record {
        mpi.visit(|universe| {
            universe
                .messages
                .record_collective(request, number, awaited)
        });
    }
}

/// The process that is the root of a call.
fn root_of(comm: &Comm, prepared: &impl PreparedCollective) -> Option<Peer> {
    match prepared.root()? {
        CollectiveRoot::Here => comm.group.peer(comm.rank),
        CollectiveRoot::There(rank) => comm.partners().peer(rank),
        CollectiveRoot::Aside => None,
    }
}

/// Bytes of a call, for debuggers. `None` on an intercommunicator: its groups may contribute different sizes.
fn bytes_of(comm: &Comm, prepared: &impl PreparedCollective) -> Option<u64> {
    prepared.bytes().filter(|_| !comm.is_inter())
}

/// Defines the bodies of the blocking, the nonblocking and the persistent form of a collective. `$prepare` prepares the
/// arguments. `$fast_path`, in brackets, is the fast path that the blocking form tries first, if there is one.
macro_rules! three_forms {
    ($name:literal $([$fast_path:path])?: $prepare:path, $now:ident, $later:ident, $again:ident
     ($($arg:ident: $type:ty),*)) => {
        #[doc = concat!("`MPI_", $name, "`.")]
        #[inline]
        pub fn $now(mpi: Mpi, $($arg: $type,)* comm: MPI_Comm) -> Result<()> {
            /// The ordinary path.
            #[inline(never)]
            fn ordinary(mpi: Mpi, $($arg: $type,)* comm: MPI_Comm) -> Result<()> {
                let group = $crate::comm::any(mpi, comm)?.for_one_call();
                let call = $prepare(mpi, &group, $($arg,)*)?;
                let call = $crate::coll::launch::Counted::new(&group, const { queue_layout::collective($name) }, call);
                $crate::coll::launch::run_blocking(mpi, &group, &call)
            }
            match $crate::coll::launch::try_fast_path!([$($fast_path)?] (mpi, $($arg,)* comm)) {
                Some(()) => Ok(()),
                None => ordinary(mpi, $($arg,)* comm),
            }
        }

        #[doc = concat!("The nonblocking form of `MPI_", $name, "`.")]
        pub fn $later(
            mpi: Mpi,
            $($arg: $type,)*
            comm: MPI_Comm,
            request: OutArg<'_, MPI_Request>,
        ) -> Result<()> {
            let group = $crate::comm::any(mpi, comm)?.for_one_call();
            let call = $prepare(mpi, &group, $($arg,)*)?;
            let call = $crate::coll::launch::Counted::new(&group, const { queue_layout::collective($name) }, call);
            $crate::coll::launch::start_nonblocking(mpi, &group, call, &request)
        }

        #[doc = concat!("The persistent form of `MPI_", $name, "`.")]
        pub fn $again(
            mpi: Mpi,
            $($arg: $type,)*
            comm: MPI_Comm,
            _info: MPI_Info,
            request: OutArg<'_, MPI_Request>,
        ) -> Result<()> {
            let group = $crate::comm::any(mpi, comm)?.for_persistent_calls();
            let call = $prepare(mpi, &group, $($arg,)*)?;
            let call = $crate::coll::launch::Counted::new(&group, const { queue_layout::collective($name) }, call);
            $crate::coll::launch::init_persistent(mpi, &group, call, &request)
        }
    };
}
pub(crate) use three_forms;

/// Calls the fast path, if there is one.
macro_rules! try_fast_path {
    ([] $args:tt) => {
        None::<()>
    };
    ([$fast_path:path] $args:tt) => {
        $fast_path $args
    };
}
pub(crate) use try_fast_path;
