// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of the comparison: one of runs, and one of rows with their bars.

use super::bars::{Bar, CompareRow, FigureSource, LimitOf, Placement, ProgramRun};
use super::{between, frames};
use crate::icount::{ISEND_BUDGET, SUM_BUDGET};
use crate::unit::FigureUnit;

const fn pair(
    id: &'static str,
    program: &'static str,
    options: &'static [&'static str],
) -> ProgramRun {
    ProgramRun {
        id,
        program,
        options,
        ranks: 2,
        placement: Placement::Pair,
        repeats: 1,
    }
}

const fn one_cpu(id: &'static str, placement: Placement) -> ProgramRun {
    let options = &["--sizes", "8", "--seconds", "0.3"];
    ProgramRun {
        id,
        program: "latency",
        options,
        ranks: 2,
        placement,
        repeats: 1,
    }
}

const fn crowd(
    id: &'static str,
    program: &'static str,
    options: &'static [&'static str],
) -> ProgramRun {
    ProgramRun {
        id,
        program,
        options,
        ranks: 64,
        placement: Placement::Crowd,
        repeats: 1,
    }
}

/// A run of eight ranks.
const fn eight(id: &'static str, options: &'static [&'static str]) -> ProgramRun {
    ProgramRun {
        ranks: 8,
        ..crowd(id, "ring", options)
    }
}

/// A run in which the calls of one rank are counted; the options are the arguments of [`crate::icount::count`].
const fn counted(id: &'static str, options: &'static [&'static str]) -> ProgramRun {
    ProgramRun {
        placement: Placement::Counted,
        ..pair(id, "isend_count", options)
    }
}

const SMALL: &[&str] = &["--sizes", "8", "--seconds", "1"];
const LARGE: &[&str] = &["--sizes", "4K,16K,64K,1M,4M", "--seconds", "0.3"];
const SUMS: &[&str] = &["--sizes", "64K,1M,4M", "--seconds", "0.3"];
const LARGE_SINGLE: &[&str] = &[
    "--sizes",
    "64K,1M,4M",
    "--seconds",
    "0.3",
    "--one-at-a-time",
];

/// Options of a halo exchange. rmpi exchanges over QMP; the peers use persistent requests, as lattice programs do
/// without QMP.
const HALO: &[&str] = &[
    "--sizes",
    "1K,4K,16K,64K,256K",
    "--seconds",
    "0.3",
    "--alloc",
    "mpi",
];

/// Concatenates the parts of a table, which have `N` entries in all.
const fn joined<T: Copy, const N: usize>(parts: [&[T]; 3]) -> [T; N] {
    let mut all = [parts[0][0]; N];
    let (mut part, mut at) = (0, 0);
    while part < parts.len() {
        let mut place = 0;
        while place < parts[part].len() {
            all[at] = parts[part][place];
            (place, at) = (place + 1, at + 1);
        }
        part += 1;
    }
    assert!(at == N, "all places are filled");
    all
}

/// All runs.
pub const RUNS: &[ProgramRun] = &joined::<
    _,
    { HERE_RUNS.len() + between::RUNS.len() + frames::RUNS.len() },
>([HERE_RUNS, &between::RUNS, &frames::RUNS]);

/// The runs on this machine without DPDK.
const HERE_RUNS: &[ProgramRun] = &[
    pair(
        "latency",
        "latency",
        &["--sizes", "0,1,8,32,64,256,1K,4K,64K"],
    ),
    pair("rate", "rate", &["--sizes", "8"]),
    pair("threads1", "threads", &["--sizes", "8"]),
    pair("threads2", "threads", &["--sizes", "8", "--two"]),
    pair("threads4", "threads", &["--sizes", "8", "--four"]),
    pair("bandwidth", "bandwidth", LARGE),
    pair("single", "bandwidth", LARGE_SINGLE),
    pair("bibw", "bibw", LARGE),
    one_cpu("onecore-around", Placement::MaskAround),
    one_cpu("onecore-behind", Placement::MaskBehind),
    crowd("ring", "ring", SMALL),
    eight("ring8", SMALL),
    eight("ring8-test", &["--sizes", "8", "--seconds", "1", "--test"]),
    eight(
        "ring8-testall",
        &["--sizes", "8", "--seconds", "1", "--testall"],
    ),
    eight(
        "ring8-iprobe",
        &["--sizes", "8", "--seconds", "1", "--iprobe"],
    ),
    crowd(
        "ring64-test",
        "ring",
        &["--sizes", "8", "--seconds", "1", "--test"],
    ),
    crowd(
        "ring64-testall",
        "ring",
        &["--sizes", "8", "--seconds", "1", "--testall"],
    ),
    crowd(
        "ring64-iprobe",
        "ring",
        &["--sizes", "8", "--seconds", "1", "--iprobe"],
    ),
    crowd("barrier", "barrier", &["--seconds", "1"]),
    crowd("allreduce", "allreduce", SMALL),
    crowd(
        "allreduce-large",
        "allreduce",
        &["--sizes", "64K", "--seconds", "1"],
    ),
    crowd("alltoall", "alltoall", SMALL),
    crowd("bcast", "bcast", SMALL),
    crowd(
        "bcast-root0",
        "bcast",
        &["--sizes", "8", "--seconds", "1", "--root-0"],
    ),
    ProgramRun {
        placement: Placement::Apart,
        ..pair("halo2", "halo", HALO)
    },
    ProgramRun {
        ranks: 8,
        ..crowd("halo8", "halo", HALO)
    },
    ProgramRun {
        ranks: 16,
        ..crowd("halo16", "halo", HALO)
    },
    ProgramRun {
        repeats: 3,
        placement: Placement::Apart,
        ..pair("startup2", "startup", &[])
    },
    crowd("startup64", "startup", &[]),
    crowd("memory", "memory", &[]),
    pair("sum2", "allreduce", SUMS),
    ProgramRun {
        ranks: 8,
        ..crowd("sum8", "allreduce", SUMS)
    },
    counted("count", &[]),
    counted("count0", &["0"]),
    counted("count1", &["1"]),
    counted("count4", &["4"]),
    counted("count8", &["8"]),
    counted("count9", &["9"]),
    counted("count16", &["16"]),
    counted("count32", &["32"]),
    counted("count48", &["48"]),
    counted("count64", &["64"]),
    counted("count256", &["256"]),
    counted("count1k", &["1024"]),
    counted("count8-multiple", &["8", "multiple"]),
    counted("count16-multiple", &["16", "multiple"]),
    counted("count48-multiple", &["48", "multiple"]),
    counted("count64-multiple", &["64", "multiple"]),
    counted("count1k-multiple", &["1024", "multiple"]),
];

const fn row(
    id: &'static str,
    group: &'static str,
    title: &'static str,
    from: (&'static str, FigureSource),
    unit: FigureUnit,
) -> CompareRow {
    CompareRow {
        id,
        group,
        title,
        run: from.0,
        source: from.1,
        unit,
        limit: None,
        bars: &[],
    }
}

const fn threads(id: &'static str, title: &'static str) -> CompareRow {
    row(
        id,
        PAIR,
        title,
        (id, FigureSource::Size(8)),
        FigureUnit::MessagesPerSecond,
    )
}

impl CompareRow {
    const fn with_limit(self, limit: &'static str, bars: &'static [&'static [Bar]]) -> Self {
        Self {
            limit: Some(LimitOf::Figure(limit)),
            bars,
            ..self
        }
    }

    /// Requires the bar [`NEAR`] with the limit `limit`: the time for copying in, setting a flag and copying out,
    /// without MPI.
    const fn near(self, limit: &'static str) -> Self {
        self.with_limit(limit, NEAR)
    }

    /// Sets the limit to the best of `limits`, the bandwidths at which one core or two cores copy data in one
    /// direction.
    const fn near_best(self, limits: &'static [&'static str]) -> Self {
        Self {
            limit: Some(LimitOf::BestOf(limits)),
            ..self
        }
    }

    /// Each rank gets a whole result, so two cores must copy the message `ranks` times: requires at most 1.5 times the
    /// time for that at the bandwidth `figure`.
    const fn near_copies(self, figure: &'static str, ranks: usize) -> Self {
        Self {
            limit: Some(LimitOf::TimeOf(figure, ranks)),
            bars: &[&[Bar::Limit(1.5)]],
            ..self
        }
    }

    /// Compares a polling ring with the ring `row`, which uses `MPI_Recv`, and with the peers.
    const fn relative_to(self, row: &'static str) -> Self {
        Self {
            limit: Some(LimitOf::Own(row)),
            bars: &[&[Bar::Limit(1.5)], &[Bar::Peer(1.0)]],
            ..self
        }
    }

    /// Compares several threads per rank with one thread per rank, and with the peers.
    const fn relative_to_one_thread(self) -> Self {
        Self {
            limit: Some(LimitOf::Own("threads1")),
            bars: &[&[Bar::Limit(1.0)], &[Bar::Peer(1.0)]],
            ..self
        }
    }

    const fn with_bars(self, bars: &'static [&'static [Bar]]) -> Self {
        Self { bars, ..self }
    }
}

const K: usize = 1 << 10;
const M: usize = 1 << 20;
const LATENCY: &str = "latency";
const PAIR: &str = "pair";
const CROWD: &str = "crowd";
const POLLING: &str = "polling";
/// Either clearly better than every peer, or near the machine's limit.
const BANDWIDTH: &[&[Bar]] = &[&[Bar::Peer(1.15), Bar::Limit(0.95)]];
/// The bars of [`BANDWIDTH`], and in addition at least 0.9 of the limit.
const STREAM: &[&[Bar]] = &[&[Bar::Peer(1.15), Bar::Limit(0.95)], &[Bar::Limit(0.9)]];
const NEAR_RATE: &[&[Bar]] = &[&[Bar::Limit(0.9)]];
/// The bar of latencies from 0 bytes to 4 KiB.
const NEAR: &[&[Bar]] = &[&[Bar::Limit(1.3)]];
const AT_MOST_330: &[&[Bar]] = &[&[Bar::Value(330.0)]];
const AT_MOST_480: &[&[Bar]] = &[&[Bar::Value(480.0)]];
const BETTER: &[&[Bar]] = &[&[Bar::Peer(1.0)]];
const ONE_CPU: &[&[Bar]] = &[&[Bar::Limit(1.2)]];
const AHEAD: &[&[Bar]] = &[&[Bar::Peer(1.0)]];
const THRICE: &[&[Bar]] = &[&[Bar::Peer(3.0)]];
const FIFTH_MORE: &[&[Bar]] = &[&[Bar::Peer(1.2)]];
const HALF_MORE: &[&[Bar]] = &[&[Bar::Peer(1.5)]];
const FIVE_TIMES: &[&[Bar]] = &[&[Bar::Peer(5.0)]];

const fn bandwidth(
    id: &'static str,
    title: &'static str,
    run: &'static str,
    size: usize,
) -> CompareRow {
    row(
        id,
        PAIR,
        title,
        (run, FigureSource::Size(size)),
        FigureUnit::MegabytesPerSecond,
    )
}

const fn time(
    id: &'static str,
    group: &'static str,
    title: &'static str,
    run: &'static str,
    size: usize,
) -> CompareRow {
    row(
        id,
        group,
        title,
        (run, FigureSource::Size(size)),
        FigureUnit::Us,
    )
}

const fn count(id: &'static str, title: &'static str, index: usize) -> CompareRow {
    row(
        id,
        "instructions",
        title,
        ("count", FigureSource::Size(index)),
        FigureUnit::Instructions,
    )
}

/// A row with the instructions of `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` together, from the run with the same id.
const fn sum(id: &'static str, title: &'static str) -> CompareRow {
    row(
        id,
        "instructions",
        title,
        (id, FigureSource::Size(3)),
        FigureUnit::Instructions,
    )
}

/// All rows, in the order of the tables.
pub const ROWS: &[CompareRow] = &joined::<
    _,
    { HERE_ROWS.len() + between::ROWS.len() + frames::ROWS.len() },
>([HERE_ROWS, &between::ROWS, &frames::ROWS]);

/// The rows on this machine without DPDK.
const HERE_ROWS: &[CompareRow] = &[
    time("latency0", PAIR, "latency 0 B", LATENCY, 0).near("line"),
    time("latency1", PAIR, "latency 1 B", LATENCY, 1).near("line"),
    time("latency8", PAIR, "latency 8 B", LATENCY, 8)
        .with_limit("line", &[&[Bar::Limit(1.25)], &[Bar::Peer(1.0)]]),
    time("latency32", PAIR, "latency 32 B", LATENCY, 32).near("line"),
    time("latency64", PAIR, "latency 64 B", LATENCY, 64).near("block.64"),
    time("latency256", PAIR, "latency 256 B", LATENCY, 256).near("block.256"),
    time("latency1k", PAIR, "latency 1 KiB", LATENCY, K).near("block.1024"),
    time("latency4k", PAIR, "latency 4 KiB", LATENCY, 4 * K).near("block.4096"),
    CompareRow {
        limit: Some(LimitOf::TimeOf("split.65536", 1)),
        ..time("latency64k", PAIR, "latency 64 KiB", LATENCY, 64 * K)
    }
    .with_bars(BETTER),
    row(
        "rate8",
        PAIR,
        "rate 8 B",
        ("rate", FigureSource::Size(8)),
        FigureUnit::MessagesPerSecond,
    )
    .with_limit("slots", HALF_MORE),
    threads("threads1", "rate 8 B, MPI_THREAD_MULTIPLE").with_bars(BETTER),
    threads("threads2", "the same, two threads a rank").relative_to_one_thread(),
    threads("threads4", "the same, four threads a rank").relative_to_one_thread(),
    bandwidth("bandwidth4k", "bandwidth 4 KiB", "bandwidth", 4 * K)
        .near_best(&["memcpy.4096", "read.4096", "split.4096"])
        .with_bars(NEAR_RATE),
    bandwidth("bandwidth16k", "bandwidth 16 KiB", "bandwidth", 16 * K)
        .near_best(&["memcpy.16384", "read.16384", "split.16384"])
        .with_bars(NEAR_RATE),
    bandwidth("bandwidth64k", "bandwidth 64 KiB", "bandwidth", 64 * K)
        .near_best(&["memcpy.65536", "read.65536", "split.65536"])
        .with_bars(STREAM),
    bandwidth("bandwidth1m", "bandwidth 1 MiB", "bandwidth", M)
        .near_best(&["memcpy.1048576", "read.1048576", "split.1048576"])
        .with_bars(STREAM),
    bandwidth("bandwidth4m", "bandwidth 4 MiB", "bandwidth", 4 * M)
        .near_best(&["memcpy.4194304", "read.4194304", "split.4194304"])
        .with_bars(STREAM),
    bandwidth("single64k", "one at a time 64 KiB", "single", 64 * K)
        .with_limit("split.65536", BANDWIDTH),
    bandwidth("single1m", "one at a time 1 MiB", "single", M)
        .with_limit("split.1048576", BANDWIDTH),
    bandwidth("single4m", "one at a time 4 MiB", "single", 4 * M)
        .with_limit("split.4194304", BANDWIDTH),
    bandwidth("bibw4k", "both ways 4 KiB", "bibw", 4 * K).with_limit("both.4096", NEAR_RATE),
    bandwidth("bibw16k", "both ways 16 KiB", "bibw", 16 * K).with_limit("both.16384", NEAR_RATE),
    bandwidth("bibw64k", "both ways 64 KiB", "bibw", 64 * K).with_limit("both.65536", NEAR_RATE),
    bandwidth("bibw1m", "both ways 1 MiB", "bibw", M).with_limit("both.1048576", NEAR_RATE),
    bandwidth("bibw4m", "both ways 4 MiB", "bibw", 4 * M).with_limit("both.4194304", NEAR_RATE),
    time(
        "onecore-around",
        "onecore",
        "8 B on one CPU, mask around the launcher",
        "onecore-around",
        8,
    )
    .with_limit("yield", ONE_CPU),
    time(
        "onecore-behind",
        "onecore",
        "8 B on one CPU, mask behind the launcher",
        "onecore-behind",
        8,
    )
    .with_limit("yield", ONE_CPU),
    time("ring64", CROWD, "64 ranks: ring, one hop", "ring", 8).with_limit("ring64", THRICE),
    time(
        "ring64-test",
        POLLING,
        "64 ranks: ring, polling with MPI_Test",
        "ring64-test",
        8,
    )
    .relative_to("ring64"),
    time(
        "ring64-testall",
        POLLING,
        "64 ranks: ring, MPI_Testall",
        "ring64-testall",
        8,
    )
    .relative_to("ring64"),
    time(
        "ring64-iprobe",
        POLLING,
        "64 ranks: ring, MPI_Iprobe",
        "ring64-iprobe",
        8,
    )
    .relative_to("ring64"),
    time("ring8", POLLING, "8 ranks: ring, one hop", "ring8", 8).with_bars(AHEAD),
    time(
        "ring8-test",
        POLLING,
        "8 ranks: ring, polling with MPI_Test",
        "ring8-test",
        8,
    )
    .relative_to("ring8"),
    time(
        "ring8-testall",
        POLLING,
        "8 ranks: ring, MPI_Testall",
        "ring8-testall",
        8,
    )
    .relative_to("ring8"),
    time(
        "ring8-iprobe",
        POLLING,
        "8 ranks: ring, MPI_Iprobe",
        "ring8-iprobe",
        8,
    )
    .relative_to("ring8"),
    time("barrier64", CROWD, "64 ranks: barrier", "barrier", 0).with_limit("barrier64", THRICE),
    time(
        "allreduce8",
        CROWD,
        "64 ranks: allreduce 8 B",
        "allreduce",
        8,
    )
    .with_limit("barrier64", THRICE),
    time(
        "allreduce64k",
        CROWD,
        "64 ranks: allreduce 64 KiB",
        "allreduce-large",
        64 * K,
    )
    .with_bars(HALF_MORE),
    time("alltoall8", CROWD, "64 ranks: alltoall 8 B", "alltoall", 8).with_bars(HALF_MORE),
    time(
        "bcast8",
        CROWD,
        "64 ranks: bcast 8 B, root goes round",
        "bcast",
        8,
    ),
    time(
        "bcast8-root0",
        CROWD,
        "64 ranks: bcast 8 B, root 0",
        "bcast-root0",
        8,
    ),
    time(
        "halo2-1k",
        "halo",
        "2 ranks: halo exchange, faces of 1 KiB",
        "halo2",
        K,
    )
    .with_bars(BETTER),
    time(
        "halo2-4k",
        "halo",
        "2 ranks: halo exchange, faces of 4 KiB",
        "halo2",
        4 * K,
    )
    .with_bars(FIFTH_MORE),
    time(
        "halo2-16k",
        "halo",
        "2 ranks: halo exchange, faces of 16 KiB",
        "halo2",
        16 * K,
    )
    .with_bars(FIFTH_MORE),
    time(
        "halo2-64k",
        "halo",
        "2 ranks: halo exchange, faces of 64 KiB",
        "halo2",
        64 * K,
    )
    .with_bars(FIFTH_MORE),
    time(
        "halo2-256k",
        "halo",
        "2 ranks: halo exchange, faces of 256 KiB",
        "halo2",
        256 * K,
    )
    .with_bars(BETTER),
    time(
        "halo8-1k",
        "halo",
        "8 ranks: halo exchange, faces of 1 KiB",
        "halo8",
        K,
    )
    .with_bars(BETTER),
    time(
        "halo8-4k",
        "halo",
        "8 ranks: halo exchange, faces of 4 KiB",
        "halo8",
        4 * K,
    )
    .with_bars(HALF_MORE),
    time(
        "halo8-16k",
        "halo",
        "8 ranks: halo exchange, faces of 16 KiB",
        "halo8",
        16 * K,
    )
    .with_bars(HALF_MORE),
    time(
        "halo8-64k",
        "halo",
        "8 ranks: halo exchange, faces of 64 KiB",
        "halo8",
        64 * K,
    )
    .with_bars(HALF_MORE),
    time(
        "halo8-256k",
        "halo",
        "8 ranks: halo exchange, faces of 256 KiB",
        "halo8",
        256 * K,
    )
    .with_bars(BETTER),
    time(
        "halo16-1k",
        "halo",
        "16 ranks: halo exchange, faces of 1 KiB",
        "halo16",
        K,
    )
    .with_bars(BETTER),
    time(
        "halo16-4k",
        "halo",
        "16 ranks: halo exchange, faces of 4 KiB",
        "halo16",
        4 * K,
    )
    .with_bars(HALF_MORE),
    time(
        "halo16-16k",
        "halo",
        "16 ranks: halo exchange, faces of 16 KiB",
        "halo16",
        16 * K,
    )
    .with_bars(HALF_MORE),
    time(
        "halo16-64k",
        "halo",
        "16 ranks: halo exchange, faces of 64 KiB",
        "halo16",
        64 * K,
    )
    .with_bars(HALF_MORE),
    time(
        "halo16-256k",
        "halo",
        "16 ranks: halo exchange, faces of 256 KiB",
        "halo16",
        256 * K,
    )
    .with_bars(BETTER),
    row(
        "startup2",
        "startup",
        "hello world, 2 ranks",
        ("startup2", FigureSource::Wall),
        FigureUnit::Ms,
    )
    .with_limit("spawn2", FIVE_TIMES),
    row(
        "startup64",
        "startup",
        "hello world, 64 ranks",
        ("startup64", FigureSource::Wall),
        FigureUnit::Ms,
    )
    .with_limit("spawn64", FIVE_TIMES),
    row(
        "memory64",
        "memory",
        "64 ranks: private dirty after init",
        ("memory", FigureSource::Size(0)),
        FigureUnit::Kib,
    )
    .with_bars(&[&[Bar::Value(1536.0)]]),
    row(
        "memory64-pss",
        "memory",
        "64 ranks: Pss after init",
        ("memory", FigureSource::Size(1)),
        FigureUnit::Kib,
    ),
    row(
        "memory64-talk",
        "memory",
        "64 ranks: Pss after all pairs",
        ("memory", FigureSource::Size(3)),
        FigureUnit::Kib,
    ),
    time(
        "sum2-64k",
        "sums",
        "2 ranks: allreduce 64 KiB",
        "sum2",
        64 * K,
    )
    .near_copies("both.65536", 2),
    time("sum2-1m", "sums", "2 ranks: allreduce 1 MiB", "sum2", M).near_copies("both.1048576", 2),
    time("sum2-4m", "sums", "2 ranks: allreduce 4 MiB", "sum2", 4 * M)
        .near_copies("both.4194304", 2),
    time(
        "sum8-64k",
        "sums",
        "8 ranks: allreduce 64 KiB",
        "sum8",
        64 * K,
    )
    .near_copies("both.65536", 8),
    time("sum8-1m", "sums", "8 ranks: allreduce 1 MiB", "sum8", M).near_copies("both.1048576", 8),
    time("sum8-4m", "sums", "8 ranks: allreduce 4 MiB", "sum8", 4 * M)
        .near_copies("both.4194304", 8),
    count("isend", "MPI_Isend 8 B", 0).with_bars(&[&[Bar::Value(ISEND_BUDGET)]]),
    count("irecv", "MPI_Irecv 8 B", 1),
    count("wait", "MPI_Wait, message there", 2),
    count("isend-irecv-wait", "the three together", 3).with_bars(&[&[Bar::Value(SUM_BUDGET)]]),
    sum("count0", "the three, 0 B with a status").with_bars(AT_MOST_330),
    sum("count1", "the three, 1 B with a status").with_bars(AT_MOST_330),
    sum("count4", "the three, 4 B with a status").with_bars(AT_MOST_330),
    sum("count8", "the three, 8 B with a status").with_bars(AT_MOST_330),
    sum("count9", "the three, 9 B with a status").with_bars(AT_MOST_330),
    sum("count16", "the three, 16 B with a status").with_bars(AT_MOST_330),
    sum("count32", "the three, 32 B with a status").with_bars(AT_MOST_330),
    sum("count48", "the three, 48 B with a status").with_bars(AT_MOST_330),
    sum("count64", "the three, 64 B with a status").with_bars(&[&[Bar::Value(466.0)]]),
    sum("count256", "the three, 256 B with a status").with_bars(&[&[Bar::Value(514.0)]]),
    sum("count1k", "the three, 1 KiB with a status").with_bars(&[&[Bar::Value(706.0)]]),
    sum("count8-multiple", "the same, 8 B, MPI_THREAD_MULTIPLE").with_bars(AT_MOST_480),
    sum("count16-multiple", "the same, 16 B, MPI_THREAD_MULTIPLE").with_bars(AT_MOST_480),
    sum("count48-multiple", "the same, 48 B, MPI_THREAD_MULTIPLE").with_bars(AT_MOST_480),
    sum("count64-multiple", "the same, 64 B, MPI_THREAD_MULTIPLE")
        .with_bars(&[&[Bar::Value(616.0)]]),
    sum("count1k-multiple", "the same, 1 KiB, MPI_THREAD_MULTIPLE")
        .with_bars(&[&[Bar::Value(856.0)]]),
];

/// The run of a row.
#[must_use]
pub fn run_of(row: &CompareRow) -> &'static ProgramRun {
    let run = RUNS.iter().find(|run| run.id == row.run);
    run.expect("a test checks that every row has its run")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icount::{SIZES, size_aim};
    use crate::{limits, programs};
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let rows: BTreeSet<_> = ROWS.iter().map(|row| row.id).collect();
        let runs: BTreeSet<_> = RUNS.iter().map(|run| run.id).collect();
        assert_eq!((rows.len(), runs.len()), (ROWS.len(), RUNS.len()));
    }

    #[test]
    fn every_row_has_a_run_and_every_run_a_row_and_a_program() {
        for row in ROWS {
            assert_eq!(run_of(row).id, row.run);
        }
        for run in RUNS {
            assert!(ROWS.iter().any(|row| row.run == run.id), "{}", run.id);
            let source = programs::sources().join(format!("{}.c", run.program));
            assert!(source.is_file(), "{}", source.display());
        }
    }

    #[test]
    fn every_limit_of_a_row_can_be_measured() {
        let limits = ROWS.iter().filter_map(|row| row.limit);
        for figure in limits.clone().flat_map(|limit| limit.figures().to_vec()) {
            let name = figure.split('.').next().unwrap();
            let mut known = limits::names().chain(limits::tcp::names());
            assert!(known.any(|known| known == name), "{name}");
        }
        for row in ROWS {
            let between_hosts = run_of(row).placement.is_between_hosts();
            let alone = run_of(row).placement.is_rmpi_only();
            assert_eq!(frames::GROUPS.contains(&row.group), alone, "{}", row.id);
            let figures = row.limit.iter().flat_map(|limit| limit.figures());
            let mut stems = figures.map(|figure| figure.split('.').next().unwrap_or_default());
            let is_tcp = |stem: &str| limits::tcp::names().any(|known| known == stem);
            assert!(
                stems.all(|stem| is_tcp(stem) == between_hosts),
                "{}",
                row.id
            );
            let needs_hosts = between::GROUPS.contains(&row.group);
            assert_eq!(needs_hosts, between_hosts, "{}", row.id);
        }
        for limit in limits {
            if let LimitOf::Own(row) = limit {
                assert!(ROWS.iter().any(|known| known.id == row), "{row}");
            }
        }
    }

    #[test]
    fn a_bar_against_a_limit_has_one() {
        for row in ROWS {
            let against_limit = row
                .bars
                .iter()
                .flat_map(|bar| bar.iter())
                .any(|bar| matches!(bar, Bar::Limit(_)));
            assert!(!against_limit || row.limit.is_some(), "{}", row.id);
        }
    }

    #[test]
    fn every_size_has_its_bar() {
        let counted = RUNS.iter().filter_map(|run| match run.options {
            [bytes] if run.placement == Placement::Counted => Some((run.id, *bytes, 0.0)),
            [bytes, "multiple"] => Some((run.id, *bytes, 150.0)),
            _ => None,
        });
        let counted: Vec<_> = counted.collect();
        let alone = counted.iter().filter(|(.., more)| *more == 0.0);
        let sizes: Vec<u32> = alone.map(|(_, bytes, _)| bytes.parse().unwrap()).collect();
        assert_eq!(sizes, SIZES);
        for (run, bytes, more) in counted {
            let row = ROWS.iter().find(|row| row.run == run).unwrap();
            let most = size_aim(bytes.parse().unwrap()) + more;
            assert_eq!(row.bars, [[Bar::Value(most)]], "{run}");
        }
        for row in ROWS.iter().filter(|row| row.run == "latency") {
            let most = if row.id == "latency8" { 1.25 } else { 1.3 };
            let holds = row.id == "latency64k" || row.bars[0] == [Bar::Limit(most)];
            assert!(holds, "{}", row.id);
        }
        for row in ROWS
            .iter()
            .filter(|row| row.run == "bandwidth" || row.run == "bibw")
        {
            assert!(row.bars.contains(&&[Bar::Limit(0.9)][..]), "{}", row.id);
        }
    }

    #[test]
    fn runs_of_many_ranks_have_their_bars() {
        let bar = |id: &str| ROWS.iter().find(|row| row.id == id).unwrap().bars[0][0];
        for id in ["ring64", "barrier64", "allreduce8"] {
            assert_eq!(bar(id), Bar::Peer(3.0), "{id}");
        }
        for id in ["alltoall8", "allreduce64k"] {
            assert_eq!(bar(id), Bar::Peer(1.5), "{id}");
        }
        for id in ["startup2", "startup64"] {
            assert_eq!(bar(id), Bar::Peer(5.0), "{id}");
        }
        for id in ["halo8-4k", "halo8-64k", "halo16-4k", "halo16-64k"] {
            assert_eq!(bar(id), Bar::Peer(1.5), "{id}");
        }
        for id in ["halo2-4k", "halo2-16k", "halo2-64k"] {
            assert_eq!(bar(id), Bar::Peer(1.2), "{id}");
        }
        assert_eq!(bar("memory64"), Bar::Value(1536.0));
        let crowd = ROWS.iter().filter(|row| row.group == CROWD);
        assert!(crowd.into_iter().all(|row| run_of(row).ranks == 64));
    }
}
