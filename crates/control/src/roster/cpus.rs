//! The CPUs that a process may run on, and the number of cores that the ranks of a host have together.
//!
//! Launchers bind ranks to CPUs: under `mpirun`'s default binding every rank of a host may use one CPU, and each of
//! them another. So no rank can count the cores of its host alone; the store unites the reports of the ranks.
//!
//! As bytes: the mask as a byte string, bit `c % 8` of byte `c / 8` for CPU c, without zero bytes at its end, at most
//! `MASK_BYTES_MAX` long; then as `u32` how many of these CPUs the process can keep busy.

use crate::codec::{Malformed, Reader, Writer};

/// The number of CPUs that a mask can hold, as many as the system's own. The CPUs beyond them are not counted.
const CPUS_MAX: usize = 1024;

/// The most bytes of a mask.
const MASK_BYTES_MAX: usize = CPUS_MAX / 8;

/// The most bytes of an encoded [`Cpus`].
pub const CPUS_BYTES_MAX: usize = 4 + MASK_BYTES_MAX + 4;

/// The CPUs that a process may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// Ends with a byte that is not zero.
    mask: Vec<u8>,
    /// The number of them that it can keep busy: fewer than are in the mask where a CPU quota (cgroups) limits it.
    usable: u32,
}

impl Cpus {
    /// The numbers in `cpus` that fit into a mask, of which `usable` can be kept busy.
    pub fn new(cpus: impl IntoIterator<Item = usize>, usable: usize) -> Cpus {
        let mut mask = Vec::new();
        for cpu in cpus.into_iter().filter(|cpu| *cpu < CPUS_MAX) {
            mask.resize(mask.len().max(cpu / 8 + 1), 0);
            mask[cpu / 8] |= 1 << (cpu % 8);
        }
        if mask.is_empty() {
            mask.push(1);
        }
        let usable = usable.clamp(1, count(&mask) as usize) as u32;
        Cpus { mask, usable }
    }

    /// The number of cores that these processes of one host have together. A quota counts only if all of them have one:
    /// then it is the quota of the container that they share.
    pub fn cores_of<'a>(processes: impl IntoIterator<Item = &'a Cpus>) -> u32 {
        let (mut all, mut quota, mut is_free) = ([0; MASK_BYTES_MAX], 0, false);
        for Cpus { mask, usable } in processes {
            all.iter_mut().zip(mask).for_each(|(all, own)| *all |= own);
            quota = quota.max(*usable);
            is_free |= *usable == count(mask);
        }
        let cores = if is_free { count(&all) } else { quota };
        cores.max(1)
    }

    /// Appends it to a message.
    pub fn write(&self, writer: &mut Writer) {
        writer.bytes(&self.mask).u32(self.usable);
    }

    /// Reads it from a message.
    pub fn read(reader: &mut Reader<'_>) -> Result<Cpus, Malformed> {
        let mask = reader.bytes(MASK_BYTES_MAX)?.to_vec();
        let usable = reader.u32()?;
        if mask.last().is_none_or(|last| *last == 0) {
            return Err(Malformed { what: "a mask of CPUs that is empty or too long" });
        }
        if !(1..=count(&mask)).contains(&usable) {
            return Err(Malformed { what: "more usable CPUs than there are, or none" });
        }
        Ok(Cpus { mask, usable })
    }
}

fn count(mask: &[u8]) -> u32 {
    mask.iter().map(|byte| byte.count_ones()).sum()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The largest on the wire.
    pub(crate) fn largest() -> Cpus {
        Cpus::new(0..CPUS_MAX, CPUS_MAX)
    }

    /// A process that is bound to one CPU.
    pub(crate) fn bound_to(cpu: usize) -> Cpus {
        Cpus::new([cpu], 1)
    }

    fn encoded(cpus: &Cpus) -> Vec<u8> {
        let mut writer = Writer::new();
        cpus.write(&mut writer);
        writer.finish()
    }

    fn decoded(bytes: &[u8]) -> Result<Cpus, Malformed> {
        let mut reader = Reader::new(bytes);
        let cpus = Cpus::read(&mut reader)?;
        reader.finish().map(|()| cpus)
    }

    #[test]
    fn cores_are_those_of_all_ranks_together() {
        let bound: Vec<Cpus> = (0..32).map(bound_to).collect();
        assert_eq!(Cpus::cores_of(&bound), 32, "each rank bound to a CPU of its own");
        assert_eq!(Cpus::cores_of(&bound[..1]), 1);
        assert_eq!(
            Cpus::cores_of([&bound[3], &bound[3], &Cpus::new([1023, 3], 2)]),
            2,
            "shared ones count once"
        );
        assert_eq!(Cpus::cores_of([]), 1);
    }

    #[test]
    fn a_quota_is_believed_when_nobody_is_without() {
        let within = Cpus::new(0..16, 4);
        assert_eq!(Cpus::cores_of([&within, &within]), 4);
        assert_eq!(Cpus::cores_of([&within, &bound_to(20)]), 17);
    }

    #[test]
    fn masks_survive_the_wire_whole_and_only_whole() {
        for cpus in [largest(), bound_to(0), bound_to(CPUS_MAX - 1), Cpus::new([7, 8, 300], 2)] {
            let bytes = encoded(&cpus);
            assert!(bytes.len() <= CPUS_BYTES_MAX);
            assert!((0..bytes.len()).all(|end| decoded(&bytes[..end]).is_err()));
            assert_eq!(decoded(&bytes), Ok(cpus));
        }
        assert_eq!(Cpus::new([CPUS_MAX, 2], 2), bound_to(2), "beyond what is told apart");
    }

    #[test]
    fn masks_that_no_process_has_are_refused() {
        let message = |mask: &[u8], usable: u32| Writer::new().bytes(mask).u32(usable).clone().finish();
        assert_eq!(decoded(&message(&[5], 2)), Ok(Cpus::new([0, 2], 2)));
        let too_long = [vec![0; MASK_BYTES_MAX], vec![1]].concat();
        for (mask, usable) in
            [(&[][..], 0), (&[], 1), (&[0], 0), (&[1, 0], 1), (&too_long, 1), (&[5], 0), (&[5], 3)]
        {
            assert!(decoded(&message(mask, usable)).is_err(), "{mask:?}, {usable}");
        }
    }
}
