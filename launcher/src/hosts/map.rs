// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats the assignment of ranks to hosts as a table, with a line for each host and each program on the host.

use super::{JobHost, JobHosts, Slots, loads};
use crate::affinity::{Binding, RankAffinity, affinities};
use crate::cli::JobRequest;
use crate::failure::counted;
use crate::topology::{CpuTopology, ranges};

/// With `--topology`, the CPUs of each rank are shown even without `--bind-to` and `--report-bindings` if the job has
/// at most this many ranks.
const FEW_RANKS: u32 = 16;

/// The map of a request. If its ranks are not assigned yet, the lines have only the hosts and their slots.
pub(crate) fn lines(request: &JobRequest) -> Vec<String> {
    let Some(hosts) = &request.hosts else {
        return Vec::new();
    };
    let number = u32::try_from(hosts.list.len()).unwrap_or(u32::MAX);
    let number = counted(number, "host", "hosts");
    if hosts.rank_hosts.is_empty() {
        let mut lines = vec![format!("ranks on {number}:")];
        lines.extend(table(unknown_rows(hosts)));
        lines.push(advice(hosts));
        return lines;
    }
    let ranks = counted(request.size(), "rank", "ranks");
    let mut lines = vec![format!("{ranks} on {number}:")];
    lines.extend(table(rows(request, hosts)));
    let is_requested = request.binding != Binding::Auto || request.report_bindings;
    if let Some(topology) = &request.topology
        && (is_requested || request.size() <= FEW_RANKS)
    {
        lines.push(format!("each host as --topology says: {topology}"));
        lines.extend(places_of(request, hosts, topology));
    }
    lines
}

impl JobHost {
    /// The host as a user would write it, without its slots.
    #[must_use]
    pub fn label(&self) -> String {
        let user = self.user.iter().map(|user| format!("{user}@"));
        let port = self.port.iter().map(|port| format!(" port={port}"));
        let name = std::iter::once(self.name.clone());
        user.chain(name).chain(port).collect()
    }
}

/// The rows of a table, each with its cells; the first row is the header.
type Rows = Vec<Vec<String>>;

fn rows(request: &JobRequest, hosts: &JobHosts) -> Rows {
    let several = request.apps.len() > 1;
    let head = ["host", "slots", "ranks", "program"];
    let columns = if several { 4 } else { 3 };
    let mut rows = vec![
        head[..columns]
            .iter()
            .map(|&name| name.to_owned())
            .collect(),
    ];
    let mut dealt = vec![vec![Vec::new(); request.apps.len()]; hosts.list.len()];
    for ((rank, host), app) in (0..).zip(&hosts.rank_hosts).zip(apps(request)) {
        dealt[*host as usize][app].push(rank);
    }
    for (host, dealt) in hosts.list.iter().zip(dealt) {
        let (mut label, mut slots) = (host.label(), slots_of(hosts, host));
        if dealt.iter().all(Vec::is_empty) {
            rows.push(vec![label, slots, "none".to_owned()]);
            continue;
        }
        let of_apps = request.apps.iter().zip(dealt);
        for (app, ranks) in of_apps.filter(|(_, ranks)| !ranks.is_empty()) {
            let program = app.program.display().to_string();
            let mut row = vec![
                std::mem::take(&mut label),
                std::mem::take(&mut slots),
                shown(ranks),
            ];
            row.extend(several.then_some(program));
            rows.push(row);
        }
    }
    rows
}

/// Formats a list of ranks in short form. Of many equidistant ranks, only the first three and the last are shown.
fn shown(ranks: Vec<u32>) -> String {
    match ranks[..] {
        [first, second, third, .., last]
            if ranks.len() > 4
                && second > first + 1
                && ranks
                    .windows(2)
                    .all(|two| two[1] - two[0] == second - first) =>
        {
            format!("{first},{second},{third},...,{last}")
        }
        _ => ranges(ranks),
    }
}

fn unknown_rows(hosts: &JobHosts) -> Rows {
    let head = vec!["host".to_owned(), "slots".to_owned()];
    let row = |host: &JobHost| vec![host.label(), slots_of(hosts, host)];
    std::iter::once(head)
        .chain(hosts.list.iter().map(row))
        .collect()
}

fn slots_of(hosts: &JobHosts, host: &JobHost) -> String {
    match (hosts.per_host, host.slots) {
        (Some(number), _) | (None, Slots::Number(number)) => number.to_string(),
        (None, Slots::Cores) => "cores".to_owned(),
    }
}

/// The program of each rank.
fn apps(request: &JobRequest) -> impl Iterator<Item = usize> {
    let apps = request.apps.iter().enumerate();
    apps.flat_map(|(number, app)| (0..app.ranks).map(move |_| number))
}

