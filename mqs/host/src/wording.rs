// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes what ranks wait for; ranks with equal waits share a line.

use std::collections::BTreeMap;

use crate::near_miss::{Difference, NearMiss};
use crate::report::MessageData;
use crate::waits::{AwaitedKind, AwaitedOperation, JobWaits, RankState, RankWait};

/// One line of text about some ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankLine {
    /// The ranks.
    pub who: Vec<i32>,
    /// Their state.
    pub text: String,
    /// Further lines.
    pub beside: Vec<String>,
}

/// Formats ranks: `rank 3`, `ranks 0 and 2`, `ranks 0-3 and 7`.
#[must_use]
pub fn ranks(list: &[i32]) -> String {
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = runs(&sorted);
    let noun = match sorted.len() {
        0 => return "no rank".to_owned(),
        1 => "rank",
        _ => "ranks",
    };
    match runs.split_last() {
        Some((last, [])) => format!("{noun} {last}"),
        Some((last, before)) => format!("{noun} {} and {last}", before.join(", ")),
        None => noun.to_owned(),
    }
}

/// Formats sorted ranks: three or more consecutive ones as `first-last`, any other by itself.
fn runs(sorted: &[i32]) -> Vec<String> {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for rank in sorted {
        match runs.last_mut() {
            Some((_, last)) if i64::from(*last) + 1 == i64::from(*rank) => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let mut texts = Vec::new();
    for (first, last) in runs {
        match last - first {
            0 => texts.push(first.to_string()),
            1 => texts.extend([first.to_string(), last.to_string()]),
            _ => texts.push(format!("{first}-{last}")),
        }
    }
    texts
}

/// The singular or plural form of a verb: `has` or `have`.
#[must_use]
pub fn verb(list: &[i32], one: &'static str, many: &'static str) -> &'static str {
    if list.len() == 1 { one } else { many }
}

/// The lines, sorted by first rank. Ranks with equal texts share a line. Of the other ranks, `MANY` or more share a
/// line if their texts are equal when peers are named by their distance.
#[must_use]
pub fn lines(waits: &JobWaits) -> Vec<RankLine> {
    let numbered = || (0..).zip(&waits.states);
    let absolute = fold(numbered().map(|(me, it)| (me, text(it, PeerNames::plain(me)))));
    let (alone, mut lines): (Vec<RankLine>, Vec<RankLine>) =
        absolute.into_iter().partition(|line| line.who.len() == 1);
    let size = i32::try_from(waits.states.len()).unwrap_or(i32::MAX);
    let again = alone.iter().filter_map(|line| {
        let me = *line.who.first()?;
        let state = waits.states.get(usize::try_from(me).ok()?)?;
        let names = PeerNames {
            me,
            size: Some(size),
        };
        Some((me, text(state, names)))
    });
    let (few, many): (Vec<RankLine>, Vec<RankLine>) = fold(again)
        .into_iter()
        .partition(|line| line.who.len() < MANY);
    let singles = alone
        .into_iter()
        .filter(|line| few.iter().any(|it| it.who.contains(&line.who[0])));
    lines.extend(singles);
    lines.extend(many);
    lines.sort_by_key(|line| line.who.first().copied());
    lines
}

/// Groups ranks by equal text.
fn fold(all: impl Iterator<Item = (i32, (String, Vec<String>))>) -> Vec<RankLine> {
    let mut by_text: BTreeMap<(String, Vec<String>), Vec<i32>> = BTreeMap::new();
    for (rank, text) in all {
        by_text.entry(text).or_default().push(rank);
    }
    let lines = by_text.into_iter();
    let lines = lines.map(|((text, beside), who)| RankLine { who, text, beside });
    lines.collect()
}

/// How peers are named in the text.
#[derive(Clone, Copy, Debug)]
struct PeerNames {
    me: i32,
    /// `Some`: peers are named by their distance in a ring of this many ranks. `None`: by their numbers.
    size: Option<i32>,
}

impl PeerNames {
    fn plain(me: i32) -> Self {
        Self { me, size: None }
    }

    fn of(self, rank: i32) -> String {
        let Some(size) = self.size.filter(|size| *size > 0) else {
            return format!("rank {rank}");
        };
        let ahead = (rank - self.me).rem_euclid(size);
        match (ahead, size - ahead) {
            (0, _) => "itself".to_owned(),
            (1, _) => "the next rank".to_owned(),
            (_, 1) => "the rank before".to_owned(),
            (ahead, behind) if ahead <= behind => format!("the rank {ahead} after it"),
            (_, behind) => format!("the rank {behind} before it"),
        }
    }
}

/// The state of a rank, and further lines about it.
fn text(state: &RankState, names: PeerNames) -> (String, Vec<String>) {
    let plain = |text: &str| (text.to_owned(), Vec::new());
    match state {
        RankState::Outside => plain("not waiting in MPI"),
        RankState::Unknown => plain("may wait, or not"),
        RankState::Finalized => plain("has finalized MPI"),
        RankState::Ended => plain("has ended"),
        RankState::Unseen => plain("was not looked at"),
        RankState::Waits(waits) => match &waits[..] {
            [only] => wait(only, names),
            several => {
                let mut beside = Vec::new();
                for it in several {
                    let (text, more) = wait(it, names);
                    beside.push(text);
                    beside.extend(more.into_iter().map(|line| format!("  {line}")));
                }
                (format!("{} threads wait", several.len()), beside)
            }
        },
    }
}

fn wait(wait: &RankWait, names: PeerNames) -> (String, Vec<String>) {
    let mut beside = Vec::new();
    let call = match wait.done {
        Some((done, all)) => {
            let are = if done == 1 { "is" } else { "are" };
            format!("{} ({done} of {all} requests {are} done)", wait.call)
        }
        None => wait.call.clone(),
    };
    let text = match &wait.pending[..] {
        [] => call,
        [only] => {
            beside.extend(only.near.iter().map(|it| near(only, it, names)));
            format!("{call} {}", pending(only, names))
        }
        several => {
            for it in several.iter().take(MOST_PENDING) {
                beside.push(pending(it, names));
                let near = it.near.iter().map(|found| near(it, found, names));
                beside.extend(near.map(|line| format!("  {line}")));
            }
            if several.len() > MOST_PENDING {
                beside.push(format!("and {} more", several.len() - MOST_PENDING));
            }
            let how = if wait.all { "all" } else { "one" };
            format!("{call} for {how} of {}", several.len())
        }
    };
    (text, beside)
}

/// The text of an awaited operation.
fn pending(it: &AwaitedOperation, names: PeerNames) -> String {
    let mut text = match &it.what {
        AwaitedKind::Receive | AwaitedKind::Probe => format!(
            "from {}, {}",
            it.peer
                .map_or_else(|| "any rank".to_owned(), |peer| names.of(peer)),
            tag(it.tag)
        ),
        AwaitedKind::Send => format!(
            "to {}, {}",
            it.peer
                .map_or_else(|| "a rank".to_owned(), |peer| names.of(peer)),
            tag(it.tag)
        ),
        AwaitedKind::Collective { name, number } => {
            let come = match (it.mixed, it.ranks.is_empty()) {
                (true, _) => "every rank has come, but not to the same".to_owned(),
                (false, true) => "every rank has come".to_owned(),
                (false, false) => format!("waits for {}", ranks(&it.ranks)),
            };
            let differs = it.near.iter().any(|near| near.other == Difference::Size);
            let with = with(it.local_peer, differs.then_some(it.data.bytes));
            let which = if it.begun {
                format!("{name}{with}, ")
            } else {
                String::new()
            };
            let with = if it.begun { String::new() } else { with };
            let number = match number {
                _ if it.begun => String::new(),
                0 => String::new(),
                number => format!("call {number} "),
            };
            return format!("{which}{number}on {}{with}: {come}", it.name);
        }
        AwaitedKind::Finalize => {
            return match it.ranks.is_empty() {
                true => "with all others".to_owned(),
                false => format!("waits for {}", ranks(&it.ranks)),
            };
        }
    };
    if it.what != AwaitedKind::Probe {
        text += &format!(", {}", data(&it.data));
    }
    text += &format!(", on {}", it.name);
    if it.under_way {
        text += "; the other side is there";
    }
    text
}

fn near(it: &AwaitedOperation, found: &NearMiss, names: PeerNames) -> String {
    let rank = names.of(found.rank);
    let count = match found.count {
        0 | 1 => String::new(),
        count => format!(" ({count} of them)"),
    };
    if found.other == Difference::Collective {
        return format!("{rank} is in MPI_{} on {} instead", found.name, it.name);
    }
    if found.other == Difference::Root {
        let root = found.peer.unwrap_or(-1);
        return format!("{rank} calls it with root {root}");
    }
    if found.other == Difference::Size {
        return format!("{rank} calls it with {}", bytes(found.data.bytes));
    }
    if found.other == Difference::Through {
        return format!(
            "{rank} is through with it: if its data do not come, it gave other counts or datatypes"
        );
    }
    if found.other == Difference::Inactive {
        return format!(
            "{rank} has a persistent receive that fits and is not started (MPI_Recv_init without MPI_Start){count}"
        );
    }
    let difference = match found.other {
        Difference::Tag => tag(found.tag),
        Difference::Communicator => format!("on {}", found.name),
        _ => String::new(),
    };
    let size = data(&found.data);
    match (&it.what, found.other) {
        (AwaitedKind::Send, Difference::Rank) => {
            let peer = found
                .peer
                .map_or_else(|| "any rank".to_owned(), |peer| names.of(peer));
            format!("{rank} receives from {peer} with this tag{count}")
        }
        (AwaitedKind::Send, _) => {
            format!("{rank} receives from it {difference}, {size}{count}")
        }
        (_, Difference::Rank) => {
            format!("a message with this tag has come from {rank}, {size}{count}")
        }
        _ => format!("what has come from {rank}: {difference}, {size}{count}"),
    }
}

/// Formats a tag: `tag 7`, or `any tag`.
#[must_use]
pub fn tag(tag: Option<i64>) -> String {
    tag.map_or_else(|| "any tag".to_owned(), |tag| format!("tag {tag}"))
}

/// Formats a size: `40 bytes (10 of MPI_INT)`, or only the bytes if the datatype is unknown.
#[must_use]
pub fn data(it: &MessageData) -> String {
    let size = bytes(it.bytes);
    match (it.items, &it.datatype) {
        (Some(items), Some(datatype)) => format!("{size} ({items} of {datatype})"),
        (None, Some(datatype)) => format!("{size} of {datatype}"),
        (_, None) => size,
    }
}

/// Formats the known arguments of a collective: ` with root 1 and 8 bytes`.
#[must_use]
pub fn with(root: Option<i64>, size: Option<i64>) -> String {
    match (root, size) {
        (Some(root), Some(size)) => format!(" with root {root} and {}", bytes(size)),
        (Some(root), None) => format!(" with root {root}"),
        (None, Some(size)) => format!(" with {}", bytes(size)),
        (None, None) => String::new(),
    }
}

/// Formats a number of bytes: `1 byte`, `8 bytes`.
#[must_use]
pub fn bytes(bytes: i64) -> String {
    match bytes {
        1 => "1 byte".to_owned(),
        bytes => format!("{bytes} bytes"),
    }
}

/// Minimum number of ranks that share a line because their peers are at equal distances.
const MANY: usize = 3;
/// Maximum number of pending operations listed for one call.
const MOST_PENDING: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_ranks_are_printed_as_a_range() {
        assert_eq!(ranks(&[]), "no rank");
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[1, 0]), "ranks 0 and 1");
        assert_eq!(ranks(&[0, 1, 2, 3, 7]), "ranks 0-3 and 7");
        assert_eq!(ranks(&[9, 4, 5, 6, 1]), "ranks 1, 4-6 and 9");
    }
}
