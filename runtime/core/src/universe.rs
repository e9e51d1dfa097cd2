// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process of the job from `MPI_Init` to `MPI_Finalize`.
//!
//! # Parts
//! Each part is a field of [`Universe`] with its own methods and tests. The parts that other crates use are public. A
//! [visit](crate::Visit) gives access to all parts together. A method of a part that needs another part takes it as an
//! argument, as in `universe.channels.start(&mut universe.messages, ..)`; no part refers to the universe itself. The
//! module of a part imports only from modules below it in this table, from the engine and from the transport.
//!
//! | part                             | contents                                                                  | arguments |
//! |----------------------------------|---------------------------------------------------------------------------|-----|
//! | [`waiting`](Universe::waiting)   | how the process waits: crowded cores, polls, sleep, records for debuggers | messages, channels, network |
//! | [`tasks`](Universe::tasks)       | collectives in the background                                             | messages |
//! | [`channels`](Universe::channels) | gated channels                                                            | messages; the transport |
//! | [`network`](Universe::network)   | the connection to the daemon, address records, dead peers                 | the pump, communicators |
//! | [`comms`](Universe::comms)       | communicators by context                                                  | the transport |
//! | [`messages`](Universe::messages) | point-to-point; in it the pump, gates and bundles                         | |
//! | `messages.gates`                 | persistent requests that bypass the engine                                | the pump |
//! | `messages.pump`                  | engine and transport, and the state between both                          | |
//! | `roster`                         | the processes of the job                                                  | |
//!
//! # Methods
//! The methods of the universe itself are those that need several parts. They are called in this order:
//!
//! 1. Opening: [`from_environment`](Universe::from_environment), or [`new`](Universe::new) over a given transport;
//!    [`take_warnings`](Universe::take_warnings).
//! 2. Communicators: [`reserve_context`](Universe::reserve_context), [`adopt`](Universe::adopt), ...,
//!    [`forget`](Universe::forget).
//! 3. Operations: [`sending`](Universe::sending) before a send, and [`restart_other`](Universe::restart_other). All
//!    other operations are methods of the parts.
//! 4. Turns (`progress.rs`): [`progress`](Universe::progress) polls the transport, dispatches the completions
//!    (`dispatch.rs`: `take_in`, and `take_in_daemon_event` for messages of the daemon), and lets each part that has
//!    work continue. After a turn in which nothing happened, [`rest`](Universe::rest) follows. `visit.rs` makes turns
//!    and rests for a waiting call. The fast paths of requests make shorter turns (`brief.rs`).
//! 5. Completion: [`status`](Universe::status), [`collect`](Universe::collect), [`cancel`](Universe::cancel),
//!    [`free`](Universe::free).
//! 6. Leaving: [`is_drained`](Universe::is_drained), then [`JobNetwork::report_quiescence`] and
//!    [`JobNetwork::may_leave`].
//!
//! At any time: the members of the job ([`rank`](Universe::rank), [`size`](Universe::size), ...;
//! [`attach`](Universe::attach) adds more), and [`renew_settings`](Universe::renew_settings).

use std::rc::Rc;
use std::sync::Arc;

use engine::{ContextId, Peer, RequestFailure, RequestFields, RequestId};
use queue_layout::{EngineCounters, FLAG_CANCELLED};
use transport::seat::NODE_BOARD;
use transport::{Completions, Fabric, ForeignPeer, Node, Seat};

use crate::Error;
use crate::boot::LaunchState;
use crate::carrier::carrier;
use crate::channels::ProcessChannels;
use crate::collective::{CollectiveTuning, CommPlacement};
use crate::comm::{Comm, Group, WORLD_CONTEXT};
use crate::comms::Comms;
use crate::messages::Messages;
use crate::network::{self, JobNetwork};
use crate::nodes::CommNodes;
use crate::operation::MessageStatus;
use crate::pump::Pump;
use crate::roster::{ProcessName, Roster};
use crate::tasks::Tasks;
use crate::var::launch;
use crate::var::live::{self, live};
use crate::var::traffic;
use crate::var::{Variable, VariableValues, pvars, settings};
use crate::waiting::WaitPolicy;

