//! Whether the ranks of this host could read each other's memory. The kernel's answer may depend on how two processes
//! are related, so a child tries to read this process: like the ranks of a host, it is no ancestor of the other one.

use std::os::unix::process::parent_id;
use std::process::{Command, Stdio};

use unisono_job::{Nonce, OtherProcess, SingleCopy};

use crate::arguments::READ_PARENT;
use crate::problem::{Problem, Result};

/// The number of copies of a long message between ranks of this host that share memory.
pub(super) fn single_copy(setting: SingleCopy) -> String {
    if setting == SingleCopy::Off {
        return "long messages are copied twice, because UNISONO_SINGLE_COPY is off".to_owned();
    }
    match problem(setting) {
        None => "long messages of an exchange are copied once".to_owned(),
        Some(problem) => {
            let remedy = match setting {
                SingleCopy::Auto => "; UNISONO_SINGLE_COPY=on may help",
                SingleCopy::On | SingleCopy::Off => "",
            };
            format!(
                "long messages are copied twice, because ranks cannot read each other's memory: {problem}{remedy}"
            )
        }
    }
}

fn problem(setting: SingleCopy) -> Option<String> {
    let Some(nonce) = setting.nonce() else { return Some("no memory is left".to_owned()) };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return Some(error.to_string()),
    };
    let nonce: String = nonce.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let child = Command::new(program).args([READ_PARENT, &nonce]).stdin(Stdio::null()).output();
    match child {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Err(error) => Some(format!("no child could try: {error}")),
    }
}

/// Reads the memory of the parent process, which has this nonce; prints the reason if it cannot.
pub(crate) fn read_parent(nonce: &str) -> Result<()> {
    let digits = (0..nonce.len()).step_by(2).map_while(|at| nonce.get(at..at + 2));
    let bytes: Vec<u8> = digits.map_while(|digits| u8::from_str_radix(digits, 16).ok()).collect();
    let Ok(bytes) = <[u8; Nonce::BYTES]>::try_from(bytes) else {
        return Err(Problem::failed(READ_PARENT, "this is no nonce"));
    };
    match OtherProcess::new(parent_id() as i32, Nonce::from_bytes(&bytes)) {
        Ok(_) => Ok(()),
        Err(error) => {
            crate::print::line(&error.to_string())?;
            Err(Problem::reported())
        }
    }
}
