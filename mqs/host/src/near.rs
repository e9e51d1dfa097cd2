// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lies beside a rank that waits and nearly fits: a message with another tag, a receive from another rank, a persistent
//! receive that was not started.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::report::{self, CommReport, MessageData, OperationReport, RankReport};

/// Something that does not fit, but nearly.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Near {
    /// What is different.
    pub other: Other,
    /// Whose it is: sender of a message, or receiver.
    pub rank: i32,
    /// The other side that it names; none: any.
    pub peer: Option<i32>,
    /// Its tag; none: any.
    pub tag: Option<i64>,
    /// What it holds.
    #[serde(flatten)]
    pub data: MessageData,
    /// Its communicator.
    pub name: String,
    /// How many are alike.
    pub count: usize,
}

/// In what something does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Other {
    /// In its tag.
    Tag,
    /// In its communicator.
    Communicator,
    /// In the rank of the other side.
    Rank,
    /// It is another collective on the same communicator; its name is in `name`.
    Collective,
    /// It is the same collective with another root, which is in `peer` as a rank of the communicator.
    Root,
    /// It is the same collective of other data: their bytes are in `data`.
    Size,
    /// It is the same collective, and the root, from whom the data come, is through with it.
    Through,
    /// It is a persistent receive that fits, and that was not started.
    Inactive,
}

impl Near {
    /// Of the collective `name` that a rank has called.
    pub(crate) fn of(other: Other, rank: i32, name: &str) -> Self {
        Self {
            other,
            rank,
            peer: None,
            tag: None,
            data: MessageData::default(),
            name: name.to_owned(),
            count: 1,
        }
    }
}

/// What a receive or a probe matches.
pub(crate) struct ReceivePattern {
    /// Rank in `MPI_COMM_WORLD`; none: any.
    pub(crate) peer: Option<i32>,
    pub(crate) local_peer: Option<i64>,
    pub(crate) tag: Option<i64>,
    pub(crate) data: MessageData,
}

impl ReceivePattern {
    pub(crate) fn of(it: &OperationReport) -> Self {
        Self {
            peer: world(it.world_peer),
            local_peer: it.peer,
            tag: it.tag,
            data: it.data(),
        }
    }

    pub(crate) fn to_see(comm: &CommReport, it: &report::CallReport) -> Self {
        let place = it.peer.and_then(|peer| usize::try_from(peer).ok());
        Self {
            peer: place.and_then(|at| comm.ranks.get(at).copied()),
            local_peer: it.peer,
            tag: it.tag,
            data: MessageData::default(),
        }
    }
}

/// Messages that have arrived at a rank and that a receive of it does not take, but nearly.
pub(crate) fn near_messages(
    rank: &RankReport,
    comm: &CommReport,
    it: &ReceivePattern,
) -> Vec<Near> {
    let mut found = Gathered::default();
    for theirs in &rank.communicators {
        for message in &theirs.unexpected {
            let same = theirs.id == comm.id;
            let rank_fits = it.peer.is_none() || it.peer == world(message.world_peer);
            let tag_fits = it.tag.is_none() || it.tag == message.tag;
            if let Some(other) = only_difference(same, rank_fits, tag_fits)
                && let Some(sender) = world(message.world_peer)
            {
                found.add(other, sender, rank.rank, theirs, message);
            }
        }
    }
    found.sorted()
}

/// Receives of a rank that do not take a message, but nearly; and persistent ones that would, were they started.
pub(crate) fn near_receives(
    me: i32,
    receiver: &RankReport,
    comm: &CommReport,
    it: &OperationReport,
) -> Vec<Near> {
    let mut found = Gathered::default();
    let Some(owner) = receiver.rank else {
        return Vec::new();
    };
    for theirs in &receiver.communicators {
        let differs = |receive: &OperationReport| {
            let peer = world(receive.world_peer);
            let rank_fits = peer.is_none_or(|peer| peer == me);
            let tag_fits = receive.tag.is_none() || receive.tag == it.tag;
            (theirs.id == comm.id, rank_fits, tag_fits)
        };
        for receive in theirs.receives.iter().filter(|it| it.status == "pending") {
            let (same, rank_fits, tag_fits) = differs(receive);
            if let Some(other) = only_difference(same, rank_fits, tag_fits) {
                found.add(other, owner, world(receive.world_peer), theirs, receive);
            }
        }
        let fits = |it: &&OperationReport| differs(it) == (true, true, true);
        for receive in theirs.inactive.iter().filter(fits) {
            let peer = world(receive.world_peer);
            found.add(Other::Inactive, owner, peer, theirs, receive);
        }
    }
    found.sorted()
}

/// The one thing in which two do not fit.
fn only_difference(comm: bool, rank: bool, tag: bool) -> Option<Other> {
    match (comm, rank, tag) {
        (true, true, false) => Some(Other::Tag),
        (false, true, true) => Some(Other::Communicator),
        (true, false, true) => Some(Other::Rank),
        _ => None,
    }
}

/// Equal ones are counted.
#[derive(Default)]
struct Gathered(HashMap<Near, usize>);

impl Gathered {
    fn add(
        &mut self,
        other: Other,
        rank: i32,
        peer: Option<i32>,
        comm: &CommReport,
        it: &OperationReport,
    ) {
        let near = Near {
            other,
            rank,
            peer,
            tag: it.tag,
            data: it.data(),
            name: comm.label(),
            count: 0,
        };
        *self.0.entry(near).or_default() += 1;
    }

    fn sorted(self) -> Vec<Near> {
        let counted = self.0.into_iter().map(|(it, count)| Near { count, ..it });
        let sorted: BTreeSet<Near> = counted.collect();
        sorted.into_iter().take(MOST_NEAR).collect()
    }
}

pub(crate) fn world(rank: Option<i64>) -> Option<i32> {
    rank.and_then(|rank| i32::try_from(rank).ok())
}

/// What nearly fits, at most: who sends ten thousand messages with another tag made one mistake.
const MOST_NEAR: usize = 4;
