//! Labelled images in memory, as bytes: a quarter of the network's f32 inputs.

/// The number of classes in every data set.
pub(crate) const CLASSES: usize = 10;

/// Labelled images of one size.
pub(crate) struct Images {
    /// Pixels of one image.
    inputs: usize,
    /// The byte that stands for black, or full.
    pixel_max: u8,
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

impl Images {
    /// No images yet, of so many pixels each, from 0 to `pixel_max`.
    pub(crate) fn new(inputs: usize, pixel_max: u8) -> Images {
        Images { inputs, pixel_max, pixels: Vec::new(), labels: Vec::new() }
    }

    /// These images: `inputs` bytes of `pixels` for each label, which is below [`CLASSES`].
    pub(crate) fn from_parts(inputs: usize, pixel_max: u8, pixels: Vec<u8>, labels: Vec<u8>) -> Images {
        debug_assert_eq!(pixels.len(), inputs * labels.len());
        Images { inputs, pixel_max, pixels, labels }
    }

    pub(crate) fn push(&mut self, pixels: &[u8], label: u8) {
        debug_assert!(pixels.len() == self.inputs && usize::from(label) < CLASSES);
        self.pixels.extend_from_slice(pixels);
        self.labels.push(label);
    }

    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    pub(crate) fn label(&self, index: usize) -> usize {
        usize::from(self.labels[index])
    }

    /// The pixels of an image, from 0 to 1, into a buffer of [`Images::inputs`].
    pub(crate) fn read(&self, index: usize, pixels: &mut [f32]) {
        let bytes = &self.pixels[index * self.inputs..][..self.inputs];
        let black = f32::from(self.pixel_max);
        pixels.iter_mut().zip(bytes).for_each(|(pixel, &byte)| *pixel = f32::from(byte) / black);
    }
}

/// Images that train and others that test.
pub(crate) struct DataSet {
    /// Its name in messages.
    pub(crate) name: String,
    pub(crate) training: Images,
    pub(crate) test: Images,
}
