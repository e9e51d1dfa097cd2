// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that may change while MPI runs ([`Scope::Any`]): read where they steer, with one relaxed load.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{ROWS, Range, Scope, Values, Variable};

static LIVE: [AtomicU64; ROWS.len()] = {
    let mut all = [const { AtomicU64::new(0) }; ROWS.len()];
    let mut at = 0;
    while at < ROWS.len() {
        if let Range::Number { default, .. } = ROWS[at].range {
            all[at] = AtomicU64::new(default);
        }
        at += 1;
    }
    all
};

/// The value that holds now.
#[inline(always)]
pub(crate) fn live(variable: Variable) -> u64 {
    LIVE[variable as usize].load(Relaxed)
}

/// The same, of a variable whose range fits.
#[inline(always)]
pub(crate) fn live_u32(variable: Variable) -> u32 {
    u32::try_from(live(variable)).unwrap_or(u32::MAX)
}

/// Another value holds from now on.
pub(crate) fn change(variable: Variable, value: u64) {
    LIVE[variable as usize].store(value, Relaxed);
}

/// These values hold from now on.
pub(super) fn hold(values: &Values) {
    for row in ROWS.iter().filter(|row| row.scope == Scope::Any) {
        change(row.variable, values.get(row.variable));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_change_is_a_number_and_begins_with_its_default() {
        let rows = ROWS.iter().filter(|row| row.scope == Scope::Any);
        for row in rows {
            let Range::Number { default, .. } = row.range else {
                panic!("{} is no number", row.name);
            };
            // Other tests of this process change some.
            let is_tested = matches!(
                row.variable,
                Variable::SendsPerLook | Variable::Spins | Variable::SpinTime
            );
            assert!(is_tested || live(row.variable) == default, "{}", row.name);
        }
    }
}
