//! What is refused: wrong arguments, and what a product lacks.

use crate::api::{Api, Config, F32, I32, Item, Rank, RootInfo, SUM, TO_DEVICE, TO_HOST, run_well};

const PARA: i32 = 1;
const PTR: i32 = 2;
const MEMORY: i32 = 3;
const NOT_SUPPORT: i32 = 5;

#[test]
fn arguments_are_checked() {
    let api = &Api::open("arguments");
    run_well(api, 2, |rank| {
        let Rank { comm, stream, .. } = rank;
        let own = rank.room(16);
        let mut host = [0u8; 16];
        for (send, recv, count, dtype, op, comm, stream, code) in [
            (own, own, 4, I32, SUM, 0, stream, PTR),
            (own, own, 4, I32, SUM, comm, 0, PTR),
            (own, own, 4, I32, SUM, own, stream, PARA),
            (own, own, 4, I32, SUM, comm, own, PARA),
            (0, own, 4, I32, SUM, comm, stream, PTR),
            (own, 0, 4, I32, SUM, comm, stream, PTR),
            (own + 2, own, 1, I32, SUM, comm, stream, PARA),
            (own, own, 5, I32, SUM, comm, stream, MEMORY),
            (host.as_mut_ptr() as usize & !3, own, 1, I32, SUM, comm, stream, MEMORY),
            (own, own, 4, I32, 4, comm, stream, PARA),
            (own, own, 1, 7, SUM, comm, stream, NOT_SUPPORT),
            (own, own, 1, 12, SUM, comm, stream, NOT_SUPPORT),
        ] {
            assert_eq!(api.all_reduce(send, recv, count, dtype, op, comm, stream), code);
        }
        // The root stands behind the operator.
        assert_eq!(api.reduce(own, own, 4, I32, SUM, 2, comm, stream), PARA);
        assert_eq!(api.broadcast(own, 4, I32, 2, comm, stream), PARA);
        let counts = [1u64, 2];
        let code = api.all_gather_v(own, 3, own, counts.as_ptr(), counts.as_ptr(), I32, comm, stream);
        assert_eq!(code, PARA, "a count that is not the own one");
        let code = api.all_to_all(own, 1, I32, own, 1, I32, comm, stream);
        assert_eq!(code, PARA, "in place");
        assert_eq!(api.free(own), 0);
    });
}

/// Two sends to one rank, or two receives from one; both ways at once is no such thing.
#[test]
fn a_batch_has_one_message_to_each_rank_and_one_from_it() {
    let api = &Api::open("pairs");
    run_well(api, 2, |rank| {
        let Rank { comm, stream, .. } = rank;
        let own = rank.put_numbers(&[1 + rank.rank as i32, 0, 0]);
        let peer = 1 - rank.rank as u32;
        let item =
            |kind: i32, index: usize| Item { kind, buffer: own + 4 * index, count: 1, dtype: I32, peer };
        for twice in [[item(0, 0), item(0, 1)], [item(1, 1), item(1, 2)]] {
            assert_eq!(api.batch(twice.as_ptr(), 2, comm, stream), PARA);
        }
        assert_eq!(api.batch([item(0, 0), item(1, 1)].as_ptr(), 2, comm, stream), 0);
        assert_eq!(rank.take_numbers(own, 3)[1], 2 - rank.rank as i32);
    });
}

#[test]
fn the_run_time_checks_its_arguments() {
    let api = &Api::open("devices=2.memory=1024");
    assert_eq!(api.init(std::ptr::null()), 100_002, "a second time");
    assert_eq!(api.set_device(2), 107_001);
    let mut address = 0;
    assert_eq!(api.allocate(&mut address, 4, 0), 107_002, "without a device");
    assert_eq!(api.set_device(0), 0);
    assert_eq!(api.allocate(&mut address, 2000, 0), 207_001);
    assert_eq!(api.allocate(&mut address, 16, 0), 0);
    let mut host = [0u8; 32];
    let buffer = host.as_mut_ptr() as usize;
    assert_eq!(api.copy(address, 16, buffer, 17, TO_DEVICE), 100_000);
    assert_eq!(api.copy(address, 17, buffer, 17, TO_DEVICE), 100_000);
    assert_eq!(api.copy(address, 16, buffer, 16, TO_HOST), 100_000, "the wrong way");
    assert_eq!(api.fill(address, 16, 3, 16), 0);
    assert_eq!(api.copy(buffer, 32, address, 16, TO_HOST), 0);
    assert_eq!(host[..17], [[3; 16].as_slice(), &[0]].concat());
    let mut pinned = 0;
    assert_eq!(api.allocate_host(&mut pinned, 16), 0);
    assert_eq!((api.free(pinned), api.free_host(address)), (100_000, 100_000));
    assert_eq!((api.free(address), api.free_host(pinned)), (0, 0));
    assert_eq!(api.reset_device(0), 0);
    assert_eq!(api.control.live_handles(), 0);
    assert_eq!((api.finalize(), api.finalize()), (0, 100_001));
    assert_eq!(api.set_device(0), 100_001);
}

