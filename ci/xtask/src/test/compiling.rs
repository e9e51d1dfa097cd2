// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles many small programs in parallel.

use crate::process::seconds;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// Calls `compile` for each program, on as many threads as there are cores; returns the names of
/// those that fail, and why.
pub(crate) fn all(
    programs: &BTreeSet<&str>,
    compile: impl Fn(&str) -> Result<(), String> + Sync,
) -> Result<Vec<(String, String)>, String> {
    let start = Instant::now();
    let waiting = Mutex::new(programs.iter().copied());
    let broken = Mutex::new(Vec::new());
    let next = || waiting.lock().ok().and_then(|mut programs| programs.next());
    let keep = |program: &str, why| {
        if let Ok(mut broken) = broken.lock() {
            broken.push((program.to_string(), why));
        }
    };
    let work = || {
        while let Some(program) = next() {
            let _ = compile(program).map_err(|why| keep(program, why));
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    println!(
        "  compiled {} programs ({})",
        programs.len(),
        seconds(start.elapsed())
    );
    broken
        .into_inner()
        .map_err(|_| "a compiling thread panicked".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_is_compiled_once_and_failures_are_returned() {
        let seen = Mutex::new(Vec::new());
        let programs = BTreeSet::from(["a", "b", "c"]);
        let broken = all(&programs, |name| {
            seen.lock().unwrap().push(name.to_string());
            if name == "b" {
                Err("why".into())
            } else {
                Ok(())
            }
        });
        assert_eq!(broken, Ok(vec![("b".to_string(), "why".to_string())]));
        let mut seen = seen.into_inner().unwrap();
        seen.sort();
        assert_eq!(seen, ["a", "b", "c"]);
    }
}
