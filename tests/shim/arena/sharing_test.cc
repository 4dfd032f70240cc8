#include "tests/shim/arena/moved_program.h"
