/*
 * number.c - locale-independent parsing and printing of numbers.
 *
 * strtod() and printf() use the decimal point of the caller's locale, and a library may not change that
 * locale for other threads. uselocale() switches the calling thread alone, for the duration of one
 * conversion. The syntax is checked before, because strtod() also accepts blanks,
 * hexadecimal, "inf" and "nan".
 */
#include "config/number.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 512

static size_t skip_digits(const char *text, size_t len, size_t at) {
    while (at < len && text[at] >= '0' && text[at] <= '9')
        at++;
    return at;
}

/* [-] digits [. digits] [e [+-] digits], with a digit on at least one side of the point */
static int is_decimal(const char *text, size_t len) {
    size_t start = len > 0 && text[0] == '-';
    size_t at = skip_digits(text, len, start);
    size_t digits = at - start;
    if (at < len && text[at] == '.') {
        size_t fraction = skip_digits(text, len, at + 1);
        digits += fraction - (at + 1);
        at = fraction;
    }
    if (digits == 0)
        return 0;
    if (at < len && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        if (at < len && (text[at] == '+' || text[at] == '-'))
            at++;
        size_t end = skip_digits(text, len, at);
        if (end == at)
            return 0;
        at = end;
    }
    return at == len;
}

/* Switch to the C locale. Returns the previous locale, for leave_c_locale(). */
static locale_t enter_c_locale(locale_t *plain) {
    *plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return *plain ? uselocale(*plain) : (locale_t)0;
}

static void leave_c_locale(locale_t plain, locale_t before) {
    if (!plain)
        return;
    uselocale(before);
    freelocale(plain);
}

int frugi_read_double(const char *text, size_t len, double *value) {
    char copy[TEXT_MAX];
    if (len >= sizeof copy || !is_decimal(text, len))
        return 0;
    memcpy(copy, text, len);
    copy[len] = '\0';
    locale_t plain, before = enter_c_locale(&plain);
    double number = strtod(copy, NULL);
    leave_c_locale(plain, before);
    if (!isfinite(number))
        return 0;
    *value = number + 0.0; /* no negative zero, which would print as "-0" */
    return 1;
}

int frugi_read_u64(const char *text, size_t len, uint64_t *value) {
    uint64_t number = 0;
    if (len == 0 || skip_digits(text, len, 0) != len)
        return 0;
    for (size_t i = 0; i < len; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (number > (UINT64_MAX - digit) / 10)
            return 0;
        number = number * 10 + digit;
    }
    *value = number;
    return 1;
}

void frugi_write_double(double value, char text[FRUGI_NUMBER_TEXT_MAX]) {
    locale_t plain, before = enter_c_locale(&plain);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, FRUGI_NUMBER_TEXT_MAX, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    leave_c_locale(plain, before);
}
