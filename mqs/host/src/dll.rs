// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the debugger library of an MPI, and implements the callbacks through which the library reads a rank.
//!
//! # Safety
//! The library's functions have the types of the interface (**L1**), which every debugger must assume. As an image or
//! process, the library gets only a pointer to a `DllContext`, which outlives the use of the pointer (**L2**); one
//! thread at a time calls the library for a process.
#![allow(unsafe_code, reason = "the interface is C")]
#![allow(
    clippy::missing_transmute_annotations,
    reason = "the field gives the type"
)]

use nix::libc;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};

use mqs::interface::{
    self, Address, BasicCallbacks, COLLECTIVES, ImageCallbacks, NO_INFORMATION, OK, Opaque,
    PendingOperation, ProcessCallbacks, TypeSizes,
};

use crate::Error;
use crate::report::{
    CallReport, Collective, CommReport, NonblockingCollective, OperationReport,
    OperationTextReader, RankReport, text,
};
use crate::target::RankProcess;
use crate::types::Type;

type OfProcess = unsafe extern "C" fn(*mut Opaque) -> c_int;
type WithMessage = unsafe extern "C" fn(*mut Opaque, *mut *const c_char) -> c_int;
type CollState = unsafe extern "C" fn(*mut Opaque, c_int, *mut c_int, *mut c_int) -> c_int;

/// The functions of a library, which is never unloaded.
#[derive(Debug)]
pub struct Dll {
    /// Whether the library is rmpi's. If so, it lists blocking calls, and may be called on several threads at a time,
    /// each for a different process.
    is_ours: bool,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    setup_image: unsafe extern "C" fn(*mut Opaque, *const ImageCallbacks) -> c_int,
    image_has_queues: WithMessage,
    destroy_image_info: unsafe extern "C" fn(*mut c_void) -> c_int,
    setup_process: unsafe extern "C" fn(*mut Opaque, *const ProcessCallbacks) -> c_int,
    process_has_queues: WithMessage,
    destroy_process_info: unsafe extern "C" fn(*mut c_void) -> c_int,
    update_communicator_list: OfProcess,
    setup_communicator_iterator: OfProcess,
    get_communicator: unsafe extern "C" fn(*mut Opaque, *mut interface::Communicator) -> c_int,
    get_comm_group: unsafe extern "C" fn(*mut Opaque, *mut c_int) -> c_int,
    next_communicator: OfProcess,
    setup_operation_iterator: unsafe extern "C" fn(*mut Opaque, c_int) -> c_int,
    next_operation: unsafe extern "C" fn(*mut Opaque, *mut PendingOperation) -> c_int,
    get_global_rank: Option<OfProcess>,
    get_comm_coll_state: Option<CollState>,
}

/// A rank, for the library: the `Opaque` pointers to the rank's image and to its process both point to this.
struct DllContext<'a> {
    target: &'a RankProcess,
    image_info: *mut c_void,
    process_info: *mut c_void,
    /// The types that the library has looked up, by name; `None` if there is no such type. Its handle of a type is the
    /// address of the `Box`'s content.
    types: HashMap<Box<[u8]>, Option<Box<Type>>>,
}

/// The symbols of a loaded library.
struct DllSymbols<'a> {
    handle: NonNull<c_void>,
    path: &'a Path,
}

impl DllSymbols<'_> {
    /// An optional function; `None` if the library lacks it.
    fn find(&self, name: &'static CStr) -> Option<NonNull<c_void>> {
        // SAFETY: a library that is loaded, and a string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    fn need(&self, name: &'static CStr) -> Result<NonNull<c_void>, Error> {
        self.find(name).ok_or_else(|| Error::Dll {
            path: self.path.to_owned(),
            why: format!("it has no {}", name.to_string_lossy()),
        })
    }
}

/// A required function, with the type of the variable that it is assigned to.
macro_rules! function {
    ($names:expr, $name:literal) => {{
        let found = $names.need($name)?;
        // SAFETY: a function of this name has the type of the interface: L1.
        unsafe { core::mem::transmute(found.as_ptr()) }
    }};
}

