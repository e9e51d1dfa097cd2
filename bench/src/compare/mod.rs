// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares rmpi with other MPIs and with the limits of the machine, in alternating rounds of one run.

pub mod bars;
pub mod between;
pub mod change;
pub mod fetch;
pub mod frames;
pub mod judge;
pub mod picture;
pub mod report;
pub mod rounds;
pub mod rows;
pub(crate) mod start;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;
use crate::hosts::BenchHosts;
use crate::limits;
use crate::peers::{Installation, Kind, Tuning};
use bars::{CompareRow, Placement};
use rounds::{CompareContender, ComparePlan, RowSelection};
use rows::RUNS;

/// A request for a comparison.
#[derive(Clone, Debug)]
pub struct CompareRequest {
    /// Where rmpi is installed.
    pub rmpi: PathBuf,
    /// Where an old build of rmpi is installed; `rmpi` is compared with it.
    pub against: Option<PathBuf>,
    /// Peers, as `NAME=PREFIX`.
    pub peers: Vec<String>,
    /// The settings of the peers that are measured; empty: both.
    pub levels: Vec<Tuning>,
    /// Rows or groups that are measured. Empty: without hosts all except those over DPDK, with hosts the group `hosts`.
    pub rows: Vec<String>,
    /// The hosts that the measurement is between; `None`: only this machine.
    pub hosts: Option<BenchHosts>,
    /// The number of rounds.
    pub rounds: usize,
    /// The time limit of one run.
    pub limit: Duration,
    /// A folder for binaries, which must be at the same path on all hosts.
    pub work: PathBuf,
}

/// Turns a request into a plan. If rmpi is not installed, `warn` is called and only the peers are compared.
///
/// # Errors
/// When a peer or a row does not exist, or there is no MPI to measure.
pub fn plan(request: &CompareRequest, warn: impl FnMut(&str)) -> Result<ComparePlan, Error> {
    let RowSelection { rows, left_out } =
        rounds::choose_rows(&request.rows, request.hosts.as_ref())?;
    let levels = |mpi: &Installation| levels_of(mpi, &rows, &request.levels);
    let Contenders {
        all: contenders,
        own,
        old,
    } = contenders(request, levels, warn)?;
    let runs = RUNS
        .iter()
        .filter(|run| rows.iter().any(|row| row.run == run.id))
        .collect();
    let program = std::env::current_exe().map_err(|e| Error::io("cannot find this program", e))?;
    Ok(ComparePlan {
        contenders,
        own,
        old,
        rows,
        runs,
        left_out,
        rounds: request.rounds,
        limit: request.limit,
        program,
        hosts: request.hosts.clone(),
        script: request.work.join("remote-shell"),
    })
}

/// The MPIs that take part.
pub(crate) struct Contenders {
    /// All of them; rmpi is the first, if it is installed.
    pub(crate) all: Vec<CompareContender>,
    own: Option<usize>,
    /// The index of the old build of rmpi, if there is one.
    pub(crate) old: Option<usize>,
}

/// Finds the installations; `levels` selects the settings of the peers. If rmpi is not installed, calls `warn`.
pub(crate) fn contenders(
    request: &CompareRequest,
    levels: impl Fn(&Installation) -> Vec<Tuning>,
    mut warn: impl FnMut(&str),
) -> Result<Contenders, Error> {
    let mut all = Vec::new();
    match Installation::find("rmpi", Kind::Rmpi, &request.rmpi) {
        Ok(mpi) => all.push(contender(mpi, Tuning::Default, &request.work)),
        Err(error) => warn(&format!("rmpi is left out: {error}")),
    }
    let own = (!all.is_empty()).then_some(0);
    let old = match &request.against {
        None => None,
        Some(prefix) if own.is_some() => Some(add_old(&mut all, prefix, &request.work)?),
        Some(_) => {
            return Err(Error::Usage(
                "--against needs a build to hold against the other: --rmpi names it".to_owned(),
            ));
        }
    };
    for peer in &request.peers {
        let mpi = Installation::parse(peer)?;
        for level in levels(&mpi) {
            all.push(contender(mpi.clone(), level, &request.work));
        }
    }
    if all.is_empty() {
        return Err(Error::Usage(
            "there is no MPI to measure: give --rmpi or --peer".to_owned(),
        ));
    }
    Ok(Contenders { all, own, old })
}

/// Adds the old build of rmpi, which takes part like the new one, and returns its index.
fn add_old(
    contenders: &mut Vec<CompareContender>,
    prefix: &Path,
    work: &Path,
) -> Result<usize, Error> {
    let mpi = Installation::find("rmpi-old", Kind::Rmpi, prefix);
    let mpi = mpi.map_err(|error| Error::Usage(format!("--against: {error}")))?;
    contenders.push(contender(mpi, Tuning::Default, work));
    Ok(contenders.len() - 1)
}

fn contender(mpi: Installation, level: Tuning, work: &Path) -> CompareContender {
    let binaries = work.join(&mpi.name);
    CompareContender {
        mpi,
        level,
        binaries,
    }
}

/// The settings with which a peer takes part: those of `requested` that the peer has for at least one of `rows`. An
/// empty `requested` stands for all settings.
fn levels_of(mpi: &Installation, rows: &[&CompareRow], requested: &[Tuning]) -> Vec<Tuning> {
    let cases = rows.iter().map(|row| rows::run_of(row).placement.case());
    let cases: Vec<_> = cases.collect();
    [Tuning::Default, Tuning::Best]
        .into_iter()
        .filter(|level| requested.is_empty() || requested.contains(level))
        .filter(|level| {
            cases
                .iter()
                .any(|case| mpi.kind.setting(*case, *level).is_some())
        })
        .collect()
}

/// The reasons why this machine cannot measure the plan; empty if it can.
#[must_use]
pub fn obstacles(plan: &ComparePlan) -> Vec<String> {
    let uses = |placements: &[Placement]| {
        plan.runs
            .iter()
            .any(|run| placements.contains(&run.placement))
    };
    let mut obstacles = Vec::new();
    if uses(&[Placement::MaskAround, Placement::MaskBehind]) && !crate::peers::can_mask() {
        obstacles.push("taskset is not installed (Debian: apt-get install util-linux)".to_owned());
    }
    if uses(&[Placement::Pair]) && crate::machine::cpus().two().is_none() {
        obstacles.push("this process may use one CPU only, pairs of ranks need two".to_owned());
    }
    if uses(&[Placement::Counted]) && crate::machine::find_in_path("valgrind").is_none() {
        obstacles.push("valgrind is not installed (Debian: apt-get install valgrind)".to_owned());
    }
    if uses(&[Placement::OverMemif, Placement::OverDevices]) {
        obstacles.extend(dpdk_sys::available().err());
    }
    if uses(&[Placement::OverDevices]) {
        obstacles.extend(
            limits::frames::configured()
                .err()
                .map(|error| error.to_string()),
        );
    }
    obstacles
}
