// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: the wrapper's own options, the compiler's arguments, and the arguments that the wrapper adds.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::language::{Kit, Language};
use crate::place::flag;

/// What a command line requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WrapperRequest {
    Compile,
    Show(ShownPart),
    /// Print the folder of the compiled Fortran modules.
    Modules,
    Help,
}

/// The part of the command that `-show` and similar options print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShownPart {
    /// The complete command.
    Whole,
    /// The command that compiles.
    CompileCommand,
    /// The command that links.
    LinkCommand,
    CompileFlags,
    LinkFlags,
    IncludeFolders,
    LibraryFolders,
    Libraries,
    Compiler,
    Version,
}

/// A parsed command line.
#[derive(Debug)]
pub(crate) struct CompilerCommand {
    pub(crate) request: WrapperRequest,
    /// The value of `-cc=`, `-cxx=` or `-fc=`.
    pub(crate) compiler: Option<OsString>,
    /// Whether `-v` is the only argument.
    pub(crate) is_version_query: bool,
    static_mpi: bool,
    links: bool,
    compiles: bool,
    /// The caller's arguments for the compiler, unchanged.
    own: Vec<OsString>,
}

impl CompilerCommand {
    pub(crate) fn new(args: &[OsString], language: Language) -> Self {
        let mut line = Self {
            request: WrapperRequest::Compile,
            compiler: None,
            is_version_query: false,
            static_mpi: false,
            links: false,
            compiles: false,
            own: Vec::new(),
        };
        for arg in args {
            line.take(arg, language);
        }
        let inputs = has_input(&line.own);
        let stops_early = line
            .own
            .iter()
            .any(|argument| STOPS_BEFORE_LINKING.iter().any(|stop| argument == stop));
        line.links = inputs && !stops_early;
        line.compiles = inputs;
        line.is_version_query = line.own.len() == 1 && line.own[0] == "-v";
        line
    }

    /// Parses one argument: an option of the wrapper, or an argument for the compiler.
    fn take(&mut self, arg: &OsString, language: Language) {
        let text = arg.to_str().unwrap_or_default();
        let mut prefixes = language.options().iter();
        let named = prefixes.find_map(|prefix| text.strip_prefix(prefix));
        if let Some(compiler) = named {
            self.compiler = Some(compiler.into());
        } else if let Some(part) = shown(text) {
            self.request = WrapperRequest::Show(part);
        } else if matches!(text, "-help" | "--help") {
            self.request = WrapperRequest::Help;
        } else if text == "--modules" && language == Language::Fortran {
            self.request = WrapperRequest::Modules;
        } else if matches!(text, "-static-mpi" | "-static_mpi") {
            self.static_mpi = true;
        } else {
            self.own.push(arg.clone());
        }
    }

    /// Whether the compiler gets an input file or a library.
    pub(crate) fn has_files(&self) -> bool {
        self.compiles
    }

    /// All arguments for the compiler.
    pub(crate) fn arguments(&self, kit: &Kit) -> Vec<OsString> {
        let mut arguments = Vec::new();
        if self.compiles {
            arguments.extend(self.compile_flags(kit));
        }
        arguments.extend(self.own.iter().cloned());
        if self.links {
            arguments.extend(self.link_flags(kit));
        }
        arguments
    }

    fn compile_flags(&self, kit: &Kit) -> Vec<OsString> {
        let folders = kit.include_folders();
        let mut arguments: Vec<OsString> =
            folders.iter().map(|folder| flag("-I", folder)).collect();
        let leniency = kit.leniency.filter(|option| !self.decides(option));
        arguments.extend(leniency.map(OsString::from));
        arguments
    }

    /// Whether the wrapper must not add an option of the form `-fsomething`: the caller sets the option or its
    /// negation, or there is a C file among the arguments. Fortran compilers pass C files to a C compiler, which does
    /// not accept Fortran options.
    fn decides(&self, option: &str) -> bool {
        let no = option.replacen("-f", "-fno-", 1);
        let is_given = |argument: &OsString| argument == option || argument.to_str() == Some(&no);
        let is_c = |argument: &OsString| {
            let extension = Path::new(argument).extension().unwrap_or_default();
            !starts_with_dash(argument) && SOURCES_OF_C.iter().any(|known| extension == *known)
        };
        self.own
            .iter()
            .any(|argument| is_given(argument) || is_c(argument))
    }

