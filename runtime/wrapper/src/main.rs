// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpicc` and `rmpicxx` (also `mpicc`, `mpicxx`, `mpic++`): the system's compiler, with the header and the library of the
//! folder that the wrapper itself lies in.
//!
//! **Knows** its own path, the caller's arguments, `RMPI_CC` and `RMPI_CXX`.
//! **Never** changes an argument of the caller, reads a file, or stays: it becomes the compiler.
//!
//! One thread, no clean-up: all paths end in `exec`, or in words on standard error and code 127.

mod command;
mod place;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use command::{Line, Request};
use place::Place;

fn main() -> ExitCode {
    let mut args = env::args_os();
    let called = args.next().unwrap_or_default();
    let name = Path::new(&called)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("rmpicc")
        .to_owned();
    match run(&name, args.collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Nobody is left to tell if standard error is closed.
            let _ = writeln!(io::stderr(), "{name}: {why}");
            ExitCode::from(NOT_STARTED)
        }
    }
}

/// Becomes the compiler, or prints what was asked for.
fn run(name: &str, args: Vec<OsString>) -> Result<(), String> {
    let language = Language::of(name);
    let place = Place::find()?;
    let line = Line::new(&args);
    match line.request {
        Request::Help => say(&help(name)),
        Request::Show(part) => {
            let compiler = language.compiler(&line);
            say(&line.show(part, &compiler, &place))
        }
        Request::Compile => become_compiler(language, &line, &place),
    }
}

fn say(text: &str) -> Result<(), String> {
    writeln!(io::stdout(), "{text}")
        .map_err(|why| format!("cannot write to standard output: {why}"))
}

fn become_compiler(language: Language, line: &Line, place: &Place) -> Result<(), String> {
    let words = language.compiler(line);
    let (program, first) = words.split_first().ok_or("no compiler is named")?;
    if is_wrapper(program) {
        return Err(format!(
            "{} names the wrapper itself; it must name the compiler behind it, for example {}",
            language.variable(),
            language.default_compiler()
        ));
    }
    if line.tells_version {
        // Programs that ask a compiler for its version read standard output; this is for people.
        eprintln!(
            "rmpi {} wraps: {}",
            env!("CARGO_PKG_VERSION"),
            Path::new(program).display()
        );
    }
    let why = Command::new(program)
        .args(first)
        .args(line.words(place))
        .exec();
    Err(match why.kind() {
        io::ErrorKind::NotFound => language.missing(program),
        _ => format!(
            "cannot start the compiler {}: {why}",
            Path::new(program).display()
        ),
    })
}

/// Whether `program` is this very file, which would start itself for ever.
fn is_wrapper(program: &OsString) -> bool {
    let Ok(ours) = env::current_exe().and_then(|path| path.canonicalize()) else {
        return false;
    };
    let named = PathBuf::from(program);
    if named.components().count() > 1 {
        return named.canonicalize().is_ok_and(|path| path == ours);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .map(|folder| folder.join(&named))
        .find(|file| file.is_file());
    found
        .and_then(|file| file.canonicalize().ok())
        .is_some_and(|file| file == ours)
}

/// The language of a wrapper, by the name it was called by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Language {
    C,
    Cxx,
}

impl Language {
    fn of(name: &str) -> Self {
        if name.contains("cxx") || name.contains("++") || name.contains("CC") {
            Self::Cxx
        } else {
            Self::C
        }
    }

    const fn variable(self) -> &'static str {
        match self {
            Self::C => "RMPI_CC",
            Self::Cxx => "RMPI_CXX",
        }
    }

    const fn default_compiler(self) -> &'static str {
        match self {
            Self::C => "cc",
            Self::Cxx => "c++",
        }
    }

    /// The compiler and its first arguments: `-cc=`, else the variable, else the system's.
    fn compiler(self, line: &Line) -> Vec<OsString> {
        let named = line
            .compiler
            .clone()
            .or_else(|| env::var_os(self.variable()));
        let named = named.filter(|text| !text.is_empty());
        let named = named.unwrap_or_else(|| self.default_compiler().into());
        // A path with a space in it is a path; anything else with a space is a command and its arguments.
        if Path::new(&named).is_file() {
            return vec![named];
        }
        match named.to_str() {
            Some(text) => text.split_whitespace().map(OsString::from).collect(),
            None => vec![named],
        }
    }

    fn missing(self, program: &OsString) -> String {
        let what = match self {
            Self::C => "C",
            Self::Cxx => "C++",
        };
        let package = match self {
            Self::C => "gcc",
            Self::Cxx => "g++",
        };
        format!(
            "there is no {what} compiler `{}`; install one (apt-get install {package}), or name one with {} or {}",
            Path::new(program).display(),
            self.variable(),
            if self == Self::C { "-cc=" } else { "-cxx=" },
        )
    }
}

fn help(name: &str) -> String {
    format!(
        "{name}: compiles and links MPI programs with rmpi {version}\n\
         \n\
         usage: {name} [options and files of the compiler]      {name} -O2 -o hello hello.c\n\
         \n\
         -show, -showme            print the whole command, run nothing\n\
         -showme:compile, :link    print what the wrapper adds to compile, to link\n\
         -showme:incdirs, :libdirs, :libs, :command, :version\n\
         -compile-info, -link-info the command to compile, to link\n\
         -cc=COMPILER, -cxx=...    use this compiler (as RMPI_CC, RMPI_CXX in the environment)\n\
         -static-mpi               link the MPI library into the program\n\
         everything else goes to the compiler as it is (--version and --help=... too)",
        version = env!("CARGO_PKG_VERSION")
    )
}

/// What shells answer where a command cannot be started.
const NOT_STARTED: u8 = 127;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_decides_the_language() {
        for name in ["rmpicxx", "mpicxx", "mpic++"] {
            assert_eq!(Language::of(name), Language::Cxx, "{name}");
        }
        for name in ["rmpicc", "mpicc", "anything"] {
            assert_eq!(Language::of(name), Language::C, "{name}");
        }
    }

    #[test]
    fn a_named_compiler_may_have_arguments() {
        let line = Line::new(&["-cc=ccache gcc -m64".into()]);
        assert_eq!(Language::C.compiler(&line), ["ccache", "gcc", "-m64"]);
    }
}
