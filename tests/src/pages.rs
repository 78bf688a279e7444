//! The programs in the pages for users. They run as tests of documentation; this package is not published, so it may
//! read files outside.

#[doc = include_str!("../../README.md")]
#[doc = include_str!("../../docs/algorithms.md")]
#[doc = include_str!("../../docs/compression.md")]
#[doc = include_str!("../../docs/backends.md")]
#[doc = include_str!("../../docs/logging.md")]
#[doc = include_str!("../../docs/porting.md")]
#[doc = include_str!("../../docs/performance.md")]
struct Pages;
