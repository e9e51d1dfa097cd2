// SPDX-License-Identifier: MIT OR Apache-2.0
// Sessions: MPI 5.0 sections 3.6, 7.4.2, 7.6.2, 9.3.4 and 11.3.
//
//   session alone    sessions without MPI_Init, one after the other
//   session inside   sessions between MPI_Init and MPI_Finalize
//   session longer   a session that begins before MPI_Init and ends after MPI_Finalize
#include "check.h"

enum { TAG = 2 };

static MPI_Session open_session(void)
{
    MPI_Session session = MPI_SESSION_NULL;
    GOOD(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    CHECK(session != MPI_SESSION_NULL, "no session");
    return session;
}

static MPI_Comm comm_of(MPI_Session session, const char *pset, const char *tag)
{
    MPI_Group group;
    MPI_Comm comm = MPI_COMM_NULL;
    GOOD(MPI_Group_from_session_pset(session, pset, &group));
    GOOD(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    MPI_Group_free(&group);
    return comm;
}

static void talk(MPI_Comm comm)
{
    int one = 1, sum = -1, n = -1, me = -1, in = -1;
    MPI_Comm_size(comm, &n);
    MPI_Comm_rank(comm, &me);
    GOOD(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    EQUAL(sum, n);
    int right = (me + 1) % n, left = (me + n - 1) % n;
    GOOD(MPI_Sendrecv(&me, 1, MPI_INT, right, TAG, &in, 1, MPI_INT, left, TAG, comm, MPI_STATUS_IGNORE));
    EQUAL(in, left);
}

static void s11_3_2_process_sets(MPI_Session session)
{
    int count = -1, found = 0;
    GOOD(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count));
    CHECK(count >= 2, "%d process sets", count);
    for (int i = 0; i < count; i++) {
        char name[MPI_MAX_PSET_NAME_LEN], short_name[4] = "xyz";
        int length = 0, room = 4, flag = 0, size_room = 16;
        char members[16] = "";
        MPI_Info info;
        GOOD(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, NULL));
        CHECK(length > 1 && length <= (int)sizeof name, "length %d", length);
        GOOD(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, name));
        EQUAL((int)strlen(name) + 1, length);
        GOOD(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &room, short_name));
        EQUAL(strlen(short_name), 3);
        GOOD(MPI_Session_get_pset_info(session, name, &info));
        MPI_Info_get_string(info, "mpi_size", &size_room, members, &flag);
        CHECK(flag && atoi(members) >= 1, "mpi_size of %s is %s", name, members);
        found += !strcmp(name, "mpi://WORLD") || !strcmp(name, "mpi://SELF");
        MPI_Info_free(&info);
    }
    EQUAL(found, 2);
    MPI_Group group;
    int length = 0;
    FAILS(MPI_Group_from_session_pset(session, "mpi://NOBODY", &group), MPI_ERR_ARG);
    FAILS(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, count, &length, NULL), MPI_ERR_ARG);
}

static void s11_3_1_thread_level(MPI_Session session)
{
    MPI_Info info;
    char level[64] = "";
    int room = sizeof level, flag = 0;
    GOOD(MPI_Session_get_info(session, &info));
    MPI_Info_get_string(info, "thread_level", &room, level, &flag);
    CHECK(flag && !strncmp(level, "MPI_THREAD_", 11), "thread_level is %s", level);
    MPI_Info_free(&info);
}

