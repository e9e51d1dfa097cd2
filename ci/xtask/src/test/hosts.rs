// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `hosts`: checks worlds (temporary hosts made of namespaces on this machine), and jobs over several of these
//! hosts.
//!
//! Each check has its own world and a time limit, so that a failure does not affect other checks. Most checks are
//! functions of `ci/hosts/checks`, `ci/hosts/jobs` or `ci/hosts/under-slurm`; the module `ends` tests from outside the
//! world how it ends.

mod deaths;
mod ends;
mod huge;
mod rows;

use super::{Context, Tally, faults};
use crate::hosts::Rights;
use crate::process::{capture, quiet};
use crate::softroce::programs::{conformance, tests_of};
use crate::tree::{command, make_folder, root, target};
use rows::{JOBS, Row, UNDER_SLURM, WORLD};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    if let Err(why) = Rights::find() {
        println!("  nothing can be tried here: {why}");
        tally.expected.push(("worlds of hosts".into(), why));
        return Ok(());
    }
    let build = target().join("hosts");
    make_folder(&build)?;
    for row in WORLD.iter().filter(|row| context.selects(row.name)) {
        tally.check(&row.title(), || in_world("checks", row, &[&build]));
    }
    for end in ends::ALL.iter().filter(|end| context.selects(end.name)) {
        tally.check(&end.name.replace('_', " "), || (end.check)(&build));
    }
    let jobs: Vec<&Row> = JOBS
        .iter()
        .filter(|row| context.selects(row.name))
        .collect();
    let under_slurm = UNDER_SLURM.iter().filter(|row| context.selects(row.name));
    let under_slurm: Vec<&Row> = under_slurm.collect();
    let may_die = context.selects("deaths");
    if jobs.is_empty() && under_slurm.is_empty() && !may_die {
        return Ok(());
    }
    let prefix = context.prefix()?;
    programs(&prefix, &build)?;
    let plug_in = prefix.join("lib/rmpi/librmpi_dpdk.so");
    let has_dpdk = plug_in.exists();
    if has_dpdk {
        suites(&plug_in, &build)?;
    } else {
        let why = "DPDK is not installed".to_owned();
        tally.expected.push(("jobs over DPDK".into(), why));
    }
    let over_dpdk = |row: &Row| DPDK_ROWS.contains(&row.name);
    for row in jobs.into_iter().filter(|row| has_dpdk || !over_dpdk(row)) {
        job(tally, row, (&build, &prefix));
    }
    match slurm_lacks() {
        None => under_slurm.iter().for_each(|row| {
            let title = format!("under Slurm: {}", row.title());
            tally.check(&title, || in_world("under-slurm", row, &[&build, &prefix]));
        }),
        Some(why) => {
            println!("  nothing can be tried under Slurm here: {why}");
            tally.expected.push(("jobs under Slurm".into(), why.into()));
        }
    }
    if may_die {
        deaths::run(tally, (&build, &prefix), DEATHS);
    }
    Ok(())
}

/// Runs one check of jobs. If the system lacks what the check needs, the check is left out.
fn job(tally: &mut Tally, row: &Row, (build, prefix): (&Path, &Path)) {
    // The pages are released when the check is over.
    let pages = (row.name == IN_HUGE_PAGES).then(huge::Pages::reserve);
    let missing = pages.as_ref().and_then(|it| it.as_ref().err().cloned());
    match missing.or_else(|| xdp_lacks(row, prefix)) {
        None => tally.check(&row.title(), || in_world("jobs", row, &[build, prefix])),
        Some(why) => {
            println!("  skip  {}: {why}", row.title());
            tally.expected.push((row.title(), why));
        }
    }
}

/// The checks that need DPDK.
const DPDK_ROWS: [&str; 8] = [
    "roce_over_dpdk",
    "suites_over_dpdk",
    "roce_over_memif",
    "roce_over_tap",
    OVER_XDP,
    "payloads_stay_in_place",
    IN_HUGE_PAGES,
    "networks_in_one_job",
];

/// The check for which the system needs huge pages.
const IN_HUGE_PAGES: &str = "payloads_stay_in_place_in_huge_pages";

/// The check that needs AF_XDP sockets.
const OVER_XDP: &str = "roce_over_af_xdp";

