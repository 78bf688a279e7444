//! The CUDA driver: code. The double has no kernels.

use unisono_double_common::export;

use crate::context::CuError;

export! {
    fn cuModuleLoadData(_module: usize, _image: usize) -> CuError {
        Err(CuError::NOT_SUPPORTED)
    }

    fn cuModuleUnload(_module: usize) -> CuError {
        Err(CuError::INVALID_HANDLE)
    }

    fn cuModuleGetFunction(_function: usize, _module: usize, _name: usize) -> CuError {
        Err(CuError::INVALID_HANDLE)
    }

    fn cuLaunchKernel(
        _function: usize, _grid_x: u32, _grid_y: u32, _grid_z: u32, _block_x: u32, _block_y: u32, _block_z: u32,
        _shared_bytes: u32, _handle: usize, _arguments: usize, _extra: usize,
    ) -> CuError {
        Err(CuError::INVALID_HANDLE)
    }
}
