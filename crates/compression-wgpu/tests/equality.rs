//! Thin equality test.
use unisono_communicator::{Buffer, BufferMut};
use unisono_compression::*;
use unisono_compression_wgpu::{AdapterChoice, OpenOptions, WgpuKernels, WgpuMemory};
use unisono_kernels::testing::*;
use unisono_kernels::*;

fn open() -> Option<WgpuKernels> {
    match WgpuKernels::open(&OpenOptions { adapter: AdapterChoice::Software, limits: None }) {
        Ok(k) => Some(k),
        Err(e) => {
            println!("SKIP wgpu: {e}");
            None
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn canonical(words: &[u32]) -> Vec<u32> {
    words.iter().map(|w| if f32::from_bits(*w).is_nan() { 0x7fc00000 } else { *w }).collect()
}

struct Both<'a> {
    device: &'a WgpuKernels,
    host: HostKernels,
}

impl Both<'_> {
    /// Runs on both; outs compared (raw words).
    fn same<R: PartialEq + std::fmt::Debug>(
        &self,
        about: &str,
        ins: &[Vec<u32>],
        outs: &[Vec<u32>],
        floats: bool,
        run: impl Fn(&dyn CodecKernels, Vec<Buffer<'_>>, Vec<BufferMut<'_>>) -> R,
        worthless: impl Fn(&R) -> bool,
    ) {
        let mut h: Vec<Vec<u32>> = outs.to_vec();
        let rh = run(
            &self.host,
            ins.iter().map(|i| Buffer::of(i)).collect(),
            h.iter_mut().map(|o| BufferMut::of(o)).collect(),
        );
        // ins: all in one memory at odd places
        let mut all = vec![9u32];
        let mut places = Vec::new();
        for i in ins {
            places.push(all.len()..all.len() + i.len());
            all.extend(i);
            all.push(77);
        }
        let mem = self.device.to_read(all).unwrap();
        let mut om: Vec<WgpuMemory> = outs
            .iter()
            .map(|o| {
                let mut v = vec![5u32; 3];
                v.extend(o);
                v.push(6);
                self.device.to_read(v).unwrap()
            })
            .collect();
        let ib: Vec<_> = places.iter().map(|p| mem.view(p.clone())).collect();
        let mut ob: Vec<_> =
            om.iter_mut().zip(outs).map(|(m, o)| m.view_mut(3..3 + o.len())).collect();
        let rd = run(
            self.device,
            ib.iter().map(View::buffer).collect(),
            ob.iter_mut().map(ViewMut::buffer).collect(),
        );
        assert_eq!(rd, rh, "{about}");
        if worthless(&rh) {
            return;
        }
        for (n, (m, h)) in om.iter().zip(&h).enumerate() {
            let mut d = vec![0; h.len() + 4];
            self.device.read(m, 0, &mut d).unwrap();
            assert_eq!((&d[..3], d[d.len() - 1]), (&[5, 5, 5][..], 6), "{about}: around {n}");
            let d = &d[3..d.len() - 1];
            let (d, h) = if floats { (canonical(d), canonical(h)) } else { (d.to_vec(), h.clone()) };
            if d != h {
                let at = d.iter().zip(&h).position(|(a, b)| a != b).unwrap();
                panic!("{about}: output {n} word {at} of {}: {:x} instead of {:x}", d.len(), d[at], h[at]);
            }
        }
    }
}

fn feedback<'a>(old: Option<Buffer<'a>>, new: Option<BufferMut<'a>>) -> Option<Feedback<'a>> {
    old.zip(new).map(|(old, new)| Feedback { old, new })
}

fn part_words(scales: &[f32], codes: &[u8]) -> Vec<u32> {
    let mut w = bits(scales);
    let mut c = codes.to_vec();
    c.resize(codes.len().next_multiple_of(4), 0);
    w.extend(c.chunks(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])));
    w
}

