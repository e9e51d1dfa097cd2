// SPDX-License-Identifier: MIT OR Apache-2.0
// Packing by the program, in the machine's own representation and in external32: MPI 5.0 sections
// 5.2, 5.3 and 14.5.2.
#include "check.h"
#include <limits.h>

static unsigned char room[4096];

// Different pieces in one message, unpacked from the first to the last.
static void s5_2_pieces_in_one_message(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int position = 0, needed = 0, n = 3 + rank, got = -1, columns[12], back[12];
    double value = rank + 0.5, got_value = -1;
    MPI_Datatype column;
    MPI_Status status;
    for (int i = 0; i < 12; i++) {
        columns[i] = 100 * rank + i;
        back[i] = -1;
    }
    MPI_Type_vector(4, 1, 3, MPI_INT, &column);
    MPI_Type_commit(&column);
    GOOD(MPI_Pack_size(1, column, MPI_COMM_WORLD, &needed));
    CHECK(needed >= 16, "%d bytes are not enough", needed);
    GOOD(MPI_Pack(&n, 1, MPI_INT, room, sizeof room, &position, MPI_COMM_WORLD));
    GOOD(MPI_Pack(&value, 1, MPI_DOUBLE, room, sizeof room, &position, MPI_COMM_WORLD));
    int before = position;
    GOOD(MPI_Pack(columns, 1, column, room, sizeof room, &position, MPI_COMM_WORLD));
    CHECK(position - before <= needed && position > before, "%d bytes of %d", position - before, needed);
    GOOD(MPI_Sendrecv_replace(room, position, MPI_PACKED, right, 0, left, 0, MPI_COMM_WORLD, &status));
    position = 0;
    GOOD(MPI_Unpack(room, sizeof room, &position, &got, 1, MPI_INT, MPI_COMM_WORLD));
    GOOD(MPI_Unpack(room, sizeof room, &position, &got_value, 1, MPI_DOUBLE, MPI_COMM_WORLD));
    GOOD(MPI_Unpack(room, sizeof room, &position, back, 1, column, MPI_COMM_WORLD));
    EQUAL(got, 3 + left);
    CHECK(got_value == left + 0.5, "%g", got_value);
    for (int i = 0; i < 12; i++)
        EQUAL(back[i], i % 3 ? -1 : 100 * left + i);
    MPI_Type_free(&column);
}

// Section 5.2: a message that was packed may be received as its type, and the other way round.
static void s5_2_packed_here_typed_there(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, position = 0;
    int out[6] = {rank, 1, 2, 3, 4, 5}, in[6] = {0};
    MPI_Datatype evens;
    MPI_Type_vector(3, 1, 2, MPI_INT, &evens);
    MPI_Type_commit(&evens);
    GOOD(MPI_Pack(out, 1, evens, room, sizeof room, &position, MPI_COMM_WORLD));
    GOOD(MPI_Sendrecv(room, position, MPI_PACKED, right, 0, in, 3, MPI_INT, left, 0, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE));
    EQUAL(in[0], left);
    EQUAL(in[1] * 10 + in[2], 24);
    GOOD(MPI_Sendrecv(out, 1, evens, right, 0, room, sizeof room, MPI_PACKED, left, 0, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE));
    memset(in, 0, sizeof in);
    position = 0;
    GOOD(MPI_Unpack(room, sizeof room, &position, in, 1, evens, MPI_COMM_WORLD));
    EQUAL(in[0], left);
    EQUAL(in[2] * 10 + in[4], 24);
    MPI_Type_free(&evens);
}

static void s5_2_large_forms(void)
{
    MPI_Count position = 4, needed = -1;
    int out[3] = {7, 8, 9}, in[3] = {0};
    GOOD(MPI_Pack_size_c(3, MPI_INT, MPI_COMM_WORLD, &needed));
    CHECK(needed >= 12, "%lld", (long long)needed);
    GOOD(MPI_Pack_c(out, 3, MPI_INT, room, sizeof room, &position, MPI_COMM_WORLD));
    EQUAL(position, 16);
    position = 4;
    GOOD(MPI_Unpack_c(room, sizeof room, &position, in, 3, MPI_INT, MPI_COMM_WORLD));
    EQUAL(in[0] * 100 + in[1] * 10 + in[2], 789);
}

