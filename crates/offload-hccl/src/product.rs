//! HCCL's abilities on each device, by its documentation (hicann/hccl, `docs/zh/api_ref/comm_op_interface` and
//! `docs/zh/user_guide/constraints.md`). Types that cannot be reduced can be moved, as bytes.

use unisono_communicator::{DType, ReduceOp};
use unisono_offload::{Arithmetic, Capabilities, Native, NativeOp};

/// A family of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Ascend 950.
    Ascend950,
    /// Atlas A3 and A2: the chips 910_93 and 910B with a digit.
    AtlasA3A2,
    /// Atlas of the training series: the chip 910.
    Atlas910,
    /// Atlas 300I Duo: the chip 310P.
    Atlas310P,
}

/// Types for an operator, and the operators.
type Reductions = &'static [(&'static [NativeOp], &'static [DType])];

const SUM: &[NativeOp] = &[NativeOp::Sum];
const SUM_MAX_MIN: &[NativeOp] = &[NativeOp::Sum, NativeOp::Max, NativeOp::Min];
const ALL: &[NativeOp] = &[NativeOp::Sum, NativeOp::Prod, NativeOp::Max, NativeOp::Min];

impl Product {
    /// Of the name that `aclrtGetSocName` gives. `Ascend910B` without a digit is of the older series.
    pub fn of_soc(name: &str) -> Option<Product> {
        let begins = |start: &str| name.starts_with(start);
        if begins("Ascend950") || begins("Ascend910_95") {
            Some(Product::Ascend950)
        } else if begins("Ascend910_93")
            || name.strip_prefix("Ascend910B").is_some_and(|rest| !rest.is_empty())
        {
            Some(Product::AtlasA3A2)
        } else if begins("Ascend910") {
            Some(Product::Atlas910)
        } else if begins("Ascend310P") {
            Some(Product::Atlas310P)
        } else {
            None
        }
    }

    /// Whether aclnn packs signs on it.
    pub fn packs_signs(self) -> bool {
        match self {
            Product::AtlasA3A2 | Product::Atlas310P => true,
            Product::Ascend950 | Product::Atlas910 => false,
        }
    }

    /// Its reductions.
    fn reductions(self) -> Reductions {
        use DType::{BF16, F16, F32, F64, I8, I16, I32, I64, U64};
        match self {
            Product::Ascend950 => &[(ALL, &[I8, I32, I64, U64, F16, F32, F64]), (SUM_MAX_MIN, &[I16, BF16])],
            Product::AtlasA3A2 => &[(ALL, &[I8, I32, I64, F16, F32]), (SUM_MAX_MIN, &[I16, BF16])],
            Product::Atlas910 => &[(ALL, &[I8, I32, I64, F16, F32])],
            Product::Atlas310P => &[(ALL, &[I8, I32, F16, F32]), (SUM, &[I16])],
        }
    }

