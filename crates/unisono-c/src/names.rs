//! The numbers of the ABI for operations, element types, operators and flags. Structures hold them as integers, because
//! C may put any number there.

use unisono::extend::calls::Operation;
use unisono::{Collective, DType, Error, ReduceOp, Result, UserOp};

/// The operation of a call. `p` is the number of ranks, `count` the count of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum OperationName {
    /// Output on every rank: the reduction of all inputs. Input and output have `count` elements.
    AllReduce = 1,
    /// Output on rank r: share r of the reduction of all inputs. Input p x `count` elements, output `count`.
    ReduceScatter = 2,
    /// Output on every rank: all inputs in rank order. Input `count` elements, output p x `count`.
    AllGather = 3,
    /// Output on rank r: part r of each rank's input, in rank order. Input and output p x `count` elements.
    AllToAll = 4,
    /// The output of every rank becomes the root's. It has `count` elements, and there is no input.
    Broadcast = 5,
    /// Output at the root: the reduction of all inputs. Both have `count` elements.
    Reduce = 6,
    /// Output at the root: all inputs in rank order. Input `count` elements, output p x `count`.
    Gather = 7,
    /// Output on rank r: share r of the root's input. Input p x `count` elements, output `count`.
    Scatter = 8,
    /// No rank leaves before every rank has entered. It has no data: count 0, element type 0.
    Barrier = 9,
    /// Sends the input, `count` elements, to `peer` with `tag`.
    Send = 10,
    /// Receives a message of at most `count` elements into the output, from `peer` with `tag`.
    Recv = 11,
    /// Output on rank r: the reduction of the inputs of ranks 0 to r.
    Scan = 12,
    /// Output on rank r: the reduction of the inputs of the ranks before r. Rank 0 has no output.
    Exscan = 13,
}

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum DTypeName {
    /// IEEE 754 binary64: double.
    F64 = 1,
    /// IEEE 754 binary32: float.
    F32 = 2,
    /// IEEE 754 binary16.
    F16 = 3,
    /// The upper half of a float.
    BF16 = 4,
    /// Signed, 8 bits.
    I8 = 5,
    /// Signed, 16 bits.
    I16 = 6,
    /// Signed, 32 bits.
    I32 = 7,
    /// Signed, 64 bits.
    I64 = 8,
    /// Unsigned, 8 bits.
    U8 = 9,
    /// Unsigned, 16 bits.
    U16 = 10,
    /// Unsigned, 32 bits.
    U32 = 11,
    /// Unsigned, 64 bits.
    U64 = 12,
    /// One byte, 0 is false.
    Bool = 13,
    /// One byte: sign, 4 bits of exponent, 3 of fraction; no infinity.
    F8E4M3 = 14,
    /// One byte: sign, 5 bits of exponent, 2 of fraction.
    F8E5M2 = 15,
    /// Two floats: real and imaginary part.
    Complex64 = 16,
    /// Two doubles: real and imaginary part.
    Complex128 = 17,
    /// `element_bytes` bytes that only the caller can interpret. A function of the caller's reduces them.
    Opaque = 255,
}

/// The operator of a call that reduces; 0 in other calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum OpName {
    /// No operator.
    None = 0,
    /// The sum. Integers wrap.
    Sum = 1,
    /// The product.
    Prod = 2,
    /// The smallest; a NaN anywhere gives NaN.
    Min = 3,
    /// The largest; a NaN anywhere gives NaN.
    Max = 4,
    /// The sum divided by the number of ranks.
    Avg = 5,
    /// Bitwise and.
    BitAnd = 6,
    /// Bitwise or.
    BitOr = 7,
    /// Bitwise exclusive or.
    BitXor = 8,
    /// The sum of the inputs, each multiplied by `factor` of its rank.
    PreMulSum = 9,
    /// The function of `user_op`.
    User = 10,
}

/// The meaning of the lists of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum DivisionName {
    /// One buffer in pieces, cut anywhere. Other ranks need not know.
    Anywhere = 0,
    /// One buffer, with a piece for each rank's share. Other ranks need not know.
    Shares = 1,
    /// Several buffers that one call handles together. Their lengths are the same on every rank.
    Coalesced = 2,
}

/// For `peer` and `tag` of a receive or a probe: any rank, any tag.
pub const ANY: i32 = -1;

