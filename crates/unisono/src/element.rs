//! The macro that makes a plain struct of the program an element.

/// Defines a struct whose values are elements of calls, as `MPI_Type_create_struct`: its fields are numbers or arrays
/// of numbers, without padding between them (else the compiler refuses it). Reductions take an operator of the program,
/// and all other calls just move it.
///
/// ```
/// use unisono::prelude::*;
///
/// unisono::element! {
///     /// A particle that moves to the rank of its cell.
///     pub struct Particle { position: [f64; 3], velocity: [f64; 3], charge: i64 }
/// }
///
/// let world = unisono::init()?;
/// let (next, previous) = ((world.rank() + 1) % world.size(), (world.rank() + world.size() - 1) % world.size());
/// let leaving = [Particle { position: [0.5; 3], velocity: [0.0; 3], charge: -1 }];
/// let mut coming = [Particle { position: [0.0; 3], velocity: [0.0; 3], charge: 0 }];
/// world.send_recv(&leaving, next, &mut coming, previous, 0)?;
/// assert_eq!(coming, leaving);
/// # Ok::<(), unisono::Error>(())
/// ```
///
/// It derives `Clone`, `Copy`, `Debug` and `PartialEq`, lays the fields out as C does, and implements
/// [`Element`](crate::Element). [`bytemuck`](crate::bytemuck) shows the same by hand.
#[doc(alias = "MPI_Type_create_struct")]
#[macro_export]
macro_rules! element {
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident {
        $($(#[$of_field:meta])* $field_visibility:vis $field:ident: $type:ty),+ $(,)?
    }) => {
        $(#[$attribute])*
        #[derive(
            Clone, Copy, Debug, PartialEq, $crate::bytemuck::Pod, $crate::bytemuck::Zeroable,
        )]
        #[bytemuck(crate = "::unisono::bytemuck")]
        #[repr(C)]
        $visibility struct $name {
            $($(#[$of_field])* $field_visibility $field: $type),+
        }

        impl $crate::Element for $name {
            const DTYPE: $crate::DType = $crate::DType::opaque_of::<$name>();
        }
    };
}