/// What is missing for the check with AF_XDP sockets; `None` if nothing is missing, and for other checks.
fn xdp_lacks(row: &Row, prefix: &Path) -> Option<String> {
    if row.name != OVER_XDP {
        return None;
    }
    if !prefix.join("lib/rmpi/librmpi_dpdk_xdp.so").exists() {
        return Some("the plug-in is not installed (libxdp-dev)".into());
    }
    let protocols = fs::read_to_string("/proc/net/protocols").unwrap_or_default();
    let has_sockets = protocols.lines().any(|line| line.starts_with("XDP "));
    (!has_sockets).then(|| "the kernel has no sockets of XDP".into())
}

/// Why Slurm cannot be used; `None` if it can.
fn slurm_lacks() -> Option<&'static str> {
    let shell = |line: &str| {
        let mut shell = command("sh");
        shell.args(["-c", line]);
        quiet(shell, Duration::from_secs(10)).is_ok()
    };
    if !shell("test \"$(id -u)\" = 0") {
        return Some("its daemons run as root alone");
    }
    let has_all = shell(
        "PATH=$PATH:/usr/sbin:/sbin; for one in slurmctld slurmd srun munged; do command -v $one || exit 1; done",
    );
    (!has_all).then_some("it is not installed")
}

/// The stage `deaths-over-hosts`, which takes long.
pub(crate) fn run_long(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    Rights::find()?;
    let build = target().join("hosts");
    make_folder(&build)?;
    let prefix = context.prefix()?;
    programs(&prefix, &build)?;
    deaths::run(tally, (&build, &prefix), LONG_DEATHS);
    Ok(())
}

const DEATHS: u64 = 10;
const LONG_DEATHS: u64 = 1000;

/// Runs one check, a function of a script in `ci/hosts`; the error contains its output.
fn in_world(script: &str, row: &Row, folders: &[&Path]) -> Result<(), String> {
    let mut world = world(row.hosts)?;
    world.arg("sh").arg(root().join("ci/hosts").join(script));
    world.arg(row.name).args(folders);
    let done = capture(world, Duration::from_secs(row.seconds), |_| ())?;
    if done.success() {
        return Ok(());
    }
    let (out, err) = (&done.stdout, &done.stderr);
    Err(format!("{}\n{out}{err}", done.end()))
}

/// `cargo xtask hosts -n COUNT --`, to which the caller adds a command.
fn world(count: usize) -> Result<Command, String> {
    let program = env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let mut world = command(program);
    world.args(["hosts", "-n"]).arg(count.to_string()).arg("--");
    Ok(world)
}

/// Copies the conformance suites and the tests of the plug-in, and the plug-in into the folder beside them in which
/// they look for it.
fn suites(plug_in: &Path, build: &Path) -> Result<(), String> {
    let beside = build.join("rmpi");
    make_folder(&beside)?;
    let [transport, channel] = conformance()?;
    let in_place = tests_of("dpdk-sys", &["--test", "in_place"])?;
    for (from, to) in [
        (plug_in, beside.join("librmpi_dpdk.so")),
        (&transport, build.join("transport-suite")),
        (&channel, build.join("channel-suite")),
        (&in_place, build.join("in-place-suite")),
    ] {
        fs::copy(from, &to).map_err(|why| format!("{}: {why}", to.display()))?;
    }
    Ok(())
}

fn programs(prefix: &Path, build: &Path) -> Result<(), String> {
    faults::compile(prefix, "victim.c", &build.join("victim"))?;
    for (source, name) in [
        ("ci/hosts/far.c", "far"),
        ("ci/demo/hello.c", "hello"),
        ("ci/ranks/coll_ops.c", "coll_ops"),
        ("ci/ranks/coll_random.c", "coll_random"),
    ] {
        let mut compiler = command(prefix.join("bin/rmpicc"));
        let flags = "-std=gnu11 -O1 -g -Wall -Wextra -Werror -o";
        let to: PathBuf = build.join(name);
        compiler
            .args(flags.split(' '))
            .arg(to)
            .arg(root().join(source))
            .arg("-lm");
        quiet(compiler, Duration::from_secs(120))?;
    }
    Ok(())
}
