// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of ends that are started together again and again, as the halo of a lattice is: what such a start does is worked out
//! once, and then done without a look at the ends themselves.
//!
//! A list runs only where all is plain: no other end is active, every gate is a line, all memory is mapped. A gate of a run that is not open is looked at in each turn; who waits long for it goes on in the
//! ordinary way, which finds gates wherever they are. What a run has done is *written down* in the ends before anything
//! else looks at them.

use ring::Bell;

use crate::class::{ChannelClass, EAGER_BYTES};
use crate::handle::{ChannelEnd, ChannelPhase};
use crate::layout::{RemoteBlocks, Shaped, StridedBlocks, segments};
use crate::line::{ArrivalWord, BoundLine, GateNote, Ticket};
use crate::memory::{CopySeries, MemorySpan, Move, UserBlocks, are_same};
use crate::{ChannelDirection, ChannelId, Channels};
use transport::{Fabric, Peer};

/// The prepared steps of a list of channel ends that are started together.
#[derive(Debug, Default)]
pub(crate) struct StartList {
    ids: Vec<ChannelId>,
    /// Only while this is that of the channels.
    epoch: u64,
    opens: Vec<Open>,
    sends: Vec<ListedSend>,
    gaps: Gaps,
    bells: Vec<&'static Bell>,
    /// Bytes of all sends, and of those that come to where they belong.
    bytes: usize,
    direct_bytes: usize,
    /// Some of them could be sent ahead of their gates.
    has_small: bool,
    /// Some receives have places of ours, from where their bytes are copied in the end.
    has_landings: bool,
}

/// A receive of a list.
#[derive(Clone, Copy, Debug)]
struct Open {
    ticket: Ticket,
    class: u32,
    handle: u32,
}

/// One send of a [`StartList`].
#[derive(Clone, Copy, Debug)]
struct ListedSend {
    ticket: Ticket,
    copy: Move,
    /// What is copied instead, where either end has gaps.
    gapped: Option<u32>,
    /// The bytes come to where they belong.
    is_direct: bool,
    class: u32,
    handle: u32,
}

/// The copies of sends one of whose ends has gaps.
#[derive(Debug, Default)]
struct Gaps {
    series: Vec<CopySeries>,
    sends: Vec<Gapped>,
}

/// One of them: which series, and what is said of it.
#[derive(Clone, Copy, Debug)]
struct Gapped {
    first: usize,
    behind: usize,
    note: Option<GateNote>,
}

impl Gaps {
    /// The copies of one more send. `None`: there is no room for so many.
    fn add<T: Shaped>(
        &mut self,
        from: &[UserBlocks],
        to: &[T],
        place: impl Fn(usize) -> Option<MemorySpan>,
        note: Option<GateNote>,
    ) -> Option<u32> {
        let first = self.series.len();
        for segment in segments(from, to, 0, usize::MAX) {
            let next = Move::of(&from[segment.from.piece], place(segment.to.piece)?, segment);
            let last = self.series.get_mut(first..)?.last_mut();
            if last.is_some_and(|last| last.extend(next)) {
                continue;
            }
            if self.series.len() == self.series.capacity() {
                return None;
            }
            self.series.push(CopySeries::new(next));
        }
        self.sends.push(Gapped {
            first,
            behind: self.series.len(),
            note,
        });
        u32::try_from(self.sends.len() - 1).ok()
    }

    #[cold]
    #[inline(never)]
    fn run(&self, at: u32, word: ArrivalWord) {
        let gapped = self.sends[at as usize];
        for series in &self.series[gapped.first..gapped.behind] {
            series.run();
        }
        if let Some(note) = gapped.note {
            word.note(note);
        }
    }
}

/// A started list whose progress is not yet written down in its channel ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartedList {
    list: usize,
    /// The ends were taken: it can be started again.
    is_collected: bool,
    /// Turns in which gates were looked at in vain.
    looks: u32,
}

impl StartList {
    /// An empty one, with room for any.
    pub(crate) fn with_room() -> Self {
        Self {
            ids: Vec::with_capacity(MOST_IDS),
            opens: Vec::with_capacity(MOST_IDS),
            sends: Vec::with_capacity(MOST_IDS),
            bells: Vec::with_capacity(MOST_IDS),
            ..Self::default()
        }
    }

    /// The same for copies of memory with gaps.
    pub(crate) fn make_room_for_blocks(&mut self) {
        let Gaps { series, sends } = &mut self.gaps;
        series.reserve(MOST_SERIES.saturating_sub(series.len()));
        sends.reserve(MOST_IDS.saturating_sub(sends.len()));
    }

