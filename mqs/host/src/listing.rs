// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists the queues as text, by communicator; ranks with equal queues are listed together.

use std::fmt::Write as _;

use crate::report::{CommReport, OperationReport, RankReport};
use crate::wording::{self, bytes, ranks, tag};

/// Lists the queues of all ranks. `all`: whether to list everything, without the limit `MOST`.
#[must_use]
pub fn listing(found: &[RankReport], all: bool) -> String {
    let most = if all { usize::MAX } else { MOST };
    let mut out = String::new();
    let mut known: Vec<u64> = Vec::new();
    for comm in found.iter().flat_map(|rank| &rank.communicators) {
        if !known.contains(&comm.id) {
            known.push(comm.id);
        }
    }
    for id in known {
        let groups = groups(found, id, most);
        let Some(name) = groups.first().map(|it| it.name.clone()) else {
            continue;
        };
        let _ = writeln!(out, "\n{name}");
        for group in groups.iter().take(most) {
            let _ = writeln!(out, "  {}", group.describe_ranks(found));
            for line in &group.lines {
                let _ = writeln!(out, "    {line}");
            }
        }
        let left: Vec<i32> = groups
            .iter()
            .skip(most)
            .flat_map(|it| it.ranks.clone())
            .collect();
        if !left.is_empty() {
            let _ = writeln!(out, "  and {} (--all lists them)", ranks(&left));
        }
    }
    out
}

/// Lists the ranks of each host, for a job over several hosts.
#[must_use]
pub fn hosts(found: &[RankReport], all: bool) -> String {
    let mut hosts: Vec<(&str, Vec<i32>)> = Vec::new();
    for (rank, host) in found
        .iter()
        .filter_map(|it| it.rank.zip(it.host.as_deref()))
    {
        match hosts.iter_mut().find(|(name, _)| *name == host) {
            Some((_, ranks)) => ranks.push(rank),
            None => hosts.push((host, vec![rank])),
        }
    }
    if hosts.is_empty() {
        return String::new();
    }
    let most = if all { usize::MAX } else { MOST };
    let mut out = "\nhosts\n".to_owned();
    for (host, its) in hosts.iter().take(most) {
        let _ = writeln!(out, "  {host}: {}", ranks(its));
    }
    if hosts.len() > most {
        let _ = writeln!(out, "  and {} more (--all lists them)", hosts.len() - most);
    }
    out
}

/// Ranks whose queues are equal.
struct EqualRanks {
    name: String,
    ranks: Vec<i32>,
    lines: Vec<String>,
}

impl EqualRanks {
    fn describe_ranks(&self, found: &[RankReport]) -> String {
        let whose = ranks(&self.ranks);
        match self.ranks[..] {
            [only] => {
                let rank = found.iter().find(|it| it.rank == Some(only));
                rank.map_or_else(|| whose.clone(), |it| format!("{whose} ({})", it.process()))
            }
            _ => whose,
        }
    }
}

/// Groups the ranks of one communicator by equal queues; ranks with empty queues are left out.
fn groups(found: &[RankReport], id: u64, most: usize) -> Vec<EqualRanks> {
    let mut groups: Vec<EqualRanks> = Vec::new();
    for rank in found {
        let its = rank.communicators.iter().find(|it| it.id == id);
        let (Some(comm), Some(number)) = (its, rank.rank) else {
            continue;
        };
        let lines = lines(comm, most);
        if lines.is_empty() {
            continue;
        }
        match groups.iter_mut().find(|it| it.lines == lines) {
            Some(group) => group.ranks.push(number),
            None => groups.push(EqualRanks {
                name: comm.label(),
                ranks: vec![number],
                lines,
            }),
        }
    }
    groups
}

fn lines(comm: &CommReport, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for it in &comm.calls {
        let root = it.peer.filter(|_| it.waits == "waits for the other ranks");
        let with = wording::with(root, it.bytes);
        lines.push(format!("in {}{with}, {}", it.function, it.waits));
    }
    for it in &comm.begun {
        let with = wording::with(it.root, it.bytes);
        let call = it
            .call
            .as_ref()
            .map_or_else(String::new, |call| format!(", in {call}"));
        lines.push(format!("nonblocking {}{with} under way{call}", it.name));
    }
    for it in &comm.collectives {
        let of_calls = comm
            .calls
            .iter()
            .map(|call| call.function.strip_prefix("MPI_"));
        let all = of_calls.chain(comm.begun.iter().map(|it| Some(&*it.name)));
        let listed = all.filter(|name| *name == Some(&*it.name)).count();
        if usize::try_from(it.active).is_ok_and(|active| active > listed) {
            lines.push(format!("{} under way, call {}", it.name, it.called));
        }
    }
    let queues = [
        ("sends", "to", &comm.sends),
        ("receives", "from", &comm.receives),
        ("unexpected messages", "from", &comm.unexpected),
    ];
    for (name, towards, queue) in queues {
        if queue.is_empty() {
            continue;
        }
        lines.push(name.to_owned());
        let shown = queue.iter().take(most);
        lines.extend(shown.map(|it| format!("  {}", line(it, towards))));
        if queue.len() > most {
            lines.push(format!(
                "  and {} more (--all lists them)",
                queue.len() - most
            ));
        }
    }
    lines
}

fn line(it: &OperationReport, towards: &str) -> String {
    let peer = match (it.peer, it.world_peer) {
        (Some(rank), world) if world.is_none_or(|world| world == rank) => format!("rank {rank}"),
        (Some(rank), Some(world)) => format!("rank {rank} (rank {world} of all)"),
        (_, Some(world)) => format!("rank {world} of all"),
        _ => "any rank".to_owned(),
    };
    let mut line = format!("{towards} {peer}, {}, {}", tag(it.tag), bytes(it.bytes));
    let texts = it.words.iter().map(|text| match &it.call {
        // The wait's number, which is for programs, is dropped.
        Some(call) if text.starts_with("in ") => format!("in {call}"),
        _ => text.clone(),
    });
    let texts: Vec<String> = texts.collect();
    if !texts.is_empty() {
        let _ = write!(line, " ({})", texts.join("; "));
    }
    if let Some((rank, with, size)) = it.matched {
        let _ = write!(line, " <- rank {rank}, tag {with}, {}", bytes(size));
    }
    line
}

/// Maximum number of hosts, of groups of a communicator, and of operations of a queue, that are listed without `--all`.
const MOST: usize = 8;
