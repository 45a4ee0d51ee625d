/* Which kernel reduces which type and operation: the rows of tables of all types, in their order,
 * of ENTRY(name of the kernel), or NULL where a type does not have an operation. */
#ifndef MUSTER_COLLECTIVES_REDUCE_ROWS_H
#define MUSTER_COLLECTIVES_REDUCE_ROWS_H

/* AVERAGE reduces like SUM. */
#define NUMBER_ENTRIES(ENTRY, name) \
    ENTRY(name##_sum), ENTRY(name##_sum), ENTRY(name##_prod), ENTRY(name##_min), ENTRY(name##_max)
#define FLOAT_ROW(ENTRY, name)                                          \
    {                                                                   \
        NUMBER_ENTRIES(ENTRY, name), NULL, NULL, NULL, NULL, NULL, NULL \
    }
#define INTEGER_ROW(ENTRY, name)                                                                 \
    {                                                                                            \
        NUMBER_ENTRIES(ENTRY, name), ENTRY(name##_bitwise_and), ENTRY(name##_bitwise_or),        \
            ENTRY(name##_bitwise_xor), ENTRY(name##_logical_and), ENTRY(name##_logical_or), NULL \
    }
/* The minimum of two truth values is AND, the maximum is OR. */
#define BOOL_ROW(ENTRY)                                                               \
    {                                                                                 \
        NULL, NULL, NULL, ENTRY(bool_logical_and), ENTRY(bool_logical_or),            \
            ENTRY(bool_logical_and), ENTRY(bool_logical_or), ENTRY(bool_logical_xor), \
            ENTRY(bool_logical_and), ENTRY(bool_logical_or), NULL                     \
    }

#define REDUCE_ROWS(ENTRY)                                                                     \
    {                                                                                          \
        FLOAT_ROW(ENTRY, float32), FLOAT_ROW(ENTRY, float64), INTEGER_ROW(ENTRY, int32),       \
            INTEGER_ROW(ENTRY, int64), INTEGER_ROW(ENTRY, uint8), INTEGER_ROW(ENTRY, int8),    \
            INTEGER_ROW(ENTRY, int16), INTEGER_ROW(ENTRY, uint16), INTEGER_ROW(ENTRY, uint32), \
            INTEGER_ROW(ENTRY, uint64), FLOAT_ROW(ENTRY, float16), FLOAT_ROW(ENTRY, bfloat16), \
            BOOL_ROW(ENTRY)                                                                    \
    }

#endif
