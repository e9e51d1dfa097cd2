// SPDX-License-Identifier: MIT OR Apache-2.0
//! The languages of the wrappers: their compilers, and the arguments that a program in them needs.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::command::CompilerCommand;
use crate::place::InstallTree;

/// The language of a wrapper; the name under which the wrapper was called determines it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Language {
    C,
    Cxx,
    Fortran,
}

impl Language {
    pub(crate) fn of(name: &str) -> Self {
        if ["fort", "f77", "f90"]
            .iter()
            .any(|part| name.contains(part))
        {
            Self::Fortran
        } else if name.contains("cxx") || name.contains("++") || name.contains("CC") {
            Self::Cxx
        } else {
            Self::C
        }
    }

    /// The environment variable that names the compiler.
    pub(crate) const fn variable(self) -> &'static str {
        match self {
            Self::C => "RMPI_CC",
            Self::Cxx => "RMPI_CXX",
            Self::Fortran => "RMPI_FC",
        }
    }

    /// The command-line options that name the compiler. Messages mention the first of them.
    pub(crate) const fn options(self) -> &'static [&'static str] {
        match self {
            Self::C => &["-cc=", "-cxx=", "-CC="],
            Self::Cxx => &["-cxx=", "-cc=", "-CC="],
            Self::Fortran => &["-fc=", "-f90=", "-f77="],
        }
    }

    /// The default compiler.
    pub(crate) fn default_compiler(self) -> &'static str {
        match self {
            Self::C => "cc",
            Self::Cxx => "c++",
            // There is no standard name for a Fortran compiler, so the first known one that is installed is used.
            Self::Fortran => {
                let mut known = FORTRAN_COMPILERS.iter();
                let found = known.find(|name| find_program(Path::new(name)).is_some());
                found.unwrap_or(&FORTRAN_COMPILERS[0])
            }
        }
    }

    /// The compiler and its first arguments: from the option `-cc=` or a similar one, otherwise from the environment
    /// variable, otherwise the default.
    pub(crate) fn compiler(self, line: &CompilerCommand) -> Vec<OsString> {
        let named = line
            .compiler
            .clone()
            .or_else(|| env::var_os(self.variable()));
        let named = named.filter(|text| !text.is_empty());
        let named = named.unwrap_or_else(|| self.default_compiler().into());
        // The path of an existing file is used unchanged, because it may contain spaces. Anything else is split into a
        // command and arguments.
        if Path::new(&named).is_file() {
            return vec![named];
        }
        match named.to_str() {
            Some(text) => text.split_whitespace().map(OsString::from).collect(),
            None => vec![named],
        }
    }

    pub(crate) fn missing(self, program: &OsString) -> String {
        let (what, package) = match self {
            Self::C => ("C", "gcc"),
            Self::Cxx => ("C++", "g++"),
            Self::Fortran => ("Fortran", "gfortran"),
        };
        format!(
            "there is no {what} compiler `{}`; install one (apt-get install {package}), or name one with {} or {}",
            Path::new(program).display(),
            self.variable(),
            self.options()[0],
        )
    }
}

/// The usual names of Fortran compilers, in search order.
const FORTRAN_COMPILERS: [&str; 5] = ["gfortran", "flang", "flang-new", "ifx", "nvfortran"];

/// Looks a command up in `PATH`.
pub(crate) fn find_program(name: &Path) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// The data for the arguments that the wrapper adds.
#[derive(Debug)]
pub(crate) struct Kit {
    pub(crate) include: PathBuf,
    pub(crate) lib: PathBuf,
    is_fortran: bool,
    /// The folder of the compiled Fortran modules and the archive of their code.
    modules: Option<PathBuf>,
    /// The option with which the compiler accepts calls of one procedure with arguments of different types, if it needs
    /// one.
    pub(crate) leniency: Option<&'static str>,
}

impl Kit {
    /// The kit of C and C++.
    pub(crate) fn of_c(place: &InstallTree) -> Self {
        Self {
            include: place.include(),
            lib: place.lib(),
            is_fortran: false,
            modules: None,
            leniency: None,
        }
    }

    /// The kit of Fortran. Without modules only programs that include `mpif.h` can be compiled.
    pub(crate) fn of_fortran(
        place: &InstallTree,
        modules: Option<PathBuf>,
        leniency: Option<&'static str>,
    ) -> Self {
        Self {
            is_fortran: true,
            modules,
            leniency,
            ..Self::of_c(place)
        }
    }

    pub(crate) fn include_folders(&self) -> Vec<PathBuf> {
        let folders = [Some(&self.include), self.modules.as_ref()];
        folders.into_iter().flatten().cloned().collect()
    }

    pub(crate) fn library_folders(&self) -> Vec<PathBuf> {
        let folders = [Some(&self.lib), self.modules.as_ref()];
        folders.into_iter().flatten().cloned().collect()
    }

    /// The libraries, in link order.
    pub(crate) fn libraries(&self) -> Vec<&'static str> {
        let modules = self.modules.is_some().then_some(MODULE_LIBRARY);
        let bindings = self.is_fortran.then_some("rmpi_fortran");
        let libraries = [modules, bindings, Some("mpi_abi")];
        libraries.into_iter().flatten().collect()
    }
}

/// The archive of the modules' code.
pub(crate) const MODULE_LIBRARY: &str = "rmpi_modules";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_decides_the_language() {
        for name in ["rmpicxx", "mpicxx", "mpic++"] {
            assert_eq!(Language::of(name), Language::Cxx, "{name}");
        }
        for name in ["rmpifort", "mpifort", "mpif90", "mpif77"] {
            assert_eq!(Language::of(name), Language::Fortran, "{name}");
        }
        for name in ["rmpicc", "mpicc", "anything"] {
            assert_eq!(Language::of(name), Language::C, "{name}");
        }
    }

    #[test]
    fn a_named_compiler_may_have_arguments() {
        let line = CompilerCommand::new(&["-cc=ccache gcc -m64".into()], Language::C);
        assert_eq!(Language::C.compiler(&line), ["ccache", "gcc", "-m64"]);
        let line = CompilerCommand::new(&["-fc=gfortran-12 -m64".into()], Language::Fortran);
        assert_eq!(Language::Fortran.compiler(&line), ["gfortran-12", "-m64"]);
    }
}