#[test]
fn old_kernels() {
    let Some(device) = open() else { return };
    let both = Both { device: &device, host: HostKernels(definition()) };
    let mut random = Random::new(5);
    for count in lengths(&mut random) {
        let mix = random.one_of(&MIXES);
        let block = random.one_of(&BLOCKS);
        let (input, old) = (bits(&values(&mut random, mix, count)), bits(&residual(&mut random, mix, count)));
        let about = format!("{count} {mix:?} block {block}");
        let ranks = 1 + random.below(PARTS_MAX);
        let words = count.div_ceil(block) + sign_words(count);
        for has_old in [false, true] {
            let news = if has_old { vec![vec![7; count]] } else { vec![] };
            let outs = |w: usize| [vec![vec![7; w]], news.clone()].concat();
            both.same(
                &format!("sign_encode {about} {has_old}"),
                &[input.clone(), old.clone()],
                &outs(words),
                true,
                |k, mut i, mut o| {
                    let old = i.pop().filter(|_| has_old);
                    let new = if has_old { o.pop() } else { None };
                    k.sign_encode(i.pop().unwrap(), feedback(old, new), block, o.pop().unwrap()).unwrap()
                },
                |r| r.is_some(),
            );
            let sent: Vec<_> = (0..ranks)
                .map(|_| SentSigns::new(&mut random, mix, count, block))
                .map(|s| [bits(&s.scales), s.bits].concat())
                .collect();
            both.same(
                &format!("sign_reduce_encode {about} {has_old} {ranks}"),
                &[sent, vec![old.clone()]].concat(),
                &outs(words),
                true,
                |k, mut i, mut o| {
                    let old = i.pop().filter(|_| has_old);
                    let new = if has_old { o.pop() } else { None };
                    k.sign_reduce_encode(&i, count, feedback(old, new), block, o.pop().unwrap()).unwrap()
                },
                |r| r.is_some(),
            );
            for format in formats(block) {
                for rounding in roundings(&mut random) {
                    let words = format.scales(count) + format.width.code_bytes(count).div_ceil(4);
                    both.same(
                        &format!("int_encode {about} {has_old} {format:?} {rounding:?}"),
                        &[input.clone(), old.clone()],
                        &outs(words),
                        true,
                        |k, mut i, mut o| {
                            let old = i.pop().filter(|_| has_old);
                            let new = if has_old { o.pop() } else { None };
                            k.int_encode(
                                i.pop().unwrap(),
                                feedback(old, new),
                                format,
                                rounding,
                                o.pop().unwrap(),
                            )
                            .unwrap()
                        },
                        |r| r.is_some(),
                    );
                    let sent: Vec<_> = (0..ranks)
                        .map(|_| SentInts::new(&mut random, mix, count, format))
                        .map(|s| part_words(&s.scales, &s.codes))
                        .collect();
                    both.same(
                        &format!("int_reduce_encode {about} {has_old} {format:?} {rounding:?}"),
                        &[sent.clone(), vec![old.clone()]].concat(),
                        &outs(words),
                        true,
                        |k, mut i, mut o| {
                            let old = i.pop().filter(|_| has_old);
                            let new = if has_old { o.pop() } else { None };
                            k.int_reduce_encode(
                                &i,
                                count,
                                feedback(old, new),
                                format,
                                rounding,
                                o.pop().unwrap(),
                            )
                            .unwrap()
                        },
                        |r| r.is_some(),
                    );
                    let weight = random.one_of(&WEIGHTS);
                    both.same(
                        &format!("int_expand {about} {format:?} {weight}"),
                        &sent[..1],
                        &[vec![7; count]],
                        true,
                        |k, mut i, mut o| {
                            k.int_expand(i.pop().unwrap(), format, weight, o.pop().unwrap()).unwrap()
                        },
                        |_| false,
                    );
                }
            }
        }
        let weight = random.one_of(&WEIGHTS);
        let s = SentSigns::new(&mut random, mix, count, block);
        both.same(
            &format!("sign_expand {about} {weight}"),
            &[[bits(&s.scales), s.bits].concat()],
            &[vec![7; count]],
            true,
            |k, mut i, mut o| k.sign_expand(i.pop().unwrap(), block, weight, o.pop().unwrap()).unwrap(),
            |_| false,
        );
        both.same(
            &format!("compensate {about}"),
            &[input.clone(), old.clone()],
            &[vec![7; count]],
            true,
            |k, mut i, mut o| {
                let f = feedback(i.pop(), o.pop()).unwrap();
                Some(k.compensate(i.pop().unwrap(), f).unwrap()).filter(|s| s.is_finite()).map(f64::to_bits)
            },
            |r| r.is_none(),
        );
        let sent: Vec<_> = (0..ranks)
            .map(|_| SentSigns::new(&mut random, mix, count.max(1), 1 << 20))
            .map(|s| [bits(&s.scales), s.bits[..sign_words(count)].to_vec()].concat())
            .collect();
        both.same(
            &format!("sign_reduce_global {about}"),
            &[sent, vec![old.clone()]].concat(),
            &[vec![7; count]],
            true,
            |k, mut i, mut o| {
                let f = feedback(i.pop(), o.pop()).unwrap();
                Some(k.sign_reduce_global(&i, f).unwrap()).filter(|s| s.is_finite()).map(f64::to_bits)
            },
            |r| r.is_none(),
        );
        both.same(
            &format!("sign_pack {about}"),
            &[],
            &[old.clone(), vec![7; 1 + sign_words(count)]],
            true,
            |k, _, mut o| {
                let out = o.pop().unwrap();
                k.sign_pack(o.pop().unwrap(), 0.75, out).unwrap()
            },
            |_| false,
        );
        both.same(
            &format!("bf16_encode {about}"),
            &[input.clone()],
            &[vec![7; count.div_ceil(2)]],
            false,
            |k, mut i, mut o| k.bf16_encode(i.pop().unwrap(), o.pop().unwrap()).unwrap(),
            |r| r.is_some(),
        );
        let sent: Vec<Vec<u32>> = (0..ranks)
            .map(|_| {
                narrow(&mut random, count.next_multiple_of(2))
                    .chunks(2)
                    .map(|c| u32::from(c[0]) | u32::from(c[1]) << 16)
                    .collect()
            })
            .collect();
        both.same(
            &format!("bf16_reduce_encode {about}"),
            &sent,
            &[vec![7; count.div_ceil(2)]],
            false,
            |k, i, mut o| k.bf16_reduce_encode(&i, count, o.pop().unwrap()).unwrap(),
            |r| r.is_some(),
        );
        both.same(
            &format!("bf16_expand {about}"),
            &sent[..1],
            &[vec![7; count]],
            true,
            |k, mut i, mut o| k.bf16_expand(i.pop().unwrap(), weight, o.pop().unwrap()).unwrap(),
            |_| false,
        );
        both.same(&format!("bf16_decode_sum {about}"), &sent, &[vec![7; count]], true, |k, i, mut o| {
            k.bf16_decode_sum(&i, weight, o.pop().unwrap()).unwrap()
        }, |_| false);
        let vectors: Vec<_> = (0..ranks).map(|_| bits(&values(&mut random, mix, count))).collect();
        both.same(&format!("sum {about}"), &vectors, &[vec![7; count]], true, |k, i, mut o| {
            k.sum(&i, o.pop().unwrap()).unwrap()
        }, |_| false);
        let shift = random.below(9) as u32;
        both.same(&format!("average {about}"), &[bits(&residual(&mut random, mix, count))], &[old.clone()], true, |k, mut i, mut o| {
            k.average(i.pop().unwrap(), shift, o.pop().unwrap()).unwrap()
        }, |_| false);
        let sent: Vec<_> = (0..ranks).map(|_| SentSigns::new(&mut random, mix, count, block)).map(|s| [bits(&s.scales), s.bits].concat()).collect();
        both.same(&format!("sign_decode_sum {about} {ranks} {weight}"), &sent, &[vec![7; count]], true, |k, i, mut o| {
            k.sign_decode_sum(&i, block, weight, o.pop().unwrap()).unwrap()
        }, |_| false);
        for format in formats(block) {
            let sent: Vec<_> = (0..ranks).map(|_| SentInts::new(&mut random, mix, count, format)).map(|s| part_words(&s.scales, &s.codes)).collect();
            both.same(&format!("int_decode_sum {about} {ranks} {weight}"), &sent, &[vec![7; count]], true, |k, i, mut o| {
                k.int_decode_sum(&i, format, weight, o.pop().unwrap()).unwrap()
            }, |_| false);
            for has_old in [false, true] {
                both.same(&format!("int_magnitudes {about}"), &[input.clone(), old.clone()], &[vec![7; count.div_ceil(block)]], false, |k, mut i, mut o| {
                    let old = i.pop().filter(|_| has_old);
                    k.int_magnitudes(i.pop().unwrap(), old, block, o.pop().unwrap()).unwrap()
                }, |_| false);
                if !format.symmetric { continue; }
                let (fi, fo): (Vec<f32>, Vec<f32>) = (input.iter().map(|b| f32::from_bits(*b)).collect(), old.iter().map(|b| f32::from_bits(*b)).collect());
                let Some(m) = magnitudes(&mut random, &fi, has_old.then_some(&fo[..]), format) else { continue };
                for size in CodeSize::ALL {
                    let rounding = random.one_of(&roundings(&mut random.clone()));
                    let words = (count * size.bytes()).div_ceil(4);
                    let mut outs = vec![vec![7; words]];
                    if has_old { outs.push(vec![7; count]); }
                    both.same(&format!("int_encode_shared {about} {format:?} {size:?} {rounding:?}"), &[input.clone(), m.clone(), old.clone()], &outs, true, |k, mut i, mut o| {
                        let old = i.pop().filter(|_| has_old);
                        let new = if has_old { o.pop() } else { None };
                        let shared = Shared { format, size, magnitudes: i.pop().unwrap() };
                        k.int_encode_shared(i.pop().unwrap(), feedback(old, new), rounding, shared, o.pop().unwrap()).unwrap()
                    }, |_| false);
                    let codes: Vec<u32> = (0..words).map(|_| if size == CodeSize::Four { (random.bits() as i32 >> 8) as u32 } else { random.bits() as u32 }).collect();
                    both.same(&format!("int_expand_shared {about} {format:?} {size:?}"), &[codes, m.clone()], &[vec![7; count]], true, |k, mut i, mut o| {
                        let shared = Shared { format, size, magnitudes: i.pop().unwrap() };
                        k.int_expand_shared(i.pop().unwrap(), shared, weight, o.pop().unwrap()).unwrap()
                    }, |_| false);
                }
            }
        }
    }
}
