// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs and rows between hosts: messages between one rank on each of the first two hosts, compared with TCP or UDP
//! without MPI, and collectives of all ranks on all hosts.

use super::bars::{Bar, CompareRow, FigureSource, LimitOf, Placement, ProgramRun};
use crate::hosts::BenchHosts;
use crate::unit::FigureUnit;

/// The group of rows between hosts that all MPIs can run.
pub const GROUP: &str = "hosts";
/// The group of rows between hosts with rmpi over UDP.
const OVER_UDP: &str = "udp";
/// All groups that need hosts.
pub const GROUPS: [&str; 2] = [GROUP, OVER_UDP];

const LATENCY: &str = "hosts-latency";
const BANDWIDTH: &str = "hosts-bandwidth";
const ALLREDUCE: &str = "hosts-allreduce";
const UDP_LATENCY: &str = "udp-latency";
const UDP_BANDWIDTH: &str = "udp-bandwidth";
const RATE: &str = "hosts-rate";
const UDP_RATE: &str = "udp-rate";
const BARRIER: &str = "hosts-barrier";
const BCAST: &str = "hosts-bcast";
const ALLTOALL: &str = "hosts-alltoall";

const fn run(
    id: &'static str,
    program: &'static str,
    options: &'static [&'static str],
) -> ProgramRun {
    ProgramRun {
        id,
        program,
        options,
        ranks: 2,
        placement: Placement::Hosts,
        repeats: 1,
    }
}

/// A run of all ranks on all hosts.
const fn all(
    id: &'static str,
    program: &'static str,
    options: &'static [&'static str],
) -> ProgramRun {
    ProgramRun {
        placement: Placement::AllHosts,
        ..run(id, program, options)
    }
}

/// A run of one rank on each of two hosts; rmpi sends RoCE over UDP.
const fn over_udp(
    id: &'static str,
    program: &'static str,
    options: &'static [&'static str],
) -> ProgramRun {
    ProgramRun {
        placement: Placement::HostsOverUdp,
        ..run(id, program, options)
    }
}

const RATE_SIZES: &[&str] = &["--sizes", "8,64,200,1K", "--seconds", "0.3"];

pub(super) const RUNS: [ProgramRun; 10] = [
    over_udp(UDP_RATE, "rate", RATE_SIZES),
    run(RATE, "rate", RATE_SIZES),
    over_udp(
        UDP_LATENCY,
        "latency",
        &["--sizes", "8,64,1K", "--seconds", "0.3"],
    ),
    over_udp(
        UDP_BANDWIDTH,
        "bandwidth",
        &["--sizes", "4K,64K,1M,4M", "--seconds", "0.3"],
    ),
    run(
        LATENCY,
        "latency",
        &["--sizes", "0,1,8,9,64,1K,4K", "--seconds", "0.3"],
    ),
    run(
        BANDWIDTH,
        "bandwidth",
        &["--sizes", "4K,64K,1M,4M", "--seconds", "0.3"],
    ),
    all(
        ALLREDUCE,
        "allreduce",
        &["--sizes", "8,64K", "--seconds", "0.3"],
    ),
    all(BARRIER, "barrier", &["--seconds", "0.3"]),
    all(BCAST, "bcast", &["--sizes", "8,64K", "--seconds", "0.3"]),
    all(
        ALLTOALL,
        "alltoall",
        &["--sizes", "8,4K", "--seconds", "0.3"],
    ),
];

const fn latency(
    id: &'static str,
    title: &'static str,
    size: usize,
    raw: &'static str,
) -> CompareRow {
    CompareRow {
        id,
        group: GROUP,
        title,
        run: LATENCY,
        source: FigureSource::Size(size),
        unit: FigureUnit::Us,
        limit: Some(LimitOf::Figure(raw)),
        bars: &[],
    }
}

const fn bandwidth(
    id: &'static str,
    title: &'static str,
    size: usize,
    raw: &'static str,
) -> CompareRow {
    CompareRow {
        run: BANDWIDTH,
        unit: FigureUnit::MegabytesPerSecond,
        ..latency(id, title, size, raw)
    }
}

/// A row with the number of messages per second, in windows of 64.
const fn rate(id: &'static str, title: &'static str, size: usize) -> CompareRow {
    CompareRow {
        run: RATE,
        unit: FigureUnit::MessagesPerSecond,
        limit: None,
        bars: &[&[Bar::Level]],
        ..latency(id, title, size, "")
    }
}