static void s5_2_no_room(void)
{
    int position = 0, numbers[3] = {1, 2, 3};
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Pack(numbers, 3, MPI_INT, room, 11, &position, MPI_COMM_WORLD) != MPI_SUCCESS, "11 bytes for 12");
    EQUAL(position, 0);
    position = 8;
    CHECK(MPI_Pack(numbers, 1, MPI_INT, room, 11, &position, MPI_COMM_WORLD) != MPI_SUCCESS, "3 bytes for 4");
    CHECK(MPI_Unpack(room, 11, &position, numbers, 1, MPI_INT, MPI_COMM_WORLD) != MPI_SUCCESS, "3 bytes for 4");
    FAILS(MPI_Pack(numbers, -1, MPI_INT, room, 11, &position, MPI_COMM_WORLD), MPI_ERR_COUNT);
    FAILS(MPI_Pack(numbers, 1, MPI_INT, room, 11, &position, MPI_COMM_NULL), MPI_ERR_COMM);
    position = -1;
    CHECK(MPI_Pack(numbers, 1, MPI_INT, room, 11, &position, MPI_COMM_WORLD) != MPI_SUCCESS, "position -1");
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

#define EXTERNAL(value, type, ...)                                                                 \
    do {                                                                                           \
        unsigned char expected_[] = {__VA_ARGS__};                                                   \
        MPI_Aint at_ = 0, bytes_ = -1;                                                             \
        GOOD(MPI_Pack_external_size("external32", 1, type, &bytes_));                              \
        EQUAL(bytes_, sizeof expected_);                                                             \
        memset(room, 0x77, 64);                                                                    \
        GOOD(MPI_Pack_external("external32", &(value), 1, type, room, sizeof room, &at_));         \
        EQUAL(at_, sizeof expected_);                                                                \
        for (size_t i_ = 0; i_ < sizeof expected_; i_++)                                             \
            CHECK(room[i_] == expected_[i_], "byte %zu is %x, expected %x", i_, room[i_], expected_[i_]); \
        unsigned char back_[64];                                                                   \
        at_ = 0;                                                                                   \
        memset(back_, 0, sizeof back_);                                                            \
        GOOD(MPI_Unpack_external("external32", room, sizeof room, &at_, back_, 1, type));          \
        CHECK(!memcmp(back_, &(value), used(type)), "it came back different");                     \
    } while (0)

// The bytes that hold the value: ten for a long double of x86.
static size_t used(MPI_Datatype type)
{
    int bytes;
    MPI_Type_size(type, &bytes);
#if defined __x86_64__
    if (type == MPI_LONG_DOUBLE)
        return 10;
#endif
    return bytes;
}

static void s14_5_2_numbers(void)
{
    short s = -2;
    int i = 0x01020304;
    long long q = LLONG_MIN + 5;
    long l = -5;
    float f = 1.5f;
    double d = -2.0;
    char c = 'A';
    EXTERNAL(s, MPI_SHORT, 0xff, 0xfe);
    EXTERNAL(i, MPI_INT, 1, 2, 3, 4);
    EXTERNAL(q, MPI_LONG_LONG, 0x80, 0, 0, 0, 0, 0, 0, 5);
    EXTERNAL(l, MPI_LONG, 0xff, 0xff, 0xff, 0xfb);
    EXTERNAL(f, MPI_FLOAT, 0x3f, 0xc0, 0, 0);
    EXTERNAL(d, MPI_DOUBLE, 0xc0, 0, 0, 0, 0, 0, 0, 0);
    EXTERNAL(c, MPI_CHAR, 'A');
    EXTERNAL(c, MPI_BYTE, 'A');
}

