// SPDX-License-Identifier: MIT OR Apache-2.0
// Preloaded into the ranks by `rmpiexec --stats`: reads the MPI_T performance variables when a rank finalizes MPI,
// and appends them as one record to the file that RMPI_STATS names, which rmpiexec reads.
//
// It interposes only MPI's initialization and finalization, so messages cost nothing extra. It does not require that
// an MPI library is loaded: in a shell it does nothing, and a library that is loaded later, as by Python, is found
// then.
//
// A rank may also end by exit or _exit (MPI_Abort, fatal errors), or by a signal with the default action: then the
// counts up to that point are written too, with the reason. Reading variables takes no lock and allocates nothing, so
// it is allowed in a signal handler.
//
// MPI_Pcontrol(2) writes the counts so far at once. A later record replaces them.
//
// A record is in native byte order; launcher/src/stats/record.rs parses it:
//
//     struct head, then for each variable: struct entry, and its values as 64-bit numbers
//
// With librmpi_calls.so (`--stats-calls`) each MPI function that was called is such a variable too: "call MPI_X".
#define _GNU_SOURCE
#include "rmpi_calls.h"

#include <mpi.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LIBRARY "libmpi_abi.so.1"
#define PUBLIC __attribute__((visibility("default")))
#define MAGIC UINT64_C(0x3173746174732d72)
#define ALL_ENDINGS (sizeof ENDINGS / sizeof *ENDINGS)

enum ending { FINALIZED = 1, LEFT = 2, KILLED = 3, SO_FAR = 4 };

struct head {
    uint64_t magic;
    uint64_t bytes; // of the record, with this header
    uint32_t rank;
    uint32_t pid;
    uint32_t ending;
    uint32_t signal; // if KILLED
    uint64_t elapsed_ns; // since MPI was initialized
    uint64_t cpu_ns; // of the process in that time
    uint64_t memory_bytes; // maximum resident set size
    uint64_t off_ns; // of the time since MPI was initialized, in which calls were not timed
    uint64_t variables;
};

struct entry {
    char name[56];
    uint32_t is_double;
    uint32_t count;
};

struct variable {
    MPI_T_pvar_handle handle;
    MPI_Datatype type;
    struct entry *entry;
};

static const int ENDINGS[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGXCPU, SIGUSR1, SIGUSR2};

static const char *file;
static pid_t own;
static atomic_flag has_begun = ATOMIC_FLAG_INIT;
static atomic_int has_ended, sessions, is_world, is_written, postponed;
// A call through another tool arrives here twice.
static _Thread_local int depth;
static struct head *record;
static struct variable *variables;
// Interface of librmpi_calls.so, if it is loaded, and the first of its entries in the record.
static const struct rmpi_calls *calls;
static struct entry *first_call;
static MPI_T_pvar_session session;
static uint64_t start_ns, start_cpu_ns, start_off_ns;
// Offset of the record in the file, once it is written.
static _Atomic off_t place = -1;

// MPI_T functions of the library, wherever it was loaded.
static int (*t_init)(int, int *);
static int (*t_session)(MPI_T_pvar_session *);
static int (*t_count)(int *);
static int (*t_info)(int, char *, int *, int *, int *, MPI_Datatype *, MPI_T_enum *, char *, int *, int *, int *, int *, int *);
static int (*t_alloc)(MPI_T_pvar_session, int, void *, MPI_T_pvar_handle *, int *);
static int (*t_start)(MPI_T_pvar_session, MPI_T_pvar_handle);
static int (*t_read)(MPI_T_pvar_session, MPI_T_pvar_handle, void *);

// The function that would have been called without this library: of the next tool, or of MPI. The library may be
// loaded with RTLD_LOCAL.
static void *next_of(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
        found = library == NULL ? NULL : dlsym(library, name);
    }
    return found;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int find_functions(void)
{
    t_init = (int (*)(int, int *))next_of("PMPI_T_init_thread");
    t_session = (int (*)(MPI_T_pvar_session *))next_of("PMPI_T_pvar_session_create");
    t_count = (int (*)(int *))next_of("PMPI_T_pvar_get_num");
    t_info = (int (*)(int, char *, int *, int *, int *, MPI_Datatype *, MPI_T_enum *, char *, int *, int *, int *, int *, int *))
        next_of("PMPI_T_pvar_get_info");
    t_alloc = (int (*)(MPI_T_pvar_session, int, void *, MPI_T_pvar_handle *, int *))next_of("PMPI_T_pvar_handle_alloc");
    t_start = (int (*)(MPI_T_pvar_session, MPI_T_pvar_handle))next_of("PMPI_T_pvar_start");
    t_read = (int (*)(MPI_T_pvar_session, MPI_T_pvar_handle, void *))next_of("PMPI_T_pvar_read");
    return t_init && t_session && t_count && t_info && t_alloc && t_start && t_read;
}

