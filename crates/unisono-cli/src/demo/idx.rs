//! Data sets in the IDX format of MNIST: four files in a folder, each plain or compressed with gzip.
//!
//! A file is a magic number (two zeros, the type of the elements, the number of dimensions), one 32-bit length for each
//! dimension, the most significant byte first, and the elements. Images are bytes in three dimensions, labels bytes in
//! one. See <http://yann.lecun.com/exdb/mnist/>.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use unisono_job::open_regular;

use super::images::{CLASSES, DataSet, Images};

const IMAGES_MAGIC: u32 = 0x0803;
const LABELS_MAGIC: u32 = 0x0801;
const PIXEL_MAX: u8 = 255;
/// Of one file's elements: a header that claims more is not believed.
const ELEMENT_BYTES_MAX: u64 = 1 << 30;

/// Why a data set cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdxError {
    #[error("{}: neither it nor {}.gz is there", path.display(), path.display())]
    Absent { path: PathBuf },
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{}: the magic number is {found:#010x}, not {expected:#010x}", path.display())]
    Magic { path: PathBuf, expected: u32, found: u32 },
    #[error("{}: ends too early: {expected} bytes of elements are announced", path.display())]
    Short { path: PathBuf, expected: u64 },
    #[error("{}: goes on after the {expected} bytes of elements that are announced", path.display())]
    Long { path: PathBuf, expected: u64 },
    #[error("{}: lengths {lengths:?}: 1 to {ELEMENT_BYTES_MAX} elements are allowed", path.display())]
    Lengths { path: PathBuf, lengths: Vec<u32> },
    #[error("{}: {labels} labels for {images} images", path.display())]
    Counts { path: PathBuf, images: usize, labels: usize },
    #[error("{}: label {label} of image {image}: 0 to {} are allowed", path.display(), CLASSES - 1)]
    Label { path: PathBuf, image: usize, label: u8 },
    #[error("{}: {test} pixels in an image that tests, {training} in one that trains", folder.display())]
    Pixels { folder: PathBuf, training: usize, test: usize },
}

/// Reads `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`,
/// each as it is or with `.gz`.
pub(crate) fn load(folder: &Path) -> Result<DataSet, IdxError> {
    let training = images(folder, "train")?;
    let test = images(folder, "t10k")?;
    if training.inputs() != test.inputs() {
        let (training, test) = (training.inputs(), test.inputs());
        return Err(IdxError::Pixels { folder: folder.to_owned(), training, test });
    }
    let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
    Ok(DataSet { name, training, test })
}

fn images(folder: &Path, part: &str) -> Result<Images, IdxError> {
    let pixels = Elements::load(&folder.join(format!("{part}-images-idx3-ubyte")), IMAGES_MAGIC)?;
    let labels = Elements::load(&folder.join(format!("{part}-labels-idx1-ubyte")), LABELS_MAGIC)?;
    let (path, images) = (labels.path, pixels.lengths[0] as usize);
    if labels.bytes.len() != images {
        return Err(IdxError::Counts { path, images, labels: labels.bytes.len() });
    }
    let too_large = |label: &u8| usize::from(*label) >= CLASSES;
    if let Some(image) = labels.bytes.iter().position(too_large) {
        return Err(IdxError::Label { path, image, label: labels.bytes[image] });
    }
    Ok(Images::from_parts(pixels.bytes.len() / images, PIXEL_MAX, pixels.bytes, labels.bytes))
}

/// The contents of one file.
#[derive(Debug)]
struct Elements {
    /// The file that was read.
    path: PathBuf,
    /// One for each dimension; their product, the number of elements, is not 0.
    lengths: Vec<u32>,
    bytes: Vec<u8>,
}

impl Elements {
    /// From `path`, or if that is absent from the same with `.gz`.
    fn load(path: &Path, magic: u32) -> Result<Elements, IdxError> {
        if let Some(file) = open(path)? {
            return Elements::parse(path, BufReader::new(file), magic);
        }
        let mut compressed = path.as_os_str().to_owned();
        compressed.push(".gz");
        let compressed = PathBuf::from(compressed);
        let file = open(&compressed)?.ok_or_else(|| IdxError::Absent { path: path.to_owned() })?;
        Elements::parse(&compressed, GzDecoder::new(BufReader::new(file)), magic)
    }

    fn parse(path: &Path, mut file: impl Read, magic: u32) -> Result<Elements, IdxError> {
        let unreadable = |error| IdxError::Unreadable { path: path.to_owned(), error };
        let found = word(&mut file).map_err(unreadable)?;
        if found != magic {
            return Err(IdxError::Magic { path: path.to_owned(), expected: magic, found });
        }
        // The last byte of a magic number is the number of dimensions.
        let lengths = (0..magic & 0xff).map(|_| word(&mut file)).collect::<io::Result<Vec<u32>>>();
        let lengths = lengths.map_err(unreadable)?;
        let product =
            lengths.iter().try_fold(1u64, |product, &length| product.checked_mul(u64::from(length)));
        let Some(expected) = product.filter(|product| (1..=ELEMENT_BYTES_MAX).contains(product)) else {
            return Err(IdxError::Lengths { path: path.to_owned(), lengths });
        };
        let mut bytes = Vec::new();
        file.by_ref().take(expected).read_to_end(&mut bytes).map_err(unreadable)?;
        if (bytes.len() as u64) < expected {
            return Err(IdxError::Short { path: path.to_owned(), expected });
        }
        if file.read(&mut [0]).map_err(unreadable)? > 0 {
            return Err(IdxError::Long { path: path.to_owned(), expected });
        }
        Ok(Elements { path: path.to_owned(), lengths, bytes })
    }
}

