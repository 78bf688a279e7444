//! WGSL kernels through wgpu.