static void s7_4_2_create_from_group(MPI_Session session)
{
    MPI_Comm world = comm_of(session, "mpi://WORLD", "all"), alone = comm_of(session, "mpi://SELF", "all");
    int n = -1;
    MPI_Comm_size(alone, &n);
    EQUAL(n, 1);
    talk(world);
    talk(alone);
    // Two communicators of the same group with two tags are separate; for a smaller group only its members call.
    MPI_Comm second = comm_of(session, "mpi://WORLD", "second"), odd;
    talk(second);
    MPI_Group all, few;
    int me, size_of_world, range[1][3];
    MPI_Comm_rank(world, &me);
    MPI_Comm_size(world, &size_of_world);
    range[0][0] = me % 2;
    range[0][1] = size_of_world - 1;
    range[0][2] = 2;
    MPI_Comm_group(world, &all);
    MPI_Group_range_incl(all, 1, range, &few);
    GOOD(MPI_Comm_create_from_group(few, "parity", MPI_INFO_NULL, MPI_ERRORS_RETURN, &odd));
    talk(odd);
    // An intercommunicator between two groups; the leaders are their last ranks.
    if (size_of_world > 1) {
        MPI_Group others;
        MPI_Comm inter;
        int mine, theirs, got = -1, in = -1;
        MPI_Group_difference(all, few, &others);
        MPI_Group_size(few, &mine);
        MPI_Group_size(others, &theirs);
        GOOD(MPI_Intercomm_create_from_groups(few, mine - 1, others, theirs - 1, "face to face", MPI_INFO_NULL,
                                              MPI_ERRORS_RETURN, &inter));
        MPI_Comm_remote_size(inter, &got);
        EQUAL(got, theirs);
        MPI_Comm_rank(inter, &got);
        if (got == 0) {
            MPI_Sendrecv(&me, 1, MPI_INT, 0, TAG, &in, 1, MPI_INT, 0, TAG, inter, MPI_STATUS_IGNORE);
            EQUAL(in, 1 - me);
        }
        MPI_Group_free(&others);
        MPI_Comm_free(&inter);
    }
    MPI_Group_free(&few);
    MPI_Group_free(&all);
    MPI_Comm_free(&odd);
    MPI_Comm_free(&second);
    MPI_Comm_free(&world);
    MPI_Comm_free(&alone);
}

// A session's buffer is used by communicators of that session that have no buffer of their own.
static void s3_6_buffers(MPI_Session session)
{
    enum { BYTES = 1000, ROOM = BYTES + MPI_BSEND_OVERHEAD };
    static char buffer[2 * ROOM], small[ROOM / 2], out[BYTES], in[BYTES];
    MPI_Session another = open_session();
    MPI_Comm comm = comm_of(session, "mpi://WORLD", "buffers"), foreign = comm_of(another, "mpi://WORLD", "foreign"), child;
    MPI_Request request = MPI_REQUEST_NULL;
    void *address = NULL;
    int me, n, length = -1;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    int right = (me + 1) % n, left = (me + n - 1) % n;
    FAILS(MPI_Bsend(out, BYTES, MPI_BYTE, right, TAG, comm), MPI_ERR_BUFFER);
    GOOD(MPI_Session_attach_buffer(session, buffer, sizeof buffer));
    FAILS(MPI_Session_attach_buffer(session, buffer, sizeof buffer), MPI_ERR_BUFFER);
    GOOD(MPI_Comm_split(comm, 0, me, &child));
    GOOD(MPI_Bsend(out, BYTES, MPI_BYTE, right, TAG, comm));
    GOOD(MPI_Bsend(out, BYTES, MPI_BYTE, right, TAG, child));
    FAILS(MPI_Bsend(out, BYTES, MPI_BYTE, right, TAG, foreign), MPI_ERR_BUFFER);
    GOOD(MPI_Recv(in, BYTES, MPI_BYTE, left, TAG, comm, MPI_STATUS_IGNORE));
    GOOD(MPI_Recv(in, BYTES, MPI_BYTE, left, TAG, child, MPI_STATUS_IGNORE));
    GOOD(MPI_Session_flush_buffer(session));
    GOOD(MPI_Comm_attach_buffer(child, small, sizeof small));
    FAILS(MPI_Bsend(out, BYTES, MPI_BYTE, right, TAG, child), MPI_ERR_BUFFER);
    GOOD(MPI_Bsend(out, BYTES, MPI_BYTE, right, TAG, comm));
    GOOD(MPI_Session_iflush_buffer(session, &request));
    GOOD(MPI_Recv(in, BYTES, MPI_BYTE, left, TAG, comm, MPI_STATUS_IGNORE));
    GOOD(MPI_Wait(&request, MPI_STATUS_IGNORE));
    GOOD(MPI_Session_detach_buffer(session, &address, &length));
    CHECK(address == buffer, "another buffer was detached");
    EQUAL(length, sizeof buffer);
    FAILS(MPI_Bsend(out, BYTES, MPI_BYTE, right, TAG, comm), MPI_ERR_BUFFER);
    GOOD(MPI_Comm_detach_buffer(child, &address, &length));
    CHECK(address == small, "another buffer was detached");
    MPI_Comm_free(&child);
    MPI_Comm_free(&foreign);
    MPI_Comm_free(&comm);
    GOOD(MPI_Session_finalize(&another));
}

