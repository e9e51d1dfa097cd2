// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process of the job from `MPI_Init` to `MPI_Finalize`.
//!
//! # Parts
//! Each is a field, has its own methods and is tested alone. Those that others may call are public: whoever visits the process has all
//! of them at once, and hands one to another that needs it, as in `universe.channels.start(&mut universe.messages, ..)`. Inside a part
//! only the crate sees. No part knows the process; imports go downwards in this table, and on to the engine and the transport.
//!
//! | part | what it has | is handed |
//! |------|-------------|-----------|
//! | [`waiting`](Universe::waiting) | how the process rests: crowded cores, polls, sleep, notes for debuggers | messages, channels, network |
//! | [`tasks`](Universe::tasks) | collectives that go on in the background | messages |
//! | [`channels`](Universe::channels) | gated channels | messages; the transport |
//! | [`network`](Universe::network) | the line to the daemon, where others are, who is lost | the pump, communicators |
//! | [`comms`](Universe::comms) | communicators by context | the transport |
//! | [`messages`](Universe::messages) | point-to-point; in it the pump, gates and bundles | |
//! | `messages.gates` | persistent requests that go past the engine | the pump |
//! | `messages.pump` | engine and transport, and what stands between both | |
//! | `roster` | who is in the job | |
//!
//! # Methods
//! What is left to the process needs several parts. In the order in which they are called:
//!
//! 1. Opening: [`from_environment`](Universe::from_environment), or [`new`](Universe::new) over a given transport;
//!    [`take_complaints`](Universe::take_complaints).
//! 2. Communicators: [`reserve_context`](Universe::reserve_context), [`adopt`](Universe::adopt), ..., [`forget`](Universe::forget).
//! 3. Operations: [`sending`](Universe::sending) before a send, [`restart_other`](Universe::restart_other); else the parts' own.
//! 4. Turns (`progress.rs`): [`progress`](Universe::progress) polls the transport, gives what came to whom it belongs
//!    (`dispatch.rs`: `take_in`, and `take_news` for what the daemon says), and lets each part that has something to do go on. Where
//!    nothing has happened, [`rest`](Universe::rest) follows. `visit.rs` makes turns and rests for who waits. The fast paths of
//!    requests make shorter turns (`brief.rs`).
//! 5. Ends: [`status`](Universe::status), [`collect`](Universe::collect), [`cancel`](Universe::cancel), [`free`](Universe::free).
//! 6. Leaving: [`is_drained`](Universe::is_drained), then [`JobNetwork::say_quiet`] and [`JobNetwork::may_leave`].
//!
//! At any time: who is in the job ([`rank`](Universe::rank), [`size`](Universe::size), ...; [`attach`](Universe::attach) for more), and
//! [`renew_settings`](Universe::renew_settings).

use std::rc::Rc;
use std::sync::Arc;

use engine::{ContextId, Peer, RequestFailure, RequestFields, RequestId};
use queue_layout::{EngineCounters, FLAG_CANCELLED};
use transport::seat::NODE_BOARD;
use transport::{Completions, Fabric, ForeignPeer, Node, Seat};

use crate::Error;
use crate::boot::Birth;
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

/// Everything that one process knows of its job. A few methods more than sixty, of which each needs several parts at once.
#[derive(Debug)]
pub struct Universe {
    /// Its point-to-point messages.
    pub messages: Messages,
    pub(crate) completions: Completions,
    /// Its gated channels.
    pub channels: ProcessChannels,
    /// Completions that were taken in, to see whether there were any.
    pub(crate) turned_up: u64,
    /// Collectives that were tried at hand.
    pub(crate) calls_at_hand: u32,
    /// Its communicators.
    pub comms: Comms,
    /// Collectives, and other operations, that go on in the background.
    pub tasks: Tasks,
    shape: CollectiveTuning,
    /// What it knows of the network and of the daemon.
    pub network: JobNetwork,
    /// How it waits.
    pub waiting: WaitPolicy,
    roster: Roster,
    complaints: Vec<String>,
}