    /// The calls that not all have. There is no gather, and no average, on any of them.
    fn natives(self) -> &'static [Native] {
        const ALWAYS: [Native; 2] = [Native::AllToAll, Native::AllToAllV];
        const WITH_ROOTS: &[Native] =
            &[ALWAYS[0], ALWAYS[1], Native::Broadcast, Native::Reduce, Native::Scatter, Native::Groups];
        match self {
            Product::Ascend950 | Product::AtlasA3A2 | Product::Atlas910 => WITH_ROOTS,
            Product::Atlas310P => &ALWAYS,
        }
    }

    /// Whether aclnn packs signs on it and also adds vectors: `aclnnAdd` is not for 310P.
    pub(crate) fn packs_and_adds(self) -> bool {
        self.packs_signs() && self != Product::Atlas310P
    }

    /// The combinations that aclnn's operators make for schedules with the bits that the engine defines, as far as
    /// their documentation and source say so (hicann/ops-math); the rest is not claimed:
    ///
    /// * floats on 910: its overflow gives the largest finite number, not an infinity;
    /// * sums and products of 8- and 16-bit integers: they may end at the largest number, or go through f16;
    /// * the least and largest of floats: the fate of a NaN and of -0.0 is not said;
    /// * means: the quotient of `aclnnDivs` may not be the nearest;
    /// * pre-multiplied sums of narrow floats: the factor may be rounded to their type;
    /// * anything on 310P, which has neither messages nor `aclnnAdd`.
    ///
    /// Wider integers are claimed, although nobody has seen the result of their overflow, as for HCCL's own sums.
    fn combinations(self) -> &'static [(&'static [ReduceOp], &'static [DType])] {
        use DType::{BF16, F16, F32, F64, I8, I16, I32, I64, U8};
        const SUM_PROD: &[ReduceOp] = &[ReduceOp::Sum, ReduceOp::Prod];
        const INTEGERS: [(&[ReduceOp], &[DType]); 2] =
            [(SUM_PROD, &[I32, I64]), (&[ReduceOp::Min, ReduceOp::Max], &[I8, U8, I16, I32, I64])];
        const ALSO_FLOATS: &[(&[ReduceOp], &[DType])] = &[
            INTEGERS[0],
            INTEGERS[1],
            (SUM_PROD, &[F16, BF16, F32, F64]),
            (&[ReduceOp::PreMulSum(1.0)], &[F32]),
        ];
        match self {
            Product::Ascend950 | Product::AtlasA3A2 => ALSO_FLOATS,
            Product::Atlas910 => &INTEGERS,
            Product::Atlas310P => &[],
        }
    }

    /// With the combinations that its operators make for schedules.
    pub(crate) fn combining(self, known: Capabilities) -> Capabilities {
        self.combinations().iter().fold(known, |known, (ops, dtypes)| known.combining(ops, dtypes))
    }

    /// HCCL's abilities on it.
    pub fn capabilities(self, arithmetic: Arithmetic) -> Capabilities {
        let known = self.natives().iter().copied().fold(Capabilities::new(arithmetic), Capabilities::with);
        self.reductions().iter().fold(known, |known, (ops, dtypes)| {
            ops.iter().fold(known, |known, op| known.reducing(*op, dtypes))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::SCALABLE;
    use crate::vendor::ARITHMETIC;

    #[test]
    fn chips_are_told_apart_by_their_names() {
        for (name, product) in [
            ("Ascend950PR_9599", Some(Product::Ascend950)),
            ("Ascend910_9589", Some(Product::Ascend950)),
            ("Ascend910_9391", Some(Product::AtlasA3A2)),
            ("Ascend910B1", Some(Product::AtlasA3A2)),
            ("Ascend910B4-1", Some(Product::AtlasA3A2)),
            ("Ascend910B", Some(Product::Atlas910)),
            ("Ascend910PremiumA", Some(Product::Atlas910)),
            ("Ascend310P3", Some(Product::Atlas310P)),
            ("Ascend310B1", None),
            ("", None),
        ] {
            assert_eq!(Product::of_soc(name), product, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_reduced_is_not_claimed() {
        let of = |product: Product| product.capabilities(ARITHMETIC);
        let products = [Product::Ascend950, Product::AtlasA3A2, Product::Atlas910, Product::Atlas310P];
        for product in products {
            let known = of(product);
            assert!(known.reduces(NativeOp::Sum, DType::F32) && known.has(Native::AllToAll), "{product:?}");
            for dtype in [DType::U8, DType::U32] {
                assert!(!known.reduces(NativeOp::Sum, dtype), "{product:?} {dtype}");
            }
            assert!(!known.reduces(NativeOp::Avg, DType::F32) && !known.has(Native::Gather), "{product:?}");
            assert!(!known.reduces(NativeOp::Prod, DType::BF16), "{product:?}");
        }
        let with_f64 = products.map(|product| of(product).reduces(NativeOp::Sum, DType::F64));
        assert_eq!(with_f64, [true, false, false, false]);
        assert!(!of(Product::Atlas910).reduces(NativeOp::Sum, DType::BF16));
        assert!(
            !of(Product::Atlas310P).has(Native::Broadcast) && !of(Product::Atlas310P).has(Native::Groups)
        );
        assert!(!of(Product::Atlas310P).reduces(NativeOp::Max, DType::I16));
    }

    #[test]
    fn what_may_have_other_bits_is_not_combined() {
        let of = |product: Product| product.combining(product.capabilities(ARITHMETIC).scaling(&SCALABLE));
        for product in [Product::Ascend950, Product::AtlasA3A2] {
            let known = of(product);
            for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I32, DType::I64] {
                assert!(known.combines(ReduceOp::Sum, dtype) && known.combines(ReduceOp::Prod, dtype));
                assert!(!known.combines(ReduceOp::Avg, dtype), "{product:?} {dtype}");
            }
            assert!(known.combines(ReduceOp::PreMulSum(0.5), DType::F32));
            assert!(!known.combines(ReduceOp::PreMulSum(0.5), DType::BF16));
            assert!(!known.combines(ReduceOp::Max, DType::F32) && !known.combines(ReduceOp::Sum, DType::I8));
        }
        let older = of(Product::Atlas910);
        assert!(older.combines(ReduceOp::Sum, DType::I32) && older.combines(ReduceOp::Max, DType::U8));
        assert!(!older.combines(ReduceOp::Sum, DType::F32));
        let none = of(Product::Atlas310P);
        assert!(DType::ALL.iter().all(|dtype| !none.combines(ReduceOp::Sum, *dtype)));
    }
}
