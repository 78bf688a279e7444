//! What each of Huawei's products can do: hicann/hccl `docs/zh/api_ref/comm_op_interface` and
//! `docs/zh/user_guide/constraints.md`.
//!
//! | | 950 | 910b (A2, A3) | 910 | 310p |
//! | --- | --- | --- | --- | --- |
//! | reduced types | i8 i16 i32 i64 u64 f16 f32 f64 bf16 | i8 i16 i32 i64 f16 f32 bf16 | i8 i32 i64 f16 f32 | i8 i16
//! i32 f16 f32 |
//! | product | not i16, bf16 | not i16, bf16 | all | not i16 (no largest and smallest either) |
//! | moved types | all | no floats of eight bits | and no bf16 | and no bf16 |
//! | Broadcast, Reduce, Scatter, Send, Recv | yes | yes | yes | no |
//! | ReduceScatterV, AllGatherV | yes | without product | no | up to 4 ranks, sum only |
//! | packed signs | no | yes | no | yes |

use std::sync::OnceLock;

use unisono_double_common::{Element, Reduction, settings};

/// A line of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say all")]
pub enum Product {
    Ascend950,
    Ascend910B,
    Ascend910,
    Ascend310P,
}

/// A group of calls that a product has or lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// AllReduce, ReduceScatter, AllGather, AlltoAll and its variants, Barrier.
    Symmetric,
    /// Broadcast, Reduce, Scatter, Send, Recv and BatchSendRecv.
    Rooted,
    /// ReduceScatterV and AllGatherV.
    Uneven,
}

/// The type of HCCL, if this number is one, as the elements that it moves like.
pub fn element(dtype: i32) -> Option<Element> {
    Some(match dtype {
        0 => Element::I8,
        1 => Element::I16,
        2 => Element::I32,
        3 => Element::F16,
        4 => Element::F32,
        5 => Element::I64,
        6 => Element::U64,
        7 => Element::U8,
        8 => Element::U16,
        9 => Element::U32,
        10 => Element::F64,
        11 => Element::BF16,
        // HIF8 and FP8E8M0 are only moved.
        14 | 17 => Element::U8,
        15 => Element::F8E4M3,
        16 => Element::F8E5M2,
        _ => return None,
    })
}

/// Types of which only the newest product knows anything.
const FLOAT8_TYPES: std::ops::RangeInclusive<i32> = 14..=17;

impl Product {
    /// The one that the setting `product` names.
    ///
    /// # Panics
    /// When it names none.
    pub fn chosen() -> Product {
        static CHOSEN: OnceLock<Product> = OnceLock::new();
        *CHOSEN.get_or_init(|| match settings::text("product").as_deref().unwrap_or("910b") {
            "950" => Product::Ascend950,
            "910b" => Product::Ascend910B,
            "910" => Product::Ascend910,
            "310p" => Product::Ascend310P,
            other => panic!("test double: product={other} is none of 910b, 910, 310p, 950"),
        })
    }

    /// What `aclrtGetSocName` says.
    pub fn name(self) -> &'static str {
        match self {
            Product::Ascend950 => "Ascend950-double",
            Product::Ascend910B => "Ascend910B-double",
            Product::Ascend910 => "Ascend910-double",
            Product::Ascend310P => "Ascend310P-double",
        }
    }

    /// Whether it has these calls, among this many ranks.
    pub fn has(self, feature: Feature, ranks: u32) -> bool {
        match (feature, self) {
            (Feature::Symmetric, _) => true,
            (Feature::Rooted, product) => product != Product::Ascend310P,
            (Feature::Uneven, Product::Ascend910) => false,
            (Feature::Uneven, Product::Ascend310P) => ranks <= 4,
            (Feature::Uneven, Product::Ascend950 | Product::Ascend910B) => true,
        }
    }

    /// Whether it moves this type.
    pub fn moves(self, dtype: i32) -> bool {
        match self {
            Product::Ascend950 => true,
            Product::Ascend910B => !FLOAT8_TYPES.contains(&dtype),
            Product::Ascend910 | Product::Ascend310P => {
                !FLOAT8_TYPES.contains(&dtype) && element(dtype) != Some(Element::BF16)
            }
        }
    }

    /// Whether it reduces this type so, in calls of this kind.
    pub fn reduces(self, dtype: i32, reduction: &Reduction, feature: Feature) -> bool {
        use Element::{BF16, F16, F32, F64, I8, I16, I32, I64, U64};
        let types: &[Element] = match self {
            Product::Ascend950 => &[I8, I16, I32, I64, U64, F16, F32, F64, BF16],
            Product::Ascend910B => &[I8, I16, I32, I64, F16, F32, BF16],
            Product::Ascend910 => &[I8, I32, I64, F16, F32],
            Product::Ascend310P => &[I8, I16, I32, F16, F32],
        };
        let Some(element) =
            element(dtype).filter(|one| types.contains(one) && !FLOAT8_TYPES.contains(&dtype))
        else {
            return false;
        };
        let is_product = *reduction == Reduction::Prod;
        let is_sum = *reduction == Reduction::Sum;
        match self {
            Product::Ascend950 => !(is_product && matches!(element, I16 | BF16)),
            Product::Ascend910B => {
                !(is_product && (matches!(element, I16 | BF16) || feature == Feature::Uneven))
            }
            Product::Ascend910 => true,
            Product::Ascend310P => is_sum || element != I16 && feature != Feature::Uneven,
        }
    }

    /// Whether operators on two tensors take this type: hicann/ops-math, `math/add/docs` and its neighbours.
    pub fn computes(self, element: Element) -> bool {
        use Element::{BF16, F16, F32, F64, I8, I16, I32, I64, U8};
        let has_bf16 = matches!(self, Product::Ascend950 | Product::Ascend910B);
        matches!(element, F32 | F16 | F64 | I8 | U8 | I16 | I32 | I64) || element == BF16 && has_bf16
    }

    /// Whether it packs signs.
    pub fn packs_signs(self) -> bool {
        matches!(self, Product::Ascend910B | Product::Ascend310P)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the types that are reduced so.
    fn reduced(product: Product, reduction: Reduction) -> Vec<i32> {
        (0..20).filter(|dtype| product.reduces(*dtype, &reduction, Feature::Symmetric)).collect()
    }

    #[test]
    fn products_reduce_what_the_table_says() {
        assert_eq!(reduced(Product::Ascend950, Reduction::Sum), [0, 1, 2, 3, 4, 5, 6, 10, 11]);
        assert_eq!(reduced(Product::Ascend950, Reduction::Prod), [0, 2, 3, 4, 5, 6, 10]);
        assert_eq!(reduced(Product::Ascend910B, Reduction::Max), [0, 1, 2, 3, 4, 5, 11]);
        assert_eq!(reduced(Product::Ascend910, Reduction::Prod), [0, 2, 3, 4, 5]);
        assert_eq!(reduced(Product::Ascend310P, Reduction::Sum), [0, 1, 2, 3, 4]);
        assert_eq!(reduced(Product::Ascend310P, Reduction::Min), [0, 2, 3, 4]);
    }
}
