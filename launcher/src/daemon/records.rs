// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directory of network records. Each rank publishes a record, and requests the record of another rank before its first
//! message to that rank. A request for a record that is not published yet is answered later; meanwhile the daemon
//! serves other ranks. This module makes no system calls.
//!
//! A rank may run several MPI programs one after the other. A record belongs to one of these programs. It is sent only
//! to ranks that run the program of the same number, since the network resources of an earlier program are gone.
//!
//! At the end of a program each rank reports that it is quiet (none of its traffic is in flight), and is notified when
//! all ranks are quiet. If the job continues after a failure, the remaining ranks are also notified of each failed
//! rank.
//!
//! In a job of several nodes, each daemon has the records of its own ranks, and those records of other nodes' ranks
//! that were requested. When one of its own ranks first requests the record of a rank of another node, the daemon
//! begins to *watch* the rank: it receives the rank's [location](RankLocation) immediately and at every change, until
//! all ranks are quiet. The front detects that all ranks of a program are quiet from the reports of all nodes.
//!
//! Each rank has a number: ranks of this node have their local numbers, and ranks of other nodes get further numbers in
//! the order in which they first occur. Memory is bounded: at most one record per rank, and a fixed number of set
//! entries per pair of ranks.

use crate::link::RankLocation;
use std::collections::{BTreeMap, BTreeSet};
use wireup::{Record, ToRank};

/// The records of all ranks, and pending requests for them.
#[derive(Debug)]
pub(crate) struct Records {
    /// Ranks of this node by local number, followed by ranks of other nodes.
    entries: Vec<RankEntry>,
    /// Number of ranks of this node.
    own: u32,
    /// Number of ranks of the job.
    size: u32,
    /// By rank of another node: index of its entry in `entries`.
    far: BTreeMap<u32, u32>,
    /// Pending messages to the front.
    outgoing: Vec<RecordMessage>,
    /// Numbers of programs in which all ranks of this node are quiet, as reported to the front.
    quiet: BTreeSet<u32>,
    /// Numbers of programs in which all ranks of the job are quiet.
    released: BTreeSet<u32>,
}

/// Message to the front about records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordMessage {
    /// Request for the location of a rank of another node, now and whenever it changes.
    Watch(u32),
    /// Location of a rank of this node that other nodes watch.
    Location(RankLocation),
    /// All ranks of this node are quiet in their program of this number.
    Quiet(u32),
}

/// What the directory stores of one rank.
#[derive(Debug)]
struct RankEntry {
    /// The rank's number in the job.
    rank: u32,
    /// For a rank of this node: whether another node watches it. For a rank of another node: whether this node watches
    /// it.
    watched: bool,
    /// Number of MPI programs that the rank has completed.
    round: u32,
    /// Whether the rank's current program has published no record and will publish none.
    silent: bool,
    /// Whether the rank runs no further program.
    ended: bool,
    /// The record that the rank published last, with the number of the program that published it.
    last: Option<(u32, Record)>,
    /// Ranks of this node that have requested this rank's record and have no reply yet.
    waiting: BTreeSet<u32>,
    /// Numbers of the ranks whose record this rank has requested, if the reply can be sent now.
    ready: BTreeSet<u32>,
    quiet: Quiet,
    /// Why the rank failed, if the job continues after the failure.
    failed: Option<String>,
    /// Failed ranks about which this rank was not notified yet.
    unreported_losses: BTreeSet<u32>,
}

/// State of the quiet barrier at the end of a rank's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quiet {
    /// The rank may have traffic in flight.
    No,
    /// The rank has no traffic in flight, and waits for the other ranks.
    Waits,
    /// All ranks are quiet, and this rank must be notified.
    Released,
    /// The rank was notified.
    Notified,
}

