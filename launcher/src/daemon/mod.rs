// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node role, `rmpid`: starts the ranks of a node, carries their output and input, listens to what they say in
//! `MPI_Init`, `MPI_Finalize` and `MPI_Abort`, learns their end, and leaves nothing behind. What a failure means for the
//! job is the front's to decide; when the front is gone, the job is over.
//!
//! One thread, one loop. It must stay one thread: the ranks die with the thread that made them.

mod birth;
mod control;
mod ending;
mod far;
mod hold;
mod input;
mod look;
mod memory;
mod pmi_server;
mod probe;
mod rank;
pub(crate) mod records;
mod standstill;
mod start;
mod streams;
mod sweep;
mod talk;
mod tend;
mod tool;

pub(crate) use look::LOOK_WITHIN;
pub(crate) use start::serve;
#[cfg(test)]
pub(crate) use sweep::Descendant;
pub(crate) use sweep::{Tree, signal_all};

use crate::edge::{Closed, Edge};
use crate::failure::{Failure, How};
use crate::job::NodeJob;
use crate::link::{Event, Order, Phase};
use crate::program::cause;
use crate::series::Series;
use crate::stats;
use birth::Nest;
use ending::Ending;
use hold::Hold;
use input::{Input, Pumped};
use look::Look;
use nix::libc;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signalfd::SignalFd;
use pmi_server::PmiServer;
use probe::Probes;
use rank::Rank;
use records::Records;
use standstill::Standstill;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::time::Instant;
use streams::Streams;

/// Bytes read at a time.
const SCRATCH_BYTES: usize = 64 << 10;

/// What an event of the poller is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Token {
    /// A child ended. First in order: an end that was learnt is judged before what others said after it.
    Signals,
    /// The front.
    Edge,
    /// A rank's control socket.
    Control(u32),
    /// The MPI process of a rank, where that is a grandchild.
    Watch(u32),
    /// Somebody connects.
    Listener,
    /// Somebody who connected and has not said which rank it is.
    Visitor(u32),
    /// Standard input of a rank.
    Input(u32),
    /// A rank's output.
    Streams,
    /// There is room for what the front is to be told.
    Room,
    /// What the process writes that looks at the ranks.
    Look,
    /// A rank's socket of PMI.
    Pmi(u32),
}

impl Token {
    fn pack(self) -> u64 {
        let (kind, index) = match self {
            Self::Signals => (0, 0),
            Self::Edge => (1, 0),
            Self::Control(local) => (2, local),
            Self::Watch(local) => (3, local),
            Self::Listener => (4, 0),
            Self::Visitor(number) => (5, number),
            Self::Input(local) => (6, local),
            Self::Streams => (7, 0),
            Self::Room => (8, 0),
            Self::Look => (9, 0),
            Self::Pmi(local) => (10, local),
        };
        kind << 32 | u64::from(index)
    }

    fn unpack(data: u64) -> Option<Self> {
        let index = u32::try_from(data & 0xffff_ffff).unwrap_or(0);
        Some(match data >> 32 {
            0 => Self::Signals,
            1 => Self::Edge,
            2 => Self::Control(index),
            3 => Self::Watch(index),
            4 => Self::Listener,
            5 => Self::Visitor(index),
            6 => Self::Input(index),
            7 => Self::Streams,
            8 => Self::Room,
            9 => Self::Look,
            10 => Self::Pmi(index),
            _ => return None,
        })
    }
}

fn interest(flags: EpollFlags, token: Token) -> EpollEvent {
    EpollEvent::new(flags, token.pack())
}

/// What the poller was told, beyond what it is always told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Interests {
    edge_writes: bool,
    streams: bool,
}

