// SPDX-License-Identifier: MIT OR Apache-2.0
//! The grid: every size of every operation, rmpi beside other MPIs or an old build.
//!
//! `compare` checks conditions on some rows; the grid finds every row in which another MPI is better. To spend less time in
//! launchers, one start measures many cells ([`cells`], [`plan`]); all contenders are started in turn in several rounds
//! ([`rounds`]), and what is measured is kept in a file from which an interrupted measurement goes on ([`store`]).

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

/// A request for the grid, without the MPIs.
#[derive(Clone, Debug)]
pub struct GridRequest {
    /// Short or whole.
    pub extent: Extent,
    /// Measuring time of a cell.
    pub seconds: f64,
    /// The largest size.
    pub up_to: Option<usize>,
    /// So many rounds and no more, instead of three and up to seven.
    pub rounds: Option<usize>,
}

/// Turns a request into a plan.
///
/// # Errors
/// When a peer or a row does not exist, or there is no MPI to compare rmpi with.
pub fn prepare(request: &CompareRequest, asked: &GridRequest) -> Result<GridPlan, Error> {
    let starts = plan::starts(asked.extent, &request.rows, asked.up_to)?;
    let mut missing = None;
    let level = |mpi: &Installation| vec![level_of(mpi, &request.levels)];
    let them = contenders(request, level, |warning| missing = Some(warning.to_owned()))?;
    if let Some(missing) = missing {
        return Err(Error::Usage(missing));
    }
    let program = std::env::current_exe().map_err(|e| Error::io("cannot find this program", e))?;
    Ok(GridPlan {
        extent: asked.extent,
        starts,
        contenders: them.all,
        old: them.old,
        seconds: asked.seconds,
        rounds: asked.rounds.unwrap_or(ROUNDS),
        most_rounds: asked.rounds.unwrap_or(MOST_ROUNDS),
        limit: request.limit,
        program,
    })
}

/// A peer takes part once, at its best unless only the settings as shipped are wanted.
fn level_of(mpi: &Installation, wanted: &[Tuning]) -> Tuning {
    let cases = [Case::TwoRanks, Case::OneCpu, Case::Crowd];
    let has_best = cases
        .iter()
        .any(|case| mpi.kind.setting(*case, Tuning::Best).is_some());
    if has_best && wanted != [Tuning::Default] {
        Tuning::Best
    } else {
        Tuning::Default
    }
}

/// What a file of this measurement says at its beginning.
#[must_use]
pub fn header(request: &CompareRequest, asked: &GridRequest, plan: &GridPlan) -> Header {
    Header {
        grid: asked.extent.label().to_owned(),
        seconds: asked.seconds,
        rows: request.rows.clone(),
        up_to: asked.up_to,
        contenders: plan.contenders.iter().map(|who| who.label()).collect(),
    }
}

/// The rows of a plan, a line each.
#[must_use]
pub fn list(starts: &[plan::Start]) -> String {
    let row =
        |start: &plan::Start, row: &cells::GridRow| format!("{:<26}{}\n", start.name, row.title());
    starts
        .iter()
        .flat_map(|start| start.rows.iter().map(move |one| row(start, one)))
        .collect()
}
