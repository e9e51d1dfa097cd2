// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linker options of `rmpiexec` for debuggers.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Debuggers search for these symbols; exported symbols survive stripping.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=MPIR_*");
    // Tools that identify launchers by their symbols, such as LaunchMON, identify this launcher by this name.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=rmpi_launcher");
    // The program is loaded at a fixed address, because LaunchMON uses the addresses in the symbol table of a
    // launcher's file as addresses in the process. This option follows the `-pie` of the compiler, and the linker
    // applies the last one. Stack, heap and libraries still have random addresses.
    println!("cargo:rustc-link-arg-bins=-no-pie");
}