    /// Gives every end the number of its next start: something else may have been started since the last run.
    #[inline(never)]
    fn set_numbers(&mut self, classes: &[ChannelClass]) {
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

    /// Opens all gates, and passes through those of the peers that are open. Answers which sends are left.
    #[inline(always)]
    fn run(&mut self, fabric: &mut Fabric) -> u64 {
        for open in &mut self.opens {
            open.ticket.open();
        }
        if self.bytes > PATIENT_BYTES {
            fabric.nudge_all(&self.bells);
        }
        if !self.gaps.sends.is_empty() {
            return self.run_gapped(fabric);
        }
        let mut left = 0;
        let mut sends = &mut self.sends[..];
        while let Some((send, behind)) = sends.split_first_mut() {
            if !send.go_plain() {
                let behind = behind.len();
                left = self.go_on_from(behind);
                break;
            }
            sends = behind;
        }
        fabric.nudge_all(&self.bells);
        left
    }

    /// The sends, where some have gaps.
    #[cold]
    #[inline(never)]
    fn run_gapped(&mut self, fabric: &mut Fabric) -> u64 {
        let left = self.go_on(u64::MAX >> (MOST_IDS - self.sends.len()));
        fabric.nudge_all(&self.bells);
        left
    }

    /// Passes by a gate that is closed, before the last `behind` ones.
    #[cold]
    #[inline(never)]
    fn go_on_from(&mut self, behind: usize) -> u64 {
        let all = u64::MAX >> (MOST_IDS - self.sends.len());
        let at = self.sends.len() - 1 - behind;
        self.go_on(all >> at << at)
    }

    /// Passes through those gates that are open now, of those that were not. Answers which are left.
    fn go_on(&mut self, before: u64) -> u64 {
        let (mut left, mut looked) = (before, before);
        while looked != 0 {
            let at = looked.trailing_zeros();
            looked &= looked - 1;
            if self.sends[at as usize].go(&self.gaps) {
                left &= !(1 << at);
            }
        }
        left
    }

    /// Whether all that is received is there.
    fn is_written(&self) -> bool {
        self.opens.iter().all(|open| open.ticket.is_written())
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.opens.clear();
        self.sends.clear();
        self.gaps.series.clear();
        self.gaps.sends.clear();
        self.bells.clear();
        self.epoch = 0;
        self.bytes = 0;
        self.direct_bytes = 0;
        self.has_small = false;
        self.has_landings = false;
    }
}

impl ListedSend {
    /// Passes through the gate, if it is open, where neither end has gaps.
    #[inline(always)]
    fn go_plain(&mut self) -> bool {
        let Some(word) = self.ticket.pass() else {
            return false;
        };
        self.copy.run();
        word.tell();
        true
    }

    /// Passes through the gate, if it is open.
    fn go(&mut self, gaps: &Gaps) -> bool {
        let Some(word) = self.ticket.pass() else {
            return false;
        };
        match self.gapped {
            None => self.copy.run(),
            Some(at) => gaps.run(at, word),
        }
        word.tell();
        true
    }
}

impl Channels {
    /// Starts the list that ran last once more, and nothing else has happened since. `false`: nothing was done.
    #[inline(always)]
    pub(crate) fn run_again(&mut self, fabric: &mut Fabric, ids: &[ChannelId]) -> bool {
        let Some(run) = self.running.as_mut().filter(|run| run.is_collected) else {
            return false;
        };
        let list = &mut self.lists[run.list];
        if !are_same(&list.ids, ids) {
            return false;
        }
        run.is_collected = false;
        self.left = list.run(fabric);
        if self.left != 0 {
            self.await_gates(fabric);
        }
        true
    }

    /// Starts these as a list, if all is plain. They rest, as everything else does. `false`: nothing was done.
    pub(crate) fn run_list(&mut self, fabric: &mut Fabric, ids: &[ChannelId]) -> bool {
        let Some(at) = place_of(ids).filter(|at| *at < self.lists.len()) else {
            return false;
        };
        let list = &self.lists[at];
        let known = list.epoch == self.epoch && are_same(&list.ids, ids);
        if !known && !self.learn(fabric, at, ids) {
            return false;
        }
        self.lists[at].set_numbers(&self.classes);
        self.running = Some(StartedList {
            list: at,
            is_collected: true,
            looks: 0,
        });
        self.run_again(fabric, ids)
    }