/// Result of looking up a record for another rank.
#[derive(Debug, PartialEq, Eq)]
enum LookupResult<'a> {
    Record(&'a Record),
    /// There will be no record, for this reason.
    Never(&'static str),
    /// The rank may still publish a record.
    NotYet,
}

impl Records {
    /// Records for the ranks of this node, in the order of their local numbers, in a job of `size` ranks.
    pub(crate) fn new(ranks: impl Iterator<Item = u32>, size: u32) -> Self {
        let entries: Vec<RankEntry> = ranks.map(RankEntry::of).collect();
        Self {
            own: u32::try_from(entries.len()).unwrap_or(u32::MAX),
            entries,
            size,
            far: BTreeMap::new(),
            outgoing: Vec::new(),
            quiet: BTreeSet::new(),
            released: BTreeSet::new(),
        }
    }

    /// Removes and returns the pending messages to the front.
    pub(crate) fn take_messages(&mut self) -> Vec<RecordMessage> {
        std::mem::take(&mut self.outgoing)
    }

    /// A rank has called `MPI_Init`. Like the other methods that report an event, returns the ranks to which a reply
    /// can be sent now.
    pub(crate) fn initialized(&mut self, local: u32, publishes: bool) -> Vec<u32> {
        let failed = (0..)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.failed.is_some());
        let unreported_losses: BTreeSet<u32> = failed.map(|(failed, _)| failed).collect();
        let has_losses = !unreported_losses.is_empty();
        if let Some(entry) = self.own_mut(local) {
            entry.unreported_losses = unreported_losses;
        }
        let mut notified = self.change(local, |entry| entry.silent = !publishes);
        if has_losses {
            notified.push(local);
        }
        notified
    }

    /// A rank of the job has failed, and the job continues. `why`: text for the other ranks.
    pub(crate) fn lost(&mut self, rank: u32, why: &str) -> Vec<u32> {
        let Some(failed) = self.number_of(rank) else {
            return Vec::new();
        };
        self.entries[failed as usize].failed = Some(why.to_owned());
        let mut notified = Vec::new();
        for (other, entry) in (0..self.own).zip(&mut self.entries) {
            if other != failed && !entry.ended {
                entry.unreported_losses.insert(failed);
                notified.push(other);
            }
        }
        notified
    }

    /// A rank has no traffic in flight any more.
    pub(crate) fn quiet(&mut self, local: u32) -> Vec<u32> {
        self.change(local, |entry| {
            if entry.quiet == Quiet::No {
                entry.quiet = Quiet::Waits;
            }
        })
    }

    /// A rank has published its record.
    pub(crate) fn published(&mut self, local: u32, record: Record) -> Vec<u32> {
        self.change(local, |entry| {
            entry.silent = record.is_empty();
            entry.last = (!record.is_empty()).then_some((entry.round, record));
        })
    }

    /// A rank has finalized MPI in its current program. Pending requests of this program are removed.
    pub(crate) fn finalized(&mut self, local: u32) -> Vec<u32> {
        self.cancel_queries(local);
        self.change(local, |entry| {
            entry.round = entry.round.saturating_add(1);
            entry.silent = false;
            entry.quiet = Quiet::No;
        })
    }

    /// A rank's process has terminated. If other nodes may still request its location later, the last location is sent
    /// to the front even if no node watches the rank, because this daemon may end before the request.
    pub(crate) fn ended(&mut self, local: u32) -> Vec<u32> {
        self.cancel_queries(local);
        let has_others = self.own < self.size;
        let last = self
            .entries
            .get(local as usize)
            .and_then(RankEntry::last_round);
        let is_awaited = last.is_some_and(|round| !self.released.contains(&round));
        self.change(local, |entry| {
            entry.ended = true;
            entry.watched |= has_others && is_awaited;
        })
    }

    /// `requester` requests the record of a rank of the job. Returns `true` if a reply can be sent now, `false` if it
    /// will be sent later, and `None` if there is no such rank. Repeated requests count once until the reply is sent.
    pub(crate) fn request(&mut self, requester: u32, rank: u32) -> Option<bool> {
        let round = self.own_mut(requester)?.round;
        let target = self.number_of(rank)?;
        let is_far = target >= self.own;
        let entry = &mut self.entries[target as usize];
        if is_far && !entry.watched {
            entry.watched = true;
            self.outgoing.push(RecordMessage::Watch(rank));
        }
        if entry.lookup(round) == LookupResult::NotYet {
            entry.waiting.insert(requester);
            return Some(false);
        }
        self.entries[requester as usize].ready.insert(target);
        Some(true)
    }

    /// Another node watches a rank of this node.
    pub(crate) fn watch(&mut self, rank: u32) {
        let own = self.entries.iter_mut().take(self.own as usize);
        if let Some(entry) = own.into_iter().find(|entry| entry.rank == rank) {
            entry.watched = true;
            self.outgoing
                .push(RecordMessage::Location(entry.location()));
        }
    }

    /// Updates the location of a rank of another node.
    pub(crate) fn set_location(&mut self, of: RankLocation) -> Vec<u32> {
        let Some(far) = self.far.get(&of.rank).copied() else {
            return Vec::new();
        };
        let entry = &mut self.entries[far as usize];
        (entry.round, entry.silent, entry.ended) = (of.round, of.silent, of.ended);
        entry.last = of.last;
        self.answer_waiting(far)
    }

    /// The ranks of all nodes are quiet in the program of this number. All watches end. A rank of another node for
    /// which requests are pending, from the next program, is then watched again.
    pub(crate) fn all_quiet(&mut self, round: u32) -> Vec<u32> {
        self.released.insert(round);
        for (number, entry) in (0..).zip(&mut self.entries) {
            entry.watched = number >= self.own && !entry.waiting.is_empty();
            if entry.watched {
                self.outgoing.push(RecordMessage::Watch(entry.rank));
            }
        }
        self.release(round)
    }

    /// Removes the pending requests of a rank and its pending replies about records. Pending notices about failed ranks
    /// are kept.
    pub(crate) fn cancel_queries(&mut self, requester: u32) {
        for entry in &mut self.entries {
            entry.waiting.remove(&requester);
        }
        if let Some(entry) = self.own_mut(requester) {
            entry.ready.clear();
            entry.unreported_losses.clear();
        }
    }

    /// The next reply for a rank. The reply is kept until [`sent`](Self::sent) is called.
    pub(crate) fn answer(&self, requester: u32) -> Option<ToRank> {
        let entry = self.entry(requester)?;
        if let Some(failed) = entry
            .unreported_losses
            .first()
            .and_then(|local| self.entry(*local))
        {
            let why = failed.failed.clone().unwrap_or_default();
            let rank = failed.rank;
            return Some(ToRank::Lost { rank, why });
        }
        let Some(target) = entry.ready.first() else {
            return (entry.quiet == Quiet::Released).then_some(ToRank::AllQuiet);
        };
        let target = self.entry(*target)?;
        let rank = target.rank;
        Some(match target.lookup(entry.round) {
            LookupResult::Record(record) => ToRank::Record {
                rank,
                record: record.clone(),
            },
            LookupResult::Never(why) => ToRank::NoRecord {
                rank,
                why: why.to_owned(),
            },
            // This cannot occur: a rank is in `ready` only after a lookup with another result, and no later event
            // changes such a result to `NotYet`.
            LookupResult::NotYet => ToRank::NoRecord {
                rank,
                why: ENDED.to_owned(),
            },
        })
    }

    /// Removes the reply that [`answer`](Self::answer) returned and that was sent.
    pub(crate) fn sent(&mut self, requester: u32) {
        let Some(entry) = self.own_mut(requester) else {
            return;
        };
        if entry.unreported_losses.pop_first().is_some() {
            return;
        }
        if entry.ready.pop_first().is_none() && entry.quiet == Quiet::Released {
            entry.quiet = Quiet::Notified;
        }
    }

    /// Does nothing if some rank of this node may still have traffic in flight in program number `round`: it is not
    /// quiet, uses a network, and has neither completed this program nor ended. Otherwise releases the waiting ranks if
    /// all ranks of the job are known to be quiet, or else reports to the front that this node is quiet.
    fn release_if_quiet(&mut self, round: u32) -> Vec<u32> {
        let keeps_all = |entry: &RankEntry| {
            let is_quiet = entry.silent || entry.quiet != Quiet::No;
            !entry.ended && (entry.round < round || entry.round == round && !is_quiet)
        };
        if self.entries.iter().take(self.own as usize).any(keeps_all) {
            return Vec::new();
        }
        let is_complete = self.own == self.size || self.released.contains(&round);
        if is_complete {
            return self.release(round);
        }
        if self.quiet.insert(round) {
            self.outgoing.push(RecordMessage::Quiet(round));
        }
        Vec::new()
    }

    fn release(&mut self, round: u32) -> Vec<u32> {
        let mut released = Vec::new();
        for (local, entry) in (0..self.own).zip(&mut self.entries) {
            if entry.round == round && entry.quiet == Quiet::Waits {
                entry.quiet = Quiet::Released;
                released.push(local);
            }
        }
        released
    }

    fn entry(&self, number: u32) -> Option<&RankEntry> {
        self.entries.get(number as usize)
    }

    fn own_mut(&mut self, local: u32) -> Option<&mut RankEntry> {
        let is_own = local < self.own;
        self.entries.get_mut(local as usize).filter(|_| is_own)
    }

    /// Number of a rank's entry. A rank of another node gets an entry if it has none. `None` if there is no such rank.
    fn number_of(&mut self, rank: u32) -> Option<u32> {
        let own = self.entries.iter().take(self.own as usize);
        let found = (0..).zip(own).find(|(_, entry)| entry.rank == rank);
        if let Some((local, _)) = found {
            return Some(local);
        }
        if rank >= self.size {
            return None;
        }
        if let Some(far) = self.far.get(&rank) {
            return Some(*far);
        }
        let number = u32::try_from(self.entries.len()).ok()?;
        self.entries.push(RankEntry::of(rank));
        self.far.insert(rank, number);
        Some(number)
    }

    /// Applies an event to a rank of this node; returns the ranks to which a reply can be sent now.
    fn change(&mut self, local: u32, change: impl FnOnce(&mut RankEntry)) -> Vec<u32> {
        let Some(entry) = self.own_mut(local) else {
            return Vec::new();
        };
        let round = entry.round;
        change(entry);
        if entry.watched {
            let message = RecordMessage::Location(entry.location());
            self.outgoing.push(message);
        }
        let mut now = self.answer_waiting(local);
        now.extend(self.release_if_quiet(round));
        now
    }

    /// Checks the ranks that wait for the record of entry `number`. Returns those to which a reply can be sent now;
    /// these ranks no longer count as waiting.
    fn answer_waiting(&mut self, number: u32) -> Vec<u32> {
        let waiting = std::mem::take(&mut self.entries[number as usize].waiting);
        let (mut later, mut now) = (BTreeSet::new(), Vec::new());
        for requester in waiting {
            let of_asker = self.entries[requester as usize].round;
            if self.entries[number as usize].lookup(of_asker) == LookupResult::NotYet {
                later.insert(requester);
            } else {
                self.entries[requester as usize].ready.insert(number);
                now.push(requester);
            }
        }
        self.entries[number as usize].waiting = later;
        now
    }
}

