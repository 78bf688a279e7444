//! What goes wrong in the double of NCCL ends in a typed error that names library and call.
