//! The table of a library's functions.

use unisono_communicator::{Error, Result};

/// A function that some supported versions of a library lack.
#[derive(Clone, Copy, Debug)]
pub struct Optional<F> {
    /// A pointer to it, if it is there.
    pub function: Option<F>,
    /// Its name in the library.
    pub symbol: &'static str,
    /// The first version that has it.
    pub since: &'static str,
}

impl<F: Copy> Optional<F> {
    /// A pointer to it. `backend` is the library in the error, `version` its version, and `instead` an alternative
    /// without this function.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when it is not there.
    pub fn require(&self, backend: &'static str, version: &str, instead: &str) -> Result<F> {
        self.function.ok_or_else(|| Error::Unsupported {
            what: format!("{}, which needs version {}: this is {version}", self.symbol, self.since),
            backend,
            instead: Some(instead.to_owned()),
        })
    }
}

/// A struct of the functions of a library, one field for each: `name: "symbol" (arguments) -> output`. Without an
/// output a function returns an `i32`. The functions of `required` must be there; the functions of `optional`, which
/// stand behind the first version that has them, are [`Optional`].
///
/// The struct is visible in the crate that declares it, and has the library as its field `library`, so that this stays
/// open as long as the pointers. `new(library)` finds all functions; its error is [`Library::unusable`]'s, with the
/// first symbol that is missing.
///
/// The signatures must equal the signatures in the vendor's header: nothing checks them, and the struct trusts them.
///
/// [`Library::unusable`]: crate::Library::unusable
#[macro_export]
macro_rules! functions {
    (
        $(#[$attribute:meta])*
        $table:ident {
            required {
                $($field:ident: $symbol:literal ($($argument:ty),* $(,)?) $(-> $output:ty)?;)*
            }
            $(optional {
                $(since $since:literal: $newer:ident: $newer_symbol:literal ($($newer_argument:ty),* $(,)?)
                    $(-> $newer_output:ty)?;)*
            })?
        }
    ) => {
        $(#[$attribute])*
        pub(crate) struct $table {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> $crate::functions!(@output $($output)?),)*
            $($(pub(crate) $newer: $crate::Optional<
                unsafe extern "C" fn($($newer_argument),*) -> $crate::functions!(@output $($newer_output)?),
            >,)*)?
            /// Kept open as long as the pointers above.
            pub(crate) library: $crate::Library,
        }

        impl $table {
            /// Finds all functions.
            pub(crate) fn new(library: $crate::Library) -> unisono_communicator::Result<$table> {
                Ok($table {
                    $(
                        // SAFETY: the signature comes from the vendor's header, and the library stays beside it.
                        $field: unsafe { library.function($symbol) }
                            .ok_or_else(|| library.unusable(concat!("has no ", $symbol)))?,
                    )*
                    $($(
                        $newer: $crate::Optional {
                            // SAFETY: as above.
                            function: unsafe { library.function($newer_symbol) },
                            symbol: $newer_symbol,
                            since: $since,
                        },
                    )*)?
                    library,
                })
            }
        }
    };
    (@output) => { i32 };
    (@output $output:ty) => { $output };
}