/// Formats a table in columns; the second column is right-aligned.
fn table(rows: Rows) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, column| {
        row.get(column)
            .map_or(0, |cell: &String| cell.chars().count())
    };
    let width = |column| rows.iter().map(|row| cell(row, column)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let padded = cells.map(|(column, (text, width))| match column {
            1 => format!("{text:>width$}"),
            _ => format!("{text:width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A remark about the hosts whose number of cores is not known before the start.
fn advice(hosts: &JobHosts) -> String {
    let requested = hosts.list.iter().filter(|host| host.slots == Slots::Cores);
    let names: Vec<&str> = requested.map(|host| host.name.as_str()).collect();
    let first = names.first().copied().unwrap_or_default();
    let hosts_text = match names.len() {
        1 => first.to_owned(),
        number => format!("{number} hosts"),
    };
    format!(
        "the cores of {hosts_text} are asked when the job is started, and ranks are dealt out then; to see it here say how many \
         slots they have, as {first}:4"
    )
}

/// Lines with the CPUs that each rank would get if all hosts had topology `topology`.
fn places_of(request: &JobRequest, hosts: &JobHosts, topology: &CpuTopology) -> Vec<String> {
    let policy = request.policy(false);
    let of_host = |load: &u32| affinities(topology, *load, policy).into_iter();
    let mut places: Vec<_> = loads(hosts.list.len(), &hosts.rank_hosts)
        .iter()
        .map(of_host)
        .collect();
    let mut line = |((rank, host), app): ((u32, &u32), usize)| {
        let place: RankAffinity = places[*host as usize].next()?;
        let (program, affinity) = (
            request.apps[app].program.display(),
            place.describe(topology),
        );
        let name = hosts.list[*host as usize].label();
        Some(format!("rank {rank} of {program} on {name} {affinity}"))
    };
    let ranks = (0..).zip(&hosts.rank_hosts).zip(apps(request));
    ranks.filter_map(&mut line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::resolve::tests::settled;
    use super::*;

    fn map(line: &str) -> Vec<String> {
        lines(&settled(line).unwrap_or_else(|message| panic!("{line}: {message}")))
    }

    #[test]
    fn each_host_has_a_line_with_its_ranks() {
        assert_eq!(
            map("--host me@long.name:2,b:10,c -n 11 ./x"),
            [
                "11 ranks on 3 hosts:",
                "host          slots  ranks",
                "me@long.name      2  0-1",
                "b                10  2-10",
                "c                 1  none",
            ]
        );
        assert_eq!(
            map("--host a:2 --map-by node -n 2 ./x")[2],
            "a         2  0-1"
        );
        assert_eq!(
            map("--host a:2,b:2 --map-by node -n 4 ./x")[2],
            "a         2  0,2"
        );
        assert_eq!(
            map("--host a:9,b:9 --map-by node ./x")[3],
            "b         9  1,3,5,...,17"
        );
    }

    #[test]
    fn several_programs_have_a_line_each() {
        assert_eq!(
            map("--host a:3,b:2 -n 1 ./m : -n 4 ./w"),
            [
                "5 ranks on 2 hosts:",
                "host  slots  ranks  program",
                "a         3  0      ./m",
                "             1-2    ./w",
                "b         2  3-4    ./w",
            ]
        );
    }

    #[test]
    fn affinities_are_shown_for_few_ranks_of_a_known_topology() {
        let few = map("--host a:2,b --dry-run --topology core:2 ./x");
        assert_eq!(
            few[4..],
            [
                "each host as --topology says: 1 socket, 1 NUMA node, 2 cores, CPUs 0-1",
                "rank 0 of ./x on a is bound to CPU 0 (core 0, NUMA node 0, socket 0)",
                "rank 1 of ./x on a is bound to CPU 1 (core 1, NUMA node 0, socket 0)",
                "rank 2 of ./x on b may use CPUs 0-1 (cores 0-1, NUMA node 0, socket 0)",
            ]
        );
        let many = "--host a:9,b:9 --dry-run --topology core:2 ./x";
        assert_eq!(map(many).len(), 4);
        assert_eq!(map(&format!("--report-bindings {many}")).len(), 4 + 1 + 18);
    }

    #[test]
    fn map_names_hosts_whose_cores_are_unknown() {
        let mut request = settled("--host a:*,b ./x").unwrap();
        request.hosts.as_mut().unwrap().rank_hosts.clear();
        assert_eq!(
            lines(&request),
            [
                "ranks on 2 hosts:",
                "host  slots",
                "a     cores",
                "b         1",
                "the cores of a are asked when the job is started, and ranks are dealt out then; to see it here say how many \
                 slots they have, as a:4",
            ]
        );
    }
}
