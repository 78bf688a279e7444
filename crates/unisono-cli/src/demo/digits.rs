//! The handwritten digits kept in `data/`; its SOURCE.md documents the format, the source and the licence.

use super::images::{CLASSES, DataSet, Images};

const RECORDS: &[u8] = include_bytes!("../../data/digits.u8");
const INPUTS: usize = 64;
const RECORD_BYTES: usize = INPUTS + 1;
const PIXEL_MAX: u8 = 16;
/// Every fifth image is for testing, all others are for training.
const TEST_STRIDE: usize = 5;

pub(crate) fn load() -> DataSet {
    const { assert!(RECORDS.len().is_multiple_of(RECORD_BYTES)) };
    let empty = || Images::new(INPUTS, PIXEL_MAX);
    let mut digits = DataSet { name: "handwritten digits".to_owned(), training: empty(), test: empty() };
    for (index, record) in RECORDS.chunks_exact(RECORD_BYTES).enumerate() {
        let label = record[INPUTS];
        // The file is part of the program, and a test reads it.
        assert!(usize::from(label) < CLASSES, "label {label} in image {index}");
        let set = if index.is_multiple_of(TEST_STRIDE) { &mut digits.test } else { &mut digits.training };
        set.push(&record[..INPUTS], label);
    }
    digits
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_split_has_the_stated_sizes_and_every_class_on_both_sides() {
        let digits = load();
        assert_eq!((digits.test.len(), digits.training.len()), (360, 1437));
        let mut pixels = [0.0; INPUTS];
        for set in [&digits.test, &digits.training] {
            for class in 0..CLASSES {
                assert!(
                    (0..set.len()).filter(|&image| set.label(image) == class).count() >= 20,
                    "class {class}"
                );
            }
            for image in 0..set.len() {
                set.read(image, &mut pixels);
                assert!(pixels.iter().all(|pixel| (0.0..=1.0).contains(pixel)), "image {image}");
            }
        }
    }

    #[test]
    fn the_file_is_the_one_its_source_page_describes() {
        let page = include_str!("../../data/SOURCE.md");
        let hash: String = Sha256::digest(RECORDS).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(page.contains(&hash), "{hash}");
    }
}