impl Dll {
    /// Loads a library.
    ///
    /// # Errors
    /// When it cannot be loaded, or implements another version of the interface.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let refused = |why: String| Error::Dll {
            path: path.to_owned(),
            why,
        };
        let name = CString::new(path.as_os_str().as_bytes());
        let name = name.map_err(|_| refused("its name has a zero byte".into()))?;
        // SAFETY: a string; the library is assumed to be a debugger library: L1.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let Some(handle) = NonNull::new(handle) else {
            // SAFETY: the loader's message for this failure, or NULL.
            let text = unsafe { libc::dlerror() };
            return Err(refused(string_of(text)));
        };
        let names = DllSymbols { handle, path };
        let compatibility: unsafe extern "C" fn() -> c_int =
            function!(names, c"mqs_version_compatibility");
        // SAFETY: a function without arguments: L1.
        let version = unsafe { compatibility() };
        if version != interface::INTERFACE_COMPATIBILITY {
            let ours = interface::INTERFACE_COMPATIBILITY;
            return Err(refused(format!(
                "it implements version {version} of the interface, not {ours}"
            )));
        }
        let setup: unsafe extern "C" fn(*const BasicCallbacks) =
            function!(names, c"mqs_setup_basic_callbacks");
        // SAFETY: a static table.
        unsafe { setup(&raw const BASIC) };
        Self::functions(&names)
    }

    fn functions(names: &DllSymbols<'_>) -> Result<Self, Error> {
        let version: unsafe extern "C" fn() -> *const c_char =
            function!(names, c"mqs_version_string");
        // SAFETY: a function without arguments: L1.
        let version = string_of(unsafe { version() });
        Ok(Self {
            // The interface covers neither threads nor blocking calls; rmpi's library supports both.
            is_ours: version.starts_with("rmpi "),
            error_string: function!(names, c"mqs_dll_error_string"),
            setup_image: function!(names, c"mqs_setup_image"),
            image_has_queues: function!(names, c"mqs_image_has_queues"),
            destroy_image_info: function!(names, c"mqs_destroy_image_info"),
            setup_process: function!(names, c"mqs_setup_process"),
            process_has_queues: function!(names, c"mqs_process_has_queues"),
            destroy_process_info: function!(names, c"mqs_destroy_process_info"),
            update_communicator_list: function!(names, c"mqs_update_communicator_list"),
            setup_communicator_iterator: function!(names, c"mqs_setup_communicator_iterator"),
            get_communicator: function!(names, c"mqs_get_communicator"),
            get_comm_group: function!(names, c"mqs_get_comm_group"),
            next_communicator: function!(names, c"mqs_next_communicator"),
            setup_operation_iterator: function!(names, c"mqs_setup_operation_iterator"),
            next_operation: function!(names, c"mqs_next_operation"),
            get_global_rank: match names.find(c"mqs_get_global_rank") {
                Some(_) => Some(function!(names, c"mqs_get_global_rank")),
                None => None,
            },
            get_comm_coll_state: match names.find(c"mqs_get_comm_coll_state") {
                Some(_) => Some(function!(names, c"mqs_get_comm_coll_state")),
                None => None,
            },
        })
    }

    /// Whether several threads may call the library at the same time, for different ranks.
    #[must_use]
    pub fn is_for_threads(&self) -> bool {
        self.is_ours
    }

    /// Reads a rank's communicators, queues and calls.
    ///
    /// # Errors
    /// When a function of the library fails.
    pub fn read(&self, target: &RankProcess) -> Result<RankReport, Error> {
        let pid = target.pid();
        let mut context = DllContext {
            target,
            image_info: null_mut(),
            process_info: null_mut(),
            types: HashMap::new(),
        };
        let it: *mut Opaque = (&raw mut context).cast();
        let query = RankQuery { dll: self, it, pid };
        let found = query.rank();
        // Some libraries crash on a NULL info.
        if !context.process_info.is_null() {
            // SAFETY: the info that the library attached, destroyed once, here and below: L2.
            unsafe { (self.destroy_process_info)(context.process_info) };
        }
        if !context.image_info.is_null() {
            // SAFETY: as above.
            unsafe { (self.destroy_image_info)(context.image_info) };
        }
        found
    }
}

/// A rank whose queues are read through the library.
struct RankQuery<'a> {
    dll: &'a Dll,
    it: *mut Opaque,
    pid: u32,
}

