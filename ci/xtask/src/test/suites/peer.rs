// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other MPIs from the Python package index, and a program that prints the library with which it runs.

use crate::process::quiet;
use crate::tree::{command, make_folder, target};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Another MPI.
pub(super) struct PeerMpi {
    name: &'static str,
    packages: &'static [&'static str],
    /// A part of the text that its MPI_Get_library_version returns.
    pub(super) library: &'static str,
    /// Environment variables that it needs on these machines.
    pub(super) env: &'static [(&'static str, &'static str)],
}

/// MPICH 5.
pub(super) const MPICH: PeerMpi = PeerMpi {
    name: "mpich5",
    packages: &["mpich>=5,<6"],
    library: "MPICH",
    env: &[],
};
pub(super) const INTEL: PeerMpi = PeerMpi {
    name: "intel",
    packages: &["impi-rt", "impi-devel"],
    library: "Intel",
    env: &[("I_MPI_FABRICS", "shm")],
};
/// Open MPI 5, which has another ABI than the standard one.
pub(super) const OPENMPI: PeerMpi = PeerMpi {
    name: "openmpi5",
    packages: &["openmpi>=5,<6"],
    library: "Open MPI",
    env: &[],
};

impl PeerMpi {
    /// Returns the installation prefix, the same that `cargo xtask peers` uses; installs the MPI there on first use.
    pub(super) fn fetch(&self) -> Result<PathBuf, String> {
        let prefix = target().join("peers").join(self.name);
        if prefix.join("bin/mpiexec").exists() {
            return Ok(prefix);
        }
        make_folder(&target().join("peers"))?;
        let mut venv = command("python3");
        venv.args(["-m", "venv"]).arg(&prefix);
        quiet(venv, Duration::from_secs(300))?;
        let mut pip = command(prefix.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"])
            .args(self.packages);
        quiet(pip, Duration::from_secs(600))?;
        Ok(prefix)
    }
}

pub(super) fn compile(compiler: &Path, source: &Path, program: &Path) -> Result<(), String> {
    let mut cc = command(compiler);
    cc.args(["-std=gnu11", "-O1", "-g", "-pthread", "-o"])
        .arg(program)
        .arg(source)
        .arg("-lm");
    quiet(cc, Duration::from_secs(300)).map(|_| ())
}

/// An error if the program is `whose_library` and did not run with this library and this number of ranks.
pub(super) fn whose(name: &str, ranks: u32, output: &str, library: &str) -> Result<(), String> {
    let named = output
        .lines()
        .any(|line| line.starts_with("library: ") && line.contains(library));
    if name == "whose_library" && !(named && output.contains(&format!("good on {ranks} ranks"))) {
        return Err(format!(
            "expected the library {library}, the program printed:\n{output}"
        ));
    }
    Ok(())
}

pub(super) const WHOSE: &str = "ci/suites/exchange/whose_library.c";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ran_on_another_library_is_noticed() {
        let output = "library: MPICH Version: 5\ngood on 4 ranks\n";
        assert!(whose("whose_library", 4, output, "MPICH").is_ok());
        assert!(whose("whose_library", 4, output, "rmpi").is_err());
        assert!(whose("whose_library", 64, output, "MPICH").is_err());
        assert!(
            whose(
                "whose_library",
                4,
                "library: rmpi\nWRONG on 4 ranks\n",
                "rmpi"
            )
            .is_err()
        );
    }
}
