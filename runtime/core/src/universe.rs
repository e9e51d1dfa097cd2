// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process of the job from `MPI_Init` to `MPI_Finalize`.

use std::ptr::NonNull;
use std::sync::Arc;

use channel::Channels;
use engine::{ContextId, Engine, Event, Peer, Records, RequestId, WORDS};
use queue_layout::{CallTable, Queued, Tally};
use transport::seat::Awaited;
use transport::{Completions, Fabric, Far, Node};

use crate::Error;
use crate::boot::{Birth, Link};
use crate::bundle::Bundles;
use crate::collective::Shape;
use crate::collective::task::Tasks;
use crate::comm::{Comm, Group};
use crate::comms::Comms;
use crate::gates::Gates;
use crate::limits::{Limits, engine_config};
use crate::network::{self, Network};
use crate::oversubscription::Crowding;
use crate::polling::Polling;
use crate::roster::{Name, Roster};
use crate::sides::Sides;
use crate::var::live::{self, live};
use crate::var::traffic::{self, Traffic};
use crate::var::{Values, Variable, gauges, settings};
use crate::ways::Ways;

/// Everything that one process knows of its job.
#[derive(Debug)]
pub struct Universe {
    pub(crate) engine: Engine,
    pub(crate) fabric: Fabric,
    pub(crate) completions: Completions,
    pub(crate) channels: Channels,
    pub(crate) gates: Gates,
    /// Completions that were taken in, to see whether there were any.
    pub(crate) turned_up: u64,
    /// Collectives that were tried at hand.
    pub(crate) calls_at_hand: u32,
    pub(crate) sides: Sides,
    pub(crate) comms: Comms,
    pub(crate) bundles: Bundles,
    pub(crate) tasks: Tasks,
    shape: Shape,
    pub(crate) calls: Box<CallTable>,
    /// What a collective waits for at a board.
    pub(crate) awaited: Option<Awaited>,
    pub(crate) network: Network,
    pub(crate) crowding: Crowding,
    pub(crate) polling: Polling,
    pub(crate) limits: Limits,
    pub(crate) ways: Ways,
    /// What was sent to whom.
    pub(crate) traffic: Arc<Traffic>,
    /// Sends since the last look at what arrived.
    pub(crate) sends_unlooked: u32,
    pub(crate) link: Option<Link>,
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
        let (values, complaints) = settings::fix();
        let is_promised = |boot: &pmi::Boot| network::is_needed(boot, &values);
        let birth = Birth::from_environment(is_promised)?;
        let fabric = network::open(&birth, &values)?;
        let roster = birth.boot.as_ref().map_or_else(Roster::alone, Roster::of);
        let tally = Arc::clone(gauges::tally());
        let mut universe = Self::counting(fabric, roster, &values, tally);
        if let Some(boot) = &birth.boot {
            if boot.debugged {
                universe.keep_sends();
            }
            universe.crowding.set_launch(boot.local_size(), &boot.mask);
            let crowded = universe.crowding.ranks_outnumber_cpus();
            universe.shape = Shape::new(&values, crowded);
        }
        traffic::show(&universe.traffic);
        gauges::set_unexpected_budget(values.get(Variable::UnexpectedBudget));
        universe.link = birth.link;
        universe.complaints = complaints;
        let patience = u32::try_from(values.get(Variable::Standstill)).unwrap_or(0);
        universe.fabric.announce_patience(patience);
        universe.join_network(birth.boot.as_ref().is_some_and(is_promised));
        if universe.crowding.is_sleepless() {
            universe.fabric.set_sleepless(true);
        }
        let attentive = !universe.crowding.is_crowded();
        universe.fabric.set_attentive(attentive);
        Ok(universe)
    }

    /// A process over a given fabric: what the above does, and tests do with simulated ones.
    #[must_use]
    pub fn new(fabric: Fabric, me: Peer, size: u32, values: &Values) -> Self {
        let roster = Roster::of_one_node(0, me.0, size);
        Self::counting(fabric, roster, values, Arc::default())
    }

    /// The same, which counts into a tally that others read.
    fn counting(fabric: Fabric, roster: Roster, values: &Values, tally: Arc<Tally>) -> Self {
        let size = roster.size();
        let most_bytes = fabric.max_send_bytes() as u64;
        let config = engine_config(values, most_bytes);
        let comms = Comms::new(&roster, &fabric, values, Arc::clone(&tally));
        let channels = Channels::new();
        let ledgers = (fabric.ledger(), Arc::clone(channels.ledger()));
        Self {
            engine: Engine::counting(config, size, tally),
            comms,
            calls: Box::default(),
            awaited: None,
            traffic: Arc::new(Traffic::new(size, ledgers.0, ledgers.1)),
            fabric,
            completions: Completions::new(),
            channels,
            gates: Gates::new(
                values.get(Variable::Persistent),
                values.get(Variable::GateStarts),
            ),
            turned_up: 0,
            calls_at_hand: 0,
            sides: Sides::default(),
            bundles: Bundles::default(),
            tasks: Tasks::default(),
            shape: Shape::new(values, false),
            network: Network::default(),
            crowding: Crowding::new(values.get(Variable::Wait)),
            polling: Polling::default(),
            limits: Limits::of(&config, most_bytes),
            ways: Ways::new(
                values.get(Variable::SingleCopy),
                values.get(Variable::CopyTrials),
            ),
            sends_unlooked: 0,
            link: None,
            roster,
            complaints: Vec::new(),
        }
    }

    /// Meets the processes behind a further segment of this node, which are of another job: peers with the numbers that `node` says,
    /// and with these names, in the order of the numbers.
    ///
    /// # Errors
    /// When those numbers do not follow the ones that there are.
    pub fn attach(&mut self, node: Node, names: &[Name]) -> Result<(), Error> {
        self.fabric.attach(node)?;
        names.iter().for_each(|name| self.roster.meet(*name));
        self.make_room_for_peers();
        Ok(())
    }

    /// Meets a process of another job that the network reaches, found where `record` says: the next peer, with this name. It must
    /// be found, since the daemon of this job, who is asked where others are, does not know it.
    ///
    /// # Errors
    /// When this process has opened no network, or the key in `far` is none.
    pub fn meet_far(&mut self, name: Name, far: Far, record: &[u8]) -> Result<Peer, Error> {
        let peer = self.fabric.add_far(far, Some(record))?;
        self.roster.meet_far(name);
        self.make_room_for_peers();
        Ok(Peer(peer.0))
    }

    fn make_room_for_peers(&mut self) {
        let peers = self.fabric.peer_count();
        self.engine.add_peers(peers);
        self.traffic.grow_to(peers);
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

    /// From now on every send has a request until it is collected, so that a debugger sees also those that are complete.
    pub fn keep_sends(&mut self) {
        self.limits.keep_sends();
    }

    /// Takes over what a tool has written while MPI runs.
    pub fn renew_settings(&mut self) {
        live::set_stale(false);
        self.limits.renew(&mut self.engine);
        gauges::set_unexpected_budget(live(Variable::UnexpectedBudget));
        self.ways.follow(live(Variable::SingleCopy));
        self.crowding.follow(live(Variable::Wait));
        self.fabric.set_sleepless(self.crowding.is_sleepless());
        self.fabric.set_attentive(!self.crowding.is_crowded());
    }

    /// Whether a send of so many bytes may go without a request.
    #[must_use]
    pub fn sends_at_once(&self, bytes: u64) -> bool {
        self.limits.sends_at_once(bytes)
    }

    /// What algorithms of collectives are chosen by.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The same, in its place.
    pub(crate) fn shape_now(&self) -> &Shape {
        &self.shape
    }

    /// Which program of the command line this is.
    #[must_use]
    pub fn app(&self) -> u32 {
        self.roster.app()
    }

    /// The line to the daemon, if there is a launcher.
    #[must_use]
    pub fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// What was not understood in the environment, once.
    pub fn take_complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// The communicators.
    #[inline(always)]
    #[must_use]
    pub fn comms(&self) -> &Comms {
        &self.comms
    }

    /// The same, to change them.
    pub fn comms_mut(&mut self) -> &mut Comms {
        &mut self.comms
    }

    /// A context that no communicator of the job has, for one that this process leads the making of. `None`: it has none left.
    pub fn reserve_context(&mut self) -> Option<ContextId> {
        let context = self.comms.reserve_context()?;
        // Where there is none, small collectives of the communicator are messages.
        let _ = self.fabric.claim_board(context.0);
        Some(context)
    }

    /// As [`reserve_context`](Self::reserve_context), for communicators of several groups that have one context: they cannot
    /// meet at one board, so they get none.
    pub fn reserve_context_of_groups(&mut self) -> Option<ContextId> {
        self.comms.reserve_context()
    }

    /// Gives back the context that was reserved last, which is not needed.
    pub fn release_context(&mut self, context: ContextId) {
        self.comms.release_context(context);
        self.fabric.unclaim_board(context.0);
    }

    /// Knows a new communicator. It gets its seat at a board, if there is one.
    pub fn adopt(&mut self, comm: &mut Comm) {
        self.comms.adopt(&mut self.fabric, comm);
    }

    /// A communicator was freed. Its group and its row stay known while operations on it are pending.
    pub fn forget(&mut self, comm: &Comm) {
        self.forget_gates(comm);
        self.comms.retire(comm.context);
        let remote = comm.remote.as_ref().map_or(0, Group::size);
        self.fabric
            .leave_board(comm.context.0, comm.size() + remote);
        let arena = self.engine.arena();
        let used = arena.iter().map(|id| arena.fields(id).context);
        self.comms.forget_ended(&used.collect());
    }

    /// Whether nothing is under way on a communicator.
    #[must_use]
    pub fn is_quiet(&self, comm: &Comm) -> bool {
        use engine::State::{Announced, Moving, Posted, Queued};
        let arena = self.engine.arena();
        let pending = |id: RequestId| {
            let fields = arena.fields(id);
            let goes_on = matches!(fields.state, Posted | Queued | Announced | Moving);
            goes_on && fields.context == comm.context.0
        };
        !arena.iter().any(pending)
    }

    /// Whether this process may leave: nothing waits to be sent that anybody waits for, no send is under way whose request
    /// the application does not have (any more), and what was sent over a network has arrived.
    #[must_use]
    pub fn is_drained(&mut self) -> bool {
        let owes_nothing = self.engine.owes_nothing() && self.channels.is_drained();
        owes_nothing && !self.owes_copies() && self.fabric.is_quiet()
    }

    /// Memory that the other ranks of the node reach directly, zero and aligned to a page; `None` where there is none.
    pub fn allocate_shared(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        self.fabric.allocate(bytes)
    }

    /// Gives it back. `false`: it is not from there.
    pub fn free_shared(&mut self, place: NonNull<u8>) -> bool {
        self.fabric.free(place)
    }

    /// As [`Engine::watch_queue`].
    #[must_use]
    pub fn watch_queue(&mut self, kind: Queued, context: ContextId) -> Option<usize> {
        self.engine.watch_queue(kind, context)
    }

    /// The engine, to read slots and counters.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Notes that something happened, if a tool wants to hear of it; [`crate::var::events`] says what the words are.
    #[inline(always)]
    pub fn note(&mut self, event: Event, words: [u64; WORDS]) {
        self.engine.note(event, words);
    }

    /// What was noted since the last time.
    pub fn take_records(&mut self) -> Records {
        self.engine.take_records()
    }

    /// The clock by which things are noted.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        self.engine.set_clock(clock);
    }

    /// The transport's counters.
    #[must_use]
    pub fn transport_stats(&self) -> transport::Stats {
        self.fabric.stats()
    }

    /// The request that a token names, if it is still in use.
    #[inline(always)]
    #[must_use]
    pub fn find_request(&self, token: u32) -> Option<RequestId> {
        self.engine.arena().find(token)
    }

    /// The token of a request: 27 bits that a stale copy of no longer names it.
    #[inline(always)]
    #[must_use]
    pub fn token(&self, request: RequestId) -> u32 {
        self.engine.arena().token(request)
    }

    /// Whether a request is persistent and not started.
    #[must_use]
    pub fn is_inactive(&self, request: RequestId) -> bool {
        self.engine.arena().fields(request).state == engine::State::Inactive
    }

    /// Whether a request is persistent.
    #[must_use]
    pub fn is_persistent(&self, request: RequestId) -> bool {
        self.engine.arena().fields(request).flags & queue_layout::FLAG_PERSISTENT != 0
    }

    /// Whether the application has freed a request that is still under way.
    #[inline]
    #[must_use]
    pub fn is_freed(&self, request: RequestId) -> bool {
        let flags = self.engine.arena().fields(request).flags;
        flags & queue_layout::FLAG_ORPHAN != 0 || self.bundles.has_given_up(request)
    }

    /// Context of the communicator that a request was made with.
    #[must_use]
    pub fn context_of(&self, request: RequestId) -> u32 {
        self.engine.arena().fields(request).context
    }

    /// What a request is about.
    #[must_use]
    pub fn kind_of(&self, request: RequestId) -> engine::Kind {
        self.engine.arena().fields(request).kind
    }

    /// Whether a request is done and not collected.
    #[inline(always)]
    #[must_use]
    pub fn is_complete(&self, request: RequestId) -> bool {
        self.engine.is_complete(request)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;
    use crate::p2p::{Mode, Source, Target};
    use crate::testing::segment;
    use crate::user_buf::UserMemory;

    #[test]
    fn the_group_of_a_freed_communicator_goes_with_the_last_request() {
        let (values, _) = Values::from_environment(std::iter::empty());
        let fabric = Fabric::open(transport::Config::alone()).unwrap();
        let mut universe = Universe::new(fabric, Peer(1), 2, &values);
        let mut comm = Comm::new(ContextId(12), Group::of(vec![Peer(1)]), 0);
        universe.adopt(&mut comm);
        let source = Source {
            context: comm.context,
            peer: Some(Peer(1)),
            tag: None,
        };
        let pending = universe.receive(source, UserMemory::nothing()).unwrap();
        universe.forget(&comm);
        assert_eq!(universe.comms.rank_in(comm.context, Peer(1)), 0);
        universe.cancel(pending);
        universe.collect(pending);
        universe.forget(&Comm::new(ContextId(16), Group::of(vec![Peer(1)]), 0));
        assert_eq!(universe.comms.rank_in(comm.context, Peer(1)), 1);
    }

    /// A process of a job of its own, which has met the one behind the other place of a segment.
    fn process(joint: &OwnedFd, place: u32) -> Universe {
        let (values, _) = Values::from_environment(std::iter::empty());
        let fabric = Fabric::open(transport::Config::alone()).unwrap();
        let mut universe = Universe::new(fabric, Peer(0), 1, &values);
        // The other is the second that this one knows.
        let mut peers = vec![transport::Peer(1); 2];
        peers[place as usize] = transport::Peer(0);
        let node = Node::attach(joint.as_fd(), 9, place, peers).unwrap();
        let other = Name {
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
        let context = ContextId(40);
        for (rank, universe) in (0..).zip(&mut both) {
            // The same order for both.
            let mut members = vec![Peer(1); 2];
            members[rank as usize] = Peer(0);
            universe.adopt(&mut Comm::new(context, Group::of(members), rank));
        }
        for bytes in [8, 5000, 3_000_000] {
            for (from, to) in [(0, 1), (1, 0)] {
                let (mut sent, mut got) = (vec![7; bytes], vec![0; bytes]);
                let source = Source {
                    context,
                    peer: Some(Peer(1)),
                    tag: Some(7),
                };
                let target = Target {
                    context,
                    peer: Peer(1),
                    tag: 7,
                };
                let memory = UserMemory::of(&mut got);
                let receive = both[to].receive(source, memory).unwrap();
                let memory = UserMemory::of(&mut sent);
                let send = both[from].send(target, memory, Mode::Standard).unwrap();
                let is_under_way = |both: &[Universe; 2]| {
                    let sends = send.is_some_and(|send| !both[from].is_complete(send));
                    sends || !both[to].is_complete(receive)
                };
                while is_under_way(&both) {
                    both.iter_mut().for_each(|universe| _ = universe.progress());
                }
                let status = both[to].collect(receive);
                let got_from = (status.source, status.bytes);
                let sender = i32::try_from(from).unwrap();
                assert_eq!(got_from, (Some(sender), bytes as u64));
                assert_eq!(got, sent);
                send.map(|send| both[from].collect(send));
            }
        }
        assert_eq!(
            (both[0].traffic.size(), both[0].traffic.bytes(1)),
            (1, 3_005_008)
        );
    }
}
