// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implements the procedures whose arguments differ from those of C in more than their types. Also queries
//! communicators, for the generated procedures.
//!
//! # Safety
//! Rule F (`lib.rs`) for arguments from Fortran; C functions get arguments as MPI 5.0 requires: each text and list made
//! for such a call outlives the call.

use core::ffi::{c_char, c_int, c_void};

use crate::arg::{
    CHandle, CHandleArray, ChoiceBuffer, Errcodes, FortranHandle, Ierror, InAddress, OutAddress,
};
use crate::common;
use crate::names;
use crate::text::{Chars, Text, TextRoom};

unsafe extern "C" {
    fn MPI_Init(argc: *mut c_int, argv: *mut c_void) -> c_int;
    fn MPI_Init_thread(
        argc: *mut c_int,
        argv: *mut c_void,
        required: c_int,
        provided: *mut c_int,
    ) -> c_int;
    fn MPI_Pcontrol(level: c_int, ...) -> c_int;
    fn MPI_Wtime() -> f64;
    fn MPI_Wtick() -> f64;
    fn MPI_Aint_add(base: isize, disp: isize) -> isize;
    fn MPI_Aint_diff(one: isize, other: isize) -> isize;
    fn MPI_Info_create_env(argc: c_int, argv: *mut c_void, info: *mut CHandle) -> c_int;
    fn MPI_Info_get(
        info: CHandle,
        key: *const c_char,
        valuelen: c_int,
        value: *mut c_char,
        flag: *mut c_int,
    ) -> c_int;
    fn MPI_Info_get_string(
        info: CHandle,
        key: *const c_char,
        buflen: *mut c_int,
        value: *mut c_char,
        flag: *mut c_int,
    ) -> c_int;
    fn MPI_Session_get_nth_pset(
        session: CHandle,
        info: CHandle,
        n: c_int,
        pset_len: *mut c_int,
        pset_name: *mut c_char,
    ) -> c_int;
    fn MPI_Comm_spawn(
        command: *const c_char,
        argv: *const *const c_char,
        maxprocs: c_int,
        info: CHandle,
        root: c_int,
        comm: CHandle,
        intercomm: *mut CHandle,
        errcodes: *mut c_int,
    ) -> c_int;
    fn MPI_Comm_spawn_multiple(
        count: c_int,
        commands: *const *const c_char,
        argv: *const *const *const c_char,
        maxprocs: *const c_int,
        info: *mut CHandle,
        root: c_int,
        comm: CHandle,
        intercomm: *mut CHandle,
        errcodes: *mut c_int,
    ) -> c_int;
    // Calls by this library for its own use must bypass tools; these intercept only names without `P`.
    fn PMPI_Comm_test_inter(comm: CHandle, flag: *mut c_int) -> c_int;
    fn PMPI_Comm_size(comm: CHandle, size: *mut c_int) -> c_int;
    fn PMPI_Comm_remote_size(comm: CHandle, size: *mut c_int) -> c_int;
    fn PMPI_Comm_rank(comm: CHandle, rank: *mut c_int) -> c_int;
    fn PMPI_Topo_test(comm: CHandle, status: *mut c_int) -> c_int;
    fn PMPI_Cartdim_get(comm: CHandle, ndims: *mut c_int) -> c_int;
    fn PMPI_Graph_neighbors_count(comm: CHandle, rank: c_int, count: *mut c_int) -> c_int;
    fn PMPI_Dist_graph_neighbors_count(
        comm: CHandle,
        sources: *mut c_int,
        destinations: *mut c_int,
        weighted: *mut c_int,
    ) -> c_int;
}

/// Number of send datatypes of `MPI_Alltoallw`, which has as many receive datatypes. 0 for an invalid communicator,
/// which the C function will refuse.
pub(crate) fn peers(comm: CHandle) -> c_int {
    let (mut inter, mut size) = (0, 0);
    // SAFETY: the C function, which writes the flag.
    let code = unsafe { PMPI_Comm_test_inter(comm, &raw mut inter) };
    if code != 0 {
        return 0;
    }
    let code = match inter {
        // SAFETY: the C function, which writes the size.
        0 => unsafe { PMPI_Comm_size(comm, &raw mut size) },
        // SAFETY: the C function, which writes the size.
        _ => unsafe { PMPI_Comm_remote_size(comm, &raw mut size) },
    };
    if code == 0 { size } else { 0 }
}

