// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node daemon, `rmpid`: starts the ranks of a node, forwards their output and input, serves their messages in
//! `MPI_Init`, `MPI_Finalize` and `MPI_Abort`, reaps them, and leaves no process behind. The front decides what a
//! failure means for the job; when the front is gone, the job ends.
//!
//! The daemon has one thread with one loop. It must not have more threads: the kernel kills a rank when the thread that
//! forked the rank ends.

mod affinity_control;
mod control;
mod exec;
mod hold;
mod input;
mod memory;
mod messages;
mod pmi_server;
mod probe;
mod rank;
pub(crate) mod records;
mod remote_setup;
mod standstill;
mod start;
mod streams;
mod sweep;
mod termination;
mod tool;
mod wait_query;

pub(crate) use start::serve;
#[cfg(test)]
pub(crate) use sweep::Descendant;
pub(crate) use sweep::{ProcessSnapshot, signal_all};
pub(crate) use wait_query::QUERY_WITHIN;

use crate::connection::{Disconnected, FrameConnection};
use crate::failure::{FailureCause, RankFailure};
use crate::job::NodeJob;
use crate::link::{NodeEvent, NodePhase, Order};
use crate::program::cause;
use crate::stats;
use crate::strided_ranks::StridedRanks;
use exec::SpawnContext;
use hold::Hold;
use input::{PumpResult, RankInput};
use nix::libc;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signalfd::SignalFd;
use pmi_server::PmiServer;
use probe::Probes;
use rank::LocalRank;
use records::Records;
use standstill::Standstill;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::time::Instant;
use streams::OutputStreams;
use termination::Termination;
use wait_query::WaitQuery;

/// Size of the read buffer.
const SCRATCH_BYTES: usize = 64 << 10;

/// Identifies a descriptor in the epoll set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Token {
    /// SIGCHLD. Events that epoll reports together are handled in the order of these variants. SIGCHLD is the first, so
    /// an exit is evaluated before messages that other ranks sent later.
    Signals,
    /// The connection to the front.
    Front,
    /// A rank's control socket.
    Control(u32),
    /// The pidfd of a rank's MPI process, if the daemon is not its parent.
    Watch(u32),
    /// The listener for new connections.
    Listener,
    /// A connection that has not identified its rank yet.
    PendingStream(u32),
    /// Input pipe of a rank.
    Input(u32),
    /// Output of the ranks.
    Streams,
    /// Room in the connection to the front.
    Room,
    /// Output of the `rmpi-queues` child.
    QueueOutput,
    /// A rank's PMI socket.
    Pmi(u32),
}

impl Token {
    fn pack(self) -> u64 {
        let (kind, index) = match self {
            Self::Signals => (0, 0),
            Self::Front => (1, 0),
            Self::Control(local) => (2, local),
            Self::Watch(local) => (3, local),
            Self::Listener => (4, 0),
            Self::PendingStream(number) => (5, number),
            Self::Input(local) => (6, local),
            Self::Streams => (7, 0),
            Self::Room => (8, 0),
            Self::QueueOutput => (9, 0),
            Self::Pmi(local) => (10, local),
        };
        kind << 32 | u64::from(index)
    }

    fn unpack(data: u64) -> Option<Self> {
        let index = u32::try_from(data & 0xffff_ffff).unwrap_or(0);
        Some(match data >> 32 {
            0 => Self::Signals,
            1 => Self::Front,
            2 => Self::Control(index),
            3 => Self::Watch(index),
            4 => Self::Listener,
            5 => Self::PendingStream(index),
            6 => Self::Input(index),
            7 => Self::Streams,
            8 => Self::Room,
            9 => Self::QueueOutput,
            10 => Self::Pmi(index),
            _ => return None,
        })
    }
}

fn interest(flags: EpollFlags, token: Token) -> EpollEvent {
    EpollEvent::new(flags, token.pack())
}

/// Current optional registrations with epoll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Interests {
    front_writes: bool,
    streams: bool,
}

