// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurement: rounds in which each start runs with all contenders in turn, then further rounds of the rows that
//! are close.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use super::cells::Extent;
use super::plan::{GridPlan, SHORT_SECONDS, Start};
use super::report;
use super::store::{Cell, GridRecord, GridSample, GridStore, MOVED};
use crate::compare::rounds::{CLOSE_BELOW_US, CompareContender, line_now};
use crate::compare::start::cleanly;
use crate::{Error, interrupt, programs, run};

/// How often a start is tried in a round if the CPUs move during each try.
const TRIES: usize = 3;
/// If the CPUs of a contender were not placed like those of most contenders (on one core, or on two), the contender is
/// started again, up to this many times.
const REPEATS: usize = 2;

/// Builds the programs that the plan needs, for every contender.
///
/// # Errors
/// When the compiler fails, with its message.
pub fn build(plan: &GridPlan) -> Result<(), Error> {
    for contender in &plan.contenders {
        std::fs::create_dir_all(&contender.binaries)
            .map_err(|e| Error::io(format!("cannot make {}", contender.binaries.display()), e))?;
        for start in &plan.starts {
            let (program, _) = start.words(plan.seconds);
            let binary = contender.binaries.join(program);
            if !binary.exists() {
                let mpi = &contender.mpi;
                programs::compile(mpi.mpicc(), &mpi.environment(), program, &binary)?;
            }
        }
    }
    Ok(())
}

/// Receives progress events.
pub trait Listener {
    /// The total number of starts is known, or has changed.
    fn expect(&mut self, starts: usize);
    /// The next start begins; `what` describes it.
    fn next(&mut self, what: &str);
}

/// Measures what the store does not hold yet. After a signal, the store has only starts that ran with all contenders in
/// that round.
///
/// # Errors
/// When the store's file cannot be written.
pub fn measure(
    plan: &GridPlan,
    store: &mut GridStore,
    listener: &mut impl Listener,
) -> Result<(), Error> {
    let each = plan.contenders.len();
    let base = plan.starts.len() * plan.rounds * each;
    listener.expect(base);
    for round in 0..plan.rounds {
        round_of(plan, &plan.starts, round, store, listener)?;
    }
    let close = close_starts(plan, store);
    let further = plan.rounds..plan.most_rounds;
    if !interrupt::seen() {
        listener.expect(base + close.len() * further.len() * each);
    }
    for round in further {
        round_of(plan, &close, round, store, listener)?;
    }
    Ok(())
}

/// The starts with only those rows that were close in the rounds with all rows. Further rounds do not count here, so a
/// continued measurement selects the same rows.
fn close_starts(plan: &GridPlan, store: &GridStore) -> Vec<Start> {
    let close = |start: &Start| {
        start.only(|row| {
            report::opponents(plan, store, start, row, plan.rounds)
                .iter()
                .any(|opponent| opponent.judged.is_close())
        })
    };
    plan.starts.iter().filter_map(close).collect()
}

fn round_of(
    plan: &GridPlan,
    starts: &[Start],
    round: usize,
    store: &mut GridStore,
    listener: &mut impl Listener,
) -> Result<(), Error> {
    for start in starts {
        if store.has(round, &start.name) {
            for _ in &plan.contenders {
                listener.next(&format!("round {}: {} is stored", round + 1, start.name));
            }
            continue;
        }
        if interrupt::seen() || time_is_over(plan, start, round, store.seconds()) {
            return Ok(());
        }
        if let Some(record) = start_of_all(plan, start, round, store, listener) {
            store.add(record)?;
        }
    }
    Ok(())
}

/// Whether this start is in a further round of the short grid and would, by its estimate, raise the total measuring
/// time above [`SHORT_SECONDS`]. `seconds` is the measuring time of all starts so far.
fn time_is_over(plan: &GridPlan, start: &Start, round: usize, seconds: f64) -> bool {
    let next = start.estimate(plan.seconds) * plan.contenders.len() as f64;
    plan.extent == Extent::Short && round >= plan.rounds && seconds + next > SHORT_SECONDS
}

