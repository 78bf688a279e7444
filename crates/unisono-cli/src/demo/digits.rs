//! The handwritten digits kept in `data/`; its SOURCE.md documents the format, the source and the licence.

use super::network::{CLASSES, INPUTS};

const RECORDS: &[u8] = include_bytes!("../../data/digits.u8");
const RECORD_BYTES: usize = INPUTS + 1;
const PIXEL_MAX: f32 = 16.0;
/// Every fifth image is for testing.
const TEST_STRIDE: usize = 5;
const IMAGES: usize = RECORDS.len() / RECORD_BYTES;
/// All other images are for training.
pub(crate) const TRAINING_IMAGES: usize = IMAGES - IMAGES.div_ceil(TEST_STRIDE);

/// One image: pixels from 0 to 1, and the digit that it shows.
pub(crate) struct Digit {
    pub(crate) pixels: [f32; INPUTS],
    pub(crate) label: usize,
}

/// The images, split into those that train and those that test.
pub(crate) struct Digits {
    pub(crate) training: Vec<Digit>,
    pub(crate) test: Vec<Digit>,
}

impl Digits {
    pub(crate) fn load() -> Digits {
        const { assert!(RECORDS.len().is_multiple_of(RECORD_BYTES)) };
        let mut digits = Digits { training: Vec::new(), test: Vec::new() };
        for (index, record) in RECORDS.chunks_exact(RECORD_BYTES).enumerate() {
            let pixels = std::array::from_fn(|pixel| f32::from(record[pixel]) / PIXEL_MAX);
            let digit = Digit { pixels, label: usize::from(record[INPUTS]) };
            // INVARIANT: the file is part of the program, and a test reads it.
            assert!(digit.label < CLASSES, "label {} in image {index}", digit.label);
            let set = if index.is_multiple_of(TEST_STRIDE) { &mut digits.test } else { &mut digits.training };
            set.push(digit);
        }
        digits
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_split_has_the_stated_sizes_and_every_class_on_both_sides() {
        let digits = Digits::load();
        assert_eq!((digits.test.len(), digits.training.len(), TRAINING_IMAGES), (360, 1437, 1437));
        for set in [&digits.test, &digits.training] {
            for class in 0..CLASSES {
                assert!(set.iter().filter(|digit| digit.label == class).count() >= 20, "class {class}");
            }
        }
        assert!(digits.training.iter().all(|digit| digit.pixels.iter().all(|p| (0.0..=1.0).contains(p))));
    }

    #[test]
    fn the_file_is_the_one_its_source_page_describes() {
        let page = include_str!("../../data/SOURCE.md");
        let hash: String = Sha256::digest(RECORDS).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(page.contains(&hash), "{hash}");
    }
}