// Converts the machine's long double to IEEE binary128.
static void s14_5_2_long_doubles(void)
{
    long double one = 1.0L, some = -2.5L, third = 1.0L / 3;
    EXTERNAL(one, MPI_LONG_DOUBLE, 0x3f, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    EXTERNAL(some, MPI_LONG_DOUBLE, 0xc0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    long double back = 0;
    MPI_Aint at = 0;
    GOOD(MPI_Pack_external("external32", &third, 1, MPI_LONG_DOUBLE, room, sizeof room, &at));
    at = 0;
    GOOD(MPI_Unpack_external("external32", room, sizeof room, &at, &back, 1, MPI_LONG_DOUBLE));
    CHECK(back == third, "%Lg", back);
}

// Structures are packed without padding, and the bytes of each element are swapped.
static void s5_3_structures(void)
{
    struct item {
        short s;
        double d;
        int n[2];
    } out[3], in[3];
    int lengths[] = {1, 1, 2};
    MPI_Aint places[] = {0, 8, 16}, at = 0, bytes = -1;
    MPI_Datatype types[] = {MPI_SHORT, MPI_DOUBLE, MPI_INT}, type;
    MPI_Count at_c = 0, bytes_c = -1;
    for (int i = 0; i < 3; i++)
        out[i] = (struct item){(short)(0x0102 + i), i + 0.5, {i, -i}};
    memset(in, 0, sizeof in);
    MPI_Type_create_struct(3, lengths, places, types, &type);
    MPI_Type_commit(&type);
    GOOD(MPI_Pack_external_size("external32", 3, type, &bytes));
    EQUAL(bytes, 54);
    GOOD(MPI_Pack_external("external32", out, 3, type, room, 54, &at));
    EQUAL(at, 54);
    EQUAL(room[0] * 256 + room[1], 0x0102);
    EQUAL(room[18] * 256 + room[19], 0x0103);
    at = 0;
    GOOD(MPI_Unpack_external("external32", room, 54, &at, in, 3, type));
    EQUAL(at, 54);
    for (int i = 0; i < 3; i++)
        CHECK(in[i].s == 0x0102 + i && in[i].d == i + 0.5 && in[i].n[0] == i && in[i].n[1] == -i, "item %d", i);
    GOOD(MPI_Pack_external_size_c("external32", 3, type, &bytes_c));
    EQUAL(bytes_c, 54);
    GOOD(MPI_Pack_external_c("external32", out, 3, type, room, 54, &at_c));
    EQUAL(at_c, 54);
    at_c = 0;
    memset(in, 0, sizeof in);
    GOOD(MPI_Unpack_external_c("external32", room, 54, &at_c, in, 3, type));
    EQUAL(in[2].n[1], -2);
    MPI_Type_free(&type);
}

static void s5_3_wrong_arguments(void)
{
    int number = 1;
    MPI_Aint at = 0;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Pack_external("internal", &number, 1, MPI_INT, room, 4, &at) != MPI_SUCCESS, "internal");
    CHECK(MPI_Pack_external("external32", &number, 1, MPI_INT, room, 3, &at) != MPI_SUCCESS, "3 bytes for 4");
    EQUAL(at, 0);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

// A buffer that ends within the integer: its two bytes are not taken for the short after it.
static void s5_3_too_short_to_unpack(void)
{
    struct {
        int number;
        short next;
    } got = {-1, -1};
    int lengths[2] = {1, 1};
    MPI_Aint places[2] = {0, sizeof(int)}, at = 0;
    MPI_Datatype parts[2] = {MPI_INT, MPI_SHORT}, type;
    MPI_Type_create_struct(2, lengths, places, parts, &type);
    MPI_Type_commit(&type);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int bytes = 0; bytes < 6; bytes++) {
        FAILS(MPI_Unpack_external("external32", room, bytes, &at, &got, 1, type), MPI_ERR_TRUNCATE);
        EQUAL(at, 0);
        EQUAL(got.number, -1);
        EQUAL(got.next, -1);
    }
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s5_2_pieces_in_one_message);
    RUN(s5_2_packed_here_typed_there);
    RUN(s5_2_large_forms);
    RUN(s5_2_no_room);
    RUN(s14_5_2_numbers);
    RUN(s14_5_2_long_doubles);
    RUN(s5_3_structures);
    RUN(s5_3_wrong_arguments);
    RUN(s5_3_too_short_to_unpack);
    return finish();
}
