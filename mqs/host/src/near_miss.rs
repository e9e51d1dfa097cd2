// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds near misses of a wait: a message with another tag, a receive from another rank, a persistent receive that was
//! not started.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::report::{self, CommReport, MessageData, OperationReport, RankReport};

/// An operation or call that differs in one point from the one that would end a wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct NearMiss {
    /// The difference.
    pub other: Difference,
    /// The rank that sent the message, posted the receive or called the collective.
    pub rank: i32,
    /// Peer of the message or receive; `None`: any. For a collective: its root, if any, as a rank of the communicator.
    pub peer: Option<i32>,
    /// Tag of the message or receive; `None`: any.
    pub tag: Option<i64>,
    /// Size and datatype of the message, the buffer or the collective.
    #[serde(flatten)]
    pub data: MessageData,
    /// Name of the communicator; for a collective, the name of the collective.
    pub name: String,
    /// Number of equal near misses.
    pub count: usize,
}

/// The point in which a near miss differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// The tag.
    Tag,
    /// The communicator.
    Communicator,
    /// The rank of the peer.
    Rank,
    /// Another collective on the same communicator; its name is in `name`.
    Collective,
    /// The same collective with another root. The root is in `peer`, as a rank of the communicator.
    Root,
    /// The same collective with another size. The size is in `data`.
    Size,
    /// The same collective: its root, from which the data come, has already returned from it.
    Through,
    /// A persistent receive that matches but is not started.
    Inactive,
}

impl NearMiss {
    /// The near miss of a rank that calls the collective `name`.
    pub(crate) fn of(other: Difference, rank: i32, name: &str) -> Self {
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

/// The envelope that a receive or a probe matches.
pub(crate) struct ReceivePattern {
    /// Rank in `MPI_COMM_WORLD`; `None`: any.
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

    pub(crate) fn of_probe(comm: &CommReport, it: &report::CallReport) -> Self {
        let place = it.peer.and_then(|peer| usize::try_from(peer).ok());
        Self {
            peer: place.and_then(|at| comm.ranks.get(at).copied()),
            local_peer: it.peer,
            tag: it.tag,
            data: MessageData::default(),
        }
    }
}

/// Unexpected messages of a rank that match its receive or probe `it` in all points except one.
pub(crate) fn near_messages(
    rank: &RankReport,
    comm: &CommReport,
    it: &ReceivePattern,
) -> Vec<NearMiss> {
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

/// Pending receives of `receiver` that match the send `it` of rank `me` in all points except one, and inactive
/// persistent receives of `receiver` that match the send.
pub(crate) fn near_receives(
    me: i32,
    receiver: &RankReport,
    comm: &CommReport,
    it: &OperationReport,
) -> Vec<NearMiss> {
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
            found.add(Difference::Inactive, owner, peer, theirs, receive);
        }
    }
    found.sorted()
}

/// The point in which two envelopes differ; `None` unless there is exactly one. Each parameter is true if the envelopes
/// match in that point.
fn only_difference(comm: bool, rank: bool, tag: bool) -> Option<Difference> {
    match (comm, rank, tag) {
        (true, true, false) => Some(Difference::Tag),
        (false, true, true) => Some(Difference::Communicator),
        (true, false, true) => Some(Difference::Rank),
        _ => None,
    }
}

/// Distinct near misses, each with its number of occurrences.
#[derive(Default)]
struct Gathered(HashMap<NearMiss, usize>);

impl Gathered {
    fn add(
        &mut self,
        other: Difference,
        rank: i32,
        peer: Option<i32>,
        comm: &CommReport,
        it: &OperationReport,
    ) {
        let near = NearMiss {
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

    fn sorted(self) -> Vec<NearMiss> {
        let counted = self
            .0
            .into_iter()
            .map(|(it, count)| NearMiss { count, ..it });
        let sorted: BTreeSet<NearMiss> = counted.collect();
        sorted.into_iter().take(MOST_NEAR).collect()
    }
}

pub(crate) fn world(rank: Option<i64>) -> Option<i32> {
    rank.and_then(|rank| i32::try_from(rank).ok())
}

/// Maximum number of distinct near misses of one wait.
const MOST_NEAR: usize = 4;
