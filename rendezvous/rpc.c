#include "elastic/messages.h"
