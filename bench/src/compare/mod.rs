// SPDX-License-Identifier: MIT OR Apache-2.0
//! rmpi against other MPIs and against the machine, in alternating rounds of one run.

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
    /// Where another build of rmpi is installed, which this one is held against.
    pub against: Option<PathBuf>,
    /// Peers, as `NAME=PREFIX`.
    pub peers: Vec<String>,
    /// Only these settings of the peers; both without any.
    pub levels: Vec<Tuning>,
    /// Rows or groups; all without any, or with hosts those that need them.
    pub rows: Vec<String>,
    /// Hosts between which is measured.
    pub hosts: Option<BenchHosts>,
    /// The number of rounds.
    pub rounds: usize,
    /// The longest that one run may take.
    pub limit: Duration,
    /// A folder for binaries, which both hosts must see.
    pub work: PathBuf,
}

/// Turns a request into a plan. Where rmpi is not installed, the peers are compared alone and `warn` is called.
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

/// Who takes part.
pub(crate) struct Contenders {
    /// Ours first, if it is there.
    pub(crate) all: Vec<CompareContender>,
    own: Option<usize>,
    /// The index of the other build of ours.
    pub(crate) old: Option<usize>,
}

/// Finds the installations; `levels` selects the settings of the peers. Where rmpi is not installed, `warn` is called.
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
            "nobody to measure: give --rmpi or --peer".to_owned(),
        ));
    }
    Ok(Contenders { all, own, old })
}

/// The old build takes part like the new one, beside it.
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

/// The settings in which a peer takes part.
fn levels_of(mpi: &Installation, rows: &[&CompareRow], wanted: &[Tuning]) -> Vec<Tuning> {
    let cases = rows.iter().map(|row| rows::run_of(row).placement.case());
    let cases: Vec<_> = cases.collect();
    [Tuning::Default, Tuning::Best]
        .into_iter()
        .filter(|level| wanted.is_empty() || wanted.contains(level))
        .filter(|level| {
            cases
                .iter()
                .any(|case| mpi.kind.setting(*case, *level).is_some())
        })
        .collect()
}

/// What stands in the way of a plan, in words.
#[must_use]
pub fn obstacles(plan: &ComparePlan) -> Vec<String> {
    let wants = |wanted: &[Placement]| plan.runs.iter().any(|run| wanted.contains(&run.placement));
    let mut obstacles = Vec::new();
    if wants(&[Placement::MaskAround, Placement::MaskBehind]) && !crate::peers::can_mask() {
        obstacles.push("taskset is not installed (Debian: apt-get install util-linux)".to_owned());
    }
    if wants(&[Placement::Pair]) && crate::machine::cpus().two().is_none() {
        obstacles.push("this process may use one CPU only, pairs of ranks need two".to_owned());
    }
    if wants(&[Placement::Counted]) && crate::machine::find_in_path("valgrind").is_none() {
        obstacles.push("valgrind is not installed (Debian: apt-get install valgrind)".to_owned());
    }
    if wants(&[Placement::OverMemif, Placement::OverDevices]) {
        obstacles.extend(dpdk_sys::available().err());
    }
    if wants(&[Placement::OverDevices]) {
        obstacles.extend(
            limits::frames::configured()
                .err()
                .map(|error| error.to_string()),
        );
    }
    obstacles
}
