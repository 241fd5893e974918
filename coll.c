#define COLL_IMPLEMENTATION
#include "coll.h"
