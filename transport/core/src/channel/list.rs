// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of ends that are started together again and again, as the halo of a lattice is: what such a start does is worked out
//! once, and then done without a look at the ends themselves.
//!
//! A list runs only where all is plain: no other end is active, every gate is a line, all memory is one stretch that is mapped. The
//! first thing that is not plain ends the run, and the rest is started in the ordinary way. What a run has done is *written
//! down* in the ends before anything else looks at them: at the next call of any kind.

use super::class::Class;
use super::handle::Phase;
use super::line::Ticket;
use super::memory::Move;
use super::{ChannelId, Channels, Direction};
use crate::{Fabric, Peer};

/// What the starts of a list do.
#[derive(Debug, Default)]
pub(super) struct List {
    ids: Vec<ChannelId>,
    /// Only while this is that of the channels.
    epoch: u64,
    /// The numbers go on from the last run only while this is that of the channels.
    starts: u64,
    opens: Vec<Open>,
    sends: Vec<Send>,
    peers: Vec<Peer>,
    bytes: usize,
}

/// A receive of a list.
#[derive(Clone, Copy, Debug)]
struct Open {
    ticket: Ticket,
    class: u32,
    handle: u32,
}

/// A send of a list.
#[derive(Clone, Copy, Debug)]
struct Send {
    ticket: Ticket,
    copy: Move,
    class: u32,
    handle: u32,
}

/// How far a run came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    list: usize,
    /// Sends that went; the receives are all open.
    sends: usize,
}

impl List {
    /// An empty one, with room for any.
    pub(super) fn with_room() -> Self {
        Self {
            ids: Vec::with_capacity(MOST_IDS),
            epoch: 0,
            starts: 0,
            opens: Vec::with_capacity(MOST_IDS),
            sends: Vec::with_capacity(MOST_IDS),
            peers: Vec::with_capacity(MOST_IDS),
            bytes: 0,
        }
    }

    /// Gives every end the number of its next start: something else was started since the last run.
    #[inline(never)]
    fn set_numbers(&mut self, classes: &[Class]) {
        for at in 0..self.opens.len() {
            let class = self.opens[at].class;
            let (before, all) = count(self.opens.iter().map(|open| open.class), at, class);
            let next = classes[class as usize].into.started + before;
            self.opens[at].ticket.set_next(next, all);
        }
        for at in 0..self.sends.len() {
            let class = self.sends[at].class;
            let (before, all) = count(self.sends.iter().map(|send| send.class), at, class);
            let next = classes[class as usize].out.started + before;
            self.sends[at].ticket.set_next(next, all);
        }
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.opens.clear();
        self.sends.clear();
        self.peers.clear();
        self.bytes = 0;
    }
}

impl Channels {
    /// Starts a list that is known, as far as all is plain. `None`: nothing was done.
    #[inline(always)]
    pub(super) fn run_list(&mut self, fabric: &mut Fabric, ids: &[ChannelId]) -> Option<Run> {
        let at = place_of(ids)?;
        let list = self.lists.get_mut(at)?;
        if list.epoch != self.epoch || !are_same(&list.ids, ids) {
            return None;
        }
        if list.starts != self.starts {
            list.set_numbers(&self.classes);
        }
        for open in &mut list.opens {
            open.ticket.open();
        }
        if list.bytes > PATIENT_BYTES {
            list.peers.iter().for_each(|peer| fabric.nudge(*peer));
        }
        let mut sends = 0;
        for send in &mut list.sends {
            let Some(word) = send.ticket.pass() else {
                break;
            };
            send.copy.run();
            word.tell();
            sends += 1;
        }
        for peer in &list.peers {
            fabric.nudge(*peer);
        }
        self.starts += 1;
        list.starts = self.starts;
        Some(Run { list: at, sends })
    }

    /// Whether a run has done all that its list says.
    #[inline(always)]
    pub(super) fn is_whole(&self, run: Run) -> bool {
        run.sends == self.lists[run.list].sends.len()
    }

    /// The rest of a run that could not do all.
    #[cold]
    #[inline(never)]
    pub(super) fn end_run(&mut self, fabric: &mut Fabric, run: Run) {
        self.write_down(run);
        let list = &self.lists[run.list];
        let sends = list.sends[run.sends..].iter().map(|send| send.handle);
        let mut rest = [0; MOST_IDS];
        let mut count = 0;
        for (place, handle) in rest.iter_mut().zip(sends) {
            *place = handle;
            count += 1;
        }
        for index in &rest[..count] {
            self.handles.at_mut(*index).is_started = true;
            self.active += 1;
            self.start_send(fabric, *index);
        }
        self.starts += 1;
    }

