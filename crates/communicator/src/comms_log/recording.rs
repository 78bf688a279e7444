//! Recorded calls that no board remembers: parent calls, and calls of `Solo`.

use crate::call::descriptor::Descriptor;
use crate::call::site::Site;
use crate::comms_log::CommsLogger;
use crate::comms_log::recorded::{EnteredCall, RecordedCall, RecordedEnd};
use crate::group::Group;

/// A call that is being recorded, until its end is told.
pub struct Recording {
    call: RecordedCall,
    descriptor: Descriptor,
    site: Site,
    group: Group,
}

impl Recording {
    /// Begins, if the log of `group` wants the call.
    pub fn begin(call: &EnteredCall<'_>, group: &Group) -> Option<Recording> {
        let recorded = group.comms_logger().enter(call)?;
        let (descriptor, site, group) = (*call.descriptor, call.site, group.clone());
        Some(Recording { call: recorded, descriptor, site, group })
    }

    /// Ends.
    pub fn end(mut self, ended: RecordedEnd) {
        if self.group.comms_logger().end(&mut self.call, ended) && self.group.rank() == 0 {
            let shown = format_args!("{}{}", self.descriptor, self.site.at());
            CommsLogger::tell(&self.call, self.group.own_job_rank().get(), &shown);
        }
    }
}
