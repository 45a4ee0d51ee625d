#include "worker/context.h"
#include "worker/executor.h"