/// Runs one start with all contenders; `None` after a signal.
fn start_of_all(
    plan: &GridPlan,
    start: &Start,
    round: usize,
    store: &GridStore,
    listener: &mut impl Listener,
) -> Option<GridRecord> {
    let began = Instant::now();
    let mut samples = BTreeMap::new();
    let contenders = plan.contenders.len();
    let mut line = cache_line_of(plan, start);
    // Each round begins with another contender.
    let in_turn = (0..contenders).map(|turn| &plan.contenders[(turn + round) % contenders]);
    for contender in in_turn.clone() {
        let name = contender.label();
        listener.next(&format!("round {}: {} with {name}", round + 1, start.name));
        let sample = if store.has_given_up(&start.name, &name) {
            GridSample {
                failure: Some("not run again after two failures".to_owned()),
                ..GridSample::default()
            }
        } else {
            until_settled(plan, start, contender, &mut line)
        };
        if interrupt::seen() {
            return None;
        }
        samples.insert(name, sample);
    }
    for _ in 0..REPEATS {
        let misplaced = misplaced(&samples);
        for contender in in_turn
            .clone()
            .filter(|contender| misplaced.contains(&contender.label()))
        {
            let sample = until_settled(plan, start, contender, &mut line);
            if interrupt::seen() {
                return None;
            }
            if sample.failure.is_none() {
                samples.insert(contender.label(), sample);
            }
        }
    }
    Some(GridRecord {
        round,
        start: start.name.clone(),
        seconds: began.elapsed().as_secs_f64(),
        samples,
    })
}

/// The contenders whose CPUs were not placed (on one core, or on two) like those of most contenders. Their figures
/// cannot be compared with the others.
fn misplaced(samples: &BTreeMap<String, GridSample>) -> Vec<String> {
    let measured = || {
        samples
            .iter()
            .filter(|(_, sample)| sample.failure.is_none())
    };
    let close = measured().filter(|(_, sample)| sample.close).count();
    let most_are_close = 2 * close > measured().count();
    measured()
        .filter(|(_, sample)| sample.close != most_are_close)
        .map(|(name, _)| name.clone())
        .collect()
}

/// Measures the one-way time of a cache line (µs); `None` if the start has not exactly two ranks.
fn cache_line_of(plan: &GridPlan, start: &Start) -> Option<f64> {
    (start.ranks() == 2)
        .then(|| line_now(&plan.program))
        .flatten()
}

/// Runs a contender until a run fails, a signal arrives, or the CPUs were on one core both before and after the run, or
/// on two both times. After [`TRIES`] runs without this the sample's failure is [`MOVED`].
fn until_settled(
    plan: &GridPlan,
    start: &Start,
    contender: &CompareContender,
    line: &mut Option<f64>,
) -> GridSample {
    for _ in 0..TRIES {
        let before = line.take();
        let mut sample = sample(plan, start, contender);
        *line = cache_line_of(plan, start);
        let sides = [before, *line].map(|line| line.is_some_and(|us| us < CLOSE_BELOW_US));
        if sides[0] == sides[1] || sample.failure.is_some() || interrupt::seen() {
            sample.close = sides[0];
            return sample;
        }
    }
    GridSample {
        failure: Some(MOVED.to_owned()),
        ..GridSample::default()
    }
}

/// Runs a contender once, and reads what it prints until its end or the time limit.
fn sample(plan: &GridPlan, start: &Start, contender: &CompareContender) -> GridSample {
    let command = command(plan, start, contender);
    let mut sample = GridSample::default();
    let ended = cleanly(|| {
        let outcome = run::run(
            &mut run::guarded(&plan.program, &command),
            plan.limit_of(start),
        )?;
        read(&outcome.stdout, &mut sample);
        match outcome.failure() {
            Some(failure) => Err(Error::Program(failure)),
            None => Ok(()),
        }
    });
    let missing = start.rows.len().saturating_sub(sample.cells.len());
    sample.failure = match ended {
        Err(error) => Some(error.to_string()),
        Ok(()) if missing > 0 => Some(format!("{missing} cells were not printed")),
        Ok(()) => None,
    };
    sample
}

fn command(plan: &GridPlan, start: &Start, contender: &CompareContender) -> Command {
    let ranks = start.ranks();
    let (program, words) = start.words(plan.seconds);
    let mut command = contender
        .mpi
        .launcher(GridPlan::setting(contender, ranks), ranks, None);
    // Temporary files of a killed launcher are removed with the binaries.
    command.env("TMPDIR", &contender.binaries);
    command.arg(contender.binaries.join(program)).args(words);
    command
}