/// Number of receive datatypes of `MPI_Neighbor_alltoallw`; 0 for an invalid communicator.
pub(crate) fn sources(comm: CHandle) -> c_int {
    neighbors(comm).0
}

/// Number of send datatypes of `MPI_Neighbor_alltoallw`; 0 for an invalid communicator.
pub(crate) fn destinations(comm: CHandle) -> c_int {
    neighbors(comm).1
}

/// Number of sources and of destinations of this process in the communicator's topology.
fn neighbors(comm: CHandle) -> (c_int, c_int) {
    const CART: c_int = 211;
    const GRAPH: c_int = 212;
    const DIST_GRAPH: c_int = 213;
    let mut kind = 0;
    // SAFETY: the C function, which writes the kind.
    let code = unsafe { PMPI_Topo_test(comm, &raw mut kind) };
    let (mut one, mut other, mut rank, mut weighted) = (0, 0, 0, 0);
    let code = match kind {
        _ if code != 0 => code,
        CART => {
            // SAFETY: the C function, which writes the number of dimensions.
            let code = unsafe { PMPI_Cartdim_get(comm, &raw mut one) };
            (one, other) = (2 * one, 2 * one);
            code
        }
        GRAPH => {
            // SAFETY: the C function, which writes the rank.
            unsafe { PMPI_Comm_rank(comm, &raw mut rank) };
            // SAFETY: the C function, which writes the count.
            let code = unsafe { PMPI_Graph_neighbors_count(comm, rank, &raw mut one) };
            other = one;
            code
        }
        DIST_GRAPH => {
            let (sources, destinations) = (&raw mut one, &raw mut other);
            // SAFETY: the C function, which writes two counts and a flag.
            unsafe {
                PMPI_Dist_graph_neighbors_count(comm, sources, destinations, &raw mut weighted)
            }
        }
        _ => 0,
    };
    if code == 0 { (one, other) } else { (0, 0) }
}

/// `MPI_Init`, MPI 5.0 section 11.2.1.
#[unsafe(export_name = "pmpi_init_")]
extern "C" fn init(ierror: Ierror) {
    // SAFETY: C allows both `argc` and `argv` to be absent.
    ierror.set(unsafe { MPI_Init(core::ptr::null_mut(), core::ptr::null_mut()) });
}
names!("pmpi_init_": "mpi_init_" = "pmpi_init_", "mpi_init_f08_" = "pmpi_init_f08_");

/// `MPI_Init_thread`, MPI 5.0 section 11.2.1.
#[unsafe(export_name = "pmpi_init_thread_")]
extern "C" fn init_thread(required: InAddress<c_int>, provided: OutAddress<c_int>, ierror: Ierror) {
    let (none, nothing) = (core::ptr::null_mut(), core::ptr::null_mut());
    // SAFETY: C allows both `argc` and `argv` to be absent; the level may be written.
    let code = unsafe { MPI_Init_thread(none, nothing, required.get(), provided.as_ptr()) };
    ierror.set(code);
}
names!("pmpi_init_thread_": "mpi_init_thread_" = "pmpi_init_thread_", "mpi_init_thread_f08_" = "pmpi_init_thread_f08_");

/// `MPI_Pcontrol`, MPI 5.0 section 15.2.4.
#[unsafe(export_name = "pmpi_pcontrol_")]
extern "C" fn pcontrol(level: InAddress<c_int>) {
    // SAFETY: no further arguments are needed. Fortran has no IERROR here; the code is MPI_SUCCESS.
    unsafe { MPI_Pcontrol(level.get()) };
}
names!("pmpi_pcontrol_": "mpi_pcontrol_" = "pmpi_pcontrol_", "mpi_pcontrol_f08_" = "pmpi_pcontrol_f08_");

/// `MPI_Wtime`, MPI 5.0 section 9.6.
#[unsafe(export_name = "pmpi_wtime_")]
extern "C" fn wtime() -> f64 {
    // SAFETY: no arguments.
    unsafe { MPI_Wtime() }
}
names!("pmpi_wtime_": "mpi_wtime_" = "pmpi_wtime_", "mpi_wtime_f08_" = "pmpi_wtime_f08_");

