// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the installed tree: the parent of the folder that contains the wrapper. So an installation can be moved.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The installed tree.
#[derive(Debug)]
pub(crate) struct InstallTree {
    prefix: PathBuf,
}

impl InstallTree {
    /// The tree that contains this program.
    pub(crate) fn find() -> Result<Self, String> {
        let program =
            env::current_exe().map_err(|why| format!("cannot find my own file: {why}"))?;
        let program = program.canonicalize().unwrap_or(program);
        let prefix = program
            .parent()
            .and_then(Path::parent)
            .unwrap_or_else(|| Path::new("/"));
        let place = Self {
            prefix: prefix.to_owned(),
        };
        let header = place.include().join("mpi.h");
        if header.is_file() {
            return Ok(place);
        }
        Err(format!(
            "there is no {}; the wrapper must lie in the `bin` of an installed rmpi (cargo xtask install --prefix DIR)",
            header.display()
        ))
    }

    #[cfg(test)]
    pub(crate) fn at(prefix: impl Into<PathBuf>) -> Self {
        Self {
            prefix: prefix.into(),
        }
    }

    pub(crate) fn include(&self) -> PathBuf {
        self.prefix.join("include")
    }

    pub(crate) fn lib(&self) -> PathBuf {
        self.prefix.join("lib")
    }

    /// The folder of the Fortran modules' sources.
    pub(crate) fn module_sources(&self) -> PathBuf {
        self.prefix.join("share/rmpi/fortran")
    }

    /// The folder for compiled modules of all users; it has a folder for each compiler.
    pub(crate) fn modules(&self) -> PathBuf {
        self.prefix.join("lib/rmpi/fortran")
    }
}

/// An option, such as `-I`, with a path in the same argument.
pub(crate) fn flag(option: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(option);
    argument.push(path);
    argument
}
