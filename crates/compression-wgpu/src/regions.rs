//! The words of its memory that a dispatch uses: vectors, numbers of blocks and codes of some of the elements of a
//! call.

use std::ops::Range;

use unisono_communicator::{Error, Result};

use crate::memory::Span;

/// The number of words that hold so many elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Density {
    /// `words` for every `elements`, also for the last ones when they are fewer.
    Each { words: usize, elements: usize },
    /// The same words for all elements.
    Common { words: usize },
}

impl Density {
    /// f32.
    pub(crate) const F32: Density = Density::Each { words: 1, elements: 1 };

    /// So many codes in a word.
    pub(crate) fn codes(in_a_word: usize) -> Density {
        Density::Each { words: 1, elements: in_a_word }
    }

    /// The words of some elements. They begin where words begin.
    pub(crate) fn range(self, elements: &Range<usize>) -> Range<usize> {
        match self {
            Density::Each { words, elements: each } => {
                elements.start / each * words..elements.end.div_ceil(each) * words
            }
            Density::Common { words } => 0..words,
        }
    }

    /// The words of the first `elements`.
    pub(crate) fn words(self, elements: usize) -> usize {
        self.range(&(0..elements)).len()
    }
}

/// The part of a buffer for some elements.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) span: Span,
    pub(crate) density: Density,
}

impl Region {
    /// All words of `span`, which must hold `elements`.
    pub(crate) fn whole(
        argument: &'static str,
        span: Span,
        density: Density,
        elements: usize,
    ) -> Result<Region> {
        let words = density.words(elements);
        if span.words != words {
            let problem = format!("{} words for {elements} elements, which have {words}", span.words);
            return Err(Error::invalid(argument, problem));
        }
        Ok(Region { span, density })
    }

    /// The words of some elements.
    pub(crate) fn window(&self, elements: &Range<usize>) -> Span {
        let words = self.density.range(elements);
        Span { buffer: self.span.buffer.clone(), at: self.span.at + words.start, words: words.len() }
    }
}

/// An encoded part: numbers of blocks, and codes behind them.
#[derive(Clone, Debug)]
pub(crate) struct EncodedRegions {
    pub(crate) scales: Region,
    pub(crate) codes: Region,
}

impl EncodedRegions {
    /// The two halves of `span`.
    pub(crate) fn of(
        argument: &'static str,
        span: Span,
        [scales, codes]: [Density; 2],
        elements: usize,
    ) -> Result<EncodedRegions> {
        let (first, second) = (scales.words(elements), codes.words(elements));
        if span.words != first + second {
            let needed = first + second;
            let problem = format!("{} words for {elements} elements, which have {needed}", span.words);
            return Err(Error::invalid(argument, problem));
        }
        let behind = Span { at: span.at + first, words: second, ..span.clone() };
        Ok(EncodedRegions {
            scales: Region { span: Span { words: first, ..span }, density: scales },
            codes: Region { span: behind, density: codes },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_pieces_are_those_of_the_whole() {
        let densities = [
            Density::F32,
            Density::codes(2),
            Density::codes(8),
            Density::codes(32),
            Density::Each { words: 2, elements: 64 },
        ];
        for density in densities {
            for elements in 0..300 {
                let whole = density.words(elements);
                let mut at = 0;
                for start in (0..elements).step_by(64) {
                    let range = density.range(&(start..elements.min(start + 64)));
                    assert_eq!(range.start, at, "{density:?}, {elements} elements");
                    at = range.end;
                }
                assert_eq!(at, whole, "{density:?}, {elements} elements");
            }
        }
        assert_eq!(Density::Common { words: 1 }.range(&(640..700)), 0..1);
    }
}
