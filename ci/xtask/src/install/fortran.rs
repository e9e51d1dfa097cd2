// SPDX-License-Identifier: MIT OR Apache-2.0
//! `librmpi_fortran.so.1`, `mpif.h`, and the sources of the modules.

use std::path::Path;
use std::process::Command;

use super::{STAYS, copy, relink, rename, shared_library};
use crate::process::show;
use crate::tree::{make_folder, root};

/// Links the library from cargo's static one, against the MPI library of the same tree, and installs what compilers read.
pub(super) fn install(built: &Path, prefix: &Path, quick: bool) -> Result<(), String> {
    let generated = root().join("runtime/fortran/gen");
    let lib = prefix.join("lib");
    let archive = built.join("librmpi_fortran_static.a");
    copy(&archive, &lib.join("librmpi_fortran.a"))?;
    let fresh = lib.join(format!(".{SHARED}.new"));
    let script = generated.join("librmpi_fortran.map");
    let mut link = link_command(&archive, &script, &lib, &fresh);
    if !quick {
        link.arg("-Wl,--strip-debug");
    }
    show(link)?;
    rename(&fresh, &lib.join(SHARED))?;
    relink(SHARED, &lib.join("librmpi_fortran.so"))?;
    copy(
        &generated.join("mpif.h"),
        &prefix.join("include").join("mpif.h"),
    )?;
    let sources = prefix.join("share/rmpi/fortran");
    make_folder(&sources)?;
    for name in ["mpi.f90", "mpi_f08.f90"] {
        copy(&generated.join(name), &sources.join(name))?;
    }
    Ok(())
}

const SHARED: &str = "librmpi_fortran.so.1";

fn link_command(archive: &Path, script: &Path, lib: &Path, to: &Path) -> Command {
    let mut link = shared_library(archive, script, SHARED, to);
    // The MPI library lies beside it, wherever the tree is moved.
    link.args(["-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"]);
    link.arg(format!("-L{}", lib.display())).arg("-lmpi_abi");
    link.args(["-lgcc_s", "-lpthread", "-ldl", "-lm", STAYS]);
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_stands_on_the_mpi_of_its_tree() {
        let path = Path::new("x");
        let words: Vec<String> = link_command(path, path, path, path)
            .get_args()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        assert!(words.contains(&"-lmpi_abi".to_owned()), "{words:?}");
        assert!(
            words.contains(&"-Wl,-soname,librmpi_fortran.so.1".to_owned()),
            "{words:?}"
        );
    }
}