static int called, last_code;

static void note_code(MPI_Session *session, int *code, ...)
{
    (void)session;
    called++;
    last_code = *code;
}

static void s9_3_4_error_handlers(MPI_Session session)
{
    MPI_Errhandler own, got = MPI_ERRHANDLER_NULL;
    int class = -1, count = 0, length = 0;
    GOOD(MPI_Session_get_errhandler(session, &got));
    CHECK(got == MPI_ERRORS_RETURN, "another error handler");
    GOOD(MPI_Session_create_errhandler(note_code, &own));
    GOOD(MPI_Session_set_errhandler(session, own));
    GOOD(MPI_Session_get_errhandler(session, &got));
    CHECK(got == own, "another error handler");
    called = 0;
    MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count);
    MPI_Session_get_nth_pset(session, MPI_INFO_NULL, count, &length, NULL);
    EQUAL(called, 1);
    MPI_Error_class(last_code, &class);
    EQUAL(class, MPI_ERR_ARG);
    GOOD(MPI_Session_call_errhandler(session, MPI_ERR_OTHER));
    EQUAL(called, 2);
    EQUAL(last_code, MPI_ERR_OTHER);
    GOOD(MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN));
    MPI_Errhandler_free(&own);
}

static void whole_session(void)
{
    MPI_Session session = open_session();
    check_test = "s11_3_2_process_sets";
    s11_3_2_process_sets(session);
    check_test = "s11_3_1_thread_level";
    s11_3_1_thread_level(session);
    check_test = "s7_4_2_create_from_group";
    s7_4_2_create_from_group(session);
    check_test = "s3_6_buffers";
    s3_6_buffers(session);
    check_test = "s9_3_4_error_handlers";
    s9_3_4_error_handlers(session);
    check_test = "s11_3_1_finalize";
    GOOD(MPI_Session_finalize(&session));
    CHECK(session == MPI_SESSION_NULL, "the handle is still set");
}

static void world_is(int initialized, int finalized)
{
    int flag = -1;
    MPI_Initialized(&flag);
    EQUAL(flag, initialized);
    MPI_Finalized(&flag);
    EQUAL(flag, finalized);
}

static int result(void)
{
    if (check_errors == 0)
        puts("ok");
    fflush(stdout);
    return check_errors > 0;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "alone";
    if (!strcmp(way, "alone")) {
        for (int i = 0; i < 3; i++) {
            whole_session();
            world_is(0, 0);
        }
        return result();
    }
    if (!strcmp(way, "inside")) {
        start(&argc, &argv);
        whole_session();
        whole_session();
        talk(MPI_COMM_WORLD);
        return finish();
    }
    MPI_Session session = open_session();
    world_is(0, 0);
    start(&argc, &argv);
    world_is(1, 0);
    MPI_Comm comm = comm_of(session, "mpi://WORLD", "longer");
    talk(MPI_COMM_WORLD);
    MPI_Finalize();
    world_is(1, 1);
    talk(comm);
    MPI_Comm_free(&comm);
    GOOD(MPI_Session_finalize(&session));
    return result();
}
