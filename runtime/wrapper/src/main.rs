// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpicc`, `rmpicxx` and `rmpifort` (also `mpicc`, `mpicxx`, `mpic++`, `mpifort`, `mpif90`, `mpif77`): they run the
//! system's compiler with the header and the library of the installation that contains the wrapper.
//!
//! **Knows** its own path, the caller's arguments, `RMPI_CC`, `RMPI_CXX` and `RMPI_FC`, and for Fortran the cache of
//! compiled modules (`modules.rs`).
//! **Never** changes an argument of the caller, or adds an argument that contradicts one. In the end the process
//! executes the compiler.
//!
//! The process has one thread, and nothing to clean up at its end. A compilation ends in `exec`, or in a message on
//! standard error and exit code 127.

mod command;
mod language;
mod modules;
mod place;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use command::{CompilerCommand, WrapperRequest};
use language::{Kit, Language, find_program};
use modules::Modules;
use place::InstallTree;

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
            report(&name, &why);
            ExitCode::from(NOT_STARTED)
        }
    }
}

/// Executes the compiler, or prints the requested information.
fn run(name: &str, args: Vec<OsString>) -> Result<(), String> {
    let language = Language::of(name);
    let place = InstallTree::find()?;
    let line = CompilerCommand::new(&args, language);
    match line.request {
        WrapperRequest::Help => print(&help(name)),
        WrapperRequest::Show(part) => {
            let compiler = language.compiler(&line);
            // Messages are suppressed: the caller may parse all output.
            let kit = kit(language, &compiler, &place, |_| ());
            print(&line.show(part, &compiler, &kit))
        }
        WrapperRequest::Modules => {
            let compiler = real_compiler(language, &line)?;
            let folder = Modules::of(&compiler, &place)?.find_or_make(|text| report(name, text))?;
            print(&folder.display().to_string())
        }
        WrapperRequest::Compile => become_compiler(name, language, &line, &place),
    }
}

fn print(text: &str) -> Result<(), String> {
    writeln!(io::stdout(), "{text}")
        .map_err(|why| format!("cannot write to standard output: {why}"))
}

/// Prints a message for the user.
fn report(name: &str, text: &str) {
    // A closed standard error is not an error.
    let _ = writeln!(io::stderr(), "{name}: {text}");
}

fn become_compiler(
    name: &str,
    language: Language,
    line: &CompilerCommand,
    place: &InstallTree,
) -> Result<(), String> {
    let compiler = real_compiler(language, line)?;
    let (program, first) = compiler.split_first().ok_or("no compiler is named")?;
    if line.is_version_query {
        // The line for the user goes to standard error, since programs that query a compiler's version read standard
        // output.
        eprintln!(
            "rmpi {} wraps: {}",
            env!("CARGO_PKG_VERSION"),
            Path::new(program).display()
        );
    }
    let kit = match line.has_files() {
        true => kit(language, &compiler, place, |text| report(name, text)),
        false => Kit::of_c(place),
    };
    let why = Command::new(program)
        .args(first)
        .args(line.arguments(&kit))
        .exec();
    Err(match why.kind() {
        io::ErrorKind::NotFound => language.missing(program),
        _ => format!(
            "cannot start the compiler {}: {why}",
            Path::new(program).display()
        ),
    })
}

/// The kit of a language. If the Fortran modules are not available, reports why, and returns a kit without them.
fn kit(
    language: Language,
    compiler: &[OsString],
    place: &InstallTree,
    report: impl Fn(&str),
) -> Kit {
    if language != Language::Fortran {
        return Kit::of_c(place);
    }
    let modules = Modules::of(compiler, place);
    let leniency = modules.as_ref().ok().and_then(Modules::leniency);
    let folder = modules.and_then(|modules| modules.find_or_make(&report));
    if let Err(why) = &folder {
        report(why);
    }
    Kit::of_fortran(place, folder.ok(), leniency)
}

/// The compiler and its first arguments. It is an error if the compiler is this program itself.
fn real_compiler(language: Language, line: &CompilerCommand) -> Result<Vec<OsString>, String> {
    let compiler = language.compiler(line);
    let program = compiler.first().ok_or("no compiler is named")?;
    if is_wrapper(program) {
        return Err(format!(
            "{} names the wrapper itself; it must name the compiler behind it, for example {}",
            language.variable(),
            language.default_compiler()
        ));
    }
    Ok(compiler)
}

/// Whether `program` is the file of this program. If so, this program would execute itself for ever.
fn is_wrapper(program: &OsString) -> bool {
    let Ok(ours) = env::current_exe().and_then(|path| path.canonicalize()) else {
        return false;
    };
    let named = PathBuf::from(program);
    let file = match named.components().count() {
        1 => find_program(&named),
        _ => Some(named),
    };
    file.and_then(|file| file.canonicalize().ok())
        .is_some_and(|file| file == ours)
}

fn help(name: &str) -> String {
    let language = Language::of(name);
    let (file, chosen, example) = match language {
        Language::Fortran => ("hello.f90", "-fc=COMPILER           ", "-fc=gfortran-14"),
        Language::Cxx => ("hello.cpp", "-cc=COMPILER, -cxx=... ", "-cxx=clang++"),
        Language::C => ("hello.c", "-cc=COMPILER, -cxx=... ", "-cc=clang"),
    };
    let variables = match language {
        Language::Fortran => "RMPI_FC",
        _ => "RMPI_CC, RMPI_CXX",
    };
    let modules = match language {
        Language::Fortran => {
            "--modules                 compile the modules `mpi` and `mpi_f08` for this compiler if they are not, print their folder\n"
        }
        _ => "",
    };
    format!(
        "{name}: compiles and links MPI programs with rmpi {version}\n\
         \n\
         usage: {name} [options and files of the compiler]\n\
         \n\
         -show, -showme            print the whole command, run nothing\n\
         -showme:compile, :link    print what the wrapper adds to compile, to link\n\
         -showme:incdirs, :libdirs, :libs, :command, :version\n\
         -compile-info, -link-info the command to compile, to link\n\
         {chosen}   use this compiler (as {variables} in the environment)\n\
         -static-mpi               link the MPI library into the program\n\
         {modules}\
         everything else goes to the compiler as it is (--version and --help=... too)\n\
         \n\
         Examples:\n\
         \x20 {name} -O2 -o hello {file}\n\
         \x20 {name} -show -c {file}\n\
         \x20 {name} {example} -static-mpi -o hello {file}",
        version = env!("CARGO_PKG_VERSION")
    )
}

/// The exit code of shells for a command that cannot be started.
const NOT_STARTED: u8 = 127;
