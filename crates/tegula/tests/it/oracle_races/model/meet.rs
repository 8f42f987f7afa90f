//! Places where threads wait for each other.

use super::{Machine, Place};

impl Machine<'_> {
    /// Comes to a place where so many threads meet. Gives whether the thread goes on.
    pub(super) fn meet(&mut self, me: usize, place: Place, count: usize, waits: bool) -> bool {
        let thread = &mut self.threads[me];
        let at = match thread.waits_at {
            Some(at) => at,
            None => {
                let at = match place {
                    // Whoever meets there next is of the next meeting.
                    Place::Named { .. } => {
                        (place, self.meetings.range((place, 0)..=(place, usize::MAX)).filter(|(_, m)| m.full).count())
                    }
                    _ => {
                        let visits = thread.visits.entry(place).or_default();
                        *visits += 1;
                        (place, *visits)
                    }
                };
                let meeting = self.meetings.entry(at).or_default();
                meeting.came += 1;
                meeting.full = meeting.came == count;
                // That they come together orders no memory.
                if !matches!(place, Place::Multiply { .. }) {
                    meeting.known.join(&thread.known);
                }
                thread.waits_at = waits.then_some(at);
                at
            }
        };
        if !waits {
            return true;
        }
        let meeting = &self.meetings[&at];
        if meeting.full {
            thread.known.join(&meeting.known);
            thread.waits_at = None;
        }
        meeting.full
    }
}
