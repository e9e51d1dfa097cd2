// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs and rows over DPDK between two ranks of this machine, compared with frames without MPI over the same
//! devices. The devices are either a shared-memory link (memif), which needs no hardware, or the two devices that
//! `RMPI_DPDK` names. No peer can run these.

use super::bars::{Bar, CompareRow, FigureSource, LimitOf, Placement, ProgramRun};
use crate::unit::FigureUnit;

const OVER_MEMIF: &str = "memif";
const OVER_DEVICES: &str = "dpdk";
/// The groups of these rows.
pub const GROUPS: [&str; 2] = [OVER_MEMIF, OVER_DEVICES];

const LATENCY_SIZES: &[&str] = &["--sizes", "8,64,1K", "--seconds", "0.3"];
const RATE_SIZES: &[&str] = &["--sizes", "8", "--seconds", "0.3"];
const BANDWIDTH_SIZES: &[&str] = &["--sizes", "4K,64K,1M,4M", "--seconds", "0.3"];

const fn run(
    id: &'static str,
    program: &'static str,
    options: &'static [&'static str],
    placement: Placement,
) -> ProgramRun {
    ProgramRun {
        id,
        program,
        options,
        ranks: 2,
        placement,
        repeats: 1,
    }
}

const UDP_RATE: &str = "udp-here-rate8";

pub(super) const RUNS: [ProgramRun; 7] = [
    run(
        "memif-latency",
        "latency",
        LATENCY_SIZES,
        Placement::OverMemif,
    ),
    run("memif-rate", "rate", RATE_SIZES, Placement::OverMemif),
    run(
        "memif-bandwidth",
        "bandwidth",
        BANDWIDTH_SIZES,
        Placement::OverMemif,
    ),
    run(UDP_RATE, "rate", RATE_SIZES, Placement::OverUdp),
    run(
        "dpdk-latency",
        "latency",
        LATENCY_SIZES,
        Placement::OverDevices,
    ),
    run("dpdk-rate", "rate", RATE_SIZES, Placement::OverDevices),
    run(
        "dpdk-bandwidth",
        "bandwidth",
        BANDWIDTH_SIZES,
        Placement::OverDevices,
    ),
];

const fn memif(
    id: &'static str,
    title: &'static str,
    (run, size, unit): (&'static str, usize, FigureUnit),
    limit: &'static str,
    bars: &'static [&'static [Bar]],
) -> CompareRow {
    CompareRow {
        id,
        group: OVER_MEMIF,
        title,
        run,
        source: FigureSource::Size(size),
        unit,
        limit: Some(LimitOf::Figure(limit)),
        bars,
    }
}

const fn devices(
    id: &'static str,
    title: &'static str,
    from: (&'static str, usize, FigureUnit),
    limit: &'static str,
    bars: &'static [&'static [Bar]],
) -> CompareRow {
    CompareRow {
        group: OVER_DEVICES,
        ..memif(id, title, from, limit, bars)
    }
}

const K: usize = 1 << 10;
const M: usize = 1 << 20;
const RATE: FigureUnit = FigureUnit::MessagesPerSecond;
const BANDWIDTH: FigureUnit = FigureUnit::MegabytesPerSecond;
/// A message may take 0.2 µs more than a frame.
const NEAR_FRAME: &[&[Bar]] = &[&[Bar::Above(0.2)]];
/// For devices of the kernel, whose frames take longer, the bar is a ratio.
const NEAR_DEVICE: &[&[Bar]] = &[&[Bar::Limit(1.25)]];
const HALF_RATE: &[&[Bar]] = &[&[Bar::Limit(0.5)]];
const NEAR_STREAM: &[&[Bar]] = &[&[Bar::Limit(0.8)]];

pub(super) const ROWS: [CompareRow; 18] = [
    memif(
        "memif-latency8",
        "memif: latency 8 B",
        ("memif-latency", 8, FigureUnit::Us),
        "memif.8",
        NEAR_FRAME,
    ),
    memif(
        "memif-latency64",
        "memif: latency 64 B",
        ("memif-latency", 64, FigureUnit::Us),
        "memif.64",
        NEAR_FRAME,
    ),
    memif(
        "memif-latency1k",
        "memif: latency 1 KiB",
        ("memif-latency", K, FigureUnit::Us),
        "memif.1024",
        &[],
    ),
    memif(
        "memif-rate8",
        "memif: rate 8 B",
        ("memif-rate", 8, RATE),
        "memif-rate",
        HALF_RATE,
    ),
    CompareRow {
        limit: None,
        ..memif(
            UDP_RATE,
            "UDP in this host: rate 8 B",
            (UDP_RATE, 8, RATE),
            "",
            &[],
        )
    },
    memif(
        "memif-bandwidth4k",
        "memif: bandwidth 4 KiB",
        ("memif-bandwidth", 4 * K, BANDWIDTH),
        "memif-stream.4096",
        &[],
    ),
    memif(
        "memif-bandwidth64k",
        "memif: bandwidth 64 KiB",
        ("memif-bandwidth", 64 * K, BANDWIDTH),
        "memif-stream.65536",
        NEAR_STREAM,
    ),
    memif(
        "memif-bandwidth1m",
        "memif: bandwidth 1 MiB",
        ("memif-bandwidth", M, BANDWIDTH),
        "memif-stream.1048576",
        NEAR_STREAM,
    ),
    memif(
        "memif-bandwidth4m",
        "memif: bandwidth 4 MiB",
        ("memif-bandwidth", 4 * M, BANDWIDTH),
        "memif-stream.4194304",
        NEAR_STREAM,
    ),
    devices(
        "dpdk-latency8",
        "DPDK: latency 8 B",
        ("dpdk-latency", 8, FigureUnit::Us),
        "dpdk.8",
        NEAR_DEVICE,
    ),
    devices(
        "dpdk-latency64",
        "DPDK: latency 64 B",
        ("dpdk-latency", 64, FigureUnit::Us),
        "dpdk.64",
        NEAR_DEVICE,
    ),
    devices(
        "dpdk-latency1k",
        "DPDK: latency 1 KiB",
        ("dpdk-latency", K, FigureUnit::Us),
        "dpdk.1024",
        &[],
    ),
    devices(
        "dpdk-rate8",
        "DPDK: rate 8 B",
        ("dpdk-rate", 8, RATE),
        "dpdk-rate",
        HALF_RATE,
    ),
    devices(
        "dpdk-bandwidth4k",
        "DPDK: bandwidth 4 KiB",
        ("dpdk-bandwidth", 4 * K, BANDWIDTH),
        "dpdk-stream.4096",
        &[],
    ),
    devices(
        "dpdk-bandwidth64k",
        "DPDK: bandwidth 64 KiB",
        ("dpdk-bandwidth", 64 * K, BANDWIDTH),
        "dpdk-stream.65536",
        NEAR_STREAM,
    ),
    devices(
        "dpdk-bandwidth1m",
        "DPDK: bandwidth 1 MiB",
        ("dpdk-bandwidth", M, BANDWIDTH),
        "dpdk-stream.1048576",
        NEAR_STREAM,
    ),
    devices(
        "dpdk-bandwidth4m",
        "DPDK: bandwidth 4 MiB",
        ("dpdk-bandwidth", 4 * M, BANDWIDTH),
        "dpdk-stream.4194304",
        NEAR_STREAM,
    ),
    CompareRow {
        limit: Some(LimitOf::Own(UDP_RATE)),
        ..memif(
            "memif-rate8-udp",
            "memif: rate 8 B beside UDP",
            ("memif-rate", 8, RATE),
            "",
            &[&[Bar::Limit(3.0)]],
        )
    },
];