    fn link_flags(&self, kit: &Kit) -> Vec<OsString> {
        let folders = kit.library_folders();
        let mut arguments: Vec<OsString> =
            folders.iter().map(|folder| flag("-L", folder)).collect();
        let libraries = kit.libraries().into_iter();
        let libraries = libraries.map(|name| OsString::from(format!("-l{name}")));
        if self.static_mpi {
            arguments.push("-Wl,-Bstatic".into());
            arguments.extend(libraries);
            arguments.push("-Wl,-Bdynamic".into());
            arguments.extend(STATIC_NEEDS.iter().map(OsString::from));
            return arguments;
        }
        // RUNPATH, never RPATH: the library folder that the launcher sets in the environment must take precedence.
        arguments.push(flag("-Wl,-rpath,", &kit.lib));
        arguments.push("-Wl,--enable-new-dtags".into());
        arguments.extend(libraries);
        arguments
    }

    /// The output of `-show` and similar options.
    pub(crate) fn show(&self, part: ShownPart, compiler: &[OsString], kit: &Kit) -> String {
        let compile = self.compile_flags(kit);
        let link = self.link_flags(kit);
        let arguments: Vec<OsString> = match part {
            ShownPart::Whole if self.compiles => [compiler, &self.arguments(kit)].concat(),
            // Without input files the output has everything that a program needs.
            ShownPart::Whole => [compiler, &compile, &self.own, &link].concat(),
            ShownPart::CompileCommand => [compiler, &compile, &self.own, &["-c".into()]].concat(),
            ShownPart::LinkCommand => [compiler, &self.own, &link].concat(),
            ShownPart::CompileFlags => compile,
            ShownPart::LinkFlags => link,
            ShownPart::IncludeFolders => {
                kit.include_folders().into_iter().map(Into::into).collect()
            }
            ShownPart::LibraryFolders => {
                kit.library_folders().into_iter().map(Into::into).collect()
            }
            ShownPart::Libraries => kit.libraries().into_iter().map(Into::into).collect(),
            ShownPart::Compiler => compiler.to_vec(),
            ShownPart::Version => return format!("rmpi {}", env!("CARGO_PKG_VERSION")),
        };
        arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }
}

/// Parses the options with which the wrappers of other MPIs print the command: those of MPICH, and those of Open MPI
/// with one or two dashes.
fn shown(text: &str) -> Option<ShownPart> {
    let text = text.strip_prefix('-')?;
    let text = text.strip_prefix('-').unwrap_or(text);
    Some(match text {
        "show" | "showme" => ShownPart::Whole,
        "compile-info" | "compile_info" => ShownPart::CompileCommand,
        "link-info" | "link_info" => ShownPart::LinkCommand,
        "showme:compile" => ShownPart::CompileFlags,
        "showme:link" => ShownPart::LinkFlags,
        "showme:incdirs" | "show-incdirs" => ShownPart::IncludeFolders,
        "showme:libdirs" | "show-libdirs" => ShownPart::LibraryFolders,
        "showme:libs" | "show-libs" => ShownPart::Libraries,
        "showme:command" => ShownPart::Compiler,
        "showme:version" => ShownPart::Version,
        _ => return None,
    })
}

/// Whether the arguments have an input file or a library. Without them (`--version`, `-v`, `-dumpmachine`) the compiler
/// does not link.
fn has_input(arguments: &[OsString]) -> bool {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if TAKES_AN_ARGUMENT.iter().any(|option| argument == option) {
            arguments.next();
        } else if argument == "-" || !starts_with_dash(argument) || names_a_library(argument) {
            return true;
        }
    }
    false
}

fn names_a_library(argument: &OsStr) -> bool {
    argument.as_encoded_bytes().starts_with(b"-l")
}