impl RankEntry {
    fn of(rank: u32) -> Self {
        Self {
            rank,
            watched: false,
            round: 0,
            silent: false,
            ended: false,
            last: None,
            waiting: BTreeSet::new(),
            ready: BTreeSet::new(),
            quiet: Quiet::No,
            failed: None,
            unreported_losses: BTreeSet::new(),
        }
    }

    /// Number of the last program in which other ranks may request this rank's record; `None` if the rank has neither
    /// published a record nor completed a program.
    fn last_round(&self) -> Option<u32> {
        let published = self.last.as_ref().map(|(round, _)| *round);
        published.or_else(|| self.round.checked_sub(1))
    }

    fn location(&self) -> RankLocation {
        RankLocation {
            rank: self.rank,
            round: self.round,
            silent: self.silent,
            ended: self.ended,
            last: self.last.clone(),
        }
    }

    /// Looks up this rank's record for a rank that runs program number `round`.
    fn lookup(&self, round: u32) -> LookupResult<'_> {
        match &self.last {
            Some((of, record)) if *of == round => return LookupResult::Record(record),
            _ if self.round > round => return LookupResult::Never(THROUGH),
            _ if self.ended => return LookupResult::Never(ENDED),
            _ if self.round == round && self.silent => return LookupResult::Never(SILENT),
            _ => {}
        }
        LookupResult::NotYet
    }
}