    /// Some gates were not open when the list was started.
    #[cold]
    #[inline(never)]
    fn await_gates(&mut self, fabric: &mut Fabric) {
        let Some(run) = &mut self.running else { return };
        run.looks = 0;
        self.counters.late_gates.add(self.left.count_ones().into());
        let list = &mut self.lists[run.list];
        if !list.has_small {
            return;
        }
        // Where ranks share cores, who opens them has to run first: meanwhile this one may as well wait. But whoever only
        // sends may be waited for.
        let is_exchange = !list.opens.is_empty();
        if is_exchange && !fabric.is_attentive() {
            return;
        }
        // To send ahead costs more than a short wait.
        for _ in 0..if is_exchange { SHORT_LOOKS } else { 0 } {
            std::hint::spin_loop();
            self.left = list.go_on(self.left);
            if self.left == 0 {
                return fabric.nudge_all(&list.bells);
            }
        }
        self.end_run(fabric);
    }

    /// Looks at the gates that the list which runs waits for. `true`: something has changed.
    #[cold]
    pub(crate) fn go_on(&mut self, fabric: &mut Fabric) -> bool {
        let before = self.left;
        let Some(run) = self.running.as_mut().filter(|_| before != 0) else {
            return false;
        };
        let list = &mut self.lists[run.list];
        self.left = list.go_on(before);
        run.looks += 1;
        let moved = self.left != before;
        if moved {
            fabric.nudge_all(&list.bells);
        }
        if self.left != 0 && run.looks > MOST_LOOKS {
            self.end_run(fabric);
            return true;
        }
        moved
    }

    /// The rest goes on in the ordinary way.
    fn end_run(&mut self, fabric: &mut Fabric) {
        self.write_down_now();
        self.fire_pended(fabric);
    }

    /// How far these are, if they are the list that runs: whether all have ended.
    #[inline(always)]
    pub(crate) fn is_run_done(&self, ids: &[ChannelId]) -> Option<bool> {
        let run = self.running?;
        let list = &self.lists[run.list];
        are_same(&list.ids, ids).then(|| run.is_collected || self.left == 0 && list.is_written())
    }

    /// Whether a list runs of which there is nothing new: it was taken, or waits only for what peers write.
    pub(crate) fn is_run_quiet(&self) -> bool {
        let is_quiet = |run: StartedList| run.is_collected || !self.lists[run.list].is_written();
        self.left == 0 && self.running.is_some_and(is_quiet)
    }

    /// Takes the ends of the list that runs, if these are it and all have ended. `false`: nothing was done.
    #[inline(always)]
    pub(crate) fn collect_run(&mut self, ids: &[ChannelId]) -> bool {
        let done = self.is_run_done(ids) == Some(true);
        let Some(run) = self.running.as_mut().filter(|_| done) else {
            return false;
        };
        let list = &self.lists[run.list];
        if !std::mem::replace(&mut run.is_collected, true) {
            self.counters.direct_bytes.add(list.direct_bytes as u64);
            self.counters.writes.add(list.sends.len() as u64);
            self.counters.sends.add(list.sends.len() as u64);
            self.counters.receives.add(list.opens.len() as u64);
            if list.has_landings {
                for open in &list.opens {
                    let handle = self.handles.at(open.handle);
                    let landed = open.ticket.noted().map_or(usize::MAX, GateNote::landed);
                    self.counters.packed_bytes.add(handle.unpack(landed));
                }
            }
        }
        true
    }

    /// Nothing else may look at ends before what a list has done is in them.
    #[inline(always)]
    pub(crate) fn write_down_now(&mut self) {
        if let Some(run) = self.running.take() {
            self.write_down(run);
        }
    }

    #[inline(never)]
    fn write_down(&mut self, run: StartedList) {
        let list = &mut self.lists[run.list];
        let is_started = !run.is_collected;
        for open in &list.opens {
            let number = open.ticket.number();
            let into = &mut self.classes[open.class as usize].into;
            into.started = number + 1;
            into.tell(number + 1);
            if is_started {
                into.wait(number, open.handle);
            }
            let handle = self.handles.at_mut(open.handle);
            handle.begin_run(number, is_started);
            handle.is_lined = true;
        }
        for (at, send) in list.sends.iter_mut().enumerate() {
            let is_left = self.left & 1 << at != 0;
            if is_left {
                send.ticket.skip();
            }
            let number = send.ticket.number();
            let out = &mut self.classes[send.class as usize].out;
            out.started = number + 1;
            let handle = self.handles.at_mut(send.handle);
            handle.begin_run(number, is_started);
            if is_left {
                handle.phase = ChannelPhase::Pended;
                self.pended.push(send.handle);
                continue;
            }
            out.heard = out.heard.max(number + 1);
            if is_started {
                handle.finish(Ok(()));
                if send.is_direct {
                    self.counters.direct_bytes.add(handle.memory.bytes() as u64);
                }
                self.counters.writes.add(1);
            }
        }
        if is_started {
            self.active += list.ids.len();
        }
        if std::mem::take(&mut self.left) != 0 {
            // Their gates may be other lines from now on.
            list.clear();
        }
    }

