//! Parent calls, which are made of other calls, and the names of their scopes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::call::counts::Sizes;
use crate::call::descriptor::Descriptor;
use crate::call::site::Site;
use crate::short_text::ShortText;

/// A call that is made of other calls. A compressed all-reduce, for example, is an all-to-all and an all-gather.
///
/// Ranks compare the name, the descriptor and the sizes, as for any call; `==` compares the same. A parent that differs
/// between ranks, or exists on some ranks only, is a mismatch that names both.
///
/// ```
/// use unisono_communicator::{Collective, DType, Descriptor, ParentCall, ReduceOp};
/// let all_reduce = Descriptor { op: Some(ReduceOp::Sum), ..Descriptor::new(Collective::AllReduce, DType::F32, 8) };
/// let parent = ParentCall::new("compressed_all_reduce/int8", all_reduce);
/// assert_eq!(parent.to_string(), "compressed_all_reduce/int8(8 x f32, sum)");
/// ```
#[derive(Clone, Debug)]
pub struct ParentCall {
    /// The name in errors. It holds everything that ranks must agree on and that the descriptor lacks, such as the
    /// codec.
    pub name: ShortText,
    /// The arguments, for comparison and errors only.
    pub descriptor: Descriptor,
    /// Lengths besides the descriptor's count, such as the lengths of several vectors; `None` when there are none.
    pub sizes: Option<Arc<Sizes>>,
    /// The line that opens its scope; `None` for a call of another rank.
    pub site: Option<Site>,
}

impl ParentCall {
    /// A parent of that name, of at most [`ShortText::BYTES_MAX`] bytes. Its site is the caller's line.
    #[track_caller]
    pub const fn new(name: &str, descriptor: Descriptor) -> ParentCall {
        ParentCall { name: ShortText::new(name), descriptor, sizes: None, site: Some(Site::caller()) }
    }

    /// The call and the line that opens its scope, such as `sum_twice(8 x f32, sum) at src/main.rs:7`.
    pub fn with_site(&self) -> String {
        self.site.map_or_else(|| self.to_string(), |site| format!("{self}{}", site.at()))
    }
}

impl PartialEq for ParentCall {
    fn eq(&self, other: &ParentCall) -> bool {
        (self.name, self.descriptor, &self.sizes) == (other.name, other.descriptor, &other.sizes)
    }
}

impl fmt::Display for ParentCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        self.descriptor.fmt_arguments(f)
    }
}

/// Names one open scope of this process. A call with this id follows the order of that scope; see
/// [`crate::Communicator::scope`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeId(u64);

impl ScopeId {
    /// A name that no scope of this process has had.
    pub fn new_unique() -> ScopeId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ScopeId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
