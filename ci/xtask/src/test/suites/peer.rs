// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other MPIs, as the Python package index has them, and a program that prints on which library it runs.

use crate::process::quiet;
use crate::tree::{command, make_folder, target};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Another MPI.
pub(super) struct PeerMpi {
    name: &'static str,
    packages: &'static [&'static str],
    /// What its library calls itself.
    pub(super) says: &'static str,
    /// Settings that it needs here.
    pub(super) env: &'static [(&'static str, &'static str)],
}

/// The folders are those of `cargo xtask peers`.
pub(super) const MPICH: PeerMpi = PeerMpi {
    name: "mpich5",
    packages: &["mpich>=5,<6"],
    says: "MPICH",
    env: &[],
};
pub(super) const INTEL: PeerMpi = PeerMpi {
    name: "intel",
    packages: &["impi-rt", "impi-devel"],
    says: "Intel",
    env: &[("I_MPI_FABRICS", "shm")],
};
/// It follows another ABI.
pub(super) const OPENMPI: PeerMpi = PeerMpi {
    name: "openmpi5",
    packages: &["openmpi>=5,<6"],
    says: "Open MPI",
    env: &[],
};

impl PeerMpi {
    /// Its prefix; installed there on first use.
    pub(super) fn fetch(&self) -> Result<PathBuf, String> {
        let home = target().join("peers").join(self.name);
        if home.join("bin/mpiexec").exists() {
            return Ok(home);
        }
        make_folder(&target().join("peers"))?;
        let mut venv = command("python3");
        venv.args(["-m", "venv"]).arg(&home);
        quiet(venv, Duration::from_secs(300))?;
        let mut pip = command(home.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"])
            .args(self.packages);
        quiet(pip, Duration::from_secs(600))?;
        Ok(home)
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

/// The program must have run on the library that was meant.
pub(super) fn whose(name: &str, ranks: u32, told: &str, library: &str) -> Result<(), String> {
    let named = told
        .lines()
        .any(|line| line.starts_with("library: ") && line.contains(library));
    if name == "whose_library" && !(named && told.contains(&format!("good on {ranks} ranks"))) {
        return Err(format!(
            "expected the library {library}, the program said:\n{told}"
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
        let told = "library: MPICH Version: 5\ngood on 4 ranks\n";
        assert!(whose("whose_library", 4, told, "MPICH").is_ok());
        assert!(whose("whose_library", 4, told, "rmpi").is_err());
        assert!(whose("whose_library", 64, told, "MPICH").is_err());
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