impl RankQuery<'_> {
    fn rank(&self) -> Result<RankReport, Error> {
        let mut message = core::ptr::null();
        // SAFETY: static callbacks, and a context that outlives the calls: L2, here and below.
        let answer = unsafe { (self.dll.setup_image)(self.it, &raw const IMAGE) };
        self.check("mqs_setup_image", answer)?;
        // SAFETY: as above, and room for a pointer.
        let answer = unsafe { (self.dll.image_has_queues)(self.it, &raw mut message) };
        self.check("mqs_image_has_queues", answer)?;
        // SAFETY: as above.
        let answer = unsafe { (self.dll.setup_process)(self.it, &raw const PROCESS) };
        self.check("mqs_setup_process", answer)?;
        // SAFETY: as above, and room for a pointer.
        let answer = unsafe { (self.dll.process_has_queues)(self.it, &raw mut message) };
        self.check("mqs_process_has_queues", answer)?;
        self.call(
            "mqs_update_communicator_list",
            self.dll.update_communicator_list,
        )?;
        // SAFETY: a process that is set up: L2.
        let rank = self
            .dll
            .get_global_rank
            .map(|get_rank| unsafe { get_rank(self.it) });
        let communicators = self.communicators()?;
        let world = communicators.iter().find(|it| it.name == "MPI_COMM_WORLD");
        let there = world.and_then(|it| i32::try_from(it.rank).ok());
        Ok(RankReport {
            rank: rank.filter(|rank| *rank >= 0).or(there),
            host: None,
            pid: self.pid,
            reports_calls: self.dll.is_ours,
            communicators,
        })
    }

    fn communicators(&self) -> Result<Vec<CommReport>, Error> {
        let mut all = Vec::new();
        let mut more = self.call(
            "mqs_setup_communicator_iterator",
            self.dll.setup_communicator_iterator,
        )?;
        while more {
            all.push(self.communicator()?);
            more = self.call("mqs_next_communicator", self.dll.next_communicator)?;
        }
        Ok(all)
    }

    fn communicator(&self) -> Result<CommReport, Error> {
        let mut it = MaybeUninit::<interface::Communicator>::zeroed();
        // SAFETY: a process that is set up (L2), and room for the answer.
        let answer = unsafe { (self.dll.get_communicator)(self.it, it.as_mut_ptr()) };
        self.check("mqs_get_communicator", answer)?;
        // SAFETY: numbers and bytes, zero or filled in.
        let it = unsafe { it.assume_init() };
        let size = usize::try_from(it.size).unwrap_or(0);
        let mut ranks = vec![interface::INVALID_PROCESS; size];
        // SAFETY: as above, with room for `size` ranks.
        let answer = unsafe { (self.dll.get_comm_group)(self.it, ranks.as_mut_ptr()) };
        self.check("mqs_get_comm_group", answer)?;
        // Other libraries do not have this queue, and may crash on its number.
        let others = match self.dll.is_ours {
            true => self.queue(interface::OTHER_OPERATIONS)?,
            false => Vec::new(),
        };
        let calls = others.iter().filter_map(CallReport::of).collect();
        let begun = others
            .iter()
            .filter_map(NonblockingCollective::of)
            .collect();
        Ok(CommReport {
            id: it.unique_id,
            name: text(&it.name),
            rank: it.local_rank,
            ranks,
            sends: self.queue(interface::PENDING_SENDS)?,
            receives: self.queue(interface::PENDING_RECEIVES)?,
            calls,
            begun,
            unexpected: self.queue(interface::UNEXPECTED_MESSAGES)?,
            // Other libraries have three queues only.
            inactive: match self.dll.is_ours {
                true => self.queue(interface::INACTIVE_RECEIVES)?,
                false => Vec::new(),
            },
            collectives: self.collectives(),
        })
    }

    fn queue(&self, class: c_int) -> Result<Vec<OperationReport>, Error> {
        // SAFETY: a process that is set up: L2.
        let answer = unsafe { (self.dll.setup_operation_iterator)(self.it, class) };
        // Some libraries have fewer than three queues.
        if answer == NO_INFORMATION || !self.check("mqs_setup_operation_iterator", answer)? {
            return Ok(Vec::new());
        }
        let mut queue = Vec::new();
        let mut reader = OperationTextReader::default();
        loop {
            let mut it = MaybeUninit::<PendingOperation>::zeroed();
            // SAFETY: a process that is set up (L2), and room for the answer.
            let answer = unsafe { (self.dll.next_operation)(self.it, it.as_mut_ptr()) };
            if !self.check("mqs_next_operation", answer)? {
                return Ok(queue);
            }
            // SAFETY: numbers and bytes, zero or filled in.
            queue.push(OperationReport::of(
                &unsafe { it.assume_init() },
                class,
                &mut reader,
            ));
        }
    }

    fn collectives(&self) -> Vec<Collective> {
        let Some(get_state) = self.dll.get_comm_coll_state else {
            return Vec::new();
        };
        let counted = (0..).zip(COLLECTIVES).filter_map(|(number, name)| {
            let (mut called, mut active) = (0, 0);
            // SAFETY: a process that is set up (L2), and room for both answers.
            let answer = unsafe { get_state(self.it, number, &raw mut called, &raw mut active) };
            let known = answer == OK && called > 0;
            known.then_some(Collective {
                name: name.into(),
                called,
                active,
            })
        });
        counted.collect()
    }

    fn call(&self, name: &'static str, function: OfProcess) -> Result<bool, Error> {
        // SAFETY: a process that is set up: L2.
        self.check(name, unsafe { function(self.it) })
    }

    /// Checks a result: true for `mqs_ok`, false for the end of a list, otherwise an error with the library's message.
    fn check(&self, function: &'static str, answer: c_int) -> Result<bool, Error> {
        match answer {
            OK => Ok(true),
            interface::END_OF_LIST => Ok(false),
            other => Err(Error::Refused {
                pid: self.pid,
                function,
                // SAFETY: the library's static message, or NULL.
                why: string_of(unsafe { (self.dll.error_string)(other) }),
            }),
        }
    }
}