#[test]
fn a_root_info_that_was_cut_is_refused() {
    let api = &Api::open("root");
    let info = api.new_root();
    let mut comm = 0;
    let mut cut = RootInfo([0; 4108]);
    cut.0[..4100].copy_from_slice(&info.0[..4100]);
    assert_eq!(api.init_rank(1, &cut, 0, &mut comm), PARA);
    assert_eq!(api.init_rank(1, std::ptr::null(), 0, &mut comm), PTR);
    assert_eq!(api.init_rank(1, &info, 1, &mut comm), PARA);
    assert_eq!(api.init_rank_config(1, &info, 0, &Config::new(1), &mut comm), PARA);
    assert_eq!(api.init_rank_config(1, &info, 0, &Config::new(0xf0f0_f0f0), &mut comm), 0);
    let (mut size, mut name) = (0, [1u8; 128]);
    assert_eq!(api.rank_size(comm, &mut size), 0);
    assert_eq!(api.comm_name(comm, name.as_mut_ptr()), 0);
    assert!(size == 1 && name.starts_with(b"test double"));
    assert_eq!(api.destroy(comm), 0);
    assert_eq!(api.destroy(comm), PARA);
    assert!(api.text(api.error_string(13)).contains("test double"));
}

/// What a call of each kind gives on a product, with types that it has: an AllReduce of f32, of f64, of bf16 by
/// product, an AllGather of bf16, a Broadcast, an AllGatherV and a ReduceScatterV by product.
fn answers(product: &str) -> [i32; 7] {
    let api = &Api::open(&format!("product={product}"));
    let ones = [1u64];
    let zeros = [0u64];
    let (counts, places) = (ones.as_ptr() as usize, zeros.as_ptr() as usize);
    let answers = run_well(api, 1, move |rank| {
        let Rank { comm, stream, .. } = rank;
        let (counts, places) = (counts as *const u64, places as *const u64);
        let own = rank.room(16);
        let answers = [
            api.all_reduce(own, own, 1, F32, SUM, comm, stream),
            api.all_reduce(own, own, 1, 10, SUM, comm, stream),
            api.all_reduce(own, own, 1, 11, 1, comm, stream),
            api.all_gather(own, own, 1, 11, comm, stream),
            api.broadcast(own, 1, F32, 0, comm, stream),
            api.all_gather_v(own, 1, own, counts, places, F32, comm, stream),
            api.reduce_scatter_v(own, counts, places, own, 1, F32, 1, comm, stream),
        ];
        rank.take(own, 16);
        answers
    });
    answers[0]
}

#[test]
fn products_lack_what_their_documentation_says() {
    const NO: i32 = NOT_SUPPORT;
    assert_eq!(answers("950"), [0, 0, NO, 0, 0, 0, 0]);
    assert_eq!(answers("910b"), [0, NO, NO, 0, 0, 0, NO]);
    assert_eq!(answers("910"), [0, NO, NO, NO, 0, NO, NO]);
    assert_eq!(answers("310p"), [0, NO, NO, NO, NO, 0, NO]);
    let api = Api::open("product=950");
    assert_eq!(api.text(api.product()), "Ascend950-double");
    let api = Api::open("other");
    assert_eq!(api.text(api.product()), "Ascend910B-double");
    let mut count = 0;
    assert_eq!(api.device_count(&mut count), 0);
    assert_eq!(count, 8);
}
