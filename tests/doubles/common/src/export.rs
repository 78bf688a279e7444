//! Functions of a C ABI.

/// Exports functions under their vendors' names. A body gives `Result<(), E>`, where `E` is a [`VendorError`], and
/// the function returns its code, or 0. A function can be made to fail or to hang ([`crate::fault`]); one that has
/// the handle of a communicator names it, `fn ncclSend[comm](...)`, so that aborting that one ends a hang in it. It may
/// be an expression, which is evaluated before the call.
///
/// Behind `plain` stand functions with other results, which do not fail: `plain fn name() -> u64 {...}`.
///
/// [`VendorError`]: crate::fault::VendorError
#[macro_export]
macro_rules! export {
    () => {};
    (plain fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $output:ty)? $body:block $($rest:tt)*) => {
        // SAFETY: the name is that of a function of the vendor's, with the signature of its header, and no other
        // item of the library has it.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unsafe_code, clippy::too_many_arguments)]
        // SAFETY: whoever calls it promises what the vendor's header says of the arguments.
        unsafe extern "C" fn $name($($argument: $type),*) $(-> $output)? $body
        $crate::export! { $($rest)* }
    };
    (fn $name:ident $([$comm:expr])? ($($argument:ident: $type:ty),* $(,)?) -> $error:ty $body:block $($rest:tt)*) => {
        $crate::export! {
            plain fn $name($($argument: $type),*) -> i32 {
                let scope = $crate::export!(@scope $($comm)?);
                $crate::fault::call(stringify!($name), scope, move || -> Result<(), $error> { $body })
            }
        }
        $crate::export! { $($rest)* }
    };
    (@scope) => { 0 };
    (@scope $comm:expr) => { $comm };
}