/// Turns a row in which rmpi uses TCP into a row in which rmpi sends RoCE over UDP.
const fn of_udp(row: CompareRow) -> CompareRow {
    let run = match row.unit {
        FigureUnit::Us => UDP_LATENCY,
        FigureUnit::MessagesPerSecond => UDP_RATE,
        _ => UDP_BANDWIDTH,
    };
    CompareRow {
        group: OVER_UDP,
        run,
        ..row
    }
}

/// A row with the time of a collective of all ranks.
const fn collective(
    id: &'static str,
    title: &'static str,
    run: &'static str,
    size: usize,
) -> CompareRow {
    CompareRow {
        run,
        limit: None,
        ..latency(id, title, size, "")
    }
}

/// Near the bandwidth without MPI, and no other MPI is better.
const NEAR_RAW: &[&[Bar]] = &[&[Bar::Limit(0.9)], &[Bar::Level]];

/// The bar of collectives: the ranks of a node combine their data in shared memory, and only few ranks communicate with
/// other nodes.
const BY_NODE: &[&[Bar]] = &[&[Bar::Peer(3.0)]];

/// Adds the bar of collectives, which applies if [`has_bars`].
const fn with_collective_bar(row: CompareRow) -> CompareRow {
    CompareRow {
        bars: BY_NODE,
        ..row
    }
}

/// Whether the bars of collectives apply: they are for four hosts with 16 ranks each.
#[must_use]
pub fn has_bars(hosts: &BenchHosts) -> bool {
    hosts.list().len() == 4 && hosts.ranks_each() == Some(16)
}