/// The daemon of a node: one loop over all its descriptors. It has more than twenty fields and sixty methods, since
/// each descriptor and timer is a field that has a method to handle it. State with rules of its own (records,
/// standstill, streams) has its own type.
struct Daemon {
    job: NodeJob,
    spawn_context: SpawnContext,
    front: FrameConnection,
    poller: Epoll,
    signals: SignalFd,
    listener: UnixListener,
    failure_pipe: OwnedFd,
    ranks: Vec<LocalRank>,
    by_pid: HashMap<u32, u32>,
    /// Network records of the ranks.
    records: Records,
    /// PMI-1 server, for ranks that use MPICH's library.
    pmi: PmiServer,
    /// Segments of the ranks' second, third, ... MPI programs. The key is the number of programs that a rank completed
    /// before.
    later_segments: HashMap<u32, Rc<OwnedFd>>,
    pending_streams: HashMap<u32, UnixStream>,
    pending_count: u32,
    streams: OutputStreams,
    interests: Interests,
    input: RankInput,
    termination: Termination,
    hold: Hold,
    /// Processes started for a debugger.
    tools: Vec<u32>,
    wait_query: WaitQuery,
    /// Whether a remark of a rank was sent to the front.
    has_remarked: bool,
    probes: Probes,
    standstill: Standstill,
    /// When preferred CPUs were last checked; `None` if no rank has a preferred CPU.
    affinity_checked_at: Option<Instant>,
    /// File of the ranks' records for `--stats`, on a host where the front cannot read the file; otherwise `None`.
    left: Option<File>,
    scratch: Vec<u8>,
}

impl Daemon {
    /// Runs the job until no process of it is left.
    fn run(&mut self) {
        // Orders may have arrived together with the job.
        self.carry_out_received();
        while !self.turn() {}
        self.send_stats();
        let summary = self.termination.summary.clone();
        self.send_event(&NodeEvent::Ended(summary));
        while self.termination.front_connected && !self.flush() {
            self.wait(None);
        }
    }

    fn send_stats(&mut self) {
        let Some(left) = &self.left else { return };
        match stats::left_in(left) {
            Ok(bytes) => self.send_event(&NodeEvent::Stats(bytes)),
            Err(error) => self.notice(format!(
                "--stats: cannot read what the ranks have left: {}",
                cause(&error)
            )),
        }
    }