// Counters, aggregates, timers and high-water marks describe a whole run; other classes only its end.
static int is_wanted(int class, int binding)
{
    int sums = class == MPI_T_PVAR_CLASS_COUNTER || class == MPI_T_PVAR_CLASS_AGGREGATE || class == MPI_T_PVAR_CLASS_TIMER;
    if (binding == MPI_T_BIND_MPI_COMM)
        return sums;
    return binding == MPI_T_BIND_NO_OBJECT && (sums || class == MPI_T_PVAR_CLASS_HIGHWATERMARK);
}

// Opens a variable; returns the number of 64-bit words that it needs in the record, 0 if it is not wanted or cannot
// be read.
static size_t open_variable(int index, MPI_Comm *world, struct variable *into, struct entry *entry)
{
    int length = sizeof entry->name, class, binding, continuous, count;
    if (t_info(index, entry->name, &length, NULL, &class, &into->type, NULL, NULL, NULL, &binding, NULL, &continuous, NULL) != MPI_SUCCESS)
        return 0;
    if (!is_wanted(class, binding) || (binding == MPI_T_BIND_MPI_COMM && world == NULL))
        return 0;
    if (t_alloc(session, index, binding == MPI_T_BIND_MPI_COMM ? world : NULL, &into->handle, &count) != MPI_SUCCESS)
        return 0;
    if (!continuous && t_start(session, into->handle) != MPI_SUCCESS)
        return 0;
    entry->is_double = into->type == MPI_DOUBLE;
    entry->count = (uint32_t)count;
    return sizeof *entry / sizeof(uint64_t) + (size_t)count;
}

static struct entry *next_entry(struct entry *entry)
{
    return (struct entry *)((uint64_t *)(entry + 1) + entry->count);
}

// Writes the entries of timed calls.
static void add_call_entries(struct entry *at)
{
    first_call = at;
    for (int call = 0; calls != NULL && call < calls->count; call++) {
        snprintf(at->name, sizeof at->name, "call %s", calls->names[call]);
        at->count = CALL_NUMBERS;
        at = next_entry(at);
    }
}