impl Universe {
    /// Joins the job that the environment describes; a program that was started by hand is a job of its own. The settings
    /// of this process are fixed from here on.
    ///
    /// # Errors
    /// When the launcher left something that cannot be used.
    pub fn from_environment() -> Result<Self, Error> {
        launch::begin();
        let (values, complaints) = settings::fix();
        let is_promised = |boot: &wireup::Boot| network::is_needed(boot, &values);
        let mut birth = Birth::from_environment(&values, is_promised)?;
        birth.tell_launch();
        let opened = network::open(&birth, &values);
        let opened = opened.and_then(|fabric| birth.meet_others(&fabric).map(|()| fabric));
        let fabric = opened.inspect_err(|why| birth.give_up(why))?;
        launch::end(launch::Lap::Network);
        let roster = birth.boot.as_ref().map_or_else(Roster::alone, Roster::of);
        let tally = Arc::clone(pvars::tally());
        let mut universe = Self::counting(fabric, roster, &values, tally);
        if let Some(boot) = &birth.boot {
            if boot.debugged {
                universe.messages.keep_sends();
            }
            universe
                .waiting
                .crowding
                .set_launch(boot.local_size(), boot.beside, &boot.mask);
            universe.shape = CollectiveTuning::new(&values, boot.crowded);
        }
        traffic::show(&universe.messages.pump.traffic);
        pvars::set_unexpected_budget(values.get(Variable::UnexpectedBudget));
        universe.network.set_link(birth.link);
        universe.complaints = complaints;
        let patience = u32::try_from(values.get(Variable::Standstill)).unwrap_or(0);
        universe.messages.pump.fabric.announce_patience(patience);
        let is_promised = birth.boot.as_ref().is_some_and(is_promised);
        universe
            .network
            .join(&mut universe.messages.pump, is_promised);
        if is_promised {
            universe.listen();
        }
        if universe.waiting.crowding.is_sleepless() {
            universe.messages.pump.fabric.set_sleepless(true);
        }
        let Self {
            waiting, messages, ..
        } = &mut universe;
        waiting.tell_crowding(&mut messages.pump.fabric);
        Ok(universe)
    }

    /// A process over a given fabric: what the above does, and tests do with simulated ones.
    #[must_use]
    pub fn new(fabric: Fabric, me: Peer, size: u32, values: &VariableValues) -> Self {
        let roster = Roster::of_one_node(0, me.0, size);
        Self::counting(fabric, roster, values, Arc::default())
    }

    /// The same in a job over several nodes, with the map that a launcher would tell all its ranks.
    #[must_use]
    pub fn over_nodes(mut self, nodes: wireup::NodeMap) -> Self {
        self.roster.set_nodes(nodes);
        self
    }

    /// The same, which counts into a tally that others read.
    fn counting(
        fabric: Fabric,
        roster: Roster,
        values: &VariableValues,
        tally: Arc<EngineCounters>,
    ) -> Self {
        let comms = Comms::new(&roster, &fabric, values, Arc::clone(&tally));
        let channels = ProcessChannels::new();
        let ledger = Arc::clone(channels.own.live_counters());
        let me = (Peer(roster.rank()), roster.size());
        let pump = Pump::new(fabric, me, values, tally, ledger);
        Self {
            messages: Messages::new(pump, values),
            comms,
            completions: Completions::new(),
            channels,
            turned_up: 0,
            calls_at_hand: 0,
            tasks: Tasks::default(),
            shape: CollectiveTuning::new(values, false),
            network: JobNetwork::new(roster.rank()),
            waiting: WaitPolicy::new(values.get(Variable::Wait)),
            roster,
            complaints: Vec::new(),
        }
    }

    /// Meets the processes behind a further segment of this node, which are of another job: peers with the numbers that `node` says,
    /// and with these names, in the order of the numbers.
    ///
    /// # Errors
    /// When those numbers do not follow the ones that there are.
    pub fn attach(&mut self, node: Node, names: &[ProcessName]) -> Result<(), Error> {
        let pump = &mut self.messages.pump;
        pump.fabric.attach(node)?;
        names.iter().for_each(|name| self.roster.meet(*name));
        pump.make_room_for_peers();
        Ok(())
    }

