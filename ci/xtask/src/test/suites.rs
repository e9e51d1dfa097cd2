// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `suites`: programs that nobody here wrote, and binaries that move between MPIs.

mod exchange;
mod mpich;
mod openmpi;
mod sources;

use super::{Context, Tally};

pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let prefix = context.prefix()?;
    exchange::run(tally, &prefix)?;
    openmpi::run(tally, &prefix)?;
    mpich::run(tally, &prefix)
}
