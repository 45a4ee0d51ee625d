/* How one call reduces: what collectives/reduce/ needs besides the data. */
#ifndef MUSTER_COLLECTIVES_CALL_REDUCTION_H
#define MUSTER_COLLECTIVES_CALL_REDUCTION_H

#include "worker/muster.h"

struct muster_reduction {
    muster_type type;
    muster_op op;                       /* muster_op_check() has passed the two */
    muster_user_function user_function; /* of op USER */
    void *user_data;                    /* handed to it */
    double prescale, postscale;         /* 1 where there is none */
};

#endif
