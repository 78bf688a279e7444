//! Signs of floats as bits, and back, by aclnn: the counterparts of `npu_sign_bits_pack` and `npu_sign_bits_unpack`.
//!
//! Element i is bit i % 8 of byte i / 8, lowest first, set unless the element is negative. That is the order of
//! unisono's one-bit codecs (`BitOrder::LsbFirst`), whose words are little-endian, so bits of one are bits of the
//! other, but for negative subnormal numbers, which those codecs take for zero. NumPy and DeepSpeed's other backends
//! have the highest bit first; [`u8::reverse_bits`] converts.

#![expect(unsafe_code, reason = "calls aclnn's operators")]

use std::ffi::c_void;

use unisono_communicator::{DType, DeviceBuffer, DeviceBufferMut, DeviceStream, Error, Result};
use unisono_offload::{Device, RawStream};

use crate::device::AclDevice;
use crate::discovery::Aclnn;
use crate::operator::unsupported;
use crate::sys::{AclDataType, Handle, Signs};
use crate::vendor::Hccl;

/// Elements in a byte.
const PER_BYTE: usize = 8;

impl Hccl {
    /// Enqueues the packing of the signs of all elements of `input` into `output`, of a byte for each 8. Bits behind
    /// the last element are of any value. A NaN makes the work fail, or packs as anything, as the operator likes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for other lengths, lists, and memory or a stream of another device;
    /// [`Error::Unsupported`] for other elements than f16 and f32, on products whose aclnn has no such operator (950
    /// and 910), and without aclnn; [`Error::Vendor`].
    pub fn pack_signs(
        &self,
        input: &DeviceBuffer,
        dtype: DType,
        output: &mut DeviceBufferMut,
        stream: DeviceStream,
    ) -> Result<()> {
        let elements = input.bytes() / dtype.bytes();
        let call = self.sign_call(dtype, [input, output], [elements.div_ceil(PER_BYTE), elements], stream)?;
        let Some(SignCall { floats, bytes, element, stream }) = call else { return Ok(()) };
        // SAFETY: the spans are of this device, and as long; who lends them for the call leaves them alone until its
        // work is done.
        unsafe { self.device.pack(floats, (elements, element), bytes, stream) }
    }

    /// Enqueues the reverse: 1.0 for each bit of `input` that is set, -1.0 for each that is not, 8 elements for a byte.
    ///
    /// # Errors
    /// As [`Hccl::pack_signs`].
    pub fn unpack_signs(
        &self,
        input: &DeviceBuffer,
        output: &mut DeviceBufferMut,
        dtype: DType,
        stream: DeviceStream,
    ) -> Result<()> {
        let (packed, elements) = (input.bytes(), input.bytes() * PER_BYTE);
        let call = self.sign_call(dtype, [output, input], [packed, elements], stream)?;
        let Some(SignCall { floats, bytes, element, stream }) = call else { return Ok(()) };
        // SAFETY: as in `pack_signs`.
        unsafe { self.device.unpack(bytes, packed, (floats, element), stream) }
    }

    /// Checks a call on floats and bytes, of `[bytes, floats]` elements; `None` when there are none.
    fn sign_call(
        &self,
        dtype: DType,
        [floats, bytes]: [&DeviceBuffer; 2],
        [packed, elements]: [usize; 2],
        stream: DeviceStream,
    ) -> Result<Option<SignCall>> {
        let element = match dtype {
            DType::F16 => AclDataType::Float16,
            DType::F32 => AclDataType::Float32,
            other => return Err(unsupported(format!("signs of {other}"))),
        };
        if !self.product.packs_signs() {
            return Err(unsupported(format!("signs as bits on {:?}", self.product)));
        }
        for (argument, buffer, expected) in
            [("floats", floats, elements * dtype.bytes()), ("signs", bytes, packed)]
        {
            if buffer.bytes() != expected {
                let problem = format!("{} bytes, where {expected} belong", buffer.bytes());
                return Err(Error::invalid(argument, problem));
            }
        }
        let ordinal = self.device.ordinal();
        if stream.device() != ordinal {
            let problem = format!("of device {}, and this is device {ordinal}", stream.device());
            return Err(Error::invalid("stream", problem));
        }
        if elements == 0 {
            return Ok(None);
        }
        let ([floats], [bytes]) = (floats.spans(), bytes.spans()) else {
            return Err(Error::invalid("floats", "a list: signs are packed in one piece"));
        };
        for (argument, span) in [("floats", floats), ("signs", bytes)] {
            self.device.check_address(argument, span.address())?;
            self.device.check_address(argument, span.address() + span.bytes() - 1)?;
        }
        let stream = RawStream(stream.handle());
        // SAFETY: the maker of the `DeviceStream` has promised that it lives.
        unsafe { self.device.check_stream(stream) }?;
        let [floats, bytes] =
            [floats, bytes].map(|span| std::ptr::with_exposed_provenance_mut(span.address()));
        Ok(Some(SignCall { floats, bytes, element, stream }))
    }
}