/// The daemon of a node: one loop over all that it watches. More than twenty fields and sixty methods, since each of its descriptors and
/// clocks is a field, and what becomes of each a method; what has rules of its own (records, standstill, streams) is a type of its own.
struct Daemon {
    job: NodeJob,
    nest: Nest,
    edge: Edge,
    poller: Epoll,
    signals: SignalFd,
    listener: UnixListener,
    complaints: OwnedFd,
    ranks: Vec<Rank>,
    by_pid: HashMap<u32, u32>,
    /// Where they are found on a network.
    records: Records,
    /// What ranks say whose library is MPICH's.
    pmi: PmiServer,
    /// Segments of the ranks' second, third, ... MPI programs, by the programs before.
    later_segments: HashMap<u32, Rc<OwnedFd>>,
    visitors: HashMap<u32, UnixStream>,
    visitor_count: u32,
    streams: Streams,
    interests: Interests,
    input: Input,
    ending: Ending,
    hold: Hold,
    /// Processes that a debugger wanted.
    tools: Vec<u32>,
    look: Look,
    /// A rank has found something that the front was told.
    has_remarked: bool,
    probes: Probes,
    standstill: Standstill,
    /// When ranks that prefer a CPU were looked after.
    tended_at: Option<Instant>,
    /// What the ranks leave for `--stats`, where the front cannot look.
    left: Option<File>,
    scratch: Vec<u8>,
}

impl Daemon {
    /// Serves the job until nothing of it is left.
    fn run(&mut self) {
        // They may have come together with the job.
        self.carry_out_what_came();
        while !self.turn() {}
        self.tell_stats();
        let gone = self.ending.gone.clone();
        self.tell(&Event::Gone(gone));
        while self.ending.front_is_there && !self.flush() {
            self.wait(None);
        }
    }

    fn tell_stats(&mut self) {
        let Some(left) = &self.left else { return };
        match stats::left_in(left) {
            Ok(bytes) => self.tell(&Event::Stats(bytes)),
            Err(error) => self.notice(format!(
                "--stats: cannot read what the ranks have left: {}",
                cause(&error)
            )),
        }
    }