// Opens all variables, and allocates the record for their values.
static void open_variables(MPI_Comm *world)
{
    int count = 0, provided;
    if (!find_functions() || t_init(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS || t_session(&session) != MPI_SUCCESS || t_count(&count) != MPI_SUCCESS)
        return;
    struct variable *all = calloc((size_t)count, sizeof *all);
    struct entry *entries = calloc((size_t)count, sizeof *entries);
    size_t found = 0, numbers = sizeof(struct head) / sizeof(uint64_t);
    for (int index = 0; all != NULL && entries != NULL && index < count; index++) {
        size_t needs = open_variable(index, world, &all[found], &entries[found]);
        numbers += needs;
        found += needs != 0;
    }
    calls = dlsym(RTLD_DEFAULT, RMPI_CALLS);
    size_t timed = calls == NULL ? 0 : (size_t)calls->count;
    numbers += timed * (sizeof(struct entry) / sizeof(uint64_t) + CALL_NUMBERS);
    struct head *made = found == 0 ? NULL : calloc(numbers, sizeof(uint64_t));
    if (made == NULL)
        return;
    struct entry *at = (struct entry *)(made + 1);
    for (size_t index = 0; index < found; index++) {
        *at = entries[index];
        all[index].entry = at;
        at = next_entry(at);
    }
    free(entries);
    add_call_entries(at);
    made->magic = MAGIC;
    made->bytes = numbers * sizeof(uint64_t);
    made->variables = found + timed;
    variables = all;
    record = made;
}

// Widens `count` numbers from four to eight bytes in place, from the last one on.
static void widen(uint64_t *values, uint32_t count)
{
    for (uint32_t at = count; at-- > 0;) {
        uint32_t narrow;
        memcpy(&narrow, (char *)values + at * sizeof narrow, sizeof narrow);
        values[at] = narrow;
    }
}

// Reads all variables that can be read now into the record; the others keep their values.
static void read_all(void)
{
    uint64_t timed = calls == NULL ? 0 : (uint64_t)calls->count;
    struct entry *entry = first_call;
    for (uint64_t call = 0; call < timed; call++, entry = next_entry(entry))
        calls->read((int)call, (uint64_t *)(entry + 1));
    for (uint64_t index = 0; index < record->variables - timed; index++) {
        struct variable *variable = &variables[index];
        uint64_t *values = (uint64_t *)(variable->entry + 1);
        if (t_read(session, variable->handle, values) != MPI_SUCCESS)
            continue;
        if (variable->type == MPI_INT || variable->type == MPI_UNSIGNED || variable->type == MPI_INT32_T || variable->type == MPI_UINT32_T)
            widen(values, variable->entry->count);
    }
}

static uint64_t off_ns(void)
{
    return calls == NULL ? 0 : calls->off_ns();
}

// Appends the record in one write, or replaces the one written before. On failure the rank counts as one without a
// record.
static void write_record(struct head *head)
{
    struct iovec parts[] = {{head, sizeof *head}, {record + 1, record->bytes - sizeof *head}};
    off_t at = atomic_load(&place);
    int to = open(file, O_WRONLY | O_CLOEXEC | (at < 0 ? O_APPEND : 0));
    if (to < 0)
        return;
    ssize_t written = at < 0 ? writev(to, parts, 2) : pwritev(to, parts, 2, at);
    if (at < 0 && written == (ssize_t)record->bytes)
        atomic_store(&place, lseek(to, 0, SEEK_CUR) - written);
    close(to);
}

// Reads all variables, and writes the record with this header.
static void write_with(struct head *head, enum ending ending, int signal)
{
    read_all();
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    head->pid = (uint32_t)own;
    head->ending = ending;
    head->signal = (uint32_t)signal;
    head->elapsed_ns = clock_ns(CLOCK_MONOTONIC) - start_ns;
    head->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start_cpu_ns;
    head->memory_bytes = (uint64_t)usage.ru_maxrss << 10;
    head->off_ns = off_ns() - start_off_ns;
    write_record(head);
}

// Writes the record, once. Async-signal-safe.
static void write_final(enum ending ending, int signal)
{
    if (record == NULL || getpid() != own || atomic_exchange(&has_ended, 1) != 0)
        return;
    write_with(record, ending, signal);
    atomic_store(&is_written, 1);
    int late = atomic_load(&postponed);
    if (late != 0)
        raise(late);
}

// Writes the counts so far. Uses a copy of the header: a signal handler may write the final one meanwhile.
static void write_so_far(void)
{
    if (record == NULL || getpid() != own || atomic_load(&has_ended) != 0)
        return;
    struct head head = *record;
    write_with(&head, SO_FAR, 0);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    write_final(KILLED, number);
    if (record != NULL && getpid() == own && !atomic_load(&is_written)) {
        // The record is being written, by the interrupted code or another thread, which raises the signal again after
        // that.
        atomic_store(&postponed, number);
        if (!atomic_load(&is_written))
            return;
    }
    // The default action is restored (SA_RESETHAND). A fault occurs again when its instruction is repeated.
    if (info == NULL || info->si_code <= 0 || number == SIGABRT)
        raise(number);
}

// Installs handlers for signals that end the process, unless the program has its own.
static void watch_signals(void)
{
    for (size_t at = 0; at < ALL_ENDINGS; at++) {
        struct sigaction action;
        if (sigaction(ENDINGS[at], NULL, &action) != 0 || (action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != SIG_DFL)
            continue;
        memset(&action, 0, sizeof action);
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_ONSTACK;
        sigaction(ENDINGS[at], &action, NULL);
    }
}

// MPI was initialized; `world` is null if only a session was.
static void begin(MPI_Comm *world)
{
    file = getenv("RMPI_STATS");
    if (file == NULL || atomic_flag_test_and_set(&has_begun))
        return;
    own = getpid();
    open_variables(world);
    if (record == NULL)
        return;
    const char *rank = getenv("RMPI_RANK");
    record->rank = rank == NULL ? UINT32_MAX : (uint32_t)strtoul(rank, NULL, 10);
    start_ns = clock_ns(CLOCK_MONOTONIC);
    start_cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    start_off_ns = off_ns();
    watch_signals();
}

// Reads the variables before the communicators are freed; read again when the final synchronization is over.
static void before_end(void)
{
    if (record != NULL && getpid() == own)
        read_all();
}

// The process exits. A process that only used sessions has finalized if none is left.
static void write_at_exit(void)
{
    write_final(atomic_load(&is_world) || atomic_load(&sessions) > 0 ? LEFT : FINALIZED, 0);
}

__attribute__((destructor)) static void at_exit(void)
{
    write_at_exit();
}

PUBLIC void _exit(int code)
{
    write_at_exit();
    for (;;)
        syscall(SYS_exit_group, code);
}

// A tool below this one calls the PMPI_ names, a program the MPI_ names.
#define INIT(NAME)                                                                                                                        \
    PUBLIC int NAME(int *argc, char ***argv)                                                                                              \
    {                                                                                                                                     \
        MPI_Comm world = MPI_COMM_WORLD;                                                                                                  \
        int (*next)(int *, char ***) = (int (*)(int *, char ***))next_of(#NAME);                                                          \
        int code = next == NULL ? MPI_ERR_OTHER : next(argc, argv);                                                                                                      \
        if (code == MPI_SUCCESS) {                                                                                                        \
            atomic_store(&is_world, 1);                                                                                                   \
            begin(&world);                                                                                                                \
        }                                                                                                                                 \
        return code;                                                                                                                      \
    }
#define INIT_THREAD(NAME)                                                                                                                 \
    PUBLIC int NAME(int *argc, char ***argv, int required, int *provided)                                                                 \
    {                                                                                                                                     \
        MPI_Comm world = MPI_COMM_WORLD;                                                                                                  \
        int (*next)(int *, char ***, int, int *) = (int (*)(int *, char ***, int, int *))next_of(#NAME);                                  \
        int code = next == NULL ? MPI_ERR_OTHER : next(argc, argv, required, provided);                                                                                  \
        if (code == MPI_SUCCESS) {                                                                                                        \
            atomic_store(&is_world, 1);                                                                                                   \
            begin(&world);                                                                                                                \
        }                                                                                                                                 \
        return code;                                                                                                                      \
    }
#define SESSION_INIT(NAME)                                                                                                                \
    PUBLIC int NAME(MPI_Info info, MPI_Errhandler handler, MPI_Session *made)                                                             \
    {                                                                                                                                     \
        int (*next)(MPI_Info, MPI_Errhandler, MPI_Session *) = (int (*)(MPI_Info, MPI_Errhandler, MPI_Session *))next_of(#NAME);          \
        depth++;                                                                                                                          \
        int code = next == NULL ? MPI_ERR_OTHER : next(info, handler, made);                                                              \
        depth--;                                                                                                                          \
        if (code == MPI_SUCCESS) {                                                                                                        \
            atomic_fetch_add(&sessions, depth == 0);                                                                                      \
            begin(NULL);                                                                                                                  \
        }                                                                                                                                 \
        return code;                                                                                                                      \
    }
#define SESSION_FINALIZE(NAME)                                                                                                            \
    PUBLIC int NAME(MPI_Session *session)                                                                                                 \
    {                                                                                                                                     \
        int (*next)(MPI_Session *) = (int (*)(MPI_Session *))next_of(#NAME);                                                              \
        depth++;                                                                                                                          \
        int code = next == NULL ? MPI_ERR_OTHER : next(session);                                                                          \
        depth--;                                                                                                                          \
        if (code == MPI_SUCCESS)                                                                                                          \
            atomic_fetch_sub(&sessions, depth == 0);                                                                                      \
        return code;                                                                                                                      \
    }
#define FINALIZE(NAME)                                                                                                                    \
    PUBLIC int NAME(void)                                                                                                                 \
    {                                                                                                                                     \
        int (*next)(void) = (int (*)(void))next_of(#NAME);                                                                                \
        before_end();                                                                                                                     \
        int code = next == NULL ? MPI_ERR_OTHER : next();                                                                                                                \
        if (code == MPI_SUCCESS)                                                                                                          \
            write_final(FINALIZED, 0);                                                                                                          \
        return code;                                                                                                                      \
    }
#define PCONTROL(NAME)                                                                                                                    \
    PUBLIC int NAME(const int level, ...)                                                                                                 \
    {                                                                                                                                     \
        int (*next)(int, ...) = (int (*)(int, ...))next_of(#NAME);                                                                        \
        int code = next == NULL ? MPI_ERR_OTHER : next(level);                                                                            \
        if (level == 2)                                                                                                                   \
            write_so_far();                                                                                                               \
        return code;                                                                                                                      \
    }

INIT(MPI_Init)
INIT(PMPI_Init)
INIT_THREAD(MPI_Init_thread)
INIT_THREAD(PMPI_Init_thread)
SESSION_INIT(MPI_Session_init)
SESSION_INIT(PMPI_Session_init)
SESSION_FINALIZE(MPI_Session_finalize)
SESSION_FINALIZE(PMPI_Session_finalize)
FINALIZE(MPI_Finalize)
FINALIZE(PMPI_Finalize)
PCONTROL(MPI_Pcontrol)
PCONTROL(PMPI_Pcontrol)