/// The row as it is used for hosts for which [`has_bars`] is `false`: without bars if it is a row of a collective,
/// otherwise unchanged.
#[must_use]
pub fn shown(row: &'static CompareRow) -> &'static CompareRow {
    static ROWS_SHOWN: [CompareRow; ROWS.len()] = {
        let (mut rows, mut at) = (ROWS, 0);
        while at < rows.len() {
            rows[at].bars = &[];
            at += 1;
        }
        rows
    };
    let is_collective = RUNS
        .iter()
        .any(|run| run.id == row.run && run.placement == Placement::AllHosts);
    let own = ROWS_SHOWN.iter().find(|shown| shown.id == row.id);
    own.filter(|_| is_collective).unwrap_or(row)
}

pub(super) const ROWS: [CompareRow; 33] = [
    rate("hosts-rate8", "two hosts: rate 8 B", 8),
    rate("hosts-rate64", "two hosts: rate 64 B", 64),
    rate("hosts-rate200", "two hosts: rate 200 B", 200),
    rate("hosts-rate1k", "two hosts: rate 1 KiB", 1 << 10),
    of_udp(rate("udp-rate8", "two hosts, UDP: rate 8 B", 8)),
    of_udp(rate("udp-rate64", "two hosts, UDP: rate 64 B", 64)),
    of_udp(rate("udp-rate200", "two hosts, UDP: rate 200 B", 200)),
    of_udp(rate("udp-rate1k", "two hosts, UDP: rate 1 KiB", 1 << 10)),
    CompareRow {
        limit: None,
        ..latency("hosts-latency0", "two hosts: latency 0 B", 0, "")
    },
    latency("hosts-latency1", "two hosts: latency 1 B", 1, "tcp.1"),
    CompareRow {
        bars: &[&[Bar::Limit(1.15)], &[Bar::Peer(1.0)]],
        ..latency("hosts-latency8", "two hosts: latency 8 B", 8, "tcp.8")
    },
    latency("hosts-latency9", "two hosts: latency 9 B", 9, "tcp.9"),
    latency("hosts-latency64", "two hosts: latency 64 B", 64, "tcp.64"),
    latency(
        "hosts-latency1k",
        "two hosts: latency 1 KiB",
        1 << 10,
        "tcp.1024",
    ),
    latency(
        "hosts-latency4k",
        "two hosts: latency 4 KiB",
        4 << 10,
        "tcp.4096",
    ),
    bandwidth(
        "hosts-bandwidth4k",
        "two hosts: bandwidth 4 KiB",
        4 << 10,
        "tcp-stream.4096",
    ),
    CompareRow {
        bars: NEAR_RAW,
        ..bandwidth(
            "hosts-bandwidth64k",
            "two hosts: bandwidth 64 KiB",
            64 << 10,
            "tcp-stream.65536",
        )
    },
    CompareRow {
        bars: NEAR_RAW,
        ..bandwidth(
            "hosts-bandwidth1m",
            "two hosts: bandwidth 1 MiB",
            1 << 20,
            "tcp-stream.1048576",
        )
    },
    CompareRow {
        bars: NEAR_RAW,
        ..bandwidth(
            "hosts-bandwidth4m",
            "two hosts: bandwidth 4 MiB",
            4 << 20,
            "tcp-stream.4194304",
        )
    },
    of_udp(CompareRow {
        bars: &[&[Bar::Limit(1.15)], &[Bar::Peer(1.3)]],
        ..latency("udp-latency8", "two hosts, UDP: latency 8 B", 8, "udp.8")
    }),
    of_udp(latency(
        "udp-latency64",
        "two hosts, UDP: latency 64 B",
        64,
        "udp.64",
    )),
    of_udp(latency(
        "udp-latency1k",
        "two hosts, UDP: latency 1 KiB",
        1 << 10,
        "udp.1024",
    )),
    of_udp(bandwidth(
        "udp-bandwidth4k",
        "two hosts, UDP: bandwidth 4 KiB",
        4 << 10,
        "udp-stream.4096",
    )),
    of_udp(CompareRow {
        bars: NEAR_RAW,
        ..bandwidth(
            "udp-bandwidth64k",
            "two hosts, UDP: bandwidth 64 KiB",
            64 << 10,
            "udp-stream.65536",
        )
    }),
    of_udp(CompareRow {
        bars: NEAR_RAW,
        ..bandwidth(
            "udp-bandwidth1m",
            "two hosts, UDP: bandwidth 1 MiB",
            1 << 20,
            "udp-stream.1048576",
        )
    }),
    of_udp(CompareRow {
        bars: NEAR_RAW,
        ..bandwidth(
            "udp-bandwidth4m",
            "two hosts, UDP: bandwidth 4 MiB",
            4 << 20,
            "udp-stream.4194304",
        )
    }),
    with_collective_bar(collective(
        "hosts-barrier",
        "all hosts: barrier",
        BARRIER,
        0,
    )),
    with_collective_bar(collective(
        "hosts-allreduce8",
        "all hosts: allreduce 8 B",
        ALLREDUCE,
        8,
    )),
    with_collective_bar(collective(
        "hosts-allreduce64k",
        "all hosts: allreduce 64 KiB",
        ALLREDUCE,
        64 << 10,
    )),
    collective("hosts-bcast8", "all hosts: bcast 8 B", BCAST, 8),
    with_collective_bar(collective(
        "hosts-bcast64k",
        "all hosts: bcast 64 KiB",
        BCAST,
        64 << 10,
    )),
    with_collective_bar(collective(
        "hosts-alltoall8",
        "all hosts: alltoall 8 B",
        ALLTOALL,
        8,
    )),
    collective(
        "hosts-alltoall4k",
        "all hosts: alltoall 4 KiB",
        ALLTOALL,
        4 << 10,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_between_hosts_have_their_bars() {
        for row in &ROWS {
            let expected: &[&[Bar]] = match row.id {
                "hosts-latency8" => &[&[Bar::Limit(1.15)], &[Bar::Peer(1.0)]],
                "udp-latency8" => &[&[Bar::Limit(1.15)], &[Bar::Peer(1.3)]],
                "hosts-bandwidth64k" | "hosts-bandwidth1m" | "hosts-bandwidth4m"
                | "udp-bandwidth64k" | "udp-bandwidth1m" | "udp-bandwidth4m" => {
                    &[&[Bar::Limit(0.9)], &[Bar::Level]]
                }
                _ if row.id.contains("-rate") => &[&[Bar::Level]],
                "hosts-barrier" | "hosts-allreduce8" | "hosts-allreduce64k" | "hosts-bcast64k"
                | "hosts-alltoall8" => &[&[Bar::Peer(3.0)]],
                _ => &[],
            };
            assert_eq!(row.bars, expected, "{}", row.id);
            let is_collective = expected.contains(&&[Bar::Peer(3.0)][..]);
            assert_eq!(
                shown(row).bars.is_empty(),
                is_collective || expected.is_empty()
            );
            assert_eq!(shown(row).id, row.id);
        }
    }

    #[test]
    fn bars_of_collectives_are_for_four_hosts_of_sixteen() {
        let has_bars = |names| has_bars(&BenchHosts::parse(names, None).unwrap());
        assert!(has_bars("n[1-4]:16"));
        assert!(!has_bars("n[1-4]:4") && !has_bars("n[1-2]:16") && !has_bars("n1:16,n[2-4]:8"));
    }

    #[test]
    fn every_row_has_a_limit_of_its_own_size() {
        for row in &ROWS {
            let Some(LimitOf::Figure(name)) = row.limit else {
                continue;
            };
            let FigureSource::Size(size) = row.source else {
                panic!("{}", row.id)
            };
            assert!(name.ends_with(&format!(".{size}")), "{}", row.id);
        }
    }
}
