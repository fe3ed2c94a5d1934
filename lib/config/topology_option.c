/* topology_option.c - the values of topology=: ring, torus, or random with a degree and an optional seed. */
#include "config/option_table.h"
#include "config/number.h"

#include <inttypes.h>
#include <stdio.h>

#define DEGREE_MAX 1024

static int read_random(frugi_token rest, frug_config *config) {
    frugi_token degree = frugi_token_split(&rest, ':');
    uint64_t d = 0;
    if (!frugi_read_u64(degree.at, degree.len, &d) || d < 1 || d > DEGREE_MAX)
        return 0;
    config->topology = FRUGI_TOPOLOGY_RANDOM;
    config->degree = (uint32_t)d;
    return degree.at + degree.len == rest.at || frugi_read_u64(rest.at, rest.len, &config->graph_seed);
}

frug_status frugi_parse_topology(const frugi_option_row *row, frugi_token value, frug_config *config) {
    frugi_token rest = value, name = frugi_token_split(&rest, ':');
    config->degree = 0;
    config->graph_seed = 0;
    config->topology = frugi_token_is(value, "torus") ? FRUGI_TOPOLOGY_TORUS : FRUGI_TOPOLOGY_RING;
    if (frugi_token_is(value, "ring") || frugi_token_is(value, "torus"))
        return FRUG_OK;
    if (!frugi_token_is(name, "random") || !read_random(rest, config))
        return frugi_option_bad_number(row, value);
    return FRUG_OK;
}

void frugi_print_topology(const frugi_option_row *row, const frug_config *config, char text[FRUGI_VALUE_TEXT_MAX]) {
    (void)row;
    if (config->topology == FRUGI_TOPOLOGY_RANDOM)
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "random:%" PRIu32 ":%" PRIu64, config->degree, config->graph_seed);
    else
        snprintf(text, FRUGI_VALUE_TEXT_MAX, "%s", config->topology == FRUGI_TOPOLOGY_TORUS ? "torus" : "ring");
}