/// Reads the cells and the library's name from the output, and skips the lines of launchers.
fn read(printed: &str, sample: &mut GridSample) {
    for line in printed.lines() {
        if line.starts_with("{\"metric\":") {
            sample.cells.extend(serde_json::from_str::<Cell>(line));
        } else if line.starts_with("{\"grid\":") {
            let head: Option<serde_json::Value> = serde_json::from_str(line).ok();
            let library = head.and_then(|head| Some(head["library"].as_str()?.to_owned()));
            sample.library = library;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::{GridRow, Manner, RowGroup};
    use super::super::report::testing::plan;
    use super::super::store::testing::record;
    use super::*;
    use crate::unit::FigureUnit;

    #[test]
    fn cells_are_found_among_a_launchers_lines() {
        let mut sample = GridSample::default();
        let printed = "warning: no device\n\
                       {\"grid\":\"grid_pair\",\"ranks\":2,\"cells\":2,\"library\":\"X 1.0\"}\n\
                       {\"metric\":\"latency\",\"bytes\":8,\"unit\":\"us\",\"value\":0.31,\"p99\":0.4}\n\
                       {\"metric\":\"oneway\",\"bytes\":8,\"unit\":\"MB/s\",\"value\":4";
        read(printed, &mut sample);
        assert_eq!(sample.library.as_deref(), Some("X 1.0"));
        let [cell] = &sample.cells[..] else {
            panic!("{sample:?}");
        };
        assert_eq!(
            (cell.metric.as_str(), cell.bytes, cell.unit),
            ("latency", 8, FigureUnit::Us)
        );
    }

    fn row(bytes: usize) -> GridRow {
        GridRow {
            group: RowGroup::Pair,
            manner: Manner::Messages,
            metric: "latency",
            ranks: 2,
            bytes,
        }
    }

    #[test]
    fn contenders_with_other_cpus_than_most_are_misplaced() {
        let samples = |sides: &[Option<bool>]| {
            let sample = |side: &Option<bool>| GridSample {
                close: side.unwrap_or(false),
                failure: side.is_none().then(|| "no end".to_owned()),
                ..GridSample::default()
            };
            let named = sides.iter().enumerate();
            let all: BTreeMap<String, GridSample> = named
                .map(|(index, side)| (index.to_string(), sample(side)))
                .collect();
            misplaced(&all)
        };
        assert_eq!(samples(&[Some(true), Some(true), Some(false), None]), ["2"]);
        assert_eq!(samples(&[Some(false), Some(true), Some(false)]), ["1"]);
        assert!(samples(&[Some(true), Some(true), None]).is_empty());
        assert!(samples(&[]).is_empty());
    }

    #[test]
    fn further_rounds_have_the_rows_that_are_close() {
        let plan = plan(&[row(8), row(64)]);
        let mut store = GridStore::default();
        for round in 0..3 {
            let figure = |row: &GridRow, other| {
                record(
                    round,
                    "pair",
                    row,
                    &[("rmpi (default)", Some(1.0)), ("other (best)", Some(other))],
                )
            };
            let mut both = figure(&row(8), 1.1);
            for (name, sample) in figure(&row(64), 2.0).samples {
                both.samples
                    .entry(name)
                    .or_default()
                    .cells
                    .extend(sample.cells);
            }
            store.add(both).unwrap();
        }
        let close = close_starts(&plan, &store);
        assert_eq!(close.len(), 1);
        assert_eq!(close[0].rows, [row(8)]);
        // The figures of further rounds do not change the selection.
        let far = record(
            3,
            "pair",
            &row(8),
            &[("rmpi (default)", Some(1.0)), ("other (best)", Some(9.0))],
        );
        store.add(far).unwrap();
        assert_eq!(close_starts(&plan, &store).len(), 1);
    }

    #[test]
    fn further_rounds_end_at_the_time_limit_of_the_short_grid() {
        let mut plan = plan(&[row(8)]);
        let start = plan.starts[0].clone();
        assert!(!time_is_over(&plan, &start, 3, SHORT_SECONDS - 100.0));
        assert!(time_is_over(&plan, &start, 3, SHORT_SECONDS - 0.1));
        assert!(!time_is_over(&plan, &start, 2, 2.0 * SHORT_SECONDS));
        plan.extent = Extent::Whole;
        assert!(!time_is_over(&plan, &start, 3, 2.0 * SHORT_SECONDS));
    }
}