/// `MPI_Wtick`, MPI 5.0 section 9.6.
#[unsafe(export_name = "pmpi_wtick_")]
extern "C" fn wtick() -> f64 {
    // SAFETY: no arguments.
    unsafe { MPI_Wtick() }
}
names!("pmpi_wtick_": "mpi_wtick_" = "pmpi_wtick_", "mpi_wtick_f08_" = "pmpi_wtick_f08_");

/// `MPI_Aint_add`, MPI 5.0 section 5.1.5.
#[unsafe(export_name = "pmpi_aint_add_")]
extern "C" fn aint_add(base: InAddress<isize>, disp: InAddress<isize>) -> isize {
    // SAFETY: only numbers.
    unsafe { MPI_Aint_add(base.get(), disp.get()) }
}
names!("pmpi_aint_add_": "mpi_aint_add_" = "pmpi_aint_add_", "mpi_aint_add_f08_" = "pmpi_aint_add_f08_");

/// `MPI_Aint_diff`, MPI 5.0 section 5.1.5.
#[unsafe(export_name = "pmpi_aint_diff_")]
extern "C" fn aint_diff(one: InAddress<isize>, other: InAddress<isize>) -> isize {
    // SAFETY: only numbers.
    unsafe { MPI_Aint_diff(one.get(), other.get()) }
}
names!("pmpi_aint_diff_": "mpi_aint_diff_" = "pmpi_aint_diff_", "mpi_aint_diff_f08_" = "pmpi_aint_diff_f08_");

/// `MPI_F_sync_reg`, MPI 5.0 section 19.1.8: it does nothing, but the compiler must assume that it accesses the buffer.
#[unsafe(export_name = "pmpi_f_sync_reg_")]
extern "C" fn f_sync_reg(_buf: ChoiceBuffer) {}
names!("pmpi_f_sync_reg_": "mpi_f_sync_reg_" = "pmpi_f_sync_reg_", "mpi_f_sync_reg_f08_" = "pmpi_f_sync_reg_f08_");

/// Defines the functions that detach a buffer. With `mpi_f08`, they return the address. With the other methods, they
/// have a buffer argument instead, which they do not access (MPI 5.0 section 3.6).
macro_rules! detach {
    ($c:ident $large:ident ($($object:ident: $handle:ty),*);
     $old:ident $old_name:literal [$($old_names:tt)*];
     $new:ident $new_name:literal [$($new_names:tt)*];
     $wide:ident $wide_name:literal [$($wide_names:tt)*]) => {
        unsafe extern "C" {
            fn $c($($object: CHandle,)* address: *mut isize, size: *mut c_int) -> c_int;
            fn $large($($object: CHandle,)* address: *mut isize, size: *mut i64) -> c_int;
        }

        #[doc = concat!("`", stringify!($c), "`, MPI 5.0 section 3.6.")]
        #[unsafe(export_name = $old_name)]
        extern "C" fn $old($($object: $handle,)* _buffer_addr: ChoiceBuffer, size: OutAddress<c_int>, ierror: Ierror) {
            let mut address = 0;
            // SAFETY: the C function, which writes the address and the size.
            ierror.set(unsafe { $c($($object.handle(),)* &raw mut address, size.as_ptr()) });
        }
        names!($old_name: $($old_names)*);

        #[doc = concat!("The same with `mpi_f08`.")]
        #[unsafe(export_name = $new_name)]
        extern "C" fn $new($($object: $handle,)* buffer_addr: OutAddress<isize>, size: OutAddress<c_int>, ierror: Ierror) {
            // SAFETY: the C function, which writes the address and the size.
            ierror.set(unsafe { $c($($object.handle(),)* buffer_addr.as_ptr(), size.as_ptr()) });
        }
        names!($new_name: $($new_names)*);

        #[doc = concat!("The same with a large size.")]
        #[unsafe(export_name = $wide_name)]
        extern "C" fn $wide($($object: $handle,)* buffer_addr: OutAddress<isize>, size: OutAddress<i64>, ierror: Ierror) {
            // SAFETY: the C function, which writes the address and the size.
            ierror.set(unsafe { $large($($object.handle(),)* buffer_addr.as_ptr(), size.as_ptr()) });
        }
        names!($wide_name: $($wide_names)*);
    };
}