/// A C string, or a text for NULL.
fn string_of(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return "no reason was given".to_owned();
    }
    // SAFETY: not NULL; a string of the library's or the loader's.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_string_lossy().into_owned()
}

fn context<'a>(it: *mut Opaque) -> &'a mut DllContext<'a> {
    // SAFETY: the library has only this pointer (L2), and one callback runs at a time.
    unsafe { &mut *it.cast::<DllContext<'a>>() }
}

unsafe extern "C" fn allocate(bytes: usize) -> *mut c_void {
    // SAFETY: any size.
    unsafe { libc::malloc(bytes) }
}

unsafe extern "C" fn release(place: *mut c_void) {
    // SAFETY: from `allocate`, freed once: L1.
    unsafe { libc::free(place) };
}

unsafe extern "C" fn ignore_text(_: *const c_char) {}

unsafe extern "C" fn error_string(_: c_int) -> *mut c_char {
    c"memory of the process cannot be read".as_ptr().cast_mut()
}

unsafe extern "C" fn put_image_info(it: *mut Opaque, info: *mut c_void) {
    context(it).image_info = info;
}

unsafe extern "C" fn get_image_info(it: *mut Opaque) -> *mut c_void {
    context(it).image_info
}

unsafe extern "C" fn put_process_info(it: *mut Opaque, info: *mut c_void) {
    context(it).process_info = info;
}

unsafe extern "C" fn get_process_info(it: *mut Opaque) -> *mut c_void {
    context(it).process_info
}

unsafe extern "C" fn get_type_sizes(_: *mut Opaque, sizes: *mut TypeSizes) {
    // Writes only the five sizes that the interface defines: the structure of a library may end there.
    // SAFETY: room for five.
    unsafe { sizes.cast::<[c_int; 5]>().write([2, 4, 8, 8, 8]) };
}

unsafe extern "C" fn find_function(
    it: *mut Opaque,
    name: *mut c_char,
    _: c_int,
    address: *mut Address,
) -> c_int {
    // SAFETY: the arguments are those of `find_symbol`.
    unsafe { find_symbol(it, name, address) }
}

unsafe extern "C" fn find_symbol(
    it: *mut Opaque,
    name: *mut c_char,
    address: *mut Address,
) -> c_int {
    // SAFETY: a string of the library's: L1.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(found) = context(it).target.find(name.to_bytes()) else {
        return NO_INFORMATION;
    };
    if !address.is_null() {
        // SAFETY: not NULL, so there is room for an address: L1.
        unsafe { address.write(found) };
    }
    OK
}