/// The state of one process of a job. Most of its methods need several parts at once.
#[derive(Debug)]
pub struct Universe {
    /// The point-to-point messages of the process.
    pub messages: Messages,
    pub(crate) completions: Completions,
    /// The gated channels of the process.
    pub channels: ProcessChannels,
    /// Number of completions taken in so far. If it has changed, progress was made.
    pub(crate) completions_seen: u64,
    /// Number of calls of [`fast_path_turn`](Universe::fast_path_turn): one for each collective that tries the fast
    /// path.
    pub(crate) fast_path_calls: u32,
    /// The communicators of the process.
    pub comms: Comms,
    /// Collectives and other operations in the background.
    pub tasks: Tasks,
    shape: CollectiveTuning,
    /// The network and the daemon.
    pub network: JobNetwork,
    /// How the process waits.
    pub waiting: WaitPolicy,
    roster: Roster,
    warnings: Vec<String>,
}

impl Universe {
    /// Joins the job that the environment describes. A program that was started without a launcher is a job with one
    /// rank. The settings are read here, so later changes of the environment have no effect.
    ///
    /// # Errors
    /// When the launcher's settings cannot be used.
    pub fn from_environment() -> Result<Self, Error> {
        launch::begin();
        let (values, warnings) = settings::fix();
        let will_publish = |boot: &wireup::Boot| network::is_needed(boot, &values);
        let mut launch = LaunchState::from_environment(&values, will_publish)?;
        launch.record_launch();
        let opened = network::open(&launch, &values);
        let opened = opened.and_then(|fabric| launch.exchange_records(&fabric).map(|()| fabric));
        let fabric = opened.inspect_err(|why| launch.give_up(why))?;
        launch::end(launch::LaunchPhase::Network);
        let roster = launch.boot.as_ref().map_or_else(Roster::alone, Roster::of);
        let counters = Arc::clone(pvars::engine_counters());
        let mut universe = Self::with_counters(fabric, roster, &values, counters);
        if let Some(boot) = &launch.boot {
            if boot.debugged {
                universe.messages.keep_sends();
            }
            universe.waiting.crowding.set_launch(
                boot.local_size(),
                boot.colocated_ranks,
                &boot.mask,
            );
            universe.shape = CollectiveTuning::new(&values, boot.crowded);
        }
        traffic::show(&universe.messages.pump.traffic);
        pvars::set_unexpected_budget(values.get(Variable::UnexpectedBudget));
        universe.network.set_link(launch.link);
        universe.warnings = warnings;
        let patience = u32::try_from(values.get(Variable::Standstill)).unwrap_or(0);
        universe.messages.pump.fabric.announce_patience(patience);
        let will_publish = launch.boot.as_ref().is_some_and(will_publish);
        universe
            .network
            .join(&mut universe.messages.pump, will_publish);
        if will_publish {
            universe.exchange_with_daemon();
        }
        if universe.waiting.crowding.is_sleepless() {
            universe.messages.pump.fabric.set_sleepless(true);
        }
        let Self {
            waiting, messages, ..
        } = &mut universe;
        waiting.update_crowding(&mut messages.pump.fabric);
        Ok(universe)
    }

    /// A process of a job on one node, over a given transport; tests pass a simulated one.
    #[must_use]
    pub fn new(fabric: Fabric, me: Peer, size: u32, values: &VariableValues) -> Self {
        let roster = Roster::of_one_node(0, me.0, size);
        Self::with_counters(fabric, roster, values, Arc::default())
    }

    /// Sets the node of each rank, as a launcher would send it to all ranks: the process is then in a job over several
    /// nodes.
    #[must_use]
    pub fn over_nodes(mut self, nodes: wireup::NodeMap) -> Self {
        self.roster.set_nodes(nodes);
        self
    }

    /// A process over a given transport, with the members of its job in `roster`. Other threads may read `counters`.
    fn with_counters(
        fabric: Fabric,
        roster: Roster,
        values: &VariableValues,
        counters: Arc<EngineCounters>,
    ) -> Self {
        let comms = Comms::new(&roster, &fabric, values, Arc::clone(&counters));
        let channels = ProcessChannels::new();
        let channel_counters = Arc::clone(channels.own.live_counters());
        let me = (Peer(roster.rank()), roster.size());
        let pump = Pump::new(fabric, me, values, counters, channel_counters);
        Self {
            messages: Messages::new(pump, values),
            comms,
            completions: Completions::new(),
            channels,
            completions_seen: 0,
            fast_path_calls: 0,
            tasks: Tasks::default(),
            shape: CollectiveTuning::new(values, false),
            network: JobNetwork::new(roster.rank()),
            waiting: WaitPolicy::new(values.get(Variable::Wait)),
            roster,
            warnings: Vec::new(),
        }
    }