detach! {
    MPI_Buffer_detach MPI_Buffer_detach_c ();
    buffer_detach "pmpi_buffer_detach_" ["mpi_buffer_detach_" = "pmpi_buffer_detach_"];
    buffer_detach_f08 "pmpi_buffer_detach_f08_" ["mpi_buffer_detach_f08_" = "pmpi_buffer_detach_f08_"];
    buffer_detach_c "pmpi_buffer_detach_c_f08_" ["mpi_buffer_detach_c_f08_" = "pmpi_buffer_detach_c_f08_"]
}
detach! {
    MPI_Comm_detach_buffer MPI_Comm_detach_buffer_c (comm: InAddress<FortranHandle>);
    comm_detach_buffer "pmpi_comm_detach_buffer_" ["mpi_comm_detach_buffer_" = "pmpi_comm_detach_buffer_"];
    comm_detach_buffer_f08 "pmpi_comm_detach_buffer_f08_" ["mpi_comm_detach_buffer_f08_" = "pmpi_comm_detach_buffer_f08_"];
    comm_detach_buffer_c "pmpi_comm_detach_buffer_c_f08_" ["mpi_comm_detach_buffer_c_f08_" = "pmpi_comm_detach_buffer_c_f08_"]
}
detach! {
    MPI_Session_detach_buffer MPI_Session_detach_buffer_c (session: InAddress<FortranHandle>);
    session_detach_buffer "pmpi_session_detach_buffer_" ["mpi_session_detach_buffer_" = "pmpi_session_detach_buffer_"];
    session_detach_buffer_f08 "pmpi_session_detach_buffer_f08_" ["mpi_session_detach_buffer_f08_" = "pmpi_session_detach_buffer_f08_"];
    session_detach_buffer_c "pmpi_session_detach_buffer_c_f08_" ["mpi_session_detach_buffer_c_f08_" = "pmpi_session_detach_buffer_c_f08_"]
}

/// `MPI_Info_create_env`, MPI 5.0 chapter 10: Fortran programs have no `argv`.
#[unsafe(export_name = "pmpi_info_create_env_")]
extern "C" fn info_create_env(info: OutAddress<FortranHandle>, ierror: Ierror) {
    let mut handle = info.handle();
    // SAFETY: C allows both `argc` and `argv` to be absent.
    let code = unsafe { MPI_Info_create_env(0, core::ptr::null_mut(), &raw mut handle) };
    info.set_handle(handle);
    ierror.set(code);
}
names!("pmpi_info_create_env_": "mpi_info_create_env_" = "pmpi_info_create_env_", "mpi_info_create_env_f08_" = "pmpi_info_create_env_f08_");

/// `MPI_Info_get`, MPI 5.0 section 16.3: C's buffer has one more character, for the NUL.
#[unsafe(export_name = "pmpi_info_get_")]
extern "C" fn info_get(
    info: InAddress<FortranHandle>,
    key: Chars,
    valuelen: InAddress<c_int>,
    value: Chars,
    flag: OutAddress<c_int>,
    ierror: Ierror,
    key_len: usize,
    value_len: usize,
) {
    let key = key.trimmed(key_len);
    let wanted = valuelen.get();
    let mut room = TextRoom::of(usize::try_from(wanted).unwrap_or(0).saturating_add(1));
    let mut found = 0;
    let (key, text) = (key.as_ptr(), room.as_mut_ptr());
    // SAFETY: the C function; the buffer has room for `wanted` characters and a NUL.
    let code = unsafe { MPI_Info_get(info.handle(), key, wanted, text, &raw mut found) };
    if code == 0 {
        flag.set(found);
    }
    if code == 0 && found != 0 {
        room.give(value, value_len);
    }
    ierror.set(code);
}
names!("pmpi_info_get_": "mpi_info_get_" = "pmpi_info_get_", "mpi_info_get_f08_" = "pmpi_info_get_f08_");