    /// Takes down in the ends what a run has done.
    #[inline(never)]
    pub(super) fn write_down(&mut self, run: Run) {
        let list = &self.lists[run.list];
        for open in &list.opens {
            let handle = self.handles.at_mut(open.handle);
            let into = &mut self.classes[open.class as usize].into;
            let number = open.ticket.number();
            handle.number = number;
            into.started = number + 1;
            handle.is_started = true;
            handle.is_open = true;
            handle.is_lined = true;
            handle.phase = Phase::Idle;
            handle.end = None;
            into.wait(number, open.handle);
            into.tell(number + 1);
        }
        for send in &list.sends[..run.sends] {
            let handle = self.handles.at_mut(send.handle);
            let out = &mut self.classes[send.class as usize].out;
            let number = send.ticket.number();
            handle.number = number;
            out.started = number + 1;
            handle.is_started = true;
            handle.finish(Ok(()));
            out.heard = out.heard.max(number + 1);
            self.counters.direct_bytes += handle.memory.bytes() as u64;
            self.counters.writes += 1;
        }
        self.active += list.opens.len() + run.sends;
    }

    /// Remembers what was started just now, if it was all plain.
    pub(super) fn remember(&mut self, ids: &[ChannelId]) {
        if self.active != ids.len() {
            return;
        }
        let Some(at) = place_of(ids).filter(|at| *at < self.lists.len()) else {
            return;
        };
        let mut list = std::mem::take(&mut self.lists[at]);
        list.clear();
        list.epoch = self.epoch;
        list.starts = 0;
        let plain = ids.iter().all(|id| self.add_to_list(&mut list, *id));
        if plain {
            list.ids.extend_from_slice(ids);
        }
        self.lists[at] = list;
    }

    /// What the start of one end does; `false` if it is not plain.
    fn add_to_list(&self, list: &mut List, id: ChannelId) -> bool {
        let index = id.index();
        let handle = self.handles.at(index);
        let class = &self.classes[handle.class as usize];
        match handle.direction {
            Direction::Receive => {
                let Some(line) = handle.line.filter(|_| handle.is_lined) else {
                    return false;
                };
                list.opens.push(Open {
                    ticket: line.ticket(),
                    class: handle.class,
                    handle: index,
                });
            }
            Direction::Send => {
                let bound = class.out.bound(handle.hint);
                let fits = |bytes: u64| bytes == handle.memory.bytes() as u64;
                let bound = bound.filter(|bound| fits(bound.bytes));
                let parts =
                    bound.and_then(|it| Some((it.ticket(), handle.memory.whole()?, it.span?)));
                let Some((ticket, from, to)) = parts.filter(|_| handle.end == Some(Ok(()))) else {
                    return false;
                };
                list.bytes += handle.memory.bytes();
                list.sends.push(Send {
                    ticket,
                    copy: Move::new(from, to),
                    class: handle.class,
                    handle: index,
                });
            }
        }
        if !list.peers.contains(&class.peer) {
            list.peers.push(class.peer);
        }
        true
    }
}

/// How many ends of a class there are before one, and in all.
fn count(classes: impl Iterator<Item = u32>, before: usize, class: u32) -> (u64, u64) {
    let (mut first, mut all) = (0, 0);
    for (at, of) in classes.enumerate().filter(|(_, of)| *of == class) {
        first += u64::from(at < before);
        all += u64::from(of == class);
    }
    (first, all)
}

/// Where a list is kept; `None` for one that is too short or too long.
#[inline(always)]
fn place_of(ids: &[ChannelId]) -> Option<usize> {
    let first = ids.first()?;
    (2..=MOST_IDS)
        .contains(&ids.len())
        .then_some(first.index() as usize % LISTS)
}

/// Whether two lists are the same, without a branch for each name.
#[inline(always)]
fn are_same(one: &[ChannelId], other: &[ChannelId]) -> bool {
    let differ = |all, (one, other): (&ChannelId, &ChannelId)| all | one.0 ^ other.0;
    one.len() == other.len() && one.iter().zip(other).fold(0, differ) == 0
}

/// Ends of a list.
const MOST_IDS: usize = 64;
/// Lists that are remembered.
pub(super) const LISTS: usize = 8;
/// From so many bytes on, peers are not kept waiting until all is copied.
const PATIENT_BYTES: usize = 32 * 1024;
