/*
 * The floating-point environment in which members compute what they must agree on: sums, and
 * predicted times. A thread may flush denormals to zero (a program linked with -ffast-math does),
 * round elsewhere, or trap. So the environment is, between muster_environment_enter() and
 * muster_environment_leave(), the one that a program starts with.
 */
#ifndef MUSTER_COLLECTIVES_ENVIRONMENT_H
#define MUSTER_COLLECTIVES_ENVIRONMENT_H

#ifdef __x86_64__
#include <xmmintrin.h>

typedef unsigned muster_environment;

/* All exceptions masked, to nearest, denormals as they are; below are flags that nobody reads. */
enum { MUSTER_ENVIRONMENT_USUAL = 0x1f80, MUSTER_ENVIRONMENT_FLAGS = 0x3f };

static inline muster_environment muster_environment_enter(void)
{
    muster_environment was = _mm_getcsr();
    if ((was & ~(unsigned)MUSTER_ENVIRONMENT_FLAGS) != MUSTER_ENVIRONMENT_USUAL) {
        _mm_setcsr(MUSTER_ENVIRONMENT_USUAL);
    }
    return was;
}

static inline void muster_environment_leave(const muster_environment *was)
{
    if ((*was & ~(unsigned)MUSTER_ENVIRONMENT_FLAGS) != MUSTER_ENVIRONMENT_USUAL) {
        _mm_setcsr(*was);
    }
}

#else
#include <fenv.h>

typedef fenv_t muster_environment;

static inline muster_environment muster_environment_enter(void)
{
    muster_environment was;
    (void)fegetenv(&was);
    (void)fesetenv(FE_DFL_ENV);
    return was;
}

static inline void muster_environment_leave(const muster_environment *was)
{
    (void)fesetenv(was);
}
#endif

/* Until the scope ends. */
#define AUTO_ENVIRONMENT()                                     \
    __attribute__((cleanup(muster_environment_leave), unused)) \
    const muster_environment auto_was_ = muster_environment_enter()

#endif
