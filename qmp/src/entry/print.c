// SPDX-License-Identifier: MIT OR Apache-2.0
// The printing functions of qmp.h, in C because they are variadic.
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

void qmp_prefix(char *to, size_t room);

// Prints one line: prefix, kind, text. One call of fprintf, so that lines of several nodes do not mix.
static int print(FILE *stream, const char *kind, const char *format, va_list arguments)
{
    char prefix[320];
    char *text = NULL;
    qmp_prefix(prefix, sizeof prefix);
    int length = vasprintf(&text, format, arguments);
    if (length < 0)
        return length;
    fprintf(stream, "%s%s: %s\n", prefix, kind, text);
    free(text);
    return length;
}

int QMP_printf(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = print(stdout, "", format, arguments);
    va_end(arguments);
    return length;
}

int QMP_fprintf(FILE *stream, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = print(stream, "", format, arguments);
    va_end(arguments);
    return length;
}

int QMP_info(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = print(stdout, " info", format, arguments);
    va_end(arguments);
    return length;
}

int QMP_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = print(stderr, " error", format, arguments);
    va_end(arguments);
    return length;
}