    /// Keeps what the start of these ends does; `false` if not all is plain.
    fn learn(&mut self, fabric: &Fabric, at: usize, ids: &[ChannelId]) -> bool {
        let mut list = std::mem::take(&mut self.lists[at]);
        list.clear();
        let plain = ids.iter().all(|id| {
            let peer = self.add_to_list(&mut list, id.index());
            let bell = peer.and_then(|peer| fabric.bell_of(peer));
            let is_new =
                |bell: &&'static Bell| !list.bells.iter().any(|it| std::ptr::eq(*it, *bell));
            list.bells.extend(bell.filter(is_new));
            peer.is_some()
        });
        if plain {
            list.epoch = self.epoch;
            list.ids.extend_from_slice(ids);
        }
        self.lists[at] = list;
        plain
    }

    /// What the start of one end does, and who is to hear of it; `None` if it is not plain.
    fn add_to_list(&self, list: &mut StartList, index: u32) -> Option<Peer> {
        let handle = self.handles.at(index);
        let class = &self.classes[handle.class as usize];
        if class.is_dead || class.left.is_some() || class.refused.is_some() {
            return None;
        }
        match handle.direction {
            ChannelDirection::Receive => {
                list.has_landings |= handle.landing.is_some();
                let line = handle.line.filter(|_| handle.is_lined)?;
                list.opens.push(Open {
                    ticket: line.ticket(),
                    class: handle.class,
                    handle: index,
                });
            }
            ChannelDirection::Send => {
                let bytes = handle.memory.bytes();
                // The first time it is a guess: that starts here and there are in the same order.
                let of_class = list.sends.iter().filter(|it| it.class == handle.class);
                let at = handle.hint.unwrap_or_else(|| of_class.count());
                let bound = *class.out.bound(at).filter(|it| it.bytes == bytes as u64)?;
                let blocks = bound.blocks(&class.out.layouts);
                let is_direct = blocks.is_some() || !bound.is_landing;
                let (copy, gapped) = copies(list, handle, &bound, blocks)?;
                list.bytes += bytes;
                list.direct_bytes += if is_direct { bytes } else { 0 };
                list.has_small |= bytes <= EAGER_BYTES;
                list.sends.push(ListedSend {
                    ticket: bound.ticket(),
                    copy,
                    gapped,
                    is_direct,
                    class: handle.class,
                    handle: index,
                });
            }
        }
        Some(class.peer)
    }
}

/// What a send copies to the line's memory, or which of the copies of memory with gaps; `None` if that is not mapped, or is too
/// much to remember.
fn copies(
    list: &mut StartList,
    handle: &ChannelEnd,
    bound: &BoundLine,
    blocks: Option<&[RemoteBlocks]>,
) -> Option<(Move, Option<u32>)> {
    let from = handle.memory.pieces();
    let bytes = handle.memory.bytes();
    if let Some(blocks) = blocks {
        let note = Some(GateNote::new(bytes, true));
        let gapped = list.gaps.add(from, blocks, |at| blocks[at].span, note)?;
        return Some((
            Move::new(MemorySpan::EMPTY, MemorySpan::EMPTY),
            Some(gapped),
        ));
    }
    let span = bound.span?;
    if let Some(whole) = handle.memory.whole() {
        return Some((Move::new(whole, span), None));
    }
    let to = [StridedBlocks::one(bytes)];
    let gapped = list.gaps.add(from, &to, |_| Some(span), None)?;
    Some((
        Move::new(MemorySpan::EMPTY, MemorySpan::EMPTY),
        Some(gapped),
    ))
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

/// Ends of a list.
const MOST_IDS: usize = 64;
/// Copies of memory with gaps that a list has at most; those at equal distances count once.
const MOST_SERIES: usize = 256;
/// Lists that are remembered.
pub(crate) const LISTS: usize = 8;
/// From so many bytes on, peers are not kept waiting until all is copied.
const PATIENT_BYTES: usize = 32 * 1024;
/// Looks at gates before messages are sent ahead of them: some 100 ns.
const SHORT_LOOKS: u32 = 50;
/// Turns in which a run looks at its gates.
const MOST_LOOKS: u32 = 64;