    /// Adds processes of another job, with which this process shares the segment in `node`. They become the peers with
    /// the numbers in `node`. `names`: their names, in the order of these numbers.
    ///
    /// # Errors
    /// When those numbers do not follow the numbers of the existing peers.
    pub fn attach(&mut self, node: Node, names: &[ProcessName]) -> Result<(), Error> {
        let pump = &mut self.messages.pump;
        pump.fabric.attach(node)?;
        names.iter().for_each(|name| self.roster.add(*name));
        pump.make_room_for_peers();
        Ok(())
    }

    /// Adds a process of another job, called `name`, which is reached over the network at the address in `record`. The
    /// process gets the next peer number. `far`: the numbers and keys for messages with that process. `record` is
    /// needed because the daemon of this job has no record of that process.
    ///
    /// # Errors
    /// When this process has opened no network, or the key in `far` is invalid.
    pub fn add_remote(
        &mut self,
        name: ProcessName,
        far: ForeignPeer,
        record: &[u8],
    ) -> Result<Peer, Error> {
        let pump = &mut self.messages.pump;
        let peer = pump.fabric.add_far(far, Some(record))?;
        self.roster.add_remote(name);
        pump.make_room_for_peers();
        Ok(Peer(peer.0))
    }

    /// The processes that this process can address.
    #[must_use]
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Rank in `MPI_COMM_WORLD`.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.roster.rank()
    }

    /// Size of `MPI_COMM_WORLD`.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.roster.size()
    }

    /// A number that identifies this process's node in the job.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.roster.node()
    }

    /// Whether all processes of a communicator's local group are on the node of this process.
    #[must_use]
    pub fn is_on_one_node(&self, comm: &Comm) -> bool {
        self.roster.are_near(&comm.group)
    }

    /// To be called for each send: makes a turn of progress if one is due, and returns the [`Messages`] on which the
    /// caller starts the send. Without these turns a process that only sends and does not wait would never receive the
    /// THROTTLE by which a receiver slows it down.
    #[inline(always)]
    pub fn sending(&mut self) -> &mut Messages {
        if self.messages.is_poll_due() {
            self.poll_between_sends();
        }
        &mut self.messages
    }

    #[cold]
    #[inline(never)]
    fn poll_between_sends(&mut self) {
        self.messages.sends_since_poll = 0;
        self.messages.pump.fabric.begin_poll_between_sends();
        self.progress();
    }

    /// To be called when the program completes a send whose message may be [deferred](crate::Mode::Deferrable): sends it.
    #[inline]
    pub fn send_deferred(&mut self) {
        if self.messages.has_deferred() {
            self.progress();
        }
    }

    /// Starts a persistent request other than a plain send or receive.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn restart_other(&mut self, request: RequestId) -> Result<(), Error> {
        if self.tasks.restart(&mut self.messages, request) {
            return Ok(());
        }
        self.sending().restart_other(request)
    }

    /// Marks a request for cancellation. For a send to this process itself the outcome is known on return: if the send
    /// was not cancelled, the program may have to receive the message before it waits for the send (MPI 5.0 section
    /// 3.8.4).
    pub fn cancel(&mut self, request: RequestId) {
        self.messages.cancel(request);
        if self.messages.pump.engine.arena().fields(request).peer != self.rank() {
            return;
        }
        while self.messages.pump.engine.is_cancelling(request) {
            self.progress();
        }
    }

    /// Frees a request; its operation still completes.
    pub fn free(&mut self, request: RequestId) {
        self.tasks.forget(&self.messages, request, true);
        self.messages.free(request);
    }

    /// Returns the status of a complete request, and frees the request; a persistent request becomes inactive instead.
    #[inline]
    pub fn collect(&mut self, request: RequestId) -> MessageStatus {
        let status = self.status(request);
        if status.source.is_none() {
            self.tasks.forget(&self.messages, request, false);
        }
        self.messages.release(request);
        status
    }

    /// The status of a complete request, which is not freed.
    #[must_use]
    pub fn status(&self, request: RequestId) -> MessageStatus {
        let fields = self.messages.pump.engine.arena().fields(request);
        let cancelled = fields.flags & FLAG_CANCELLED != 0;
        if fields.kind == engine::RequestKind::Other
            && let Some(outcome) = self.tasks.outcome(&self.messages, request)
        {
            return MessageStatus {
                source: None,
                no_process: false,
                tag: -2,
                bytes: outcome.as_ref().map_or(0, |moved| moved.bytes),
                cancelled: false,
                error: outcome.err(),
            };
        }
        if fields.kind != engine::RequestKind::Receive || cancelled {
            let error = (fields.error != 0).then(|| self.failure(fields));
            return MessageStatus {
                source: None,
                no_process: fields.kind == engine::RequestKind::Other,
                tag: -2,
                bytes: 0,
                cancelled,
                error,
            };
        }
        MessageStatus {
            no_process: false,
            source: Some(
                self.comms
                    .rank_in(ContextId(fields.context), Peer(fields.matched_peer)),
            ),
            tag: fields.matched_tag,
            bytes: fields.matched_bytes.min(fields.bytes),
            cancelled,
            error: (fields.error != 0).then(|| self.failure(fields)),
        }
    }

    #[cold]
    fn failure(&self, fields: &RequestFields) -> Error {
        if fields.error == RequestFailure::Lost as u8 {
            let is_send = fields.kind == engine::RequestKind::Send;
            let peer = Peer(if is_send {
                fields.peer
            } else {
                fields.matched_peer
            });
            let (rank, why) = (
                self.comms.rank_in(ContextId(fields.context), peer),
                self.network.why_lost(peer).unwrap_or_default().to_owned(),
            );
            return Error::Lost { rank, why };
        }
        let source_rank = self
            .comms
            .rank_in(ContextId(fields.context), Peer(fields.matched_peer));
        let tag = fields.matched_tag;
        if fields.error == RequestFailure::Truncated as u8 {
            let (message_bytes, buffer_bytes) = (fields.matched_bytes, fields.bytes);
            return Error::Truncated {
                source_rank,
                tag,
                message_bytes,
                buffer_bytes,
            };
        }
        Error::Transfer { source_rank, tag }
    }

    /// Applies settings that a tool has written while MPI runs.
    pub fn renew_settings(&mut self) {
        live::set_stale(false);
        self.messages.pump.renew_settings();
        pvars::set_unexpected_budget(live(Variable::UnexpectedBudget));
        let fabric = &mut self.messages.pump.fabric;
        self.waiting.follow(live(Variable::Wait), fabric);
    }

    /// The parameters by which collective algorithms are selected.
    #[must_use]
    pub fn shape(&self) -> &CollectiveTuning {
        &self.shape
    }

    /// Index of this process's program on the command line.
    #[must_use]
    pub fn app(&self) -> u32 {
        self.roster.app()
    }

    /// Warnings about invalid settings in the environment; empty after the first call.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Reserves a context id that no communicator of the job has, for a new communicator whose leader is this process.
    /// `None`: this process has no context id left.
    pub fn reserve_context(&mut self) -> Option<ContextId> {
        let context = self.comms.reserve_context()?;
        // Without a board, small collectives of the communicator use messages.
        let _ = self.messages.pump.fabric.claim_board(context.0);
        Some(context)
    }

    /// Returns a reserved context id that is not needed. Does nothing if another process has reserved it.
    pub fn release_context(&mut self, context: ContextId) {
        if self.comms.release_context(context) {
            self.messages.pump.fabric.unclaim_board(context.0);
        }
    }

    /// Registers a new communicator, and takes this process's seat at the communicator's board, if there is one.
    pub fn adopt(&mut self, comm: &mut Comm) {
        self.comms.adopt(&mut self.messages.pump.fabric, comm);
    }

    /// The ranks of a communicator grouped by node. `None`: `comm` is an intercommunicator, grouping its ranks is of no
    /// use, or the node of a rank is unknown.
    pub(crate) fn nodes_of(&self, comm: &Comm) -> Option<Rc<CommNodes>> {
        let find = || {
            let map = self.roster.nodes().filter(|_| !comm.is_inter())?;
            CommNodes::of(&comm.group, comm.rank, map).map(Rc::new)
        };
        comm.nodes.get_or_init(find).clone()
    }

    /// The placement of a communicator's ranks.
    #[must_use]
    pub fn place_of(&self, comm: &Comm) -> CommPlacement {
        match comm.has_board() {
            true => CommPlacement::Board,
            false if self.nodes_of(comm).is_some() => CommPlacement::Nodes,
            false => CommPlacement::Apart,
        }
    }

    /// Claims a [board](transport::seat) for the members of `comm` on this process's node. `true`: it was claimed; the
    /// caller must send the result to those members. Not to be called for `MPI_COMM_WORLD`, whose members on a node use
    /// the board of the node.
    pub(crate) fn claim_near_board(&mut self, comm: &Comm) -> bool {
        let fabric = &mut self.messages.pump.fabric;
        fabric.claim_board(near_board(comm))
    }

    /// Takes the seat of this process at the board of the members of `comm` on this node. `None`: there is no board.
    pub(crate) fn take_near_seat(&mut self, comm: &Comm, near: &Group) -> Option<Rc<Seat>> {
        let fabric = &self.messages.pump.fabric;
        let seat = fabric.take_seat(near_board(comm), near.peers().map(carrier));
        if seat.is_none() {
            let fabric = &mut self.messages.pump.fabric;
            fabric.leave_board(near_board(comm), near.size());
        }
        seat.map(Rc::new)
    }

    /// Retires a freed communicator. Its group and its row are kept while operations on it are pending.
    pub fn forget(&mut self, comm: &Comm) {
        self.messages
            .gates
            .forget(&mut self.messages.pump, comm.context);
        self.comms.retire(comm.context);
        let fabric = &mut self.messages.pump.fabric;
        // A process without a seat has declined the board already, so it must not leave the board too.
        if comm.has_board() {
            fabric.leave_board(comm.context.0, comm.size());
        }
        if let Some(Some(nodes)) = comm.nodes.get()
            && nodes.seat().is_some()
        {
            fabric.leave_board(near_board(comm), nodes.near().0.size());
        }
        let arena = self.messages.pump.engine.arena();
        let used = arena.iter().map(|id| arena.fields(id).context);
        self.comms.forget_ended(&used.collect());
    }

    /// Whether this process may exit. It may if no frame that a peer needs is queued, no send is in progress that only
    /// the runtime waits for, the channels are drained, and everything that was sent over a network has arrived.
    #[must_use]
    pub fn is_drained(&mut self) -> bool {
        let Messages { pump, bundles, .. } = &mut self.messages;
        let may_exit = pump.engine.may_exit() && self.channels.own.is_drained();
        may_exit && !bundles.has_unfinished_copies(pump.engine.arena()) && pump.fabric.is_quiet()
    }
}