fn open(path: &Path) -> Result<Option<File>, IdxError> {
    match open_regular(path, OpenOptions::new().read(true)) {
        Ok((file, _)) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(IdxError::Unreadable { path: path.to_owned(), error }),
    }
}

/// The next 32 bits, the most significant byte first.
fn word(file: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0u8; 4];
    let short = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "ends within its header"),
        _ => error,
    };
    file.read_exact(&mut bytes).map_err(short)?;
    Ok(bytes.iter().fold(0, |word, &byte| word << 8 | u32::from(byte)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tempfile::TempDir;

    use super::*;

    const NAMES: [&str; 4] = [
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ];

    /// Three images of 2 x 2 pixels, and as many labels.
    const IMAGES: [u8; 28] =
        [0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 255, 51, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    const LABELS: [u8; 11] = [0, 0, 8, 1, 0, 0, 0, 3, 9, 0, 4];

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn folder() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (index, name) in NAMES.iter().enumerate() {
            let bytes = if index % 2 == 0 { &IMAGES[..] } else { &LABELS[..] };
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    }

    #[test]
    fn plain_and_compressed_files_give_the_same_images() {
        let folder = folder();
        for (index, name) in NAMES.iter().enumerate() {
            let set = load(folder.path()).unwrap();
            for images in [&set.training, &set.test] {
                assert_eq!((images.len(), images.inputs()), (3, 4));
                let mut pixels = [9.0; 4];
                images.read(0, &mut pixels);
                assert_eq!(pixels, [0.0, 1.0, 0.2, 0.0]);
                assert_eq!((0..3).map(|image| images.label(image)).collect::<Vec<_>>(), [9, 0, 4]);
            }
            let bytes = if index % 2 == 0 { &IMAGES[..] } else { &LABELS[..] };
            std::fs::write(folder.path().join(format!("{name}.gz")), gzip(bytes)).unwrap();
            std::fs::remove_file(folder.path().join(name)).unwrap();
        }
        load(folder.path()).unwrap();
    }

    /// The error of loading when one file has these bytes.
    fn refused(name: &str, bytes: &[u8]) -> IdxError {
        let folder = folder();
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let error = load(folder.path()).err().unwrap();
        let text = error.to_string();
        assert!(text.contains(&folder.path().display().to_string()) && !text.contains('\n'), "{text}");
        error
    }

    #[test]
    fn a_damaged_file_is_a_typed_error() {
        let [images, labels, test, _] = NAMES;
        let with = |bytes: &[u8], at: usize, byte: u8| {
            let mut bytes = bytes.to_vec();
            bytes[at] = byte;
            bytes
        };
        assert!(matches!(refused(images, &LABELS), IdxError::Magic { expected: 0x803, found: 0x801, .. }));
        assert!(matches!(refused(labels, &gzip(&LABELS)), IdxError::Magic { found: 0x1f8b_0800, .. }));
        for cut in 0..16 {
            assert!(matches!(refused(images, &IMAGES[..cut]), IdxError::Unreadable { .. }), "{cut}");
        }
        for cut in 16..28 {
            assert!(matches!(refused(images, &IMAGES[..cut]), IdxError::Short { expected: 12, .. }), "{cut}");
        }
        assert!(matches!(refused(labels, &[&LABELS[..], &[0]].concat()), IdxError::Long { expected: 3, .. }));
        assert!(matches!(refused(images, &with(&IMAGES, 7, 0)), IdxError::Lengths { .. }), "no image");
        assert!(matches!(refused(images, &with(&IMAGES, 4, 255)), IdxError::Lengths { .. }), "17 GB");
        assert!(matches!(refused(images, &with(&IMAGES, 7, 2)), IdxError::Long { expected: 8, .. }));
        let two = [&with(&LABELS, 7, 2)[..10]].concat();
        assert!(matches!(refused(labels, &two), IdxError::Counts { images: 3, labels: 2, .. }));
        assert!(matches!(
            refused(labels, &with(&LABELS, 9, 10)),
            IdxError::Label { image: 1, label: 10, .. }
        ));
        let narrow = [&with(&IMAGES, 15, 1)[..22]].concat();
        assert!(matches!(refused(test, &narrow), IdxError::Pixels { training: 4, test: 2, .. }));
    }

    #[test]
    fn an_absent_and_a_cut_compressed_file_are_typed_errors() {
        let folder = folder();
        let (plain, compressed) =
            (folder.path().join(NAMES[1]), folder.path().join(format!("{}.gz", NAMES[1])));
        std::fs::remove_file(&plain).unwrap();
        assert!(matches!(load(folder.path()).err(), Some(IdxError::Absent { path }) if path == plain));
        let whole = gzip(&LABELS);
        for cut in 0..whole.len() {
            std::fs::write(&compressed, &whole[..cut]).unwrap();
            assert!(matches!(load(folder.path()).err(), Some(IdxError::Unreadable { .. })), "{cut}");
        }
    }
}
