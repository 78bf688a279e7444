//! Arithmetic on vectors, by the test double of aclnn's operators.

#![expect(unsafe_code, reason = "memory of the double's devices, by its address")]

use unisono_communicator::Error;
use unisono_offload::RawStream;

use crate::HcclOptions;
use crate::vectors::Vectors;
use crate::vendor_tests::Double;

const OPTIONS: HcclOptions = HcclOptions { directory: None, device: 0 };

#[test]
fn operators_do_what_they_say() {
    let double = Double::new("vectors");
    let vectors = Vectors::on(double.library(), &OPTIONS).unwrap();
    let (device, numbers) = (vectors.device(), [3.0f32, -4.0, 0.0, -1.0, 2.0, 0.5, -0.25, 8.0]);
    let stream = device.create_stream().unwrap();
    let memory = device.allocate(64).unwrap();
    let (first, second) = (memory, memory.wrapping_byte_add(32));
    let mut found = [0.0f32; 8];
    let mut read = |stream: RawStream| {
        // SAFETY: there are 8 numbers.
        unsafe { device.download(bytemuck::cast_slice_mut(&mut found), second, stream) }.unwrap();
        found
    };
    // SAFETY: both halves have 8 numbers, and the test waits for its work.
    unsafe {
        device.upload(first, bytemuck::cast_slice(&numbers), stream).unwrap();
        vectors.multiply(second, first, 0.5, 8, stream).unwrap();
        assert_eq!(read(stream), numbers.map(|number| number / 2.0));
        vectors.add(second, [first, second], -2.0, 8, stream).unwrap();
        assert_eq!(read(stream), [0.0; 8]);
        vectors.norm(second, first, 2, stream).unwrap();
        assert_eq!(read(stream)[0], 5.0);
        vectors.pack_signs(second, first, 8, stream).unwrap();
        assert_eq!(read(stream)[0].to_bits() & 0xff, 0b1011_0101);
        device.copy(first, second, 1, stream).unwrap();
        vectors.unpack_signs(second, first, 1, stream).unwrap();
        assert_eq!(read(stream), [1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0]);
        // No elements, no operator.
        let null = std::ptr::null_mut();
        vectors.add(null, [null, null], 1.0, 0, stream).unwrap();
        vectors.multiply(null, null, 1.0, 0, stream).unwrap();
        device.free(memory);
        device.destroy_stream(stream);
    }
    drop(vectors);
    assert_eq!(double.live_handles(), 0);
}

fn refusal(double: &Double) -> String {
    let error = Vectors::on(double.library(), &OPTIONS).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    error.to_string()
}

#[test]
fn products_and_libraries_that_lack_something_are_refused_when_they_are_opened() {
    for (product, name) in [("950", "Ascend950"), ("910", "Atlas910"), ("310p", "Atlas310P")] {
        let said = refusal(&Double::new(&format!("vectors-product.product={product}")));
        assert!(said.contains(name) && said.contains("Atlas A2 or A3"), "{said}");
    }
    for (function, missing) in [
        ("aclnnNorm", "aclnnNorm"),
        ("aclnnAdd", "aclnn's operators on two tensors"),
        ("aclnnSignBitsPack", "aclnn's operators of signs"),
        ("aclnnSignBitsUnpackGetWorkspaceSize", "aclnn's operators of signs"),
        ("aclnnMuls", "aclnn's operators"),
    ] {
        let said = refusal(&Double::without(&format!("vectors-no-{function}"), &[function]));
        assert!(said.contains(missing), "{function}: {said}");
    }
}
