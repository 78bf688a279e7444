//! The texts of kernels on devices, for crates that compile them at run time.

macro_rules! texts {
    ($folder:literal: $($text:ident $file:literal,)*) => {
        $(
            #[doc = concat!("The text of `", $folder, "/", $file, "`.")]
            pub const $text: &str = include_str!(concat!("../", $folder, "/", $file));
        )*

        /// Name and text of every file of the folder, by name.
        pub const FILES: &[(&str, &str)] = &[$(($file, $text),)*];
    };
}

/// Texts in CUDA's C++. `KERNELS` and `COMBINE` are programs; they include the others.
pub mod cuda {
    texts! {
        "cuda":
        BF16 "bf16.cu",
        COMBINE "combine.cu",
        EXACT "exact.cu",
        FORMAT "format.cuh",
        GLOBAL "global.cu",
        INT "int.cu",
        INT_SHARED "int_shared.cu",
        KERNELS "kernels.cu",
        QUAD "quad.cuh",
        SIGN "sign.cu",
        TILE "tile.cuh",
        WARP "warp.cuh",
    }
}

/// Texts in WGSL. A kernel is some of them behind each other.
pub mod wgsl {
    texts! {
        "wgsl":
        AVERAGE "average.wgsl",
        ENCODING "encoding.wgsl",
        FROM_BF16 "from_bf16.wgsl",
        FROM_INTEGERS "from_integers.wgsl",
        FROM_SHARED "from_shared.wgsl",
        FROM_SIGNS "from_signs.wgsl",
        FROM_VECTOR "from_vector.wgsl",
        FROM_VECTORS "from_vectors.wgsl",
        INTEGERS "integers.wgsl",
        PRELUDE "prelude.wgsl",
        SIGN_EXPAND "sign_expand.wgsl",
        SIGN_PACK "sign_pack.wgsl",
        TO_BF16 "to_bf16.wgsl",
        TO_INTEGERS "to_integers.wgsl",
        TO_MAGNITUDES "to_magnitudes.wgsl",
        TO_NUMBERS "to_numbers.wgsl",
        TO_SHARED "to_shared.wgsl",
        TO_SIGN_BLOCKS "to_sign_blocks.wgsl",
        TO_SIGNS "to_signs.wgsl",
        TO_SQUARES "to_squares.wgsl",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folders_has_its_text() {
        for (folder, files) in [("cuda", cuda::FILES), ("wgsl", wgsl::FILES)] {
            let entries = std::fs::read_dir(format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap();
            let entries = entries.map(|entry| entry.unwrap()).filter(|entry| entry.path().is_file());
            let mut found: Vec<String> =
                entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            found.sort_unstable();
            assert_eq!(found, files.iter().map(|file| file.0).collect::<Vec<_>>(), "{folder}");
        }
    }
}
