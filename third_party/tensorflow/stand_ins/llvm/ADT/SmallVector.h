// See ArrayRef.h.
#include "llvm/ADT/ArrayRef.h"
