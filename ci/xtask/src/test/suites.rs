// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `suites`: programs of other projects, and binaries that are built with one MPI and run with another.

mod coverage;
mod debugged;
mod exchange;
mod fftw;
mod launch;
mod launchers;
mod listed;
mod made;
mod mpi4py;
mod mpich;
mod mpich_fortran;
mod openmpi;
mod p4est;
mod peer;
mod python;
mod rsmpi;
mod sources;
mod valgrind;

use super::{Context, Tally};
use std::path::Path;

/// A part of the stage: programs from one source.
struct Part {
    name: &'static str,
    run: Run,
}

/// The function that runs a part; its path is that of the installed rmpi.
enum Run {
    Here(fn(&mut Tally, &Path) -> Result<(), String>),
    /// The last argument is the number of hosts for its jobs; `None`: only this machine.
    OverHosts(fn(&mut Tally, &Path, Option<u32>) -> Result<(), String>),
}

const PARTS: &[Part] = &[
    Part {
        name: "exchange",
        run: Run::Here(exchange::run),
    },
    Part {
        name: "launchers",
        run: Run::Here(launchers::run),
    },
    Part {
        name: "openmpi",
        run: Run::Here(openmpi::run),
    },
    Part {
        name: "debugged",
        run: Run::Here(debugged::run),
    },
    Part {
        name: "mpich",
        run: Run::OverHosts(mpich::run),
    },
    Part {
        name: "fortran",
        run: Run::Here(mpich_fortran::run),
    },
    Part {
        name: "mpi4py",
        run: Run::OverHosts(mpi4py::run),
    },
    Part {
        name: "rsmpi",
        run: Run::Here(rsmpi::run),
    },
    Part {
        name: "fftw",
        run: Run::Here(fftw::run),
    },
    Part {
        name: "p4est",
        run: Run::Here(p4est::run),
    },
    Part {
        name: "valgrind",
        run: Run::Here(valgrind::run),
    },
];

/// The parts that have a list in `ci/suites` which [`listed`] reads.
#[cfg(test)]
const LISTS: &[&str] = &["mpi4py", "rsmpi", "fftw", "p4est"];

/// Runs the parts independently: one that cannot be fetched or built fails, and the others still run.
pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let prefix = context.prefix()?;
    for part in PARTS.iter().filter(|part| context.selects(part.name)) {
        if context.hosts.is_some() && matches!(part.run, Run::Here(_)) {
            continue;
        }
        println!(" {}:", part.name);
        let ran = match part.run {
            Run::Here(run) => run(tally, &prefix),
            Run::OverHosts(run) => run(tally, &prefix, context.hosts),
        };
        if let Err(why) = ran {
            tally.check(part.name, || Err(why));
        }
    }
    Ok(())
}
