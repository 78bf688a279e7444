//! Arithmetic on vectors of f32 and their signs, by aclnn: the parts of kernels of compression.

#![expect(unsafe_code, reason = "calls aclnn's operators")]

use std::ffi::c_void;
use std::fmt;

use unisono_communicator::{Error, Result};
use unisono_offload::{Device, RawStream, Scale};

use crate::combining;
use crate::device::AclDevice;
use crate::discovery::{Aclnn, HcclLibrary};
use crate::operator::unsupported;
use crate::scaling;
use crate::sys::{AclDataType, Handle, Norms};
use crate::vendor::{BACKEND, Hccl, HcclOptions};

/// The type of the elements.
const F32: AclDataType = AclDataType::Float32;

/// Operators of aclnn on vectors of f32 in the memory of one Ascend device. Each call enqueues an operator on a stream
/// and returns; every element is rounded once, to nearest.
///
/// # Safety
/// Of every unsafe function: addresses are of [`Vectors::device`], for as many elements as the call says, and nobody
/// else uses them until the work on the stream is done. A result may lie where an operand does, or is apart from it.
///
/// # Errors
/// Of every function: [`Error::Vendor`] when ACL or aclnn refuses.
pub struct Vectors {
    device: AclDevice,
    aclnn: &'static Aclnn,
    norms: &'static Norms,
}

impl fmt::Debug for Vectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vectors({:?})", self.device)
    }
}

impl Vectors {
    /// The operators on a device, which stays set up as long as this value. HCCL itself is opened, and not used.
    ///
    /// # Errors
    /// As [`Hccl::open`]. [`Error::Unsupported`] on products that do not pack signs or do not add vectors (all but
    /// Atlas A2 and A3), and for an aclnn that lacks an operator.
    pub fn open(options: &HcclOptions) -> Result<Vectors> {
        Vectors::on(HcclLibrary::open(&options.directory)?, options)
    }

    pub(crate) fn on(library: &'static HcclLibrary, options: &HcclOptions) -> Result<Vectors> {
        let opened = Hccl::on(library, options)?;
        let (product, device) = (opened.product(), opened.device);
        if !product.packs_and_adds() {
            let what = format!("sums of vectors and signs as bits on {product:?}");
            let instead = Some("Atlas A2 or A3, or memory of the host".to_owned());
            return Err(Error::Unsupported { what, backend: BACKEND, instead });
        }
        let aclnn = device.aclnn()?;
        device.pairs()?;
        device.sign_operators()?;
        let norms = aclnn.norms.as_ref().ok_or_else(|| unsupported("aclnnNorm".to_owned()))?;
        Ok(Vectors { device, aclnn, norms })
    }

    /// The device, with its memory and streams.
    pub fn device(&self) -> &dyn Device {
        &self.device
    }

    /// `to[i] = left[i] + factor * right[i]` (`aclnnAdd`). The product may be rounded before the sum or not: callers
    /// choose factors for which it is exact.
    ///
    /// # Safety
    /// See [`Vectors`].
    ///
    /// # Errors
    /// See [`Vectors`].
    pub unsafe fn add(
        &self,
        to: *mut c_void,
        operands: [*const c_void; 2],
        factor: f32,
        elements: usize,
        stream: RawStream,
    ) -> Result<()> {
        if elements == 0 {
            return Ok(());
        }
        let factor = self.aclnn.scalar(factor)?;
        // SAFETY: the caller's.
        unsafe { combining::add(&self.device, to, operands, (elements, F32), &factor, stream) }
    }

    /// `to[i] = factor * from[i]` (`aclnnMuls`).
    ///
    /// # Safety
    /// See [`Vectors`].
    ///
    /// # Errors
    /// See [`Vectors`].
    pub unsafe fn multiply(
        &self,
        to: *mut c_void,
        from: *const c_void,
        factor: f32,
        elements: usize,
        stream: RawStream,
    ) -> Result<()> {
        let by = Scale::Multiply(f64::from(factor));
        // SAFETY: the caller's.
        unsafe { scaling::scaled(&self.device, self.aclnn, to, from, (elements, F32), by, stream) }
    }

    /// `to[0]` = the root of the sum of squares of `from`, of at least one element (`aclnnNorm`). The order of the sum
    /// is the operator's, and may differ from run to run; squares may overflow or vanish.
    ///
    /// # Safety
    /// See [`Vectors`].
    ///
    /// # Errors
    /// See [`Vectors`].
    pub unsafe fn norm(
        &self,
        to: *mut c_void,
        from: *const c_void,
        elements: usize,
        stream: RawStream,
    ) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: the caller's. The values at `from` are only read.
        let (input, output) = unsafe {
            (self.aclnn.tensor(from.cast_mut(), &[elements as i64], F32)?, self.aclnn.tensor(to, &[1], F32)?)
        };
        let (two, dims) = (self.aclnn.scalar(2.0)?, self.aclnn.list(&[0])?);
        // SAFETY: it reads the operands, and writes a number and a handle.
        let first = |bytes: &mut u64, executor: &mut Handle| unsafe {
            (self.norms.norm_workspace)(input.0, two.0, dims.0, true, output.0, bytes, executor)
        };
        let names = ["aclnnNormGetWorkspaceSize", "aclnnNorm"];
        // SAFETY: the caller's.
        unsafe { self.device.enqueue(names, first, self.norms.norm, stream) }
    }

    /// A bit for each element, the first in the lowest of a byte, set unless the element is negative
    /// (`aclnnSignBitsPack`). Bits behind the last element are of any value; no element is a NaN.
    ///
    /// # Safety
    /// See [`Vectors`]; there is a byte for each 8 elements.
    ///
    /// # Errors
    /// See [`Vectors`].
    pub unsafe fn pack_signs(
        &self,
        to: *mut c_void,
        from: *const c_void,
        elements: usize,
        stream: RawStream,
    ) -> Result<()> {
        if elements == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe { self.device.pack(from, (elements, F32), to, stream) }
    }

    /// 1.0 for each bit that is set and -1.0 for each that is not, of so many bytes (`aclnnSignBitsUnpack`).
    ///
    /// # Safety
    /// See [`Vectors`]; there are 8 elements for each byte.
    ///
    /// # Errors
    /// See [`Vectors`].
    pub unsafe fn unpack_signs(
        &self,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe { self.device.unpack(from, bytes, (to, F32), stream) }
    }
}
