// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `suites`: programs that nobody here wrote, and binaries that move between MPIs.

mod coverage;
mod debugged;
mod exchange;
mod fftw;
mod launch;
mod listed;
mod made;
mod mpi4py;
mod mpich;
mod mpich_fortran;
mod openmpi;
mod p4est;
mod python;
mod rsmpi;
mod sources;
mod valgrind;

use super::{Context, Tally};
use std::path::Path;

/// One source of programs.
struct Part {
    name: &'static str,
    run: fn(&mut Tally, &Path) -> Result<(), String>,
}

const PARTS: &[Part] = &[
    Part {
        name: "exchange",
        run: exchange::run,
    },
    Part {
        name: "openmpi",
        run: openmpi::run,
    },
    Part {
        name: "debugged",
        run: debugged::run,
    },
    Part {
        name: "mpich",
        run: mpich::run,
    },
    Part {
        name: "fortran",
        run: mpich_fortran::run,
    },
    Part {
        name: "mpi4py",
        run: mpi4py::run,
    },
    Part {
        name: "rsmpi",
        run: rsmpi::run,
    },
    Part {
        name: "fftw",
        run: fftw::run,
    },
    Part {
        name: "p4est",
        run: p4est::run,
    },
    Part {
        name: "valgrind",
        run: valgrind::run,
    },
];

/// The parts with a list in their folder in `ci/suites` that [`listed`] reads.
#[cfg(test)]
const LISTS: &[&str] = &["mpi4py", "rsmpi", "fftw", "p4est"];

/// Each part by itself: one that cannot be fetched or built fails, and the others go on.
pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let prefix = context.prefix()?;
    for part in PARTS.iter().filter(|part| context.wants(part.name)) {
        println!(" {}:", part.name);
        if let Err(why) = (part.run)(tally, &prefix) {
            tally.check(part.name, || Err(why));
        }
    }
    Ok(())
}
