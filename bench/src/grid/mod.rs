// SPDX-License-Identifier: MIT OR Apache-2.0
//! The grid: measures every size of every operation with rmpi and other MPIs, or with an old build of rmpi.
//!
//! `compare` checks conditions on some rows; the grid finds every row in which another MPI is better. To spend less
//! time in launchers, one start of a program measures many cells ([`cells`], [`plan`]). All contenders are started in
//! turn in several rounds ([`rounds`]). The figures can be stored in a file; an interrupted measurement can then be
//! continued later ([`store`]).

pub mod cells;
pub mod judge;
mod matrix;
pub mod picture;
pub mod plan;
pub mod report;
pub mod rounds;
pub mod store;

use crate::Error;
use crate::compare::{CompareRequest, contenders};
use crate::peers::{Case, Installation, Tuning};
use cells::Extent;
use plan::{GridPlan, MOST_ROUNDS, ROUNDS};
use store::Header;

/// The part of a request that is only for the grid; the MPIs are in [`CompareRequest`].
#[derive(Clone, Debug)]
pub struct GridRequest {
    /// How much of the grid is measured.
    pub extent: Extent,
    /// The measuring time of a cell, in seconds.
    pub seconds: f64,
    /// The largest message size (bytes); `None`: no bound.
    pub up_to: Option<usize>,
    /// The number of rounds of all rows; `None`: three, and up to seven for close rows.
    pub rounds: Option<usize>,
}

/// Turns a request into a plan.
///
/// # Errors
/// When a peer or a row does not exist, or there is no MPI to compare rmpi with.
pub fn prepare(request: &CompareRequest, grid_request: &GridRequest) -> Result<GridPlan, Error> {
    let starts = plan::starts(grid_request.extent, &request.rows, grid_request.up_to)?;
    let mut missing = None;
    let level = |mpi: &Installation| vec![level_of(mpi, &request.levels)];
    let contenders = contenders(request, level, |warning| missing = Some(warning.to_owned()))?;
    if let Some(missing) = missing {
        return Err(Error::Usage(missing));
    }
    let program = std::env::current_exe().map_err(|e| Error::io("cannot find this program", e))?;
    Ok(GridPlan {
        extent: grid_request.extent,
        starts,
        contenders: contenders.all,
        old: contenders.old,
        seconds: grid_request.seconds,
        rounds: grid_request.rounds.unwrap_or(ROUNDS),
        most_rounds: grid_request.rounds.unwrap_or(MOST_ROUNDS),
        limit: request.limit,
        program,
    })
}

/// The setting of a peer. In the grid each peer has only one setting: the default if it is the only one requested or
/// there is no best setting, otherwise the best.
fn level_of(mpi: &Installation, requested: &[Tuning]) -> Tuning {
    let cases = [Case::TwoRanks, Case::OneCpu, Case::Crowd];
    let has_best = cases
        .iter()
        .any(|case| mpi.kind.setting(*case, Tuning::Best).is_some());
    if has_best && requested != [Tuning::Default] {
        Tuning::Best
    } else {
        Tuning::Default
    }
}

/// The first line of the file that stores this measurement.
#[must_use]
pub fn header(request: &CompareRequest, grid_request: &GridRequest, plan: &GridPlan) -> Header {
    Header {
        grid: grid_request.extent.label().to_owned(),
        seconds: grid_request.seconds,
        rows: request.rows.clone(),
        up_to: grid_request.up_to,
        contenders: plan
            .contenders
            .iter()
            .map(|contender| contender.label())
            .collect(),
    }
}

/// The rows of a plan as text, one per line.
#[must_use]
pub fn list(starts: &[plan::Start]) -> String {
    let row =
        |start: &plan::Start, row: &cells::GridRow| format!("{:<26}{}\n", start.name, row.title());
    starts
        .iter()
        .flat_map(|start| start.rows.iter().map(move |one| row(start, one)))
        .collect()
}
