// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts substitutes for the commands of another MPI first into the `PATH` of all that a test starts. Without them, a
//! test that finds `mpicc` by `PATH` would use another MPI if one is installed, and might even pass. With them it fails
//! on every machine, with the name of the command.

use crate::tree::{make_folder, put_first_in_path, target};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// From here on, commands find the substitutes first.
pub(super) fn come_first() -> Result<(), String> {
    let folder = target().join("foreign-mpi");
    make(&folder)?;
    put_first_in_path(&folder);
    Ok(())
}

fn make(folder: &Path) -> Result<(), String> {
    make_folder(folder)?;
    for name in NAMES {
        let file = folder.join(name);
        let wrong = |why| format!("cannot write {}: {why}", file.display());
        fs::write(&file, SCRIPT).map_err(wrong)?;
        fs::set_permissions(&file, Permissions::from_mode(0o755)).map_err(wrong)?;
    }
    Ok(())
}

/// Commands of Open MPI and MPICH that a test might find in place of rmpi's: those with the same names, and `mpiCC`.
const NAMES: [&str; 9] = [
    "mpicc", "mpicxx", "mpic++", "mpiCC", "mpifort", "mpif90", "mpif77", "mpiexec", "mpirun",
];

const SCRIPT: &str = "#!/bin/sh
echo \"$0: this is another MPI's ${0##*/}; a test names its commands by their paths, or sets PATH\" >&2
exit 97
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::command;

    #[test]
    fn what_a_test_starts_finds_another_mpi_first() {
        let before = command("sh");
        come_first().unwrap();
        for name in NAMES {
            // The shell looks it up in `PATH`, as configure scripts and makefiles do.
            let output = command("sh").args(["-c", name]).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(97), "{name}: {message}");
            let expected = format!("another MPI's {name};");
            assert!(message.contains(&expected), "{message}");
        }
        let path = |of: &std::process::Command| {
            let found = of.get_envs().find(|(name, _)| *name == "PATH");
            found.and_then(|(_, value)| value.map(std::ffi::OsStr::to_owned))
        };
        // Commands that were made before use the unchanged PATH. Later commands have one more folder in front of it.
        assert_eq!(path(&before), None);
        let (own, old) = (path(&command("sh")), std::env::var_os("PATH"));
        let (own, old) = (own.unwrap(), old.unwrap());
        let folders: Vec<_> = std::env::split_paths(&own).skip(1).collect();
        assert_eq!(folders, std::env::split_paths(&old).collect::<Vec<_>>());
    }
}
