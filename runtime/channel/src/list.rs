// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of ends that are started together repeatedly, for example in a halo exchange. The steps of such a start are
//! prepared once, and then executed without access to the ends themselves.
//!
//! A list runs only if no other end is active, every gate is a gate line, and all memory is mapped. Each call of
//! `progress` polls the gates that are not open; after [`POLLS_MAX`] polls the list continues on the ordinary path,
//! which finds gates of every kind. The state of a run is *committed* to the ends of the list before anything else
//! accesses them.

use ring::Bell;

use crate::class::{ChannelClass, EAGER_BYTES};
use crate::handle::{ChannelEnd, ChannelPhase};
use crate::layout::{RemoteBlocks, Shaped, StridedBlocks, segments};
use crate::line::{ArrivalWord, BoundLine, GateNote, LineCursor};
use crate::memory::{CopySeries, MemorySpan, PlannedCopy, UserBlocks, are_same};
use crate::{ChannelDirection, ChannelId, Channels};
use transport::{Fabric, Peer};

/// The prepared steps of a list of channel ends that are started together.
#[derive(Debug, Default)]
pub(crate) struct StartList {
    ids: Vec<ChannelId>,
    /// The epoch of the channels in which the list is valid.
    epoch: u64,
    opens: Vec<ListedReceive>,
    sends: Vec<ListedSend>,
    gaps: GappedCopies,
    bells: Vec<&'static Bell>,
    /// Bytes of all sends.
    bytes: usize,
    /// Bytes of the sends without a staging buffer.
    direct_bytes: usize,
    /// Whether some sends are small enough to be sent eagerly.
    has_small: bool,
    /// Whether some receives have staging buffers, which are unpacked when the list is collected.
    has_staging: bool,
}

/// One receive of a [`StartList`].
#[derive(Clone, Copy, Debug)]
struct ListedReceive {
    cursor: LineCursor,
    class: u32,
    handle: u32,
}

/// One send of a [`StartList`].
#[derive(Clone, Copy, Debug)]
struct ListedSend {
    cursor: LineCursor,
    copy: PlannedCopy,
    /// Index of the copies that are made instead of `copy`, if either end has gaps.
    gapped: Option<u32>,
    /// Whether no staging buffer is involved.
    is_direct: bool,
    class: u32,
    handle: u32,
}

/// The copies of those sends whose memory has gaps at either end.
#[derive(Debug, Default)]
struct GappedCopies {
    series: Vec<CopySeries>,
    sends: Vec<GappedSend>,
}

/// One send of [`GappedCopies`]: its range in `series`, and the note for its gate line.
#[derive(Clone, Copy, Debug)]
struct GappedSend {
    first: usize,
    behind: usize,
    note: Option<GateNote>,
}