    /// Meets a process of another job that the network reaches, found where `record` says: the next peer, with this name. It must
    /// be found, since the daemon of this job, who is asked where others are, does not know it.
    ///
    /// # Errors
    /// When this process has opened no network, or the key in `far` is none.
    pub fn meet_far(
        &mut self,
        name: ProcessName,
        far: ForeignPeer,
        record: &[u8],
    ) -> Result<Peer, Error> {
        let pump = &mut self.messages.pump;
        let peer = pump.fabric.add_far(far, Some(record))?;
        self.roster.meet_far(name);
        pump.make_room_for_peers();
        Ok(Peer(peer.0))
    }

    /// Who the processes are that this one knows.
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

    /// A number of this process's node that no other node of the job has.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.roster.node()
    }

    /// Whether all processes of a communicator's local group are on the node of this one.
    #[must_use]
    pub fn is_on_one_node(&self, comm: &Comm) -> bool {
        self.roster.are_near(&comm.group)
    }

    /// The messages, for the start of a send: a turn of progress comes before one in some of them. A process that only sends, and
    /// never waits, would not hear of a receiver that asks for announcements.
    #[inline(always)]
    pub fn sending(&mut self) -> &mut Messages {
        if self.messages.is_look_due() {
            self.look_between_sends();
        }
        &mut self.messages
    }

    #[cold]
    #[inline(never)]
    fn look_between_sends(&mut self) {
        self.messages.sends_unlooked = 0;
        self.progress();
    }

    /// Starts a persistent request of another sort than a plain send or receive.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn restart_other(&mut self, request: RequestId) -> Result<(), Error> {
        if self.tasks.restart(&mut self.messages, request) {
            return Ok(());
        }
        self.sending().restart_other(request)
    }

    /// Marks a request for cancellation. What becomes of a send to this process itself is known afterwards: nobody else
    /// has a say in it, and a program that sees it not cancelled goes on to receive it (MPI 5.0 section 3.8.4).
    pub fn cancel(&mut self, request: RequestId) {
        self.messages.cancel(request);
        if self.messages.pump.engine.arena().fields(request).peer != self.rank() {
            return;
        }
        while self.messages.pump.engine.is_cancelling(request) {
            self.progress();
        }
    }

    /// The application gives a request up; the operation still ends properly.
    pub fn free(&mut self, request: RequestId) {
        self.tasks.forget(&self.messages, request, true);
        self.messages.free(request);
    }

    /// How a complete request ended. The slot is free afterwards, or inactive if the request is persistent.
    #[inline]
    pub fn collect(&mut self, request: RequestId) -> MessageStatus {
        let status = self.status(request);
        if status.source.is_none() {
            self.tasks.forget(&self.messages, request, false);
        }
        self.messages.release(request);
        status
    }

    /// How a complete request ended, without collecting it.
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

    /// Takes over what a tool has written while MPI runs.
    pub fn renew_settings(&mut self) {
        live::set_stale(false);
        self.messages.pump.renew_settings();
        pvars::set_unexpected_budget(live(Variable::UnexpectedBudget));
        let fabric = &mut self.messages.pump.fabric;
        self.waiting.follow(live(Variable::Wait), fabric);
    }

    /// What algorithms of collectives are chosen by.
    #[must_use]
    pub fn shape(&self) -> &CollectiveTuning {
        &self.shape
    }

    /// Which program of the command line this is.
    #[must_use]
    pub fn app(&self) -> u32 {
        self.roster.app()
    }

    /// What was not understood in the environment, once.
    pub fn take_complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// A context that no communicator of the job has, for one that this process leads the making of. `None`: it has none left.
    pub fn reserve_context(&mut self) -> Option<ContextId> {
        let context = self.comms.reserve_context()?;
        // Where there is none, small collectives of the communicator are messages.
        let _ = self.messages.pump.fabric.claim_board(context.0);
        Some(context)
    }

    /// Gives back the context that was reserved last, which is not needed.
    pub fn release_context(&mut self, context: ContextId) {
        self.comms.release_context(context);
        self.messages.pump.fabric.unclaim_board(context.0);
    }

    /// Knows a new communicator. It gets its seat at a board, if there is one.
    pub fn adopt(&mut self, comm: &mut Comm) {
        self.comms.adopt(&mut self.messages.pump.fabric, comm);
    }

    /// The ranks of an intracommunicator by their nodes, where that is of use.
    pub(crate) fn nodes_of(&self, comm: &Comm) -> Option<Rc<CommNodes>> {
        let find = || {
            let map = self.roster.nodes().filter(|_| !comm.is_inter())?;
            CommNodes::of(&comm.group, comm.rank, map).map(Rc::new)
        };
        comm.nodes.get_or_init(find).clone()
    }

    /// Where the ranks of a communicator meet.
    #[must_use]
    pub fn place_of(&self, comm: &Comm) -> CommPlacement {
        match comm.has_board() {
            true => CommPlacement::Board,
            false if self.nodes_of(comm).is_some() => CommPlacement::Nodes,
            false => CommPlacement::Apart,
        }
    }

    /// Takes a board for the members of `comm` near this process, which tells them. Not for `MPI_COMM_WORLD`, whose members have
    /// that of the node.
    pub(crate) fn claim_near_board(&mut self, comm: &Comm) -> bool {
        let fabric = &mut self.messages.pump.fabric;
        fabric.claim_board(near_board(comm))
    }

    /// The seat of this process at the board of the members of `comm` near it; `None`: there is none.
    pub(crate) fn take_near_seat(&mut self, comm: &Comm, near: &Group) -> Option<Rc<Seat>> {
        let fabric = &self.messages.pump.fabric;
        let seat = fabric.take_seat(near_board(comm), near.peers().map(carrier));
        if seat.is_none() {
            let fabric = &mut self.messages.pump.fabric;
            fabric.leave_board(near_board(comm), near.size());
        }
        seat.map(Rc::new)
    }

    /// A communicator was freed. Its group and its row stay known while operations on it are pending.
    pub fn forget(&mut self, comm: &Comm) {
        self.messages
            .gates
            .forget(&mut self.messages.pump, comm.context);
        self.comms.retire(comm.context);
        let fabric = &mut self.messages.pump.fabric;
        // Whoever took no seat has declined the board already: nobody may leave one twice.
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

    /// Whether this process may leave: nothing waits to be sent that anybody waits for, no send is under way whose request
    /// the application does not have (any more), and what was sent over a network has arrived.
    #[must_use]
    pub fn is_drained(&mut self) -> bool {
        let Messages { pump, bundles, .. } = &mut self.messages;
        let owes_nothing = pump.engine.owes_nothing() && self.channels.own.is_drained();
        owes_nothing && !bundles.owes_copies(pump.engine.arena()) && pump.fabric.is_quiet()
    }
}

/// What ranks of one node call the board where they meet in collectives of a communicator that is over several.
fn near_board(comm: &Comm) -> u32 {
    match comm.context {
        WORLD_CONTEXT => NODE_BOARD,
        // Boards of whole communicators have their contexts.
        context => context.0 + 1,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;
    use crate::operation::ReceiveSource;
    use crate::testing::{segment, talk};
    use crate::user_buf::UserMemory;

    #[test]
    fn the_group_of_a_freed_communicator_goes_with_the_last_request() {
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

    /// A process of a job of its own, which has met the one behind the other place of a segment.
    fn process(joint: &OwnedFd, place: u32) -> Universe {
        let (values, _) = VariableValues::from_environment(std::iter::empty());
        let fabric = Fabric::open(transport::Config::alone()).unwrap();
        let mut universe = Universe::new(fabric, Peer(0), 1, &values);
        // The other is the second that this one knows.
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
    fn jobs_that_meet_later_send_to_each_other_in_a_communicator_of_both() {
        let joint = segment(9, 2);
        let mut both = [0, 1].map(|place| process(&joint, place));
        talk(&mut both, &[8, 5000, 3_000_000], || {});
        assert_eq!(both[0].messages.pump.traffic.size(), 1);
    }
}
