//! Operators in their two calls.

use crate::api::{Api, Rank, run};

/// aclDataType: FLOAT, UINT8.
const FLOAT: i32 = 0;
const UINT8: i32 = 4;
const FORMAT_ND: i32 = 2;
const INVALID: i32 = 161_002;

fn tensor(api: &Api, shape: &[i64], dtype: i32, address: usize) -> usize {
    let strides: Vec<i64> = (0..shape.len()).map(|at| shape[at + 1..].iter().product()).collect();
    let dims = shape.len() as u64;
    let (shape, strides) = (shape.as_ptr(), strides.as_ptr());
    api.create_tensor(shape, dims, dtype, strides, 0, FORMAT_ND, shape, dims, address)
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn read_floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

type Plan<'a> = &'a dyn Fn(&mut u64, &mut usize) -> i32;
type Go<'a> = &'a dyn Fn(usize, u64, usize, usize) -> i32;

/// Makes both calls, and waits: the code of the stream.
fn both(rank: Rank<'_>, plan: Plan<'_>, go: Go<'_>) -> i32 {
    let (mut bytes, mut executor) = (0, 0);
    assert_eq!(plan(&mut bytes, &mut executor), 0);
    let workspace = rank.room(bytes as usize);
    assert_eq!(go(workspace, bytes, executor, rank.stream), 0);
    let code = rank.api.synchronize(rank.stream);
    rank.api.free(workspace);
    code
}

/// Runs one rank, whose communicator is not used.
fn on_device(settings: &str, body: impl Fn(Rank<'_>) + Sync) {
    let api = &Api::open(settings);
    run(api, 1, |rank| {
        body(rank);
        assert_eq!(api.destroy(rank.comm), 0);
    });
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn arithmetic_rounds_once() {
    on_device("arithmetic", |rank| {
        let api = rank.api;
        let values = [1.1f32, -3.0, 0.0];
        let (left, right) = (rank.put(&floats(&values)), rank.put(&floats(&[0.5; 3])));
        let output = rank.room(12);
        let [a, b, out] = [left, right, output].map(|address| tensor(api, &[3], FLOAT, address));
        let (third, half) = (3f32, 0.5f32);
        let (third, half) = (api.create_scalar(&third, FLOAT), api.create_scalar(&half, FLOAT));
        let result = || {
            let mut bytes = [0u8; 12];
            assert_eq!(api.copy(bytes.as_mut_ptr() as usize, 12, output, 12, 2), 0);
            read_floats(&bytes)
        };
        let code =
            both(rank, &|ws, ex| api.plan_muls(a, third, out, ws, ex), &|w, n, e, s| api.muls(w, n, e, s));
        assert_eq!((code, result()), (0, values.map(|value| value * 3.0).to_vec()));
        let code =
            both(rank, &|ws, ex| api.plan_divs(a, third, out, ws, ex), &|w, n, e, s| api.divs(w, n, e, s));
        assert_eq!((code, result()), (0, values.map(|value| value / 3.0).to_vec()));
        let code =
            both(rank, &|ws, ex| api.plan_add(a, b, half, out, ws, ex), &|w, n, e, s| api.add(w, n, e, s));
        assert_eq!((code, result()), (0, values.map(|value| value + 0.25).to_vec()));
        [a, b, out].into_iter().for_each(|one| assert_eq!(api.destroy_tensor(one), 0));
        [third, half].into_iter().for_each(|one| assert_eq!(api.destroy_scalar(one), 0));
        [left, right, output].into_iter().for_each(|one| assert_eq!(api.free(one), 0));
    });
}

/// aclDataType: INT64, BFLOAT16.
const INT64: i32 = 9;
const BFLOAT16: i32 = 27;

#[test]
fn two_tensors_become_one_in_their_own_type() {
    on_device("pairs", |rank| {
        let api = rank.api;
        // Sums and products that a 64-bit float does not hold.
        let values = [(1i64 << 60) + 1, i64::MAX];
        let bytes = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let (left, right, output) = (rank.put(&bytes(&values)), rank.put(&bytes(&[3, 1])), rank.room(16));
        let [a, b, out] = [left, right, output].map(|address| tensor(api, &[2], INT64, address));
        let result = || {
            let mut bytes = [0u8; 16];
            assert_eq!(api.copy(bytes.as_mut_ptr() as usize, 16, output, 16, 2), 0);
            bytes.as_chunks().0.iter().map(|word| i64::from_le_bytes(*word)).collect::<Vec<_>>()
        };
        let one = api.create_scalar(&f32::from_bits(1), 3);
        let code =
            both(rank, &|ws, ex| api.plan_add(a, b, one, out, ws, ex), &|w, n, e, s| api.add(w, n, e, s));
        assert_eq!((code, result()), (0, vec![(1 << 60) + 4, i64::MIN]));
        let code = both(rank, &|ws, ex| api.plan_mul(a, b, out, ws, ex), &|w, n, e, s| api.mul(w, n, e, s));
        assert_eq!((code, result()), (0, vec![(3 << 60) + 3, i64::MAX]));
        let code =
            both(rank, &|ws, ex| api.plan_maximum(a, b, out, ws, ex), &|w, n, e, s| api.maximum(w, n, e, s));
        assert_eq!((code, result()), (0, values.to_vec()));
        let code =
            both(rank, &|ws, ex| api.plan_minimum(a, b, out, ws, ex), &|w, n, e, s| api.minimum(w, n, e, s));
        assert_eq!((code, result()), (0, vec![3, 1]));
        let (float, mut ignored) = (api.create_scalar(&1.0, FLOAT), (0, 0));
        let code = api.plan_add(a, b, float, out, &mut ignored.0, &mut ignored.1);
        assert_eq!(code, INVALID, "a float is no factor of integers");
        let shorter = tensor(api, &[1], INT64, right);
        assert_eq!(api.plan_mul(a, shorter, out, &mut ignored.0, &mut ignored.1), INVALID);
        [a, b, out, shorter].into_iter().for_each(|each| assert_eq!(api.destroy_tensor(each), 0));
        [one, float].into_iter().for_each(|each| assert_eq!(api.destroy_scalar(each), 0));
        [left, right, output].into_iter().for_each(|each| assert_eq!(api.free(each), 0));
    });
}

#[test]
fn products_without_an_operator_or_a_type_refuse_it() {
    for (settings, codes) in
        [("product=910b", [0, 0, 0]), ("product=910", [0, INVALID, INVALID]), ("product=310p", [INVALID; 3])]
    {
        on_device(settings, |rank| {
            let (api, mut ignored) = (rank.api, (0, 0));
            let (memory, one) = (rank.put(&floats(&[1.0])), rank.api.create_scalar(&1.0, FLOAT));
            let [float, short] = [FLOAT, BFLOAT16].map(|dtype| tensor(api, &[1], dtype, memory));
            let mut add = |one_of: usize| {
                let code = api.plan_add(one_of, one_of, one, one_of, &mut ignored.0, &mut ignored.1);
                if code == 0 {
                    assert_eq!(api.add(0, 0, ignored.1, rank.stream), INVALID, "it is used up");
                }
                code
            };
            let [of_float, of_short] = [add(float), add(short)];
            let product = api.plan_mul(short, short, short, &mut ignored.0, &mut ignored.1);
            if product == 0 {
                assert_eq!(api.mul(0, 0, ignored.1, rank.stream), INVALID, "it is used up");
            }
            assert_eq!([of_float, of_short, product], codes, "{settings}");
            [float, short].into_iter().for_each(|each| assert_eq!(api.destroy_tensor(each), 0));
            assert_eq!((api.destroy_scalar(one), api.free(memory)), (0, 0));
        });
    }
}

#[test]
fn a_norm_is_one_number() {
    on_device("norm", |rank| {
        let api = rank.api;
        let (input, output) = (rank.put(&floats(&[3.0, -4.0])), rank.room(4));
        let (a, out) = (tensor(api, &[2], FLOAT, input), tensor(api, &[], FLOAT, output));
        for (p, expected) in [(1f32, 7.0), (2.0, 5.0), (f32::INFINITY, 4.0)] {
            let p = api.create_scalar(&p, FLOAT);
            let plan = |ws: &mut u64, ex: &mut usize| api.plan_norm(a, p, 0, false, out, ws, ex);
            assert_eq!(both(rank, &plan, &|w, n, e, s| api.norm(w, n, e, s)), 0);
            let mut bytes = [0u8; 4];
            assert_eq!(api.copy(bytes.as_mut_ptr() as usize, 4, output, 4, 2), 0);
            assert_eq!(f32::from_le_bytes(bytes), expected);
            assert_eq!(api.destroy_scalar(p), 0);
        }
        assert_eq!((api.destroy_tensor(a), api.destroy_tensor(out)), (0, 0));
        assert_eq!((api.free(input), api.free(output)), (0, 0));
    });
}

#[test]
fn signs_are_packed_from_the_lowest_bit() {
    on_device("signs", |rank| {
        let api = rank.api;
        let values = [1.0f32, -1.0, 0.0, -0.0, -2.0, 3.0, -1.0, -1.0, -5.0, 5.0];
        let (input, packed, unpacked) = (rank.put(&floats(&values)), rank.room(2), rank.room(64));
        let numbers = tensor(api, &[10], FLOAT, input);
        let (rows, line) = (tensor(api, &[2, 1], UINT8, packed), tensor(api, &[2], UINT8, packed));
        let back = tensor(api, &[2, 8], FLOAT, unpacked);
        let plan = |ws: &mut u64, ex: &mut usize| api.plan_pack(numbers, 2, rows, ws, ex);
        assert_eq!(both(rank, &plan, &|w, n, e, s| api.pack(w, n, e, s)), 0);
        let plan = |ws: &mut u64, ex: &mut usize| api.plan_unpack(line, 2, FLOAT, back, ws, ex);
        assert_eq!(both(rank, &plan, &|w, n, e, s| api.unpack(w, n, e, s)), 0);
        let mut ignored = (0, 0);
        assert_eq!(api.plan_pack(numbers, 1, rows, &mut ignored.0, &mut ignored.1), INVALID, "other rows");
        [numbers, rows, line, back].into_iter().for_each(|one| assert_eq!(api.destroy_tensor(one), 0));
        assert_eq!(rank.take(packed, 2), [0b0010_1101, 0b10]);
        let signs = read_floats(&rank.take(unpacked, 64));
        assert_eq!(signs[..10], [1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0, -1.0, -1.0, 1.0]);
        assert_eq!(api.free(input), 0);
    });
}

#[test]
fn a_number_that_is_none_is_refused() {
    on_device("nan", |rank| {
        let api = rank.api;
        let (input, packed) = (rank.put(&floats(&[1.0, f32::NAN])), rank.room(1));
        let (numbers, rows) = (tensor(api, &[2], FLOAT, input), tensor(api, &[1, 1], UINT8, packed));
        let plan = |ws: &mut u64, ex: &mut usize| api.plan_pack(numbers, 1, rows, ws, ex);
        assert_eq!(both(rank, &plan, &|w, n, e, s| api.pack(w, n, e, s)), 507_000);
        assert_eq!((api.destroy_tensor(numbers), api.destroy_tensor(rows)), (0, 0));
        [input, packed]
            .into_iter()
            .for_each(|one| assert_eq!(api.free(one), 507_000, "the stream has failed"));
    });
}

#[test]
fn calls_that_are_wrong_are_refused() {
    on_device("product=950", |rank| {
        let api = rank.api;
        let (input, output) = (rank.put(&floats(&[1.0, 2.0])), rank.room(8));
        let (a, out) = (tensor(api, &[2], FLOAT, input), tensor(api, &[2], FLOAT, output));
        let (shape, stride) = ([2i64], [1i64]);
        let (dims, strides) = (shape.as_ptr(), stride.as_ptr());
        let swapped = api.create_tensor(dims, 1, FLOAT, strides, 2, 0, dims, 1, input);
        assert_eq!(swapped, 0, "offset and format in each other's place");
        let strided = [2i64];
        assert_eq!(api.create_tensor(dims, 1, FLOAT, strided.as_ptr(), 0, 2, dims, 1, input), 0);
        let (mut bytes, mut executor) = (0, 0);
        assert_eq!(api.plan_muls(a, 0, out, &mut bytes, &mut executor), 161_001, "no factor");
        assert_eq!(api.plan_pack(a, 1, out, &mut bytes, &mut executor), INVALID, "this product packs none");
        let two = api.create_scalar(&2.0, FLOAT);
        assert_eq!(api.plan_muls(a, two, out, &mut bytes, &mut executor), 0);
        assert_eq!(api.muls(0, 0, executor, rank.stream), INVALID, "no workspace");
        assert_eq!(api.muls(0, 0, executor, rank.stream), INVALID, "an executor serves once");
        assert_eq!((api.destroy_scalar(two), api.destroy_tensor(a), api.destroy_tensor(out)), (0, 0, 0));
        assert_eq!((api.free(input), api.free(output)), (0, 0));
    });
}