/// Calls `query`, which calls a C function that returns a text and its length. The length includes the NUL in C, but
/// not in Fortran. `query` returns the code, and whether there is a text. This function returns the code.
fn sized_text(
    length: OutAddress<c_int>,
    value: Chars,
    value_len: usize,
    query: impl FnOnce(*mut c_int, *mut c_char) -> (c_int, bool),
) -> c_int {
    let wanted = length.get().max(0);
    let mut room = TextRoom::of(usize::try_from(wanted).unwrap_or(0).saturating_add(1));
    // With length 0 the caller requests only the length of the text.
    let mut counted = if wanted == 0 {
        0
    } else {
        wanted.saturating_add(1)
    };
    let (code, is_there) = query(&raw mut counted, room.as_mut_ptr());
    if code == 0 && is_there {
        length.set(counted.saturating_sub(1).max(0));
        if wanted > 0 {
            room.give(value, value_len);
        }
    }
    code
}

/// `MPI_Info_get_string`, MPI 5.0 chapter 10: in Fortran the length does not include a NUL.
#[unsafe(export_name = "pmpi_info_get_string_")]
extern "C" fn info_get_string(
    info: InAddress<FortranHandle>,
    key: Chars,
    buflen: OutAddress<c_int>,
    value: Chars,
    flag: OutAddress<c_int>,
    ierror: Ierror,
    key_len: usize,
    value_len: usize,
) {
    let key = key.trimmed(key_len);
    let code = sized_text(buflen, value, value_len, |size, text| {
        let mut found = 0;
        let (info, key) = (info.handle(), key.as_ptr());
        // SAFETY: the C function; the buffer has `size` bytes.
        let code = unsafe { MPI_Info_get_string(info, key, size, text, &raw mut found) };
        if code == 0 {
            flag.set(found);
        }
        (code, found != 0)
    });
    ierror.set(code);
}
names!("pmpi_info_get_string_": "mpi_info_get_string_" = "pmpi_info_get_string_", "mpi_info_get_string_f08_" = "pmpi_info_get_string_f08_");

/// `MPI_Session_get_nth_pset`, MPI 5.0 section 11.3.2: in Fortran the length does not include a NUL.
#[unsafe(export_name = "pmpi_session_get_nth_pset_")]
extern "C" fn session_get_nth_pset(
    session: InAddress<FortranHandle>,
    info: InAddress<FortranHandle>,
    n: InAddress<c_int>,
    pset_len: OutAddress<c_int>,
    pset_name: Chars,
    ierror: Ierror,
    pset_name_len: usize,
) {
    let (session, info, n) = (session.handle(), info.handle(), n.get());
    let code = sized_text(pset_len, pset_name, pset_name_len, |size, text| {
        // SAFETY: the C function; the buffer has `size` bytes.
        let code = unsafe { MPI_Session_get_nth_pset(session, info, n, size, text) };
        (code, true)
    });
    ierror.set(code);
}
names!("pmpi_session_get_nth_pset_": "mpi_session_get_nth_pset_" = "pmpi_session_get_nth_pset_", "mpi_session_get_nth_pset_f08_" = "pmpi_session_get_nth_pset_f08_");

/// Whether this process is the root: some arguments are significant only at the root (MPI 5.0 section 11.8.2).
fn is_root(comm: CHandle, root: c_int) -> bool {
    let mut rank = -1;
    // SAFETY: the C function, which writes the rank.
    let code = unsafe { PMPI_Comm_rank(comm, &raw mut rank) };
    code == 0 && rank == root
}

/// Arguments of a program to spawn: the items of `argv` before the first blank item (MPI 5.0 section 11.8.2). Items
/// have `length` characters, and begin `stride` characters apart.
fn arguments(argv: Chars, stride: usize, length: usize) -> Vec<Text> {
    let mut texts = Vec::new();
    if length == 0 {
        return texts;
    }
    loop {
        let text = argv.item(texts.len(), stride).trimmed(length);
        if text.is_empty() {
            return texts;
        }
        texts.push(text);
    }
}

/// The NULL-terminated array of pointers for C.
fn pointers(texts: &[Text]) -> Vec<*const c_char> {
    let mut pointers: Vec<*const c_char> = texts.iter().map(Text::as_ptr).collect();
    pointers.push(core::ptr::null());
    pointers
}

