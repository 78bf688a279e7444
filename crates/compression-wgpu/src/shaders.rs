//! The WGSL texts of `kernels/wgsl`, and which of them make a kernel.
//!
//! A kernel is the prelude, a text for the source of numbers, a text for their use, and an entry point with the
//! kernel's name.

use unisono_kernels::wgsl::{
    AVERAGE, ENCODING, FROM_BF16, FROM_INTEGERS, FROM_SHARED, FROM_SIGNS, FROM_VECTOR, FROM_VECTORS,
    INTEGERS, PRELUDE, SIGN_EXPAND, SIGN_PACK, TO_BF16, TO_INTEGERS, TO_MAGNITUDES, TO_NUMBERS, TO_SHARED,
    TO_SIGN_BLOCKS, TO_SIGNS, TO_SQUARES,
};

/// Threads of a workgroup, which are the lanes of the definition.
pub(crate) const LANES: usize = 64;

/// The storage buffers that every kernel has.
pub(crate) const STORAGE_BUFFERS: u32 = 8;

/// Bytes of workgroup memory of the kernel that needs the most: two arrays of a word for each lane, and one word.
pub(crate) const WORKGROUP_BYTES: u32 = 2 * 4 * LANES as u32 + 4;

macro_rules! kernels {
    ($($kernel:ident $name:literal [$($text:ident),*],)*) => {
        /// A kernel by the name that it has on the processor.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kernel {
            $($kernel,)*
        }

        impl Kernel {
            pub(crate) const ALL: &'static [Kernel] = &[$(Kernel::$kernel,)*];

            /// The name of its entry point.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Kernel::$kernel => $name,)*
                }
            }

            const fn texts(self) -> &'static [&'static str] {
                match self {
                    $(Kernel::$kernel => &[PRELUDE, $($text),*],)*
                }
            }
        }
    };
}

kernels! {
    SignEncode "sign_encode" [FROM_VECTOR, ENCODING, TO_SIGNS, TO_SIGN_BLOCKS],
    SignReduceEncode "sign_reduce_encode" [FROM_SIGNS, ENCODING, TO_SIGNS, TO_SIGN_BLOCKS],
    SignExpand "sign_expand" [SIGN_EXPAND],
    SignDecodeSum "sign_decode_sum" [FROM_SIGNS, TO_NUMBERS],
    Compensate "compensate" [FROM_VECTOR, ENCODING, TO_SQUARES],
    SignReduceGlobal "sign_reduce_global" [FROM_SIGNS, ENCODING, TO_SQUARES],
    SignPack "sign_pack" [ENCODING, TO_SIGNS, SIGN_PACK],
    IntEncode "int_encode" [INTEGERS, FROM_VECTOR, ENCODING, TO_INTEGERS],
    IntReduceEncode "int_reduce_encode" [INTEGERS, FROM_INTEGERS, ENCODING, TO_INTEGERS],
    IntDecodeSum "int_decode_sum" [INTEGERS, FROM_INTEGERS, TO_NUMBERS],
    IntExpand "int_expand" [INTEGERS, FROM_INTEGERS, TO_NUMBERS],
    IntMagnitudes "int_magnitudes" [FROM_VECTOR, ENCODING, TO_MAGNITUDES],
    IntEncodeShared "int_encode_shared" [INTEGERS, FROM_VECTOR, ENCODING, TO_SHARED],
    IntExpandShared "int_expand_shared" [INTEGERS, FROM_SHARED, TO_NUMBERS],
    Bf16Encode "bf16_encode" [FROM_VECTOR, ENCODING, TO_BF16],
    Bf16ReduceEncode "bf16_reduce_encode" [FROM_BF16, ENCODING, TO_BF16],
    Bf16DecodeSum "bf16_decode_sum" [FROM_BF16, TO_NUMBERS],
    Bf16Expand "bf16_expand" [FROM_BF16, TO_NUMBERS],
    Sum "sum" [FROM_VECTORS, TO_NUMBERS],
    Average "average" [AVERAGE],
}

impl Kernel {
    /// The whole module.
    pub(crate) fn source(self) -> String {
        let (texts, name) = (self.texts().concat(), self.name());
        format!(
            "{texts}
@compute @workgroup_size({LANES})
fn {name}(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {{
    run(group.x, groups.x, lane);
}}
"
        )
    }
}

#[cfg(test)]
mod tests {
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    use super::*;

    /// Every machine can do this: neither a driver nor an adapter has a part in it.
    #[test]
    fn naga_accepts_every_kernel_without_any_capability() {
        for kernel in Kernel::ALL {
            let (name, source) = (kernel.name(), kernel.source());
            let module = naga::front::wgsl::parse_str(&source)
                .unwrap_or_else(|error| panic!("{name}: {}", error.emit_to_string(&source)));
            let mut validator = Validator::new(ValidationFlags::all(), Capabilities::empty());
            let validated = validator.validate(&module);
            let info = validated.unwrap_or_else(|error| panic!("{name}: {}", error.emit_to_string(&source)));

            let [entry] = &module.entry_points[..] else { panic!("{name} has one entry point") };
            assert_eq!((entry.name.as_str(), entry.workgroup_size), (name, [LANES as u32, 1, 1]));
            let (mut buffers, mut workgroup_bytes) = (0, 0);
            for (handle, variable) in module.global_variables.iter() {
                let is_used = !info.get_entry_point(0)[handle].is_empty();
                match variable.space {
                    naga::AddressSpace::Storage { .. } => buffers += 1,
                    naga::AddressSpace::WorkGroup if is_used => {
                        workgroup_bytes += module.types[variable.ty].inner.size(module.to_ctx());
                    }
                    _ => {}
                }
            }
            assert_eq!(buffers, STORAGE_BUFFERS, "{name}");
            assert!(workgroup_bytes <= WORKGROUP_BYTES, "{name} has {workgroup_bytes} bytes");
        }
    }

    #[test]
    fn every_text_is_a_part_of_a_kernel() {
        let used: Vec<&str> = Kernel::ALL.iter().flat_map(|kernel| kernel.texts()).copied().collect();
        for (file, text) in unisono_kernels::wgsl::FILES {
            assert!(used.contains(text), "{file}");
        }
    }

    #[test]
    fn a_kernel_is_known_by_one_name() {
        let mut names: Vec<_> = Kernel::ALL.iter().map(|kernel| kernel.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kernel::ALL.len());
    }
}