impl GappedCopies {
    /// Adds the copies of one more send, and returns its index. `None`: there are too many copies, or some memory is
    /// not mapped.
    fn add<T: Shaped>(
        &mut self,
        from: &[UserBlocks],
        to: &[T],
        place: impl Fn(usize) -> Option<MemorySpan>,
        note: Option<GateNote>,
    ) -> Option<u32> {
        let first = self.series.len();
        for segment in segments(from, to, 0, usize::MAX) {
            let next =
                PlannedCopy::of(&from[segment.from.piece], place(segment.to.piece)?, segment);
            let last = self.series.get_mut(first..)?.last_mut();
            if last.is_some_and(|last| last.extend(next)) {
                continue;
            }
            if self.series.len() == self.series.capacity() {
                return None;
            }
            self.series.push(CopySeries::new(next));
        }
        self.sends.push(GappedSend {
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

/// A started list whose state is not committed to its channel ends yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartedList {
    list: usize,
    /// Whether the list was collected, so it can be started again.
    is_collected: bool,
    /// Number of polls of the gates that were not open at the start.
    polls: u32,
}

impl StartList {
    /// An empty list with reserved memory.
    pub(crate) fn with_room() -> Self {
        Self {
            ids: Vec::with_capacity(IDS_MAX),
            opens: Vec::with_capacity(IDS_MAX),
            sends: Vec::with_capacity(IDS_MAX),
            bells: Vec::with_capacity(IDS_MAX),
            ..Self::default()
        }
    }

    /// Reserves memory for copies of memory with gaps.
    pub(crate) fn reserve_for_blocks(&mut self) {
        let GappedCopies { series, sends } = &mut self.gaps;
        series.reserve(SERIES_MAX.saturating_sub(series.len()));
        sends.reserve(IDS_MAX.saturating_sub(sends.len()));
    }

    /// Sets the number of each end's next start. It may have changed: other ends may have been started since the last
    /// run.
    #[inline(never)]
    fn set_numbers(&mut self, classes: &[ChannelClass]) {
        for at in 0..self.opens.len() {
            let class = self.opens[at].class;
            let (before, all) = count(self.opens.iter().map(|open| open.class), at, class);
            let next = classes[class as usize].into.started + before;
            self.opens[at].cursor.set_next(next, all);
        }
        for at in 0..self.sends.len() {
            let class = self.sends[at].class;
            let (before, all) = count(self.sends.iter().map(|send| send.class), at, class);
            let next = classes[class as usize].out.started + before;
            self.sends[at].cursor.set_next(next, all);
        }
    }

    /// Opens the gates of all receives, and sends through the open gates of the peers. Returns the sends whose gates
    /// are closed: bit k for send k.
    #[inline(always)]
    fn run(&mut self, fabric: &mut Fabric) -> u64 {
        for open in &mut self.opens {
            open.cursor.open();
        }
        if self.bytes > EARLY_WAKE_BYTES {
            fabric.nudge_all(&self.bells);
        }
        if !self.gaps.sends.is_empty() {
            return self.run_gapped(fabric);
        }
        let mut left = 0;
        let mut sends = &mut self.sends[..];
        while let Some((send, behind)) = sends.split_first_mut() {
            if !send.try_send_plain() {
                let behind = behind.len();
                left = self.retry_from(behind);
                break;
            }
            sends = behind;
        }
        fabric.nudge_all(&self.bells);
        left
    }

    /// Runs the sends of a list, some of which have gaps. Returns the sends whose gates are closed: bit k for send k.
    #[cold]
    #[inline(never)]
    fn run_gapped(&mut self, fabric: &mut Fabric) -> u64 {
        let left = self.retry_gates(u64::MAX >> (IDS_MAX - self.sends.len()));
        fabric.nudge_all(&self.bells);
        left
    }

    /// Continues `run` after a closed gate: tries its send again, and the `behind` sends after it. Returns the sends
    /// whose gates are closed: bit k for send k.
    #[cold]
    #[inline(never)]
    fn retry_from(&mut self, behind: usize) -> u64 {
        let all = u64::MAX >> (IDS_MAX - self.sends.len());
        let at = self.sends.len() - 1 - behind;
        self.retry_gates(all >> at << at)
    }

    /// Tries the sends in `before`, where bit k stands for send k. Returns in the same form the sends whose gates are
    /// still closed.
    fn retry_gates(&mut self, before: u64) -> u64 {
        let (mut left, mut untried) = (before, before);
        while untried != 0 {
            let at = untried.trailing_zeros();
            untried &= untried - 1;
            if self.sends[at as usize].try_send(&self.gaps) {
                left &= !(1 << at);
            }
        }
        left
    }

    /// Whether the messages of all receives were written.
    fn is_written(&self) -> bool {
        self.opens.iter().all(|open| open.cursor.is_written())
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
        self.has_staging = false;
    }
}

impl ListedSend {
    /// Sends through the gate, if it is open. Both ends must be without gaps. `false`: the gate is closed.
    #[inline(always)]
    fn try_send_plain(&mut self) -> bool {
        let Some(word) = self.cursor.pass() else {
            return false;
        };
        self.copy.run();
        word.publish();
        true
    }

    /// Sends through the gate, if it is open; either end may have gaps. `false`: the gate is closed.
    fn try_send(&mut self, gaps: &GappedCopies) -> bool {
        let Some(word) = self.cursor.pass() else {
            return false;
        };
        match self.gapped {
            None => self.copy.run(),
            Some(at) => gaps.run(at, word),
        }
        word.publish();
        true
    }
}

impl Channels {
    /// Starts the running list again, if it consists of these ends and was collected. `false`: nothing was done.
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
        self.pending_gates = list.run(fabric);
        if self.pending_gates != 0 {
            self.await_gates(fabric);
        }
        true
    }

    /// Starts these ends as a list, if possible. No end may be active. `false`: nothing was done.
    pub(crate) fn run_list(&mut self, fabric: &mut Fabric, ids: &[ChannelId]) -> bool {
        let Some(at) = place_of(ids).filter(|at| *at < self.lists.len()) else {
            return false;
        };
        let list = &self.lists[at];
        let known = list.epoch == self.epoch && are_same(&list.ids, ids);
        if !known && !self.prepare_list(fabric, at, ids) {
            return false;
        }
        self.lists[at].set_numbers(&self.classes);
        self.running = Some(StartedList {
            list: at,
            is_collected: true,
            polls: 0,
        });
        self.run_again(fabric, ids)
    }

    /// Handles gates that were not open when the list was started.
    #[cold]
    #[inline(never)]
    fn await_gates(&mut self, fabric: &mut Fabric) {
        let Some(run) = &mut self.running else { return };
        run.polls = 0;
        self.counters
            .late_gates
            .add(self.pending_gates.count_ones().into());
        let list = &mut self.lists[run.list];
        if !list.has_small {
            return;
        }
        // In an exchange, a process that is not attentive (`Fabric::is_attentive`) does not spin: it may share its core
        // with the receiver, and the receiver needs the core to open its gate. A process that only sends does not spin
        // either, because other processes may wait for its messages: its list continues on the ordinary path.
        let is_exchange = !list.opens.is_empty();
        if is_exchange && !fabric.is_attentive() {
            return;
        }
        // In an exchange, a short wait costs less than an eager message.
        for _ in 0..if is_exchange { SPIN_POLLS } else { 0 } {
            std::hint::spin_loop();
            self.pending_gates = list.retry_gates(self.pending_gates);
            if self.pending_gates == 0 {
                return fabric.nudge_all(&list.bells);
            }
        }
        self.leave_run(fabric);
    }

    /// Polls the gates that the running list waits for. `true`: a message was sent, or the list continues on the
    /// ordinary path from now on.
    #[cold]
    pub(crate) fn retry_gates(&mut self, fabric: &mut Fabric) -> bool {
        let before = self.pending_gates;
        let Some(run) = self.running.as_mut().filter(|_| before != 0) else {
            return false;
        };
        let list = &mut self.lists[run.list];
        self.pending_gates = list.retry_gates(before);
        run.polls += 1;
        let moved = self.pending_gates != before;
        if moved {
            fabric.nudge_all(&list.bells);
        }
        if self.pending_gates != 0 && run.polls > POLLS_MAX {
            self.leave_run(fabric);
            return true;
        }
        moved
    }

    /// Continues the running list on the ordinary path.
    fn leave_run(&mut self, fabric: &mut Fabric) {
        self.commit_run();
        self.retry_pending(fabric);
    }

    /// Whether all these ends have completed. `None`: they are not the running list.
    #[inline(always)]
    pub(crate) fn is_run_done(&self, ids: &[ChannelId]) -> Option<bool> {
        let run = self.running?;
        let list = &self.lists[run.list];
        are_same(&list.ids, ids)
            .then(|| run.is_collected || self.pending_gates == 0 && list.is_written())
    }

    /// Whether there is a running list, and it is collected or only waits for messages from peers.
    pub(crate) fn is_run_quiet(&self) -> bool {
        let is_quiet = |run: StartedList| run.is_collected || !self.lists[run.list].is_written();
        self.pending_gates == 0 && self.running.is_some_and(is_quiet)
    }

    /// Collects the running list, if it consists of these ends and all of them have completed. `false`: nothing was
    /// done.
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
            if list.has_staging {
                for open in &list.opens {
                    let handle = self.handles.at(open.handle);
                    let staged = open.cursor.noted().map_or(usize::MAX, GateNote::staged);
                    self.counters.packed_bytes.add(handle.unpack(staged));
                }
            }
        }
        true
    }

