// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processes are ranks: the one that is named, or those that it has started.

use std::collections::HashMap;
use std::fs;

use crate::Error;
use crate::symbols::Files;
use crate::target::Target;

/// The ranks that a pid stands for: itself, or those among what it started, and what these started.
///
/// # Errors
/// When it cannot be read, or there is no rank.
pub fn ranks(pid: u32, files: &mut Files) -> Result<Vec<Target>, Error> {
    let named = Target::open(pid, files)?;
    if is_rank(&named) {
        return Ok(vec![named]);
    }
    let children = children();
    let mut found = Vec::new();
    let mut left = vec![pid];
    while let Some(parent) = left.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            left.push(*child);
            // What has ended meanwhile is none.
            found.extend(Target::open(*child, files).ok().filter(is_rank));
        }
    }
    match found.is_empty() {
        true => Err(Error::NoRanks(pid)),
        false => Ok(found),
    }
}

/// MPI is in it. (A launcher may name a library for debuggers too, and is no rank.)
fn is_rank(target: &Target) -> bool {
    target.find(b"MPI_Init").is_some()
}

/// All processes by the one that started them.
fn children() -> HashMap<u32, Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let pid = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let stat = fs::read_to_string(process.path().join("stat"));
        if let (Some(pid), Ok(stat)) = (pid, stat)
            && let Some(parent) = parent(&stat)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

/// The fourth word; the second is a name in parentheses, which may have any characters.
fn parent(stat: &str) -> Option<u32> {
    let after_name = stat.rsplit(") ").next()?;
    after_name.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent("12 (a) S 9) S 7 12 12 0"), Some(7));
        assert_eq!(parent(""), None);
    }

    #[test]
    fn a_process_without_mpi_is_named_in_words() {
        let me = std::process::id();
        let why = ranks(me, &mut Files::default()).unwrap_err().to_string();
        assert_eq!(
            why,
            format!(
                "process {me} is no rank and has started none; give the pid of rmpiexec or of a rank"
            )
        );
    }
}
