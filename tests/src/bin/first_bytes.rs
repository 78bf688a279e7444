//! One rank of the test of frames: `first_bytes memory|tcp`. The first bytes that a call of rank 0 sends end its
//! process, which prints its stack: a store into the ring, which has become read-only, or a system call that sends.

#![expect(unsafe_code, reason = "protects memory, and traps system calls")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the test reads it")]

use std::backtrace::Backtrace;
use std::ffi::c_int;
use std::{fs, io, mem, ptr};

use unisono::{Collectives, Communicator, ReduceOp};

fn main() {
    let medium = std::env::args().nth(1).unwrap();
    let world = unisono::init().unwrap();
    // Connects the ranks, whose first call maps the memory.
    world.barrier().unwrap();
    if world.rank() == 0 {
        match medium.as_str() {
            "memory" => protect_rings(),
            _ => trap_sends(),
        }
    }
    // Rank 1 loses rank 0 in it.
    let _ = world.all_reduce(&mut [1.0f32; 8], ReduceOp::Sum);
}

/// Prints the stack of the signal's thread, which stands in this library and holds no lock of the allocator.
extern "C" fn show_stack(_: c_int) {
    println!("{}", Backtrace::force_capture());
    // SAFETY: it ends the process, without the library's goodbye: the call in progress holds the memory.
    unsafe { libc::_exit(0) }
}

fn handle(signal: c_int) {
    // SAFETY: all bytes zero are an action, and the handler has the type of a handler without information.
    let code = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = show_stack as extern "C" fn(c_int) as usize;
        libc::sigaction(signal, &action, ptr::null_mut())
    };
    assert_eq!(code, 0, "{}", io::Error::last_os_error());
}

/// Makes every ring that this process may write read-only.
fn protect_rings() {
    handle(libc::SIGSEGV);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let rings = maps.lines().filter(|line| line.contains(" rw-s ") && line.contains("/memfd:unisono"));
    let mut count = 0;
    for ring in rings {
        let (start, end) = ring.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
        // SAFETY: the kernel has named the place, and a store there ends the process.
        let code =
            unsafe { libc::mprotect(ptr::without_provenance_mut(start), end - start, libc::PROT_READ) };
        assert_eq!(code, 0, "{}", io::Error::last_os_error());
        count += 1;
    }
    assert!(count > 0, "no ring in {maps}");
}

/// Has the kernel raise SIGSYS where this thread would send on a socket.
fn trap_sends() {
    handle(libc::SIGSYS);
    let number = mem::offset_of!(libc::seccomp_data, nr) as u32;
    let step = |code: u32, jt: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, number),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 2, libc::SYS_sendto as u32),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_sendmsg as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_TRAP),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives through the call, and its jumps stay within it.
    let codes = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
        ]
    };
    assert_eq!(codes, [0, 0], "{}", io::Error::last_os_error());
}
