// SPDX-License-Identifier: MIT OR Apache-2.0
// Error classes, codes and strings of the program: MPI 5.0 section 9.5.
#include "check.h"

static int called, last_code;

static void note_code(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    called++;
    last_code = *code;
}

static int last_used(void)
{
    int *value = NULL, flag = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &value, &flag);
    CHECK(flag && value, "there is no MPI_LASTUSEDCODE");
    return *value;
}

static int text_is(int code, const char *wanted)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = -1;
    GOOD(MPI_Error_string(code, text, &length));
    return length == (int)strlen(wanted) && strcmp(text, wanted) == 0;
}

static void s9_5_classes_and_codes(void)
{
    int before = last_used(), class = -1, code = -1, of_mpi = -1, got = -1;
    GOOD(MPI_Add_error_class(&class));
    CHECK(class > MPI_ERR_LASTCODE && class > before, "class %d after %d", class, before);
    EQUAL(last_used(), class);
    GOOD(MPI_Add_error_code(class, &code));
    GOOD(MPI_Add_error_code(MPI_ERR_ARG, &of_mpi));
    CHECK(code > class && of_mpi > code, "%d %d %d", class, code, of_mpi);
    EQUAL(last_used(), of_mpi);
    MPI_Error_class(class, &got);
    EQUAL(got, class);
    MPI_Error_class(code, &got);
    EQUAL(got, class);
    MPI_Error_class(of_mpi, &got);
    EQUAL(got, MPI_ERR_ARG);
    GOOD(MPI_Remove_error_code(of_mpi));
    GOOD(MPI_Remove_error_code(code));
    GOOD(MPI_Remove_error_class(class));
    EQUAL(last_used(), before);
}

static void s9_5_strings(void)
{
    int class, code;
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    CHECK(text_is(class, "") && text_is(code, ""), "a string that nobody gave");
    GOOD(MPI_Add_error_string(class, "bad weather"));
    GOOD(MPI_Add_error_string(code, "hail"));
    CHECK(text_is(class, "bad weather") && text_is(code, "hail"), "another string came back");
    GOOD(MPI_Add_error_string(code, "hail of stones"));
    CHECK(text_is(code, "hail of stones"), "the old string came back");
    // A class or code that has a string cannot be removed.
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    FAILS(MPI_Remove_error_code(code), MPI_ERR_OTHER);
    GOOD(MPI_Remove_error_string(code));
    CHECK(text_is(code, ""), "the string is still there");
    GOOD(MPI_Remove_error_code(code));
    FAILS(MPI_Remove_error_class(class), MPI_ERR_OTHER);
    GOOD(MPI_Remove_error_string(class));
    GOOD(MPI_Remove_error_class(class));
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

static void s9_5_wrong_codes(void)
{
    int class, code, got;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    FAILS(MPI_Add_error_string(MPI_ERR_ARG, "mine"), MPI_ERR_ARG);
    FAILS(MPI_Remove_error_class(MPI_ERR_ARG), MPI_ERR_ARG);
    FAILS(MPI_Add_error_code(code, &got), MPI_ERR_ARG);
    FAILS(MPI_Remove_error_class(class), MPI_ERR_OTHER);
    GOOD(MPI_Remove_error_code(code));
    FAILS(MPI_Remove_error_code(code), MPI_ERR_ARG);
    GOOD(MPI_Remove_error_class(class));
    FAILS(MPI_Error_class(class, &got), MPI_ERR_ARG);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

static void s9_5_call_errhandler(void)
{
    int class, code;
    MPI_Errhandler handler;
    MPI_Comm comm;
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(note_code, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    called = 0;
    GOOD(MPI_Comm_call_errhandler(comm, code));
    EQUAL(called, 1);
    EQUAL(last_code, code);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    GOOD(MPI_Comm_call_errhandler(comm, code));
    EQUAL(called, 1);
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comm);
    MPI_Remove_error_code(code);
    MPI_Remove_error_class(class);
}

static int given_code;

static int copy_fails(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)state, (void)in, (void)out, (void)flag;
    return given_code;
}

// Section 7.7.2: the call returns the code that an attribute function returned.
static void s9_5_a_code_of_ones_own_comes_back(void)
{
    int class, key, value = 0;
    MPI_Comm comm, copy;
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &given_code);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_create_keyval(copy_fails, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(comm, key, &value);
    EQUAL(MPI_Comm_dup(comm, &copy), given_code);
    MPI_Comm_free_keyval(&key);
    MPI_Comm_free(&comm);
    MPI_Remove_error_code(given_code);
    MPI_Remove_error_class(class);
}

int main(int argc, char **argv)
{
    // Before MPI_Init.
    int early, text_length;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Add_error_class(&early);
    MPI_Add_error_string(early, "early");
    start(&argc, &argv);
    check_test = "s9_5_before_init";
    EQUAL(last_used(), early);
    MPI_Error_string(early, text, &text_length);
    CHECK(strcmp(text, "early") == 0, "%s", text);
    GOOD(MPI_Remove_error_string(early));
    GOOD(MPI_Remove_error_class(early));
    RUN(s9_5_classes_and_codes);
    RUN(s9_5_strings);
    RUN(s9_5_wrong_codes);
    RUN(s9_5_call_errhandler);
    RUN(s9_5_a_code_of_ones_own_comes_back);
    return finish();
}