const SILENT: &str = "it uses no network; is RMPI_PROVIDERS the same for all ranks?";
const THROUGH: &str =
    "it is through with MPI, and its address on the network is not known any more";
const ENDED: &str = "it has ended without an address on the network";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::node_exchange::NodeExchange;
    use crate::link::{NodeEvent, Order};
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use wireup::NodeMap;

    fn record(number: u8) -> Record {
        Record::new(&[number; 24]).unwrap()
    }

    /// The records of a node with ranks 10 to 12.
    fn three() -> Records {
        Records::new(10..13, 3)
    }

    /// `requester` requests the record of local rank `target`.
    fn request(records: &mut Records, requester: u32, target: u32) -> bool {
        let rank = records.entries[target as usize].rank;
        records.request(requester, rank).unwrap()
    }

    /// All replies to a rank: for each the rank that the reply is about, and the first byte of the record, if it has
    /// one.
    fn answers(records: &mut Records, requester: u32) -> Vec<(u32, Option<u8>)> {
        std::iter::from_fn(|| {
            let answer = records.answer(requester)?;
            records.sent(requester);
            Some(match answer {
                ToRank::AllQuiet => (u32::MAX, None),
                ToRank::Record { rank, record } => (rank, Some(record.bytes()[0])),
                ToRank::NoRecord { rank, .. } => (rank, None),
                other => panic!("no answer: {other:?}"),
            })
        })
        .collect()
    }

    fn reason(records: &mut Records, requester: u32) -> (u32, String) {
        let answer = records.answer(requester);
        records.sent(requester);
        match answer {
            Some(ToRank::NoRecord { rank, why }) => (rank, why),
            other => panic!("no refusal: {other:?}"),
        }
    }

    #[test]
    fn record_requests_are_answered_once_the_record_is_published() {
        let mut records = three();
        assert!(records.initialized(0, true).is_empty());
        assert!(!request(&mut records, 1, 0));
        assert_eq!(answers(&mut records, 1), []);
        assert_eq!(records.published(0, record(7)), [1]);
        assert!(request(&mut records, 2, 0));
        assert_eq!(answers(&mut records, 1), [(10, Some(7))]);
        assert_eq!(answers(&mut records, 2), [(10, Some(7))]);
    }

    #[test]
    fn repeated_record_requests_get_one_reply() {
        let mut records = three();
        for _ in 0..3 {
            assert!(!request(&mut records, 1, 0));
        }
        assert_eq!(records.published(0, record(7)), [1]);
        assert_eq!(records.published(0, record(8)), [0_u32; 0]);
        assert!(request(&mut records, 1, 0));
        assert_eq!(answers(&mut records, 1), [(10, Some(8))]);
    }

    #[test]
    fn requesters_learn_that_a_rank_has_no_record() {
        let mut records = three();
        assert!(!request(&mut records, 1, 0));
        assert_eq!(records.initialized(0, false), [1]);
        assert_eq!(reason(&mut records, 1), (10, SILENT.to_owned()));
        assert_eq!(records.initialized(2, true), [0_u32; 0]);
        assert!(!request(&mut records, 1, 2));
        assert_eq!(records.published(2, Record::default()), [1]);
        assert_eq!(reason(&mut records, 1), (12, SILENT.to_owned()));
    }

    #[test]
    fn records_outlive_their_rank_and_missing_ones_are_reported() {
        let mut records = three();
        records.published(0, record(7));
        records.finalized(0);
        records.ended(0);
        assert!(request(&mut records, 1, 0));
        assert_eq!(answers(&mut records, 1), [(10, Some(7))]);
        assert!(!request(&mut records, 1, 2));
        assert_eq!(records.ended(2), [1]);
        assert_eq!(reason(&mut records, 1), (12, ENDED.to_owned()));
    }

    #[test]
    fn a_failed_rank_is_reported_once_to_each_other_rank() {
        fn lost(records: &mut Records, local: u32) -> Option<(u32, String)> {
            let answer = records.answer(local)?;
            records.sent(local);
            match answer {
                ToRank::Lost { rank, why } => Some((rank, why)),
                other => panic!("{other:?}"),
            }
        }
        let mut records = three();
        records.initialized(0, true);
        records.initialized(1, true);
        records.ended(1);
        assert_eq!(records.lost(11, "killed"), [0, 2]);
        let unreported_losses = Some((11, "killed".to_owned()));
        assert_eq!(lost(&mut records, 0), unreported_losses);
        assert_eq!(lost(&mut records, 0), None);
        assert_eq!(lost(&mut records, 1), None);
        // Rank 2 is notified in the program that it runs now, and in any later program.
        assert_eq!(records.initialized(2, true), [2]);
        assert_eq!(lost(&mut records, 2), unreported_losses);
        records.finalized(2);
        assert_eq!(records.initialized(2, true), [2]);
        assert_eq!(lost(&mut records, 2), unreported_losses);
    }

    #[test]
    fn a_record_goes_to_the_ranks_that_run_the_same_program() {
        let mut records = three();
        for local in [0, 1] {
            records.published(local, record(7));
        }
        // Rank 1 is ahead: it has started its second program.
        records.finalized(1);
        assert!(
            !request(&mut records, 1, 0),
            "the first program's record is not it"
        );
        assert!(request(&mut records, 0, 1));
        assert_eq!(answers(&mut records, 0), [(11, Some(7))]);
        assert!(records.finalized(0).is_empty());
        assert_eq!(records.published(0, record(8)), [1]);
        assert_eq!(answers(&mut records, 1), [(10, Some(8))]);
        // Rank 2 is behind: the record that it requests is not kept any more.
        assert!(request(&mut records, 2, 0));
        assert_eq!(reason(&mut records, 2), (10, THROUGH.to_owned()));
    }

    #[test]
    fn record_requests_end_with_the_requesting_program() {
        let mut records = three();
        assert!(!request(&mut records, 1, 0));
        records.finalized(1);
        assert!(records.published(0, record(7)).is_empty());
        assert!(request(&mut records, 2, 0));
        records.ended(2);
        assert_eq!(records.answer(2), None);
    }

    /// Removes the pending reply to a rank, if there is one; returns whether it says that all ranks are quiet. Fails if
    /// there are several replies.
    fn is_released(records: &mut Records, local: u32) -> bool {
        let answer = records.answer(local);
        if answer.is_some() {
            records.sent(local);
        }
        assert_eq!(records.answer(local), None);
        answer == Some(ToRank::AllQuiet)
    }

    #[test]
    fn ranks_are_released_when_all_are_quiet_or_ended() {
        let mut records = Records::new(0..4, 4);
        for local in 0..3 {
            records.initialized(local, true);
        }
        assert!(records.quiet(0).is_empty());
        assert!(records.quiet(0).is_empty());
        assert!(!is_released(&mut records, 0));
        assert!(records.ended(2).is_empty());
        assert!(records.quiet(1).is_empty());
        // A rank that uses no network has no traffic in flight.
        assert_eq!(records.initialized(3, false), [0, 1]);
        for local in 0..2 {
            assert!(is_released(&mut records, local));
            assert!(!is_released(&mut records, local), "once");
        }
        assert!(!is_released(&mut records, 3));
    }

    #[test]
    fn the_end_of_the_last_active_rank_releases_the_others() {
        let mut records = three();
        assert!(records.quiet(0).is_empty() && records.quiet(1).is_empty());
        assert_eq!(records.ended(2), [0, 1]);
    }

    #[test]
    fn ranks_of_the_same_program_wait_for_each_other() {
        let mut records = three();
        // Ranks 0 and 1 have started their second program; rank 2 still runs its first.
        for local in [0, 1] {
            records.quiet(local);
        }
        for local in [0, 1] {
            records.finalized(local);
            assert!(records.quiet(local).is_empty());
        }
        assert_eq!(records.quiet(2), [2]);
        assert!(records.finalized(2).is_empty());
        assert_eq!(records.quiet(2), [0, 1, 2]);
    }

    #[test]
    fn unknown_rank_numbers_are_ignored() {
        let mut records = three();
        assert_eq!(
            (records.request(0, 3), records.request(3, 10)),
            (None, None)
        );
        assert!(records.published(3, record(7)).is_empty());
        assert!(records.finalized(9).is_empty() && records.ended(9).is_empty());
        assert!(records.quiet(9).is_empty());
        records.cancel_queries(9);
        records.sent(9);
        assert_eq!(records.answer(9), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Greet(u32, bool),
        Publish(u32, u8),
        Finalize(u32),
        End(u32),
        Request(u32, u32),
        Listen(u32),
        Quiet(u32),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let local = || 0..4_u32;
        prop_oneof![
            (local(), any::<bool>()).prop_map(|(rank, publishes)| Step::Greet(rank, publishes)),
            (local(), any::<u8>()).prop_map(|(rank, number)| Step::Publish(rank, number)),
            local().prop_map(Step::Finalize),
            local().prop_map(Step::End),
            (local(), local()).prop_map(|(requester, target)| Step::Request(requester, target)),
            local().prop_map(Step::Listen),
            local().prop_map(Step::Quiet),
        ]
    }

    /// Applies a step; returns the ranks that have a reply.
    fn take(records: &mut Records, step: &Step) -> Vec<u32> {
        match *step {
            Step::Greet(rank, publishes) => records.initialized(rank, publishes),
            Step::Publish(rank, number) => records.published(rank, record(number)),
            Step::Finalize(rank) => records.finalized(rank),
            Step::End(rank) => records.ended(rank),
            Step::Quiet(rank) => records.quiet(rank),
            Step::Request(requester, target) => {
                let now = request(records, requester, target);
                now.then_some(requester).into_iter().collect()
            }
            Step::Listen(rank) => {
                answers(records, rank);
                Vec::new()
            }
        }
    }

    /// Three nodes of a job of five ranks, and the front, with messages in flight between them.
    struct Job {
        nodes: [Records; 3],
        exchange: NodeExchange,
        up: [VecDeque<NodeEvent>; 3],
        down: [VecDeque<Order>; 3],
    }

    /// Node and local number of each rank.
    const PLACES: [(usize, u32); 5] = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)];

    impl Job {
        fn new() -> Self {
            let node_of = PLACES.map(|(node, _)| u32::try_from(node).unwrap());
            let mut exchange = NodeExchange::of(NodeMap::new(node_of).unwrap().by_node());
            (0..3).for_each(|_| exchange.add());
            let nodes = [0..2, 2..4, 4..5].map(|ranks| Records::new(ranks, 5));
            Self {
                nodes,
                exchange,
                up: Default::default(),
                down: Default::default(),
            }
        }

        /// Queues a node's messages to the front.
        fn send(&mut self, node: usize) {
            let messages = self.nodes[node].take_messages().into_iter();
            self.up[node].extend(messages.map(|message| match message {
                RecordMessage::Watch(rank) => NodeEvent::Watch(rank),
                RecordMessage::Location(of) => NodeEvent::Location(of),
                RecordMessage::Quiet(round) => NodeEvent::Quiet(round),
            }));
        }

        /// Delivers a message from a node to the front (`is_up`) or from the front to the node; `false` if there is
        /// none.
        fn deliver(&mut self, node: usize, is_up: bool) -> bool {
            if is_up {
                let Some(event) = self.up[node].pop_front() else {
                    return false;
                };
                for (to, order) in self.exchange.pass(node, event).unwrap() {
                    to.into_iter()
                        .for_each(|to| self.down[to].push_back(order.clone()));
                }
                return true;
            }
            let records = &mut self.nodes[node];
            match self.down[node].pop_front() {
                None => return false,
                Some(Order::Watch(rank)) => records.watch(rank),
                Some(Order::Location(of)) => drop(records.set_location(of)),
                Some(Order::AllQuiet(round)) => drop(records.all_quiet(round)),
                Some(other) => panic!("{other:?}"),
            }
            self.send(node);
            true
        }

        fn deliver_all(&mut self) {
            let directions = || (0..3).flat_map(|node| [(node, true), (node, false)]);
            while directions().any(|(node, is_up)| self.deliver(node, is_up)) {}
        }

        fn take(&mut self, step: &Step) {
            let (Step::Greet(rank, _)
            | Step::Publish(rank, _)
            | Step::Finalize(rank)
            | Step::End(rank)
            | Step::Request(rank, _)
            | Step::Listen(rank)
            | Step::Quiet(rank)) = *step;
            let (node, local) = PLACES[rank as usize];
            let records = &mut self.nodes[node];
            match *step {
                Step::Request(_, target) => drop(records.request(local, target)),
                Step::Greet(_, publishes) => drop(records.initialized(local, publishes)),
                Step::Publish(_, number) => drop(records.published(local, record(number))),
                Step::Finalize(_) => drop(records.finalized(local)),
                Step::End(_) => drop(records.ended(local)),
                Step::Quiet(_) => drop(records.quiet(local)),
                Step::Listen(_) => drop(answers(records, local)),
            }
            self.send(node);
        }
    }

    #[test]
    fn location_of_an_ended_rank_is_sent_unless_all_are_quiet() {
        for all_are_quiet in [false, true] {
            let mut records = Records::new(0..1, 5);
            records.published(0, record(7));
            records.finalized(0);
            if all_are_quiet {
                records.all_quiet(0);
            }
            records.take_messages();
            records.ended(0);
            let notified = records.take_messages();
            let is_reported = notified
                .iter()
                .any(|message| matches!(message, RecordMessage::Location(_)));
            assert_eq!(is_reported, !all_are_quiet);
        }
    }

    #[test]
    fn a_remote_rank_is_watched_once_and_answered_like_a_local_one() {
        let mut job = Job::new();
        job.take(&Step::Request(0, 4));
        job.take(&Step::Request(1, 4));
        assert_eq!(job.up[0], [NodeEvent::Watch(4)]);
        job.deliver_all();
        job.take(&Step::Publish(4, 7));
        job.deliver_all();
        for local in 0..2 {
            assert_eq!(answers(&mut job.nodes[0], local), [(4, Some(7))]);
        }
        assert_eq!(job.nodes[1].take_messages(), []);
        // A failure is reported to all nodes.
        assert_eq!(job.nodes[0].lost(4, "killed"), [0, 1]);
        assert_eq!(job.nodes[1].lost(4, "killed"), [0, 1]);
        assert_eq!(job.nodes[2].lost(4, "killed"), [0_u32; 0]);
    }

    proptest! {
        #[test]
        fn several_nodes_answer_like_a_single_node(
            steps in proptest::collection::vec((any_step(), 0..3_usize, any::<bool>()), 0..80),
        ) {
            let mut job = Job::new();
            job.take(&Step::Quiet(4));
            for target in 0..4 {
                job.take(&Step::Request(4, target));
            }
            let mut received = Vec::new();
            for (step, node, is_up) in &steps {
                job.take(step);
                job.deliver(*node, *is_up);
                received.extend(answers(&mut job.nodes[2], 0));
            }
            for rank in 0..4 {
                job.take(&Step::End(rank));
            }
            job.deliver_all();
            received.extend(answers(&mut job.nodes[2], 0));
            received.sort_unstable();
            let about: Vec<u32> = received.iter().map(|(rank, _)| *rank).collect();
            prop_assert_eq!(about, [0, 1, 2, 3, u32::MAX]);
        }
    }

    proptest! {
        #[test]
        fn every_record_request_is_answered_once_when_all_have_ended(
            steps in proptest::collection::vec(any_step(), 0..60),
        ) {
            let mut records = Records::new(0..5, 5);
            records.quiet(4);
            // Rank 4 requests all records, and runs only one program.
            for target in 0..4 {
                request(&mut records, 4, target);
            }
            let mut received = Vec::new();
            for step in &steps {
                let notified = take(&mut records, step);
                prop_assert!(notified.iter().all(|requester| records.answer(*requester).is_some()));
                received.extend(answers(&mut records, 4));
            }
            for local in 0..4 {
                records.ended(local);
            }
            received.extend(answers(&mut records, 4));
            received.sort_unstable();
            let about: Vec<u32> = received.iter().map(|(rank, _)| *rank).collect();
            prop_assert_eq!(about, [0, 1, 2, 3, u32::MAX]);
            prop_assert!(records.entries.iter().all(|entry| entry.waiting.is_empty()));
        }
    }
}