/// `MPI_Comm_spawn`, MPI 5.0 section 11.8.2.
#[unsafe(export_name = "pmpi_comm_spawn_")]
extern "C" fn comm_spawn(
    command: Chars,
    argv: Chars,
    maxprocs: InAddress<c_int>,
    info: InAddress<FortranHandle>,
    root: InAddress<c_int>,
    comm: InAddress<FortranHandle>,
    intercomm: OutAddress<FortranHandle>,
    errcodes: Errcodes,
    ierror: Ierror,
    command_len: usize,
    argv_len: usize,
) {
    let is_root = is_root(comm.handle(), root.get());
    let command = command.trimmed(if is_root { command_len } else { 0 });
    let texts = match is_root && !common::is_argv_null(argv.as_ptr().cast()) {
        true => arguments(argv, argv_len, argv_len),
        false => Vec::new(),
    };
    let argv = pointers(&texts);
    let mut handle = intercomm.handle();
    // SAFETY: the C function; every text outlives the call.
    let code = unsafe {
        MPI_Comm_spawn(
            command.as_ptr(),
            argv.as_ptr(),
            maxprocs.get(),
            info.handle(),
            root.get(),
            comm.handle(),
            &raw mut handle,
            errcodes.get(),
        )
    };
    intercomm.set_handle(handle);
    ierror.set(code);
}
names!("pmpi_comm_spawn_": "mpi_comm_spawn_" = "pmpi_comm_spawn_", "mpi_comm_spawn_f08_" = "pmpi_comm_spawn_f08_");

/// `MPI_Comm_spawn_multiple`, MPI 5.0 section 11.8.3: the arguments of command `i` are `ARRAY_OF_ARGV(i, :)`.
#[unsafe(export_name = "pmpi_comm_spawn_multiple_")]
extern "C" fn comm_spawn_multiple(
    count: InAddress<c_int>,
    commands: Chars,
    argvs: Chars,
    maxprocs: InAddress<c_int>,
    infos: InAddress<FortranHandle>,
    root: InAddress<c_int>,
    comm: InAddress<FortranHandle>,
    intercomm: OutAddress<FortranHandle>,
    errcodes: Errcodes,
    ierror: Ierror,
    commands_len: usize,
    argvs_len: usize,
) {
    let count = match is_root(comm.handle(), root.get()) {
        true => count.get(),
        false => 0,
    };
    let many = usize::try_from(count).unwrap_or(0);
    let commands: Vec<Text> = (0..many)
        .map(|place| commands.item(place, commands_len).trimmed(commands_len))
        .collect();
    let commands = (pointers(&commands), commands);
    let texts: Vec<Vec<Text>> = match common::is_argvs_null(argvs.as_ptr().cast()) {
        true => Vec::new(),
        // The array is in column-major order, so consecutive arguments of a command are `many` items apart.
        false => (0..many)
            .map(|row| arguments(argvs.item(row, argvs_len), many * argvs_len, argvs_len))
            .collect(),
    };
    let lists: Vec<Vec<*const c_char>> = texts.iter().map(|texts| pointers(texts)).collect();
    let argvs: Vec<*const *const c_char> = lists.iter().map(|list| list.as_ptr()).collect();
    let argvs = if argvs.is_empty() {
        core::ptr::null()
    } else {
        argvs.as_ptr()
    };
    let mut infos = CHandleArray::read(infos.as_ptr(), count);
    let mut handle = intercomm.handle();
    // SAFETY: the C function; every text and list outlives the call.
    let code = unsafe {
        MPI_Comm_spawn_multiple(
            count,
            commands.0.as_ptr(),
            argvs,
            maxprocs.as_ptr(),
            infos.as_mut_ptr(),
            root.get(),
            comm.handle(),
            &raw mut handle,
            errcodes.get(),
        )
    };
    intercomm.set_handle(handle);
    ierror.set(code);
}
names!("pmpi_comm_spawn_multiple_": "mpi_comm_spawn_multiple_" = "pmpi_comm_spawn_multiple_", "mpi_comm_spawn_multiple_f08_" = "pmpi_comm_spawn_multiple_f08_");