fn starts_with_dash(argument: &OsStr) -> bool {
    argument.as_encoded_bytes().first() == Some(&b'-')
}

/// Quotes an argument for the shell.
fn quoted(argument: &OsString) -> String {
    let text = Path::new(argument).display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "-_./,=+:@%^~".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    let escaped: String = text
        .chars()
        .flat_map(|c| {
            if "\"\\$`".contains(c) {
                vec!['\\', c]
            } else {
                vec![c]
            }
        })
        .collect();
    format!("\"{escaped}\"")
}

const SOURCES_OF_C: [&str; 6] = ["c", "cc", "cpp", "cxx", "C", "c++"];

/// Options with which the compiler does not link.
const STOPS_BEFORE_LINKING: &[&str] = &[
    "-c",
    "-S",
    "-E",
    "-M",
    "-MM",
    "-fsyntax-only",
    "--precompile",
];

/// Options of GCC, Clang and Fortran compilers whose value is the next argument.
const TAKES_AN_ARGUMENT: &[&str] = &[
    "-o",
    "-I",
    "-L",
    "-D",
    "-U",
    "-x",
    "-T",
    "-u",
    "-z",
    "-e",
    "-A",
    "-B",
    "-MF",
    "-MT",
    "-MQ",
    "-include",
    "-imacros",
    "-iquote",
    "-isystem",
    "-idirafter",
    "-iprefix",
    "-iwithprefix",
    "-isysroot",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-Xclang",
    "-aux-info",
    "-target",
    "-arch",
    "--param",
    "--sysroot",
    "-wrapper",
    "-dumpbase",
    "-dumpdir",
    "-specs",
    "-mllvm",
    "-J",
    "-module",
    "-module-dir",
    "-mdir",
];