    /// Runs one iteration of the loop, with a bounded amount of work. Returns `true` when the job is over and all its
    /// output is queued.
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        self.on_time(now);
        self.flush();
        if self.is_over() {
            return true;
        }
        for (token, flags) in self.wait(self.next_time()) {
            match token {
                Token::Signals => self.reap(),
                Token::Front => self.receive_orders(),
                Token::Control(local) => {
                    if flags.contains(EpollFlags::EPOLLOUT) {
                        self.answer(local);
                    }
                    self.receive_messages(local);
                }
                Token::Watch(local) => self.mpi_process_ended(local),
                Token::Listener => self.admit(),
                Token::PendingStream(number) => self.receive_from_pending(number),
                Token::Input(local) if flags.contains(EpollFlags::EPOLLERR) => {
                    self.input.disconnect(local);
                    self.feed();
                }
                Token::Input(_) => self.feed(),
                Token::Streams => self.streams.pump(&mut self.scratch, &mut self.front.outbox),
                Token::QueueOutput => self.read_reader_output(),
                Token::Pmi(local) => {
                    self.send_pmi_replies(local);
                    self.receive_pmi(local);
                }
                // Queued data is sent in every iteration.
                Token::Room => (),
            }
        }
        false
    }

    /// Waits for events, at most until `until`; without a limit if that is `None`.
    fn wait(&mut self, until: Option<Instant>) -> Vec<(Token, EpollFlags)> {
        self.set_interests();
        let timeout = until.map_or(EpollTimeout::NONE, |at| {
            let left = at.saturating_duration_since(Instant::now());
            // The time is rounded up; otherwise the loop would spin during the last millisecond.
            EpollTimeout::try_from(left.as_millis() + 1).unwrap_or(EpollTimeout::MAX)
        });
        let mut ready = [EpollEvent::empty(); 64];
        let count = self.poller.wait(&mut ready, timeout).unwrap_or(0);
        let token = |event: &EpollEvent| Some((Token::unpack(event.data())?, event.events()));
        let mut tokens: Vec<_> = ready[..count].iter().filter_map(token).collect();
        tokens.sort_by_key(|(token, _)| *token);
        tokens
    }

    /// Updates the registrations with epoll.
    fn set_interests(&mut self) {
        let wanted = Interests {
            front_writes: self.termination.front_connected && !self.front.is_flushed(),
            streams: self.streams.has_credit(),
        };
        let before = std::mem::replace(&mut self.interests, wanted);
        let set = |yes, flags| if yes { flags } else { EpollFlags::empty() };
        // Errors are ignored, since they occur only for closed descriptors.
        if wanted.front_writes != before.front_writes {
            let room = self.front.writing();
            let _ = match wanted.front_writes {
                true => self
                    .poller
                    .add(room, interest(EpollFlags::EPOLLOUT, Token::Room)),
                false => self.poller.delete(room),
            };
        }
        if wanted.streams != before.streams {
            let flags = set(wanted.streams, EpollFlags::EPOLLIN);
            let _ = self
                .poller
                .modify(&self.streams.poller.0, &mut interest(flags, Token::Streams));
        }
        for (reader, waits) in self.input.readers() {
            if std::mem::replace(&mut reader.is_polled, waits) != waits {
                // Even without flags epoll reports that the reader has closed.
                let mut event =
                    interest(set(waits, EpollFlags::EPOLLOUT), Token::Input(reader.local));
                let _ = self.poller.modify(&reader.pipe, &mut event);
            }
        }
    }

    fn send_event(&mut self, event: &NodeEvent) {
        event.put(&mut self.front.outbox);
    }

    /// Sends queued data; `true` when everything was sent.
    fn flush(&mut self) -> bool {
        if self.termination.front_connected {
            match self.front.flush() {
                Ok(done) => return done,
                Err(Disconnected) => self.handle_lost_front(),
            }
        }
        // The front is gone: output is discarded, and its credit is returned immediately.
        let bytes = self.front.outbox.len() as u64;
        self.front.outbox.clear();
        self.streams.restore_credit(bytes);
        true
    }

    fn receive_orders(&mut self) {
        if self.front.fill(&mut self.scratch).is_err() {
            return self.handle_lost_front();
        }
        self.carry_out_received();
    }

    /// Carries out the orders that have been received.
    fn carry_out_received(&mut self) {
        loop {
            match Order::take(&mut self.front.inbox) {
                Ok(Some(order)) => self.carry_out(order),
                Ok(None) => return,
                Err(_) => return self.handle_lost_front(),
            }
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            // SIGCONT would release ranks that are held for a debugger.
            Order::Signal(libc::SIGCONT) if self.hold != Hold::No => (),
            Order::Signal(number) => self.signal_ranks(number),
            Order::Kill => self.kill_all(),
            Order::Input(bytes) => {
                self.input.add(bytes);
                self.feed();
            }
            Order::InputEnd => {
                self.input.end();
                self.feed();
            }
            // These orders are valid only before the ranks are started.
            Order::Programs(_) | Order::Job(_) | Order::Start(_) => (),
            Order::Release => self.release(),
            Order::Tool(message) => self.start_tool(&message),
            Order::Query(number) => self.query_waits(number),
            Order::OutputTaken(bytes) => self.streams.restore_credit(bytes),
            Order::Lost { ranks, why } => {
                let ranks = ranks.into_iter().flat_map(StridedRanks::numbers).flatten();
                let notified = ranks.flat_map(|rank| self.records.lost(rank, &why));
                let notified: BTreeSet<u32> = notified.collect();
                self.send_replies_to(notified.into_iter().collect());
            }
            Order::Watch(rank) => self.watch(rank),
            Order::Location(of) => {
                let notified = self.records.set_location(of);
                self.send_replies_to(notified);
            }
            Order::Fence(pairs) => self.end_fence(pairs),
            Order::AllQuiet(round) => {
                let notified = self.records.all_quiet(round);
                self.send_replies_to(notified);
            }
        }
    }

    fn feed(&mut self) {
        match self.input.pump() {
            PumpResult::Took(0) => (),
            PumpResult::Took(bytes) => self.send_event(&NodeEvent::InputTaken(bytes)),
            PumpResult::Closed => self.send_event(&NodeEvent::InputClosed),
        }
    }

    fn report(&mut self, local: u32, how: FailureCause, finalized: bool) {
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        rank.reported = true;
        let missing = rank.missing.clone();
        let (pid, rank) = (rank.pid, self.job.ranks[local as usize].rank);
        self.send_event(&NodeEvent::Failed(RankFailure {
            rank,
            pid,
            finalized,
            how,
            missing,
        }));
    }

    /// Reports a phase of the ranks to the front, if the front has requested phases.
    fn reached(&mut self, phase: NodePhase) {
        if self.job.report_phases {
            let at = u64::try_from(crate::front::now().as_nanos()).unwrap_or(u64::MAX);
            self.send_event(&NodeEvent::Reached { phase, at });
        }
    }

    /// Ends the job because of an error of this machine.
    fn broken(&mut self, message: String) {
        self.send_event(&NodeEvent::Broken { message, code: 1 });
        self.kill_all();
    }
}