unsafe extern "C" fn find_type(it: *mut Opaque, name: *mut c_char, _: c_int) -> *mut Opaque {
    // SAFETY: a string of the library's: L1.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let DllContext { target, types, .. } = context(it);
    let find = || target.find_type(name).map(Box::new);
    let found = types.entry(name.into()).or_insert_with(find);
    match found {
        Some(found) => core::ptr::from_ref(&**found).cast_mut().cast(),
        None => null_mut(),
    }
}

unsafe extern "C" fn field_offset(it: *mut Opaque, name: *mut c_char) -> c_int {
    // SAFETY: a string of the library's: L1.
    let name = unsafe { CStr::from_ptr(name) };
    let offset = of_type(it).and_then(|it| it.members.get(name.to_bytes()));
    offset
        .and_then(|it| c_int::try_from(*it).ok())
        .unwrap_or(-1)
}

unsafe extern "C" fn size_of_type(it: *mut Opaque) -> c_int {
    let size = of_type(it).map(|it| it.size);
    size.and_then(|it| c_int::try_from(it).ok()).unwrap_or(-1)
}

fn of_type<'a>(it: *mut Opaque) -> Option<&'a Type> {
    // SAFETY: NULL, or from `find_type`: the library has no other pointers to types (L1). The boxes live as long as the
    // context (L2).
    unsafe { it.cast::<Type>().as_ref() }
}

unsafe extern "C" fn get_global_rank(_: *mut Opaque) -> c_int {
    interface::INVALID_PROCESS
}

unsafe extern "C" fn get_image(it: *mut Opaque) -> *mut Opaque {
    it
}

unsafe extern "C" fn fetch_data(
    it: *mut Opaque,
    address: Address,
    bytes: c_int,
    into: *mut c_void,
) -> c_int {
    let Ok(bytes) = usize::try_from(bytes) else {
        return NO_INFORMATION;
    };
    let into = into.cast::<MaybeUninit<u8>>();
    if into.is_null() {
        return NO_INFORMATION;
    }
    // SAFETY: not NULL, so there is room for `bytes` bytes, which nothing else accesses during the call (L1).
    let into = unsafe { core::slice::from_raw_parts_mut(into, bytes) };
    into.fill(MaybeUninit::new(0));
    // SAFETY: initialized by `fill`.
    let into = unsafe { into.assume_init_mut() };
    match context(it).target.read(address, into) {
        true => OK,
        false => NO_INFORMATION,
    }
}

unsafe extern "C" fn target_to_host(
    _: *mut Opaque,
    from: *const c_void,
    to: *mut c_void,
    bytes: c_int,
) {
    let (from, to): (*const u8, *mut u8) = (from.cast(), to.cast());
    // The common lengths are constants, so these copies are fast: this function is called for every number.
    match bytes {
        // SAFETY: `from` and `to` have that many bytes (L1); they may overlap.
        8 => unsafe { to.copy_from(from, 8) },
        // SAFETY: as above.
        4 => unsafe { to.copy_from(from, 4) },
        // SAFETY: as above.
        other => unsafe { to.copy_from(from, usize::try_from(other).unwrap_or(0)) },
    }
}

static BASIC: BasicCallbacks = BasicCallbacks {
    malloc: Some(allocate),
    free: Some(release),
    dprints: Some(ignore_text),
    errorstring: Some(error_string),
    put_image_info: Some(put_image_info),
    get_image_info: Some(get_image_info),
    put_process_info: Some(put_process_info),
    get_process_info: Some(get_process_info),
};

static IMAGE: ImageCallbacks = ImageCallbacks {
    get_type_sizes: Some(get_type_sizes),
    find_function: Some(find_function),
    find_symbol: Some(find_symbol),
    find_type: Some(find_type),
    field_offset: Some(field_offset),
    sizeof: Some(size_of_type),
};

static PROCESS: ProcessCallbacks = ProcessCallbacks {
    get_global_rank: Some(get_global_rank),
    get_image: Some(get_image),
    fetch_data: Some(fetch_data),
    target_to_host: Some(target_to_host),
};
