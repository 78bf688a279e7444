//! The CPUs that this process may run on.

use unisono_control::roster::cpus::Cpus;

/// The CPUs of this thread. They are the CPUs of its process, unless the thread was bound separately.
pub(super) fn own_cpus() -> Cpus {
    let usable = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let allowed: Vec<usize> = allowed().unwrap_or_default();
    // Some systems do not report which CPUs, only how many.
    if allowed.is_empty() { Cpus::new(0..usable, usable) } else { Cpus::new(allowed, usable) }
}

#[cfg(target_os = "linux")]
fn allowed() -> Option<Vec<usize>> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(None).ok()?;
    Some((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Option<Vec<usize>> {
    None
}

#[cfg(test)]
mod tests {
    use unisono_control::codec::{Reader, Writer};

    use super::*;

    #[test]
    fn what_this_process_may_use_is_known() {
        let (own, mut writer) = (own_cpus(), Writer::new());
        assert_eq!(
            Cpus::cores_of([&own]) as usize,
            std::thread::available_parallelism().map_or(1, usize::from)
        );
        own.write(&mut writer);
        assert_eq!(Cpus::read(&mut Reader::new(&writer.finish())), Ok(own));
    }
}