    /// One bounded turn; true when the job is over and all its output is on the way.
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
                Token::Edge => self.obey(),
                Token::Control(local) => {
                    if flags.contains(EpollFlags::EPOLLOUT) {
                        self.answer(local);
                    }
                    self.listen_to(local);
                }
                Token::Watch(local) => self.greeter_ended(local),
                Token::Listener => self.admit(),
                Token::Visitor(number) => self.hear_visitor(number),
                Token::Input(local) if flags.contains(EpollFlags::EPOLLERR) => {
                    self.input.disconnect(local);
                    self.feed();
                }
                Token::Input(_) => self.feed(),
                Token::Streams => self.streams.pump(&mut self.scratch, &mut self.edge.outbox),
                Token::Look => self.hear_reader(),
                Token::Pmi(local) => {
                    self.answer_pmi(local);
                    self.hear_pmi(local);
                }
                // It is sent in every turn.
                Token::Room => (),
            }
        }
        false
    }

    /// Waits for something to happen, at most until `until`.
    fn wait(&mut self, until: Option<Instant>) -> Vec<(Token, EpollFlags)> {
        self.set_interests();
        let timeout = until.map_or(EpollTimeout::NONE, |at| {
            let left = at.saturating_duration_since(Instant::now());
            // Rounded up, or the loop would spin through the last millisecond.
            EpollTimeout::try_from(left.as_millis() + 1).unwrap_or(EpollTimeout::MAX)
        });
        let mut ready = [EpollEvent::empty(); 64];
        let count = self.poller.wait(&mut ready, timeout).unwrap_or(0);
        let token = |event: &EpollEvent| Some((Token::unpack(event.data())?, event.events()));
        let mut tokens: Vec<_> = ready[..count].iter().filter_map(token).collect();
        tokens.sort_by_key(|(token, _)| *token);
        tokens
    }

    /// Tells the poller what there is room for now.
    fn set_interests(&mut self) {
        let wanted = Interests {
            edge_writes: self.ending.front_is_there && !self.edge.is_flushed(),
            streams: self.streams.has_credit(),
        };
        let before = std::mem::replace(&mut self.interests, wanted);
        let set = |yes, flags| if yes { flags } else { EpollFlags::empty() };
        // A descriptor that is gone needs no interest.
        if wanted.edge_writes != before.edge_writes {
            let room = self.edge.writing();
            let _ = match wanted.edge_writes {
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
                // Without any flag the end of the reader is still told.
                let mut event =
                    interest(set(waits, EpollFlags::EPOLLOUT), Token::Input(reader.local));
                let _ = self.poller.modify(&reader.pipe, &mut event);
            }
        }
    }

    fn tell(&mut self, event: &Event) {
        event.put(&mut self.edge.outbox);
    }

    /// Sends what is to be sent; true when all of it is.
    fn flush(&mut self) -> bool {
        if self.ending.front_is_there {
            match self.edge.flush() {
                Ok(done) => return done,
                Err(Closed) => self.front_is_gone(),
            }
        }
        // Nobody listens: output is thrown away, and its credit comes back at once.
        let bytes = self.edge.outbox.len() as u64;
        self.edge.outbox.clear();
        self.streams.restore_credit(bytes);
        true
    }

    fn obey(&mut self) {
        if self.edge.fill(&mut self.scratch).is_err() {
            return self.front_is_gone();
        }
        self.carry_out_what_came();
    }

    /// Carries out the orders that are here.
    fn carry_out_what_came(&mut self) {
        loop {
            match Order::take(&mut self.edge.inbox) {
                Ok(Some(order)) => self.carry_out(order),
                Ok(None) => return,
                Err(_) => return self.front_is_gone(),
            }
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            // What lets stopped processes go is not for those that stand still for a debugger.
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
            // It has one, and has started it.
            Order::Programs(_) | Order::Job(_) | Order::Start(_) => (),
            Order::Release => self.release(),
            Order::Tool(words) => self.start_tool(&words),
            Order::Look(number) => self.look(number),
            Order::OutputTaken(bytes) => self.streams.restore_credit(bytes),
            Order::Lost { ranks, why } => {
                let ranks = ranks.into_iter().flat_map(Series::numbers).flatten();
                let told = ranks.flat_map(|rank| self.records.lost(rank, &why));
                let told: BTreeSet<u32> = told.collect();
                self.answer_all(told.into_iter().collect());
            }
            Order::Watch(rank) => self.watch(rank),
            Order::Whereabouts(of) => {
                let told = self.records.learned(of);
                self.answer_all(told);
            }
            Order::Fence(pairs) => self.end_fence(pairs),
            Order::AllQuiet(round) => {
                let told = self.records.all_quiet(round);
                self.answer_all(told);
            }
        }
    }

    fn feed(&mut self) {
        match self.input.pump() {
            Pumped::Took(0) => (),
            Pumped::Took(bytes) => self.tell(&Event::InputTaken(bytes)),
            Pumped::Closed => self.tell(&Event::InputClosed),
        }
    }

    fn report(&mut self, local: u32, how: How, finalized: bool) {
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        rank.reported = true;
        let missing = rank.missing.clone();
        let (pid, rank) = (rank.pid, self.job.ranks[local as usize].rank);
        self.tell(&Event::Failed(Failure {
            rank,
            pid,
            finalized,
            how,
            missing,
        }));
    }

    /// The ranks have come to a phase.
    fn reached(&mut self, phase: Phase) {
        if self.job.report_phases {
            let at = u64::try_from(crate::front::now().as_nanos()).unwrap_or(u64::MAX);
            self.tell(&Event::Reached { phase, at });
        }
    }

    /// The job cannot go on for a reason of this machine.
    fn broken(&mut self, words: String) {
        self.tell(&Event::Broken { words, code: 1 });
        self.kill_all();
    }
}
