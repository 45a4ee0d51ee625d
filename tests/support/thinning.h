/*
 * Fewer cases of one kind where each takes long: with the thread sanitizer, which looks at how
 * threads meet and not at values, one of TEST_ONE_OF algorithms or jobs is tried, else all are.
 */
#ifndef MUSTER_TESTS_SUPPORT_THINNING_H
#define MUSTER_TESTS_SUPPORT_THINNING_H

#if defined(__SANITIZE_THREAD__)
enum { TEST_ONE_OF = 3 };
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
enum { TEST_ONE_OF = 3 };
#else
enum { TEST_ONE_OF = 1 };
#endif
#else
enum { TEST_ONE_OF = 1 };
#endif

#endif
