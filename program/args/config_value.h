/* config_value.h - the value of one option in a canonical config string. */
#ifndef FGP_CONFIG_VALUE_H
#define FGP_CONFIG_VALUE_H

#include <stddef.h>

/**
 * Copy the value of an option from the text of a config (frug_config_text()), cut to cap - 1 characters.
 *
 * Returns the length of the value; -1 if the text does not have the option, because it is an alias of others.
 */
int fgp_config_value(const char *text, const char *option, char *dst, size_t cap);

#endif