/// For `peer`: nobody, as beyond the edge of a grid. The call succeeds at once and moves nothing.
pub const NOBODY: i32 = -2;

/// Flag of a call: the output is input and output, and `input` is null. A broadcast is always so.
pub const IN_PLACE: u32 = 1;

/// Flag of a call or a group: the order of the reduction depends on nothing but the number of ranks.
pub const FIXED_ORDER: u32 = 2;

/// Flag of a call: it waits for the calls of other threads, where it would else be refused.
pub const QUEUED: u32 = 4;

/// Flag of a call: it runs although UNISONO_SKIP switches its operation off.
pub const NEEDED: u32 = 8;

/// Flag of a call: where a vendor's library refuses memory of the host, TCP makes the call.
pub const HOST_BY_COMPANION: u32 = 16;

/// Flag of a call: the communication log records it whenever the log is on.
pub const PROFILED: u32 = 32;

/// Flag of a call: the communication log never records it.
pub const NOT_PROFILED: u32 = 64;

/// Flag of a group: TCP does its collectives, also where a vendor's library does the collectives of its world.
pub const COMPANION: u32 = 128;

/// Flag of a world: one more world beside the open worlds of this process. All ranks make it.
pub const ANOTHER_WORLD: u32 = 256;

/// Flag of a world: the world that this process has, if it is open.
pub const ADOPT_WORLD: u32 = 512;

/// The operation of a number.
pub(crate) fn operation(number: i32) -> Result<Operation> {
    let found = u8::try_from(number).ok().and_then(Operation::from_code);
    found.ok_or_else(|| Error::invalid("operation", format!("{number} is the number of none")))
}

/// The element type of a number; a barrier has none.
pub(crate) fn dtype(number: i32, element_bytes: u32, operation: Operation) -> Result<DType> {
    if operation == Operation::Collective(Collective::Barrier) && number == 0 {
        return Ok(DType::U8);
    }
    element_type(number, element_bytes)
}

/// The element type of a number.
pub(crate) fn element_type(number: i32, element_bytes: u32) -> Result<DType> {
    if number == DTypeName::Opaque as i32 {
        let problem = || format!("{element_bytes}, but an opaque element has 1 to 65535");
        return DType::opaque(element_bytes as usize)
            .ok_or_else(|| Error::invalid("element_bytes", problem()));
    }
    let found = u8::try_from(number).ok().and_then(|code| DType::from_code([code, 0, 0]));
    let dtype = found.ok_or_else(|| Error::invalid("dtype", format!("{number} is the number of none")))?;
    if element_bytes != 0 && element_bytes as usize != dtype.bytes() {
        let problem = format!("{element_bytes}, but an element of {dtype} has {}", dtype.bytes());
        return Err(Error::invalid("element_bytes", problem));
    }
    Ok(dtype)
}

/// The operator of a number. The arguments of the operators that have one come beside it.
pub(crate) fn op(number: i32, factor: f64, user: Option<UserOp>) -> Result<Option<ReduceOp>> {
    let is_pre_mul_sum = number == OpName::PreMulSum as i32;
    if !is_pre_mul_sum && factor.to_bits() != 0 {
        return Err(Error::invalid("factor", format!("{factor}, but only pre_mul_sum has one")));
    }
    if user.is_some() && number != OpName::User as i32 {
        return Err(Error::invalid("user_op", "given, but the operator is another one"));
    }
    if number == OpName::None as i32 {
        return Ok(None);
    }
    if is_pre_mul_sum {
        return Ok(Some(ReduceOp::PreMulSum(factor)));
    }
    if number == OpName::User as i32 {
        let missing = || Error::invalid("user_op", "null, but the operator is the caller's own");
        return user.map(|user| Some(ReduceOp::User(user))).ok_or_else(missing);
    }
    let found = ReduceOp::PLAIN.iter().find(|plain| i32::from(plain.code()) == number);
    found.copied().map(Some).ok_or_else(|| Error::invalid("op", format!("{number} is the number of none")))
}

/// Refuses flags that are not among `known`.
pub(crate) fn flags(given: u32, known: u32) -> Result<()> {
    match given & !known {
        0 => Ok(()),
        odd => Err(Error::invalid("flags", format!("{odd:#x} is no flag here"))),
    }
}
