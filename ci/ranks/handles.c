// SPDX-License-Identifier: MIT OR Apache-2.0
// Handles as integers and back: MPI 5.0 chapter 20 (toint, fromint).
#include "check.h"

// There and back again, predefined or live.
#define THERE_AND_BACK(kind, handle)                                                               \
    do {                                                                                           \
        int number_ = MPI_##kind##_toint(handle);                                                  \
        CHECK(MPI_##kind##_fromint(number_) == (handle), #kind " %d came back changed", number_);  \
    } while (0)

static void s20_predefined_handles(void)
{
    THERE_AND_BACK(Comm, MPI_COMM_NULL);
    THERE_AND_BACK(Comm, MPI_COMM_WORLD);
    THERE_AND_BACK(Comm, MPI_COMM_SELF);
    THERE_AND_BACK(Group, MPI_GROUP_NULL);
    THERE_AND_BACK(Group, MPI_GROUP_EMPTY);
    THERE_AND_BACK(Op, MPI_OP_NULL);
    THERE_AND_BACK(Op, MPI_SUM);
    THERE_AND_BACK(Op, MPI_MINLOC);
    THERE_AND_BACK(Errhandler, MPI_ERRHANDLER_NULL);
    THERE_AND_BACK(Errhandler, MPI_ERRORS_ARE_FATAL);
    THERE_AND_BACK(Errhandler, MPI_ERRORS_RETURN);
    THERE_AND_BACK(Request, MPI_REQUEST_NULL);
    THERE_AND_BACK(Message, MPI_MESSAGE_NULL);
    THERE_AND_BACK(Message, MPI_MESSAGE_NO_PROC);
    THERE_AND_BACK(Info, MPI_INFO_NULL);
    THERE_AND_BACK(Info, MPI_INFO_ENV);
    THERE_AND_BACK(Win, MPI_WIN_NULL);
    THERE_AND_BACK(File, MPI_FILE_NULL);
    THERE_AND_BACK(Session, MPI_SESSION_NULL);
}

static void s20_predefined_datatypes(void)
{
    const MPI_Datatype types[] = {
        MPI_DATATYPE_NULL, MPI_INT,  MPI_DOUBLE,   MPI_CHAR,  MPI_BYTE,   MPI_C_BOOL,       MPI_2INT,
        MPI_LONG_DOUBLE,   MPI_AINT, MPI_UINT64_T, MPI_COUNT, MPI_PACKED, MPI_LONG_DOUBLE_INT,
    };
    for (int i = 0; i < COUNT_OF(types); i++) {
        int bytes = -1, again = -2;
        MPI_Datatype back = MPI_Type_fromint(MPI_Type_toint(types[i]));
        CHECK(back == types[i], "datatype %d came back changed", i);
        if (types[i] == MPI_DATATYPE_NULL)
            continue;
        MPI_Type_size(types[i], &bytes);
        MPI_Type_size(back, &again);
        EQUAL(again, bytes);
    }
}

// Chapter 20: the integer of a predefined handle is its value in the table of the ABI.
static void s20_numbers_of_the_table(void)
{
    EQUAL(MPI_Comm_toint(MPI_COMM_WORLD), (intptr_t)MPI_COMM_WORLD);
    EQUAL(MPI_Comm_toint(MPI_COMM_WORLD), 0x101);
    EQUAL(MPI_Comm_toint(MPI_COMM_SELF), 0x102);
    EQUAL(MPI_Comm_toint(MPI_COMM_NULL), 0x100);
    EQUAL(MPI_Type_toint(MPI_INT), (intptr_t)MPI_INT);
    EQUAL(MPI_Op_toint(MPI_SUM), (intptr_t)MPI_SUM);
}

static void s20_live_handles(void)
{
    MPI_Comm comm;
    MPI_Datatype type;
    MPI_Request request;
    MPI_Errhandler handler = MPI_ERRORS_RETURN;
    int value, n = -1, flag = 1;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    THERE_AND_BACK(Comm, comm);
    MPI_Comm_size(MPI_Comm_fromint(MPI_Comm_toint(comm)), &n);
    EQUAL(n, size);
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Type_size(MPI_Type_fromint(MPI_Type_toint(type)), &n);
    EQUAL(n, 12);
    MPI_Irecv(&value, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &request);
    THERE_AND_BACK(Request, request);
    MPI_Request copy = MPI_Request_fromint(MPI_Request_toint(request));
    MPI_Request_get_status(copy, &flag, MPI_STATUS_IGNORE);
    EQUAL(flag, 0);
    MPI_Send(&n, 1, MPI_INT, 0, 1, MPI_COMM_SELF);
    MPI_Wait(&copy, MPI_STATUS_IGNORE);
    EQUAL(value, 12);
    THERE_AND_BACK(Errhandler, handler);
    // Handles of new objects have larger values than the predefined ones.
    CHECK((uintptr_t)comm >= 4096 && (uintptr_t)type >= 4096, "a live handle is below 4096");
    MPI_Comm_free(&comm);
    MPI_Type_free(&type);
}

// Section 19.3.5: statuses of Fortran in C. The conversion keeps everything that a status holds.
static void s19_3_5_statuses(void)
{
    int out[3] = {1, 2, 3}, in[5], count = -1, flag = -1;
    MPI_Status status, back;
    MPI_F08_status f08, f08_again;
    MPI_Fint f[MPI_F_STATUS_SIZE], again[MPI_F_STATUS_SIZE];
    MPI_Sendrecv(out, 3, MPI_INT, rank, 9, in, 5, MPI_INT, rank, 9, MPI_COMM_WORLD, &status);
    GOOD(MPI_Status_c2f(&status, f));
    EQUAL(f[MPI_F_SOURCE], rank);
    EQUAL(f[MPI_F_TAG], 9);
    GOOD(MPI_Status_f2f08(f, &f08));
    EQUAL(f08.MPI_TAG, 9);
    GOOD(MPI_Status_f082f(&f08, again));
    GOOD(MPI_Status_f2c(again, &back));
    GOOD(MPI_Status_c2f08(&back, &f08_again));
    memset(&back, 0, sizeof back);
    GOOD(PMPI_Status_f082c(&f08_again, &back));
    EQUAL(back.MPI_SOURCE, rank);
    GOOD(MPI_Get_count(&back, MPI_INT, &count));
    EQUAL(count, 3);
    GOOD(MPI_Test_cancelled(&back, &flag));
    EQUAL(flag, 0);
}

// In a program without Fortran these pointers are NULL.
static void s19_3_5_nothing_is_ignored_without_fortran(void)
{
    CHECK(MPI_F_STATUS_IGNORE == NULL && MPI_F_STATUSES_IGNORE == NULL, "%p", (void *)MPI_F_STATUS_IGNORE);
    CHECK(MPI_F08_STATUS_IGNORE == NULL && MPI_F08_STATUSES_IGNORE == NULL, "%p", (void *)MPI_F08_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s20_predefined_handles);
    RUN(s20_predefined_datatypes);
    RUN(s20_numbers_of_the_table);
    RUN(s20_live_handles);
    RUN(s19_3_5_statuses);
    RUN(s19_3_5_nothing_is_ignored_without_fortran);
    return finish();
}
