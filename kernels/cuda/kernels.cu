// Every kernel of kernels/src/reference.rs, with its name there, for NVIDIA's devices. NVRTC compiles this file for a
// card, g++ for the host (host/double.cpp). What kernels share:
//
// * A warp takes a block of elements, or a tile or run of so many: warp_number() is its number.
// * Buffers are words at any address that is a multiple of 4. A null pointer is a buffer that there is not.
// * `parts` is a table of addresses in the device's memory.
// * `first_bad` becomes the number of the first block that cannot be encoded; it is NO_BLOCK before.
// * `fresh` is the new residual, `old` the residual of the last call.

#include "bf16.cu"
#include "exact.cu"
#include "global.cu"
#include "int.cu"
#include "int_shared.cu"
#include "sign.cu"