    /// Commits the state of the running list to its ends. Must precede every other access to the ends.
    #[inline(always)]
    pub(crate) fn commit_run(&mut self) {
        if let Some(run) = self.running.take() {
            self.commit(run);
        }
    }

    #[inline(never)]
    fn commit(&mut self, run: StartedList) {
        let list = &mut self.lists[run.list];
        let is_started = !run.is_collected;
        for open in &list.opens {
            let number = open.cursor.number();
            let into = &mut self.classes[open.class as usize].into;
            into.started = number + 1;
            into.mark_reported(number + 1);
            if is_started {
                into.wait(number, open.handle);
            }
            let handle = self.handles.at_mut(open.handle);
            handle.begin_run(number, is_started);
            handle.is_lined = true;
        }
        for (at, send) in list.sends.iter_mut().enumerate() {
            let is_left = self.pending_gates & 1 << at != 0;
            if is_left {
                send.cursor.skip();
            }
            let number = send.cursor.number();
            let out = &mut self.classes[send.class as usize].out;
            out.started = number + 1;
            let handle = self.handles.at_mut(send.handle);
            handle.begin_run(number, is_started);
            if is_left {
                handle.phase = ChannelPhase::Pending;
                self.pending.push(send.handle);
                continue;
            }
            out.receives_known = out.receives_known.max(number + 1);
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
        if std::mem::take(&mut self.pending_gates) != 0 {
            // From now on other gate lines may open for these sends.
            list.clear();
        }
    }

    /// Prepares the steps of a start of these ends. `false`: they cannot run as a list.
    fn prepare_list(&mut self, fabric: &Fabric, at: usize, ids: &[ChannelId]) -> bool {
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

    /// Adds one end. Returns its peer, which each run must wake; `None`: the end cannot be part of a list.
    fn add_to_list(&self, list: &mut StartList, index: u32) -> Option<Peer> {
        let handle = self.handles.at(index);
        let class = &self.classes[handle.class as usize];
        if class.is_dead || class.left.is_some() || class.refused.is_some() {
            return None;
        }
        match handle.direction {
            ChannelDirection::Receive => {
                list.has_staging |= handle.staging.is_some();
                let line = handle.line.filter(|_| handle.is_lined)?;
                list.opens.push(ListedReceive {
                    cursor: line.cursor(),
                    class: handle.class,
                    handle: index,
                });
            }
            ChannelDirection::Send => {
                let bytes = handle.memory.bytes();
                // Without a hint, send k of a class is assumed to use bound line k: both sides start in the same order.
                let of_class = list.sends.iter().filter(|it| it.class == handle.class);
                let at = handle.hint.unwrap_or_else(|| of_class.count());
                let bound = *class.out.bound(at).filter(|it| it.bytes == bytes as u64)?;
                let blocks = bound.blocks(&class.out.layouts);
                let is_direct = blocks.is_some() || !bound.is_staging;
                let (copy, gapped) = copies(list, handle, &bound, blocks)?;
                list.bytes += bytes;
                list.direct_bytes += if is_direct { bytes } else { 0 };
                list.has_small |= bytes <= EAGER_BYTES;
                list.sends.push(ListedSend {
                    cursor: bound.cursor(),
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

/// The copy of a send to the memory of its gate line. If either end has gaps: an empty copy, and the index of the
/// copies in [`GappedCopies`]. `None`: that memory is not mapped, or there are too many copies.
fn copies(
    list: &mut StartList,
    handle: &ChannelEnd,
    bound: &BoundLine,
    blocks: Option<&[RemoteBlocks]>,
) -> Option<(PlannedCopy, Option<u32>)> {
    let from = handle.memory.pieces();
    let bytes = handle.memory.bytes();
    if let Some(blocks) = blocks {
        let note = Some(GateNote::new(bytes, true));
        let gapped = list.gaps.add(from, blocks, |at| blocks[at].span, note)?;
        return Some((
            PlannedCopy::new(MemorySpan::EMPTY, MemorySpan::EMPTY),
            Some(gapped),
        ));
    }
    let span = bound.span?;
    if let Some(whole) = handle.memory.whole() {
        return Some((PlannedCopy::new(whole, span), None));
    }
    let to = [StridedBlocks::one(bytes)];
    let gapped = list.gaps.add(from, &to, |_| Some(span), None)?;
    Some((
        PlannedCopy::new(MemorySpan::EMPTY, MemorySpan::EMPTY),
        Some(gapped),
    ))
}

/// Number of ends of `class` before index `before`, and number of all ends of `class`.
fn count(classes: impl Iterator<Item = u32>, before: usize, class: u32) -> (u64, u64) {
    let (mut first, mut all) = (0, 0);
    for (at, of) in classes.enumerate().filter(|(_, of)| *of == class) {
        first += u64::from(at < before);
        all += u64::from(of == class);
    }
    (first, all)
}

/// Index at which a prepared list of these ends is stored; another list may be there. `None`: there are fewer than 2 or
/// more than [`IDS_MAX`] ends.
#[inline(always)]
fn place_of(ids: &[ChannelId]) -> Option<usize> {
    let first = ids.first()?;
    (2..=IDS_MAX)
        .contains(&ids.len())
        .then_some(first.index() as usize % LISTS)
}

/// Maximum number of ends of a list.
const IDS_MAX: usize = 64;
/// Maximum number of series of copies of memory with gaps in a list. Copies of equal length at equal distances are one
/// series.
const SERIES_MAX: usize = 256;
/// Number of prepared lists.
pub(crate) const LISTS: usize = 8;
/// Total length in bytes above which peers are woken before the copies, in addition to after them.
const EARLY_WAKE_BYTES: usize = 32 * 1024;
/// Number of polls before messages are sent eagerly. All of these polls together take about 100 ns.
const SPIN_POLLS: u32 = 50;
/// Maximum number of polls of a run; then it continues on the ordinary path.
const POLLS_MAX: u32 = 64;
