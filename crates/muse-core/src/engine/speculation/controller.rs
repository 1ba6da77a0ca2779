//! Whether drafting pays for a request, by what it was seen to do.

/// Samples with drafts before a verdict, the worst of them not counted.
const TRIED: u32 = 4;
/// Samples of a trial after a pause.
const TRIAL: u32 = 2;
/// How much faster a trial must be to end the pauses.
pub(super) const MARGIN: f64 = 1.15;
/// Steps of the first pause, and of the longest.
const PAUSE: (u32, u32) = (16, 64);
/// Samples after which the earlier ones count half.
const MEMORY: u32 = 32;

/// Sums of tokens and seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    tokens: f64,
    seconds: f64,
    samples: u32,
    /// Tokens and seconds of the slowest sample.
    worst: Option<(f64, f64)>,
    warm: bool,
}

impl Side {
    fn add(&mut self, tokens: f64, seconds: f64) {
        // The first is warm-up.
        if !std::mem::replace(&mut self.warm, true) {
            return;
        }
        if self.samples == MEMORY {
            *self = Self {
                tokens: self.tokens / 2.0,
                seconds: self.seconds / 2.0,
                samples: MEMORY / 2,
                worst: None,
                warm: true,
            };
        }
        self.tokens += tokens;
        self.seconds += seconds;
        self.samples += 1;
        if self.worst.is_none_or(|(t, s)| tokens * s < t * seconds) {
            self.worst = Some((tokens, seconds));
        }
    }

    /// Tokens a second; without the worst sample if `trimmed`.
    fn rate(&self, trimmed: bool) -> Option<f64> {
        let (tokens, seconds) = self.worst.filter(|_| trimmed).unwrap_or_default();
        (self.seconds > seconds).then(|| (self.tokens - tokens) / (self.seconds - seconds))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Drafts,
    Pauses { left: u32 },
    Tries,
}

/// Decides for one request.
#[derive(Clone, Debug)]
pub(in crate::engine) struct DraftController {
    with: Side,
    without: Side,
    state: State,
    pause: u32,
}

impl DraftController {
    pub(super) fn new() -> Self {
        let side = Side::default();
        Self { with: side, without: side, state: State::Drafts, pause: PAUSE.0 }
    }

    /// Whether the coming step may carry drafts. Call it once a step.
    pub(super) fn allows(&mut self) -> bool {
        match &mut self.state {
            State::Pauses { left: 0 } => {
                self.state = State::Tries;
                self.with = Side { warm: true, ..Side::default() };
                true
            }
            State::Pauses { left } => {
                *left -= 1;
                false
            }
            State::Drafts | State::Tries => true,
        }
    }

    /// Whether it may draft to find out: after a pause, and when the request begins.
    pub(super) fn may_try(&mut self) -> bool {
        if !self.with.warm {
            self.with.warm = true;
            self.state = State::Tries;
        }
        self.tries()
    }

    /// Whether it came back from a pause to find out.
    pub(super) fn tries(&self) -> bool {
        self.state == State::Tries
    }

    /// No drafts for a while, each time for longer.
    pub(super) fn park(&mut self) {
        self.state = State::Pauses { left: self.pause };
        self.pause = (2 * self.pause).min(PAUSE.1);
    }

    /// A step without drafts.
    pub(super) fn saw_plain(&mut self, tokens: f64, seconds: f64) {
        self.without.add(tokens, seconds);
    }

    /// A step with drafts; `expected` is the rate to expect without while none was seen.
    pub(super) fn saw_drafted(&mut self, tokens: f64, seconds: f64, expected: f64) {
        self.with.add(tokens, seconds);
        let without = self.without.rate(false).unwrap_or(expected);
        let (needed, margin) = match self.state {
            State::Tries => (TRIAL, MARGIN),
            _ => (TRIED, 1.0),
        };
        let Some(with) = self.with.rate(self.state == State::Drafts) else { return };
        if self.with.samples < needed {
            // A trial that loses needs no second sample.
            if self.tries() && with < without {
                self.park();
            }
        } else if with < margin * without {
            self.park();
        } else if self.tries() {
            self.state = State::Drafts;
            self.pause = PAUSE.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps until it stops drafting, and the pauses after that.
    fn pauses(with: f64, steps: usize) -> (usize, Vec<usize>) {
        let mut controller = DraftController::new();
        let (mut drafted, mut pauses, mut pause) = (0, Vec::new(), 0);
        for _ in 0..steps {
            if controller.allows() {
                if pause > 0 {
                    pauses.push(std::mem::take(&mut pause));
                }
                drafted += usize::from(pauses.is_empty());
                controller.saw_drafted(with, 1.0, 1.0);
            } else {
                pause += 1;
                controller.saw_plain(1.0, 1.0);
            }
        }
        (drafted, pauses)
    }

    #[test]
    fn what_does_not_pay_pauses_for_longer_and_longer() {
        assert_eq!(pauses(0.8, 250), (5, vec![16, 32, 64, 64, 64]));
    }

    #[test]
    fn what_pays_goes_on() {
        assert_eq!(pauses(1.01, 200), (200, vec![]));
    }

    #[test]
    fn the_first_and_the_worst_do_not_decide() {
        let mut controller = DraftController::new();
        controller.saw_drafted(0.01, 1.0, 1.0);
        controller.saw_drafted(0.1, 1.0, 1.0);
        for _ in 0..20 {
            controller.saw_drafted(1.2, 1.0, 1.0);
            assert!(controller.allows());
        }
    }

    #[test]
    fn after_a_pause_it_must_win_by_a_margin() {
        for (rate, wins) in [(1.1, false), (1.2, true)] {
            let mut controller = DraftController::new();
            controller.saw_plain(9.0, 1.0);
            controller.saw_plain(1.0, 1.0);
            controller.park();
            while !controller.allows() {}
            (0..TRIAL).for_each(|_| controller.saw_drafted(rate, 1.0, 5.0));
            assert_eq!(controller.state == State::Drafts, wins, "{rate}");
        }
    }
}
