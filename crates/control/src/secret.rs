//! The job's secret. Every holder of it is a member of the job.

use std::sync::Arc;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use unisono_communicator::{Error, Result};
use zeroize::{Zeroize, Zeroizing};

/// Length of a secret.
pub const SECRET_BYTES: usize = 32;

/// Length of an authentication tag made with a secret.
pub const TAG_BYTES: usize = 32;

/// The secret of a job; never printed. The bytes are wiped when the last copy goes, and so is the memory into which a
/// file or a pipe is read. The state of a tag in progress is not wiped: it is a hash of the secret on the stack.
#[derive(Clone)]
pub struct Secret {
    // Behind one pointer, so that moving and cloning leaves no copies of the bytes behind.
    bytes: Arc<Zeroizing<[u8; SECRET_BYTES]>>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A fresh secret from the system's generator.
    pub fn random() -> Result<Secret> {
        let mut bytes = [0; SECRET_BYTES];
        fill_random(&mut bytes)?;
        Ok(Secret::take(&mut bytes))
    }

    /// The secret of these bytes, which are wiped where they stand.
    pub fn take(bytes: &mut [u8; SECRET_BYTES]) -> Secret {
        let secret = Secret { bytes: Arc::new(Zeroizing::new(*bytes)) };
        bytes.zeroize();
        secret
    }

    /// HMAC-SHA256 over `parts`, one after the other.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Whether `tag` is the tag over `parts`, in constant time.
    pub fn verifies(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.mac(parts).verify_slice(tag).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(self.expose()).expect("a key of any length");
        for part in parts {
            mac.update(part);
        }
        mac
    }

    /// The bytes, for who writes them where only members of the job read them.
    pub fn expose(&self) -> &[u8; SECRET_BYTES] {
        &self.bytes
    }
}

/// Fills `bytes` from the system's generator.
pub fn fill_random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes)
        .map_err(|error| Error::System { what: "get random bytes".into(), text: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_depend_on_secret_and_parts() {
        let secret = Secret::take(&mut [1; SECRET_BYTES]);
        let tag = secret.tag(&[b"ab", b"c"]);
        assert!(secret.verifies(&[b"abc"], &tag));
        assert!(!secret.verifies(&[b"abd"], &tag));
        assert!(!secret.verifies(&[b"abc"], &tag[1..]));
        assert!(!Secret::take(&mut [2; SECRET_BYTES]).verifies(&[b"abc"], &tag));
    }
}