impl AclDevice {
    /// Enqueues the packing of the signs of `elements` floats into a byte for each 8.
    ///
    /// # Safety
    /// The memory is of this device and as long, and nobody else uses it until the work is done.
    pub(crate) unsafe fn pack(
        &self,
        floats: *const c_void,
        (elements, element): (usize, AclDataType),
        bytes: *mut c_void,
        stream: RawStream,
    ) -> Result<()> {
        let (aclnn, signs) = self.sign_operators()?;
        let _current = self.enter()?;
        let rows = [1, elements.div_ceil(PER_BYTE) as i64];
        // SAFETY: the caller's. The floats are only read.
        let (floats, bytes) = unsafe {
            (
                aclnn.tensor(floats.cast_mut(), &[elements as i64], element)?,
                aclnn.tensor(bytes, &rows, AclDataType::Uint8)?,
            )
        };
        // SAFETY: it reads the operands, and writes a number and a handle.
        let first = |workspace: &mut u64, executor: &mut Handle| unsafe {
            (signs.pack_workspace)(floats.0, 1, bytes.0, workspace, executor)
        };
        let names = ["aclnnSignBitsPackGetWorkspaceSize", "aclnnSignBitsPack"];
        // SAFETY: the caller's.
        unsafe { self.enqueue(names, first, signs.pack, stream) }
    }

    /// Enqueues the unpacking of `packed` bytes into 8 floats for each.
    ///
    /// # Safety
    /// As [`AclDevice::pack`].
    pub(crate) unsafe fn unpack(
        &self,
        bytes: *const c_void,
        packed: usize,
        (floats, element): (*mut c_void, AclDataType),
        stream: RawStream,
    ) -> Result<()> {
        let (aclnn, signs) = self.sign_operators()?;
        let _current = self.enter()?;
        let rows = [1, (PER_BYTE * packed) as i64];
        // SAFETY: the caller's. The bytes are only read.
        let (floats, bytes) = unsafe {
            (
                aclnn.tensor(floats, &rows, element)?,
                aclnn.tensor(bytes.cast_mut(), &[packed as i64], AclDataType::Uint8)?,
            )
        };
        // SAFETY: it reads the operands, and writes a number and a handle.
        let first = |workspace: &mut u64, executor: &mut Handle| unsafe {
            (signs.unpack_workspace)(bytes.0, 1, element, floats.0, workspace, executor)
        };
        let names = ["aclnnSignBitsUnpackGetWorkspaceSize", "aclnnSignBitsUnpack"];
        // SAFETY: the caller's.
        unsafe { self.enqueue(names, first, signs.unpack, stream) }
    }

    pub(crate) fn sign_operators(&self) -> Result<(&'static Aclnn, &'static Signs)> {
        let aclnn = self.aclnn()?;
        let signs =
            aclnn.signs.as_ref().ok_or_else(|| unsupported("aclnn's operators of signs".to_owned()))?;
        Ok((aclnn, signs))
    }
}

/// The operands of a call.
struct SignCall {
    floats: *mut c_void,
    bytes: *mut c_void,
    element: AclDataType,
    stream: RawStream,
}
