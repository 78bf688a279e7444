//! Names of algorithms as static text: the records and outcomes of calls are copied, and copying must not count
//! references.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::lock;

/// Every name that was asked for. There are as many as algorithms, and `leaders:L` for each L that was chosen.
static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The same text, for as long as the process lives. Once for each plan, not for each call.
pub(super) fn intern(name: &str) -> &'static str {
    let mut names = lock(&NAMES);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_for_one_name() {
        assert!(std::ptr::eq(intern("leaders:977"), intern(&format!("leaders:{}", 977))));
        assert_ne!(intern("leaders:977"), intern("leaders:978"));
    }
}