/// The number that identifies the board for the members on one node of a communicator over several nodes.
fn near_board(comm: &Comm) -> u32 {
    match comm.context {
        WORLD_CONTEXT => NODE_BOARD,
        // The context id itself identifies the board of the whole communicator, so this board has the next number.
        context => context.0 + 1,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;
    use crate::operation::ReceiveSource;
    use crate::testing::{exchange_messages, segment};
    use crate::user_buf::UserMemory;

    #[test]
    fn the_group_of_a_freed_communicator_ends_with_its_last_request() {
        let (values, _) = VariableValues::from_environment(std::iter::empty());
        let fabric = Fabric::open(transport::Config::alone()).unwrap();
        let mut universe = Universe::new(fabric, Peer(1), 2, &values);
        let mut comm = Comm::new(ContextId(12), Group::of(vec![Peer(1)]), 0);
        universe.adopt(&mut comm);
        let source = ReceiveSource {
            context: comm.context,
            peer: Some(Peer(1)),
            tag: None,
        };
        let pending = universe
            .messages
            .receive(source, UserMemory::nothing())
            .unwrap();
        universe.forget(&comm);
        assert_eq!(universe.comms.rank_in(comm.context, Peer(1)), 0);
        universe.cancel(pending);
        universe.collect(pending);
        universe.forget(&Comm::new(ContextId(16), Group::of(vec![Peer(1)]), 0));
        assert_eq!(universe.comms.rank_in(comm.context, Peer(1)), 1);
    }

    /// A process that is a job of its own. It shares the segment `joint` with another such process, which it has
    /// attached. `place`: its own place in the segment.
    fn process(joint: &OwnedFd, place: u32) -> Universe {
        let (values, _) = VariableValues::from_environment(std::iter::empty());
        let fabric = Fabric::open(transport::Config::alone()).unwrap();
        let mut universe = Universe::new(fabric, Peer(0), 1, &values);
        // The other process is peer 1 of this process.
        let mut peers = vec![transport::Peer(1); 2];
        peers[place as usize] = transport::Peer(0);
        let node = Node::attach(joint.as_fd(), 9, place, peers).unwrap();
        let other = ProcessName {
            job: 1,
            rank: 1 - place,
        };
        universe.attach(node, &[other]).unwrap();
        assert_eq!(universe.roster().peer(other), Some(Peer(1)));
        universe
    }

    #[test]
    fn connected_jobs_exchange_messages_over_shared_memory() {
        let joint = segment(9, 2);
        let mut both = [0, 1].map(|place| process(&joint, place));
        exchange_messages(&mut both, &[8, 5000, 3_000_000], || {});
        assert_eq!(both[0].messages.pump.traffic.size(), 1);
    }
}