/// System libraries that the static library needs.
const STATIC_NEEDS: &[&str] = &["-lpthread", "-ldl", "-lm", "-lrt"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::InstallTree;

    fn kit() -> Kit {
        Kit::of_c(&InstallTree::at("/p"))
    }

    fn parsed(text: &str, language: Language) -> CompilerCommand {
        let args: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        CompilerCommand::new(&args, language)
    }

    fn arguments(text: &str) -> Vec<String> {
        let arguments = parsed(text, Language::C).arguments(&kit());
        arguments
            .iter()
            .map(|argument| argument.to_str().unwrap().to_owned())
            .collect()
    }

    fn show_in(text: &str, language: Language, kit: &Kit) -> String {
        let line = parsed(text, language);
        let WrapperRequest::Show(part) = line.request else {
            panic!("{:?}", line.request)
        };
        line.show(part, &["cc".into()], kit)
    }

    fn show(text: &str) -> String {
        show_in(text, Language::C, &kit())
    }

    #[test]
    fn linking_adds_library_and_runpath_after_the_callers_arguments() {
        let arguments = arguments("-O2 -o hello hello.c");
        assert_eq!(
            arguments[..5],
            ["-I/p/include", "-O2", "-o", "hello", "hello.c"]
        );
        assert_eq!(
            arguments[5..],
            [
                "-L/p/lib",
                "-Wl,-rpath,/p/lib",
                "-Wl,--enable-new-dtags",
                "-lmpi_abi"
            ]
        );
    }

    #[test]
    fn compiling_alone_adds_no_library() {
        for text in [
            "-c a.c",
            "-E a.c",
            "-S a.c",
            "-M a.c",
            "-MM a.c",
            "-fsyntax-only a.c",
        ] {
            assert!(!arguments(text).contains(&"-lmpi_abi".to_owned()), "{text}");
            assert!(
                arguments(text).contains(&"-I/p/include".to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn dependency_files_beside_a_link_do_not_stop_it() {
        assert!(arguments("-MD -MF a.d -o a a.c").contains(&"-lmpi_abi".to_owned()));
    }

    #[test]
    fn query_options_are_passed_unchanged() {
        for text in [
            "--version",
            "-v",
            "-dumpmachine",
            "-o name",
            "-x c",
            "-print-search-dirs",
        ] {
            assert_eq!(arguments(text).join(" "), text);
        }
        assert!(arguments("-x c -").contains(&"-lmpi_abi".to_owned()));
    }

    #[test]
    fn static_linking_adds_the_libraries_it_needs() {
        let arguments = arguments("-static-mpi a.o -o a").join(" ");
        assert!(
            arguments.contains("-Wl,-Bstatic -lmpi_abi -Wl,-Bdynamic -lpthread"),
            "{arguments}"
        );
        assert!(
            !arguments.contains("rpath") && !arguments.contains("static-mpi"),
            "{arguments}"
        );
    }

    #[test]
    fn every_show_option_prints_its_flags() {
        assert_eq!(show("-show -c a.c"), "cc -I/p/include -c a.c");
        assert!(show("-show").starts_with("cc -I/p/include -L/p/lib"));
        assert_eq!(show("-showme:compile"), "-I/p/include");
        assert!(show("--showme:link").ends_with("-lmpi_abi"));
        assert_eq!(show("-showme:incdirs"), "/p/include");
        assert_eq!(show("-showme:libs"), "mpi_abi");
        assert_eq!(show("-compile-info"), "cc -I/p/include -c");
        assert!(show("-link-info").starts_with("cc -L/p/lib"));
        assert!(show("-showme:version").starts_with("rmpi "));
    }

    #[test]
    fn fortran_adds_modules_and_its_library_before_libmpi() {
        let kit = Kit::of_fortran(&InstallTree::at("/p"), Some("/m".into()), None);
        let show = |text: &str| show_in(text, Language::Fortran, &kit);
        assert_eq!(show("-show -c a.f90"), "cc -I/p/include -I/m -c a.f90");
        assert_eq!(show("-showme:incdirs"), "/p/include /m");
        let link = show("-showme:link");
        let libraries = "-lrmpi_modules -lrmpi_fortran -lmpi_abi";
        assert!(link.ends_with(libraries) && link.contains("-L/m"), "{link}");
        assert!(!link.contains("rpath,/m"), "{link}");
        let link = show("-show -static-mpi a.o");
        let statically = format!("-Wl,-Bstatic {libraries} -Wl,-Bdynamic");
        assert!(link.contains(&statically), "{link}");
        let bare = Kit::of_fortran(&InstallTree::at("/p"), None, None);
        assert_eq!(
            show_in("-showme:libs", Language::Fortran, &bare),
            "rmpi_fortran mpi_abi"
        );
    }

    #[test]
    fn argument_mismatch_is_allowed_unless_the_caller_sets_it() {
        let option = "-fallow-argument-mismatch";
        let kit = Kit::of_fortran(&InstallTree::at("/p"), None, Some(option));
        let show = |text: &str| show_in(text, Language::Fortran, &kit);
        assert_eq!(
            show("-show -c a.f90"),
            format!("cc -I/p/include {option} -c a.f90")
        );
        assert!(show("-showme:compile").ends_with(option));
        for own in [
            "-fno-allow-argument-mismatch -c a.f",
            "-fallow-argument-mismatch -c a.f",
            "-c a.c",
            "a.f b.cxx",
        ] {
            let shown = show(&format!("-show {own}"));
            assert!(
                shown.starts_with(&format!("cc -I/p/include {own}")),
                "{shown}"
            );
        }
        // An object file is not a C file.
        assert!(show("-show -fPIC a.o").contains(option));
    }

    #[test]
    fn only_the_fortran_wrapper_has_the_modules_option() {
        let request = |language| parsed("--modules", language).request;
        assert_eq!(request(Language::Fortran), WrapperRequest::Modules);
        assert_eq!(request(Language::C), WrapperRequest::Compile);
        assert!(!parsed("-J folder", Language::Fortran).has_files());
    }

    #[test]
    fn arguments_with_spaces_are_shown_in_quotes() {
        assert_eq!(quoted(&"-DX=a b".into()), "\"-DX=a b\"");
        assert_eq!(quoted(&"-DX=\"$y\"".into()), "\"-DX=\\\"\\$y\\\"\"");
        assert_eq!(quoted(&"".into()), "\"\"");
    }
}
