// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of ends that are started together again and again, as the halo of a lattice is: what such a start does is worked out
//! once, and then done without a look at the ends themselves.
//!
//! A list runs only where all is plain: no other end is active, every gate is a line, all memory is one stretch that is mapped. The
//! first thing that is not plain ends the run, and the rest is started in the ordinary way. What a run has done is *written
//! down* in the ends before anything else looks at them: at the next call of any kind.

use super::handle::Phase;
use super::line::Place;
use super::memory::Span;
use super::{ChannelId, Channels, Direction};
use crate::{Fabric, Peer};

/// What the starts of a list do.
#[derive(Debug, Default)]
pub(super) struct List {
    ids: Vec<ChannelId>,
    /// Only while this is that of the channels.
    epoch: u64,
    opens: Vec<Open>,
    sends: Vec<Send>,
    peers: Vec<Peer>,
    bytes: usize,
}

/// A receive of a list.
#[derive(Clone, Copy, Debug)]
struct Open {
    place: Place,
    class: u32,
    handle: u32,
    number: u64,
}

/// A send of a list.
#[derive(Clone, Copy, Debug)]
struct Send {
    place: Place,
    class: u32,
    handle: u32,
    number: u64,
    from: Span,
    to: Span,
}

/// How far a run came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    list: usize,
    opens: usize,
    sends: usize,
}

impl List {
    /// An empty one, with room for any.
    pub(super) fn with_room() -> Self {
        Self {
            ids: Vec::with_capacity(MOST_IDS),
            epoch: 0,
            opens: Vec::with_capacity(MOST_IDS),
            sends: Vec::with_capacity(MOST_IDS),
            peers: Vec::with_capacity(MOST_IDS),
            bytes: 0,
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
        let mut run = Run {
            list: at,
            opens: 0,
            sends: 0,
        };
        for open in &mut list.opens {
            let into = &mut self.classes[open.class as usize].into;
            if into.has_kept() {
                return Some(run);
            }
            open.number = into.start();
            open.place.open(open.number);
            run.opens += 1;
        }
        if list.bytes > PATIENT_BYTES {
            list.peers.iter().for_each(|peer| fabric.nudge(*peer));
        }
        for send in &mut list.sends {
            let out = &mut self.classes[send.class as usize].out;
            let Some(word) = send.place.open_for(out.started) else {
                break;
            };
            send.number = out.start();
            send.from.copy_to(send.to);
            word.tell();
            run.sends += 1;
        }
        list.peers.iter().for_each(|peer| fabric.nudge(*peer));
        Some(run)
    }

    /// Whether a run has done all that its list says.
    #[inline(always)]
    pub(super) fn is_whole(&self, run: Run) -> bool {
        let list = &self.lists[run.list];
        run.opens == list.opens.len() && run.sends == list.sends.len()
    }

    /// The rest of a run that could not do all.
    #[cold]
    #[inline(never)]
    pub(super) fn end_run(&mut self, fabric: &mut Fabric, run: Run) {
        self.write_down(run);
        let list = &self.lists[run.list];
        let opens = list.opens[run.opens..].iter().map(|open| open.handle);
        let sends = list.sends[run.sends..].iter().map(|send| send.handle);
        let mut rest = [0; MOST_IDS];
        let mut count = 0;
        for (place, handle) in rest.iter_mut().zip(opens.chain(sends)) {
            *place = handle;
            count += 1;
        }
        for index in &rest[..count] {
            let handle = self.handles.at_mut(*index);
            handle.is_started = true;
            let direction = handle.direction;
            self.active += 1;
            match direction {
                Direction::Receive => self.open_gate(fabric, *index),
                Direction::Send => self.start_send(fabric, *index),
            }
        }
    }

    /// Takes down in the ends what a run has done.
    #[inline(never)]
    pub(super) fn write_down(&mut self, run: Run) {
        let list = &self.lists[run.list];
        for open in &list.opens[..run.opens] {
            let handle = self.handles.at_mut(open.handle);
            let into = &mut self.classes[open.class as usize].into;
            handle.number = open.number;
            handle.is_started = true;
            handle.is_open = true;
            handle.is_lined = true;
            handle.phase = Phase::Idle;
            handle.end = None;
            into.wait(open.number, open.handle);
            into.tell(open.number + 1);
        }
        for send in &list.sends[..run.sends] {
            let handle = self.handles.at_mut(send.handle);
            let out = &mut self.classes[send.class as usize].out;
            handle.number = send.number;
            handle.is_started = true;
            handle.finish(Ok(()));
            out.heard = out.heard.max(send.number + 1);
            self.counters.direct_bytes += handle.memory.bytes() as u64;
            self.counters.writes += 1;
        }
        self.active += run.opens + run.sends;
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
        let (number, place) = match handle.direction {
            Direction::Receive => {
                let line = handle.line.filter(|_| handle.is_lined);
                (handle.number, line.map(|line| line.place()))
            }
            Direction::Send => {
                let bound = class.out.bound(handle.hint);
                let fits = |bytes: u64| bytes == handle.memory.bytes() as u64;
                let bound = bound.filter(|bound| fits(bound.bytes));
                let parts =
                    bound.and_then(|it| Some((it.place(), it.span?, handle.memory.whole()?)));
                let Some((place, to, from)) = parts.filter(|_| handle.end == Some(Ok(()))) else {
                    return false;
                };
                list.bytes += handle.memory.bytes();
                list.sends.push(Send {
                    place,
                    class: handle.class,
                    handle: index,
                    number: 0,
                    from,
                    to,
                });
                (0, None)
            }
        };
        if let Some(place) = place {
            list.opens.push(Open {
                place,
                class: handle.class,
                handle: index,
                number,
            });
        }
        if !list.peers.contains(&class.peer) {
            list.peers.push(class.peer);
        }
        place.is_some() || handle.direction == Direction::Send
    }
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
