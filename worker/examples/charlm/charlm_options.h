/* The command line of charlm. */
#ifndef CHARLM_OPTIONS_H
#define CHARLM_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* The exit status after a wrong command line. */
#define CHARLM_USAGE 2

struct charlm_options {
    const char *data; /* borrowed from argv */
    uint64_t steps;
    uint64_t batch; /* samples a step, of all members together */
    uint64_t seed;
    uint64_t hidden, layers, context, embed; /* as in struct charlm_shape */
    uint64_t commit_every, report_every;     /* steps */
    uint64_t pace_ms;                        /* the least time of a step */
    double learning_rate;
    bool alone;
};

/* Fills in the defaults, then the options given. After a mistake it prints one line and exits;
 * after
 * --help it prints and exits. */
void charlm_options_parse(struct charlm_options *options, int argc, char **argv);

#endif
