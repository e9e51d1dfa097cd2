// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels as the guest protocol of a test rank: the rank polls the fabric, and passes to the channels the completions
//! that belong to them.

use std::any::Any;

use channel::{Channels, OWNER};
use testbed::GuestProtocol;
use transport::{Completion, Fabric, Owner};

/// The channels of a rank, created on first use.
pub fn channels_of(guest: &mut Option<Box<dyn GuestProtocol>>) -> &mut Channels {
    let guest = guest.get_or_insert_with(|| Box::new(Guests(Channels::new())));
    let found = guest.as_any().downcast_mut::<Guests>();
    &mut found.unwrap().0
}

struct Guests(Channels);

impl GuestProtocol for Guests {
    fn owns_kind(&self, kind: u8) -> bool {
        Owner::of_kind(kind) == OWNER
    }

    fn owns(&self, completion: &Completion) -> bool {
        match completion {
            Completion::Arrived(arrived) => self.owns_kind(arrived.head.kind),
            Completion::Worked { work, .. } => Owner::of_work(*work) == OWNER,
            Completion::Written { immediate, .. } => Owner::of_immediate(*immediate) == OWNER,
            Completion::Lost { .. } => false,
        }
    }

    fn take(&mut self, fabric: &mut Fabric, completion: Completion) {
        match completion {
            Completion::Arrived(arrived) => {
                self.0.arrive(fabric, &arrived);
                fabric.release(&arrived);
            }
            Completion::Worked { work, outcome, .. } => self.0.worked(fabric, work, outcome),
            Completion::Written { peer, immediate } => self.0.written(peer, immediate),
            Completion::Lost { .. } => {}
        }
    }

    fn turn(&mut self, fabric: &mut Fabric) -> bool {
        self.0.is_busy() && self.0.progress(fabric)
    }

    fn may_sleep(&self) -> bool {
        !self.0.waits_for_room()
    }

    fn has_arrivals(&mut self) -> bool {
        self.0.has_arrivals()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
