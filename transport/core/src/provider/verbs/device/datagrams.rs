// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repair of the datagram queue pair. It goes to the error state when a datagram cannot be sent, which happens on some
//! devices while the port is down. It is reset and set up again with the same number, transparently to the caller:
//! datagrams may be lost anyway, and buffers complete with [`WorkStatus::Flushed`] and are posted again like any
//! others.
//!
//! Before the reset, all posted requests must have completed. So a mark is posted to the send queue and to the receive
//! queue, behind all requests. Until both marks have completed, new datagrams and buffers are kept here.

use super::super::port::{CqKind, PortCompletion, Receives, Sge, WorkStatus};
use super::VerbsDevice;
use super::pair;

/// The state of a broken datagram queue pair.
#[derive(Debug, Default)]
pub(super) struct Repair {
    /// The states of the two marks: that of sends, then that of receives.
    marks: [Mark; 2],
    /// The `wr_id`s of datagrams posted meanwhile, which are lost.
    late: Vec<u64>,
    /// Buffers posted meanwhile.
    buffers: Vec<(u64, Sge)>,
}

/// The state of a mark: to be posted (`Wanted`), posted, or completed (`Back`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mark {
    #[default]
    Wanted,
    Posted,
    Back,
}

impl VerbsDevice {
    /// Handles a completion with an error. `true`: it is the completion of a mark, and is not returned to the caller.
    #[cold]
    pub(super) fn take_failure(&mut self, which: CqKind, done: &PortCompletion) -> bool {
        if done.number != self.datagram_number {
            return false;
        }
        self.repair_datagrams();
        let is_mark = done.work == MARK;
        if is_mark && let Some(repair) = &mut self.repair {
            repair.marks[which as usize] = Mark::Back;
        }
        self.go_on_repairing();
        is_mark
    }

    /// Starts the repair of the datagram queue pair.
    pub(super) fn repair_datagrams(&mut self) {
        if self.repair.is_none() {
            self.repair = Some(Repair::default());
            // The queue pair may be in the Send Queue Error state, so it is moved to the Error state.
            pair::fail(self.verbs, &self.datagrams);
        }
    }

    /// Keeps a datagram that is posted while the queue pair is being repaired. `false`: there is no repair.
    #[inline(always)]
    pub(super) fn is_late(&mut self, work: u64) -> bool {
        let Some(repair) = &mut self.repair else {
            return false;
        };
        repair.late.push(work);
        self.go_on_repairing();
        true
    }

    /// Keeps buffers that are posted during a repair. `false`: there is no repair.
    pub(super) fn are_late(&mut self, buffers: &[(u64, Sge)]) -> bool {
        let Some(repair) = &mut self.repair else {
            return false;
        };
        repair.buffers.extend_from_slice(buffers);
        self.go_on_repairing();
        true
    }

    /// Posts the marks as soon as there is room; when both marks have completed, resets the queue pair and sets it up
    /// again.
    pub(super) fn go_on_repairing(&mut self) {
        for which in [CqKind::Sends, CqKind::Receives] {
            let at = which as usize;
            if self.mark_of(at) == Some(Mark::Wanted) {
                let mark = self.post_mark(which);
                self.set_mark(at, mark);
                // Soft-RoCE processes requests that are posted to a queue pair in the error state only when the queue
                // pair is moved to that state again.
                pair::fail(self.verbs, &self.datagrams);
            }
        }
        if [0, 1].map(|at| self.mark_of(at)) == [Some(Mark::Back); 2] {
            self.begin_anew();
        }
    }

    fn mark_of(&self, at: usize) -> Option<Mark> {
        self.repair.as_ref().map(|repair| repair.marks[at])
    }

    fn set_mark(&mut self, at: usize, mark: Mark) {
        if let Some(repair) = &mut self.repair {
            repair.marks[at] = mark;
        }
    }

    fn begin_anew(&mut self) {
        let Some(repair) = self.repair.take() else {
            return;
        };
        let number = self.datagram_number;
        let flushed = |work| PortCompletion {
            work,
            status: WorkStatus::Flushed,
            number,
            ..PortCompletion::default()
        };
        self.kept[CqKind::Sends as usize].extend(repair.late.into_iter().map(flushed));
        let again = pair::reset(self.verbs, &self.datagrams).and_then(|()| {
            pair::start_datagrams(self.verbs, &self.datagrams, &self.facts, self.q_key)
        });
        if again.is_err() {
            self.lose();
        }
        let taken = self.post_buffers(Receives::Datagrams, &repair.buffers);
        let rest = repair.buffers[taken..].iter();
        let rest = rest.map(|(work, _)| flushed(*work));
        self.kept[CqKind::Receives as usize].extend(rest);
    }
}

/// The `wr_id` of the marks; no other work request has it.
pub(super) const MARK: u64 = u64::MAX;
